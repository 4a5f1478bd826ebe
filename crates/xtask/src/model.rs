// SPDX-License-Identifier: MIT OR Apache-2.0
//! What makes the memory of a timed machine take time: builds the plugin of lab/timed, and starts QEMU with it. One shared
//! object is both QEMU's plugin and preloaded, so that it can answer when QEMU asks for the time.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result, bail};
use fs_err as fs;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

use crate::cache::{Cache, Key, make_folder};
use crate::command::{self, first_line};
use crate::emulator::Emulator;
use crate::lab::Lab;
use crate::timed::Timed;
use crate::tree::files_ending;
use crate::ui::step;

/// Where a checkout has the model.
const SOURCES: &str = "lab/timed";

const COMPILER: &str = "gcc";
/// What is preloaded must not stand in the way of other names.
const FLAGS: [&str; 9] = [
    "-std=gnu11",
    "-O2",
    "-shared",
    "-fPIC",
    "-fvisibility=hidden",
    "-pthread",
    "-Wall",
    "-Wextra",
    "-Werror",
];

/// QEMU and its plugin.
pub struct Model {
    emulator: Emulator,
    plugin: PathBuf,
}

/// A model, and where it leaves the totals of one boot.
pub struct Timing<'a> {
    pub model: &'a Model,
    pub truth: PathBuf,
}

impl Model {
    /// That of the lab's machine; None if its memory takes no time.
    pub fn find(lab: &Lab) -> Result<Option<Self>> {
        if lab.machine.timed.is_none() {
            return Ok(None);
        }
        Ok(Some(Self {
            emulator: Emulator::find(&lab.cache, &lab.machine)?,
            plugin: build(&lab.cache, &lab.root)?,
        }))
    }
}

impl Timing<'_> {
    /// QEMU's command line so far, for a boot with `memory`; `folder` takes the file of the parameters.
    pub fn command(&self, timed: &Timed, memory: &Memory, folder: &Path) -> Result<Command> {
        let fds = memory.fds();
        let parameters = folder.join("parameters");
        fs::write(&parameters, timed.file(&fds, &self.truth))?;
        let plugin = self.model.plugin.display();
        let mut command = self.model.emulator.command();
        command
            .env("LD_PRELOAD", &self.model.plugin)
            .args(timed.arguments(&fds)?)
            .args(["-rtc", "clock=vm", "-plugin"])
            .arg(format!("{plugin},params={}", parameters.display()));
        Ok(command)
    }
}

/// The memory of a machine's nodes, which programs that start before this is dropped inherit. So no two of them are there
/// at a time: QEMU would keep the memory of another guest.
pub struct Memory {
    files: Vec<OwnedFd>,
    _alone: MutexGuard<'static, ()>,
}

impl Memory {
    pub fn new(timed: &Timed) -> Result<Self> {
        static ALONE: Mutex<()> = Mutex::new(());
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let mut files = Vec::new();
        for (node, bytes) in timed.node_bytes()?.iter().enumerate() {
            let file = memfd_create(format!("node{node}"), MemfdFlags::empty())?;
            ftruncate(&file, *bytes)?;
            files.push(file);
        }
        Ok(Self { files, _alone })
    }

    fn fds(&self) -> Vec<RawFd> {
        self.files.iter().map(AsRawFd::as_raw_fd).collect()
    }
}

/// Names what the sources of the checkout `root` and the compiler make.
pub fn key(root: &Path) -> Result<String> {
    let mut key = Key::default();
    for path in sources(root, "c")?.iter().chain(&sources(root, "h")?) {
        let name = path.file_name().context("a file")?;
        key.add(name.as_encoded_bytes());
        key.add(&fs::read(path)?);
    }
    for flag in FLAGS {
        key.add(flag.as_bytes());
    }
    key.add(first_line(Command::new(COMPILER).arg("--version"))?.as_bytes());
    Ok(key.name())
}

fn sources(root: &Path, end: &str) -> Result<Vec<PathBuf>> {
    files_ending(&root.join(SOURCES), end)
}

/// Builds the plugin of the checkout `root`, or takes it from the cache.
fn build(cache: &Cache, root: &Path) -> Result<PathBuf> {
    let folder = cache.root.join("timed").join(key(root)?);
    let plugin = folder.join("timed.so");
    if plugin.is_file() {
        return Ok(plugin);
    }
    let sources = sources(root, "c")?;
    if sources.is_empty() {
        bail!("{SOURCES} has no C files");
    }
    step!("building the model of {SOURCES}");
    let log = folder.with_extension("log");
    make_folder(&folder, |part| {
        let mut compiler = Command::new(COMPILER);
        compiler.args(FLAGS).arg("-o").arg(part.join("timed.so"));
        compiler.args(&sources).arg("-ldl");
        command::logged(&mut compiler, &log, &format!("build {SOURCES}"))
    })?;
    Ok(plugin)
}

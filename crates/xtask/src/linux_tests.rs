// SPDX-License-Identifier: MIT OR Apache-2.0
//! Linux's own tests of memory management, which kernel/selftests builds from a source tree in
//! which nothing else was built. They are built once and kept; the tree is not.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::cache::{Cache, Key};
use crate::command::{self, first_line};
use crate::host::{self, Need};
use crate::machine::Machine;
use crate::source::Source;
use crate::ui::Ui;

/// What they need beside what a kernel needs: a header, and the Debian package that has it.
const NEEDS: [Need; 1] = [("/usr/include/numa.h", "libnuma-dev")];

/// The list of them beside `suite`.
pub const SUITE: &str = "suite.linux";

/// Builds them, or takes them from the cache. Returns a folder for the guest programs.
pub fn build(
    cache: &Cache,
    root: &Path,
    machine: &Machine,
    source: &Source,
    ui: &Ui,
) -> Result<PathBuf> {
    if machine.kernel.cross_compile.is_empty() {
        host::require(root, &NEEDS)?;
    }
    let selftests = root.join("kernel/selftests");
    let mut key = Key::default();
    key.add(source.id.as_bytes());
    key.add(machine.kernel.arch.as_bytes());
    let makefile = selftests.join("Makefile");
    key.add(&fs::read(&makefile).with_context(|| format!("read {}", makefile.display()))?);
    let gcc = format!("{}gcc", machine.kernel.cross_compile);
    key.add(first_line(Command::new(gcc).arg("--version"))?.as_bytes());
    let kept = cache.root.join("linux-tests").join(key.name());
    if kept.exists() {
        return Ok(kept);
    }

    let _lock = cache.lock("linux-tests", ui)?;
    if kept.exists() {
        return Ok(kept);
    }
    let folder = cache.root.join("linux-tests");
    fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
    let work = tempfile::tempdir_in(&folder)?;
    let linux = work.path().join("source/linux");
    source.unpack(&linux, ui)?;
    ui.step("building Linux's own tests");
    let out = work.path().join("out");
    command::logged(
        Command::new("make")
            .arg("-C")
            .arg(&selftests)
            .arg(format!("OUT={}", out.display()))
            .arg(format!("LINUX={}", linux.display()))
            .arg(format!("CROSS_COMPILE={}", machine.kernel.cross_compile))
            .arg("upstream")
            .env_remove("MAKEFLAGS")
            .env_remove("MAKELEVEL"),
        &env::temp_dir().join(format!("memferry-linux-tests-{}.log", std::process::id())),
        "build Linux's own tests",
    )?;
    fs::remove_dir_all(out.join("obj"))?;
    fs::rename(&out, &kept).with_context(|| format!("rename to {}", kept.display()))?;
    Ok(kept)
}

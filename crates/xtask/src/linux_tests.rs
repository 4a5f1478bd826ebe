// SPDX-License-Identifier: MIT OR Apache-2.0
//! Linux's own tests of memory management, which kernel/selftests builds from a source tree in
//! which nothing else was built. They are built once and kept; the tree is not.

use std::env;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;
use fs_err as fs;

use crate::cache::{Key, make_folder};
use crate::command::{self, first_line};
use crate::host::{self, Need};
use crate::lab::Lab;
use crate::ui::step;

/// What they need beside what a kernel needs: a header, and the Debian package that has it.
const NEEDS: [Need; 1] = [("/usr/include/numa.h", "libnuma-dev")];

/// The list of them.
pub const SUITE: &str = "kernel/selftests/suite.linux.toml";

/// Builds them, or takes them from the cache. Returns a folder for the guest programs.
pub fn build(lab: &Lab) -> Result<PathBuf> {
    let kernel = &lab.machine.kernel;
    if kernel.cross_compile.is_empty() {
        host::require(&lab.root, &NEEDS)?;
    }
    let selftests = lab.root.join("kernel/selftests");
    let mut key = Key::default();
    key.add(lab.source.id.as_bytes());
    key.add(kernel.arch.as_bytes());
    key.add(&fs::read(selftests.join("Makefile"))?);
    let gcc = format!("{}gcc", kernel.cross_compile);
    key.add(first_line(Command::new(gcc).arg("--version"))?.as_bytes());
    let kept = lab.cache.root.join("linux-tests").join(key.name());
    if kept.exists() {
        return Ok(kept);
    }

    let _lock = lab.cache.lock("linux-tests")?;
    if kept.exists() {
        return Ok(kept);
    }
    let work = tempfile::tempdir_in(&lab.cache.root)?;
    let linux = work.path().join("linux");
    lab.source.unpack(&linux, &lab.base)?;
    step!("building Linux's own tests");
    make_folder(&kept, |out| {
        let mut make = Command::new("make");
        make.arg("-C")
            .arg(&selftests)
            .arg(format!("OUT={}", out.display()))
            .arg(format!("LINUX={}", linux.display()))
            .arg(format!("CROSS_COMPILE={}", kernel.cross_compile))
            .arg("upstream")
            .env_remove("MAKEFLAGS")
            .env_remove("MAKELEVEL");
        let log = format!("memferry-linux-tests-{}.log", std::process::id());
        let log = env::temp_dir().join(log);
        command::logged(&mut make, &log, "build Linux's own tests")?;
        Ok(fs::remove_dir_all(out.join("obj"))?)
    })?;
    Ok(kept)
}

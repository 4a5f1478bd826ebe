// SPDX-License-Identifier: MIT OR Apache-2.0
//! Linux's own tests of memory management, which kernel/selftests builds from a source tree in
//! which nothing else was built. They are built once and kept; the tree is not.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::cache::Key;
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
    let makefile = selftests.join("Makefile");
    key.add(&fs::read(&makefile).with_context(|| format!("read {}", makefile.display()))?);
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
    let folder = lab.cache.root.join("linux-tests");
    fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
    let work = tempfile::tempdir_in(&folder)?;
    let linux = work.path().join("source/linux");
    lab.source.unpack(&linux)?;
    step!("building Linux's own tests");
    let out = work.path().join("out");
    command::logged(
        Command::new("make")
            .arg("-C")
            .arg(&selftests)
            .arg(format!("OUT={}", out.display()))
            .arg(format!("LINUX={}", linux.display()))
            .arg(format!("CROSS_COMPILE={}", kernel.cross_compile))
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

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The daemon, which is a program of another package, on an invented machine.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use super::built::built;
use super::child::Waiting;
use super::output::quiet;

/// Where it is.
pub fn path() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| built("memferryd", &["/memferryd"]).remove(0))
}

/// The daemon of this tree, with the configuration in it.
pub fn daemon(root: &Path) -> Command {
    let mut daemon = quiet(path());
    daemon.arg("--root").arg(root);
    daemon.arg("--config").arg(root.join("memferry.toml"));
    daemon
}

pub fn started(root: &Path) -> Waiting {
    Waiting(daemon(root).spawn().expect("start"))
}

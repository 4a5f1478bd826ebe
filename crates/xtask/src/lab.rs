// SPDX-License-Identifier: MIT OR Apache-2.0
//! The lab: the checkout, the machine that kernels are for, Linux's source, and the cache of what was
//! built. `build` makes kernels in it, `guest` programs, and `run` boots both.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::cache::Cache;
use crate::host;
use crate::machine::Machine;
use crate::source::{self, Source};

pub struct Lab {
    /// The checkout.
    pub root: PathBuf,
    pub machine: Machine,
    pub source: Source,
    pub cache: Cache,
}

impl Lab {
    /// The lab of the checkout `root` for `machine`, with the tarball `source` or Debian's. Makes sure of what the host
    /// needs.
    pub fn open(root: &Path, machine: Machine, source: Option<&Path>) -> Result<Self> {
        let mut needs = host::needs(&machine);
        if source.is_none() {
            needs.push(source::DEBIAN);
        }
        host::require(root, &needs)?;
        Ok(Self {
            root: root.to_owned(),
            source: Source::find(source)?,
            cache: Cache::open()?,
            machine,
        })
    }
}

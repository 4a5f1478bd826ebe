// SPDX-License-Identifier: MIT OR Apache-2.0
//! The lab: the checkout, the machine that kernels are for, Linux's source, and the cache of what was
//! built. `build` makes kernels in it, `guest` programs, and `run` boots both.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::base::Base;
use crate::cache::Cache;
use crate::host;
use crate::machine::Machine;
use crate::source::Source;

pub struct Lab {
    /// The checkout.
    pub root: PathBuf,
    pub machine: Machine,
    pub base: Base,
    pub source: Source,
    pub cache: Cache,
}

impl Lab {
    /// The lab of the checkout `root` for `machine`, with the tarball `source` or Debian's of `base`. Makes sure of what
    /// the host needs.
    pub fn open(root: &Path, machine: Machine, base: Base, source: Option<&Path>) -> Result<Self> {
        host::require(root, &host::needs(&machine))?;
        let cache = Cache::open()?;
        let tarball = match source {
            Some(tarball) => tarball.to_owned(),
            None => base.tarball(root, &cache)?,
        };
        Ok(Self {
            root: root.to_owned(),
            source: Source::find(tarball)?,
            cache,
            machine,
            base,
        })
    }
}

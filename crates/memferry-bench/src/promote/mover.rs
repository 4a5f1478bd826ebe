// SPDX-License-Identifier: MIT OR Apache-2.0
//! What moves pages for the time of a run without the kernel's counters of promotion: the daemon, and DAMON by itself. Each counts what it
//! promotes.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::daemon::{self, Daemon};
use super::damos::{self, Damos};
use super::mode::Mode;
use super::place::Place;
use super::watch;
use crate::failure::Failure;
use crate::ui::Ui;

/// Who counts the pages that are promoted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Counter {
    #[default]
    Kernel,
    Daemon,
    Damos,
}

impl Counter {
    /// Reads the count.
    pub fn promoted(self) -> fn() -> u64 {
        match self {
            Self::Kernel => watch::promoted,
            Self::Daemon => daemon::promoted,
            Self::Damos => damos::promoted,
        }
    }
}

/// What moves during a run.
pub enum Mover {
    Daemon(Box<Daemon>),
    Damos(Damos),
    /// The kernel does what the mode's files say.
    Kernel,
}

/// What a mover did during a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Done {
    /// Pages that it moved up and down.
    pub promoted_pages: u64,
    pub demoted_pages: u64,
    /// CPU seconds of its own, and of its source.
    pub cpu_s: f64,
    pub source_cpu_s: f64,
}

impl Mover {
    /// Starts it, for the process of this name; none if the user stopped it.
    pub fn start(
        mode: &Mode,
        root: &Path,
        process: &str,
        place: &Place,
        ui: &Ui,
    ) -> Result<Option<Self>, Failure> {
        Ok(match mode.counter() {
            Counter::Kernel => Some(Self::Kernel),
            Counter::Daemon => {
                Daemon::start(root, process, ui)?.map(|daemon| Self::Daemon(Box::new(daemon)))
            }
            Counter::Damos => Some(Self::Damos(Damos::start(
                root,
                place,
                mode.source.unwrap_or(damos::TUNERS[0]),
            )?)),
        })
    }

    /// Ends it; what it did, if it counts that.
    pub fn end(self) -> Result<Option<Done>, Failure> {
        match self {
            Self::Kernel => Ok(None),
            Self::Daemon(daemon) => daemon.end().map(Some),
            Self::Damos(damos) => damos.end().map(Some),
        }
    }
}

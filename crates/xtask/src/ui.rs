// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the user sees while something long runs: one line per step on stderr if it is a terminal,
//! nothing in a pipe. Results go to stdout by `report`.

use std::io::{self, IsTerminal, Write};
use std::time::Instant;

pub struct Ui {
    steps: bool,
    began: Instant,
}

impl Ui {
    /// `verbose` shows steps also when stderr is not a terminal.
    pub fn new(verbose: bool) -> Self {
        Self {
            steps: verbose || io::stderr().is_terminal(),
            began: Instant::now(),
        }
    }

    /// Says what begins now.
    pub fn step(&self, text: &str) {
        if self.steps {
            let seconds = self.began.elapsed().as_secs();
            let _ = writeln!(
                io::stderr(),
                "{:>2}:{:02}  {text}",
                seconds / 60,
                seconds % 60
            );
        }
    }
}

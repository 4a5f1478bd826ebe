// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the user sees while something long runs: one line per step on stderr if it is a terminal,
//! nothing in a pipe. Results go to stdout by `report`.

use std::fmt;
use std::io::{self, IsTerminal};
use std::sync::OnceLock;
use std::time::Instant;

/// Since when steps are shown, if they are.
static SHOWN: OnceLock<Instant> = OnceLock::new();

/// Shows steps from now on, on a terminal; `verbose` does also where stderr is none.
pub fn show_steps(verbose: bool) {
    if verbose || io::stderr().is_terminal() {
        SHOWN.get_or_init(Instant::now);
    }
}

/// Says what begins now, with the arguments of `format!`.
macro_rules! step {
    ($($text:tt)*) => { $crate::ui::show(format_args!($($text)*)) };
}
pub(crate) use step;

pub fn show(step: fmt::Arguments<'_>) {
    if let Some(began) = SHOWN.get() {
        let seconds = began.elapsed().as_secs();
        eprintln!("{:>2}:{:02}  {step}", seconds / 60, seconds % 60);
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names that others chose, such as those of processes, on a terminal.

/// A name without control characters, by which it could set the terminal or look like lines of its own.
pub fn printable(text: &str) -> String {
    text.replace(|c: char| c.is_control(), "\u{fffd}")
}

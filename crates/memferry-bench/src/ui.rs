// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a long command shows while it works: progress bars, warnings, and whether to stop.
//!
//! Bars are drawn only for a person at a terminal. Results are not its business.

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use rustix::termios::tcgetwinsize;

use crate::failure::{Failure, OrFail};
use crate::signals;

/// Columns of output that is not a terminal's: fits a mail, a log and a review page.
const COLUMNS_WITHOUT_TERMINAL: usize = 100;

/// The terminal's side of a command.
pub struct Ui {
    bars: MultiProgress,
    stop: Arc<AtomicBool>,
}

impl Ui {
    /// Bars are drawn if stderr is a terminal that can draw (TERM is not dumb).
    #[expect(clippy::new_without_default, reason = "it depends on the environment")]
    pub fn new() -> Self {
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        match io::stderr().is_terminal() && !dumb {
            true => Self::on(ProgressDrawTarget::stderr()),
            false => Self::quiet(),
        }
    }

    /// No bar is drawn.
    pub fn quiet() -> Self {
        Self::on(ProgressDrawTarget::hidden())
    }

    fn on(target: ProgressDrawTarget) -> Self {
        Self {
            bars: MultiProgress::with_draw_target(target),
            stop: Arc::new(AtomicBool::new(false)),
        }
    }

    /// From here on the first Ctrl-C (SIGTERM, SIGHUP) asks the command to stop cleanly, see
    /// [`Ui::stopped`]; the second ends it at once.
    pub fn catch_interrupts(&self) -> Result<(), Failure> {
        signals::stop_cleanly(&self.stop).or_fail(
            "cannot prepare for Ctrl-C",
            "run the command outside of the sandbox that forbids sigaction(2)",
        )
    }

    /// Whether the user asked to stop; asked between two moves.
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// The same, for what asks by itself.
    pub fn stop(&self) -> &AtomicBool {
        &self.stop
    }

    /// A progress bar of `steps` steps.
    pub fn bar(&self, title: &str, steps: u64) -> Bar {
        let style = ProgressStyle::with_template(
            "{prefix} {wide_bar:.cyan/dim} {pos}/{len}  {msg:<28} {eta:>4} left",
        )
        .unwrap_or_else(|_| ProgressStyle::default_bar());
        self.add(title, steps, style)
    }

    /// A progress bar of so many bytes.
    pub fn bytes_bar(&self, title: &str, bytes: u64) -> Bar {
        let style = ProgressStyle::with_template(
            "{prefix} {wide_bar:.cyan/dim} {binary_bytes}/{binary_total_bytes}  {msg} {eta:>4} left",
        )
        .unwrap_or_else(|_| ProgressStyle::default_bar());
        self.add(title, bytes, style)
    }

    fn add(&self, title: &str, steps: u64, style: ProgressStyle) -> Bar {
        let style = style.progress_chars("━╸─");
        let bar = self.bars.add(ProgressBar::new(steps).with_style(style));
        bar.set_prefix(title.to_owned());
        Bar(bar)
    }

    /// Tells the user at once what the file's notes say at the end: measuring takes minutes, and may not be wanted
    /// this way.
    pub fn warn(&self, text: &str) {
        self.bars.suspend(|| {
            // Without stderr there is nobody to warn.
            let _ = writeln!(io::stderr(), "memferry: warning: {text}");
        });
    }

    /// Columns that a table may take: what COLUMNS says, else what the terminal has.
    pub fn columns() -> usize {
        let asked = std::env::var("COLUMNS").ok();
        let asked = asked.and_then(|columns| columns.parse().ok());
        let terminal = || Some(usize::from(tcgetwinsize(io::stdout()).ok()?.ws_col));
        let known = |columns: &usize| *columns > 0;
        let columns = asked.filter(known).or_else(|| terminal().filter(known));
        columns.unwrap_or(COLUMNS_WITHOUT_TERMINAL).max(40)
    }
}

/// A progress bar; it goes away when it is dropped.
pub struct Bar(ProgressBar);

impl Bar {
    /// Says what is being done now.
    pub fn now(&self, text: &str) {
        self.0.set_message(text.to_owned());
    }

    /// So much of it is done.
    pub fn at(&self, position: u64) {
        self.0.set_position(position);
    }

    /// One step is done.
    pub fn step(&self) {
        self.0.inc(1);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use signal_hook::consts::SIGTERM;

    use super::*;

    #[test]
    fn the_first_interrupt_asks_to_stop() {
        let ui = Ui::quiet();
        ui.catch_interrupts().expect("handlers");
        assert!(!ui.stopped());
        signal_hook::low_level::raise(SIGTERM).expect("raise");
        assert!(ui.stopped());
    }

    #[test]
    fn a_quiet_bar_counts_without_a_terminal() {
        let ui = Ui::quiet();
        let bar = ui.bar("bench move", 2);
        bar.now("mtcopy, 2 lanes");
        bar.step();
        bar.step();
        assert_eq!(bar.0.position(), 2);
        ui.warn("synthetic warning of a test");
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! How many lanes copied the batches of a run, by the tracepoints of the kernel's migrators, in a trace of its own.

use std::fs;
use std::path::{Path, PathBuf};

/// Where traces of one's own are made.
const INSTANCES: &str = "/sys/kernel/tracing/instances";
/// Lanes and batches.
const EVENTS: [&str; 2] = ["migrator_lane_done", "migrator_batch_done"];

/// A trace, which goes with this value.
pub struct LaneTrace(PathBuf);

impl LaneTrace {
    /// Begins one; `None` where tracefs or these tracepoints are not, or not for this user.
    pub fn begin() -> Option<Self> {
        let folder = Path::new(INSTANCES).join(format!("memferry-bench-{}", std::process::id()));
        fs::create_dir(&folder).ok()?;
        let trace = Self(folder);
        for event in EVENTS {
            let file = trace.0.join("events/migrator").join(event).join("enable");
            fs::write(file, "1").ok()?;
        }
        Some(trace)
    }

    /// Lanes that copied for each batch since then; `None` if none was copied.
    pub fn lanes(&self) -> Option<f64> {
        lanes(&fs::read_to_string(self.0.join("trace")).ok()?)
    }
}

impl Drop for LaneTrace {
    fn drop(&mut self) {
        // It costs memory alone if it stays.
        let _ = fs::remove_dir(&self.0);
    }
}

fn lanes(trace: &str) -> Option<f64> {
    let copied = |event: &str| {
        let lines = trace
            .lines()
            .filter(|line| line.contains(&format!(" {event}: ")));
        lines.filter(|line| !line.contains(" bytes=0 ")).count() as f64
    };
    let [lanes, batches] = EVENTS.map(copied);
    (batches > 0.0 && lanes > 0.0).then(|| lanes / batches)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_that_copied_nothing_and_batches_that_were_declined_do_not_count() {
        let trace = "\
# tracer: nop
    memferry-77 [000] ..... 1.000001: migrator_lane_done: lane=0 cpu=0 bytes=1048576 ns=900
    mtcopy/1-80 [001] ..... 1.000002: migrator_lane_done: lane=1 cpu=1 bytes=1048576 ns=900
    memferry-77 [000] ..... 1.000003: migrator_batch_done: migrator=mtcopy reason=syscall folios=512 bytes=2097152 ns=999 error=0
    memferry-77 [000] ..... 1.000004: migrator_lane_done: lane=0 cpu=0 bytes=2097152 ns=900
    mtcopy/1-80 [001] ..... 1.000005: migrator_lane_done: lane=1 cpu=1 bytes=0 ns=10
    memferry-77 [000] ..... 1.000006: migrator_batch_done: migrator=mtcopy reason=syscall folios=512 bytes=2097152 ns=999 error=0
    memferry-77 [000] ..... 1.000007: migrator_batch_done: migrator=mtcopy reason=syscall folios=0 bytes=0 ns=9 error=-16
";
        assert_eq!(lanes(trace), Some(1.5));
        assert_eq!(lanes("# tracer: nop\n"), None);
    }
}

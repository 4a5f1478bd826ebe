// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the time of CPUs went, by /proc/stat.

use std::fs;
use std::ops::{AddAssign, Sub};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Time of CPUs, in ticks of a hundredth of a second: of short runs only the sum over many is exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CpuTicks {
    /// In user mode.
    pub user: u64,
    /// In the kernel, interrupts counted.
    pub system: u64,
    /// Without work.
    pub idle: u64,
}

impl CpuTicks {
    /// Since boot; zeroes where it cannot be read.
    pub fn now() -> Self {
        let text = fs::read_to_string("/proc/stat").unwrap_or_default();
        Self::of(text.lines().next().unwrap_or_default())
    }

    /// Of one CPU, since boot; zeroes where it cannot be read.
    pub fn of_cpu(cpu: u32) -> Self {
        let text = fs::read_to_string("/proc/stat").unwrap_or_default();
        let name = format!("cpu{cpu} ");
        Self::of(
            text.lines()
                .find(|line| line.starts_with(&name))
                .unwrap_or_default(),
        )
    }

    /// Of a line `cpu  USER NICE SYSTEM IDLE IOWAIT IRQ SOFTIRQ …` of proc(5).
    pub fn of(line: &str) -> Self {
        let fields: Vec<u64> = (line.split_whitespace().skip(1))
            .filter_map(|field| field.parse().ok())
            .collect();
        let sum = |of: &[usize]| of.iter().filter_map(|&at| fields.get(at)).sum();
        Self {
            user: sum(&[0, 1]),
            system: sum(&[2, 5, 6]),
            idle: sum(&[3, 4]),
        }
    }

    /// The parts of the whole, percent: user, system, idle.
    pub fn percent(&self) -> [f64; 3] {
        let all = (self.user + self.system + self.idle).max(1) as f64;
        [self.user, self.system, self.idle].map(|of| of as f64 * 100.0 / all)
    }
}

/// What the kernel counts of the calling thread.
pub(crate) fn of_thread() -> libc::rusage {
    // SAFETY: all zeros is a valid `rusage`, and the kernel writes one.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
        usage
    }
}

impl Sub for CpuTicks {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            user: self.user.saturating_sub(before.user),
            system: self.system.saturating_sub(before.system),
            // Linux lets the idle time of a CPU go back at times.
            idle: self.idle.saturating_sub(before.idle),
        }
    }
}

impl AddAssign for CpuTicks {
    fn add_assign(&mut self, other: Self) {
        self.user += other.user;
        self.system += other.system;
        self.idle += other.idle;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_proc_stat_is_read() {
        let before = CpuTicks::of("cpu  10 1 20 400 5 2 3 0 0 0");
        let expected = CpuTicks {
            user: 11,
            system: 25,
            idle: 405,
        };
        assert_eq!(before, expected);
        let after = CpuTicks::of("cpu  20 1 50 460 5 2 3 0 0 0");
        assert_eq!((after - before).percent(), [10.0, 30.0, 60.0]);
        let text = fs::read_to_string("/proc/stat").expect("/proc");
        assert!(text.starts_with("cpu ") && CpuTicks::now().user > 0);
    }
}

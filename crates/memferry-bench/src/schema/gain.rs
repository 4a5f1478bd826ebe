// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rows of `bench promote --workload`, schema `memferry-gain/1`, one for each run.

use std::collections::BTreeMap;
use std::ops::AddAssign;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{FromTo, Quantiles};

/// The value of [`BenchFile::schema`](super::BenchFile) for these rows.
pub const GAIN_SCHEMA: &str = "memferry-gain/1";

/// One run of one workload in one mode.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct GainRow {
    /// `zipf`, `served`, `hotset`, `chase`, `stream` or `uniform`; or a program: `redis`, `memcached` or `sqlite`.
    pub workload: String,
    /// Of `zipf` and `served`, the exponent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skew: Option<f64>,
    /// Of `served`, operations a second of one thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<u64>,
    /// `base`, `thp`, `shared` or `file`; `program`: what a program allocates.
    pub memory: String,
    /// Where the pages begin: `slow` or `spread`.
    pub start: String,
    /// What promotes: `none`, `numab2`, `pghot`, `daemon` or `damos`; or a baseline: `dram`, `fill` or `oracle`.
    pub mode: String,
    /// What reported accesses to pghot (`hintfaults`, `pgtscan` or `hwhints`) or to the daemon (`damon`); of `damos`, how its quota is tuned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The format of pghot's records, `default` or `precise`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<String>,
    /// The round, from 1: every case has one run in each.
    pub run: usize,
    /// What the accesses of the round are made from.
    pub seed: u64,
    /// Threads that accessed.
    pub threads: usize,
    /// Bytes that were accessed.
    pub bytes: u64,
    /// Bytes of the top tier that were to be had.
    pub room_bytes: u64,
    /// Bytes of the top tier that the benchmark locked.
    pub locked_bytes: u64,
    /// From the node of the lower tier to that of the accessing CPUs.
    pub nodes: FromTo,
    /// Time of the accesses, without what the oracle took to move pages at half time.
    pub seconds: f64,
    /// Operations of all threads.
    pub operations: u64,
    /// Time that the threads spent in operations, all together; of a program the time that its threads ran.
    pub busy_ns: u64,
    /// Of a program, operations in a second of `seconds`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operations_per_s: Option<f64>,
    /// `busy_ns` over `operations`.
    pub ns_per_op: f64,
    /// The same in the last quarter, of `hotset` in the last quarter of each half.
    pub ns_last: f64,
    /// (none - mode) / (none - oracle) of `ns_per_op`, in the same round. Absent without these modes, and where the oracle gains less
    /// than 1%.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gain_run: Option<f64>,
    /// The same of `ns_last`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gain_last: Option<f64>,
    /// (fill - mode) / (fill - oracle) of `ns_per_op`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub above_fill_run: Option<f64>,
    /// The same of `ns_last`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub above_fill_last: Option<f64>,
    /// Both halves of `hotset`; of the others the whole run.
    pub phases: Vec<Phase>,
    /// Of `served`, from the time that an operation was to begin at to its end; of a program, from a request to its answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ns: Option<Quantiles>,
    /// The same in the last quarter, of each half.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_last_ns: Option<Quantiles>,
    /// Pages promoted meanwhile, by the kernel's count, of all processes; by the daemon's with `daemon`.
    pub promoted_pages: u64,
    /// Pages demoted meanwhile, by the kernel's count, and by the daemon's.
    pub demoted_pages: u64,
    /// Arrivals in the top tier that stayed there for ten seconds, by what was seen of some thousand pages.
    pub stayed_pages: u64,
    /// Pages promoted until ten seconds before the end, over `stayed_pages`; absent where none stayed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub churn: Option<f64>,
    /// Share of the accesses whose page was in the top tier; of a program, of the lines that a timed machine fetched.
    pub top_share: f64,
    /// Pages in the top tier at the end.
    pub pages_in_top: u64,
    /// How the oracle ranked the pages: by `misses` or by `accesses`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oracle_by: Option<String>,
    /// Pages that a baseline placed in the top tier before the clock began, of `hotset` before each half.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placed_pages: Option<u64>,
    /// Those of them that were still there at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_pages: Option<u64>,
    /// CPU time of what finds hot pages. See docs/measuring/promote.md.
    pub tracker_cpu_s: f64,
    /// CPU time of `kmigrated`, or of the daemon; absent where the accessing threads migrate themselves, which is in `tracker_cpu_s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub migration_cpu_s: Option<f64>,
    /// CPU time of `kswapd`, which demotes.
    pub demotion_cpu_s: f64,
    /// Time that the accessing threads spent in the kernel.
    pub access_system_s: f64,
    /// Bytes compared afterwards with what they must be.
    pub verified_bytes: u64,
    /// What the kernel's counters of pghot, promotion and demotion rose by.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub counters: BTreeMap<String, u64>,
    /// What a timed machine counted in `seconds`, for all that runs there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub truth: Option<Truth>,
    /// Seconds since the start, time of an operation since the point before, pages promoted until then, and the share of the
    /// accesses whose page is in the top tier then.
    pub timeline: Vec<(f64, f64, u64, f64)>,
}

impl GainRow {
    /// The name of its case: `numab2`, `pghot hintfaults, default`.
    pub fn case(&self) -> String {
        super::case(&self.mode, self.source.as_deref(), self.record.as_deref())
    }
}

/// A part of a run with the same hot pages.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Phase {
    /// Time of an operation.
    pub ns_per_op: f64,
    /// The same by quarters of the phase.
    pub quarters_ns: [f64; 4],
    /// As of the row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gain_run: Option<f64>,
    /// As of the row, in the last quarter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gain_last: Option<f64>,
    /// Seconds of the phase until an operation was first faster than with `none` by 0.8 of what it was in the last quarter. Absent
    /// where it was not faster by 1% then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_80_s: Option<f64>,
    /// Pages promoted in the phase until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_80_pages: Option<u64>,
}

/// Totals of a timed machine, all CPUs together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Truth {
    /// CPUs.
    pub cpus: u64,
    /// Modelled time of the CPU that is furthest.
    pub time_ns: u64,
    /// Time in which CPUs were not halted.
    pub busy_ns: u64,
    /// Instructions.
    pub instructions: u64,
    /// Loads and stores.
    pub accesses: u64,
    /// Lines found in a CPU's own caches.
    pub private_hits: u64,
    /// Lines found in a shared cache.
    pub shared_hits: u64,
    /// Lines that another CPU had.
    pub from_other_cpu: u64,
    /// Translations that were not in the TLB.
    pub tlb_misses: u64,
    /// Flushes of the TLB.
    pub tlb_flushes: u64,
    /// By node, lines that came from its memory.
    pub misses: Vec<u64>,
    /// By node, bytes written back to its memory.
    pub written_back_bytes: Vec<u64>,
    /// The most that CPUs were apart, since the machine's start.
    pub greatest_skew_ns: u64,
    /// How often they were further apart than the bound.
    pub skew_violations: u64,
    /// The most that a timer was late, since the machine's start.
    pub greatest_lateness_ns: u64,
    /// Waits of a CPU for another one that ended without it.
    pub waits_given_up: u64,
}

impl Truth {
    /// From the words of the machine's answer, version 1: version, CPUs, nodes; of each CPU nine totals, its misses by node and its
    /// bytes written back by node; four of the machine. None of another version or length.
    pub fn of(words: &[u64]) -> Option<Self> {
        let (&[1, cpus, nodes], rest) = words.split_first_chunk()? else {
            return None;
        };
        let (each, of_node) = (9 + 2 * nodes as usize, nodes as usize);
        let (of_cpus, &[skew, violations, lateness, given_up]) = rest.split_last_chunk()?;
        if of_cpus.len() != cpus as usize * each {
            return None;
        }
        let mut truth = Self {
            cpus,
            misses: vec![0; of_node],
            written_back_bytes: vec![0; of_node],
            greatest_skew_ns: skew,
            skew_violations: violations,
            greatest_lateness_ns: lateness,
            waits_given_up: given_up,
            ..Self::default()
        };
        for cpu in of_cpus.chunks_exact(each) {
            truth.time_ns = truth.time_ns.max(cpu[0]);
            for (total, own) in truth.counters().into_iter().zip(&cpu[1..9]) {
                *total += own;
            }
            for node in 0..of_node {
                truth.misses[node] += cpu[9 + node];
                truth.written_back_bytes[node] += cpu[9 + of_node + node];
            }
        }
        Some(truth)
    }

    /// The totals of CPUs, in the order of the answer.
    fn counters(&mut self) -> [&mut u64; 8] {
        [
            &mut self.busy_ns,
            &mut self.instructions,
            &mut self.accesses,
            &mut self.private_hits,
            &mut self.shared_hits,
            &mut self.from_other_cpu,
            &mut self.tlb_misses,
            &mut self.tlb_flushes,
        ]
    }

    /// What came since `before`. Greatest values stay those since the start.
    pub fn since(mut self, mut before: Self) -> Self {
        for (now, was) in self.counters().into_iter().zip(before.counters()) {
            *now -= *was;
        }
        let lists = [
            (&mut self.misses, &before.misses),
            (&mut self.written_back_bytes, &before.written_back_bytes),
        ];
        for (now, was) in lists {
            now.iter_mut().zip(was).for_each(|(now, was)| *now -= was);
        }
        self.time_ns -= before.time_ns;
        self.skew_violations -= before.skew_violations;
        self.waits_given_up -= before.waits_given_up;
        self
    }
}

impl AddAssign for Truth {
    /// Of two times. Greatest values are those of both.
    fn add_assign(&mut self, mut other: Self) {
        for (total, more) in self.counters().into_iter().zip(other.counters()) {
            *total += *more;
        }
        let lists = [
            (&mut self.misses, &other.misses),
            (&mut self.written_back_bytes, &other.written_back_bytes),
        ];
        for (total, more) in lists {
            total.resize(more.len(), 0);
            total
                .iter_mut()
                .zip(more)
                .for_each(|(of, more)| *of += more);
        }
        self.cpus = other.cpus;
        self.time_ns += other.time_ns;
        self.skew_violations += other.skew_violations;
        self.waits_given_up += other.waits_given_up;
        self.greatest_skew_ns = self.greatest_skew_ns.max(other.greatest_skew_ns);
        self.greatest_lateness_ns = self.greatest_lateness_ns.max(other.greatest_lateness_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_summed_over_cpus_and_from_before() {
        let words = |times: u64| -> Vec<u64> {
            let cpu = |from: u64| (from..from + 13).map(move |word| word * times);
            let machine = [70, times, 80, 2 * times];
            let all = [1, 2, 2].into_iter().chain(cpu(100)).chain(cpu(200));
            all.chain(machine).collect()
        };
        let truth = |times| Truth::of(&words(times)).expect("truth");
        let rise = truth(3).since(truth(2));
        assert_eq!((rise.cpus, rise.time_ns, rise.busy_ns), (2, 200, 302));
        assert_eq!((rise.instructions, rise.tlb_flushes), (304, 316));
        assert_eq!(rise.misses, [318, 320]);
        assert_eq!(rise.written_back_bytes, [322, 324]);
        assert_eq!((rise.greatest_skew_ns, rise.skew_violations), (70, 1));
        assert_eq!((rise.greatest_lateness_ns, rise.waits_given_up), (80, 2));
        let mut both = Truth::default();
        both += rise.clone();
        assert_eq!(both, rise);
        both += rise.clone();
        assert_eq!((both.misses[1], both.tlb_flushes), (640, 632));
        assert_eq!((both.time_ns, both.skew_violations), (400, 2));
        assert_eq!(Truth::of(&words(1)[1..]), None);
        assert_eq!(Truth::of(&[2, 0, 0, 0, 0, 0, 0]), None);
    }
}

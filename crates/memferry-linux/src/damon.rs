// SPDX-License-Identifier: MIT OR Apache-2.0
//! DAMON's sysfs: which text goes into which file so that a kdamond watches memory. Nothing is written here.

use std::ops::RangeInclusive;

/// The folder of the kdamonds, below the root.
pub const KDAMONDS: &str = "sys/kernel/mm/damon/admin/kdamonds";

/// What a kdamond watches, how often, and in how many regions.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// `vaddr` or `paddr`.
    pub operations: &'a str,
    /// Microseconds from sample to sample, of an aggregation, and until it looks again for what there is.
    pub intervals_us: [u32; 3],
    /// Regions at least and at most.
    pub regions: [usize; 2],
    /// Targets.
    pub targets: usize,
    /// Schemes.
    pub schemes: usize,
}

/// Files below the root and their texts. The kernel makes files when earlier ones are written, so the order matters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Setup {
    /// Each file with its text.
    pub files: Vec<(String, String)>,
}

impl Setup {
    /// One more file.
    pub fn put(&mut self, file: String, text: impl ToString) {
        self.files.push((file, text.to_string()));
    }

    /// The one context of a kdamond; gives its folder.
    pub fn context(&mut self, kdamond: usize, of: &Context<'_>) -> String {
        let contexts = format!("{KDAMONDS}/{kdamond}/contexts");
        let context = format!("{contexts}/0");
        self.put(format!("{contexts}/nr_contexts"), 1);
        self.put(format!("{context}/operations"), of.operations);
        self.intervals(&context, of.intervals_us);
        self.regions(&context, of.regions);
        self.put(format!("{context}/targets/nr_targets"), of.targets);
        self.put(format!("{context}/schemes/nr_schemes"), of.schemes);
        context
    }

    /// Microseconds of a context from sample to sample, of an aggregation, and until it looks again for what there is. Of a kdamond that runs
    /// they hold once `commit` is written to its state; what it counted in an aggregation that goes on is scaled.
    pub fn intervals(&mut self, context: &str, us: [u32; 3]) {
        for (name, us) in ["sample_us", "aggr_us", "update_us"].iter().zip(us) {
            self.put(format!("{context}/monitoring_attrs/intervals/{name}"), us);
        }
    }

    /// Regions of a context at least and at most. Of a kdamond that runs they hold once `commit` is written to its state, and the regions
    /// that it has stay: no target names any here (`damon_commit_target_regions()`, before 6.11 `damon_sysfs_update_target()`).
    pub fn regions(&mut self, context: &str, regions: [usize; 2]) {
        for (name, count) in ["min", "max"].iter().zip(regions) {
            self.put(
                format!("{context}/monitoring_attrs/nr_regions/{name}"),
                count,
            );
        }
    }

    /// A scheme of a context, for regions of any size and age with so many accesses; gives its folder.
    pub fn scheme(
        &mut self,
        context: &str,
        index: usize,
        action: &str,
        apply_interval_us: u32,
        accesses: RangeInclusive<u32>,
    ) -> String {
        let scheme = format!("{context}/schemes/{index}");
        self.put(format!("{scheme}/action"), action);
        self.put(format!("{scheme}/apply_interval_us"), apply_interval_us);
        let (fewest, most) = accesses.into_inner();
        for (field, least, most) in [
            ("sz", 0_u64, u64::MAX),
            ("nr_accesses", fewest.into(), most.into()),
            ("age", 0, u32::MAX.into()),
        ] {
            self.put(format!("{scheme}/access_pattern/{field}/min"), least);
            self.put(format!("{scheme}/access_pattern/{field}/max"), most);
        }
        scheme
    }
}

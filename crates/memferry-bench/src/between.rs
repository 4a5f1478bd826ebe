// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's side of `bench move` and `bench count`: memory on one node, moved to another by move_pages(2), its ceiling,
//! and the migrator that the kernel uses, which is set for each run.
//!
//! Only the system call is timed. Afterwards every page's node is asked, every byte compared, and the pages brought back.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use memferry::copy::Routine;
use memferry_linux::kernel::{
    AUTO, BATCH_BYTES, DCBM, Interfaces, MTCOPY, Migration, NO_MIGRATOR, Plan, Setting,
    SettingError, Statistics,
};

use super::busy::Spinners;
use super::cpu_time::CpuTicks;
use super::disk::{Disk, DiskLoad};
use super::kernel::check_others;
use super::nodes::{TRIES, bring, call_failed, map, missing, send};
use super::region::{PAGE, Region, THP};
use super::rig::{Means, ceiling, verify};
use super::rounds::{Case, Run, Stand};
use super::trace::{Trace, Traced};
use crate::args::promote::Switch;
use crate::args::{LanesOn, Placement, Priority};
use crate::failure::{Failure, OrFail};
use crate::restore::Restore;
use crate::schema::FromTo;
use crate::ui::Ui;
use crate::units::{Size, lanes};

/// The active migrator and the lanes, set back when this value goes; `None` on a stock kernel, where nothing can be set.
pub struct Control {
    before: Option<Restore>,
    /// What is written besides, by file.
    parameters: Vec<(&'static str, &'static str)>,
    /// The DMA channels that dcbm got, by name.
    pub taken: Vec<String>,
}

/// The parameters of mtcopy that are for experiments.
const FILL: &str = "sys/module/mtcopy/parameters/fill";
const HIGH_PRIORITY: &str = "sys/module/mtcopy/parameters/high_priority";
const IDLE_ONLY: &str = "sys/module/mtcopy/parameters/idle_only";
/// Those of batches.
const GATHER: &str = "sys/module/migrator/parameters/gather";
const MIN_BATCH_BYTES: &str = "sys/module/migrator/parameters/min_batch_bytes";
/// Whether max_batch_bytes takes more than users may set.
const LARGE_BATCHES: &str = "sys/module/migrator/parameters/large_batches";
const MAX_BATCH_BYTES: &str = "sys/kernel/mm/migration/max_batch_bytes";
/// What it takes then, bytes: figures were published of 512 huge pages.
const MOST_OF_EXPERIMENTS: u64 = 1 << 30;
/// How eagerly kcompactd compacts of its own accord; 0: not at all.
const PROACTIVENESS: &str = "proc/sys/vm/compaction_proactiveness";
/// What Linux isolates at once, COMPACT_CLUSTER_MAX.
const CLUSTER_BYTES: usize = 32 * PAGE;

impl Control {
    /// Nothing is changed yet.
    ///
    /// # Errors
    /// See [`Restore::new`].
    pub fn new(can_be_set: bool, lanes_on: LanesOn) -> Result<Self, Failure> {
        const FILES: &[&str] = &[
            MAX_BATCH_BYTES,
            "sys/kernel/mm/migration/mtcopy/lanes",
            "sys/kernel/mm/migration/dcbm/lanes",
            FILL,
            HIGH_PRIORITY,
            IDLE_ONLY,
            GATHER,
            MIN_BATCH_BYTES,
            LARGE_BATCHES,
            PROACTIVENESS,
            "sys/kernel/mm/migration/reasons",
            "sys/kernel/mm/migration/migrator",
        ];
        let before = can_be_set.then(|| Restore::new(Path::new("/"), FILES));
        let wanted = [
            (FILL, lanes_on.placement.map(|of| of == Placement::Fill)),
            (
                HIGH_PRIORITY,
                lanes_on.priority.map(|of| of == Priority::High),
            ),
            (IDLE_ONLY, lanes_on.idle_only.map(|of| of == Switch::On)),
        ];
        let text = |on: bool| if on { "Y" } else { "N" };
        Ok(Self {
            before: before.transpose()?,
            parameters: (wanted.into_iter())
                .filter_map(|(file, on)| Some((file, text(on?))))
                .collect(),
            taken: Vec::new(),
        })
    }

    /// Takes the DMA channels that these columns ask for, and drops the columns of more than dcbm gets; what was dropped.
    pub fn fit_channels(
        &mut self,
        columns: &mut Vec<(Means, usize)>,
    ) -> Result<Option<String>, Failure> {
        let is_dcbm = |means: &Means| means.name() == DCBM;
        let of_dcbm = columns.iter().filter(|(means, _)| is_dcbm(means));
        let Some(most) = of_dcbm.map(|(_, lanes)| *lanes).max() else {
            return Ok(None);
        };
        self.activate(DCBM, Some(most))?;
        let now = migration("the DMA channels could not be read")?;
        let channels = now.dcbm.map_or_else(Vec::new, |dcbm| dcbm.channels);
        let names = channels
            .iter()
            .filter_map(|line| line.strip_suffix(": taken"));
        self.taken = names.map(str::to_owned).collect();
        let channels = self.taken.len();
        columns.retain(|(means, lanes)| !is_dcbm(means) || *lanes <= channels);
        Ok((channels < most)
            .then(|| format!("dcbm has {channels} DMA channels: there are no rows of more.")))
    }

    /// Activates a migrator, with so many lanes if it has some, for the reasons that are measured.
    pub fn activate(&mut self, migrator: &str, lanes: Option<usize>) -> Result<(), Failure> {
        if self.before.is_none() {
            return Ok(());
        }
        if migrator == MTCOPY || migrator == AUTO {
            for (file, text) in std::mem::take(&mut self.parameters) {
                self.parameter(file, text)?;
            }
        }
        let reasons = "syscall_or_cpuset default,compaction default".to_owned();
        let mut wanted = vec![
            (Setting::Migrator, migrator.to_owned()),
            (Setting::Reasons, reasons),
        ];
        let now = interfaces()?;
        let settings = [Setting::MtcopyLanes, Setting::DcbmLanes].into_iter();
        // Those of the modules that auto chooses from are its limits.
        let own = settings.filter(|&setting| match migrator {
            AUTO => now.value(setting).is_some(),
            _ => setting.module() == Some(migrator),
        });
        wanted.extend(
            own.flat_map(|setting| lanes.map(|lanes| (setting, lanes)))
                .map(|(setting, lanes)| (setting, lanes.to_string())),
        );
        self.set(&now, &wanted)
    }

    /// Lets callers hand over as much at once as a migrator takes, or no more than Linux does, which migrators then take, too.
    pub fn gather(&mut self, on: bool) -> Result<(), Failure> {
        self.parameter(GATHER, if on { "Y" } else { "N" })?;
        self.parameter(MIN_BATCH_BYTES, &CLUSTER_BYTES.to_string())
    }

    /// Keeps kcompactd from compacting beside: each would find the DMA channels taken by the other.
    pub fn compact_alone(&mut self) -> Result<(), Failure> {
        self.parameter(PROACTIVENESS, "0")
    }

    fn parameter(&mut self, file: &str, text: &str) -> Result<(), Failure> {
        let Some(before) = &mut self.before else {
            return Ok(());
        };
        before.begin()?;
        fs::write(Path::new("/").join(file), text).or_fail(format!("cannot set /{file}"), "be root")
    }

    /// Sets the most bytes of a batch: what users may set, or what experiments may.
    pub fn batch(&mut self, bytes: u64) -> Result<(), Failure> {
        if bytes > *BATCH_BYTES.end() && bytes <= MOST_OF_EXPERIMENTS {
            self.parameter(LARGE_BATCHES, "Y")?;
            return self.parameter(MAX_BATCH_BYTES, &bytes.to_string());
        }
        self.set(
            &interfaces()?,
            &[(Setting::MaxBatchBytes, bytes.to_string())],
        )
    }

    fn set(&mut self, now: &Interfaces, wanted: &[(Setting, String)]) -> Result<(), Failure> {
        let Some(before) = &mut self.before else {
            return Ok(());
        };
        let failed = |error: SettingError| Failure::new(NOT_SET, &error, error.hint());
        let plan = Plan::new(Path::new("/"), now, wanted).map_err(failed)?;
        if plan.steps.is_empty() {
            return Ok(());
        }
        before.begin()?;
        plan.apply().map_err(failed)
    }

    /// Sets everything as it was, and says if that fails.
    pub fn restore(mut self) -> Result<(), Failure> {
        self.before.as_mut().map_or(Ok(()), Restore::bring_back)
    }
}

const NOT_SET: &str = "the kernel's settings could not be set";

fn interfaces() -> Result<Interfaces, Failure> {
    Interfaces::read_from(Path::new("/")).or_fail(NOT_SET, "see `memferry kernel status`")
}

fn migration(what: &str) -> Result<Migration, Failure> {
    let next = "see `memferry kernel status`";
    Migration::read()
        .or_fail(what, next)?
        .map_err(|absence| Failure::new(what, absence, next))
}

/// What all migrators have done since they were registered; nothing on a stock kernel.
pub struct Done(Vec<Statistics>);

impl Done {
    pub fn now() -> Result<Self, Failure> {
        let (what, next) = (
            "the kernel's statistics could not be read",
            "see `memferry kernel status`",
        );
        let found = Migration::read().or_fail(what, next)?;
        Ok(Self(
            found.map_or_else(|_| Vec::new(), |now| now.statistics),
        ))
    }

    /// What each has done since then.
    fn since(&self, before: &Self, of: fn(&Statistics) -> u64) -> BTreeMap<String, u64> {
        let risen = |now: &Statistics| {
            let then = before.0.iter().find(|row| row.migrator == now.migrator);
            let more = of(now).saturating_sub(then.map_or(0, of));
            (more > 0).then(|| (now.migrator.clone(), more))
        };
        self.0.iter().filter_map(risen).collect()
    }

    /// Bytes that each has copied since then, those that have.
    pub fn copied(&self, before: &Self) -> BTreeMap<String, u64> {
        self.since(before, |of| of.bytes)
    }

    /// What a migrator has done since then; of auto all together, `None` of migrator none.
    pub fn of(&self, before: &Self, migrator: &str, of: fn(&Statistics) -> u64) -> Option<u64> {
        let all = self.since(before, of);
        match migrator {
            NO_MIGRATOR => None,
            AUTO => Some(all.values().sum()),
            name => Some(all.get(name).copied().unwrap_or(0)),
        }
    }
}

/// Memory of one folio size on one node, and as much on the other.
pub struct Between<'a> {
    region: Region,
    spare: Region,
    nodes: FromTo,
    folio: usize,
    routine: Routine,
    threads: usize,
    control: &'a mut Control,
    busy: Option<Arc<Spinners>>,
    disk: Option<Arc<Disk>>,
    /// How long auto moves before each of its cases is measured.
    learn: Duration,
}

impl<'a> Between<'a> {
    /// Maps and fills `bytes` on each node.
    pub fn new(
        nodes: FromTo,
        bytes: usize,
        folio: usize,
        routine: Routine,
        threads: usize,
        control: &'a mut Control,
        busy: Option<Arc<Spinners>>,
    ) -> Result<Self, Failure> {
        let map = |node| map(Some(node), bytes, folio, threads);
        let between = Self {
            region: map(nodes.from)?,
            spare: map(nodes.to)?,
            nodes,
            folio,
            routine,
            threads,
            control,
            busy,
            disk: None,
            learn: Duration::ZERO,
        };
        check_folios(&between.region, folio, nodes.from)?;
        check_folios(&between.spare, folio, nodes.to)?;
        bring(&between.heads(bytes / folio), nodes.from)?;
        Ok(between)
    }

    /// Lets auto move for so long before it is measured.
    pub fn learning(self, learn: Duration) -> Self {
        Self { learn, ..self }
    }

    /// Repeats each run beside this disk.
    pub fn beside(self, disk: Option<Arc<Disk>>) -> Self {
        Self { disk, ..self }
    }

    /// The addresses of the first folios.
    fn heads(&self, folios: usize) -> Vec<usize> {
        let range = self.region.head(folios * self.folio);
        range.step_by(self.folio).collect()
    }

    /// Makes the next run find its memory as this one did: what is not of whole folios any more is mapped anew. Linux 6.12 splits
    /// those between 4 KiB and 2 MiB whenever they migrate again (docs/kernel.md, Limits), and a THP where the target has none free.
    fn renew(&mut self, heads: &[usize]) -> Result<(), Failure> {
        if [PAGE, THP].contains(&self.folio) && self.is_whole() {
            bring(heads, self.nodes.from)?;
            if self.is_whole() {
                return Ok(());
            }
        }
        let bytes = self.region.range().len();
        self.region = map(Some(self.nodes.from), bytes, self.folio, self.threads)?;
        check_folios(&self.region, self.folio, self.nodes.from)
    }

    /// Whether the kernel has split no THP.
    fn is_whole(&self) -> bool {
        self.folio != THP || self.region.is_made_of(true).unwrap_or(true)
    }

    /// The timed calls.
    fn carry(&self, case: &Case, heads: &[usize]) -> Result<Vec<u64>, Failure> {
        let call = |part| {
            let took = send(part, self.nodes.to).map_err(call_failed)?;
            Ok(took.as_nanos() as u64)
        };
        heads.chunks(case.folios).map(call).collect()
    }

    /// Whether all pages went: the kernel may split a folio, of which a call names the first page.
    fn arrived(&self, heads: &[usize]) -> Result<bool, Failure> {
        let pages = Vec::from_iter(self.region.head(heads.len() * self.folio).step_by(PAGE));
        Ok(missing(&pages, self.nodes.to)? == 0)
    }
}

/// Whether the kernel gave folios of the wanted size.
fn check_folios(region: &Region, folio: usize, node: u32) -> Result<(), Failure> {
    let share = match folio {
        PAGE | THP => None,
        // THPs look as contiguous.
        folio => region.folios_of(folio),
    };
    // A single page may be elsewhere, of a kernel short of memory.
    if region.is_made_of(folio == THP).unwrap_or(true) && share.is_none_or(|share| share > 0.99) {
        return Ok(());
    }
    let size = Size(folio as u64);
    let file = match folio {
        PAGE | THP => "/sys/kernel/mm/transparent_hugepage/enabled".to_owned(),
        folio => format!(
            "/sys/kernel/mm/transparent_hugepage/hugepages-{}kB/enabled",
            folio >> 10
        ),
    };
    Err(Failure::new(
        format!("the memory on node {node} is not made of folios of {size}"),
        "the kernel does not give them, or the node is too fragmented",
        format!("set {file} to madvise, or leave {size} out of --folio"),
    ))
}

impl Stand for Between<'_> {
    fn copy(&mut self, lanes: usize) -> Result<f64, Failure> {
        ceiling(&self.region, &mut self.spare, self.routine, lanes)
    }

    fn first(&mut self, case: &Case, ui: &Ui) -> Result<Run, Failure> {
        if case.means.is_auto() {
            self.control.activate(case.means.name(), Some(case.lanes))?;
            let until = Instant::now() + self.learn;
            while Instant::now() < until && !ui.stopped() {
                let heads = self.heads(case.folios * case.calls);
                self.carry(case, &heads)?;
                self.renew(&heads)?;
            }
        }
        let trace = Trace::new(case.bytes(), self.folio);
        self.measure(case, trace.as_ref(), None)
    }

    fn run(&mut self, case: &Case) -> Result<Run, Failure> {
        let run = self.measure(case, None, None)?;
        let Some(disk) = self.disk.clone() else {
            return Ok(run);
        };
        let load = disk.start()?;
        let beside = self.measure(case, None, Some(&load))?;
        Ok(Run {
            beside_disk: Some(load.run(&beside)?),
            ..run
        })
    }
}

impl Between<'_> {
    fn measure(
        &mut self,
        case: &Case,
        trace: Option<&Trace>,
        disk: Option<&DiskLoad>,
    ) -> Result<Run, Failure> {
        let (folios, bytes) = (case.folios * case.calls, case.bytes());
        let migrator = case.means.name();
        self.control.activate(migrator, Some(case.lanes))?;
        let mut split = 0;
        for _ in 0..TRIES {
            let heads = self.heads(folios);
            self.region.fill_head(bytes, self.threads);
            let before = Done::now()?;
            let (since, ticks) = (self.busy.as_ref().map(|busy| busy.since()), CpuTicks::now());
            let disk_since = disk.map(DiskLoad::since);
            trace.iter().for_each(|trace| trace.start());
            let call_ns = self.carry(case, &heads)?;
            trace.iter().for_each(|trace| trace.stop());
            let cpu = CpuTicks::now() - ticks;
            let busy_lost = (self.busy.as_ref().zip(since)).map(|(busy, since)| busy.lost(&since));
            let disk_per_s = (disk.zip(disk_since)).map(|(disk, since)| disk.per_s(&since));
            let (now, arrived, whole) = (Done::now()?, self.arrived(&heads)?, self.is_whole());
            let verified = verify(&self.region, bytes, self.threads)?;
            self.renew(&heads)?;
            split += usize::from(!whole);
            if arrived && whole {
                let total: u64 = call_ns.iter().sum();
                let copied_by = now.copied(&before);
                check_others(migrator, bytes, &copied_by)?;
                return Ok(Run {
                    gbps: bytes as f64 / total.max(1) as f64,
                    verified,
                    copied: now.of(&before, migrator, |of| of.bytes),
                    copied_by,
                    declined: now.of(&before, migrator, |of| of.declined),
                    cpu: Some(cpu),
                    busy_lost,
                    disk_per_s,
                    split,
                    traced: trace.map_or_else(Traced::default, |trace| trace.read(total)),
                    call_ns,
                    ..Run::default()
                });
            }
        }
        Err(Failure::new(
            format!(
                "folios of {} stay on node {} with {}, {}",
                Size(case.folio as u64),
                self.nodes.from,
                case.means.name(),
                lanes(case.lanes)
            ),
            format!("in {TRIES} tries the kernel never moved all of them whole"),
            format!(
                "free memory on node {}, or give a smaller --total",
                self.nodes.to
            ),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_other_folios_is_refused_with_its_node() {
        let region = Region::new(THP, false, 1).expect("region");
        assert!(check_folios(&region, PAGE, 3).is_ok());
        let told = check_folios(&region, THP, 3).expect_err("base pages");
        assert!(told.to_string().contains("on node 3"), "{told}");
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the kernel's tracepoints tell of the timed calls of one run, in a trace of its own: how many lanes copied a batch, and
//! where the time of the calls went.
//!
//! Linux has tracepoints at the ends of a migration and where it sets and removes the entries of unmapped pages; the series has
//! some around the copy of a batch. Nothing marks the plain copy of Linux, so where that copies, the flush, the copy and the
//! remap are one step.

use std::fs;
use std::path::{Path, PathBuf};

use super::kernel::median;
use crate::region::{PAGE, THP};
use crate::schema::KernelSteps;
use crate::schema::dma::DmaRound;

/// Where traces of one's own are made.
const INSTANCES: &str = "/sys/kernel/tracing/instances";
const LANE_DONE: &str = "migrator_lane_done";
const BATCH_START: &str = "migrator_batch_start";
const BATCH_DONE: &str = "migrator_batch_done";
const CHANNEL_ROUND: &str = "migrator_channel_round";
/// Of lanes, batches and DMA channels.
const OF_THE_SERIES: [&str; 4] = [LANE_DONE, BATCH_START, BATCH_DONE, CHANNEL_ROUND];
/// Of each call, and of each THP.
const OF_LINUX: [&str; 4] = [
    "migrate/mm_migrate_pages_start",
    "migrate/mm_migrate_pages",
    "thp/set_migration_pmd",
    "thp/remove_migration_pmd",
];
/// Of each base page.
const OF_PAGES: [&str; 2] = ["migrate/set_migration_pte", "migrate/remove_migration_pte"];

/// Bytes of the two events of a base page in the kernel's buffer, each with its header.
const PAGE_EVENTS_BYTES: usize = 2 * 48;
/// Bytes of all buffers together, at most: there is one for each CPU.
const MOST_BYTES: usize = 256 << 20;

/// A trace, which goes with this value. Nothing is traced until [`Trace::start`].
pub struct Trace {
    folder: PathBuf,
    /// Whether the ends of the steps are traced.
    has_steps: bool,
}

/// What was traced.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Traced {
    /// Lanes that copied for each batch; `None` if a migrator copied none.
    pub lanes_used: Option<f64>,
    /// CPU time of the lanes of other threads than the calling one; `None` if a migrator copied none.
    pub helpers_ns: Option<u64>,
    /// Where the time went; `None` where events are missing.
    pub steps: Option<KernelSteps>,
    /// Mean bytes of the batches that a migrator copied; `None` if it copied none.
    pub batch_bytes: Option<u64>,
    /// What DMA channels took; `None` if none copied.
    pub dma_round: Option<DmaRound>,
}

impl Trace {
    /// Makes one of lanes and batches alone; `None` where tracefs is not, or not for this user.
    pub fn of_batches() -> Option<Self> {
        let folder = Path::new(INSTANCES).join(format!("memferry-bench-{}", std::process::id()));
        fs::create_dir(&folder).ok()?;
        let trace = Self {
            folder,
            has_steps: false,
        };
        trace.write("tracing_on", "0")?;
        for event in OF_THE_SERIES {
            // Linux as it is has none of them.
            let _ = trace.enable(&format!("migrator/{event}"));
        }
        Some(trace)
    }

    /// The same with the steps of the calls, for `bytes` of folios of `folio` bytes.
    pub fn new(bytes: usize, folio: usize) -> Option<Self> {
        let mut trace = Self::of_batches()?;
        // Of one clock for all CPUs: a task moves between them.
        let of_calls = trace.write("trace_clock", "mono").is_some()
            && OF_LINUX.iter().all(|event| trace.enable(event).is_some());
        let of_pages = match folio {
            THP => 0,
            _ => bytes / PAGE * PAGE_EVENTS_BYTES,
        };
        // Also CPUs that this process may not use have buffers.
        let buffers = fs::read_dir(trace.folder.join("per_cpu")).map_or(1, Iterator::count);
        let fits = of_pages <= MOST_BYTES / buffers.max(1);
        trace.has_steps = of_calls
            && fits
            && (of_pages == 0
                || trace
                    .write("buffer_size_kb", &((of_pages >> 10) + 1024).to_string())
                    .is_some()
                    && OF_PAGES.iter().all(|event| trace.enable(event).is_some()));
        Some(trace)
    }

    /// Forgets what was traced, and traces from now on.
    pub fn start(&self) {
        let _ = self.write("trace", "");
        self.resume();
    }

    /// Traces from now on, again.
    pub fn resume(&self) {
        let _ = self.write("tracing_on", "1");
    }

    /// Traces no more.
    pub fn stop(&self) {
        let _ = self.write("tracing_on", "0");
    }

    /// What was traced, of calls of this thread that took `calls_ns` together.
    pub fn read(&self, calls_ns: u64) -> Traced {
        let text = fs::read_to_string(self.folder.join("trace")).unwrap_or_default();
        // SAFETY: it has no arguments and touches no memory.
        let thread = unsafe { libc::gettid() };
        let lanes_used = lanes(&text);
        Traced {
            lanes_used,
            helpers_ns: lanes_used.map(|_| helpers_ns(&text, thread)),
            steps: self
                .has_steps
                .then(|| steps(&text, thread, calls_ns))
                .flatten(),
            batch_bytes: batch_bytes(&text),
            dma_round: dma_round(&text),
        }
    }

    fn write(&self, file: &str, text: &str) -> Option<()> {
        fs::write(self.folder.join(file), text).ok()
    }

    fn enable(&self, event: &str) -> Option<()> {
        self.write(&format!("events/{event}/enable"), "1")
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        // It costs memory alone if it stays.
        let _ = fs::remove_dir(&self.folder);
    }
}

/// One line of a trace.
struct Event<'a> {
    thread: i32,
    ns: u64,
    name: &'a str,
    rest: &'a str,
}

impl<'a> Event<'a> {
    /// Reads `    memferry-77 [000] ..... 1.000001: NAME: FIELDS`.
    fn read(line: &'a str) -> Option<Self> {
        // A command may have blanks and brackets, and events have no " [" of their own.
        let (task, line) = line
            .split_once(" [")
            .filter(|(task, _)| !task.starts_with('#'))?;
        let (_, thread) = task.trim_end().rsplit_once('-')?;
        let mut words = line.split_whitespace();
        let time = words.nth(2)?.strip_suffix(':')?;
        let (seconds, micros) = time.split_once('.')?;
        let name = words.next()?.strip_suffix(':')?;
        let at = line.find(name)? + name.len() + 1;
        Some(Self {
            thread: thread.parse().ok()?,
            ns: seconds.parse::<u64>().ok()? * 1_000_000_000 + micros.parse::<u64>().ok()? * 1000,
            name,
            rest: &line[at..],
        })
    }

    fn field(&self, name: &str) -> Option<u64> {
        let mut fields = self
            .rest
            .split_whitespace()
            .filter_map(|field| field.split_once('='));
        fields.find(|(of, _)| *of == name)?.1.parse().ok()
    }
}

fn lanes(trace: &str) -> Option<f64> {
    let copied = |name: &str| {
        let events = trace.lines().filter_map(Event::read);
        events
            .filter(|event| event.name == name && event.field("bytes") > Some(0))
            .count() as f64
    };
    let [lanes, batches] = [LANE_DONE, BATCH_DONE].map(copied);
    (batches > 0.0 && lanes > 0.0).then(|| lanes / batches)
}

/// The time of the lanes that are not of this thread. What waits for DMA channels is its own.
fn helpers_ns(trace: &str, thread: i32) -> u64 {
    let events = trace.lines().filter_map(Event::read);
    let helpers = events.filter(|event| event.name == LANE_DONE && event.thread != thread);
    helpers.filter_map(|event| event.field("ns")).sum()
}

fn batch_bytes(trace: &str) -> Option<u64> {
    let done = trace.lines().filter_map(Event::read);
    let done = done.filter(|event| event.name == BATCH_DONE);
    let bytes = Vec::from_iter(done.filter_map(|event| event.field("bytes").filter(|&of| of > 0)));
    bytes.iter().sum::<u64>().checked_div(bytes.len() as u64)
}

/// The median of each figure: a channel that was late once must not count.
fn dma_round(trace: &str) -> Option<DmaRound> {
    let rounds = trace.lines().filter_map(Event::read);
    let rounds = Vec::from_iter(rounds.filter(|event| event.name == CHANNEL_ROUND));
    let of = |field: &str| {
        median(&mut Vec::from_iter(
            rounds.iter().filter_map(|of| of.field(field)),
        ))
    };
    Some(DmaRound {
        rounds: rounds.len() as u64,
        mappings: of("mappings")?,
        descriptors: of("descriptors")?,
        bytes: of("bytes")?,
        map_ns: of("map_ns")?,
        submit_ns: of("submit_ns")?,
        copy_ns: of("copy_ns")?,
        unmap_ns: of("unmap_ns")?,
    })
}

/// Where a call is.
#[derive(Clone, Copy, PartialEq)]
enum At {
    /// Pages are unmapped.
    Unmap,
    /// A migrator copies.
    Copy,
    /// Pages that a migrator copied are remapped.
    Remap,
    /// Pages are flushed, copied and remapped by Linux itself.
    Plain,
}

/// The steps of the calls of one thread; `None` if the trace is not whole.
fn steps(trace: &str, thread: i32, calls_ns: u64) -> Option<KernelSteps> {
    // `# entries-in-buffer/entries-written: 12/12   #P:2`
    let entries = trace
        .lines()
        .find_map(|line| line.split_once("entries-written: "))?
        .1;
    let (kept, written) = entries.split_whitespace().next()?.split_once('/')?;
    if kept != written {
        return None;
    }
    let mut steps = KernelSteps::default();
    // Of the step that the call is in, and since when; `None` outside of calls.
    let mut now = None::<(At, u64)>;
    let (mut inside, mut began, mut longest_lane) = (0, 0, 0);
    for event in trace.lines().filter_map(Event::read) {
        // Helpers have threads of their own.
        if event.name == LANE_DONE && now.is_some() {
            longest_lane = longest_lane.max(event.field("ns")?);
        }
        if event.thread != thread {
            continue;
        }
        let Some((at, since)) = now else {
            if event.name == "mm_migrate_pages_start" {
                (now, began) = (Some((At::Unmap, event.ns)), event.ns);
            }
            continue;
        };
        let (next, step) = match (event.name, at) {
            ("set_migration_pte" | "set_migration_pmd", _) => (At::Unmap, &mut steps.unmap_ns),
            (BATCH_START, _) => (At::Copy, &mut steps.flush_ns),
            (BATCH_DONE, _) if event.field("bytes")? == 0 => (At::Plain, &mut steps.plain_ns),
            (BATCH_DONE, _) => {
                steps.batches += 1;
                steps.lane_ns += std::mem::take(&mut longest_lane);
                (At::Remap, &mut steps.copy_ns)
            }
            ("remove_migration_pte" | "remove_migration_pmd" | "mm_migrate_pages", At::Remap) => {
                (At::Remap, &mut steps.remap_ns)
            }
            ("remove_migration_pte" | "remove_migration_pmd" | "mm_migrate_pages", _) => {
                (At::Plain, &mut steps.plain_ns)
            }
            _ => continue,
        };
        *step += event.ns.saturating_sub(since);
        now = Some((next, event.ns));
        if event.name == "mm_migrate_pages" {
            inside += event.ns.saturating_sub(began);
            now = None;
        }
    }
    steps.rest_ns = calls_ns.saturating_sub(inside);
    (inside > 0 && now.is_none()).then_some(steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO_BATCHES: &str = "\
# tracer: nop
#
# entries-in-buffer/entries-written: 17/17   #P:2
#
    memferry-77      [000] ..... 1.000000: mm_migrate_pages_start: mode=MIGRATE_SYNC reason=syscall_or_cpuset
    memferry-77      [000] ..... 1.000010: set_migration_pmd: addr=7f0000000000, pmd=12
    other [x]-9      [001] ..... 1.000011: set_migration_pte: addr=1000, pte=12 order=0
    memferry-77      [000] ..... 1.000012: migrator_batch_start: migrator=mtcopy reason=syscall folios=1 bytes=2097152 dst_nid=1
    mtcopy/1-80      [001] ..... 1.000100: migrator_lane_done: lane=1 cpu=1 bytes=1048576 ns=90000
    memferry-77      [000] ..... 1.000101: migrator_lane_done: lane=0 cpu=0 bytes=1048576 ns=80000
    memferry-77      [000] ..... 1.000112: migrator_batch_done: migrator=mtcopy reason=syscall folios=1 bytes=2097152 ns=99000 error=0
    memferry-77      [000] ..... 1.000120: remove_migration_pmd: addr=7f0000000000, pmd=13
    memferry-77      [001] ..... 1.000140: set_migration_pmd: addr=7f0000200000, pmd=12
    memferry-77      [001] ..... 1.000141: migrator_batch_start: migrator=mtcopy reason=syscall folios=1 bytes=2097152 dst_nid=1
    mtcopy/1-80      [001] ..... 1.000142: migrator_lane_done: lane=1 cpu=1 bytes=0 ns=10
    memferry-77      [001] ..... 1.000143: migrator_batch_done: migrator=mtcopy reason=syscall folios=0 bytes=0 ns=9 error=-16
    memferry-77      [001] ..... 1.000543: remove_migration_pmd: addr=7f0000200000, pmd=13
    memferry-77      [001] ..... 1.000550: mm_migrate_pages: nr_succeeded=1024 nr_failed=0 nr_thp_succeeded=2 nr_thp_failed=0 nr_thp_split=0 nr_split=0 mode=MIGRATE_SYNC reason=syscall_or_cpuset
";

    #[test]
    fn each_step_has_its_time_and_a_declined_batch_is_copied_plainly() {
        let found = steps(TWO_BATCHES, 77, 700_000).expect("whole");
        let expected = KernelSteps {
            unmap_ns: 30_000,
            flush_ns: 3_000,
            copy_ns: 100_000,
            remap_ns: 8_000,
            plain_ns: 409_000,
            rest_ns: 150_000,
            batches: 1,
            lane_ns: 90_000,
        };
        assert_eq!(found, expected);
        assert_eq!(lanes(TWO_BATCHES), Some(2.0));
        assert_eq!(helpers_ns(TWO_BATCHES, 77), 90_010);
    }

    #[test]
    fn a_trace_that_lost_events_or_is_of_others_tells_no_steps() {
        let lost = TWO_BATCHES.replace("17/17", "17/18");
        assert_eq!(steps(&lost, 77, 700_000), None);
        assert_eq!(steps(TWO_BATCHES, 78, 700_000), None);
        let cut = TWO_BATCHES.replace("mm_migrate_pages: ", "mm_other: ");
        assert_eq!(steps(&cut, 77, 700_000), None);
        assert_eq!(steps("", 77, 1), None);
    }

    #[test]
    fn the_median_round_of_dma_channels_is_told() {
        let round = |ns: u64| {
            format!(
                "    memferry-77 [000] ..... 1.000001: migrator_channel_round: lane=0 mappings=512 descriptors=9 bytes=2097152 \
                 map_ns={ns} submit_ns=2 copy_ns=3 unmap_ns=4\n"
            )
        };
        let trace = [round(11), round(900), round(10)].concat();
        let expected = DmaRound {
            rounds: 3,
            mappings: 512,
            descriptors: 9,
            bytes: 2 << 20,
            map_ns: 11,
            submit_ns: 2,
            copy_ns: 3,
            unmap_ns: 4,
        };
        assert_eq!(dma_round(&trace), Some(expected));
        assert_eq!(expected.set_up_ns(), 17);
        assert_eq!(dma_round(TWO_BATCHES), None);
    }

    #[test]
    fn the_plain_copy_of_linux_is_one_step_with_flush_and_remap() {
        let plain: Vec<&str> = (TWO_BATCHES.lines())
            .filter(|line| !line.contains("migrator_"))
            .collect();
        let found = steps(&plain.join("\n"), 77, 550_000).expect("whole");
        assert_eq!(
            (found.unmap_ns, found.plain_ns, found.rest_ns),
            (30_000, 520_000, 0)
        );
        assert_eq!((found.copy_ns, found.batches), (0, 0));
    }

    #[test]
    fn lanes_that_copied_nothing_and_batches_that_were_declined_do_not_count() {
        let trace = "\
    memferry-77 [000] ..... 1.000001: migrator_lane_done: lane=0 cpu=0 bytes=1048576 ns=900
    mtcopy/1-80 [001] ..... 1.000002: migrator_lane_done: lane=1 cpu=1 bytes=1048576 ns=900
    memferry-77 [000] ..... 1.000003: migrator_batch_done: migrator=mtcopy reason=syscall folios=512 bytes=2097152 ns=999 error=0
    memferry-77 [000] ..... 1.000004: migrator_lane_done: lane=0 cpu=0 bytes=2097152 ns=900
    mtcopy/1-80 [001] ..... 1.000005: migrator_lane_done: lane=1 cpu=1 bytes=0 ns=10
    memferry-77 [000] ..... 1.000006: migrator_batch_done: migrator=mtcopy reason=syscall folios=512 bytes=2097152 ns=999 error=0
    memferry-77 [000] ..... 1.000007: migrator_batch_done: migrator=mtcopy reason=syscall folios=0 bytes=0 ns=9 error=-16
";
        assert_eq!(lanes(trace), Some(1.5));
        assert_eq!(batch_bytes(trace), Some(2 << 20));
        assert_eq!(batch_bytes("# tracer: nop\n"), None);
        assert_eq!(lanes("# tracer: nop\n"), None);
    }
}

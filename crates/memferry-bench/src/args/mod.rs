// SPDX-License-Identifier: MIT OR Apache-2.0
//! The options of `memferry bench`, and the defaults that depend on the machine.

pub mod cache;
pub mod compaction;
pub mod program;
pub mod promote;
pub mod reproduce;
pub mod workload;

use std::path::PathBuf;

use std::time::Duration;

use cache::CacheArgs;
use clap::{Args, Subcommand, ValueEnum, ValueHint};
use compaction::CompactionArgs;
use memferry::DEFAULT_BATCH_BYTES;
use memferry_output::args::JsonArgs;
use promote::{PromoteArgs, Switch};
use reproduce::ReproduceArgs;

use crate::units::{
    LARGEST, SMALLEST, Size, batch_size, folio_size, positive, small_batch, whole_pages,
};

/// The benchmarks.
#[derive(Debug, Subcommand)]
pub enum Bench {
    /// Throughput by folio size, migrator and lanes, as a share of what the memory can copy
    Move(MoveArgs),
    /// Throughput by the number of folios in one move
    Count(CountArgs),
    /// How long the application's accesses wait while their pages move
    Stall(StallArgs),
    /// What a thread loses whose data fits the last-level cache while pages move, by copy routine
    Cache(CacheArgs),
    /// How soon, and how rightly, hot pages of a slow tier come to the top tier
    Promote(PromoteArgs),
    /// How long the kernel takes to compact a fragmented node, and what shares its CPU loses
    Compaction(CompactionArgs),
    /// A published table, with this machine's figures beside the published ones
    Reproduce(ReproduceArgs),
}

impl Bench {
    /// What clap cannot check alone.
    pub fn check(&self) -> Result<(), String> {
        let (batches, folios) = match self {
            Self::Move(args) => {
                args.run.check()?;
                (args.run.batch.as_slice(), args.folios())
            }
            Self::Count(args) => {
                args.run.check()?;
                if args.run.anatomy && args.run.backend == Backend::User {
                    return Err("--anatomy of bench count is for --backend kernel".to_owned());
                }
                (args.run.batch.as_slice(), vec![args.folio])
            }
            Self::Stall(args) => {
                args.check()?;
                (args.batch.as_slice(), args.folio.clone())
            }
            Self::Cache(args) => return args.nodes.check(),
            Self::Promote(args) => return args.check(),
            Self::Reproduce(args) => return check_faulty(args.backend, args.allow_faulty_kernel),
            Self::Compaction(args) => return check_migrators(Backend::Kernel, &args.migrator),
        };
        match (batches.iter().min(), folios.iter().max()) {
            (Some(batch), Some(folio)) if batch < folio => Err(format!(
                "a batch of {batch} cannot hold a folio of {folio}; give --batch {folio} or \
                 more, or smaller folios with --folio"
            )),
            _ => Ok(()),
        }
    }

    /// Where the result goes, and whether the published tables are printed after ours.
    pub fn output(&self) -> (&JsonArgs, bool) {
        let output = match self {
            Self::Move(args) => &args.output,
            Self::Count(args) => &args.output,
            Self::Stall(args) => &args.output,
            Self::Cache(args) => &args.output,
            Self::Promote(args) => &args.output,
            Self::Compaction(args) => &args.output,
            Self::Reproduce(args) => return (&args.json, false),
        };
        (&output.json, output.published)
    }

    /// Whether it is shown where the time of a page went.
    pub fn anatomy(&self) -> bool {
        match self {
            Self::Move(args) => args.run.anatomy,
            Self::Count(args) => args.run.anatomy,
            _ => false,
        }
    }
}

/// Options of `memferry bench move`.
#[derive(Debug, Args)]
pub struct MoveArgs {
    /// Bytes moved in one run [default: 1GiB, less on a small machine]
    #[arg(long, value_name = "SIZE")]
    pub total: Option<Size>,
    /// Folio sizes [default: 4K,16K,64K,128K,256K,512K,1M,2M]
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = folio_size)]
    pub folio: Vec<Size>,
    /// What `move` and `count` share.
    #[command(flatten)]
    pub run: RunArgs,
    /// Where the result goes.
    #[command(flatten)]
    pub output: OutputArgs,
}

impl MoveArgs {
    /// The folio sizes to measure.
    pub fn folios(&self) -> Vec<Size> {
        let sizes: &[u64] = match (self.folio.is_empty(), self.run.quick) {
            (false, _) => return distinct(&self.folio),
            (true, true) => &[4, 64, 2048],
            (true, false) => &[4, 16, 64, 128, 256, 512, 1024, 2048],
        };
        sizes.iter().map(|kib| Size(kib << 10)).collect()
    }

    /// What destination pages to measure: a demo has the main two.
    pub fn destination(&self) -> Destination {
        let usual = if self.run.quick {
            Destination::Both
        } else {
            Destination::All
        };
        self.run.destination.unwrap_or(usual)
    }

    /// The bytes of a run on a machine with enough memory: what was asked for, else 1 GiB, or a
    /// quarter of it for a demo.
    pub fn wanted_total(&self) -> Size {
        let usual = Size(if self.run.quick { 1 << 28 } else { 1 << 30 });
        self.total.unwrap_or(usual)
    }
}

/// Options of `memferry bench count`.
#[derive(Debug, Args)]
pub struct CountArgs {
    /// Folio size
    #[arg(long, value_name = "SIZE", default_value = "2M", value_parser = folio_size)]
    pub folio: Size,
    /// Numbers of folios; those that do not fit in memory are left out, and that is said [default:
    /// 1,8,16,32,64,256,512,2048; --backend kernel: 1,2,4,8,16,32,64,128,256,512]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = positive)]
    pub folios: Vec<usize>,
    /// What `move` and `count` share.
    #[command(flatten)]
    pub run: RunArgs,
    /// Where the result goes.
    #[command(flatten)]
    pub output: OutputArgs,
}

impl CountArgs {
    /// The numbers of folios to measure. Of the kernel's, 1 is the case of a single folio, which no migrator may slow down.
    pub fn counts(&self) -> Vec<usize> {
        let counts: &[usize] = match (self.run.backend, self.run.quick) {
            _ if !self.folios.is_empty() => return distinct(&self.folios),
            (Backend::User, _) => &[1, 8, 16, 32, 64, 256, 512, 2048],
            (Backend::Kernel, false) => &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512],
            (Backend::Kernel, true) => &[1, 8, 64],
        };
        counts.to_vec()
    }
}

/// Options that `move` and `count` share.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// Who moves: this command through userfaultfd, or the kernel through move_pages(2)
    #[arg(long, value_enum, default_value_t = Backend::User)]
    pub backend: Backend,
    /// Between which nodes.
    #[command(flatten)]
    pub nodes: NodeArgs,
    /// Runs of each case; the tables give mean and standard deviation [default: 5, --quick: 2]
    #[arg(long, value_name = "N", value_parser = positive)]
    pub runs: Option<usize>,
    /// Parallel copiers [default: 1,2,4 … up to the CPUs]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = positive)]
    pub lanes: Vec<usize>,
    /// What copies: per-folio, batch (one lane each), mtcopy and auto here; none, kernel (one lane each), mtcopy, dcbm and auto in
    /// the kernel, which is set for the runs and set back afterwards (as root) [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_enum)]
    #[arg(default_value = "all")]
    pub migrator: Vec<MigratorName>,
    /// Seconds that auto moves before its rows are measured, for each kind of pages (and number of folios): until then it
    /// does not know what is fastest [default: 3, --quick: 1]
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u64).range(0..=3600))]
    pub learn: Option<u64>,
    /// Destination pages: there before (warm; also of an unaligned range), allocated inside the timed part (cold), as by
    /// default options, both warm and cold, or all; the kernel allocates always [default: all, of count and --quick: both]
    #[arg(long, value_enum)]
    pub destination: Option<Destination>,
    /// Copy routine, as `memferry topology --copy` lists them [default: the fastest measured]
    #[arg(long, value_name = "ROUTINE")]
    pub copy: Option<String>,
    /// Bytes of a batch.
    #[arg(long, value_name = "SIZE", value_parser = batch_size, help = batch_help())]
    pub batch: Option<Size>,
    /// Measure userfaultfd also on a kernel whose UFFDIO_MOVE has known faults by its release: for one whose distributor has
    /// mended them
    #[arg(long)]
    pub allow_faulty_kernel: bool,
    /// How mtcopy's lanes are placed, and beside what.
    #[command(flatten)]
    pub lanes_on: LanesOn,
    /// Repeat each run of the kernel beside a thread that writes and reads a file in this folder past the page cache, and show what
    /// both lose
    #[arg(long, value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    pub disk: Option<PathBuf>,
    /// Show where the time of a page goes, step by step; of the kernel as far as its tracepoints tell (as root); of count the
    /// kernel alone
    #[arg(long)]
    pub anatomy: bool,
    /// Fewer cases, smaller moves: shows the shape in seconds, not for publication
    #[arg(long)]
    pub quick: bool,
}

/// On which CPUs the lanes of mtcopy copy, how urgently, and beside what.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct LanesOn {
    /// The CPUs of mtcopy: one of each last-level cache in turn, or all of one cache first [default: spread; of the kernel as
    /// it is set]
    #[arg(long, value_enum)]
    pub placement: Option<Placement>,
    /// The priority of mtcopy's lanes; high is that of nice -20 [default: normal; of the kernel as it is set]
    #[arg(long, value_enum)]
    pub priority: Option<Priority>,
    /// Whether the kernel's mtcopy takes only idle CPUs [default: as it is set]
    #[arg(long, value_enum, value_name = "on|off", hide_possible_values = true)]
    pub idle_only: Option<Switch>,
    /// Keep every CPU busy with a thread that computes, and show what these threads lose
    #[arg(long)]
    pub busy: bool,
}

/// Which CPUs the lanes of mtcopy take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Placement {
    /// One of each last-level cache in turn
    Spread,
    /// All of one last-level cache first
    Fill,
}

/// How urgently the lanes of mtcopy run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Priority {
    /// As any thread
    Normal,
    /// As with nice -20
    High,
}

fn batch_help() -> String {
    format!(
        "Bytes that batch and mtcopy unmap, copy and remap together, {LARGEST} at most; per-folio has batches of one folio \
         [default: {} for each lane, {LARGEST} at most]",
        Size(DEFAULT_BATCH_BYTES as u64)
    )
}

impl RunArgs {
    /// Runs of each case.
    pub fn runs(&self) -> usize {
        self.runs.unwrap_or(if self.quick { 2 } else { 5 })
    }

    /// How long auto moves before it is measured.
    pub fn learn(&self) -> Duration {
        Duration::from_secs(self.learn.unwrap_or(if self.quick { 1 } else { 3 }))
    }

    /// Where destination pages come from.
    pub fn destination(&self) -> Destination {
        self.destination.unwrap_or(Destination::Both)
    }

    /// What goes together on the command line, and what does not.
    pub fn check(&self) -> Result<(), String> {
        self.nodes.check()?;
        check_migrators(self.backend, &self.migrator)?;
        check_faulty(self.backend, self.allow_faulty_kernel)?;
        let autos = [MigratorName::Auto, MigratorName::All];
        if self.learn.is_some() && !self.migrator.iter().any(|name| autos.contains(name)) {
            return Err("--learn is of auto: give --migrator auto".to_owned());
        }
        if self.backend == Backend::User {
            if self.lanes_on.idle_only.is_some() {
                return Err(
                    "--idle-only is of the kernel's mtcopy: it is for --backend kernel".to_owned(),
                );
            }
            if self.disk.is_some() {
                return Err("--disk is for --backend kernel".to_owned());
            }
            return Ok(());
        }
        if self.destination.is_some_and(|of| of != Destination::Cold) {
            return Err(
                "the kernel allocates every destination page: with --backend kernel there is only --destination cold".to_owned(),
            );
        }
        if self.batch.is_some() {
            return Err(
                "--batch is for --backend user; the kernel's is set with `memferry kernel set --max-batch-bytes`"
                    .to_owned(),
            );
        }
        Ok(())
    }

    /// Lane counts for a machine with `cpus` CPUs: 1, 2, 4 … and all of them; for a demo one and all.
    pub fn lanes(&self, cpus: usize) -> Vec<usize> {
        if !self.lanes.is_empty() {
            return distinct(&self.lanes);
        }
        let mut lanes: Vec<usize> = std::iter::successors(Some(1), |lanes| Some(lanes * 2))
            .take_while(|&lanes| lanes < cpus && (lanes == 1 || !self.quick))
            .collect();
        lanes.push(cpus.max(1));
        lanes
    }
}

/// Between which nodes pages move.
#[derive(Debug, Default, Args)]
pub struct NodeArgs {
    /// The node that pages lie on [default: one of the two nearest; of one node, that one: pages move within it]
    #[arg(long, value_name = "N")]
    pub from: Option<u32>,
    /// The node that pages move to, and come back from outside of the times [default: the nearest]
    #[arg(long, value_name = "N")]
    pub to: Option<u32>,
}

impl NodeArgs {
    fn check(&self) -> Result<(), String> {
        match self.from.is_some() && self.from == self.to {
            true => {
                Err("--from and --to are the same node, between which nothing moves".to_owned())
            }
            false => Ok(()),
        }
    }
}

/// Threads of `memferry bench stall`: each has a counter of four bytes in every page.
pub const MOST_THREADS: usize = 1024;

/// Options of `memferry bench stall`.
#[derive(Debug, Args)]
pub struct StallArgs {
    /// Who moves: this command through userfaultfd, or the kernel through move_pages(2)
    #[arg(long, value_enum, default_value_t = Backend::User)]
    pub backend: Backend,
    /// Batch sizes: of this command 2M at most [default: 64K,128K,256K,512K,1M,2M without those that cannot hold a
    /// folio]; of the kernel its max_batch_bytes [default: 2M,8M,32M; without the series its own]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = whole_pages)]
    pub batch: Vec<Size>,
    /// Threads that keep reading and writing the pages that move [default: the CPUs less the
    /// lanes, at least 1 and at most 1024]
    #[arg(long, value_name = "N", value_parser = threads)]
    pub threads: Option<usize>,
    /// Seconds of moving per batch size [default: 3, --quick: 1]
    #[arg(long, value_name = "S", conflicts_with = "rounds",
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub seconds: Option<u64>,
    /// Moves of the whole memory per batch size, instead of a time
    #[arg(long, value_name = "N", value_parser = positive)]
    pub rounds: Option<usize>,
    /// Bytes that the threads use and that move [default: 256MiB, less on a small machine]
    #[arg(long, value_name = "SIZE")]
    pub total: Option<Size>,
    /// Between which nodes.
    #[command(flatten)]
    pub nodes: NodeArgs,
    /// Parallel copiers
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = positive,
          default_value = "1")]
    pub lanes: Vec<usize>,
    /// What copies [default: mtcopy; of the kernel all that it has]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_enum)]
    pub migrator: Vec<MigratorName>,
    /// Folio sizes
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = folio_size,
          default_value = "4K")]
    pub folio: Vec<Size>,
    /// Copy routine, as `memferry topology --copy` lists them [default: the fastest measured]
    #[arg(long, value_name = "ROUTINE")]
    pub copy: Option<String>,
    /// Measure userfaultfd also on a kernel whose UFFDIO_MOVE has known faults by its release: for one whose distributor has
    /// mended them
    #[arg(long)]
    pub allow_faulty_kernel: bool,
    /// Shorter runs: shows the shape in seconds, not for publication
    #[arg(long)]
    pub quick: bool,
    /// Where the result goes.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// What ends the measurement of one batch size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// So many seconds.
    Seconds(u64),
    /// So many moves of the whole memory.
    Rounds(usize),
}

fn threads(text: &str) -> Result<usize, String> {
    match positive(text)? {
        threads if threads > MOST_THREADS => Err(format!("must be at most {MOST_THREADS}")),
        threads => Ok(threads),
    }
}

impl StallArgs {
    /// What goes together on the command line, and what does not.
    fn check(&self) -> Result<(), String> {
        self.nodes.check()?;
        if self.migrator.contains(&MigratorName::Auto) {
            let why =
                "auto has no fixed lanes, which bench stall compares: give mtcopy and --lanes";
            return Err(why.to_owned());
        }
        check_migrators(self.backend, &self.migrator)?;
        check_faulty(self.backend, self.allow_faulty_kernel)?;
        if self.backend == Backend::User {
            return self.batch.iter().try_for_each(|&size| small_batch(size));
        }
        if self.copy.is_some() {
            return Err(
                "--copy is of this command's migrators: it is for --backend user".to_owned(),
            );
        }
        match (self.folio.iter()).find(|folio| ![SMALLEST, LARGEST].contains(folio)) {
            Some(folio) => Err(format!(
                "Linux 6.12 splits folios of {folio} when they migrate again: with --backend kernel there are {SMALLEST} and {LARGEST}"
            )),
            None => Ok(()),
        }
    }

    /// What copies, as it is asked for.
    pub fn migrators(&self) -> &[MigratorName] {
        match (self.migrator.is_empty(), self.backend) {
            (false, _) => &self.migrator,
            (true, Backend::User) => &[MigratorName::Mtcopy],
            (true, Backend::Kernel) => &[MigratorName::All],
        }
    }

    /// The batch sizes to measure with folios of this size.
    pub fn batches(&self, folio: Size) -> Vec<Size> {
        if !self.batch.is_empty() {
            return distinct(&self.batch);
        }
        if self.backend == Backend::Kernel {
            return [2, 8, 32].map(|mib| Size(mib << 20)).to_vec();
        }
        let usual = (6..=11).map(|power| Size(1 << (power + 10)));
        usual.filter(|batch| *batch >= folio).collect()
    }

    /// What ends the measurement of one batch size.
    pub fn length(&self) -> Length {
        match (self.rounds, self.seconds) {
            (Some(rounds), _) => Length::Rounds(rounds),
            (None, Some(seconds)) => Length::Seconds(seconds),
            (None, None) => Length::Seconds(if self.quick { 1 } else { 3 }),
        }
    }

    /// Application threads beside `lanes` lanes on `cpus` CPUs.
    pub fn threads(&self, cpus: usize, lanes: usize) -> usize {
        let default = cpus.saturating_sub(lanes).clamp(1, MOST_THREADS);
        self.threads.unwrap_or(default)
    }
}

/// Where a benchmark's result goes.
#[derive(Debug, Args)]
pub struct OutputArgs {
    /// Print the published tables after ours
    #[arg(long)]
    pub published: bool,
    /// How it is shown.
    #[command(flatten)]
    pub json: JsonArgs,
}

/// Who moves the pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Backend {
    /// This command, through userfaultfd
    User,
    /// The kernel, through move_pages(2), between two nodes
    Kernel,
}

/// What copies a batch, as it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MigratorName {
    /// Unmap, copy and remap one folio at a time: the baseline
    PerFolio,
    /// The whole batch on one lane
    Batch,
    /// The whole batch on many lanes
    Mtcopy,
    /// What is measured to be fastest while pages move; in the kernel of all its migrators
    Auto,
    /// The kernel without a migrator: the baseline of --backend kernel
    None,
    /// The kernel's own copy of whole batches
    Kernel,
    /// DMA channels, in the kernel
    Dcbm,
    /// All that the backend has
    All,
}

/// The name of a value on the command line, which is that in files, tables and sysfs, too.
pub fn value_name(value: impl ValueEnum) -> String {
    let value = value.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}

/// The migrators of this command among `names`, each once.
pub fn user_migrators(names: &[MigratorName]) -> Vec<Migrator> {
    let of = |name: &MigratorName| match name {
        MigratorName::All => Migrator::value_variants().to_vec(),
        name => Vec::from_iter(Migrator::from_str(&value_name(*name), false)),
    };
    distinct(&names.iter().flat_map(of).collect::<Vec<_>>())
}

/// Refuses migrators that only the other backend has.
fn check_migrators(backend: Backend, names: &[MigratorName]) -> Result<(), String> {
    let (others, why) = match backend {
        Backend::User => (
            &[MigratorName::None, MigratorName::Kernel, MigratorName::Dcbm][..],
            "the kernel's; without --backend kernel there are per-folio, batch, mtcopy, auto and all",
        ),
        Backend::Kernel => (
            &[MigratorName::PerFolio, MigratorName::Batch][..],
            "no migrator of the kernel, which has none, kernel, mtcopy, dcbm, auto and all",
        ),
    };
    match names.iter().find(|name| others.contains(name)) {
        Some(name) => Err(format!("{} is {why}", value_name(*name))),
        None => Ok(()),
    }
}

/// Refuses what is of userfaultfd alone.
fn check_faulty(backend: Backend, allow_faulty_kernel: bool) -> Result<(), String> {
    match allow_faulty_kernel && backend == Backend::Kernel {
        true => Err("--allow-faulty-kernel is of userfaultfd: it is for --backend user".to_owned()),
        false => Ok(()),
    }
}

/// What copies a batch in this command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Migrator {
    /// See [`MigratorName::PerFolio`].
    PerFolio,
    /// See [`MigratorName::Batch`].
    Batch,
    /// See [`MigratorName::Mtcopy`].
    Mtcopy,
    /// See [`MigratorName::Auto`].
    Auto,
}

impl Migrator {
    /// The name in tables and files.
    pub fn name(self) -> &'static str {
        match self {
            Self::PerFolio => "per-folio",
            Self::Batch => "batch",
            Self::Mtcopy => "mtcopy",
            Self::Auto => "auto",
        }
    }
}

/// Where destination pages come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Destination {
    /// They were there before, recycled from earlier moves
    Warm,
    /// The same, and the range begins a page after a multiple of 2 MiB; of folios of 4 KiB
    Unaligned,
    /// They are allocated inside the timed part
    Cold,
    /// As the library's options are unless told: source pages are given back, and the mover may keep 64 MiB
    Default,
    /// Warm and cold
    Both,
    /// All of them, and baselines: of a plain program in three passes, or of move_pages(2) between two nodes
    All,
}

/// `list` without its later duplicates.
pub fn distinct<T: Copy + PartialEq>(list: &[T]) -> Vec<T> {
    crate::spread::distinct(list, |item| *item)
}

/// The benchmark that a command line asks for, which begins with its name.
///
/// # Errors
/// What is wrong with the line.
pub fn read(line: &str) -> Result<Bench, String> {
    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(subcommand)]
        bench: Bench,
    }
    let words = std::iter::once("memferry bench").chain(line.split_whitespace());
    let line: Line = clap::Parser::try_parse_from(words).map_err(|error| error.to_string())?;
    line.bench.check()?;
    Ok(line.bench)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_move(line: &str) -> MoveArgs {
        match read(line) {
            Ok(Bench::Move(args)) => args,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn lanes_double_up_to_the_cpus() {
        let args = read_move("move");
        assert_eq!(args.run.lanes(1), [1]);
        assert_eq!(args.run.lanes(2), [1, 2]);
        assert_eq!(args.run.lanes(12), [1, 2, 4, 8, 12]);
        let args = read_move("move --lanes 3,1,3");
        assert_eq!(args.run.lanes(2), [3, 1]);
    }

    #[test]
    fn quick_is_smaller_unless_told_otherwise() {
        let usual = read_move("move");
        let quick = read_move("move --quick");
        assert!(quick.run.runs() < usual.run.runs());
        assert!(quick.folios().len() < usual.folios().len());
        assert!(quick.wanted_total() < usual.wanted_total());
        assert_eq!(quick.run.lanes(16), [1, 16]);
        let told = read_move("move --quick --runs 7 --folio 8K --total 64M");
        assert_eq!((told.run.runs(), told.wanted_total()), (7, Size(64 << 20)));
        assert_eq!(told.folios(), [Size(8192)]);
    }

    #[test]
    fn larger_batches_of_compaction_are_a_case_each_but_without_a_migrator() {
        let gathers = |line, migrator| match read(line) {
            Ok(Bench::Compaction(args)) => args.gathers(migrator),
            other => panic!("{line}: {other:?}"),
        };
        let line = "compaction --gather on,off,on";
        assert_eq!(gathers(line, "dcbm"), [Some(true), Some(false)]);
        assert_eq!(gathers(line, "none"), [None]);
        assert_eq!(gathers("compaction", "dcbm"), [None]);
    }

    #[test]
    fn a_stall_run_ends_by_time_or_by_rounds() {
        let Ok(Bench::Stall(args)) = read("stall --rounds 9") else {
            panic!("stall");
        };
        assert_eq!(args.length(), Length::Rounds(9));
        assert_eq!((args.threads(8, 2), args.threads(2, 2)), (6, 1));
        assert!(read("stall --seconds 0").is_err());
    }

    #[test]
    fn a_batch_holds_a_folio_unless_told_otherwise() {
        let Ok(Bench::Stall(args)) = read("stall") else {
            panic!("stall");
        };
        let sizes = |folio| {
            let sizes = args.batches(Size(folio)).into_iter();
            sizes.map(|size| size.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(sizes(4096), ["64K", "128K", "256K", "512K", "1M", "2M"]);
        assert_eq!(sizes(2 << 20), ["2M"]);
    }

    #[test]
    fn migrators_have_one_name() {
        for name in MigratorName::value_variants() {
            let of_user = user_migrators(&[*name]);
            assert_eq!(
                of_user.is_empty(),
                check_migrators(Backend::User, &[*name]).is_err()
            );
            if let [migrator] = of_user[..] {
                assert_eq!(migrator.name(), value_name(*name));
            }
        }
        assert_eq!(
            user_migrators(&[MigratorName::Batch, MigratorName::All]).len(),
            4
        );
    }
}

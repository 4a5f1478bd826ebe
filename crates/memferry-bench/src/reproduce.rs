// SPDX-License-Identifier: MIT OR Apache-2.0
//! `bench reproduce`: which command line of another benchmark repeats a published table here, what this machine leaves out
//! of it and why, and each published figure beside ours.

use memferry_linux::kernel::{DCBM, MOST_LANES, MTCOPY, NO_MIGRATOR};
use memferry_linux::topology::Topology;

use crate::Stopped;
use crate::args::reproduce::ReproduceArgs;
use crate::args::{self, Backend};
use crate::failure::Failure;
use crate::published::Figure;
use crate::published::tables::{self, Experiment, Table};
use crate::region::{PAGE, THP};
use crate::schema::compaction::CompactionRow;
use crate::schema::reproduced::{
    Cell, Compacted, CompactionCell, LanesCell, LeftOut, Measured, Reproduced, ShareCell,
    StepPercents,
};
use crate::schema::{BenchFile, Ceiling, MoveRow, Rows};
use crate::spread::distinct;
use crate::ui::Ui;
use crate::units::{Size, lanes};
use crate::{host, kernel};

/// `bench reproduce NAME`.
pub fn run_reproduce(args: &ReproduceArgs, ui: &Ui) -> Result<BenchFile, Stopped> {
    let table = args.table.ok_or_else(|| {
        Failure::new(
            "no table is named",
            "there are many",
            "`--list` has all names",
        )
    })?;
    let plan = Plan::new(table, args)?;
    for left in &plan.left_out {
        ui.warn(&format!("left out: {}: {}", left.what, left.why));
    }
    let (mut whole, mut failure) = (None::<BenchFile>, None);
    for line in &plan.lines {
        ui.warn(&format!("this runs `memferry bench {line}`"));
        let bench = args::read(line).map_err(|why| {
            Failure::new(
                "the table's own command line is refused",
                why,
                "report this as a bug",
            )
        })?;
        let file = match crate::run(&bench, ui) {
            Ok(file) => Some(file),
            Err(stopped) => {
                failure = Some(stopped.failure);
                stopped.partial.map(|file| *file)
            }
        };
        whole = match (whole, file) {
            (Some(whole), Some(next)) => Some(joined(whole, next)),
            (whole, next) => whole.or(next),
        };
        if failure.is_some() {
            break;
        }
    }
    let compared = whole.map(|mut file| {
        file.envelope.complete &= failure.is_none();
        file.reproduces = Some(plan.compare(&file));
        file
    });
    match (failure, compared) {
        (Some(failure), file) => Err(Stopped {
            failure,
            partial: file.map(Box::new),
        }),
        (None, Some(file)) => Ok(file),
        (None, None) => Err(plan.impossible().into()),
    }
}

/// Two files of the same benchmark as one.
fn joined(mut whole: BenchFile, next: BenchFile) -> BenchFile {
    match (&mut whole.rows, next.rows) {
        (Rows::Move(rows), Rows::Move(more)) | (Rows::Count(rows), Rows::Count(more)) => {
            rows.extend(more);
        }
        _ => unreachable!("the lines of a table are of one benchmark, and only these have several"),
    }
    for ceiling in next.ceiling {
        let same = |of: &Ceiling| (of.lanes, of.page_bytes) == (ceiling.lanes, ceiling.page_bytes);
        if !whole.ceiling.iter().any(same) {
            whole.ceiling.push(ceiling);
        }
    }
    for note in next.notes {
        if !whole.notes.contains(&note) {
            whole.notes.push(note);
        }
    }
    whole.envelope.complete &= next.envelope.complete;
    whole
}

/// How a table is repeated here.
struct Plan<'a> {
    table: &'static Table,
    args: &'a ReproduceArgs,
    /// What runs, as it stands behind `memferry bench`.
    lines: Vec<String>,
    left_out: Vec<LeftOut>,
}

impl<'a> Plan<'a> {
    fn new(table: &'static Table, args: &'a ReproduceArgs) -> Result<Self, Failure> {
        let mut plan = Self {
            table,
            args,
            lines: Vec::new(),
            left_out: Vec::new(),
        };
        if args.seconds.is_some() && !matches!(table.experiment, Experiment::Promotion(_)) {
            return Err(Failure::new(
                format!("{} has no length of a run", table.name),
                "--seconds is for tables of promotion",
                "leave out --seconds; --scale and --runs make it shorter",
            ));
        }
        plan.lines = match &table.experiment {
            Experiment::Throughput { bench, load, .. } => {
                let machine = Machine::read(args.backend)?;
                vec![plan.throughput(bench, load, &machine)?]
            }
            Experiment::Share => plan.share()?,
            Experiment::Promotion(name) => vec![plan.promotion(name)?],
            Experiment::Compaction => vec![plan.compaction()?],
        };
        plan.common();
        Ok(plan)
    }

    /// Options that all benchmarks have.
    fn common(&mut self) {
        let mut options = String::new();
        if let Some(runs) = self.args.runs {
            options += &format!(" --runs {runs}");
        }
        if self.args.allow_faulty_kernel {
            options += " --allow-faulty-kernel";
        }
        for (option, node) in [("from", self.args.nodes.from), ("to", self.args.nodes.to)] {
            if let Some(node) = node {
                options += &format!(" --{option} {node}");
            }
        }
        self.lines.iter_mut().for_each(|line| *line += &options);
    }

    /// Promotion and compaction are the kernel's, on nodes of its choice.
    fn of_the_kernel(&self, what: &str) -> Result<(), Failure> {
        let nodes = &self.args.nodes;
        let option = match (self.args.backend, nodes.from.or(nodes.to)) {
            (Backend::User, _) => "--backend user",
            (_, Some(_)) => "--from and --to",
            (Backend::Kernel, None) => return Ok(()),
        };
        Err(Failure::new(
            format!("{} is of the kernel's {what}", self.table.name),
            format!("{option} has no meaning for it"),
            format!("leave out {option}"),
        ))
    }

    fn leave_out(&mut self, what: impl Into<String>, why: impl Into<String>) {
        self.left_out.push(LeftOut {
            what: what.into(),
            why: why.into(),
        });
    }

    fn throughput(
        &mut self,
        bench: &str,
        load: &str,
        machine: &Machine,
    ) -> Result<String, Failure> {
        let figures = self.table.figures();
        let wanted = distinct(&figures, |of| of.migrator.as_str());
        let mut migrators = vec![machine.name(tables::VANILLA)];
        for migrator in wanted.into_iter().filter(|name| *name != tables::VANILLA) {
            match machine.missing(migrator) {
                Some(why) => self.leave_out(migrator, why),
                None => migrators.push(machine.name(migrator)),
            }
        }
        let own = migrators.len() > 1;
        if !own && figures.iter().all(|of| !of.is_baseline()) {
            return Err(self.impossible());
        }
        let mut lane_counts = distinct(&figures, |of| of.lanes);
        lane_counts.sort_unstable();
        lane_counts.retain(|&count| {
            // The CPUs of a machine do not limit its DMA channels: which of those dcbm gets, the benchmark finds.
            let most = if migrators.iter().any(|name| name == MTCOPY) {
                machine.cpus
            } else {
                MOST_LANES as usize
            };
            let fits = count <= most;
            if !fits {
                self.leave_out(lanes(count), format!("this process may use {most} CPUs"));
            }
            fits
        });
        let mut folios = distinct(&figures, |of| of.folio_bytes);
        folios.retain(|&folio| {
            let given = machine.folios.contains(&(folio as usize));
            if !given {
                let file = format!("hugepages-{}kB/enabled", folio >> 10);
                self.leave_out(
                    format!("folios of {}", Size(folio)),
                    format!("/sys/kernel/mm/transparent_hugepage/{file} is never, or this kernel has no such size"),
                );
            }
            given
        });
        if folios.is_empty() {
            return Err(self.impossible());
        }
        let folios: Vec<Size> = folios.into_iter().map(Size).collect();
        let mut line = match bench {
            "count" => {
                let counts = distinct(&figures, |of| of.folios).into_iter();
                let mut counts: Vec<usize> = counts.flatten().collect();
                counts.sort_unstable();
                let largest = counts.last().copied().unwrap_or(1) as f64 * self.args.scale.0;
                let smallest = counts.first().copied().unwrap_or(1);
                counts.retain(|&count| {
                    // The smallest one is always there: a table without rows shows nothing.
                    let fits = count as f64 <= largest.max(smallest as f64);
                    if !fits {
                        self.leave_out(format!("{count} folios"), "--scale is less");
                    }
                    fits
                });
                format!("count --folio {} --folios {}", folios[0], list(&counts))
            }
            _ => {
                let total = self.scaled((1 << 30) as f64);
                format!("move --folio {} --total {total}", list(&folios))
            }
        };
        line += &format!(
            " --migrator {} --lanes {}",
            migrators.join(","),
            list(&lane_counts)
        );
        line += self.way();
        line += match bench {
            "topology-fill" => " --placement fill",
            "topology-spread" => " --placement spread",
            _ => "",
        };
        if load != "idle" {
            line += " --busy";
            if self.args.backend == Backend::Kernel {
                line += " --idle-only off";
            }
            line += match load.contains("highpri") {
                true => " --priority high",
                false => " --priority normal",
            };
        }
        Ok(line)
    }

    /// Who moves pages, and which.
    fn way(&self) -> &'static str {
        match self.args.backend {
            Backend::Kernel => " --backend kernel",
            Backend::User => " --destination cold",
        }
    }

    /// One lane, whose steps are told, and more lanes beside it. The kernel also has Linux's own copy.
    fn share(&mut self) -> Result<Vec<String>, Failure> {
        let machine = Machine::read(self.args.backend)?;
        let mut migrators = match self.args.backend {
            Backend::User => vec![ONE_LANE_OF_USER, MTCOPY],
            Backend::Kernel => vec![NO_MIGRATOR],
        };
        if self.args.backend == Backend::Kernel {
            for migrator in [ONE_LANE_OF_KERNEL, MTCOPY, DCBM] {
                match machine.missing(migrator) {
                    Some(why) => self.leave_out(migrator, why),
                    None => migrators.push(migrator),
                }
            }
        }
        let most = machine.cpus.min(MOST_LANES as usize);
        let lanes = std::iter::successors(Some(1), |lanes| Some(lanes * 2));
        let lanes: Vec<usize> = lanes.take_while(|&lanes| lanes <= most).collect();
        let shares = tables::shares();
        let bytes = |of: &tables::Share| of.folio_bytes * of.folios as u64;
        let largest = shares.iter().map(bytes).max().unwrap_or(0) as f64 * self.args.scale.0;
        let (fits, others): (Vec<_>, Vec<_>) =
            (shares.iter()).partition(|of| bytes(of) as f64 <= largest);
        for of in others {
            let what = format!("{} folios of {}", of.folios, Size(of.folio_bytes));
            self.leave_out(what, "--scale is less");
        }
        let mut sizes = distinct(&fits, |of| of.folio_bytes);
        sizes.retain(|&size| machine.folios.contains(&(size as usize)));
        if sizes.is_empty() {
            return Err(self.impossible());
        }
        let line = |&size: &u64| {
            let counts = fits.iter().filter(|of| of.folio_bytes == size);
            let counts: Vec<usize> = counts.map(|of| of.folios).collect();
            format!(
                "count --folio {} --folios {} --migrator {} --lanes {}{}",
                Size(size),
                list(&counts),
                migrators.join(","),
                list(&lanes),
                self.way()
            )
        };
        Ok(sizes.iter().map(line).collect())
    }

    fn promotion(&mut self, name: &str) -> Result<String, Failure> {
        self.of_the_kernel("promotion")?;
        let seconds = self.args.seconds.map(|of| format!(" --seconds {of}"));
        Ok(format!(
            "promote --like {name} --scale {}{}",
            self.args.scale,
            seconds.unwrap_or_default()
        ))
    }

    fn compaction(&mut self) -> Result<String, Failure> {
        self.of_the_kernel("compaction")?;
        let machine = Machine::read(Backend::Kernel)?;
        let mut migrators = NO_MIGRATOR.to_owned();
        match machine.missing(DCBM) {
            Some(why) => self.leave_out(DCBM, why),
            None => migrators += ",dcbm",
        }
        // Half of the memory is moved: as many pages as published, and as many that are given back.
        let pages = tables::compactions()
            .iter()
            .map(|of| of.pages_migrated)
            .max();
        let total = self.scaled(pages.unwrap_or(0) as f64 * 2.0 * PAGE as f64);
        Ok(format!("compaction --total {total} --migrator {migrators}"))
    }

    /// That part of so many bytes which --scale asks for, in whole THPs, one at least.
    fn scaled(&self, bytes: f64) -> Size {
        let part = (bytes * self.args.scale.0) as u64;
        Size(part.max(1).next_multiple_of(THP as u64))
    }

    fn impossible(&self) -> Failure {
        let why: Vec<String> = (self.left_out.iter())
            .map(|left| format!("{}: {}", left.what, left.why))
            .collect();
        Failure::new(
            format!("nothing of {} can be measured here", self.table.name),
            why.join("; "),
            format!("it needs {}", self.table.needs()),
        )
    }

    /// Published figures with ours beside them.
    fn compare(&self, file: &BenchFile) -> Reproduced {
        let rows = file.rows.moves();
        let figures = self.table.figures();
        let vanilla = figures
            .iter()
            .all(|of| self.table.baseline(of).is_some_and(Figure::is_baseline));
        let cells = figures.iter().map(|of| {
            let baseline = self.table.baseline(of);
            Cell {
                migrator: of.migrator.clone(),
                lanes: of.lanes,
                folio_bytes: of.folio_bytes,
                folios: of.folios,
                published: Measured {
                    gbps: of.gbps,
                    gbps_sd: of.gbps_sd,
                    of_baseline: baseline.map(|baseline| of.gbps / baseline.gbps),
                },
                ours: self.ours(of, baseline, rows),
            }
        });
        Reproduced {
            name: self.table.name.to_owned(),
            posting: self.table.posting().to_owned(),
            system: self.table.system().to_owned(),
            shows: self.table.shows.to_owned(),
            scale: self.args.scale.0,
            line: self.lines.join(" and "),
            baseline: (!figures.is_empty()).then(|| {
                let baseline = if vanilla {
                    "Linux as it is"
                } else {
                    "one lane"
                };
                baseline.to_owned()
            }),
            cells: cells.collect(),
            shares: match self.table.experiment {
                Experiment::Share => shares(rows),
                _ => Vec::new(),
            },
            compactions: match &file.rows {
                Rows::Compaction(rows) => compactions(rows),
                _ => Vec::new(),
            },
            left_out: self.left_out.clone(),
        }
    }

    fn ours(&self, of: &Figure, baseline: Option<&Figure>, rows: &[MoveRow]) -> Option<Measured> {
        let backend = self.args.backend;
        let row = |of: &Figure| {
            rows.iter().find(|row| {
                (row.migrator.as_str(), row.lanes) == (name(backend, &of.migrator), of.lanes)
                    && row.folio_bytes as u64 == of.folio_bytes
                    && row.folios == of.folios
                    && row.is_by_name()
            })
        };
        let own = row(of)?;
        Some(Measured {
            gbps: own.gbps,
            gbps_sd: Some(own.gbps_sd),
            of_baseline: baseline
                .and_then(row)
                .map(|baseline| own.gbps / baseline.gbps),
        })
    }
}

/// As the command line has a list.
fn list<T: ToString>(of: &[T]) -> String {
    of.iter().map(T::to_string).collect::<Vec<_>>().join(",")
}

/// What copies on one lane, and tells the copy's part.
const ONE_LANE_OF_USER: &str = "batch";
const ONE_LANE_OF_KERNEL: &str = "kernel";

fn shares(rows: &[MoveRow]) -> Vec<ShareCell> {
    tables::shares().iter().map(|of| share(of, rows)).collect()
}

fn share(of: &tables::Share, rows: &[MoveRow]) -> ShareCell {
    let same =
        |row: &&MoveRow| (row.folio_bytes as u64, row.folios) == (of.folio_bytes, Some(of.folios));
    let rows: Vec<&MoveRow> = rows.iter().filter(same).collect();
    let one_lane = [ONE_LANE_OF_USER, ONE_LANE_OF_KERNEL];
    let one = rows
        .iter()
        .find(|row| one_lane.contains(&row.migrator.as_str()));
    let of_one = one.and_then(|row| match row.kernel_steps {
        Some(steps) => steps.copy_share(),
        None => row.steps.and_then(|steps| steps.copy_share()),
    });
    let told =
        |row: &&MoveRow| one_lane.contains(&row.migrator.as_str()) || row.migrator == NO_MIGRATOR;
    let lanes = one.zip(of_one).into_iter().flat_map(|(one, copy)| {
        let more = rows.iter().filter(|row| !told(row) && row.is_by_name());
        more.map(move |row| LanesCell {
            migrator: row.migrator.clone(),
            lanes: row.lanes,
            // Amdahl (1967): the copy alone is divided among the lanes.
            predicted: 1.0 / (1.0 - copy + copy / row.lanes as f64),
            measured: row.gbps / one.gbps,
        })
    });
    ShareCell {
        folio_bytes: of.folio_bytes,
        folios: of.folios,
        published_percent: of.copy_percent.clone(),
        ours_percent: of_one.map(|copy| copy * 100.0),
        why_not: (!rows.is_empty() && of_one.is_none()).then(|| why_not(one).to_owned()),
        steps: rows
            .iter()
            .filter(|row| told(row))
            .filter_map(|row| step_percents(row))
            .collect(),
        lanes: lanes.collect(),
    }
}

/// Why the copy's part is not known.
fn why_not(one: Option<&&MoveRow>) -> &'static str {
    match one.map(|row| row.kernel_steps) {
        None => "only Linux's own copy is here, which no tracepoint marks",
        Some(None) => "there are no tracepoints for this user, or events were lost",
        Some(Some(_)) => "Linux itself copied at least a batch of it, which no tracepoint marks",
    }
}

fn step_percents(row: &MoveRow) -> Option<StepPercents> {
    let (all, [unmap, flush, copy, remap, plain, rest]) = match (row.kernel_steps, row.steps) {
        (Some(of), _) => (of.all_ns(), of.in_order()),
        (None, Some(of)) => {
            let (copy, all) = (of.copy_ns + of.fill_ns, of.all_ns());
            let rest = all - of.unmap_ns - copy - of.remap_ns;
            (all, [of.unmap_ns, 0, copy, of.remap_ns, 0, rest])
        }
        (None, None) => return None,
    };
    let percent = |ns: u64| ns as f64 * 100.0 / all.max(1) as f64;
    // A step that nothing went through is not one of this row.
    let [flush, copy, remap, plain] =
        [flush, copy, remap, plain].map(|ns| (ns > 0).then(|| percent(ns)));
    Some(StepPercents {
        migrator: row.migrator.clone(),
        unmap: percent(unmap),
        flush,
        copy,
        remap,
        plain,
        rest: percent(rest),
    })
}

fn compactions(rows: &[CompactionRow]) -> Vec<CompactionCell> {
    let all = tables::compactions();
    let vanilla = |load: &str| {
        all.iter()
            .find(|of| of.load == load && of.mode == "vanilla")
    };
    let ours = |mode: &str, load: &str| {
        let migrator = if mode == "vanilla" { NO_MIGRATOR } else { mode };
        rows.iter()
            .find(|row| row.migrator == migrator && row.load == load)
    };
    let cell = |of: &tables::Compaction| CompactionCell {
        mode: of.mode.clone(),
        load: of.load.clone(),
        published: Compacted {
            wall_ms: of.wall_ms,
            of_baseline: vanilla(&of.load).map(|vanilla| vanilla.wall_ms / of.wall_ms),
            pages_migrated: of.pages_migrated,
            by_migrator: of
                .dma_pages
                .map(|pages| pages as f64 / of.pages_migrated as f64),
            hog_per_s: of
                .hog_iterations
                .map(|rounds| rounds as f64 * 1e3 / of.wall_ms),
            cpu_percent: [of.user_percent, of.sys_percent, of.idle_percent],
        },
        ours: ours(&of.mode, &of.load).map(|row| Compacted {
            wall_ms: row.wall_ms,
            of_baseline: ours("vanilla", &of.load).map(|vanilla| vanilla.wall_ms / row.wall_ms),
            pages_migrated: row.pages_migrated,
            by_migrator: row
                .migrator_pages
                .map(|pages| pages as f64 / row.pages_migrated.max(1) as f64),
            hog_per_s: row
                .hog_iterations
                .map(|rounds| rounds as f64 * 1e3 / row.wall_ms),
            cpu_percent: row.cpu_ticks.percent(),
        }),
    };
    all.iter().map(cell).collect()
}

/// What a published migrator is called here; the published `kernel` is Linux without the series.
fn name(backend: Backend, published: &str) -> &str {
    match (backend, published) {
        (Backend::Kernel, tables::VANILLA) => NO_MIGRATOR,
        (Backend::User, tables::VANILLA) => "per-folio",
        (_, other) => other,
    }
}

/// What this machine has of what tables need.
struct Machine {
    backend: Backend,
    cpus: usize,
    /// The kernel's registered migrators; none on a stock kernel.
    migrators: Vec<String>,
    folios: Vec<usize>,
}

impl Machine {
    fn read(backend: Backend) -> Result<Self, Failure> {
        let topology: Topology = host::topology()?;
        let migrators = kernel::migration()?.map_or_else(|_| Vec::new(), |now| now.migrators.names);
        Ok(Self {
            backend,
            cpus: host::cpus_in_quota(&topology),
            migrators,
            folios: match backend {
                Backend::Kernel => kernel::given_folios(&topology, false),
                // Made of base pages where the kernel gives none.
                Backend::User => (12..=21).map(|power| 1 << power).collect(),
            },
        })
    }

    fn name(&self, published: &str) -> String {
        name(self.backend, published).to_owned()
    }

    /// Why a migrator is not here.
    fn missing(&self, published: &str) -> Option<String> {
        match self.backend {
            Backend::User if published == MTCOPY => None,
            Backend::User => Some("no program can use the DMA channels of the kernel".to_owned()),
            Backend::Kernel if self.migrators.iter().any(|name| name == published) => None,
            Backend::Kernel if self.migrators.is_empty() => {
                Some("this kernel is without the series".to_owned())
            }
            Backend::Kernel => Some(format!("it is not registered: modprobe {published}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{KernelSteps, Steps};

    fn row(backend: &str, migrator: &str, lanes: usize, gbps: f64) -> MoveRow {
        serde_json::from_value(serde_json::json!({
            "backend": backend, "migrator": migrator, "lanes": lanes, "folio_bytes": 4096, "folios": 512,
            "destination": "cold", "bytes": 2 << 20, "runs": 1, "gbps": gbps, "gbps_sd": 0.0, "of_ceiling": 0.5,
            "verified_bytes": 2 << 20
        }))
        .expect("row")
    }

    fn cell(rows: &[MoveRow]) -> ShareCell {
        let of = shares(rows)
            .into_iter()
            .find(|of| (of.folio_bytes, of.folios) == (4096, 512));
        of.expect("published")
    }

    #[test]
    fn runs_of_promotion_alone_have_a_length() {
        let plan = |line: &str| match args::read(&format!("reproduce {line}")).expect("usage") {
            args::Bench::Reproduce(args) => {
                let table = args.table.expect("named");
                Plan::new(table, &args).map(|plan| plan.lines.join(" and "))
            }
            other => panic!("{other:?}"),
        };
        let line = plan("rao-v6-2 --scale 1/512 --seconds 8 --runs 1").expect("the kernel's");
        assert_eq!(
            line,
            "promote --like pghot-v6-2 --scale 1/512 --seconds 8 --runs 1"
        );
        let refused = plan("garg-v3-1b --seconds 8").expect_err("no promotion");
        assert!(
            refused.to_string().contains("leave out --seconds"),
            "{refused}"
        );
    }

    #[test]
    fn a_tiny_scale_leaves_a_benchmark() {
        for table in tables::TABLES {
            for backend in ["user", "kernel"] {
                let line = format!("reproduce {} --scale 1e-15 --backend {backend}", table.name);
                let Ok(args::Bench::Reproduce(args)) = args::read(&line) else {
                    panic!("{line}");
                };
                // What this machine cannot have at all is refused.
                for line in Plan::new(table, &args).map_or_else(|_| Vec::new(), |of| of.lines) {
                    assert!(args::read(&line).is_ok(), "{line}");
                }
            }
        }
    }

    #[test]
    fn the_copys_share_predicts_what_more_lanes_give() {
        let mut kernel = row("kernel", "kernel", 1, 1.0);
        kernel.kernel_steps = Some(KernelSteps {
            unmap_ns: 20,
            flush_ns: 5,
            copy_ns: 50,
            remap_ns: 15,
            rest_ns: 10,
            ..KernelSteps::default()
        });
        let mut none = row("kernel", "none", 1, 0.9);
        none.kernel_steps = Some(KernelSteps {
            unmap_ns: 20,
            plain_ns: 80,
            ..KernelSteps::default()
        });
        let by_others = MoveRow {
            copied_bytes: Some(1 << 20),
            ..row("kernel", "dcbm", 2, 3.0)
        };
        let found = cell(&[none, kernel, row("kernel", "mtcopy", 2, 1.25), by_others]);
        assert_eq!((found.ours_percent, found.why_not), (Some(50.0), None));
        let [lanes] = &found.lanes[..] else {
            panic!("{:?}", found.lanes)
        };
        assert_eq!(
            (lanes.migrator.as_str(), lanes.lanes, lanes.measured),
            ("mtcopy", 2, 1.25)
        );
        assert!((lanes.predicted - 4.0 / 3.0).abs() < 1e-9);
        let steps: Vec<_> = found
            .steps
            .iter()
            .map(|of| (of.migrator.as_str(), of.copy, of.plain))
            .collect();
        assert_eq!(
            steps,
            [("none", None, Some(80.0)), ("kernel", Some(50.0), None)]
        );
    }

    #[test]
    fn a_copy_that_the_kernel_does_not_tell_apart_has_its_reason() {
        let mut kernel = row("kernel", "kernel", 1, 1.0);
        let why = |rows: &[MoveRow]| {
            let cell = cell(rows);
            assert_eq!((cell.ours_percent, cell.lanes.len()), (None, 0));
            cell.why_not
        };
        let has = |why: Option<String>, part: &str| {
            assert!(
                why.as_ref().is_some_and(|why| why.contains(part)),
                "{why:?}"
            )
        };
        has(why(std::slice::from_ref(&kernel)), "events were lost");
        kernel.kernel_steps = Some(KernelSteps {
            copy_ns: 50,
            plain_ns: 1,
            ..KernelSteps::default()
        });
        has(why(&[kernel]), "Linux itself copied");
        has(
            why(&[row("kernel", "none", 1, 1.0)]),
            "only Linux's own copy",
        );
        assert_eq!(why(&[]), None);
    }

    #[test]
    fn the_movers_steps_have_no_flush_of_their_own() {
        let mut batch = row("user", "batch", 1, 2.0);
        batch.steps = Some(Steps {
            unmap_ns: 20,
            copy_ns: 25,
            fill_ns: 5,
            remap_ns: 20,
            wait_ns: 30,
            ..Steps::default()
        });
        let found = cell(&[batch, row("user", "mtcopy", 4, 3.0)]);
        assert_eq!(found.ours_percent, Some(30.0));
        let steps = &found.steps[0];
        assert_eq!(
            (steps.flush, steps.copy, steps.plain, steps.rest),
            (None, Some(30.0), None, 30.0)
        );
        assert_eq!(found.lanes[0].measured, 1.5);
    }
}

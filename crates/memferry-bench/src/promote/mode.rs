// SPDX-License-Identifier: MIT OR Apache-2.0
//! What promotes: which files of the kernel make it so, and whether this kernel can.

use std::path::Path;

use memferry_daemon::members::LEAST_RESIDENT;
use memferry_daemon::source::damon_absence;
use memferry_linux::kernel::Absence;
use memferry_linux::kernel::pghot::{Pghot, SOURCES};

use super::mover::Counter;
use super::place::Place;
use super::{daemon, damos};
use crate::args::promote::{ModeName, PromoteArgs, SourceName};
use crate::failure::Failure;
use crate::units::about;

/// What NUMA balancing does.
pub const BALANCING: &str = "proc/sys/kernel/numa_balancing";
/// Whether reclaim demotes.
pub const DEMOTION: &str = "sys/kernel/mm/numa/demotion_enabled";
/// Which sources report to pghot.
pub const ENABLED: &str = "proc/sys/vm/pghot_enabled_sources";
/// Where pghot promotes to if it knows nothing better.
pub const TARGET: &str = "proc/sys/vm/pghot_target_nid";
/// Which parts of the multi-generational LRU are on.
pub const MGLRU: &str = "sys/kernel/mm/lru_gen/enabled";
/// The event of the source hwhints.
pub const EVENT: &str = "sys/kernel/debug/pghot/hwhints_event";
/// MiB that NUMA balancing scans at a time, once a second while it finds enough.
pub const SCAN_SIZE: &str = "sys/kernel/debug/sched/numa_balancing/scan_size_mb";

/// One way to promote.
#[derive(Clone, Debug, PartialEq)]
pub struct Mode {
    /// `none`, `numab2`, `pghot`, `daemon` or `damos`; of workloads also `dram`, `fill` or `oracle`.
    pub name: &'static str,
    /// Of pghot and the daemon, what reports to it; of damos, how its quota is tuned.
    pub source: Option<&'static str>,
    /// Of pghot, the format of its records.
    pub record: Option<String>,
}

impl Mode {
    /// What nothing reports to.
    pub const fn plain(name: &'static str) -> Self {
        Self {
            name,
            source: None,
            record: None,
        }
    }

    /// `none`, `numab2`, `pghot hintfaults`, `daemon damon`.
    pub fn title(&self) -> String {
        let source = self.source.map(|source| format!(" {source}"));
        self.name.to_owned() + &source.unwrap_or_default()
    }

    /// Whether the daemon promotes.
    pub fn is_daemon(&self) -> bool {
        self.counter() == Counter::Daemon
    }

    /// Whether DAMON promotes by itself.
    pub fn is_damos(&self) -> bool {
        self.counter() == Counter::Damos
    }

    /// Who counts what it promotes.
    pub fn counter(&self) -> Counter {
        match self.name {
            "daemon" => Counter::Daemon,
            "damos" => Counter::Damos,
            _ => Counter::Kernel,
        }
    }

    /// Whether the accessing threads take hint faults for it.
    pub fn has_hint_faults(&self) -> bool {
        self.name == "numab2" || self.source == Some(SOURCES[0])
    }

    /// The files that switch it on, with their texts. Before, everything is off.
    pub fn files(&self) -> Vec<(&'static str, String)> {
        let mut files = Vec::new();
        if let Some(bit) = SOURCES.iter().position(|name| Some(*name) == self.source) {
            files.push((ENABLED, (1 << bit).to_string()));
        }
        // What scans address spaces and makes hint faults is NUMA balancing, for pghot too. It comes last.
        if self.has_hint_faults() {
            files.push((BALANCING, "2".to_owned()));
        }
        files
    }
}

/// A mode that this kernel cannot run.
#[derive(Debug, PartialEq)]
pub struct Missing {
    /// Its name.
    pub mode: String,
    /// Why.
    pub why: String,
    /// What would bring it.
    pub next: String,
}

/// The modes that were asked for: those that this kernel below `root` can run, and those that it cannot.
pub fn choose(
    args: &PromoteArgs,
    root: &Path,
    place: &Place,
    pghot: &Result<Pghot, Absence>,
) -> Result<(Vec<Mode>, Vec<Missing>), Failure> {
    let (mut modes, mut missing) = (Vec::new(), Vec::new());
    let balancing = root.join(BALANCING).exists();
    for wanted in args.modes() {
        match wanted {
            ModeName::None => modes.push(Mode::plain("none")),
            ModeName::Dram => modes.push(Mode::plain("dram")),
            ModeName::Fill => modes.push(Mode::plain("fill")),
            ModeName::Oracle => modes.push(Mode::plain("oracle")),
            ModeName::Numab2 if balancing => modes.push(Mode::plain("numab2")),
            ModeName::Numab2 => missing.push(no_balancing("numab2")),
            ModeName::Daemon => match damon_absence(root) {
                None => modes.push(Mode {
                    source: Some(daemon::SOURCE),
                    ..Mode::plain("daemon")
                }),
                Some(why) => missing.push(Missing {
                    mode: "daemon".to_owned(),
                    why,
                    next: "boot a kernel with CONFIG_DAMON_SYSFS=y, be root, and end what else uses DAMON"
                        .to_owned(),
                }),
            },
            ModeName::Damos => {
                for tuner in damos::TUNERS {
                    let mode = Mode {
                        source: Some(tuner),
                        ..Mode::plain("damos")
                    };
                    match damos::absence(root, place, tuner)? {
                        None => modes.push(mode),
                        Some((why, next)) => missing.push(Missing {
                            mode: mode.title(),
                            why,
                            next,
                        }),
                    }
                }
            }
            ModeName::Pghot => {
                for source in args.sources() {
                    match of_source(source, pghot, balancing, args) {
                        Ok(mode) => modes.push(mode),
                        Err(why) => missing.push(why),
                    }
                }
            }
        }
    }
    need_one(&modes, &missing)?;
    Ok((modes, missing))
}

/// Refuses to measure nothing.
pub fn need_one(modes: &[Mode], missing: &[Missing]) -> Result<(), Failure> {
    match missing.first().filter(|_| modes.is_empty()) {
        Some(first) => Err(Failure::new(
            format!("cannot measure {}", first.mode),
            &first.why,
            format!("{}; --mode none,numab2 runs on most kernels", first.next),
        )),
        None => Ok(()),
    }
}

/// Leaves out the daemon if it would leave a process of so many bytes alone.
pub fn fit_daemon(
    bytes: u64,
    modes: &mut Vec<Mode>,
    missing: &mut Vec<Missing>,
) -> Result<(), Failure> {
    if bytes >= LEAST_RESIDENT || !modes.iter().any(Mode::is_daemon) {
        return Ok(());
    }
    modes.retain(|mode| !mode.is_daemon());
    missing.push(Missing {
        mode: "daemon".to_owned(),
        why: format!(
            "it leaves processes of less than {} alone",
            about(LEAST_RESIDENT)
        ),
        next: "give a larger --size, or a larger --scale".to_owned(),
    });
    need_one(modes, missing)
}

fn of_source(
    source: SourceName,
    pghot: &Result<Pghot, Absence>,
    balancing: bool,
    args: &PromoteArgs,
) -> Result<Mode, Missing> {
    let name = source.name();
    let title = format!("pghot {name}");
    let pghot = pghot.as_ref().map_err(|absence| Missing {
        mode: title.clone(),
        why: absence.to_string(),
        next: absence.hint(),
    })?;
    if source == SourceName::Hintfaults && !balancing {
        return Err(no_balancing(&title));
    }
    if source == SourceName::Hwhints {
        let missing = |why: &str, next: &str| Missing {
            mode: title.clone(),
            why: why.to_owned(),
            next: next.to_owned(),
        };
        let mut tuning = pghot.tuning.iter();
        let Some((_, event)) = tuning.find(|(name, _)| name == "hwhints_event") else {
            return Err(missing(
                "debugfs pghot/hwhints_event is not there",
                "mount debugfs, on a kernel with CONFIG_PGHOT_HWHINTS=y",
            ));
        };
        if args.hwhints_event.is_none() && (event.is_empty() || event == "none") {
            return Err(missing(
                "no event that samples data addresses is set",
                "name one with --hwhints-event \"TYPE CONFIG PERIOD\", see docs/measuring/promote.md",
            ));
        }
    }
    Ok(Mode {
        name: "pghot",
        source: Some(name),
        record: pghot.format().map(str::to_owned),
    })
}

/// Whether the pace of hint faults can be set.
pub fn need_scan_size(root: &Path) -> Result<(), Failure> {
    match root.join(SCAN_SIZE).exists() {
        true => Ok(()),
        false => Err(Failure::new(
            "cannot scale NUMA balancing's scanner with the memory",
            format!("/{SCAN_SIZE} is not there"),
            "mount debugfs: mount -t debugfs none /sys/kernel/debug",
        )),
    }
}

/// Whether the multi-generational LRU can be set, if it is to be.
pub fn need_mglru(args: &PromoteArgs, root: &Path) -> Result<(), Failure> {
    match args.mglru {
        Some(_) if !root.join(MGLRU).exists() => Err(Failure::new(
            "cannot set the multi-generational LRU",
            format!("/{MGLRU} is not there"),
            "boot a kernel with CONFIG_LRU_GEN=y, or leave out --mglru",
        )),
        _ => Ok(()),
    }
}

fn no_balancing(mode: &str) -> Missing {
    Missing {
        mode: mode.to_owned(),
        why: "this kernel has no /proc/sys/kernel/numa_balancing".to_owned(),
        next: "boot one with CONFIG_NUMA_BALANCING=y".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::promote::damos::tests::{kernel, place};
    use crate::synthetic::{machine, put};

    /// A stock kernel with NUMA balancing.
    fn stock() -> tempfile::TempDir {
        machine(&[
            (BALANCING, "0\n"),
            ("proc/vmstat", "pgpromote_success 0\n"),
            (DEMOTION, "false\n"),
        ])
    }

    fn with_pghot() -> tempfile::TempDir {
        let root = stock();
        for (file, text) in [
            (ENABLED, "0\n"),
            (TARGET, "0\n"),
            ("proc/sys/vm/pghot_promote_rate_limit_MBps", "65536\n"),
            ("sys/kernel/debug/pghot/status", "format precise\n"),
        ] {
            put(root.path(), file, text);
        }
        root
    }

    fn chosen(root: &Path, line: &str) -> Result<(Vec<String>, Vec<String>), Failure> {
        let pghot = Pghot::read_from(root).expect("readable");
        let (modes, missing) = choose(&PromoteArgs::read(line), root, &place(), &pghot)?;
        let missing = missing.iter().map(|of| format!("{}: {}", of.mode, of.why));
        Ok((modes.iter().map(Mode::title).collect(), missing.collect()))
    }

    #[test]
    fn a_process_that_the_daemon_leaves_alone_is_not_measured_with_it() {
        let daemon = Mode {
            source: Some(daemon::SOURCE),
            ..Mode::plain("daemon")
        };
        let (mut modes, mut missing) = (vec![Mode::plain("none"), daemon.clone()], Vec::new());
        fit_daemon(16 << 20, &mut modes, &mut missing).expect("modes");
        assert_eq!((modes.len(), missing.len()), (2, 0));
        fit_daemon((16 << 20) - 1, &mut modes, &mut missing).expect("none is left");
        assert_eq!((modes.len(), &missing[0].mode[..]), (1, "daemon"));
        let alone = fit_daemon(1, &mut vec![daemon], &mut Vec::new()).expect_err("none is left");
        assert!(alone.to_string().contains("16 MiB"), "{alone}");
    }

    #[test]
    fn a_stock_kernel_runs_the_baselines_and_lists_the_rest() {
        let root = stock();
        let (modes, missing) = chosen(root.path(), "").expect("modes");
        assert_eq!(modes, ["none", "numab2"]);
        assert_eq!(missing.len(), 6, "{missing:?}");
        assert!(missing[1].starts_with("pghot pgtscan: "), "{missing:?}");
        fs::remove_file(root.path().join(BALANCING)).expect("remove");
        let (modes, missing) = chosen(root.path(), "--mode none,numab2").expect("modes");
        assert_eq!((modes.len(), missing.len()), (1, 1));
        assert!(missing[0].contains("numa_balancing"), "{missing:?}");
    }

    #[test]
    fn nothing_but_what_is_missing_is_a_failure() {
        let root = stock();
        let told = chosen(root.path(), "--mode pghot --source pgtscan")
            .expect_err("no pghot")
            .to_string();
        for part in [
            "cannot measure pghot pgtscan",
            "why: ",
            "CONFIG_PGHOT",
            "--mode none,numab2",
        ] {
            assert!(told.contains(part), "{part}: {told}");
        }
    }

    #[test]
    fn the_daemon_is_a_mode_where_damon_is_there_and_free() {
        let root = stock();
        let (_, missing) = chosen(root.path(), "--mode none,daemon").expect("modes");
        assert!(missing[0].contains("CONFIG_DAMON_SYSFS"), "{missing:?}");
        let count = "sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds";
        put(root.path(), count, "0\n");
        let (modes, missing) = chosen(root.path(), "--mode none,daemon").expect("modes");
        assert_eq!((modes[1].as_str(), missing.len()), ("daemon damon", 0));
        put(root.path(), count, "1\n");
        let (modes, missing) = chosen(root.path(), "--mode none,daemon").expect("modes");
        assert_eq!(modes, ["none"]);
        assert!(missing[0].contains("somebody else"), "{missing:?}");
    }

    #[test]
    fn damons_own_tiering_is_a_mode_where_the_kernel_takes_it() {
        let (modes, missing) = chosen(kernel().path(), "--mode none,damos").expect("modes");
        assert_eq!(
            (modes.join(" ").as_str(), missing.len()),
            ("none damos consist damos temporal", 0)
        );
        let (modes, missing) = chosen(stock().path(), "--mode none,damos").expect("modes");
        assert_eq!(modes, ["none"]);
        assert!(
            missing[1].starts_with("damos temporal: ") && missing[0].contains("CONFIG_DAMON_SYSFS"),
            "{missing:?}"
        );
    }

    #[test]
    fn a_kernel_without_the_multi_generational_lru_is_told() {
        let root = stock();
        let args = |line| PromoteArgs::read(line);
        assert!(need_mglru(&args(""), root.path()).is_ok());
        let told = need_mglru(&args("--mglru off"), root.path())
            .expect_err("none")
            .to_string();
        assert!(told.contains("CONFIG_LRU_GEN"), "{told}");
        put(root.path(), MGLRU, "0x0007\n");
        assert!(need_mglru(&args("--mglru off"), root.path()).is_ok());
    }

    #[test]
    fn a_scanner_that_cannot_be_scaled_is_told() {
        let root = stock();
        let told = need_scan_size(root.path()).expect_err("none").to_string();
        assert!(
            told.contains("scan_size_mb") && told.contains("mount -t debugfs"),
            "{told}"
        );
        put(root.path(), SCAN_SIZE, "256\n");
        assert!(need_scan_size(root.path()).is_ok());
    }

    #[test]
    fn the_sources_of_pghot_are_modes_with_its_format() {
        let root = with_pghot();
        let (modes, missing) = chosen(root.path(), "").expect("modes");
        assert_eq!(
            modes,
            ["none", "numab2", "pghot hintfaults", "pghot pgtscan"]
        );
        assert!(
            missing[0].contains("hwhints_event is not there") && missing[1].starts_with("daemon: "),
            "{missing:?}"
        );
        put(root.path(), EVENT, "none\n");
        let (_, missing) = chosen(root.path(), "").expect("modes");
        assert!(missing[0].contains("no event"), "{missing:?}");
        put(root.path(), EVENT, "1 2 1000\n");
        let (modes, missing) = chosen(root.path(), "--mode pghot").expect("modes");
        assert_eq!((modes.len(), missing.len()), (3, 0));
        let pghot = Pghot::read_from(root.path()).expect("readable");
        let (modes, _) = choose(
            &PromoteArgs::read("--mode pghot"),
            root.path(),
            &place(),
            &pghot,
        )
        .expect("modes");
        assert!(
            modes
                .iter()
                .all(|mode| mode.record.as_deref() == Some("precise"))
        );
    }
}

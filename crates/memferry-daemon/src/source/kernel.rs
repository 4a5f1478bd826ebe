// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sources with which the kernel promotes and demotes by itself: pghot of the kernel series, and NUMA balancing's mode 2. The
//! daemon switches them on, sets their pace, and reads their counters.

use super::{Report, Source};
use crate::error::DaemonError;
use crate::knobs::{BALANCING, BALANCING_RATE, DEMOTION, Knobs, PGHOT, PGHOT_RATE};
use crate::machine::Machine;
use crate::tiering::ProcessId;

/// Bit of pghot's source that walks page tables.
const PGTSCAN: &str = "4";
/// Bit of NUMA balancing's mode that promotes.
const TIERING: u64 = 2;

/// The kernel as a source.
#[derive(Debug)]
pub(super) struct Kernel {
    name: &'static str,
    /// The file of its rate, MiB/s.
    rate: &'static str,
    act: bool,
}

/// Why pghot cannot be had; `None` if it can.
pub(super) fn pghot_absence(machine: &Machine) -> Option<String> {
    match machine.text(PGHOT) {
        None => Some("this kernel has no pghot".to_owned()),
        Some(_) => no_slow_memory(machine),
    }
}

/// The same of NUMA balancing.
pub(super) fn balancing_absence(machine: &Machine) -> Option<String> {
    match machine.text(BALANCING) {
        None => Some("this kernel has no NUMA balancing (CONFIG_NUMA_BALANCING)".to_owned()),
        Some(_) => no_slow_memory(machine),
    }
}

fn no_slow_memory(machine: &Machine) -> Option<String> {
    let why = "the kernel promotes nothing here: no memory is slower than that of the CPUs";
    (!machine.kernel_promotes).then(|| why.to_owned())
}

impl Kernel {
    /// pghot; sources that are on already stay as they are.
    pub(super) fn pghot(knobs: &mut Knobs, act: bool) -> Result<Self, DaemonError> {
        if act {
            demote(knobs)?;
            if knobs.read(PGHOT).as_deref() == Some("0") {
                knobs.set(PGHOT, PGTSCAN)?;
            }
        }
        Ok(Self {
            name: "pghot",
            rate: PGHOT_RATE,
            act,
        })
    }

    /// NUMA balancing; that it places pages near their CPUs stays as it is.
    pub(super) fn balancing(knobs: &mut Knobs, act: bool) -> Result<Self, DaemonError> {
        if act {
            demote(knobs)?;
            let mode = knobs
                .read(BALANCING)
                .and_then(|mode| mode.parse::<u64>().ok())
                .unwrap_or(0);
            knobs.set(BALANCING, &(mode | TIERING).to_string())?;
        }
        Ok(Self {
            name: "numa-balancing",
            rate: BALANCING_RATE,
            act,
        })
    }
}

fn demote(knobs: &mut Knobs) -> Result<(), DaemonError> {
    match knobs.read(DEMOTION) {
        Some(_) => knobs.set(DEMOTION, "true"),
        None => Ok(()),
    }
}

impl Source for Kernel {
    fn name(&self) -> &'static str {
        self.name
    }

    fn kernel_moves(&self) -> bool {
        true
    }

    fn watch(&mut self, _: &mut Knobs, processes: &[ProcessId]) -> Result<usize, DaemonError> {
        Ok(processes.len())
    }

    fn report(&mut self, knobs: &mut Knobs) -> Result<Report, DaemonError> {
        let text = knobs.read("proc/vmstat").unwrap_or_default();
        let page = rustix::param::page_size() as u64;
        let sum = |fits: &dyn Fn(&str) -> bool| {
            let lines = text.lines().filter_map(|line| line.split_once(' '));
            let pages = lines
                .filter(|(name, _)| fits(name))
                .filter_map(|(_, value)| value.parse::<u64>().ok());
            pages.sum::<u64>() * page
        };
        Ok(Report::Kernel {
            promoted: sum(&|name| name == "pgpromote_success"),
            demoted: sum(&|name| name.starts_with("pgdemote_")),
        })
    }

    fn pace(&mut self, knobs: &mut Knobs, bytes_per_second: u64) -> Result<(), DaemonError> {
        // Where nobody limits promotion, as before Linux 6.1, it keeps the kernel's pace.
        match self.act && knobs.read(self.rate).is_some() {
            true => knobs.set(self.rate, &(bytes_per_second >> 20).max(1).to_string()),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::SourceChoice;
    use crate::machine::Machine;
    use crate::machine::tests::{put, tree};
    use crate::source::tests::choose;

    /// A machine with these settings.
    fn with(settings: &[(&str, &str)]) -> (tempfile::TempDir, Machine, Knobs) {
        let root = tree();
        for (file, text) in settings {
            put(root.path(), file, text);
        }
        let machine = Machine::read(root.path()).unwrap();
        let knobs = Knobs::open(root.path()).unwrap();
        (root, machine, knobs)
    }

    fn assert_are(machine: &Machine, settings: &[(&str, &str)]) {
        for (file, text) in settings {
            assert_eq!(machine.text(file).unwrap(), *text, "{file}");
        }
    }

    #[test]
    fn balancing_is_switched_on_paced_and_set_back() {
        let settings = |[mode, rate, demotion]: [&'static str; 3]| {
            [
                (BALANCING, mode),
                (BALANCING_RATE, rate),
                (DEMOTION, demotion),
            ]
        };
        let before = settings(["1", "65536", "false"]);
        let (root, machine, mut knobs) = with(&before);
        put(
            root.path(),
            "proc/vmstat",
            "pgpromote_success 3\npgpromote_candidate 9\npgdemote_kswapd 1\npgdemote_direct 1\n",
        );
        // It is for the whole host, so it has to be asked for.
        let auto = choose(SourceChoice::Auto, &machine, &mut knobs, true);
        let error = auto.err().unwrap();
        assert!(error.hint().contains("numa-balancing"), "{}", error.hint());
        assert_are(&machine, &before);
        let wanted = SourceChoice::NumaBalancing;
        let (mut source, _) = choose(wanted, &machine, &mut knobs, true).unwrap();
        source.pace(&mut knobs, 100 << 20).unwrap();
        assert_are(&machine, &settings(["3", "100", "true"]));
        let page = rustix::param::page_size() as u64;
        let report = source.report(&mut knobs).unwrap();
        assert_eq!(
            report,
            Report::Kernel {
                promoted: 3 * page,
                demoted: 2 * page
            }
        );
        drop(knobs);
        assert_are(&machine, &before);
    }

    #[test]
    fn the_kernel_is_no_source_where_it_promotes_nothing() {
        let (_root, mut machine, mut knobs) = with(&[(BALANCING, "1"), (PGHOT, "0")]);
        machine.kernel_promotes = false;
        for choice in [SourceChoice::Pghot, SourceChoice::NumaBalancing] {
            let refused = choose(choice, &machine, &mut knobs, true);
            let why = refused.err().unwrap().to_string();
            assert!(why.contains("no memory is slower"), "{why}");
        }
        assert_are(&machine, &[(BALANCING, "1"), (PGHOT, "0")]);
    }

    #[test]
    fn who_only_watches_sets_nothing() {
        let settings = [
            (BALANCING, "0"),
            (PGHOT, "0"),
            (PGHOT_RATE, "9"),
            (DEMOTION, "false"),
        ];
        let (_root, machine, mut knobs) = with(&settings);
        let (mut source, _) = choose(SourceChoice::Auto, &machine, &mut knobs, false).unwrap();
        assert_eq!(source.name(), "pghot");
        source.pace(&mut knobs, 100 << 20).unwrap();
        assert_are(&machine, &settings);
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which ways to move pages this kernel lets this process go, found by trying, and what limits them.

use crate::cost;
use crate::error::{check_page_size, explain_userfaultfd, move_pages_verdict};
use crate::known_faults;
use crate::sys::uffd::{FEATURE_EVENTS, FEATURE_MOVE, Uffd};
use memferry_linux::topology::Topology;

pub use crate::cost::{BetweenNodes, MoveCost};

/// Whether this process may watch memory: `Err` says why not, and what would enable it.
pub fn userfaultfd() -> Result<(), String> {
    open(FEATURE_EVENTS)
}

/// Whether pages can be moved through userfaultfd on this kernel: `Err` says why not, and what would enable it.
pub fn uffdio_move(topology: &Topology) -> Result<(), String> {
    page_size(topology)?;
    open(FEATURE_MOVE)?;
    known_faults::refusal(&topology.kernel_interface.release).map_or(Ok(()), Err)
}

/// Whether pages can be moved through move_pages(2): `Err` says why not.
pub fn move_pages(topology: &Topology) -> Result<(), String> {
    page_size(topology)?;
    match topology.nodes_with_memory().count() {
        nodes @ ..=1 => Err(move_pages_verdict(nodes)),
        _ => Ok(()),
    }
}

/// Whether base pages of this size are moved at all.
fn page_size(topology: &Topology) -> Result<(), String> {
    let bytes = usize::try_from(topology.memory.page_bytes).unwrap_or(usize::MAX);
    check_page_size(bytes).map_err(|error| error.to_string())
}

fn open(features: u64) -> Result<(), String> {
    let opened = Uffd::open(features);
    opened.map(drop).map_err(|e| explain_userfaultfd(&e))
}

/// What moving a base page takes here, measured by the first call in a process, within milliseconds; `None` where UFFDIO_MOVE
/// does not work.
pub fn move_cost(topology: &Topology) -> Option<MoveCost> {
    let nodes: Vec<u32> = topology.nodes_with_memory().map(|node| node.id).collect();
    cost::measured(&nodes)
}

/// What limits moves through userfaultfd on this machine, and is nobody's fault; empty where nothing does.
pub fn notes(topology: &Topology) -> Vec<String> {
    let release = &topology.kernel_interface.release;
    let flushes = flush_note(release, || move_cost(topology));
    let risk = risk_note(release).filter(|_| topology.thp.is_some());
    risk.into_iter().chain(flushes).collect()
}

/// The known faults of UFFDIO_MOVE in this machine's kernel, by its release: what the mover refuses, and what it does not.
pub fn known_faults(topology: &Topology) -> Vec<String> {
    let release = &topology.kernel_interface.release;
    let risk = risk_note(release).filter(|_| topology.thp.is_some());
    known_faults::refusal(release)
        .into_iter()
        .chain(risk)
        .collect()
}

fn risk_note(release: &str) -> Option<String> {
    let what = known_faults::huge_page_risk(release)?;
    Some(format!(
        "Linux {release} has a known fault of UFFDIO_MOVE, unless its distributor has mended it: {what}; base pages are safe \
         from it, and docs/limits.md says what becomes of huge pages"
    ))
}

/// Measures only what it tells of: a program's first mover would wait for it.
fn flush_note(release: &str, cost: impl FnOnce() -> Option<MoveCost>) -> Option<String> {
    let flushes = known_faults::flushes_each_page(release);
    let cost = flushes.then(cost)??;
    Some(format!(
        "before Linux 6.18 UFFDIO_MOVE flushes the TLB for each base page: at {:.0} ns a page each way base pages move at \
         {:.1} GB/s at most; huge pages are not held back",
        cost.uffdio_move_ns,
        cost.bound_gbps()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_that_flush_each_page_are_told_of() {
        let cost = MoveCost {
            uffdio_move_ns: 1024.0,
            beside_a_thread: true,
            between_nodes: None,
        };
        assert_eq!(flush_note("6.18.0", || panic!("measured")), None);
        assert_eq!(flush_note("6.12.117", || None), None);
        let note = flush_note("6.12.117-amd64", || Some(cost)).unwrap();
        assert!(
            note.contains("1024 ns") && note.contains("2.0 GB/s"),
            "{note}"
        );
    }

    #[test]
    fn what_huge_pages_risk_is_told() {
        let note = risk_note("6.12.117-amd64").unwrap();
        assert!(
            note.contains("6.12.117-amd64") && note.contains("docs/limits.md"),
            "{note}"
        );
        assert_eq!(risk_note("7.2.0"), None);
    }

    #[test]
    fn with_larger_base_pages_no_way_to_move_pages_works() {
        let mut machine = Topology::read().unwrap();
        machine.memory.page_bytes = 64 << 10;
        for refused in [uffdio_move(&machine), move_pages(&machine)] {
            assert!(refused.unwrap_err().contains("64 KiB"));
        }
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! On which CPUs the helpers of a move run: those of the caller's node first, there by cache.

use crate::memory::{Region, THP, assert_all_moved};
use crate::{Needs, machine};
use memferry::{
    Backend, Migrator, MoveOptions, Mover, MoverOptions, MtCopy, MtCopyOptions, Placement,
};
use memferry_linux::affinity;
use memferry_linux::topology::parse::id_list;
use std::collections::BTreeSet;
use std::fs;
use std::ops::Range;
use std::sync::{Arc, Mutex};

pub const CASES: &[(&str, Needs, fn())] = &[
    (
        "mtcopy: where helpers run, spread",
        Needs::Userfaultfd,
        || placed(Placement::Spread),
    ),
    (
        "mtcopy: where helpers run, fill",
        Needs::Userfaultfd,
        || placed(Placement::Fill),
    ),
];

/// Lanes, and the CPUs on which they ran.
type Ran = Arc<Mutex<BTreeSet<(usize, u32)>>>;

/// `mtcopy`, which writes down on which CPUs its lanes ran.
struct Seen {
    inner: MtCopy,
    cpus: Ran,
}

// SAFETY: all copying is `inner`'s.
unsafe impl Migrator for Seen {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn lanes(&self) -> usize {
        self.inner.lanes()
    }

    unsafe fn copy(&self, src: *const u8, dst: *mut u8, len: usize) {
        // SAFETY: the caller's promise.
        unsafe { self.inner.copy(src, dst, len) };
    }

    fn run(&self, lane: &(dyn Fn(usize) + Sync)) {
        self.inner.run(&|number| {
            self.cpus
                .lock()
                .unwrap()
                .insert((number, affinity::current()));
            lane(number);
        });
    }

    fn own_memory(&self) -> Vec<Range<usize>> {
        self.inner.own_memory()
    }
}

/// CPUs in the list that a file of `cpu` has; the CPU alone where there is none.
fn beside(cpu: u32, file: &str) -> Vec<u32> {
    let text = fs::read_to_string(format!("/sys/devices/system/cpu/cpu{cpu}/{file}"));
    text.map_or(vec![cpu], |text| id_list(&text).unwrap())
}

fn node_of(cpu: u32) -> u32 {
    let on =
        |node: &u32| fs::exists(format!("/sys/devices/system/node/node{node}/cpu{cpu}")).unwrap();
    machine::nodes().into_iter().find(on).unwrap()
}

/// A mover whose lanes were placed while this thread was on `own`, and may run anywhere now.
fn mover(own: u32, all: &[u32], options: MtCopyOptions) -> (Mover, Ran) {
    loop {
        affinity::pin(&[own]).unwrap();
        affinity::pin(all).unwrap();
        let inner = MtCopy::new(options).unwrap();
        // Another CPU may have taken this thread before the lanes were placed.
        if affinity::current() != own {
            continue;
        }
        let cpus = Ran::default();
        let seen = Seen {
            inner,
            cpus: Arc::clone(&cpus),
        };
        let options = MoverOptions::new(seen).backend(Backend::Userfaultfd);
        return (Mover::new(options).unwrap(), cpus);
    }
}

fn placed(placement: Placement) {
    const BYTES: usize = THP;
    let all = affinity::allowed().unwrap();
    for own in [all[0], all[all.len() - 1]] {
        let near: Vec<u32> = all
            .iter()
            .copied()
            .filter(|&cpu| node_of(cpu) == node_of(own))
            .collect();
        // One helper, one for each of two caches, one beyond the node, and all.
        let lanes = [2, 3, near.len() + 1, all.len()].map(|lanes| lanes.min(all.len()));
        for lanes in BTreeSet::from(lanes) {
            let options = MtCopyOptions::default().lanes(lanes).placement(placement);
            let (mover, cpus) = mover(own, &all, options);
            let region = Region::on(0, BYTES);
            region.fill(7);
            let result = mover
                .move_range(region.range(), 1, &MoveOptions::default())
                .unwrap();
            assert_all_moved(&result, BYTES, region.pages());
            region.verify(7);

            let cpus = cpus.lock().unwrap();
            let helpers: Vec<u32> = cpus
                .iter()
                .filter(|(lane, _)| *lane > 0)
                .map(|&(_, cpu)| cpu)
                .collect();
            let what = format!("{placement:?}, from CPU {own}, {lanes} lanes: {helpers:?}");
            println!("# {what}");
            let apart: BTreeSet<u32> = helpers.iter().copied().chain([own]).collect();
            assert_eq!(
                (helpers.len(), apart.len()),
                (lanes - 1, lanes),
                "a CPU for each lane; {what}"
            );
            let used: Vec<u32> = apart
                .iter()
                .copied()
                .filter(|cpu| near.contains(cpu))
                .collect();
            assert_eq!(
                used.len(),
                lanes.min(near.len()),
                "the caller's node first; {what}"
            );
            let groups = |cpus: &[u32], file| -> usize {
                cpus.iter()
                    .map(|&cpu| beside(cpu, file))
                    .collect::<BTreeSet<_>>()
                    .len()
            };
            let (caches, cores) = (
                "cache/index3/shared_cpu_list",
                "topology/thread_siblings_list",
            );
            // All caches of the lab's machines have as many CPUs.
            let of_cache = near.len() / groups(&near, caches);
            let wanted = match placement {
                Placement::Spread => used.len().min(groups(&near, caches)),
                Placement::Fill => used.len().div_ceil(of_cache),
            };
            assert_eq!(groups(&used, caches), wanted, "caches; {what}");
            if placement == Placement::Spread {
                assert_eq!(
                    groups(&used, cores),
                    used.len().min(groups(&near, cores)),
                    "cores; {what}"
                );
            }
        }
    }
}

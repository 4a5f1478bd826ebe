// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which backend a mover takes, with and without userfaultfd.

use crate::Needs;
use crate::memory::{PAGE, Region, assert_all_moved};
use memferry::{Backend, Batch, MoveError, MoveOptions, Mover, MoverOptions, move_pages, probe};
use memferry_linux::topology::Topology;
use std::ffi::CString;

pub const CASES: &[(&str, Needs, fn())] = &[
    (
        "auto: the faster way where userfaultfd works",
        Needs::Userfaultfd,
        auto_faster,
    ),
    (
        "auto: the faster way for lists of small pieces",
        Needs::Userfaultfd,
        auto_pieces,
    ),
    (
        "auto: move_pages where UFFDIO_MOVE is missing or not permitted",
        Needs::MovePages,
        auto_move_pages,
    ),
    (
        "userfaultfd: refused with the reason",
        Needs::MovePages,
        userfaultfd_refused,
    ),
    (
        "auto: a node outside the cpuset",
        Needs::MovePages,
        outside_cpuset,
    ),
];

/// Runs something as a user without privileges, on this thread for good.
pub fn as_nobody(what: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        scope
            .spawn(|| {
                // The bare system calls change this thread only; libc's would change all.
                // SAFETY: no memory is touched.
                unsafe {
                    assert_eq!(libc::syscall(libc::SYS_setresgid, 65534, 65534, 65534), 0);
                    assert_eq!(libc::syscall(libc::SYS_setresuid, 65534, 65534, 65534), 0);
                }
                what()
            })
            .join()
            .unwrap();
    });
}

fn try_mover(backend: Backend) -> Result<Mover, MoveError> {
    Mover::new(MoverOptions::new(Batch::default()).backend(backend))
}

/// Times that each way moves its 4 MiB to either node.
const ROUNDS: usize = 9;

/// How much slower the way that is taken may be than the other: the choice is made by 64 pages on one lane.
const MARGIN: f64 = 2.0;

fn auto_faster() {
    let cost = probe::move_cost(&Topology::read().unwrap()).unwrap();
    assert!(cost.between_nodes.is_some(), "{cost:?}");
    let bytes = 4 << 20;
    let mut ways = [Backend::Userfaultfd, Backend::MovePages].map(|backend| {
        let mover = try_mover(backend).unwrap();
        (mover, Region::on(0, bytes), Vec::new())
    });
    // In turns, so that a busy moment of the host meets both.
    for to in [1, 0].repeat(ROUNDS) {
        for (mover, region, times) in &mut ways {
            let options = MoveOptions::default();
            let result = mover.move_range(region.range(), to, &options).unwrap();
            assert_all_moved(&result, bytes, bytes / PAGE);
            times.push(result.elapsed);
        }
    }
    // What else the host does only adds to a time.
    let [by_faults, by_kernel] = ways.map(|(_, region, times)| {
        region.verify(0);
        times.into_iter().min().unwrap().as_secs_f64()
    });
    let (backend, taken, other) = match cost.favours_move_pages() {
        true => (Backend::MovePages, by_kernel, by_faults),
        false => (Backend::Userfaultfd, by_faults, by_kernel),
    };
    assert_eq!(try_mover(Backend::Auto).unwrap().backend(), backend);
    println!("# {by_faults:.6} s by userfaultfd, {by_kernel:.6} s by move_pages; {cost:?}");
    assert!(
        taken <= MARGIN * other,
        "{taken} s, {other} s the other way"
    );
}

fn auto_pieces() {
    let cost = probe::move_cost(&Topology::read().unwrap()).unwrap();
    let region = Region::on(0, 4 << 20);
    let pieces: Vec<_> = (region.range().step_by(16 * PAGE))
        .map(|at| at..at + 4 * PAGE)
        .collect();
    for backend in [Backend::Auto, Backend::Userfaultfd, Backend::MovePages] {
        let mover = try_mover(backend).unwrap();
        for to in [1, 0] {
            let list = mover.move_pages(&pieces, to, &MoveOptions::default());
            let total = list.unwrap().total;
            assert_all_moved(&total, pieces.len() * 4 * PAGE, pieces.len() * 4);
            let by_kernel = match backend {
                Backend::Auto => cost.favours_move_pages() || cost.favours_move_pages_for_pieces(),
                of => of == Backend::MovePages,
            };
            // move_pages(2) has no steps.
            assert_eq!(
                total.steps.unmap.is_zero(),
                by_kernel,
                "{backend:?}: {total:?}"
            );
        }
    }
    region.verify(0);
}

fn auto_move_pages() {
    as_nobody(|| {
        let mover = try_mover(Backend::Auto).unwrap();
        assert_eq!(mover.backend(), Backend::MovePages);
        let bytes = 4 << 20;
        let region = Region::on(0, bytes);
        for to in [1, 0] {
            region.assert_moves(&mover, to, &MoveOptions::default(), bytes / PAGE, 0);
        }
    });
}

fn userfaultfd_refused() {
    as_nobody(|| {
        let refused = try_mover(Backend::Userfaultfd).unwrap_err();
        let MoveError::NoBackend {
            userfaultfd,
            move_pages,
        } = &refused
        else {
            panic!("{refused}")
        };
        assert!(userfaultfd.contains("CAP_SYS_PTRACE"), "{refused}");
        assert_eq!(move_pages, "usable");
    });
    if !crate::machine::has_uffdio_move() {
        let refused = try_mover(Backend::Userfaultfd).unwrap_err();
        assert!(
            refused.to_string().contains("Linux 6.8 has it"),
            "{refused}"
        );
    }
}

/// Memory that the process may not use is no target, whoever moves.
fn outside_cpuset() {
    let root = std::env::temp_dir().join(format!("cgroup-{}", std::process::id()));
    std::fs::create_dir_all(&root).unwrap();
    let target = CString::new(root.to_str().unwrap()).unwrap();
    // SAFETY: the strings end with zero; there is no data.
    let ret = unsafe {
        libc::mount(
            c"none".as_ptr(),
            target.as_ptr(),
            c"cgroup2".as_ptr(),
            0,
            std::ptr::null(),
        )
    };
    assert_eq!(ret, 0, "mount: {}", std::io::Error::last_os_error());
    let group = root.join("memferry");
    let _ = std::fs::create_dir(&group);
    std::fs::write(root.join("cgroup.subtree_control"), "+cpuset").unwrap();
    std::fs::write(group.join("cpuset.mems"), "0").unwrap();
    let region = Region::on(0, 1 << 20);
    let before = try_mover(Backend::Auto).unwrap();
    std::fs::write(group.join("cgroup.procs"), std::process::id().to_string()).unwrap();
    for mover in [
        before,
        try_mover(Backend::Auto).unwrap(),
        try_mover(Backend::MovePages).unwrap(),
    ] {
        let options = MoveOptions::default();
        let refused = mover.move_range(region.range(), 1, &options).unwrap_err();
        assert!(
            matches!(refused, MoveError::BadNode { node: 1, .. }),
            "{refused}"
        );
        assert!(refused.to_string().contains("cpuset"), "{refused}");
        let refused = mover.prefill(1, PAGE, 1 << 20).unwrap_err();
        assert!(refused.to_string().contains("cpuset"), "{refused}");
        let result = mover.move_range(region.range(), 0, &options).unwrap();
        assert_eq!(result.already_there.bytes, 1 << 20, "{result:?}");
    }
    let refused = move_pages::move_range(0, region.range(), 1, 1, &MoveOptions::default());
    assert!(
        matches!(&refused, Err(MoveError::BadNode { why, .. }) if why.contains("cpuset")),
        "{refused:?}"
    );
    region.verify(0);
    std::fs::write(root.join("cgroup.procs"), std::process::id().to_string()).unwrap();
    let _ = std::fs::remove_dir(&group);
    // SAFETY: as above.
    unsafe { libc::umount(target.as_ptr()) };
}

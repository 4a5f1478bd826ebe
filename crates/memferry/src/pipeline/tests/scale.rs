// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a batch costs beside the kernel's work and the copy, by the size of the pool: a kernel and a migrator that do nothing.

use super::*;

const BASE: usize = 1 << 40;
const LANES: usize = 16;
const GIB: usize = 1 << 30;

/// A kernel that moves nothing: all pages of the range lie on one node, and nobody waits or changes a mapping.
struct Idle<'a> {
    uffd: &'a Uffd,
    node: i32,
}

impl Kernel for Idle<'_> {
    fn uffd(&self) -> &Uffd {
        self.uffd
    }
    fn pagemap(&self) -> &Pagemap {
        unreachable!("the pages exist nowhere")
    }
    unsafe fn unmap(&self, _: usize, _: usize, len: usize) -> Progress {
        Progress::all(len)
    }
    unsafe fn remap(&self, _: usize, _: usize, len: usize) -> Progress {
        Progress::all(len)
    }
    fn release(&self, _: usize, _: usize) -> io::Result<()> {
        Ok(())
    }
    fn changing(&self) -> bool {
        false
    }
    fn pending(&self) -> bool {
        false
    }
    fn scan(&self, start: usize, end: usize, out: &mut [Region]) -> io::Result<(usize, usize)> {
        out[0] = Region {
            start: start as u64,
            end: end as u64,
            categories: memferry_linux::pagemap::PRESENT,
        };
        Ok((1, end))
    }
    fn nodes(&self, _: &[usize], status: &mut [i32]) -> io::Result<()> {
        status.fill(self.node);
        Ok(())
    }
}

/// Sixteen lanes that copy nothing.
struct Idler;

// SAFETY: the pages exist nowhere, so that nothing is left to be copied.
unsafe impl Migrator for Idler {
    fn name(&self) -> &'static str {
        "idle"
    }
    fn lanes(&self) -> usize {
        LANES
    }
    unsafe fn copy(&self, _: *const u8, _: *mut u8, _: usize) {}
}

/// Time that this thread had a CPU: a busy host does not lengthen it.
fn cpu_time() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: it fills in the time.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// What a batch costs at least while `bytes` are moved to and fro, all source pages kept. One thread has the tasks of all
/// lanes, so that nobody waits.
fn of_a_batch(bytes: usize, rounds: usize, batch_bytes: usize) -> Duration {
    let pool = PagePool::new(2 * bytes, false);
    let class = |node| PageClass {
        node,
        ..PageClass::default()
    };
    // As if the pages were there: nobody touches one.
    let take = |_| pool.take_empty(class(1), SEGMENT, false).unwrap();
    let pieces: Vec<_> = (0..bytes / SEGMENT).map(take).collect();
    for piece in pieces {
        pool.put_full(piece);
    }
    let uffd = Uffd::open(FEATURE_MOVE).unwrap();
    let range = BASE..BASE + bytes;
    let parts = std::slice::from_ref(&range);
    let vmas = [Vma {
        range: range.clone(),
        read: true,
        write: true,
        exec: false,
        locked: false,
        watched: true,
        unmovable: None,
    }];
    let one_way = |to: u32| {
        let account = Account::new(parts, false, Arc::default());
        let wanted = Wanted {
            node: to,
            relocate: false,
            ask_nodes: true,
        };
        let plan = Plan {
            kernel: &Idle {
                uffd: &uffd,
                node: 1 - to as i32,
            },
            pool: &pool,
            account: &account,
            migrator: &Idler,
            range: range.clone(),
            vmas: &vmas,
            parts,
            excluded: &[],
            batch_bytes,
            lanes: LANES,
            chooser: None,
            batch_grows: false,
            wanted,
            recycle: true,
            cancel: &AtomicBool::new(false),
        };
        let pipeline = Pipeline::new(plan, LANES + 2);
        let begun = cpu_time();
        pipeline.run_lane(0);
        let took = cpu_time() - begun;
        let steps = pipeline.finish().steps;
        assert_eq!(account.moved_bytes(), bytes as u64);
        assert_eq!(pool.kept_on(class(to)), 0);
        took / steps[0].batches as u32
    };
    (0..rounds)
        .map(|round| one_way(1 - round as u32 % 2))
        .min()
        .unwrap()
}

#[test]
fn schedule_and_pool_take_little_of_the_time_of_sixteen_lanes_over_64_gib() {
    // 300 KiB leave a rest of each segment, which must not pile up.
    for batch in [SEGMENT, 300 << 10] {
        let (small, large) = (of_a_batch(GIB, 8, batch), of_a_batch(64 * GIB, 3, batch));
        println!("a batch of {batch}: {small:?} over 1 GiB, {large:?} over 64 GiB");
        assert!(large < 4 * small, "{small:?} over 1 GiB, {large:?} over 64");
    }
}

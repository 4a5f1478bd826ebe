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
    fn are_on(&self, _: &Range<usize>, _: usize, _: u32) -> bool {
        true
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

fn class(node: u32) -> PageClass {
    PageClass {
        node,
        ..PageClass::default()
    }
}

/// A pool that may keep `limit` bytes and has `bytes` of node 1, as if the pages were there: nobody touches one.
fn pool_with(bytes: usize, limit: usize) -> PagePool {
    let pool = PagePool::new(limit, false);
    let take = |_| pool.take_empty(class(1), SEGMENT, false).unwrap();
    let pieces: Vec<_> = (0..bytes / SEGMENT).map(take).collect();
    for piece in pieces {
        pool.put_full(piece);
    }
    pool
}

/// Moves a range between nodes 0 and 1 with the tasks of all lanes on so many threads, and keeps its source pages. Returns the
/// batches and this thread's time.
fn one_way(
    pool: &PagePool,
    range: Range<usize>,
    to: u32,
    batch_bytes: usize,
    threads: usize,
) -> (u64, Duration) {
    let uffd = Uffd::open(FEATURE_MOVE).unwrap();
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
    let account = Account::new(parts, false, Arc::default());
    let wanted = Wanted {
        node: to,
        relocate: false,
        ask_nodes: true,
        huge_pages: true,
    };
    let plan = Plan {
        kernel: &Idle {
            uffd: &uffd,
            node: 1 - to as i32,
        },
        pool,
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
    let pipeline = Pipeline::new(plan, LANES + 2).unwrap();
    let begun = cpu_time();
    std::thread::scope(|scope| {
        let pipeline = &pipeline;
        for lane in 1..threads {
            scope.spawn(move || pipeline.run_lane(lane));
        }
        pipeline.run_lane(0);
    });
    let took = cpu_time() - begun;
    let steps = pipeline.finish().steps;
    assert_eq!(account.moved_bytes(), range.len() as u64);
    (steps.iter().map(|steps| steps.batches).sum(), took)
}

#[test]
fn a_pool_as_large_as_a_range_takes_it_to_and_fro_without_another_page() {
    const BYTES: usize = 16 << 20;
    for start in [0, 5, 300].map(|page| BASE + page * PAGE) {
        for round in 0..100 {
            let pool = pool_with(BYTES, BYTES);
            for to in [1, 0] {
                one_way(&pool, start..start + BYTES, to, SEGMENT, 4);
                let kept = [0, 1].map(|node| pool.kept_on(class(node)));
                let mut wanted = [BYTES, 0];
                wanted.rotate_left(1 - to as usize);
                assert_eq!(kept, wanted, "start {start:x}, round {round}, to {to}");
            }
        }
    }
}

/// What a batch costs at least while `bytes` are moved to and fro, all source pages kept. One thread has the tasks of all
/// lanes, so that nobody waits.
fn of_a_batch(bytes: usize, rounds: usize, batch_bytes: usize) -> Duration {
    let pool = pool_with(bytes, 2 * bytes);
    let there_or_back = |round: usize| {
        let to = 1 - round as u32 % 2;
        let (batches, took) = one_way(&pool, BASE..BASE + bytes, to, batch_bytes, 1);
        assert_eq!(pool.kept_on(class(to)), 0);
        took / batches as u32
    };
    (0..rounds).map(there_or_back).min().unwrap()
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

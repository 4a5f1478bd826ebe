// SPDX-License-Identifier: MIT OR Apache-2.0
//! Regions of memory with known contents, where their pages lie, and moves that go on while a test disturbs them.
//!
//! All moves go to node 0 with `relocate`, so that a machine with one node moves pages too. It asserts nothing about
//! what a test is for.

#![allow(
    dead_code,
    reason = "each test binary compiles this module and uses a part of it"
)]

mod hang;
pub mod heap;
pub mod part;

use memferry::{
    Batch, Migrator, MoveError, MoveOptions, MoveResult, Mover, MoverOptions, MtCopy,
    MtCopyOptions, Outcome, SourcePages, default_lanes,
};
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Base page, bytes.
pub const PAGE: usize = 4096;
/// THP, bytes.
pub const HUGE: usize = 2 << 20;

/// What a region is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Base pages, never THPs.
    Base,
    /// THPs.
    Thp,
}

/// Both kinds.
pub const KINDS: [Kind; 2] = [Kind::Base, Kind::Thp];

/// Where regions lie: far below what the kernel and the allocator map by themselves, or something of theirs could come to
/// lie in a part that a test has unmapped for a moment.
static NEXT: AtomicUsize = AtomicUsize::new(64 << 30);

/// An anonymous private mapping at a multiple of 2 MiB with inaccessible space around it, unmapped when dropped. By then
/// nobody may have asked the heap for anything while a range was watched.
#[derive(Debug)]
pub struct Region {
    /// First address.
    pub addr: usize,
    /// Bytes.
    pub len: usize,
    outer: Range<usize>,
}

impl Region {
    /// Maps `len` bytes, untouched.
    pub fn new(len: usize, kind: Kind) -> Region {
        hang::watch();
        let padded = len.next_multiple_of(HUGE) + 2 * HUGE;
        let start = NEXT.fetch_add(padded, Ordering::Relaxed);
        // SAFETY: a new mapping that replaces nothing.
        let base = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            let flags = flags | libc::MAP_FIXED_NOREPLACE;
            libc::mmap(start as *mut _, padded, libc::PROT_NONE, flags, -1, 0)
        };
        assert_eq!(base as usize, start, "mmap of {padded} bytes");
        let outer = start..start + padded;
        let addr = start + HUGE;
        let region = Region { addr, len, outer };
        map_fixed(addr, len);
        let advice = match kind {
            Kind::Base => libc::MADV_NOHUGEPAGE,
            Kind::Thp => libc::MADV_HUGEPAGE,
        };
        advise(addr, len, advice).expect("advice on THPs");
        region
    }

    /// Maps and fills `len` bytes; THPs are checked to be THPs.
    pub fn filled(len: usize, kind: Kind, seed: u64) -> Region {
        let region = Region::new(len, kind);
        fill(region.addr, len, seed);
        if kind == Kind::Thp {
            assert_eq!(
                thp_bytes(&region.range()),
                len,
                "the kernel gives no THPs: set /sys/kernel/mm/transparent_hugepage/enabled to madvise"
            );
        }
        region
    }

    /// Its addresses.
    pub fn range(&self) -> Range<usize> {
        self.addr..self.addr + self.len
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new`, and the test is over with it.
        unsafe { libc::munmap(self.outer.start as *mut _, self.outer.len()) };
        if !std::thread::panicking() {
            heap::assert_heap_unasked();
        }
    }
}

/// Replaces what is mapped at `addr` by untouched anonymous private memory.
pub fn map_fixed(addr: usize, len: usize) {
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
    // SAFETY: the tests pass ranges of a `Region` of theirs.
    let got = unsafe { libc::mmap(addr as *mut _, len, prot, flags, -1, 0) };
    assert_eq!(got as usize, addr, "mmap with MAP_FIXED");
}

/// madvise(2).
pub fn advise(addr: usize, len: usize, advice: libc::c_int) -> std::io::Result<()> {
    // SAFETY: the tests pass ranges of a `Region` of theirs, and what the advice does to contents is what they test.
    check(unsafe { libc::madvise(addr as *mut _, len, advice) })
}

/// mprotect(2).
pub fn protect(addr: usize, len: usize, prot: libc::c_int) {
    // SAFETY: the tests pass ranges of a `Region` of theirs.
    check(unsafe { libc::mprotect(addr as *mut _, len, prot) }).expect("mprotect");
}

/// -1 becomes errno.
pub fn check(ret: libc::c_int) -> std::io::Result<()> {
    if ret < 0 {
        Err(std::io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Word `index` of contents `seed`; never 0.
pub fn word(seed: u64, index: usize) -> u64 {
    (index as u64 + 1)
        .wrapping_add(seed << 32)
        .wrapping_mul(0x9E37_79B9_7F4A_7C15)
        | 1
}

/// The word at an address, as the hardware would read it.
pub fn load(addr: usize) -> u64 {
    // SAFETY: the tests pass aligned addresses of mapped memory.
    unsafe { std::ptr::read_volatile(addr as *const u64) }
}

/// Writes a word.
pub fn store(addr: usize, value: u64) {
    // SAFETY: as in `load`; no reference to the word exists.
    unsafe { std::ptr::write_volatile(addr as *mut u64, value) }
}

/// A counter in memory that moves.
pub fn counter(addr: usize) -> &'static AtomicU64 {
    // SAFETY: aligned and mapped for as long as the test's region; the reference does not outlive the test.
    unsafe { AtomicU64::from_ptr(addr as *mut u64) }
}

/// Writes contents `seed`; words count from `addr`.
pub fn fill(addr: usize, len: usize, seed: u64) {
    for index in 0..len / 8 {
        store(addr + 8 * index, word(seed, index));
    }
}

/// The first word that is not as `fill` left it: its index and what is there.
pub fn first_wrong(addr: usize, len: usize, seed: u64) -> Option<(usize, u64)> {
    (0..len / 8)
        .map(|index| (index, load(addr + 8 * index)))
        .find(|&(index, found)| found != word(seed, index))
}

/// Asserts contents `seed`.
pub fn assert_filled(addr: usize, len: usize, seed: u64, what: &str) {
    assert_words(addr, len, seed, 0, what);
}

/// Asserts contents `seed` of the region in a part of it.
pub fn assert_part(region: &Region, part: &Range<usize>, seed: u64, what: &str) {
    let first = (part.start - region.addr) / 8;
    assert_words(part.start, part.len(), seed, first, what);
}

/// Asserts contents `seed` from their word `first` on.
pub fn assert_words(addr: usize, len: usize, seed: u64, first: usize, what: &str) {
    for index in first..first + len / 8 {
        let (found, wanted) = (load(addr + 8 * (index - first)), word(seed, index));
        let page = index * 8 / PAGE;
        assert!(
            found == wanted,
            "{what}: word {index} (page {page}) is {found:#x}, not {wanted:#x}"
        );
    }
}

/// Asserts zeroes.
pub fn assert_zero(addr: usize, len: usize, what: &str) {
    for at in (addr..addr + len).step_by(8) {
        let found = load(at);
        assert_eq!(found, 0, "{what}: byte {:#x} is {found:#x}", at - addr);
    }
}

/// The words of /proc/self/pagemap for a range.
fn pagemap(range: &Range<usize>) -> Vec<u64> {
    let file = std::fs::File::open("/proc/self/pagemap").expect("pagemap");
    let mut bytes = vec![0; range.len() / PAGE * 8];
    file.read_exact_at(&mut bytes, (range.start / PAGE * 8) as u64)
        .expect("pagemap");
    bytes
        .chunks_exact(8)
        .map(|chunk| u64::from_ne_bytes(chunk.try_into().expect("eight bytes")))
        .collect()
}

/// Whether each page is present.
pub fn present(range: &Range<usize>) -> Vec<bool> {
    pagemap(range)
        .iter()
        .map(|entry| entry >> 63 == 1)
        .collect()
}

/// Bytes that are present.
pub fn present_bytes(range: &Range<usize>) -> u64 {
    present(range).iter().filter(|p| **p).count() as u64 * PAGE as u64
}

/// Whether this process may see physical page numbers, asserted in a way that a run without root shows.
pub fn is_root() -> bool {
    // SAFETY: no memory is touched.
    unsafe { libc::geteuid() == 0 }
}

/// Physical page numbers, 0 where nothing is present; `None` unless root, where only counts can be asserted.
pub fn pfns(range: &Range<usize>) -> Option<Vec<u64>> {
    is_root().then(|| {
        pagemap(range)
            .iter()
            .map(|entry| {
                if entry >> 63 == 1 {
                    entry & ((1 << 55) - 1)
                } else {
                    0
                }
            })
            .collect()
    })
}

/// Asserts that every page that was present lies elsewhere now. Without root nothing can be seen.
pub fn assert_pages_changed(before: &Option<Vec<u64>>, range: &Range<usize>, what: &str) {
    if let (Some(before), Some(after)) = (before, pfns(range)) {
        for (page, (old, new)) in before.iter().zip(&after).enumerate() {
            assert!(
                *old == 0 || old != new,
                "{what}: page {page} still lies in frame {old:#x}"
            );
        }
    }
}

/// Asserts that those pages lie where they lay that `stays` says, and no others. Without root nothing can be seen.
pub fn assert_stay(
    before: &Option<Vec<u64>>,
    range: &Range<usize>,
    what: &str,
    stays: impl Fn(usize) -> bool,
) {
    if let (Some(before), Some(after)) = (before, pfns(range)) {
        for (page, (old, new)) in before.iter().zip(&after).enumerate() {
            assert_eq!(old == new, stays(page), "{what}: page {page}");
        }
    }
}

/// Asserts that no page lies elsewhere now. Without root nothing can be seen.
pub fn assert_pages_stayed(before: &Option<Vec<u64>>, range: &Range<usize>, what: &str) {
    assert_eq!(before, &pfns(range), "{what}: frames");
}

/// Bytes of a range that THPs map, by smaps.
pub fn thp_bytes(range: &Range<usize>) -> usize {
    smaps_sum(range, "AnonHugePages:") << 10
}

/// The sum of a field of smaps (kB) over the mappings that begin in a range.
pub fn smaps_sum(range: &Range<usize>, field: &str) -> usize {
    let text = std::fs::read_to_string("/proc/self/smaps").expect("smaps");
    let mut inside = false;
    let mut sum = 0;
    for line in text.lines() {
        let head = line.split(' ').next().unwrap_or("");
        if let Some((start, _)) = head.split_once('-') {
            if let Ok(start) = usize::from_str_radix(start, 16) {
                inside = range.contains(&start);
                continue;
            }
        }
        if inside && line.starts_with(field) {
            sum += kilobytes(line);
        }
    }
    sum
}

/// The flags (`VmFlags`) of the mapping that begins at `addr`.
pub fn vm_flags(addr: usize) -> String {
    let text = std::fs::read_to_string("/proc/self/smaps").expect("smaps");
    let head = format!("{addr:x}-");
    text.lines()
        .skip_while(|line| !line.starts_with(&head))
        .find_map(|line| line.strip_prefix("VmFlags:"))
        .expect("a mapping begins there")
        .trim()
        .to_owned()
}

/// A field of /proc/self/status, kB.
pub fn status_kb(field: &str) -> usize {
    let text = std::fs::read_to_string("/proc/self/status").expect("status");
    kilobytes(
        text.lines()
            .find(|line| line.starts_with(field))
            .expect("the field"),
    )
}

fn kilobytes(line: &str) -> usize {
    line.split_whitespace()
        .nth(1)
        .and_then(|n| n.parse().ok())
        .expect("a number of kB")
}

/// The names of the library's migrators with fixed lanes; `auto` has tests/auto.rs.
pub const MIGRATORS: [&str; 2] = ["batch", "mtcopy"];

/// Options for a mover with the migrator of that name, which moves huge pages whatever the kernel.
pub fn options(migrator: &str) -> MoverOptions {
    let options = match migrator {
        "batch" => MoverOptions::new(Batch::default()),
        "mtcopy" => {
            let fixed = MtCopyOptions::default().lanes(default_lanes());
            MoverOptions::new(MtCopy::new(fixed).expect("lanes"))
        }
        "auto" => MoverOptions::new(MtCopy::auto().expect("lanes")),
        other => panic!("no migrator {other}"),
    };
    options.allow_huge_pages(true)
}

/// A mover with the migrator of that name.
pub fn mover(migrator: &str) -> Mover {
    Mover::new(options(migrator)).expect("userfaultfd with UFFDIO_MOVE, Linux 6.8")
}

/// What becomes of source pages, both ways.
pub fn both_sources() -> [SourcePages; 2] {
    // SAFETY: the tests that keep source pages hold no vmsplice and no MSG_ZEROCOPY transmission of them.
    [SourcePages::GIVE_BACK, unsafe { SourcePages::keep() }]
}

/// Options that move pages of node 0 to other pages of node 0.
pub fn relocate() -> MoveOptions {
    MoveOptions::default().relocate(true)
}

/// Asserts that a result counts each byte of `len` once.
pub fn assert_each_byte_once(result: &MoveResult, len: usize) {
    let counted: u64 = Outcome::ALL.iter().map(|&o| result.count(o).bytes).sum();
    assert_eq!(
        counted + result.cancelled_bytes,
        len as u64,
        "each byte of {len} is counted once: {result:?}"
    );
}

/// Moves a whole region and asserts that every byte was looked at, unless the move may be cancelled, and counted.
pub fn move_all(mover: &Mover, range: &Range<usize>, options: &MoveOptions) -> MoveResult {
    let result = mover
        .move_range(range.clone(), 0, options)
        .expect("the range can be moved");
    assert_each_byte_once(&result, range.len());
    heap::assert_heap_unasked();
    if options.cancel.is_none() {
        assert_eq!(result.cancelled_bytes, 0, "all was looked at: {result:?}");
    }
    result
}

/// Moves a whole region and asserts that every page of it has moved.
pub fn move_whole(
    mover: &Mover,
    range: &Range<usize>,
    options: &MoveOptions,
    what: &str,
) -> MoveResult {
    let result = move_all(mover, range, options);
    assert_eq!(result.moved.bytes, range.len() as u64, "{what}: {result:?}");
    result
}

/// Copies with memcpy after a call with the address that it copies to.
pub struct AtCopy<F>(pub F);

// SAFETY: memcpy has copied everything when `copy` returns.
unsafe impl<F: Fn(usize) + Send + Sync> Migrator for AtCopy<F> {
    fn name(&self) -> &'static str {
        "at-copy"
    }

    unsafe fn copy(&self, src: *const u8, dst: *mut u8, len: usize) {
        (self.0)(dst as usize);
        // SAFETY: the caller's promise.
        unsafe { std::ptr::copy_nonoverlapping(src, dst, len) };
    }
}

/// Raises a flag when dropped, so that a failing assertion ends the other threads too.
pub struct Raise<'a>(pub &'a AtomicBool);

impl Drop for Raise<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Moves going on beside a test's body.
pub struct Moving<'a> {
    rounds: &'a AtomicU64,
    over: &'a AtomicBool,
}

impl Moving<'_> {
    /// Calls to `move_range` that have ended.
    pub fn rounds(&self) -> u64 {
        self.rounds.load(Ordering::Acquire)
    }

    /// Lets a move come between two disturbances each fourth time, from the `first` on.
    pub fn wait_each_fourth(&self, time: u64, first: u64) {
        if time % 4 == first {
            self.wait_rounds(1);
        }
    }

    /// Waits until `count` more calls have begun and ended.
    pub fn wait_rounds(&self, count: u64) {
        // The call under way may have begun before.
        let goal = self.rounds() + count + 1;
        while self.rounds() < goal {
            assert!(!self.over.load(Ordering::Acquire), "the mover has failed");
            std::thread::yield_now();
        }
    }
}

/// What the moves beside a body came to, added up.
#[derive(Debug, Default)]
pub struct Sum {
    /// Calls that returned a result.
    pub ok: u64,
    /// Calls that were refused, as `tolerate` allowed.
    pub refused: u64,
    /// Bytes per outcome, in the order of `Outcome::ALL`.
    pub bytes: [u64; 6],
}

impl Sum {
    /// Bytes of one outcome.
    pub fn of(&self, outcome: Outcome) -> u64 {
        let index = Outcome::ALL.iter().position(|o| *o == outcome);
        self.bytes[index.expect("one of them")]
    }
}

/// Moves `range` again and again on another thread until `body` has returned. Every result must count each byte once;
/// an error is passed to `tolerate`, which says whether it is due to what the body does.
pub fn while_moving(
    mover: &Mover,
    range: &Range<usize>,
    options: &MoveOptions,
    tolerate: impl Fn(&MoveError) -> bool + Sync,
    body: impl FnOnce(&Moving<'_>),
) -> Sum {
    let (rounds, stop, over) = (
        AtomicU64::new(0),
        AtomicBool::new(false),
        AtomicBool::new(false),
    );
    std::thread::scope(|scope| {
        let moves = scope.spawn(|| {
            let _raise = Raise(&over);
            let mut sum = Sum::default();
            while !stop.load(Ordering::Acquire) {
                match mover.move_range(range.clone(), 0, options) {
                    Ok(result) => {
                        assert_each_byte_once(&result, range.len());
                        sum.ok += 1;
                        for (bytes, outcome) in sum.bytes.iter_mut().zip(Outcome::ALL) {
                            *bytes += result.count(outcome).bytes;
                        }
                    }
                    Err(error) if tolerate(&error) => sum.refused += 1,
                    Err(error) => panic!("{error}"),
                }
                rounds.fetch_add(1, Ordering::Release);
            }
            sum
        });
        {
            let _raise = Raise(&stop);
            let moving = Moving {
                rounds: &rounds,
                over: &over,
            };
            moving.wait_rounds(1);
            body(&moving);
        }
        match moves.join() {
            Ok(sum) => sum,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// No error is tolerated.
pub fn no_error(_: &MoveError) -> bool {
    false
}

/// Runs `body` in a process of its own: the test binary again, with this one test. For limits and states that belong to
/// a whole process. One that hangs with its signals blocked is ended after a time that no host is too slow for.
pub fn in_own_process(test: &str, body: impl FnOnce()) {
    const CHILD: &str = "MEMFERRY_TEST_CHILD";
    if std::env::var_os(CHILD).is_some_and(|name| name == test) {
        return body();
    }
    let output = std::process::Command::new("timeout")
        .args(["--signal=KILL", "600"])
        .arg(std::env::current_exe().expect("the test binary"))
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(CHILD, test)
        .output()
        .expect("the test binary starts");
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{test} in its own process: {}\n{text}",
        output.status
    );
}

/// Forks; the child runs `body`, which may only do what is safe in a signal handler, and exits with what it returns.
pub fn fork(body: impl FnOnce() -> i32) -> libc::pid_t {
    // SAFETY: the child calls `body` and `_exit` only.
    match unsafe { libc::fork() } {
        // SAFETY: ends the child without running anything of the parent's.
        0 => unsafe { libc::_exit(body()) },
        pid => {
            assert!(pid > 0, "fork: {}", std::io::Error::last_os_error());
            pid
        }
    }
}

/// Waits for a child and returns its exit status; a child that a signal ended gives 1000 + the signal.
pub fn wait(pid: libc::pid_t) -> i32 {
    let mut status = 0;
    // SAFETY: the kernel writes one int.
    let got = unsafe { libc::waitpid(pid, &raw mut status, 0) };
    assert_eq!(got, pid, "waitpid: {}", std::io::Error::last_os_error());
    if libc::WIFEXITED(status) {
        libc::WEXITSTATUS(status)
    } else {
        1000 + libc::WTERMSIG(status)
    }
}

/// A userfaultfd of the test's own that watches a range.
pub fn watch(watched: &Range<usize>) -> OwnedFd {
    const UFFDIO_API: libc::c_ulong = 0xc018_aa3f;
    const UFFDIO_REGISTER: libc::c_ulong = 0xc020_aa00;
    // SAFETY: a fresh descriptor; the kernel reads and writes the two structures, which are laid out as `uffdio_api`
    // and `uffdio_register`.
    unsafe {
        let fd = libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC) as i32;
        assert!(
            fd >= 0,
            "userfaultfd: {}; run as root",
            std::io::Error::last_os_error()
        );
        let fd = OwnedFd::from_raw_fd(fd);
        let mut api = [0xAAu64, 0, 0];
        check(libc::ioctl(fd.as_raw_fd(), UFFDIO_API, api.as_mut_ptr())).unwrap();
        let mut register = [watched.start as u64, watched.len() as u64, 1, 0];
        check(libc::ioctl(
            fd.as_raw_fd(),
            UFFDIO_REGISTER,
            register.as_mut_ptr(),
        ))
        .unwrap();
        fd
    }
}

/// A pipe: (read end, write end).
pub fn pipe() -> (std::fs::File, std::fs::File) {
    let mut ends = [0; 2];
    // SAFETY: the kernel writes two descriptors, which are owned by the files from here on.
    unsafe {
        check(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC)).expect("pipe");
        (
            std::fs::File::from_raw_fd(ends[0]),
            std::fs::File::from_raw_fd(ends[1]),
        )
    }
}

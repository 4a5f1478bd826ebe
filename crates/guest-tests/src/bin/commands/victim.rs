// SPDX-License-Identifier: MIT OR Apache-2.0
//! A process with memory on a known node, which says where it is and checks it on demand. Free ones have no policy, so that
//! others may move their pages, and may use them all the time.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};

/// The hidden argument: bytes, node, whether a child shares the memory, and a name or nothing follow.
pub const SERVE: &str = "--victim";

/// The names of processes that use their memory begin so.
pub const HOT: &str = "victim-hot";

/// The name of a process that faults on some of its pages all the time, and leaves the others alone.
pub const FAULTS: &str = "victim-faults";

/// The name of a process that shares its memory with a child of the same name; each of them uses one half.
pub const POOL: &str = "victim-hot-pool";

/// The name of a process that uses one page of [`SCATTERED_EACH`] all the time, and no other.
pub const SCATTERED: &str = "victim-hot-some";
pub const SCATTERED_EACH: usize = 4;

/// The user `nobody`.
pub const NOBODY: u32 = 65534;

pub const PAGE: usize = 4096;
/// From one page that faults to the next.
const STRIDE: usize = 1 << 20;
const MPOL_BIND: libc::c_int = 2;

/// The process, seen from outside.
pub struct Victim {
    pub child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    addr: usize,
    len: usize,
}

impl Victim {
    /// One with `len` bytes of base pages on `node`; with `forked` a child of its maps them too.
    pub fn new(len: usize, node: u32, forked: bool) -> Victim {
        Victim::named(len, node, forked, "", 0)
    }

    /// One without a policy, and with a name; all its pages are in use all the time if that begins with [`HOT`].
    pub fn free(len: usize, node: u32, name: &str) -> Victim {
        Victim::of_user(len, node, name, 0)
    }

    /// The same of a user.
    pub fn of_user(len: usize, node: u32, name: &str, user: u32) -> Victim {
        Victim::named(len, node, false, name, user)
    }

    fn named(len: usize, node: u32, forked: bool, name: &str, user: u32) -> Victim {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                SERVE,
                &len.to_string(),
                &node.to_string(),
                &forked.to_string(),
                name,
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .uid(user)
            .spawn()
            .unwrap();
        let stdin = child.stdin.take().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let addr = line.trim().parse().unwrap();
        let victim = Victim {
            child,
            stdin,
            stdout,
            addr,
            len,
        };
        // Those that fault are not mapped for a moment; the child's half is mapped by the child.
        let elsewhere = match name {
            FAULTS => len / STRIDE,
            POOL => len / PAGE / 2,
            _ => 0,
        };
        assert!(victim.pages_on(node) + elsewhere >= len / PAGE);
        victim
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How many of its pages lie on a node, by the kernel's word.
    pub fn pages_on(&self, node: u32) -> usize {
        self.each_on(1, node)
    }

    /// The same of one page of so many, from the first.
    pub fn each_on(&self, step: usize, node: u32) -> usize {
        let all = self.addr..self.addr + self.len;
        let pages: Vec<usize> = all.step_by(step * PAGE).collect();
        let mut status = vec![i32::MIN; pages.len()];
        // SAFETY: both arrays have `pages.len()` entries.
        let ret = unsafe {
            libc::syscall(
                libc::SYS_move_pages,
                self.pid(),
                pages.len(),
                pages.as_ptr(),
                std::ptr::null::<i32>(),
                status.as_mut_ptr(),
                0,
            )
        };
        assert_eq!(ret, 0, "move_pages: {}", std::io::Error::last_os_error());
        status.iter().filter(|&&at| at == node as i32).count()
    }

    /// All its pages lie on a node, and every byte is what it was.
    pub fn assert_whole_on(&mut self, node: u32) {
        assert_eq!(self.pages_on(node), self.len / PAGE);
        self.assert_whole();
    }

    /// Every byte is what it was.
    pub fn assert_whole(&mut self) {
        self.stdin.write_all(b"check\n").unwrap();
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        assert_eq!(line.trim(), "whole");
    }

    /// Ends it as a crash would.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The process itself.
pub fn serve(arguments: &[&str]) -> ExitCode {
    let [len, node, forked, name] = arguments else {
        return ExitCode::FAILURE;
    };
    let (len, node): (usize, u32) = (len.parse().unwrap(), node.parse().unwrap());
    // Pages of shared memory keep their bytes while nobody maps them.
    let sharing = match *name {
        FAULTS | POOL => libc::MAP_SHARED,
        _ => libc::MAP_PRIVATE,
    };
    // SAFETY: an anonymous mapping at an address of the kernel's choice overlaps nothing.
    let raw = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            len,
            libc::PROT_READ | libc::PROT_WRITE,
            sharing | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    assert_ne!(raw, libc::MAP_FAILED);
    // SAFETY: the range is ours and holds nothing yet.
    unsafe { libc::madvise(raw, len, libc::MADV_NOHUGEPAGE) };
    let mut mask = [0_u64; 16];
    mask[node as usize / 64] = 1 << (node % 64);
    // SAFETY: the kernel reads 1024 bits of the mask.
    let ret =
        unsafe { libc::syscall(libc::SYS_mbind, raw, len, MPOL_BIND, mask.as_ptr(), 1025, 0) };
    assert_eq!(ret, 0, "mbind: {}", std::io::Error::last_os_error());
    let words = raw.cast::<u64>();
    let pattern = |word: usize| (word as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for word in 0..len / 8 {
        // SAFETY: inside the mapping, which only this thread uses.
        unsafe { words.add(word).write_volatile(pattern(word)) };
    }
    if *forked == "true" {
        // SAFETY: the child only waits for its parent's end.
        unsafe {
            if libc::fork() == 0 {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                loop {
                    libc::pause();
                }
            }
        }
    }
    if !name.is_empty() {
        let name = std::ffi::CString::new(*name).unwrap();
        let none = std::ptr::null::<u64>();
        // SAFETY: the kernel reads a string, and no mask with this policy (MPOL_DEFAULT).
        unsafe {
            assert_eq!(libc::prctl(libc::PR_SET_NAME, name.as_ptr()), 0);
            assert_eq!(libc::syscall(libc::SYS_mbind, raw, len, 0, none, 0, 0), 0);
        }
    }
    let mut used = 0..len;
    if *name == POOL {
        used = 0..len / 2;
        // SAFETY: the parent's page tables lose the second half, and nothing of shared memory is lost by that.
        let child = unsafe {
            libc::madvise(
                (raw as usize + len / 2) as *mut _,
                len / 2,
                libc::MADV_DONTNEED,
            );
            libc::fork()
        };
        if child == 0 {
            // SAFETY: the child ends with its parent, and reads what stays mapped.
            unsafe {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                for page in (len / 2..len).step_by(PAGE).cycle() {
                    ((raw as usize + page) as *const u64).read_volatile();
                }
            }
        }
    }
    if name.starts_with(HOT) {
        let start = raw as usize;
        let step = if *name == SCATTERED {
            SCATTERED_EACH
        } else {
            1
        };
        std::thread::spawn(move || {
            for page in used.step_by(step * PAGE).cycle() {
                // SAFETY: inside the mapping, which nobody writes any more.
                unsafe { ((start + page) as *const u64).read_volatile() };
            }
        });
    }
    if *name == FAULTS {
        let start = raw as usize;
        std::thread::spawn(move || {
            for page in (0..len).step_by(STRIDE).cycle() {
                // SAFETY: inside the mapping, whose pages stay in memory.
                unsafe {
                    libc::madvise((start + page) as *mut _, PAGE, libc::MADV_DONTNEED);
                    ((start + page) as *const u64).read_volatile();
                }
            }
        });
    }
    println!("{}", raw as usize);
    for _ in std::io::stdin().lines().map_while(Result::ok) {
        // SAFETY: as above.
        let whole =
            (0..len / 8).all(|word| unsafe { words.add(word).read_volatile() } == pattern(word));
        println!("{}", if whole { "whole" } else { "changed" });
    }
    ExitCode::SUCCESS
}

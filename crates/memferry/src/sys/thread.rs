// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where a thread's stack lies, which signals it takes, and how it waits for another.

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{Mode, OFlags};
use rustix::thread::futex;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

/// The calling thread takes no more signals but those that it raises itself by a fault; gives those that it blocked before.
pub(crate) fn block_signals() -> io::Result<libc::sigset_t> {
    const OWN: [libc::c_int; 7] = [
        libc::SIGSEGV,
        libc::SIGBUS,
        libc::SIGFPE,
        libc::SIGILL,
        libc::SIGTRAP,
        libc::SIGABRT,
        libc::SIGSYS,
    ];
    // SAFETY: the sets live here, and the calls touch nothing else.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        let mut before = set;
        libc::sigfillset(&raw mut set);
        for signal in OWN {
            libc::sigdelset(&raw mut set, signal);
        }
        match libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, &raw mut before) {
            0 => Ok(before),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }
}

unsafe extern "C" {
    /// Of pthread.h, where 1 is PTHREAD_CANCEL_DISABLE.
    fn pthread_setcancelstate(state: libc::c_int, before: *mut libc::c_int) -> libc::c_int;
    /// Of pthread.h, where 0 is PTHREAD_CANCEL_DEFERRED.
    fn pthread_setcanceltype(kind: libc::c_int, before: *mut libc::c_int) -> libc::c_int;
}

/// While it lives, no signal handler runs on this thread, and pthread_cancel(3) waits.
pub struct Quiet {
    signals: Option<libc::sigset_t>,
    cancel: libc::c_int,
    /// It belongs to one thread.
    _here: std::marker::PhantomData<*const ()>,
}

impl Quiet {
    /// Until it is dropped, on this thread.
    pub fn begin() -> Quiet {
        // Signals first: a handler that left by longjmp in between would leave the cancellation off.
        let signals = block_signals().ok();
        let mut cancel = 0;
        // SAFETY: it writes one int and changes this thread only.
        unsafe { pthread_setcancelstate(1, &raw mut cancel) };
        Quiet {
            signals,
            cancel,
            _here: std::marker::PhantomData,
        }
    }

    /// Lets the thread be as it was before for the time of `sleep`, which a handler may leave by longjmp. It must be no
    /// cancellation point.
    fn aside(&self, sleep: impl FnOnce()) {
        // Asynchronous cancellation would end the thread in here: then it stays off.
        let mut kind = 0;
        // SAFETY: each call writes one int at most, and changes this thread only.
        unsafe {
            pthread_setcanceltype(0, &raw mut kind);
            pthread_setcanceltype(kind, std::ptr::null_mut());
            if kind == 0 {
                pthread_setcancelstate(self.cancel, std::ptr::null_mut());
            }
        }
        if let Some(before) = &self.signals {
            // SAFETY: the set is one that the kernel gave.
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, std::ptr::null_mut()) };
        }
        sleep();
        let _ = block_signals();
        // SAFETY: as above.
        unsafe { pthread_setcancelstate(1, std::ptr::null_mut()) };
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        // Signals last: a handler that leaves by longjmp leaves nothing undone.
        // SAFETY: as in `begin`.
        unsafe { pthread_setcancelstate(self.cancel, std::ptr::null_mut()) };
        if let Some(before) = &self.signals {
            // SAFETY: the set is one that the kernel gave.
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, std::ptr::null_mut()) };
        }
    }
}

/// Something that happens once.
#[derive(Debug)]
pub(crate) struct Event {
    /// 1 from then on.
    happened: AtomicU32,
    /// Becomes readable then, for who polls.
    polled: Option<OwnedFd>,
}

impl Event {
    /// An event that takes no descriptor, unless it is `polled`.
    pub(crate) fn new(polled: bool) -> io::Result<Event> {
        let descriptor = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        Ok(Event {
            happened: AtomicU32::new(0),
            polled: polled.then(descriptor).transpose()?,
        })
    }

    pub(crate) fn set(&self) {
        self.happened.store(1, Ordering::Release);
        // It fails only for an address that is not mapped.
        let _ = futex::wake(&self.happened, futex::Flags::PRIVATE, i32::MAX as u32);
        if let Some(polled) = &self.polled {
            // The first time it cannot fail, and later ones add nothing.
            let _ = rustix::io::write(polled, &1u64.to_ne_bytes());
        }
    }

    pub(crate) fn is_set(&self) -> bool {
        self.happened.load(Ordering::Acquire) == 1
    }

    /// Waits with the signals and the cancellation that were on before `quiet`.
    pub(crate) fn wait(&self, quiet: &Quiet) {
        while !self.is_set() {
            // A handler that ran before it sleeps changes nothing: the kernel compares once more.
            quiet.aside(|| {
                let _ = futex::wait(&self.happened, futex::Flags::PRIVATE, 0, None);
            });
        }
    }

    /// The descriptor of an event that is polled.
    pub(crate) fn polled(&self) -> Option<BorrowedFd<'_>> {
        self.polled.as_ref().map(AsFd::as_fd)
    }
}

/// Attempts at something that another thread keeps from succeeding, and how long was waited between them.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    failed: u32,
    pub(crate) slept: Duration,
}

impl Attempts {
    /// Waits before the next attempt. It only gives way at first, which costs least; but under a real-time policy that lets nobody of
    /// a lower priority run, and the other thread may be one.
    pub(crate) fn pause(&mut self) {
        self.failed += 1;
        let pause = match self.failed {
            ..64 => return std::thread::yield_now(),
            64..500 => Duration::from_micros(50),
            _ => Duration::from_millis(10),
        };
        std::thread::sleep(pause);
        self.slept += pause;
    }

    /// How many have failed.
    pub(crate) fn failed(&self) -> u32 {
        self.failed
    }
}

/// How far below its frame a move may use the stack: more than any migrator should need.
const REACH: usize = 4 << 20;

/// The stack of the calling thread; of the first thread, whose stack has no end below, what a move may use of it.
pub(crate) fn stack() -> io::Result<Range<usize>> {
    /// Start and end of the first thread's, which the C library reads from the text of all mappings.
    static KNOWN: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];
    let local = 0u8;
    let here = (&raw const local).addr();
    if rustix::thread::gettid() != rustix::process::getpid() {
        return ask_for_stack();
    }
    let known = |at: usize| KNOWN[at].load(Ordering::Relaxed);
    // The limit of its size may have been raised, and frames may lie elsewhere.
    if !(known(0)..known(1)).contains(&here) {
        let stack = ask_for_stack()?;
        if !stack.contains(&here) {
            return Ok(stack);
        }
        KNOWN[0].store(stack.start, Ordering::Relaxed);
        KNOWN[1].store(stack.end, Ordering::Relaxed);
    }
    Ok(known(0).max(here - REACH)..known(1))
}

/// Whether the calling thread runs on the stack that it was started on.
pub(crate) fn is_on_its_stack() -> bool {
    let local = 0u8;
    stack().is_ok_and(|stack| stack.contains(&(&raw const local).addr()))
}

fn ask_for_stack() -> io::Result<Range<usize>> {
    // SAFETY: pthread_getattr_np initialises the attribute object, which is destroyed below.
    unsafe {
        let mut attr: libc::pthread_attr_t = std::mem::zeroed();
        let ret = libc::pthread_getattr_np(libc::pthread_self(), &raw mut attr);
        if ret != 0 {
            return Err(io::Error::from_raw_os_error(ret));
        }
        let mut base = std::ptr::null_mut();
        let mut size = 0;
        let ret = libc::pthread_attr_getstack(&raw const attr, &raw mut base, &raw mut size);
        libc::pthread_attr_destroy(&raw mut attr);
        if ret != 0 {
            return Err(io::Error::from_raw_os_error(ret));
        }
        Ok(base as usize..base as usize + size)
    }
}

/// The system call in which a thread of this process sleeps, and its six arguments; `None` if it does not, or the kernel
/// does not say (CONFIG_HAVE_ARCH_TRACEHOOK, /proc). Allocates nothing.
pub(crate) fn system_call(thread: u32) -> Option<(libc::c_long, [usize; 6])> {
    use std::io::Write;
    let mut path = [0u8; 48];
    write!(&mut path[..47], "/proc/self/task/{thread}/syscall").ok()?;
    let path = std::ffi::CStr::from_bytes_until_nul(&path).ok()?;
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut text = [0u8; 256];
    let read = rustix::io::read(&file, &mut text).ok()?;
    parse_system_call(std::str::from_utf8(&text[..read]).ok()?)
}

/// `NUMBER ARGUMENT.. STACK PROGRAM`, or `running`, or `-1 STACK PROGRAM` outside of one.
fn parse_system_call(text: &str) -> Option<(libc::c_long, [usize; 6])> {
    let mut words = text.split_whitespace();
    let number = words.next()?.parse().ok()?;
    let mut arguments = [0; 6];
    for argument in &mut arguments {
        *argument = usize::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
    }
    Some((number, arguments))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_keeps_trying_sleeps_between_attempts() {
        let mut attempts = Attempts::default();
        (0..100).for_each(|_| attempts.pause());
        assert!(attempts.failed() == 100 && attempts.slept > 30 * Duration::from_micros(50));
    }

    #[test]
    fn system_calls_of_the_kernel_are_read() {
        let mremap = "25 0x7f0000000000 0x200000 0x400000 0x1 0x0 0x22 0x7ffd5 0x7f12\n";
        let arguments = [0x7f00_0000_0000, 0x20_0000, 0x40_0000, 1, 0, 0x22];
        assert_eq!(parse_system_call(mremap), Some((25, arguments)));
        for other in ["running\n", "-1 0x7ffd5 0x7f12\n", "", "25 0x1 0x2"] {
            assert_eq!(parse_system_call(other), None, "{other}");
        }
    }

    #[test]
    fn a_thread_that_sleeps_is_in_its_system_call() {
        let (tell, told) = std::sync::mpsc::channel();
        let sleeper = std::thread::spawn(move || {
            // SAFETY: no memory is touched.
            tell.send(unsafe { libc::gettid() }).unwrap();
            std::thread::park();
        });
        let thread = told.recv().unwrap() as u32;
        let begun = std::time::Instant::now();
        while system_call(thread).is_none_or(|(number, _)| number != libc::SYS_futex) {
            assert!(begun.elapsed().as_secs() < 20, "{:?}", system_call(thread));
            std::thread::yield_now();
        }
        sleeper.thread().unpark();
        sleeper.join().unwrap();
        assert_eq!(system_call(0), None);
    }
}

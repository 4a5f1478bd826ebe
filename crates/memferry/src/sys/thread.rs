// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where a thread's stack lies, which signals it takes, and how it waits for another.

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{Mode, OFlags};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

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
        let mut cancel = 0;
        // SAFETY: it writes one int and changes this thread only.
        unsafe { pthread_setcancelstate(1, &raw mut cancel) };
        Quiet {
            signals: block_signals().ok(),
            cancel,
            _here: std::marker::PhantomData,
        }
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

/// Something that happens once, and a descriptor that becomes readable then.
#[derive(Debug)]
pub(crate) struct Event(OwnedFd);

impl Event {
    pub(crate) fn new() -> io::Result<Event> {
        Ok(Event(eventfd(
            0,
            EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK,
        )?))
    }

    pub(crate) fn set(&self) {
        // The first time it cannot fail, and later ones add nothing.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    pub(crate) fn is_set(&self) -> bool {
        super::is_readable(&self.0)
    }

    /// Waits with the signals that were free before `quiet`.
    pub(crate) fn wait(&self, quiet: &Quiet) {
        let mut poll = libc::pollfd {
            fd: self.0.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        let signals = (quiet.signals.as_ref()).map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: the kernel reads and writes one `pollfd`, and reads the set.
        while unsafe { libc::ppoll(&raw mut poll, 1, std::ptr::null(), signals) } <= 0 {}
    }
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The stack of the calling thread.
pub(crate) fn stack() -> io::Result<Range<usize>> {
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

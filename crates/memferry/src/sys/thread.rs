// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where a thread runs, how politely, and where its stack lies.

use super::check;
use std::io;
use std::ops::Range;

/// Pins the calling thread to one CPU.
pub(crate) fn pin_to(cpu: u32) -> io::Result<()> {
    // SAFETY: an all-zero cpu_set_t is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    if cpu as usize >= libc::CPU_SETSIZE as usize {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    // SAFETY: `cpu` is below CPU_SETSIZE.
    unsafe { libc::CPU_SET(cpu as usize, &mut set) };
    // SAFETY: the kernel reads one cpu_set_t; 0 names the calling thread.
    check(unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) })
        .map(drop)
}

/// CPUs the calling thread may run on.
pub(crate) fn allowed_cpus() -> io::Result<Vec<u32>> {
    // SAFETY: an all-zero cpu_set_t is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes one cpu_set_t; 0 names the calling thread.
    check(unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) })?;
    // SAFETY: the index stays below CPU_SETSIZE.
    Ok((0..libc::CPU_SETSIZE as u32)
        .filter(|&cpu| unsafe { libc::CPU_ISSET(cpu as usize, &set) })
        .collect())
}

/// CPU the calling thread runs on at this moment.
pub(crate) fn current_cpu() -> u32 {
    // SAFETY: no memory is touched.
    u32::try_from(unsafe { libc::sched_getcpu() }).unwrap_or(0)
}

/// Sets the nice value of the calling thread (Linux keeps it per thread).
pub(crate) fn set_nice(nice: i32) -> io::Result<()> {
    // SAFETY: no memory is touched; gettid names the calling thread.
    check(unsafe { libc::setpriority(libc::PRIO_PROCESS, libc::gettid() as libc::id_t, nice) })
        .map(drop)
}

/// The calling thread takes no more signals but those that it raises itself by a fault.
pub(crate) fn block_signals() -> io::Result<()> {
    const OWN: [libc::c_int; 7] = [
        libc::SIGSEGV,
        libc::SIGBUS,
        libc::SIGFPE,
        libc::SIGILL,
        libc::SIGTRAP,
        libc::SIGABRT,
        libc::SIGSYS,
    ];
    // SAFETY: the set lives here, and the calls touch nothing else.
    let ret = unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut set);
        for signal in OWN {
            libc::sigdelset(&raw mut set, signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut())
    };
    if ret == 0 {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(ret))
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

// SPDX-License-Identifier: MIT OR Apache-2.0
//! On which CPUs a thread runs, and how politely. `cpu_set_t` ends at CPU 1,023, the kernel's masks do not.

use crate::check;
use std::io;

/// CPUs in one word of a mask.
const WORD_CPUS: usize = libc::c_ulong::BITS as usize;

/// No kernel has this many CPUs.
const MOST_CPUS: usize = 1 << 20;

/// The mask of these CPUs.
fn mask(cpus: &[u32]) -> Vec<libc::c_ulong> {
    let words = cpus
        .iter()
        .max()
        .map_or(1, |&most| most as usize / WORD_CPUS + 1);
    let mut mask = vec![0; words];
    for &cpu in cpus {
        mask[cpu as usize / WORD_CPUS] |= 1 << (cpu as usize % WORD_CPUS);
    }
    mask
}

/// CPU the calling thread runs on at this moment.
pub fn current() -> u32 {
    // SAFETY: no memory is touched.
    u32::try_from(unsafe { libc::sched_getcpu() }).unwrap_or(0)
}

/// Sets the nice value of the calling thread (Linux keeps it per thread).
///
/// # Errors
/// A value below 0 takes CAP_SYS_NICE.
pub fn set_nice(nice: i32) -> io::Result<()> {
    // SAFETY: no memory is touched; gettid names the calling thread.
    check(unsafe { libc::setpriority(libc::PRIO_PROCESS, libc::gettid() as libc::id_t, nice) })
        .map(drop)
}

/// Lets the calling thread run on these CPUs alone.
///
/// # Errors
/// None of them is on line and in the thread's cpuset, or a sandbox forbids it.
pub fn pin(cpus: &[u32]) -> io::Result<()> {
    let mask = mask(cpus);
    // SAFETY: the kernel reads the mask, which is as long as it is told; 0 names the calling thread.
    check(unsafe { libc::sched_setaffinity(0, size_of_val(&*mask), mask.as_ptr().cast()) })
        .map(drop)
}

/// CPUs that the calling thread may run on, ascending.
///
/// # Errors
/// A sandbox forbids it.
pub fn allowed() -> io::Result<Vec<u32>> {
    let mut mask: Vec<libc::c_ulong> = vec![0; 1024 / WORD_CPUS];
    loop {
        // SAFETY: the kernel writes into the mask, which is as long as it is told; 0 names the calling thread.
        let result = check(unsafe {
            libc::sched_getaffinity(0, size_of_val(&*mask), mask.as_mut_ptr().cast())
        });
        match result {
            // The kernel knows of more CPUs than the mask has.
            Err(error)
                if error.raw_os_error() == Some(libc::EINVAL)
                    && mask.len() * WORD_CPUS < MOST_CPUS =>
            {
                mask.resize(mask.len() * 2, 0);
            }
            Err(error) => return Err(error),
            Ok(_) => break,
        }
    }
    let is_set = |cpu: &usize| mask[cpu / WORD_CPUS] >> (cpu % WORD_CPUS) & 1 == 1;
    let cpus = (0..mask.len() * WORD_CPUS).filter(is_set);
    Ok(cpus.map(|cpu| cpu as u32).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_has_every_cpu() {
        assert_eq!(mask(&[0, 1, 63]), [1 << 63 | 3]);
        let of = mask(&[1_500, 1_023, 1_024]);
        let set: Vec<usize> = (0..of.len() * WORD_CPUS)
            .filter(|cpu| of[cpu / WORD_CPUS] >> (cpu % WORD_CPUS) & 1 == 1)
            .collect();
        assert_eq!(set, [1_023, 1_024, 1_500]);
    }

    #[test]
    fn threads_are_pinned_to_any_cpu_there_is() {
        let all = allowed().unwrap();
        let last = *all.last().unwrap();
        let pinned = |cpus: Vec<u32>| {
            let thread = std::thread::spawn(move || pin(&cpus).and_then(|()| allowed()));
            thread.join().unwrap()
        };
        assert_eq!(pinned(vec![last]).unwrap(), [last]);
        // The kernel looks at such masks: it refuses those alone in which no CPU is on line.
        for cpu in [1_023, 1_024, 5_000] {
            if !all.contains(&cpu) {
                let error = pinned(vec![cpu]).unwrap_err();
                assert_eq!(error.raw_os_error(), Some(libc::EINVAL), "{cpu}");
                assert_eq!(pinned(vec![cpu, last]).unwrap(), [last]);
            }
        }
    }
}

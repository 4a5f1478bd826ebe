// SPDX-License-Identifier: MIT OR Apache-2.0
//! The plain program that a pipeline must not be below: it moves all pages out, copies them, and moves all copies in, in
//! three passes of as many threads. Nobody may fork, unmap or touch the pages meanwhile, and it holds them twice.

use std::io;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use memferry::copy::Routine;
use memferry::{FEATURE_MOVE, Uffd};

use super::region::{Region, THP, timed_in_parts};

/// Copies the pages of `region` into those of `copies` by `threads`, and puts these into their place. `empty` gets the
/// pages that were there; without `copies` there (cold), it allocates them while it copies. Closing its descriptor ends
/// the watch of both. Gives the time without that in which threads start: a program may have them already.
pub fn three_passes(
    region: &Region,
    empty: &Region,
    copies: &Region,
    routine: Routine,
    threads: usize,
) -> io::Result<Duration> {
    let bytes = region.range().len();
    let [place, out, into] = [region, empty, copies].map(|of| of.range().start);
    let begun = Instant::now();
    let faults = Uffd::open(FEATURE_MOVE)?;
    faults.register(place, bytes)?;
    faults.register(out, bytes)?;
    let mut took = begun.elapsed();
    took += each(bytes, threads, |at, len| {
        carry(&faults, out + at, place + at, len)
    })?;
    took += each(bytes, threads, |at, len| {
        // SAFETY: both regions are `bytes` long, parts are disjoint, and nobody else uses either.
        unsafe { routine.copy((out + at) as *const u8, (into + at) as *mut u8, len) };
        Ok(())
    })?;
    took += each(bytes, threads, |at, len| {
        carry(&faults, place + at, into + at, len)
    })?;
    let begun = Instant::now();
    drop(faults);
    Ok(took + begun.elapsed())
}

/// Does `work` for every 2 MiB by `threads`; the time, or a failure.
fn each(
    bytes: usize,
    threads: usize,
    work: impl Fn(usize, usize) -> io::Result<()> + Sync,
) -> io::Result<Duration> {
    let failed = Mutex::new(Ok(()));
    let took = timed_in_parts(bytes, threads, &|part| {
        for at in part.clone().step_by(THP) {
            if let Err(error) = work(at, THP.min(part.end - at)) {
                *failed
                    .lock()
                    .unwrap_or_else(std::sync::PoisonError::into_inner) = Err(error);
                return;
            }
        }
    })?;
    (failed.into_inner())
        .unwrap_or_else(std::sync::PoisonError::into_inner)
        .map(|()| took)
}

/// Moves the pages at `from` to the empty, registered range at `to`.
fn carry(faults: &Uffd, to: usize, from: usize, len: usize) -> io::Result<()> {
    let mut done = 0;
    while done < len {
        // SAFETY: nobody touches either range before `three_passes` is done.
        let part = unsafe { faults.move_pages(to + done, from + done, len - done) };
        done += part.done;
        match part.stopped {
            Some(error) if part.done == 0 && error.kind() != io::ErrorKind::WouldBlock => {
                return Err(error);
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_comes_back_and_the_old_pages_are_in_the_empty_region() {
        for huge in [false, true] {
            let mut region = Region::new(4 * THP, huge, 1).expect("region");
            let mut copies = Region::new(4 * THP, huge, 1).expect("copies");
            let mut empty = Region::like(&region, huge).expect("empty");
            for threads in [1, 2] {
                region.fill(1);
                let frames = region.frames(4 * THP);
                three_passes(&region, &empty, &copies, memferry::copy::memcpy(), threads)
                    .expect("move");
                assert_eq!(region.check(4 * THP, 1), Ok(4 * THP as u64));
                assert_eq!(empty.frames(4 * THP), frames);
                std::mem::swap(&mut empty, &mut copies);
            }
            copies.clear();
            three_passes(&region, &empty, &copies, memferry::copy::memcpy(), 2).expect("cold");
            assert_eq!(region.check(4 * THP, 1), Ok(4 * THP as u64));
        }
    }
}

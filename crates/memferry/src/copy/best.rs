// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which routine the library uses: a measurement of a few milliseconds, once per process, or the one that
//! the environment names.

use super::{ROUTINE_VARIABLE, Routine, available, by_name, memcpy};
use crate::sync::MadeOnce;
use std::time::{Duration, Instant};

/// Size of the probe's source and destination, in bytes.
const PROBE_BYTES: usize = 512 << 10;

/// The smallest page that the library supports.
const PAGE_BYTES: usize = 4096;

/// Copies begin at pages.
#[derive(Clone)]
#[repr(C, align(4096))]
struct Page([u8; PAGE_BYTES]);

/// The probe copies in extents of the size that a lane usually gets, in bytes.
const EXTENT_BYTES: usize = 128 << 10;

/// Timed passes for each routine; the fastest counts, as interruptions only ever add time.
const RUNS: usize = 5;

/// A routine takes less than this share of a later one's time, or the later one wins: `available` is in rising
/// order of preference. The interleaving routines are within 2 percent of each other on the probe's extents,
/// but up to 10 percent apart on single pages, which the probe does not see.
const MARGIN: f64 = 0.95;

/// The environment asks for a routine that this CPU cannot run or that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{ROUTINE_VARIABLE}={name}: no such copy routine on this CPU; choose one of {}, or unset it",
    names()
)]
pub struct Unavailable {
    /// The value of the variable.
    pub name: String,
}

fn names() -> String {
    available()
        .iter()
        .map(Routine::name)
        .collect::<Vec<_>>()
        .join(", ")
}

/// The routine that `MEMFERRY_COPY` names; `None` if the variable is unset or empty.
///
/// # Errors
///
/// [`Unavailable`] if the value is not the name of an available routine. [`best`] then goes on with the measured
/// winner, so a program that wants to tell its user calls this once at the start.
pub fn requested() -> Result<Option<Routine>, Unavailable> {
    match std::env::var_os(ROUTINE_VARIABLE) {
        None => Ok(None),
        Some(value) => parse(&value.to_string_lossy()),
    }
}

pub(super) fn parse(name: &str) -> Result<Option<Routine>, Unavailable> {
    match (name, by_name(name)) {
        ("", _) => Ok(None),
        (_, None) => Err(Unavailable {
            name: name.to_owned(),
        }),
        (_, found) => Ok(found),
    }
}

/// The routine to copy pages with: the one that `MEMFERRY_COPY` names, or else the winner of a measurement
/// that takes some milliseconds. Both are looked at once per process, at the first call.
///
/// A name that is not available is ignored here; [`requested`] reports it.
pub fn best() -> Routine {
    static BEST: MadeOnce<Routine> = MadeOnce::new();
    *BEST.get(|| requested().ok().flatten().unwrap_or_else(winner))
}

/// Times the candidates on memory that is in no cache.
///
/// If there are routines that bypass the cache, only they are candidates: a copy through the cache leaves
/// half of its work, writing the destination back, to whoever runs next, so a probe this short cannot see it.
/// `memferry topology --copy` compares all on memory that no cache can hold.
pub(super) fn winner() -> Routine {
    let bypassing = available().iter().filter(|r| r.bypasses_cache);
    let mut candidates: Vec<Routine> = bypassing.copied().collect();
    if candidates.is_empty() {
        candidates = available().to_vec();
    }
    let pages = vec![Page([1; PAGE_BYTES]); PROBE_BYTES / PAGE_BYTES];
    let (src, mut dst) = (pages.clone(), pages);
    let (src, dst) = (src.as_ptr().cast::<u8>(), dst.as_mut_ptr().cast::<u8>());
    let mut fastest = vec![Duration::MAX; candidates.len()];
    for _ in 0..RUNS {
        for (routine, fastest) in candidates.iter().zip(&mut fastest) {
            flush(src);
            flush(dst);
            let start = Instant::now();
            for at in (0..PROBE_BYTES).step_by(EXTENT_BYTES) {
                // SAFETY: both buffers are at least PROBE_BYTES long, which is a multiple of EXTENT_BYTES.
                unsafe { routine.copy(src.add(at), dst.add(at), EXTENT_BYTES) }
            }
            *fastest = (*fastest).min(start.elapsed());
        }
    }
    choose(&candidates, &fastest)
}

/// From the last routine to the first, an earlier one only if it is faster by the margin.
pub(super) fn choose(routines: &[Routine], fastest: &[Duration]) -> Routine {
    let mut best: Option<(Routine, Duration)> = None;
    for (&routine, &time) in routines.iter().zip(fastest).rev() {
        if best.is_none_or(|(_, least)| time < least.mul_f64(MARGIN)) {
            best = Some((routine, time));
        }
    }
    best.map_or(memcpy(), |(routine, _)| routine)
}

/// Writes PROBE_BYTES back to memory and drops them from every cache, on architectures where a program may.
fn flush(start: *const u8) {
    // SAFETY: it is the start of a buffer of so many bytes, which only `winner` knows.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        super::x86_64::flush(start.cast_mut(), PROBE_BYTES);
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = start;
}

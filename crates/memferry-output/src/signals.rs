// SPDX-License-Identifier: MIT OR Apache-2.0
//! Signals that end the command. The first asks a command that can to stop cleanly; the next, and for other commands the
//! first, ends it at once, and no file stays behind that is not in its place.

use std::ffi::{CString, c_char};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::low_level::{emulate_default_handler, register};

/// What ends the command.
const ENDING: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

/// Whether the command stops by itself after the first signal.
static STOPS: AtomicBool = AtomicBool::new(false);

/// Whether signals end the command at all.
static END: AtomicBool = AtomicBool::new(true);

/// The first signal; 0: none came.
static SIGNAL: AtomicUsize = AtomicUsize::new(0);

/// Names of the files that are not in their places; a command writes two at most. Who takes a name out of here owns it.
static UNFINISHED: [AtomicPtr<c_char>; 4] = [const { AtomicPtr::new(ptr::null_mut()) }; 4];

/// The signals that [`handle`] is called for.
static HANDLED: Mutex<Vec<i32>> = Mutex::new(Vec::new());

/// The signal that asked the command to stop, if one did.
pub fn interrupted() -> Option<u8> {
    let signal = SIGNAL.load(Ordering::Relaxed);
    u8::try_from(signal).ok().filter(|signal| *signal > 0)
}

/// From here on the first signal sets `stop`, and does not end the command.
pub fn stop_cleanly(stop: &Arc<AtomicBool>) -> io::Result<()> {
    STOPS.store(true, Ordering::Relaxed);
    for signal in not_ignored() {
        flag::register(signal, Arc::clone(stop))?;
        watch(signal)?;
    }
    // It may have come before its flag was there.
    stop.fetch_or(interrupted().is_some(), Ordering::Relaxed);
    Ok(())
}

/// Whether signals end the command; not while other handlers let it end by itself.
pub fn end_the_command(end: bool) {
    END.store(end, Ordering::Relaxed);
}

fn watch(signal: i32) -> io::Result<()> {
    let mut handled = HANDLED
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    if !handled.contains(&signal) {
        // SAFETY: the handler uses atomics, unlink(2), sigaction(2) and raise(3), which are async-signal-safe.
        unsafe { register(signal, move || handle(signal)) }?;
        handled.push(signal);
    }
    Ok(())
}

fn handle(signal: i32) {
    if !END.load(Ordering::Relaxed) {
        return;
    }
    let first =
        || SIGNAL.compare_exchange(0, signal as usize, Ordering::Relaxed, Ordering::Relaxed);
    if STOPS.load(Ordering::Relaxed) && first().is_ok() {
        return;
    }
    for name in &UNFINISHED {
        let name = name.swap(ptr::null_mut(), Ordering::Acquire);
        if !name.is_null() {
            // SAFETY: a string that was taken out just now; it is not freed.
            unsafe { libc::unlink(name) };
        }
    }
    // It fails for signals that are unknown.
    let _ = emulate_default_handler(signal);
}

/// What ends the command, but for signals that it was started to ignore.
fn not_ignored() -> impl Iterator<Item = i32> {
    ENDING.into_iter().filter(|signal| !is_ignored(*signal))
}

/// Whether the command was started with this signal ignored, as by nohup.
fn is_ignored(signal: i32) -> bool {
    let mut now = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: no new action is given, and the present one is written to its place.
    unsafe {
        libc::sigaction(signal, ptr::null(), now.as_mut_ptr()) == 0
            && now.assume_init().sa_sigaction == libc::SIG_IGN
    }
}

/// A file that a signal which ends the command removes; dropped once the file is in its place or gone.
pub struct Unfinished(Option<&'static AtomicPtr<c_char>>);

impl Unfinished {
    /// For the file of this name.
    pub fn new(name: &Path) -> io::Result<Self> {
        for signal in not_ignored() {
            watch(signal)?;
        }
        let name = CString::new(name.as_os_str().as_bytes())?.into_raw();
        let null = ptr::null_mut();
        let take = |slot: &&AtomicPtr<c_char>| {
            let taken = slot.compare_exchange(null, name, Ordering::Release, Ordering::Relaxed);
            taken.is_ok()
        };
        Ok(Self(UNFINISHED.iter().find(take)))
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        let name = self
            .0
            .map(|slot| slot.swap(ptr::null_mut(), Ordering::Acquire));
        if let Some(name) = name.filter(|name| !name.is_null()) {
            // SAFETY: made by into_raw, and taken out just now.
            drop(unsafe { CString::from_raw(name) });
        }
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The C interface; `include/memferry.h` describes it. It checks what C cannot, hands over to [`Mover`] and turns
//! errors and panics into negative errnos. It decides nothing.
//!
//! What comes from C is read through raw pointers into values whose every bit pattern is valid, and only when it is
//! not null, aligned and of a size that this version knows.

use memferry::{
    Backend, Batch, DEFAULT_POOL_BYTES, MoveError, MoveHandle, MoveOptions, MoveResult, Mover,
    MoverOptions, MtCopy, MtCopyOptions, Outcome, Placement, Quiet, SourcePages, fork_generation,
    move_pages, page_size,
};
use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int, c_void};
use std::mem::{offset_of, size_of};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// `memferry_options`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Options {
    size: usize,
    migrator: u32,
    lanes: u32,
    placement: u32,
    nice: i32,
    backend: u32,
    flags: u32,
    pool_bytes: u64,
}

/// `memferry_move_options`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct How {
    size: usize,
    batch_bytes: u64,
    flags: u64,
    status: *mut c_int,
    status_len: usize,
    bytes_per_second: u64,
}

/// `memferry_range`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Piece {
    addr: *mut c_void,
    len: usize,
}

/// `memferry_count`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Count {
    folios: u64,
    bytes: u64,
}

/// `memferry_result`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Account {
    size: usize,
    moved: Count,
    already_there: Count,
    not_present: Count,
    busy: Count,
    no_memory: Count,
    unsupported: Count,
    cancelled_bytes: u64,
    elapsed_ns: u64,
    error: c_int,
    reserved: c_int,
}

// tests/c/errors.c asserts the same numbers of the header.
#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(size_of::<Options>() == 40 && offset_of!(Options, migrator) == 8);
    assert!(offset_of!(Options, lanes) == 12 && offset_of!(Options, placement) == 16);
    assert!(offset_of!(Options, nice) == 20 && offset_of!(Options, backend) == 24);
    assert!(offset_of!(Options, flags) == 28 && offset_of!(Options, pool_bytes) == 32);
    assert!(size_of::<How>() == 48 && offset_of!(How, batch_bytes) == 8);
    assert!(offset_of!(How, flags) == 16 && offset_of!(How, status) == 24);
    assert!(offset_of!(How, status_len) == 32 && offset_of!(How, bytes_per_second) == 40);
    assert!(size_of::<Piece>() == 16 && offset_of!(Piece, len) == 8);
    assert!(size_of::<Count>() == 16 && offset_of!(Count, bytes) == 8);
    assert!(size_of::<Account>() == 128 && offset_of!(Account, moved) == 8);
    assert!(offset_of!(Account, already_there) == 24 && offset_of!(Account, not_present) == 40);
    assert!(offset_of!(Account, busy) == 56 && offset_of!(Account, no_memory) == 72);
    assert!(offset_of!(Account, unsupported) == 88 && offset_of!(Account, cancelled_bytes) == 104);
    assert!(offset_of!(Account, elapsed_ns) == 112 && offset_of!(Account, error) == 120);
    assert!(offset_of!(Account, reserved) == 124);
};
// What `From` below relies on when it widens.
const _: () = assert!(size_of::<usize>() <= size_of::<u64>() && size_of::<c_int>() == 4);

const MTCOPY: u32 = 0;
const BATCH: u32 = 1;
const SPREAD: u32 = 0;
const FILL: u32 = 1;
const AUTO: u32 = 0;
const USERFAULTFD: u32 = 1;
const MOVE_PAGES: u32 = 2;
const ALLOW_FAULTY_KERNEL: u32 = 1;
const ALLOW_HUGE_PAGES: u32 = 2;
const NO_POOL: u64 = u64::MAX;
const RELOCATE: u64 = 1;
const KEEP_SOURCE_PAGES: u64 = 2;

/// `memferry_mover`. Shared by the threads that call for it; moves of one mover take turns.
pub struct Handle {
    mover: Mover,
    cancel: Arc<AtomicBool>,
    backend: Backend,
    /// What limits moves on this machine, a line each.
    notes: CString,
    /// The process that made it: in a fork's child the lock may be held by a thread that is not there.
    generation: u32,
}

const _: () = {
    const fn shared_by_threads<T: Send + Sync>() {}
    shared_by_threads::<Handle>();
};

/// A call that failed.
struct Failure {
    errno: c_int,
    message: String,
}

impl From<MoveError> for Failure {
    fn from(error: MoveError) -> Failure {
        Failure {
            errno: error.errno(),
            message: error.to_string(),
        }
    }
}

fn refuse(errno: c_int, message: String) -> Failure {
    Failure { errno, message }
}

fn invalid(message: String) -> Failure {
    refuse(libc::EINVAL, message)
}

thread_local! {
    static LAST_ERROR: RefCell<CString> = RefCell::new(CString::default());
}

fn remember(message: String) {
    let text = CString::new(message.replace('\0', " ")).unwrap_or_default();
    // A thread that is ending has no place to remember in.
    let _ = LAST_ERROR.try_with(|last| *last.borrow_mut() = text);
}

/// Runs a call and returns its code; nothing unwinds into C. The thread's signals wait and its cancellation is off but where the call
/// sleeps with the `Quiet`: a handler that left by longjmp would leave behind what the heap, other threads or a mover rely on.
fn guard(call: impl FnOnce(&Quiet) -> Result<c_int, Failure>) -> c_int {
    let quiet = Quiet::begin();
    match catch_unwind(AssertUnwindSafe(|| call(&quiet))) {
        Ok(Ok(code)) => code,
        Ok(Err(failure)) => {
            remember(failure.message);
            -failure.errno
        }
        Err(panic) => {
            let what = panic
                .downcast_ref::<&str>()
                .copied()
                .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
                .unwrap_or("no description");
            remember(format!(
                "the library failed inside: {what}; all pages are in place; please report this"
            ));
            // Dropping a payload can run anything, another panic included; that one's is left.
            if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
                std::mem::forget(again);
            }
            -libc::EIO
        }
    }
}

fn check_pointer<T>(pointer: *const T, name: &str) -> Result<(), Failure> {
    if pointer.is_null() {
        Err(invalid(format!("{name} is null; pass the address of one")))
    } else if !pointer.is_aligned() {
        Err(invalid(format!(
            "{name} is {pointer:p}, which is not aligned for its type; pass the address of one"
        )))
    } else {
        Ok(())
    }
}

/// Checks the `size` field that a structure begins with.
///
/// # Safety
/// `structure` is null or points to one whose first field is its size.
unsafe fn check_size<T>(structure: *const T, name: &str) -> Result<(), Failure> {
    check_pointer(structure, name)?;
    // SAFETY: not null, aligned for T and so for its first field, and readable (caller).
    let size = unsafe { structure.cast::<usize>().read() };
    let (errno, why) = match size.cmp(&size_of::<T>()) {
        std::cmp::Ordering::Less => (libc::EINVAL, "is no version of it"),
        std::cmp::Ordering::Equal => return Ok(()),
        std::cmp::Ordering::Greater => (libc::E2BIG, "is of a later version"),
    };
    Err(refuse(
        errno,
        format!(
            "{name}.size is {size}, which {why}: this library's is {}; set it to sizeof({name}) and build with the \
             header of the library that runs",
            size_of::<T>()
        ),
    ))
}

/// # Safety
/// `mover` is null or was made by [`memferry_new`] and not freed; it stays so for `'a`.
unsafe fn handle<'a>(mover: *const Handle) -> Result<&'a Handle, Failure> {
    check_pointer(mover, "mover")?;
    // SAFETY: a live handle (caller); it is shared and only its lock gives out exclusive access.
    let handle = unsafe { &*mover };
    if handle.generation == fork_generation() {
        Ok(handle)
    } else {
        Err(MoveError::OtherProcess.into())
    }
}

/// What `memferry_move_options.status` says of a page.
fn status(told: Option<Outcome>, node: u32) -> c_int {
    match told {
        Some(Outcome::Moved | Outcome::AlreadyThere) => node as c_int,
        Some(Outcome::NotPresent) => -libc::ENOENT,
        Some(Outcome::NoMemory) => -libc::ENOMEM,
        Some(Outcome::Unsupported) => -libc::EINVAL,
        Some(_) => -libc::EBUSY,
        None => -libc::ECANCELED,
    }
}

fn node_number(node: c_int) -> Result<u32, Failure> {
    u32::try_from(node).map_err(|_| {
        refuse(
            libc::ENODEV,
            format!(
                "node {node} cannot take pages: nodes are numbered from 0; `memferry topology` lists those with memory"
            ),
        )
    })
}

fn bytes_of(value: u64, name: &str) -> Result<usize, Failure> {
    usize::try_from(value).map_err(|_| {
        invalid(format!(
            "{name} is {value}, more than this machine addresses"
        ))
    })
}

fn build(options: Options) -> Result<Handle, Failure> {
    let unknown = |name: &str, value: u32| {
        invalid(format!(
            "memferry_options.{name} is {value}, which memferry.h does not name; take one of its constants, or 0"
        ))
    };
    if options.flags & !(ALLOW_FAULTY_KERNEL | ALLOW_HUGE_PAGES) != 0 {
        return Err(unknown("flags", options.flags));
    }
    let backend = match options.backend {
        AUTO => Backend::Auto,
        USERFAULTFD => Backend::Userfaultfd,
        MOVE_PAGES => Backend::MovePages,
        other => return Err(unknown("backend", other)),
    };
    let placement = match options.placement {
        SPREAD => Placement::Spread,
        FILL => Placement::Fill,
        other => return Err(unknown("placement", other)),
    };
    if !(-20..=19).contains(&options.nice) {
        return Err(invalid(format!(
            "memferry_options.nice is {}; it must be from -20 to 19",
            options.nice
        )));
    }
    if options.migrator != MTCOPY
        && (options.lanes > 1 || options.placement != SPREAD || options.nice != 0)
    {
        return Err(invalid(
            "memferry_options.lanes, placement and nice are for MEMFERRY_MTCOPY, and the migrator is another one, which \
             runs on the calling thread alone; take MEMFERRY_MTCOPY or leave them 0"
                .to_owned(),
        ));
    }
    let mut setup = match options.migrator {
        MTCOPY => MoverOptions::new(MtCopy::new(
            MtCopyOptions::default()
                .lanes(options.lanes as usize)
                .placement(placement)
                .nice(options.nice),
        )?),
        BATCH => MoverOptions::new(Batch::default()),
        other => return Err(unknown("migrator", other)),
    };
    setup.backend = backend;
    setup.allow_faulty_kernel = options.flags & ALLOW_FAULTY_KERNEL != 0;
    setup.allow_huge_pages = options.flags & ALLOW_HUGE_PAGES != 0;
    setup.pool_bytes = match options.pool_bytes {
        0 => DEFAULT_POOL_BYTES,
        NO_POOL => 0,
        bytes => bytes_of(bytes, "memferry_options.pool_bytes")?,
    };
    let mover = Mover::new(setup)?;
    Ok(Handle {
        backend: mover.backend(),
        notes: CString::new(mover.notes().join("\n")).unwrap_or_default(),
        mover,
        cancel: Arc::default(),
        generation: fork_generation(),
    })
}

/// The options and the place for the result of one move, checked.
struct Request {
    how: How,
    result: *mut Account,
}

impl Request {
    /// # Safety
    /// Each pointer is null or points to a structure that begins with its size.
    unsafe fn read(how: *const How, result: *mut Account) -> Result<Request, Failure> {
        if !result.is_null() {
            // SAFETY: the caller's promise.
            unsafe { check_size(result, "memferry_result")? };
        }
        let how = if how.is_null() {
            How {
                size: size_of::<How>(),
                batch_bytes: 0,
                flags: 0,
                status: std::ptr::null_mut(),
                status_len: 0,
                bytes_per_second: 0,
            }
        } else {
            // SAFETY: the caller's promise; then a readable structure of plain numbers.
            unsafe {
                check_size(how, "memferry_move_options")?;
                how.read()
            }
        };
        let unknown = how.flags & !(RELOCATE | KEEP_SOURCE_PAGES);
        if unknown != 0 {
            return Err(invalid(format!(
                "memferry_move_options.flags has the bits {unknown:#x}, which memferry.h does not name; clear them"
            )));
        }
        if !how.status.is_null() {
            check_pointer(how.status, "memferry_move_options.status")?;
        } else if how.status_len != 0 {
            return Err(invalid(format!(
                "memferry_move_options.status is null and status_len is {}; set both or neither",
                how.status_len
            )));
        }
        Ok(Request { how, result })
    }

    /// The ranges, if `status` has room for them.
    fn ranges(
        &self,
        pieces: impl Iterator<Item = (usize, usize)>,
    ) -> Result<Vec<Range<usize>>, Failure> {
        let mut pages = 0_usize;
        let ranges = pieces.map(|(addr, len)| {
            pages = pages.saturating_add(len.div_ceil(page_size()));
            let end = addr.checked_add(len).ok_or_else(|| {
                invalid(format!(
                    "{len} bytes from {addr:#x} end beyond the last address of a process; check the address and the length"
                ))
            })?;
            Ok(addr..end)
        });
        let ranges = ranges.collect::<Result<Vec<_>, Failure>>()?;
        if !self.how.status.is_null() && self.how.status_len < pages {
            return Err(invalid(format!(
                "memferry_move_options.status_len is {}, and the range has {pages} pages; give room for each",
                self.how.status_len
            )));
        }
        Ok(ranges)
    }

    fn range(&self, addr: usize, len: usize) -> Result<Range<usize>, Failure> {
        self.ranges(std::iter::once((addr, len)))
            .map(|mut ranges| ranges.remove(0))
    }

    fn options(&self, handle: &Handle) -> Result<MoveOptions, Failure> {
        let How {
            batch_bytes,
            flags,
            bytes_per_second: rate,
            ..
        } = self.how;
        let source = match flags & KEEP_SOURCE_PAGES {
            0 => SourcePages::GIVE_BACK,
            // SAFETY: who sets the flag has promised it; memferry.h repeats the condition.
            _ => unsafe { SourcePages::keep() },
        };
        Ok(MoveOptions::default()
            .batch_bytes(bytes_of(batch_bytes, "memferry_move_options.batch_bytes")?)
            .relocate(flags & RELOCATE != 0)
            .list_pages(!self.how.status.is_null())
            .cancel(Arc::clone(&handle.cancel))
            .source(source)
            .bytes_per_second((rate != 0).then_some(rate)))
    }

    /// Writes the account of `ranges`, whose sum is `done`.
    ///
    /// # Safety
    /// The result is null or writable, `status` is null or writable for `status_len` entries, and the ranges are those that
    /// [`Request::ranges`] gave.
    unsafe fn answer(&self, node: u32, done: &MoveResult, ranges: &[MoveResult]) {
        let pages = ranges.iter().filter_map(|range| range.pages.as_ref());
        for (page, &told) in pages.flatten().take(self.how.status_len).enumerate() {
            // SAFETY: pages are listed where there is a `status`, which has room for status_len entries (caller).
            unsafe { self.how.status.add(page).write(status(told, node)) };
        }
        if let Some(error) = &done.error {
            remember(error.to_string());
        }
        if !self.result.is_null() {
            // SAFETY: checked when the request was read, and writable (caller).
            unsafe { self.result.write(Account::from(done)) };
        }
    }
}

impl From<memferry::Count> for Count {
    fn from(count: memferry::Count) -> Count {
        Count {
            folios: count.folios,
            bytes: count.bytes,
        }
    }
}

impl From<&MoveResult> for Account {
    fn from(done: &MoveResult) -> Account {
        Account {
            size: size_of::<Account>(),
            moved: done.moved.into(),
            already_there: done.already_there.into(),
            not_present: done.not_present.into(),
            busy: done.busy.into(),
            no_memory: done.no_memory.into(),
            unsupported: done.unsupported.into(),
            cancelled_bytes: done.cancelled_bytes,
            elapsed_ns: u64::try_from(done.elapsed.as_nanos()).unwrap_or(u64::MAX),
            error: done.error.as_ref().map_or(0, |error| -error.errno()),
            reserved: 0,
        }
    }
}

/// # Safety
/// As memferry.h says; see the module for what is checked.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memferry_new(options: *const Options, mover: *mut *mut Handle) -> c_int {
    guard(|_| {
        check_pointer(mover, "mover")?;
        // SAFETY: not null, aligned, and writable (caller).
        unsafe { mover.write(std::ptr::null_mut()) };
        let options = if options.is_null() {
            Options::default()
        } else {
            // SAFETY: the caller's promise; then a readable structure of plain numbers.
            unsafe {
                check_size(options, "memferry_options")?;
                options.read()
            }
        };
        let handle = Box::new(build(options)?);
        // SAFETY: as above.
        unsafe { mover.write(Box::into_raw(handle)) };
        Ok(0)
    })
}

/// # Safety
/// As memferry.h says: no other call for the mover is under way or follows.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memferry_free(mover: *mut Handle) {
    guard(|_| {
        if !mover.is_null() {
            // SAFETY: a live handle (caller). In another process it stays: its threads are not there to be ended, and
            // their locks may be held for ever.
            unsafe {
                handle(mover)?;
                drop(Box::from_raw(mover));
            }
        }
        Ok(0)
    });
}

/// # Safety
/// As memferry.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memferry_backend(mover: *const Handle) -> c_int {
    guard(|_| {
        // SAFETY: the caller's promise.
        let handle = unsafe { handle(mover)? };
        Ok(match handle.backend {
            Backend::Userfaultfd => USERFAULTFD,
            Backend::MovePages => MOVE_PAGES,
            _ => AUTO,
        } as c_int)
    })
}

/// # Safety
/// As memferry.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memferry_notes(mover: *const Handle) -> *const c_char {
    let mut notes = std::ptr::null();
    guard(|_| {
        // SAFETY: the caller's promise.
        notes = unsafe { handle(mover)? }.notes.as_ptr();
        Ok(0)
    });
    notes
}

/// # Safety
/// As memferry.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memferry_move(
    mover: *mut Handle,
    addr: *mut c_void,
    len: usize,
    node: c_int,
    options: *const How,
    result: *mut Account,
) -> c_int {
    guard(|quiet| {
        // SAFETY: the caller's promise.
        let (handle, request) = unsafe { (handle(mover)?, Request::read(options, result)?) };
        let range = request.range(addr.addr(), len)?;
        let node = node_number(node)?;
        let options = request.options(handle)?;
        let ranges = std::slice::from_ref(&range);
        let done = handle
            .mover
            .move_pages_in(quiet, ranges, node, &options)?
            .into_range();
        // SAFETY: the caller's promise, and the range is the request's.
        unsafe { request.answer(node, &done, std::slice::from_ref(&done)) };
        Ok(0)
    })
}

/// # Safety
/// As memferry.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memferry_move_list(
    mover: *mut Handle,
    ranges: *const Piece,
    count: usize,
    node: c_int,
    options: *const How,
    total: *mut Account,
    each: *mut Account,
) -> c_int {
    guard(|quiet| {
        // SAFETY: the caller's promise.
        let (handle, request) = unsafe { (handle(mover)?, Request::read(options, total)?) };
        let pieces = if count == 0 {
            &[]
        } else {
            check_pointer(ranges, "ranges")?;
            // SAFETY: not null, aligned, and `count` of them readable (caller).
            unsafe { std::slice::from_raw_parts(ranges, count) }
        };
        if !each.is_null() {
            for index in 0..count {
                // SAFETY: `count` of them, each with its size set (caller).
                unsafe { check_size(each.wrapping_add(index), "memferry_result")? };
            }
        }
        let ranges = request.ranges(pieces.iter().map(|piece| (piece.addr.addr(), piece.len)))?;
        let node = node_number(node)?;
        let options = request.options(handle)?;
        let done = handle.mover.move_pages_in(quiet, &ranges, node, &options)?;
        // SAFETY: the caller's promise, and the ranges are the request's.
        unsafe { request.answer(node, &done.total, &done.ranges) };
        if !each.is_null() {
            for (index, range) in done.ranges.iter().enumerate() {
                // SAFETY: checked above, and writable (caller).
                unsafe { each.add(index).write(Account::from(range)) };
            }
        }
        Ok(0)
    })
}

/// # Safety
/// As memferry.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memferry_move_pid(
    mover: *mut Handle,
    pid: c_int,
    addr: u64,
    len: u64,
    node: c_int,
    options: *const How,
    result: *mut Account,
) -> c_int {
    guard(|_| {
        // SAFETY: the caller's promise.
        let (handle, request) = unsafe { (handle(mover)?, Request::read(options, result)?) };
        if pid < 0 {
            return Err(invalid(format!(
                "pid is {pid}; give the number of a process, or 0 for this one"
            )));
        }
        let range = request.range(bytes_of(addr, "addr")?, bytes_of(len, "len")?)?;
        let node = node_number(node)?;
        let options = request.options(handle)?;
        let lanes = handle.mover.migrator().lanes();
        let done = move_pages::move_range(pid, range, node, lanes, &options)?;
        // SAFETY: the caller's promise, and the range is the request's.
        unsafe { request.answer(node, &done, std::slice::from_ref(&done)) };
        Ok(0)
    })
}

/// `memferry_pending`.
pub struct Pending {
    handle: MoveHandle,
    request: Request,
    node: u32,
    generation: u32,
}

/// # Safety
/// `pending` is null or was made by [`memferry_move_start`] and not finished; it stays so for `'a`.
unsafe fn pending<'a>(pending: *const Pending) -> Result<&'a Pending, Failure> {
    check_pointer(pending, "pending")?;
    // SAFETY: a live one (caller), which is only read until it is finished.
    let pending = unsafe { &*pending };
    match pending.generation == fork_generation() {
        true => Ok(pending),
        false => Err(MoveError::OtherProcess.into()),
    }
}

/// # Safety
/// As memferry.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memferry_move_start(
    mover: *mut Handle,
    addr: *mut c_void,
    len: usize,
    node: c_int,
    options: *const How,
    pending: *mut *mut Pending,
) -> c_int {
    guard(|_| {
        check_pointer(pending, "pending")?;
        // SAFETY: the caller's promise.
        let (handle, request) = unsafe {
            pending.write(std::ptr::null_mut());
            (
                handle(mover)?,
                Request::read(options, std::ptr::null_mut())?,
            )
        };
        let range = request.range(addr.addr(), len)?;
        let node = node_number(node)?;
        // memferry_pending_cancel() ends this move alone.
        let options = request.options(handle)?.cancel(None);
        let made = Box::new(Pending {
            handle: handle.mover.move_range_async(range, node, &options)?,
            request,
            node,
            generation: fork_generation(),
        });
        // SAFETY: as above.
        unsafe { pending.write(Box::into_raw(made)) };
        Ok(0)
    })
}

/// # Safety
/// As memferry.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memferry_pending_fd(moving: *const Pending) -> c_int {
    // SAFETY: the caller's promise.
    guard(|_| Ok(unsafe { pending(moving)? }.handle.as_fd().as_raw_fd()))
}

/// # Safety
/// As memferry.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memferry_pending_progress(
    moving: *const Pending,
    done: *mut u64,
    all: *mut u64,
) -> c_int {
    guard(|_| {
        // SAFETY: the caller's promise.
        let progress = unsafe { pending(moving)? }.handle.progress();
        for (place, bytes) in [(done, progress.0), (all, progress.1)] {
            if !place.is_null() {
                check_pointer(place, "a place for bytes")?;
                // SAFETY: checked, and writable (caller).
                unsafe { place.write(bytes) };
            }
        }
        Ok(0)
    })
}

/// # Safety
/// As memferry.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memferry_pending_cancel(moving: *mut Pending) -> c_int {
    guard(|_| {
        // SAFETY: the caller's promise.
        unsafe { pending(moving)? }.handle.cancel();
        Ok(0)
    })
}

/// # Safety
/// As memferry.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memferry_pending_finish(
    moving: *mut Pending,
    result: *mut Account,
) -> c_int {
    guard(|quiet| {
        if !result.is_null() {
            // SAFETY: the caller's promise.
            unsafe { check_size(result, "memferry_result")? };
        }
        // Other calls may use it while this one sleeps, and a handler may leave by longjmp and finish it later.
        // SAFETY: the caller's promise.
        unsafe { pending(moving)? }.handle.wait_until_over(quiet);
        // SAFETY: a box of memferry_move_start(), which nobody uses from here on (caller).
        let Pending {
            handle,
            request,
            node,
            ..
        } = *unsafe { Box::from_raw(moving) };
        let done = handle.wait_in(quiet)?.into_range();
        let request = Request { result, ..request };
        // SAFETY: the caller's promise, and the range is the request's.
        unsafe { request.answer(node, &done, std::slice::from_ref(&done)) };
        Ok(0)
    })
}

/// # Safety
/// As memferry.h says. Async-signal-safe: an atomic store and nothing else.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memferry_cancel(mover: *mut Handle, on: c_int) -> c_int {
    if mover.is_null() || !mover.is_aligned() {
        return -libc::EINVAL;
    }
    // SAFETY: a live handle (caller).
    unsafe { &*mover }.cancel.store(on != 0, Ordering::Relaxed);
    0
}

/// # Safety
/// As memferry.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memferry_prefill(
    mover: *mut Handle,
    node: c_int,
    page_bytes: u64,
    bytes: u64,
    kept: *mut u64,
) -> c_int {
    guard(|_| {
        // SAFETY: the caller's promise.
        let handle = unsafe { handle(mover)? };
        if !kept.is_null() {
            check_pointer(kept, "kept")?;
        }
        let node = node_number(node)?;
        let page_bytes = bytes_of(page_bytes, "page_bytes")?;
        let bytes = bytes_of(bytes, "bytes")?;
        let now = handle.mover.prefill(node, page_bytes, bytes)?;
        if !kept.is_null() {
            // SAFETY: not null, aligned, and writable (caller).
            unsafe { kept.write(now as u64) };
        }
        Ok(0)
    })
}

/// # Safety
/// As memferry.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memferry_trim(mover: *mut Handle, bytes: u64) -> c_int {
    guard(|_| {
        // SAFETY: the caller's promise.
        let handle = unsafe { handle(mover)? };
        // More than can be addressed keeps everything.
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        handle.mover.trim_pool(bytes);
        Ok(0)
    })
}

/// The thread's last failure.
#[unsafe(no_mangle)]
pub extern "C" fn memferry_last_error() -> *const c_char {
    LAST_ERROR
        .try_with(|last| last.borrow().as_ptr())
        .unwrap_or(c"".as_ptr())
}

/// The library's version.
#[unsafe(no_mangle)]
pub extern "C" fn memferry_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    fn last_error() -> String {
        // SAFETY: a string of this thread; no call changes it meanwhile.
        unsafe { CStr::from_ptr(memferry_last_error()) }
            .to_string_lossy()
            .into_owned()
    }

    #[test]
    fn a_panic_becomes_an_error() {
        assert_eq!(guard(|_| panic!("lane {} broke", 3)), -libc::EIO);
        assert!(last_error().contains("lane 3 broke"), "{}", last_error());
        assert_eq!(guard(|_| std::panic::panic_any(7_u8)), -libc::EIO);
        assert!(last_error().contains("no description"), "{}", last_error());
    }

    #[test]
    fn a_payload_that_panics_when_dropped_stays_inside() {
        struct Bomb;
        impl Drop for Bomb {
            fn drop(&mut self) {
                panic!("dropped");
            }
        }
        assert_eq!(guard(|_| std::panic::panic_any(Bomb)), -libc::EIO);
    }

    #[test]
    fn a_zero_byte_does_not_cut_the_message() {
        assert_eq!(guard(|_| Err(invalid("a\0b".to_owned()))), -libc::EINVAL);
        assert_eq!(last_error(), "a b");
    }

    #[test]
    fn a_thread_sees_its_own_errors_only() {
        assert_eq!(guard(|_| Err(invalid("mine".to_owned()))), -libc::EINVAL);
        std::thread::spawn(|| assert_eq!(last_error(), ""))
            .join()
            .unwrap();
        assert_eq!(guard(|_| Ok(0)), 0);
        assert_eq!(last_error(), "mine");
    }

    #[test]
    fn notes_are_those_of_a_mover_in_rust() {
        let mut mover = std::ptr::null_mut();
        // SAFETY: a live place; the mover is freed last.
        unsafe {
            let made = memferry_new(std::ptr::null(), &raw mut mover);
            let rust = Mover::new(MoverOptions::new(Batch::default()));
            match rust {
                Ok(rust) => {
                    let notes = CStr::from_ptr(memferry_notes(mover)).to_str().unwrap();
                    // Figures that are measured differ.
                    let lines = |text: &str| text.lines().count();
                    assert_eq!(lines(notes), lines(&rust.notes().join("\n")));
                    assert!(
                        rust.notes().iter().any(|note| notes.contains(note)) == (lines(notes) > 0)
                    );
                }
                Err(error) => println!("pages are not moved here: {error}, {made}"),
            }
            memferry_free(mover);
            assert!(memferry_notes(std::ptr::null()).is_null());
        }
        assert!(last_error().contains("mover is null"));
    }

    /// The C programs of `tests/` run without sanitizers; this is for them.
    #[test]
    fn bytes_and_counts_come_back_through_pointers() {
        let (page, pages) = (page_size(), 512);
        let layout = std::alloc::Layout::from_size_align(pages * page, 2 << 20).unwrap();
        for migrator in [MTCOPY, BATCH] {
            let setup = Options {
                size: size_of::<Options>(),
                migrator,
                ..Default::default()
            };
            let mut mover = std::ptr::null_mut();
            // SAFETY: live places of the right types; the memory is written before it is read, and freed last.
            unsafe {
                let made = memferry_new(&raw const setup, &raw mut mover);
                let refused = [-libc::ENOSYS, -libc::EOPNOTSUPP].contains(&made);
                assert!(made == 0 || refused, "{}", last_error());
                if made != 0 {
                    println!("pages are not moved here: {}", last_error());
                    return;
                }
                let memory = std::alloc::alloc(layout);
                for index in 0..pages * page {
                    memory.add(index).write((index / 7) as u8);
                }
                let mut status = vec![-1; pages + 1];
                let how = How {
                    size: size_of::<How>(),
                    batch_bytes: 0,
                    flags: RELOCATE,
                    status: status.as_mut_ptr(),
                    status_len: pages,
                    bytes_per_second: 0,
                };
                let mut account = Account {
                    size: size_of::<Account>(),
                    ..Default::default()
                };
                let code = memferry_move(
                    mover,
                    memory.cast(),
                    pages * page,
                    0,
                    &raw const how,
                    &raw mut account,
                );
                assert_eq!(code, 0, "{}", last_error());
                memferry_free(mover);
                let left =
                    account.already_there.bytes + account.busy.bytes + account.no_memory.bytes;
                assert_eq!(account.moved.bytes + left, (pages * page) as u64);
                assert!(status[..pages].iter().all(|&node| node != -1));
                assert_eq!(status[pages], -1);
                assert!(
                    (0..pages * page).all(|index| memory.add(index).read() == (index / 7) as u8)
                );
                std::alloc::dealloc(memory, layout);
            }
        }
    }
}

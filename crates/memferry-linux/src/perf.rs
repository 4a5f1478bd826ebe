// SPDX-License-Identifier: MIT OR Apache-2.0
//! perf_event_open(2): samples of the addresses that one CPU accesses, whatever process it runs, or what a thread passes a tracepoint
//! with, in a ring that the kernel fills.
//!
//! The kernel allows it with CAP_PERFMON, or where kernel.perf_event_paranoid is 0 or less (-1 for tracepoints).

use std::ffi::CStr;
use std::io;
use std::mem::offset_of;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use perf_event_open_sys::{bindings as raw, ioctls};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::check;

/// Bytes of a ring's records for 5461 samples of addresses. With its head page such a ring takes less than the 516 KiB for each CPU
/// that kernel.perf_event_mlock_kb allows by default.
pub const ADDRESSES: usize = 128 << 10;

/// What is sampled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The PMU, by its `type` in sysfs.
    pub pmu: u32,
    /// The event, in bits of the PMU.
    pub config: u64,
    /// More bits of it.
    pub config1: u64,
    /// The `config` of an event that has to lead the group, as `mem-loads-aux` of some PMUs.
    pub leader: Option<u64>,
    /// Whether the address must be that of the very instruction, as PEBS gives it.
    pub precise: bool,
    /// Leaves out what the kernel accesses; not every PMU can.
    pub user_only: bool,
}

impl Event {
    /// Page faults, with the addresses that faulted: the kernel's own event, which needs no PMU.
    pub fn page_faults() -> Self {
        Self {
            pmu: raw::PERF_TYPE_SOFTWARE,
            config: raw::PERF_COUNT_SW_PAGE_FAULTS.into(),
            config1: 0,
            leader: None,
            precise: false,
            user_only: false,
        }
    }

    /// What is passed to a tracepoint, by its `id` in tracefs.
    pub fn tracepoint(id: u64) -> Self {
        Self {
            pmu: raw::PERF_TYPE_TRACEPOINT,
            config: id,
            ..Self::page_faults()
        }
    }

    /// Without a period it only counts.
    fn open(
        &self,
        config: u64,
        period: u64,
        of: Of,
        leader: Option<&OwnedFd>,
    ) -> io::Result<OwnedFd> {
        let (sampled, wakeup_events) = match self.pmu {
            raw::PERF_TYPE_TRACEPOINT => (raw::PERF_SAMPLE_RAW, 1),
            _ => (raw::PERF_SAMPLE_TID | raw::PERF_SAMPLE_ADDR, 0),
        };
        let mut attr = raw::perf_event_attr {
            type_: self.pmu,
            size: size_of::<raw::perf_event_attr>() as u32,
            config,
            ..raw::perf_event_attr::default()
        };
        if period > 0 {
            attr.sample_type = sampled.into();
            attr.sample_period = period;
            attr.config1 = self.config1;
            attr.__bindgen_anon_2.wakeup_events = wakeup_events;
            attr.set_precise_ip(if self.precise { 2 } else { 0 });
        }
        attr.set_exclude_kernel(self.user_only.into());
        attr.set_exclude_hv(self.user_only.into());
        let group = leader.map_or(-1, AsRawFd::as_raw_fd);
        let flags = raw::PERF_FLAG_FD_CLOEXEC.into();
        let (thread, cpu) = match of {
            Of::Cpu(cpu) => (-1, cpu as i32),
            Of::Thread(thread) => (thread as i32, -1),
        };
        // SAFETY: the kernel reads `attr`, which says its size.
        let fd =
            unsafe { perf_event_open_sys::perf_event_open(&mut attr, thread, cpu, group, flags) };
        // SAFETY: the descriptor is new.
        check(fd).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
    }
}

/// Whose events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// Those of all that runs on a CPU.
    Cpu(u32),
    /// Those of one thread, by its number, on all CPUs.
    Thread(u32),
}

/// An access to memory of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The process, as this one's namespace numbers it.
    pub pid: u32,
    /// The address.
    pub addr: usize,
}

/// What a ring held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    /// Samples, those without an address of a program included.
    pub samples: u64,
    /// Samples for which the ring had no room.
    pub lost: u64,
    /// How often the kernel stopped the event until the next tick, since it came too often.
    pub throttled: u64,
    /// Whether something in it was no record: the rest was skipped.
    pub malformed: bool,
}

/// The samples of a CPU or a thread, from when it is opened on. It takes a descriptor, or two if the event has a leader.
#[derive(Debug)]
pub struct Ring {
    fd: OwnedFd,
    _leader: Option<OwnedFd>,
    /// The head page, before the records.
    head: *mut u8,
    page: usize,
    /// Bytes of the records.
    size: usize,
}

impl Ring {
    /// Samples one in `period` events, with room for `size` bytes of records: a power of two of pages.
    ///
    /// # Errors
    /// The kernel or the PMU does not allow it.
    pub fn open(event: &Event, of: Of, period: u64, size: usize) -> io::Result<Self> {
        let leader = event.leader.map(|config| event.open(config, 0, of, None));
        let leader = leader.transpose()?;
        let fd = event.open(event.config, period, of, leader.as_ref())?;
        let page = rustix::param::page_size();
        // SAFETY: a new mapping at an address of the kernel's choice.
        let head = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                page + size,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                fd.as_raw_fd(),
                0,
            )
        };
        if head == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            fd,
            _leader: leader,
            head: head.cast(),
            page,
            size,
        })
    }

    /// From now on one in so many.
    ///
    /// # Errors
    /// The PMU does not take that period.
    pub fn set_period(&self, period: u64) -> io::Result<()> {
        // SAFETY: the kernel reads the number, by its address.
        check(unsafe { ioctls::PERIOD(self.fd.as_raw_fd(), std::ptr::from_ref(&period) as u64) })
            .map(drop)
    }

    /// From now on only what passes a filter, as tracefs has them: `nr_accesses > 0`.
    ///
    /// # Errors
    /// It is none of the event's.
    pub fn filter(&self, text: &CStr) -> io::Result<()> {
        // SAFETY: the kernel reads a text that ends with a zero.
        check(unsafe { ioctls::SET_FILTER(self.fd.as_raw_fd(), text.as_ptr().cast_mut()) })
            .map(drop)
    }

    /// Waits for a record of a tracepoint. True also after a signal, and for a record that was taken out already; false once the time
    /// has passed or the thread has ended.
    pub fn wait(&self, at_most: Duration) -> bool {
        let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
        match poll(&mut fds, Timespec::try_from(at_most).ok().as_ref()) {
            Ok(_) => fds[0].revents().contains(PollFlags::IN),
            Err(error) => error == Errno::INTR,
        }
    }

    fn position(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: an aligned word of the head page, which this process and the kernel access atomically, as long as `self` is.
        unsafe { AtomicU64::from_ptr(self.head.add(offset).cast()) }
    }

    /// Takes out the accesses that came since the last time.
    pub fn drain(&mut self, mut each: impl FnMut(Sample)) -> Drained {
        self.records(|fields| access(fields, &mut each))
    }

    /// Takes out what a tracepoint was passed since the last time: its fields, as tracefs describes them in its file `format`.
    pub fn drain_raw(&mut self, mut each: impl FnMut(&[u8])) -> Drained {
        self.records(|fields| raw_fields(fields).map(&mut each).is_some())
    }

    /// Samples come as their fields; whether they are whole is the answer.
    fn records(&mut self, each: impl FnMut(&[u8]) -> bool) -> Drained {
        // Acquire: the records before `end` are written. Release: they are read before the kernel may write there.
        let end = self.position(offset_of!(raw::perf_event_mmap_page, data_head));
        let end = end.load(Ordering::Acquire);
        let begin = self.position(offset_of!(raw::perf_event_mmap_page, data_tail));
        let parts = parts(self.size, begin.load(Ordering::Relaxed), end);
        let mut bytes = Vec::new();
        for part in parts.iter().flatten() {
            // SAFETY: the part lies within the records, and the kernel writes none of it until `data_tail` says so.
            bytes.extend_from_slice(unsafe {
                std::slice::from_raw_parts(self.head.add(self.page + part.start), part.len())
            });
        }
        begin.store(end, Ordering::Release);
        let mut drained = read(&bytes, each);
        drained.malformed |= parts.is_none();
        drained
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: nothing refers to the mapping any more.
        unsafe { libc::munmap(self.head.cast(), self.page + self.size) };
    }
}

/// Where in a ring of `size` bytes the records between two positions lie, which count on without end; `None` if they are more than
/// fit.
fn parts(size: usize, begin: u64, end: u64) -> Option<[Range<usize>; 2]> {
    let len = usize::try_from(end.wrapping_sub(begin)).ok()?;
    if len > size {
        return None;
    }
    let start = (begin % size as u64) as usize;
    let first = len.min(size - start);
    Some([start..start + first, 0..len - first])
}

fn word(record: &[u8], at: usize) -> Option<u64> {
    let bytes = record.get(at..at + 8)?;
    Some(u64::from_ne_bytes(bytes.try_into().ok()?))
}

/// An access, if it was to memory of a program; false if that is cut off.
fn access(fields: &[u8], each: &mut impl FnMut(Sample)) -> bool {
    let pid = fields.first_chunk().map(|pid| u32::from_ne_bytes(*pid));
    let addr = word(fields, 8);
    if let (Some(pid), Some(addr @ 1..)) = (pid, addr) {
        // The upper half of addresses is the kernel's.
        if addr >> 63 == 0 {
            each(Sample {
                pid,
                addr: addr as usize,
            });
        }
    }
    addr.is_some()
}

/// A length, and so many bytes.
fn raw_fields(fields: &[u8]) -> Option<&[u8]> {
    let (length, rest) = fields.split_first_chunk()?;
    rest.get(..u32::from_ne_bytes(*length) as usize)
}

/// Reads records: a type, flags, the length of all of it, and what the type says.
fn read(mut bytes: &[u8], mut each: impl FnMut(&[u8]) -> bool) -> Drained {
    let mut drained = Drained::default();
    while !bytes.is_empty() {
        let Some((record, rest)) = split(bytes) else {
            drained.malformed = true;
            break;
        };
        bytes = rest;
        let (kind, fields) = record.split_at(8);
        let is_whole = match u32::from_ne_bytes([kind[0], kind[1], kind[2], kind[3]]) {
            raw::PERF_RECORD_SAMPLE => {
                drained.samples += 1;
                each(fields)
            }
            raw::PERF_RECORD_LOST => add(&mut drained.lost, word(fields, 8)),
            raw::PERF_RECORD_LOST_SAMPLES => add(&mut drained.lost, word(fields, 0)),
            raw::PERF_RECORD_THROTTLE => add(&mut drained.throttled, Some(1)),
            _ => true,
        };
        drained.malformed |= !is_whole;
    }
    drained
}

fn add(sum: &mut u64, more: Option<u64>) -> bool {
    *sum = sum.saturating_add(more.unwrap_or(0));
    more.is_some()
}

/// The first record, and what follows.
fn split(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let size = usize::from(u16::from_ne_bytes(bytes.get(6..8)?.try_into().ok()?));
    (size >= 8).then(|| bytes.split_at_checked(size))?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u32, fields: &[u64]) -> Vec<u8> {
        let size = 8 + 8 * fields.len() as u16;
        let mut bytes = kind.to_ne_bytes().to_vec();
        bytes.extend(0_u16.to_ne_bytes());
        bytes.extend(size.to_ne_bytes());
        fields
            .iter()
            .for_each(|field| bytes.extend(field.to_ne_bytes()));
        bytes
    }

    fn sample(pid: u32, addr: u64) -> Vec<u8> {
        let mut ids = [pid.to_ne_bytes(), (pid + 1).to_ne_bytes()].concat();
        let whole = record(raw::PERF_RECORD_SAMPLE, &[0, addr]);
        ids.splice(0..0, whole[..8].to_vec());
        ids.extend(&whole[16..]);
        ids
    }

    fn all(bytes: &[u8]) -> (Vec<(u32, usize)>, Drained) {
        let mut samples = Vec::new();
        let mut push = |of: Sample| samples.push((of.pid, of.addr));
        let drained = read(bytes, |fields| access(fields, &mut push));
        (samples, drained)
    }

    #[test]
    fn samples_losses_and_throttling_are_read_and_the_rest_is_passed_over() {
        let bytes = [
            sample(7, 0x1000),
            record(raw::PERF_RECORD_LOST, &[1, 40]),
            record(raw::PERF_RECORD_THROTTLE, &[0, 0, 0]),
            // A type that came later, a kernel's address, and an operation without one.
            record(4711, &[1]),
            sample(7, u64::MAX - 5),
            sample(7, 0),
            record(raw::PERF_RECORD_LOST_SAMPLES, &[2]),
            sample(8, 0x2000),
        ];
        let (samples, drained) = all(&bytes.concat());
        assert_eq!(samples, [(7, 0x1000), (8, 0x2000)]);
        let expected = Drained {
            samples: 4,
            lost: 42,
            throttled: 1,
            malformed: false,
        };
        assert_eq!(drained, expected);
    }

    #[test]
    fn what_is_no_record_ends_the_reading() {
        let good = sample(7, 0x1000);
        let short = [&good[..6], &4_u16.to_ne_bytes()[..]].concat();
        let long = [&good[..6], &400_u16.to_ne_bytes()[..]].concat();
        for bad in [short, long, good[..23].to_vec(), vec![1]] {
            let (samples, drained) = all(&[good.clone(), bad, good.clone()].concat());
            assert_eq!(samples[0], (7, 0x1000));
            assert!(drained.malformed && samples.len() <= 2);
        }
        // One that is too short for its type is skipped alone.
        let empty = record(raw::PERF_RECORD_SAMPLE, &[1]);
        let (samples, drained) = all(&[empty, good].concat());
        assert!(drained.malformed && samples.len() == 1);
    }

    #[test]
    fn what_a_tracepoint_was_passed_is_as_long_as_it_says() {
        let fields = [&3_u32.to_ne_bytes()[..], &[1, 2, 3, 0]].concat();
        assert_eq!(raw_fields(&fields), Some(&[1, 2, 3][..]));
        assert_eq!(raw_fields(&fields[..6]), None);
        assert_eq!(raw_fields(&fields[..3]), None);
    }

    #[test]
    fn records_are_found_where_the_ring_begins_anew() {
        assert_eq!(parts(64, 0, 24), Some([0..24, 0..0]));
        assert_eq!(parts(64, 64 + 48, 64 + 72), Some([48..64, 0..8]));
        assert_eq!(parts(64, 128, 192), Some([0..64, 0..0]));
        assert_eq!(parts(64, 0, 65), None);
        // Positions count on past their own end.
        assert_eq!(parts(64, u64::MAX - 15, 8), Some([48..64, 0..8]));
        let (first, second) = (sample(7, 0x1000), sample(8, 0x2000));
        let mut ring = [0; 64];
        for (at, byte) in first.iter().chain(&second).enumerate() {
            ring[(40 + at) % 64] = *byte;
        }
        let found = parts(64, 40, 88).unwrap().map(|part| &ring[part]);
        assert_eq!(all(&found.concat()).0, [(7, 0x1000), (8, 0x2000)]);
    }

    #[test]
    fn the_kernel_reports_where_this_process_faults() {
        let cpus = crate::topology::parse::id_list(
            &std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap(),
        );
        let rings = cpus.unwrap().into_iter();
        let rings = rings.map(|cpu| Ring::open(&Event::page_faults(), Of::Cpu(cpu), 1, ADDRESSES));
        let mut rings = match rings.collect::<io::Result<Vec<Ring>>>() {
            Ok(rings) => rings,
            Err(error) => return println!("not run: page faults cannot be sampled: {error}"),
        };
        let page = rustix::param::page_size();
        let memory = vec![0_u8; 64 * page];
        let first = memory.as_ptr() as usize;
        let touched = first.next_multiple_of(page);
        let fault = || {
            // SAFETY: pages within the vector, which is all zeroes before and after.
            let ret = unsafe { libc::madvise(touched as *mut _, 32 * page, libc::MADV_DONTNEED) };
            assert_eq!(ret, 0);
            for at in (touched..touched + 32 * page).step_by(page) {
                // SAFETY: within the vector.
                unsafe { (at as *const u8).read_volatile() };
            }
        };
        fault();
        let mut found = std::collections::BTreeSet::new();
        for ring in &mut rings {
            ring.set_period(2).unwrap();
            let drained = ring.drain(|of| {
                if of.pid == std::process::id() && (touched..touched + 32 * page).contains(&of.addr)
                {
                    found.insert(of.addr / page);
                }
            });
            assert!(!drained.malformed);
        }
        assert_eq!(found.len(), 32);
        // A page holds 170 samples of 24 bytes. Of those that it has no room for the next one tells that it has.
        let mut ring = Ring::open(&Event::page_faults(), Of::Thread(0), 1, page).unwrap();
        let mut drain = || {
            (0..16).for_each(|_| fault());
            ring.drain(|_| {})
        };
        let (first, next) = (drain(), drain());
        assert!(first.samples <= 170 && first.lost == 0, "{first:?}");
        assert!(next.lost >= 512 - 170, "{next:?}");
    }
}

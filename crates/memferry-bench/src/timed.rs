// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a timed machine (docs/design/timed.md) answers to its guest: misses per page, and its totals. Any other machine executes
//! the call as a NOP, so the answer stays 0.

use std::io;
use std::ops::Range;

use memferry_linux::topology::Topology;

use crate::region::PAGE;
use crate::schema::gain::Truth;

/// The call reads and writes this block.
#[repr(C, align(64))]
struct Block([u64; 8]);

/// `block[0]` of a call.
#[derive(Clone, Copy)]
enum Command {
    Hello = 1,
    Watch = 2,
    Counts = 3,
    Truth = 4,
}

/// Words that the totals of a machine fit into, such as 256 CPUs with 8 nodes.
const MOST_WORDS: usize = 1 << 13;
/// No timed machine has as much memory. Its counts take a thousandth of that, where they are not 0.
const MOST_MEMORY: u64 = 1 << 36;
/// How often a call is made that the machine does not answer.
const TRIES: usize = 5;

fn call(command: Command, arguments: [u64; 3]) -> u64 {
    let [first, second, third] = arguments;
    // Written here, so the page of the stack is resident.
    let mut block = Block([command as u64, first, second, third, 0, 0, 0, 0]);
    execute(&mut block);
    block.0[7]
}

#[cfg(target_arch = "x86_64")]
fn execute(block: &mut Block) {
    // SAFETY: the instruction is `nopl 0x4d54464d(%rax)`, which accesses nothing. A timed machine reads and writes the block, and
    // the buffer that the block names, which is the caller's.
    unsafe {
        std::arch::asm!(
            ".byte 0x0f, 0x1f, 0x80, 0x4d, 0x46, 0x54, 0x4d",
            in("rdi") std::ptr::from_mut(block),
            options(nostack, preserves_flags)
        );
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn execute(_: &mut Block) {}

/// Whether the time of this machine is modelled.
pub fn is_here() -> bool {
    call(Command::Hello, [0; 3]) != 0
}

/// What a reader must know of times that no hardware took.
pub fn note(topology: &Topology) -> Option<String> {
    (topology.is_emulated() && is_here()).then(|| {
        "The time of this machine is modelled (docs/design/timed.md): nanoseconds are those of the model.".to_owned()
    })
}

/// Counts the misses of this process per page of a range from now on, from 0. An empty range ends it.
pub fn watch(range: &Range<usize>) {
    call(Command::Watch, [range.start as u64, range.len() as u64, 0]);
}

/// Counts the misses of each frame of memory from now on, from 0, whoever accesses it.
pub fn watch_frames() {
    call(Command::Watch, [0, MOST_MEMORY, 1]);
}

/// The misses of each page of a range that is watched, since the last time; of frames the range is that of their physical addresses.
///
/// # Errors
/// The buffer cannot be locked, or the machine does not answer.
pub fn misses(range: &Range<usize>) -> io::Result<Vec<u32>> {
    let mut counts = vec![1_u32; range.len() / PAGE];
    let pages = counts.len() as u64;
    let buffer = counts.as_mut_ptr() as u64;
    locked(&mut counts, || {
        call(Command::Counts, [range.start as u64, pages, buffer])
    })?;
    Ok(counts)
}

/// The totals of the machine since its start; none where time is not modelled.
pub fn truth() -> io::Result<Option<Truth>> {
    if !is_here() {
        return Ok(None);
    }
    let mut words = vec![1_u64; MOST_WORDS];
    let bytes = (MOST_WORDS * 8) as u64;
    let buffer = words.as_mut_ptr() as u64;
    let written = locked(&mut words, || call(Command::Truth, [buffer, bytes, 0]))?;
    let truth = words.get(..(written / 8) as usize).and_then(Truth::of);
    match truth {
        Some(truth) => Ok(Some(truth)),
        None => Err(io::Error::other("the timed machine is of another version")),
    }
}

/// Makes a call while its buffer cannot leave its pages.
fn locked<T: Copy>(buffer: &mut [T], make: impl Fn() -> u64) -> io::Result<u64> {
    let (start, bytes) = (buffer.as_ptr().cast(), size_of_val(buffer));
    // SAFETY: the range is the buffer's; locking changes neither contents nor addresses.
    if unsafe { libc::mlock(start, bytes) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut answer = 0;
    for _ in 0..TRIES {
        // A scan for hint faults may have hidden a page from the machine: writing brings it back.
        for value in buffer.iter_mut().step_by(PAGE / size_of::<T>()) {
            // SAFETY: the value is the buffer's. Volatile: the write must happen.
            unsafe { std::ptr::from_mut(value).write_volatile(*value) };
        }
        answer = make();
        if answer != 0 {
            break;
        }
    }
    // SAFETY: as above.
    unsafe { libc::munlock(start, bytes) };
    match answer {
        0 => Err(io::Error::other("the timed machine does not answer")),
        answer => Ok(answer),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_whose_time_is_its_own_answers_nothing() {
        assert!(!is_here());
        watch(&(0..0));
        assert!(misses(&(0..PAGE)).is_err());
        assert_eq!(truth().expect("no call fails"), None);
    }
}

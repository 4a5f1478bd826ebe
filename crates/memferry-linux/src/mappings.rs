// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which mappings of a process have a memory policy, are locked or are of hugetlbfs, by a BPF iterator: it reads a few fields of each.
//! numa_maps and smaps say it, too, but walk all pages of a mapping for it, under the lock that mmap(2) waits for.
//!
//! It takes CAP_BPF and CAP_PERFMON, or CAP_SYS_ADMIN, and a kernel with BTF.

use std::fs::File;
use std::io::{self, Read};
use std::mem::offset_of;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::btf::Btf;
use crate::check;

/// A mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Its addresses.
    pub range: Range<usize>,
    /// It has a policy of its own, its process has one, or a part of the shared memory that it maps does.
    pub has_policy: bool,
    /// mlock(2) and the like.
    pub is_locked: bool,
    /// It is of hugetlbfs.
    pub is_huge: bool,
}

/// Reads them.
#[derive(Debug)]
pub struct Mappings {
    program: OwnedFd,
}

// include/uapi/linux/bpf.h.
const PROG_LOAD: libc::c_int = 5;
const LINK_CREATE: libc::c_int = 28;
const ITER_CREATE: libc::c_int = 33;
const TRACING: u32 = 26;
const TRACE_ITER: u32 = 28;
const PROBE_READ_KERNEL: i32 = 113;
const SEQ_WRITE: i32 = 127;
// Bits of vm_flags, and of f_type of tmpfs, which is what shared memory is in.
const LOCKED: u64 = 0x2000;
const HUGE: u64 = 0x40_0000;
const TMPFS: i32 = 0x0102_1994;
/// What the program writes of each mapping: its addresses, its flags, and whether it has a policy.
const RECORD: usize = 32;

/// The project's MIT in the words that the kernel takes: its helpers are for programs under a licence that the GPL allows.
const LICENSE: &std::ffi::CStr = c"Dual MIT/GPL";

/// The start of `union bpf_attr` of PROG_LOAD, as of Linux 5.11.
#[repr(C)]
#[derive(Default)]
struct Load {
    kind: u32,
    instructions: u32,
    first: u64,
    license: u64,
    log: [u64; 2],
    version_and_flags: [u32; 2],
    name: [u8; 16],
    interface: u32,
    attach: u32,
    debug: [u32; 9],
    attach_to: u32,
    attach_program: [u32; 2],
}
const _: () = assert!(offset_of!(Load, attach) == 68 && offset_of!(Load, attach_to) == 108);

/// That of LINK_CREATE, of which the iterator has its thread as `struct bpf_iter_link_info`, `tid` first.
#[repr(C)]
#[derive(Default)]
struct Link {
    program: u32,
    target: u32,
    attach: u32,
    flags: u32,
    iterator: u64,
    iterator_length: u32,
    reserved: u32,
}

fn bpf<T>(command: libc::c_int, attr: &T) -> io::Result<OwnedFd> {
    // SAFETY: the kernel reads so many bytes of `attr`, and what it points to, which the callers keep.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, command, &raw const *attr, size_of::<T>()) };
    let fd = i32::try_from(check(fd)?).map_err(io::Error::other)?;
    // SAFETY: a new descriptor of nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

impl Mappings {
    /// Loads the program.
    ///
    /// # Errors
    /// The kernel has no BTF or not the fields that are asked for, or this process lacks the rights.
    pub fn load() -> io::Result<Mappings> {
        let btf = Btf::parse(std::fs::read("/sys/kernel/btf/vmlinux")?)?;
        let program = program(&btf)?;
        let mut name = [0; 16];
        name[..8].copy_from_slice(b"memferry");
        let attr = Load {
            kind: TRACING,
            instructions: u32::try_from(program.len()).map_err(io::Error::other)?,
            first: program.as_ptr() as u64,
            license: LICENSE.as_ptr() as u64,
            name,
            attach: TRACE_ITER,
            attach_to: btf.function("bpf_iter_task_vma")?,
            ..Load::default()
        };
        let program = bpf(PROG_LOAD, &attr)?;
        Ok(Mappings { program })
    }

    /// The mappings of a process, ascending; none if it has ended.
    ///
    /// # Errors
    /// The kernel has no memory for it.
    pub fn of(&self, pid: u32) -> io::Result<Vec<Mapping>> {
        let descriptor = |of: &OwnedFd| of.as_raw_fd().unsigned_abs();
        let thread = [pid, 0, 0];
        let link = bpf(
            LINK_CREATE,
            &Link {
                program: descriptor(&self.program),
                attach: TRACE_ITER,
                iterator: thread.as_ptr() as u64,
                iterator_length: size_of_val(&thread) as u32,
                ..Link::default()
            },
        )?;
        let mut iterator = File::from(bpf(ITER_CREATE, &[descriptor(&link), 0])?);
        let mut mappings: Vec<Mapping> = Vec::new();
        let mut bytes = vec![0; 1024 * RECORD];
        loop {
            let got = iterator.read(&mut bytes)?;
            let before = mappings.len();
            for record in bytes[..got].chunks_exact(RECORD) {
                let mapping = mapping(record);
                // Behind the end Linux 6.18 begins with the last ones again. One that grew between two reads goes on.
                if (mappings.last()).is_some_and(|last| mapping.range.end <= last.range.end) {
                    return Ok(mappings);
                }
                mappings.push(mapping);
            }
            if mappings.len() == before {
                return Ok(mappings);
            }
        }
    }
}

fn mapping(record: &[u8]) -> Mapping {
    let word = |index: usize| {
        let word = record[8 * index..8 * index + 8].try_into();
        word.map_or(0, u64::from_ne_bytes)
    };
    let [start, end, flags, policy] = [0, 1, 2, 3].map(word);
    Mapping {
        range: start as usize..end as usize,
        has_policy: policy != 0,
        is_locked: flags & LOCKED != 0,
        is_huge: flags & HUGE != 0,
    }
}

/// Instructions as the kernel has them: code, registers, offset, immediate.
#[derive(Default)]
struct Assembler {
    instructions: Vec<[u8; 8]>,
    /// Jumps that are to go to the next [`Assembler::land`] of their number.
    jumps: Vec<(usize, u8)>,
}

const CONTEXT: u8 = 6;
const MAPPING: u8 = 7;
const POLICY: u8 = 8;
const STACK: u8 = 10;

impl Assembler {
    fn add(&mut self, code: u8, to: u8, from: u8, offset: i32, immediate: i32) -> io::Result<()> {
        let [low, high] = i16::try_from(offset)
            .map_err(io::Error::other)?
            .to_ne_bytes();
        let registers = match cfg!(target_endian = "little") {
            true => to | from << 4,
            false => to << 4 | from,
        };
        let [a, b, c, d] = immediate.to_ne_bytes();
        self.instructions
            .push([code, registers, low, high, a, b, c, d]);
        Ok(())
    }

    fn read(&mut self, to: u8, from: u8, offset: i32) -> io::Result<()> {
        self.add(0x79, to, from, offset, 0)
    }

    fn write(&mut self, offset: i32, from: u8) -> io::Result<()> {
        self.add(0x7b, STACK, from, offset, 0)
    }

    fn copy(&mut self, to: u8, from: u8) -> io::Result<()> {
        self.add(0xbf, to, from, 0, 0)
    }

    fn set(&mut self, to: u8, value: i32) -> io::Result<()> {
        self.add(0xb7, to, 0, 0, value)
    }

    fn plus(&mut self, to: u8, value: i32) -> io::Result<()> {
        self.add(0x07, to, 0, 0, value)
    }

    fn call(&mut self, function: i32) -> io::Result<()> {
        self.add(0x85, 0, 0, 0, function)
    }

    fn jump_if(&mut self, code: u8, register: u8, value: i32, label: u8) -> io::Result<()> {
        self.jumps.push((self.instructions.len(), label));
        self.add(code, register, 0, 0, value)
    }

    fn jump_if_zero(&mut self, register: u8, label: u8) -> io::Result<()> {
        self.jump_if(0x15, register, 0, label)
    }

    fn jump_if_other(&mut self, register: u8, value: i32, label: u8) -> io::Result<()> {
        self.jump_if(0x55, register, value, label)
    }

    /// Jumps with this label come here.
    fn land(&mut self, label: u8) -> io::Result<()> {
        let here = self.instructions.len();
        let (landing, others) = (self.jumps.iter()).partition(|(_, of)| *of == label);
        self.jumps = others;
        let landing: Vec<(usize, u8)> = landing;
        for (at, _) in landing {
            let offset = i16::try_from(here - at - 1).map_err(io::Error::other)?;
            self.instructions[at][2..4].copy_from_slice(&offset.to_ne_bytes());
        }
        Ok(())
    }
}

/// Writes a [`RECORD`] of the mapping that it is called with.
fn program(btf: &Btf) -> io::Result<Vec<[u8; 8]>> {
    let of_mapping = |field| btf.offset("vm_area_struct", field);
    let root = btf.offset("shmem_inode_info", "policy.root.rb_node")?;
    let inode = btf.offset("shmem_inode_info", "vfs_inode")?;
    let (is_none, write, end) = (0, 1, 2);
    let mut to = Assembler::default();
    // The context is struct bpf_iter__task_vma: meta, task, vma.
    to.copy(CONTEXT, 1)?;
    to.read(MAPPING, CONTEXT, 16)?;
    to.jump_if_zero(MAPPING, end)?;
    to.read(1, CONTEXT, 8)?;
    to.jump_if_zero(1, end)?;
    to.set(POLICY, 0)?;
    to.read(1, 1, btf.offset("task_struct", "mempolicy")?)?;
    to.jump_if_zero(1, is_none)?;
    to.set(POLICY, 1)?;
    to.land(is_none)?;
    to.read(1, MAPPING, of_mapping("vm_policy")?)?;
    to.jump_if_zero(1, is_none)?;
    to.set(POLICY, 1)?;
    to.land(is_none)?;
    // Shared memory has its policies by range in its inode.
    to.read(1, MAPPING, of_mapping("vm_file")?)?;
    to.jump_if_zero(1, write)?;
    to.read(1, 1, btf.offset("file", "f_inode")?)?;
    to.jump_if_zero(1, write)?;
    to.read(2, 1, btf.offset("inode", "i_sb")?)?;
    to.jump_if_zero(2, write)?;
    to.read(2, 2, btf.offset("super_block", "s_magic")?)?;
    to.jump_if_other(2, TMPFS, write)?;
    to.copy(3, 1)?;
    to.plus(3, root - inode)?;
    to.copy(1, STACK)?;
    to.plus(1, -8)?;
    to.set(2, 8)?;
    to.call(PROBE_READ_KERNEL)?;
    to.read(1, STACK, -8)?;
    to.jump_if_zero(1, write)?;
    to.set(POLICY, 1)?;
    to.land(write)?;
    for (field, at) in [("vm_start", -32), ("vm_end", -24), ("vm_flags", -16)] {
        to.read(1, MAPPING, of_mapping(field)?)?;
        to.write(at, 1)?;
    }
    to.write(-8, POLICY)?;
    to.read(1, CONTEXT, 0)?;
    to.read(1, 1, btf.offset("bpf_iter_meta", "seq")?)?;
    to.copy(2, STACK)?;
    to.plus(2, -32)?;
    to.set(3, RECORD as i32)?;
    to.call(SEQ_WRITE)?;
    to.land(end)?;
    to.set(0, 0)?;
    to.add(0x95, 0, 0, 0, 0)?;
    Ok(to.instructions)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(length: usize, flags: libc::c_int, file: libc::c_int) -> usize {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), length, rights, flags, file, 0) };
        assert_ne!(at, libc::MAP_FAILED);
        at as usize
    }

    fn bind(at: usize, length: usize) {
        let nodes = 1_u64;
        // SAFETY: the kernel reads the mask of node 0; the mapping keeps its bytes.
        let done = unsafe {
            let bind = libc::MPOL_BIND;
            libc::syscall(libc::SYS_mbind, at, length, bind, &raw const nodes, 64, 0)
        };
        assert_eq!(done, 0, "{}", io::Error::last_os_error());
    }

    #[test]
    fn policies_and_locks_are_told_without_a_walk() {
        let mappings = match Mappings::load() {
            Ok(mappings) => mappings,
            Err(error) => return println!("not run: {error}"),
        };
        let length = 64 << 10;
        let private = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // Neighbours of one kind would be one mapping.
        let plain = map(3 * length, private, -1) + length;
        let [bound, locked] = [(); 2].map(|()| {
            let at = map(3 * length, private, -1) + length;
            // SAFETY: what lies beside it.
            unsafe {
                libc::munmap((at - length) as _, length);
                libc::munmap((at + length) as _, length);
            }
            at
        });
        bind(bound, length);
        // SAFETY: the mapping from above.
        assert_eq!(unsafe { libc::mlock(locked as _, length) }, 0);
        let shared = [(); 2].map(|()| {
            let file = rustix::fs::memfd_create("shared", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
            rustix::fs::ftruncate(&file, length as u64).unwrap();
            map(length, libc::MAP_SHARED, file.as_raw_fd())
        });
        bind(shared[1], length);
        let found = mappings.of(std::process::id()).unwrap();
        let find = |at: usize| {
            let of = found.iter().find(|of| of.range.contains(&at)).unwrap();
            (of.has_policy, of.is_locked, of.is_huge)
        };
        assert_eq!(find(plain), (false, false, false));
        assert_eq!(find(bound), (true, false, false));
        assert_eq!(find(locked), (false, true, false));
        assert_eq!(shared.map(|at| find(at).0), [false, true]);
        assert_eq!(mappings.of(u32::MAX >> 1).unwrap(), []);
    }
}

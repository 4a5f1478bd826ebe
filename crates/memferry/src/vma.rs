// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is mapped in a range, from /proc/PID/maps: whether it can be moved, and where its mappings begin and end.
//!
//! Since Linux 6.11 the file answers for single mappings (PROCMAP_QUERY). The text of all, which a program with thousands of
//! mappings would wait for in each move, is read where it does not.

use crate::error::{MoveError, Unmovable};
use crate::ranges::{self, common};
use crate::sys;
use crate::sys::list::{List, Pages, read_file};
use linux_raw_sys::general as raw;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::path::Path;

/// Of the kernel's uapi/linux/fs.h.
const PROCMAP_QUERY: rustix::ioctl::Opcode =
    rustix::ioctl::opcode::read_write::<raw::procmap_query>(b'f', 17);

/// One mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Vma {
    pub range: Range<usize>,
    pub read: bool,
    pub write: bool,
    pub exec: bool,
    /// Its pages are locked (mlock); `watch` finds out where there are pages.
    pub locked: bool,
    /// It is known to be watched for a move, so its pages may leave; `watch` finds out.
    pub watched: bool,
    /// Why its pages cannot be moved through userfaultfd, if they cannot.
    pub unmovable: Option<Unmovable>,
}

impl Vma {
    /// Reads one line of /proc/PID/maps; `None` for a line of another shape.
    fn parse(line: &[u8]) -> Option<Vma> {
        let mut fields = line.splitn(6, |&byte| byte == b' ');
        let mut text = || std::str::from_utf8(fields.next()?).ok();
        let (start, end) = text()?.split_once('-')?;
        let start = usize::from_str_radix(start, 16).ok()?;
        let end = usize::from_str_radix(end, 16).ok()?;
        let perms = text()?.as_bytes();
        let (_offset, _device) = (text()?, text()?);
        let inode: u64 = text()?.parse().ok()?;
        // Of a file it has whatever bytes the file's name has.
        let name = fields.next().unwrap_or_default().trim_ascii_start();
        let &[r, w, x, s, ..] = perms else {
            return None;
        };
        (start < end).then_some(Vma {
            range: start..end,
            read: r == b'r',
            write: w == b'w',
            exec: x == b'x',
            locked: false,
            watched: false,
            unmovable: unmovable(name, s == b's', inode),
        })
    }

    /// The mapping at `addr`, or the next one above it, as the open file of a process's maps says; `None` if there is none.
    fn query(maps: &File, addr: usize) -> io::Result<Option<Vma>> {
        use raw::procmap_query_flags as flag;
        let mut name = [0u8; libc::PATH_MAX as usize];
        // SAFETY: a structure of numbers, of which 0 leaves out what is not asked for.
        let mut query: raw::procmap_query = unsafe { std::mem::zeroed() };
        query.size = size_of_val(&query) as u64;
        query.query_flags = flag::PROCMAP_QUERY_COVERING_OR_NEXT_VMA as u64;
        query.query_addr = addr as u64;
        query.vma_name_size = name.len() as u32;
        query.vma_name_addr = name.as_mut_ptr().expose_provenance() as u64;
        // SAFETY: the kernel reads and writes one `procmap_query`, and at most as much of `name` as it is told.
        match sys::check(unsafe {
            libc::ioctl(maps.as_raw_fd(), PROCMAP_QUERY.into(), &raw mut query)
        }) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(None),
            other => other?,
        };
        let has = |what: flag| query.vma_flags & what as u64 != 0;
        // With the zero at its end.
        let name = &name[..(query.vma_name_size as usize).saturating_sub(1)];
        Ok(Some(Vma {
            range: query.vma_start as usize..query.vma_end as usize,
            read: has(flag::PROCMAP_QUERY_VMA_READABLE),
            write: has(flag::PROCMAP_QUERY_VMA_WRITABLE),
            exec: has(flag::PROCMAP_QUERY_VMA_EXECUTABLE),
            locked: false,
            watched: false,
            unmovable: unmovable(name, has(flag::PROCMAP_QUERY_VMA_SHARED), query.inode),
        }))
    }
}

fn unmovable(name: &[u8], shared: bool, inode: u64) -> Option<Unmovable> {
    let is = |starts: &[&str]| {
        starts
            .iter()
            .any(|start| name.starts_with(start.as_bytes()))
    };
    if is(&["/anon_hugepage", "/dev/hugepages"]) {
        Some(Unmovable::Hugetlb)
    } else if is(&["[v", "[uprobes", "[gate"]) || is(&["/dev/"]) && !is(&["/dev/zero", "/dev/shm"])
    {
        Some(Unmovable::Device)
    } else if shared {
        Some(Unmovable::Shared)
    } else {
        (inode != 0).then_some(Unmovable::File)
    }
}

fn hint(what: Unmovable) -> &'static str {
    match what {
        Unmovable::Unmapped => "give a range that is mapped as a whole",
        Unmovable::Shared | Unmovable::File => {
            "only anonymous private memory can be moved from userspace; on a machine with several nodes the \
             move_pages backend moves it"
        }
        Unmovable::Hugetlb => "the move_pages backend moves it on a machine with several nodes",
        Unmovable::Device => "it has to stay where it is",
    }
}

/// The mappings of this process that cover `range`, cut to it, ascending.
///
/// # Errors
/// When a part is unmapped or cannot be moved through userfaultfd; it names the first such part.
pub(crate) fn movable(maps: &Path, range: &Range<usize>) -> Result<List<Vma>, MoveError> {
    let all = all_movable(maps, std::slice::from_ref(range))?;
    Ok(cut(&all, range))
}

/// The mappings of this process that meet ascending ranges, whole and ascending, if what they have of `ranges` can be moved
/// through userfaultfd. There may be others among them.
///
/// # Errors
/// As `movable`.
pub(crate) fn all_movable(maps: &Path, ranges: &[Range<usize>]) -> Result<List<Vma>, MoveError> {
    all(maps, ranges, |vma| vma.unmovable)
}

fn all(
    maps: &Path,
    ranges: &[Range<usize>],
    unmovable: impl Fn(&Vma) -> Option<Unmovable>,
) -> Result<List<Vma>, MoveError> {
    let all = meeting(maps, ranges)?;
    for range in ranges {
        check(&all, range, &unmovable)?;
    }
    Ok(all)
}

/// The mappings of a process that meet ascending ranges, as `all_movable`, if move_pages(2) knows what they have of them.
///
/// # Errors
/// When a part is not mapped, or to a device; it names the first such part.
pub(crate) fn all_mapped(maps: &Path, ranges: &[Range<usize>]) -> Result<List<Vma>, MoveError> {
    let device = |vma: &Vma| vma.unmovable.filter(|&what| what == Unmovable::Device);
    all(maps, ranges, device)
}

/// The mappings that meet ascending ranges, ascending; others may be among them.
fn meeting(maps: &Path, ranges: &[Range<usize>]) -> Result<List<Vma>, MoveError> {
    queried(maps, ranges).or_else(|_| {
        let mut all = List::new_in(Pages);
        all.extend(parse(&read(maps)?));
        Ok(all)
    })
}

/// `meeting`, one by one; an error where the kernel cannot say it so.
fn queried(maps: &Path, ranges: &[Range<usize>]) -> io::Result<List<Vma>> {
    let maps = File::open(maps)?;
    let mut met: List<Vma> = List::new_in(Pages);
    for range in ranges {
        let mut at = met.last().map_or(0, |vma| vma.range.end).max(range.start);
        while at < range.end {
            let Some(vma) = Vma::query(&maps, at)? else {
                return Ok(met);
            };
            at = vma.range.end;
            met.push(vma);
        }
    }
    Ok(met)
}

/// What a process's maps say.
pub(crate) fn read(maps: &Path) -> Result<List<u8>, MoveError> {
    read_file(maps).map_err(MoveError::system(
        "reading the process's maps",
        "it needs the same user or ptrace access to the process, and /proc in this container",
    ))
}

/// The mappings that the lines of /proc/PID/maps tell of.
pub(crate) fn parse(text: &[u8]) -> impl Iterator<Item = Vma> {
    text.split(|&byte| byte == b'\n').filter_map(Vma::parse)
}

/// Those of ascending mappings that meet `range`.
fn met<'v>(vmas: &'v [Vma], range: &Range<usize>) -> &'v [Vma] {
    &vmas[ranges::meeting(vmas, |vma| &vma.range, range)]
}

/// The same, cut to it.
fn cut(vmas: &[Vma], range: &Range<usize>) -> List<Vma> {
    let mut cut = List::new_in(Pages);
    cut.extend(met(vmas, range).iter().map(|vma| Vma {
        range: common(&vma.range, range),
        ..vma.clone()
    }));
    cut
}

/// Refuses a range of which ascending mappings leave out or cannot move a part.
fn check(
    vmas: &[Vma],
    range: &Range<usize>,
    unmovable: impl Fn(&Vma) -> Option<Unmovable>,
) -> Result<(), MoveError> {
    let refuse = |range: Range<usize>, what| {
        let hint = hint(what);
        Err(MoveError::Unmovable { range, what, hint })
    };
    let mut covered = range.start;
    for vma in met(vmas, range) {
        if vma.range.start > covered {
            return refuse(covered..vma.range.start, Unmovable::Unmapped);
        }
        if let Some(what) = unmovable(vma) {
            return refuse(common(&vma.range, range), what);
        }
        covered = vma.range.end;
    }
    if covered < range.end {
        return refuse(covered..range.end, Unmovable::Unmapped);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MAPS: &[u8] = b"\
1000-3000 rw-p 00000000 00:00 0 
3000-5000 r--p 00000000 00:00 0                          [heap]
5000-6000 rw-s 00000000 00:01 77                         /dev/zero (deleted)
7000-9000 rw-p 00000000 08:01 12                         /usr/lib/a file \xff\xfe
9000-a000 rw-p 00000000 00:0f 5                          /anon_hugepage (deleted)
a000-b000 rw-s 00000000 00:06 9                          /dev/mem
";

    fn what(range: Range<usize>) -> (Range<usize>, Unmovable) {
        let vmas: Vec<Vma> = parse(MAPS).collect();
        match check(&vmas, &range, |vma| vma.unmovable) {
            Err(MoveError::Unmovable { range, what, .. }) => (range, what),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_first_part_that_cannot_be_moved_is_named() {
        assert_eq!(what(0x1000..0x6000), (0x5000..0x6000, Unmovable::Shared));
        assert_eq!(what(0x6000..0x7000), (0x6000..0x7000, Unmovable::Unmapped));
        assert_eq!(what(0x0..0x2000), (0x0..0x1000, Unmovable::Unmapped));
        assert_eq!(what(0x8000..0x9000), (0x8000..0x9000, Unmovable::File));
        assert_eq!(what(0x9000..0xa000), (0x9000..0xa000, Unmovable::Hugetlb));
        assert_eq!(what(0xa000..0xb000), (0xa000..0xb000, Unmovable::Device));
        assert_eq!(what(0xb000..0xc000), (0xb000..0xc000, Unmovable::Unmapped));
    }

    #[test]
    fn anonymous_memory_is_cut_to_the_range() {
        let (all, range): (Vec<Vma>, _) = (parse(MAPS).collect(), 0x2000..0x4000);
        check(&all, &range, |vma| vma.unmovable).unwrap();
        let vmas = cut(&all, &range);
        assert_eq!(
            vmas.iter().map(|v| v.range.clone()).collect::<Vec<_>>(),
            [0x2000..0x3000, 0x3000..0x4000]
        );
        assert!(vmas[0].write && !vmas[1].write);
    }

    /// Mappings of each kind, with a hole between them, and one that is the kernel's.
    #[test]
    fn the_kernel_says_of_each_mapping_what_its_text_says() {
        use crate::sys::memory::Mapping;
        let page = crate::sys::page_size();
        let memory = Mapping::new(8 * page, page).unwrap();
        let own = memory.range();
        let file = File::open("/proc/self/exe").unwrap();
        let at = |pages: usize| (own.start + pages * page) as *mut libc::c_void;
        let fixed = libc::MAP_FIXED | libc::MAP_PRIVATE;
        let shared = libc::MAP_FIXED | libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        // SAFETY: all of it is in the test's own mapping.
        unsafe {
            assert_eq!(libc::mprotect(at(1), page, libc::PROT_READ), 0);
            let mapped = libc::mmap(at(2), page, libc::PROT_READ, shared, -1, 0);
            assert_eq!(mapped, at(2));
            let (read, file) = (libc::PROT_READ | libc::PROT_EXEC, file.as_raw_fd());
            assert_eq!(libc::mmap(at(3), page, read, fixed, file, 0), at(3));
            assert_eq!(libc::munmap(at(5), page), 0);
        }
        // SAFETY: it reads the auxiliary vector.
        let vdso = unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) } as usize;
        let mut ranges = [own.clone(), vdso..vdso + 1];
        ranges.sort_by_key(|range| range.start);
        let maps = Path::new("/proc/self/maps");
        if !crate::known_faults::answers_for_mappings(&crate::sys::process::kernel_release()) {
            return;
        }
        let meets = |vma: &Vma| {
            let overlaps =
                |range: &Range<usize>| vma.range.start < range.end && range.start < vma.range.end;
            ranges.iter().any(overlaps)
        };
        let by_text = || -> Vec<Vma> { parse(&read(maps).unwrap()).filter(meets).collect() };
        // Other tests' threads map and unmap meanwhile, in the hole too: an answer counts where
        // the text was the same before and after it.
        let (answers, told) = (0..1000)
            .find_map(|_| {
                let before = by_text();
                let answers = queried(maps, &ranges).unwrap();
                (by_text() == before).then_some((answers, before))
            })
            .expect("the mappings change all the time");
        let answers: Vec<Vma> = answers.iter().filter(|vma| meets(vma)).cloned().collect();
        assert!(told.len() >= 6, "{told:?}");
        assert_eq!(answers, told);
        // Above all of them.
        let end = usize::MAX - page..usize::MAX;
        let none = queried(maps, std::slice::from_ref(&end)).unwrap();
        assert!(none.is_empty());
    }

    proptest! {
        #[test]
        fn any_line_is_read_or_refused(line: Vec<u8>) {
            let _ = Vma::parse(&line);
        }

        #[test]
        fn a_line_keeps_its_fields(start in 0usize..1 << 46, len in 1usize..1 << 40, inode: u64, name in "[a-z /]{0,20}") {
            let line = format!("{:x}-{:x} r-xp 0 08:01 {inode} {name}", start, start + len);
            let vma = Vma::parse(line.as_bytes()).unwrap();
            prop_assert_eq!(vma.range, start..start + len);
            let file = (inode != 0).then_some(Unmovable::File);
            let device = name.trim_start().starts_with("/dev/").then_some(Unmovable::Device);
            prop_assert_eq!(vma.unmovable, device.or(file));
            prop_assert!(vma.read && !vma.write && vma.exec);
        }
    }
}

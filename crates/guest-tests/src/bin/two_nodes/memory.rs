// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory to move, with contents that tell where each page belongs, and looks at it that do not use the library.

use memferry::{MoveOptions, MoveResult, Mover};
use std::fs::File;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd};

pub const PAGE: usize = 4096;
pub const THP: usize = 2 << 20;

const MPOL_PREFERRED: libc::c_int = 1;
const MPOL_BIND: libc::c_int = 2;
const NODES: usize = 1024;

/// A mapping, aligned to 2 MiB: anonymous and private unless it is made otherwise.
pub struct Region {
    whole: Range<usize>,
    addr: usize,
    len: usize,
}

impl Region {
    /// Maps `len` bytes; base pages only, or THPs.
    pub fn new(len: usize, huge: bool) -> Region {
        let region = Region::with_flags(len, 0);
        let advice = if huge {
            libc::MADV_HUGEPAGE
        } else {
            libc::MADV_NOHUGEPAGE
        };
        // SAFETY: the range is ours and holds nothing yet.
        let ret = unsafe { libc::madvise(region.addr as *mut _, len, advice) };
        assert_eq!(ret, 0, "madvise: {}", std::io::Error::last_os_error());
        region
    }

    /// Maps `len` bytes of anonymous memory with further mmap flags.
    pub fn with_flags(len: usize, flags: libc::c_int) -> Region {
        Region::map(len, libc::MAP_ANONYMOUS | flags, None)
    }

    /// Maps `len` bytes of a memfd, shared: what a virtual machine monitor has for its guest.
    pub fn memfd(len: usize) -> Region {
        // SAFETY: the name ends with zero, and the descriptor is new.
        let file = unsafe {
            let fd = libc::memfd_create(c"guest".as_ptr(), libc::MFD_CLOEXEC);
            assert!(fd >= 0, "memfd: {}", std::io::Error::last_os_error());
            File::from_raw_fd(fd)
        };
        Region::map(len, libc::MAP_SHARED, Some(file))
    }

    /// Maps `len` bytes of a file, private.
    pub fn file(len: usize) -> Region {
        let path = std::env::temp_dir().join(format!("region-{}", std::process::id()));
        let mut options = File::options();
        let file = options.read(true).write(true).create_new(true).open(&path);
        std::fs::remove_file(&path).unwrap();
        Region::map(len, libc::MAP_PRIVATE, Some(file.unwrap()))
    }

    fn map(len: usize, flags: libc::c_int, file: Option<File>) -> Region {
        let padded = len + 2 * THP;
        if let Some(file) = &file {
            file.set_len(padded as u64).unwrap();
        }
        let private = if flags & libc::MAP_SHARED == 0 {
            libc::MAP_PRIVATE
        } else {
            0
        };
        // SAFETY: a mapping at an address the kernel chooses overlaps nothing.
        let raw = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                padded,
                libc::PROT_READ | libc::PROT_WRITE,
                private | libc::MAP_NORESERVE | flags,
                file.as_ref().map_or(-1, File::as_raw_fd),
                0,
            )
        };
        assert_ne!(
            raw,
            libc::MAP_FAILED,
            "mmap: {}",
            std::io::Error::last_os_error()
        );
        let whole = raw as usize..raw as usize + padded;
        // The padding stays mapped and untouched, so that no neighbour joins.
        Region {
            addr: (whole.start + 1).next_multiple_of(THP),
            whole,
            len,
        }
    }

    /// Base pages on one node.
    pub fn on(node: u32, len: usize) -> Region {
        let region = Region::new(len, false);
        region.fill_on(node, 0);
        region
    }

    /// THPs on one node.
    pub fn huge_on(node: u32, len: usize) -> Region {
        let region = Region::new(len, true);
        region.fill_on(node, 0);
        assert_eq!(region.thp_bytes(), len, "the kernel gave no THPs");
        region
    }

    /// Writes every word, the first time, to pages of one node.
    pub fn fill_on(&self, node: u32, salt: u64) {
        allocate_on(Some(node));
        self.fill(salt);
        allocate_on(None);
        self.assert_on(node);
    }

    /// All of it goes to a node, in so many folios, and every word is what [`Region::fill`] wrote.
    pub fn assert_moves(
        &self,
        mover: &Mover,
        to: u32,
        options: &MoveOptions,
        folios: usize,
        salt: u64,
    ) {
        let result = mover.move_range(self.range(), to, options).unwrap();
        assert_all_moved(&result, self.len, folios);
        self.assert_on(to);
        self.verify(salt);
    }

    pub fn range(&self) -> Range<usize> {
        self.addr..self.addr + self.len
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn pages(&self) -> usize {
        self.len / PAGE
    }

    pub fn page(&self, index: usize) -> usize {
        assert!(index < self.pages());
        self.addr + index * PAGE
    }

    fn words(&self, page: usize) -> *mut u64 {
        self.page(page) as *mut u64
    }

    /// Writes every word of one page.
    pub fn fill_page(&self, page: usize, salt: u64) {
        for word in 0..PAGE / 8 {
            // SAFETY: the page is mapped and writable, and only this thread writes it.
            unsafe {
                self.words(page)
                    .add(word)
                    .write_volatile(pattern(page, word, salt))
            };
        }
    }

    /// Writes every word of the region.
    pub fn fill(&self, salt: u64) {
        (0..self.pages()).for_each(|page| self.fill_page(page, salt));
    }

    /// Compares every word of one page.
    pub fn verify_page(&self, page: usize, salt: u64) {
        for word in 0..PAGE / 8 {
            // SAFETY: the page is mapped and readable.
            let found = unsafe { self.words(page).add(word).read_volatile() };
            assert_eq!(found, pattern(page, word, salt), "page {page}, word {word}");
        }
    }

    /// Compares every word of the region.
    pub fn verify(&self, salt: u64) {
        (0..self.pages()).for_each(|page| self.verify_page(page, salt));
    }

    /// Where each page lies, by the kernel's word: node or -errno.
    pub fn nodes(&self) -> Vec<i32> {
        nodes_of(0, self.addr, self.pages())
    }

    /// Every page lies on `node`, or is absent.
    pub fn assert_on(&self, node: u32) {
        for (page, found) in self.nodes().into_iter().enumerate() {
            assert_eq!(found, node as i32, "page {page}");
        }
    }

    /// Bytes of the region that THPs map, from smaps.
    pub fn thp_bytes(&self) -> usize {
        let text = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let (mut inside, mut bytes) = (false, 0);
        for line in text.lines() {
            if let Some(mapping) = mapping_of(line) {
                inside = mapping.start < self.addr + self.len && self.addr < mapping.end;
            } else if let Some(value) = line.strip_prefix("AnonHugePages:").filter(|_| inside) {
                bytes += value
                    .trim()
                    .trim_end_matches(" kB")
                    .parse::<usize>()
                    .unwrap()
                    << 10;
            }
        }
        bytes
    }

    /// Physical frames of the pages, which root may see.
    pub fn frames(&self) -> Vec<u64> {
        use std::os::unix::fs::FileExt;
        let file = std::fs::File::open("/proc/self/pagemap").unwrap();
        let mut bytes = vec![0u8; self.pages() * 8];
        file.read_exact_at(&mut bytes, (self.addr / PAGE * 8) as u64)
            .unwrap();
        bytes
            .chunks_exact(8)
            .map(|entry| u64::from_ne_bytes(entry.try_into().unwrap()) & ((1 << 55) - 1))
            .collect()
    }

    /// The owner's memory policy: future pages of the region come from `node`.
    pub fn bind(&self, node: u32) {
        let mask = mask(node);
        // SAFETY: the kernel reads NODES bits of the mask.
        let ret = unsafe {
            libc::syscall(
                libc::SYS_mbind,
                self.addr,
                self.len,
                MPOL_BIND,
                mask.as_ptr(),
                NODES + 1,
                0,
            )
        };
        assert_eq!(ret, 0, "mbind: {}", std::io::Error::last_os_error());
    }

    /// Unmaps or empties parts, protects them, and so on: madvise on some pages.
    pub fn advise(&self, pages: Range<usize>, advice: libc::c_int) {
        let len = (pages.end - pages.start) * PAGE;
        // SAFETY: the pages are ours.
        let ret = unsafe { libc::madvise(self.page(pages.start) as *mut _, len, advice) };
        assert_eq!(ret, 0, "madvise: {}", std::io::Error::last_os_error());
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nobody uses it any more.
        unsafe {
            libc::munmap(
                self.whole.start as *mut _,
                self.whole.end - self.whole.start,
            )
        };
    }
}

fn pattern(page: usize, word: usize, salt: u64) -> u64 {
    let seed = (page as u64) << 20 | word as u64;
    (seed ^ salt << 48).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn mapping_of(line: &str) -> Option<Range<usize>> {
    let (start, end) = line.split_whitespace().next()?.split_once('-')?;
    Some(usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?)
}

fn mask(node: u32) -> [u64; NODES / 64] {
    let mut mask = [0; NODES / 64];
    mask[node as usize / 64] = 1 << (node % 64);
    mask
}

/// Where the next pages of this thread come from.
pub fn allocate_on(node: Option<u32>) {
    let mask = mask(node.unwrap_or(0));
    let (mode, mask, len) = match node {
        Some(_) => (MPOL_BIND, mask.as_ptr(), NODES + 1),
        None => (0, std::ptr::null(), 0),
    };
    // SAFETY: the kernel reads NODES bits of the mask.
    let ret = unsafe { libc::syscall(libc::SYS_set_mempolicy, mode, mask, len) };
    assert_eq!(ret, 0, "set_mempolicy: {}", std::io::Error::last_os_error());
}

/// Where pages of any process lie, by move_pages(2) without targets.
pub fn nodes_of(pid: i32, addr: usize, pages: usize) -> Vec<i32> {
    let addresses: Vec<usize> = (0..pages).map(|page| addr + page * PAGE).collect();
    let mut status = vec![i32::MIN; pages];
    // SAFETY: both arrays have `pages` entries.
    let ret = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            pid,
            pages,
            addresses.as_ptr(),
            std::ptr::null::<i32>(),
            status.as_mut_ptr(),
            0,
        )
    };
    assert_eq!(ret, 0, "move_pages: {}", std::io::Error::last_os_error());
    status
}

/// Takes the free memory of a node, down to where the kernel begins to look elsewhere.
pub fn fill_node(node: u32) -> Vec<Region> {
    const STEP: usize = 1 << 20;
    let mut taken = Vec::new();
    loop {
        let region = Region::new(STEP, false);
        let mask = mask(node);
        // SAFETY: the kernel reads NODES bits of the mask.
        let ret = unsafe {
            libc::syscall(
                libc::SYS_set_mempolicy,
                MPOL_PREFERRED,
                mask.as_ptr(),
                NODES + 1,
            )
        };
        assert_eq!(ret, 0, "set_mempolicy: {}", std::io::Error::last_os_error());
        region.fill(0);
        allocate_on(None);
        let elsewhere = region.nodes().iter().any(|&n| n != node as i32);
        if elsewhere {
            return taken;
        }
        taken.push(region);
    }
}

/// Pages of this process on one node, all mappings together, from numa_maps.
pub fn resident_on(node: u32) -> usize {
    let text = std::fs::read_to_string("/proc/self/numa_maps").unwrap();
    let key = format!("N{node}=");
    let count = |word: &str| {
        word.strip_prefix(&key)
            .and_then(|n| n.parse::<usize>().ok())
    };
    let pages: usize = text
        .lines()
        .filter(|line| line.contains(" anon="))
        .flat_map(|line| line.split_whitespace().filter_map(count))
        .sum();
    pages * PAGE
}

/// What to print of a result: all but the list of pages.
pub fn summary(result: &MoveResult) -> String {
    let mut short = result.clone();
    short.pages = None;
    format!("{short:?}")
}

/// Every byte of the range was looked at and is counted once.
pub fn assert_accounted(result: &MoveResult, bytes: usize) {
    let counted: u64 = memferry::Outcome::ALL
        .iter()
        .map(|&o| result.count(o).bytes)
        .sum();
    assert_eq!(
        (counted, result.cancelled_bytes),
        (bytes as u64, 0),
        "{}",
        summary(result)
    );
}

/// All of the region moved, in so many folios, and nothing else happened.
pub fn assert_all_moved(result: &MoveResult, bytes: usize, folios: usize) {
    assert_eq!(
        (result.moved.bytes, result.moved.folios, result.left_bytes()),
        (bytes as u64, folios as u64, 0),
        "{}",
        summary(result)
    );
    assert_accounted(result, bytes);
}

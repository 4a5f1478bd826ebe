// SPDX-License-Identifier: MIT OR Apache-2.0
//! What of a process's memory cannot be moved, in bytes that are in its page tables. A driver's registers have no pages, and count as none.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::Path;

use memferry_linux::pagemap::Pages;

use super::pool::{self, MAPPERS};
use super::{Kernel, without};
use crate::owner::Unmovable;
use crate::shared::Mapper;
use crate::tiering::ProcessId;

impl Kernel {
    /// By reason. Shared memory of one group is counted where that is looked at; what others share with the group counts for the largest
    /// of its processes that map it.
    pub(super) fn left_of(
        &mut self,
        root: &Path,
        process: ProcessId,
        pages: &Pages,
    ) -> io::Result<BTreeMap<Unmovable, u64>> {
        let mut left = BTreeMap::new();
        let shared = self.shared_by(process, &(0..usize::MAX));
        for (range, why) in self.owner(root, process)?.left.clone() {
            let bytes = left.entry(why).or_default();
            let mut add = |run: Range<usize>| *bytes += run.len() as u64;
            for range in without(std::iter::once(range), &shared) {
                pages.each_run(&range, &mut add)?;
            }
        }
        for of in self.shared.iter().filter(|of| of.group.is_none()) {
            let mut mappers = of.mappers.iter();
            let Some(own) = mappers.find(|of| of.process == process) else {
                continue;
            };
            let of_group = of.mappers.iter().filter(|of| of.group == own.group);
            let of_group: Vec<&Mapper> = of_group.take(MAPPERS).collect();
            if of_group.first().is_some_and(|of| of.process == process) {
                let lenders: Vec<_> = (of_group.iter())
                    .map(|of| (of.process, of.mappings.clone()))
                    .collect();
                let bytes = pool::bytes(&pool::present(root, &lenders));
                *left.entry(Unmovable::Shared).or_default() += bytes;
            }
        }
        Ok(left)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::rc::Rc;

    use super::*;
    use crate::hands::Hands;
    use crate::machine::Machine;
    use crate::machine::tests::tree;
    use crate::members;
    use crate::tiering::{CHUNK, Memory};

    /// A child with a locked mapping of its own and what it got from its parent, and a pool that the parent locks, or a stranger maps.
    #[test]
    fn what_cannot_be_moved_counts_once_with_its_reason() {
        let root = tree();
        // SAFETY: new mappings; the child touches and locks its own, tells so, and waits.
        let (pool, child, told) = unsafe {
            let rights = libc::PROT_READ | libc::PROT_WRITE;
            let map = |flags| {
                let at = libc::mmap(std::ptr::null_mut(), 2 * CHUNK, rights, flags, -1, 0);
                assert_ne!(at, libc::MAP_FAILED);
                at.cast::<u8>()
            };
            let private = map(libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            private.write_bytes(1, 2 * CHUNK);
            let pool = map(libc::MAP_SHARED | libc::MAP_ANONYMOUS);
            pool.write_bytes(2, 2 * CHUNK);
            let mut pipe = [0; 2];
            assert_eq!(libc::pipe(pipe.as_mut_ptr()), 0);
            let child = libc::fork();
            if child == 0 {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                let own = map(libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
                let locked = u8::from(libc::mlock(own.cast(), CHUNK) == 0);
                pool.write_bytes(3, CHUNK);
                libc::write(pipe[1], std::ptr::from_ref(&locked).cast(), 1);
                loop {
                    libc::pause();
                }
            }
            let mut told = 0_u8;
            assert_eq!(
                libc::read(pipe[0], std::ptr::from_mut(&mut told).cast(), 1),
                1
            );
            (pool, child, told)
        };
        assert_eq!(told, 1, "the child could lock its memory");
        let (pid, child) = (std::process::id(), child as u32);
        fs::create_dir_all(root.path().join("proc")).unwrap();
        for pid in [pid, child] {
            let link = root.path().join(format!("proc/{pid}"));
            std::os::unix::fs::symlink(format!("/proc/{pid}"), link).unwrap();
        }
        let inode = fs::read_to_string("/proc/self/maps").unwrap();
        let start = format!("{:x}-", pool as usize);
        let line = inode.lines().find(|line| line.starts_with(&start)).unwrap();
        let inode: u64 = line.split_whitespace().nth(4).unwrap().parse().unwrap();
        let find = |stranger: bool| {
            let group_of = |of| (!(stranger && of == pid)).then_some(0);
            let mut found = crate::shared::find(root.path(), group_of).unwrap();
            found.retain(|of| of.object.inode == inode);
            found
        };
        let (machine, mut hands) = (Machine::read(root.path()).unwrap(), Kernel::default());
        let start = members::start(root.path(), child).unwrap();
        let process = ProcessId { pid: child, start };
        let left = |hands: &mut Kernel, memory: Memory| {
            hands.look(&machine, memory).unwrap();
            let left = hands.unmovable(memory);
            assert_eq!(hands.unmovable(memory), BTreeMap::new(), "it was asked");
            left
        };
        let chunk = CHUNK as u64;
        // With a stranger the pool counts for the child; it has one half in its own page tables.
        hands.share(&Rc::from(find(true)));
        let of = left(&mut hands, process.into());
        assert_eq!(of.get(&Unmovable::Locked), Some(&chunk), "{of:?}");
        assert_eq!(of.get(&Unmovable::Shared), Some(&chunk), "{of:?}");
        assert!(of[&Unmovable::Copies] >= 2 * chunk, "{of:?}");
        // Of one group it counts where it is looked at, and only once somebody has locked it.
        let shared = find(false);
        let memory = Memory::Shared(shared[0].object);
        hands.share(&Rc::from(shared));
        let of = left(&mut hands, process.into());
        assert_eq!(of.get(&Unmovable::Shared), None, "{of:?}");
        assert_eq!(left(&mut hands, memory), BTreeMap::new());
        // SAFETY: the mapping from above.
        assert_eq!(unsafe { libc::mlock(pool.cast(), 2 * CHUNK) }, 0);
        let mut hands = Kernel::default();
        hands.share(&Rc::from(find(false)));
        let of = left(&mut hands, memory);
        assert_eq!(of, BTreeMap::from([(Unmovable::Locked, 2 * chunk)]));
        // SAFETY: the child and the mapping of above.
        unsafe {
            let bytes = std::slice::from_raw_parts(pool, 2 * CHUNK);
            assert!(bytes[..CHUNK].iter().all(|byte| *byte == 3));
            assert!(bytes[CHUNK..].iter().all(|byte| *byte == 2));
            libc::kill(child as i32, libc::SIGKILL);
            libc::waitpid(child as i32, std::ptr::null_mut(), 0);
        }
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! mbind(2), get_mempolicy(2) and move_pages(2): where pages come from, lie and go. Contents never change, and nothing here
//! allocates.

use crate::check;
use linux_raw_sys::mempolicy as raw;
use std::io;
use std::ops::Range;

/// Nodes a mask can name: the kernel's largest MAX_NUMNODES (1 << CONFIG_NODES_SHIFT, at most 10).
const MAX_NODES: usize = 1024;
const BITS: usize = usize::BITS as usize;

/// A node mask as the kernel reads it.
struct NodeMask([usize; MAX_NODES / BITS]);

impl NodeMask {
    fn of(node: u32) -> io::Result<NodeMask> {
        let node = node as usize;
        if node >= MAX_NODES {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let mut mask = [0; MAX_NODES / BITS];
        mask[node / BITS] |= 1 << (node % BITS);
        Ok(NodeMask(mask))
    }
}

/// Lets the future pages of a range come from one node as long as it has free ones, else from others
/// (MPOL_PREFERRED_MANY, Linux 5.15).
///
/// Not MPOL_BIND: when the node is full, the kernel would kill a process to make room, most likely this one.
///
/// # Errors
/// No such node, or the range is not mapped.
pub fn prefer(range: &Range<usize>, node: u32) -> io::Result<()> {
    mbind(
        range,
        raw::MPOL_PREFERRED_MANY as u32,
        Some(NodeMask::of(node)?),
    )
}

/// A range gets a policy, and with it nodes if it has some.
fn mbind(range: &Range<usize>, policy: u32, nodes: Option<NodeMask>) -> io::Result<()> {
    let (mask, bits) = match &nodes {
        Some(mask) => (mask.0.as_ptr(), MAX_NODES + 1),
        None => (std::ptr::null(), 0),
    };
    let (start, len) = (range.start, range.len());
    // SAFETY: the kernel reads MAX_NODES bits of the mask, if there is one; no contents change.
    check(unsafe { libc::syscall(libc::SYS_mbind, start, len, policy, mask, bits, 0) }).map(drop)
}

/// Takes the policy of a range back: its pages follow that of the task, as if there had never been another. NUMA balancing leaves
/// ranges with a policy of their own alone.
///
/// # Errors
/// The range is not mapped.
pub fn follow_task(range: &Range<usize>) -> io::Result<()> {
    mbind(range, raw::MPOL_DEFAULT as u32, None)
}

/// Whether this process may use the memory of a node: its cpuset can keep it away. If that cannot be told, it may.
pub fn is_allowed(node: u32) -> bool {
    let Ok(wanted) = NodeMask::of(node) else {
        return false;
    };
    let mut allowed = NodeMask([0; MAX_NODES / BITS]);
    // SAFETY: the kernel writes MAX_NODES bits of the mask.
    let told = check(unsafe {
        libc::syscall(
            libc::SYS_get_mempolicy,
            std::ptr::null_mut::<libc::c_int>(),
            allowed.0.as_mut_ptr(),
            MAX_NODES,
            0,
            raw::MPOL_F_MEMS_ALLOWED,
        )
    });
    told.is_err() || allowed.0.iter().zip(wanted.0).any(|(a, w)| a & w != 0)
}

/// move_pages(2): moves `pages` of process `pid` (0: this one) to `nodes`, or with `nodes` `None` only asks where they
/// are. `shared`: also pages that other processes map. Fills `status` with a node or -errno per page; returns the number
/// of pages that the kernel did not move. A folio goes whole: give one address of it.
///
/// # Panics
/// When the slices differ in length.
///
/// # Errors
/// What the kernel says of the call as a whole.
pub fn move_pages(
    pid: i32,
    pages: &[usize],
    nodes: Option<&[i32]>,
    status: &mut [i32],
    shared: bool,
) -> io::Result<usize> {
    assert!(
        pages.len() == status.len() && nodes.is_none_or(|n| n.len() == pages.len()),
        "one entry per page"
    );
    const MPOL_MF_MOVE: libc::c_int = 1 << 1;
    const MPOL_MF_MOVE_ALL: libc::c_int = 1 << 2;
    let flags = if shared {
        MPOL_MF_MOVE_ALL
    } else {
        MPOL_MF_MOVE
    };
    let nodes = nodes.map_or(std::ptr::null(), <[i32]>::as_ptr);
    // SAFETY: all three arrays have `pages.len()` entries; the kernel writes `status` only. The contents of the moved
    // pages stay.
    check(unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            pid,
            pages.len(),
            pages.as_ptr(),
            nodes,
            status.as_mut_ptr(),
            flags,
        )
    })
    .map(|left| left as usize)
}

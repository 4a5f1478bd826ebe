// SPDX-License-Identifier: MIT OR Apache-2.0
//! What Linux shows of a machine's memory, and what it lets be set: [`topology`] has nodes, tiers, CPUs and DMA channels,
//! [`kernel`] the batch migration and hot-page tracking of the kernel series; both are files below a root folder, so that tests
//! can hand in a tree of their own. [`cgroup`] tells what memory this process may have. [`numa`] has the system calls that place
//! pages, [`affinity`] those that place threads, [`perf`] samples addresses, [`pagemap`] tells which pages of a process are there, [`mappings`] which mappings have a policy, [`process`] whether
//! it is, [`zones`] what nodes have free, [`damon`] what to write for DAMON. [`give_way`] has the pauses of who looks at a process for long.

pub mod affinity;
mod btf;
pub mod cgroup;
pub mod damon;
pub mod give_way;
#[cfg(any(test, feature = "invented"))]
pub mod invented;
pub mod kernel;
pub mod mappings;
pub mod numa;
pub mod pagemap;
pub mod perf;
pub mod process;
pub mod topology;
pub mod zones;

/// What a system call returned, or why it failed.
fn check<T: Default + PartialOrd>(ret: T) -> std::io::Result<T> {
    match ret < T::default() {
        true => Err(std::io::Error::last_os_error()),
        false => Ok(ret),
    }
}

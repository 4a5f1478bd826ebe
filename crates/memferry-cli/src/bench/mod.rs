// SPDX-License-Identifier: MIT OR Apache-2.0
//! The three benchmarks: they measure and fill a [`BenchFile`], and print nothing but progress.
//!
//! Tables, JSON and the report are made elsewhere from what these return.

use crate::cli::bench::{Backend, CountArgs, MoveArgs, StallArgs};
use crate::failure::Failure;
use crate::schema::BenchFile;
use crate::ui::Ui;

/// `memferry bench move`: folio size by migrator and lanes.
pub fn run_move(_args: &MoveArgs, _ui: &Ui) -> Result<BenchFile, Failure> {
    Err(not_built("move"))
}

/// `memferry bench count`: the number of folios in one move.
pub fn run_count(_args: &CountArgs, _ui: &Ui) -> Result<BenchFile, Failure> {
    Err(not_built("count"))
}

/// `memferry bench stall`: how long accesses wait while their pages move.
pub fn run_stall(_args: &StallArgs, _ui: &Ui) -> Result<BenchFile, Failure> {
    Err(not_built("stall"))
}

/// Refuses the kernel's backend on a machine with `nodes` memory nodes, where nothing can move.
pub fn check_backend(backend: Backend, nodes: usize) -> Result<(), Failure> {
    if backend == Backend::User || nodes >= 2 {
        return Ok(());
    }
    Err(Failure::new(
        "the kernel backend cannot move pages here",
        format!("move_pages(2) moves between memory nodes, and this machine has {nodes}"),
        "use --backend user, which moves within one node, or a machine (or a guest started with \
         `-numa`) that has two nodes",
    ))
}

fn not_built(name: &str) -> Failure {
    Failure::new(
        format!("bench {name} is not built yet"),
        "this build of the command holds no benchmark code",
        "build a later version of memferry; `memferry report` already reads benchmark files",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_backend_needs_two_nodes() {
        assert!(check_backend(Backend::User, 1).is_ok());
        assert!(check_backend(Backend::Kernel, 2).is_ok());
        let text = check_backend(Backend::Kernel, 1)
            .expect_err("one node")
            .to_string();
        assert!(text.contains("--backend user"), "{text}");
    }
}

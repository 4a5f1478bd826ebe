// SPDX-License-Identifier: MIT OR Apache-2.0
//! `memferry topology`: prints what the library found out about the machine.

use crate::cli::TopologyArgs;
use crate::failure::Failure;

/// Prints the machine.
pub fn run(args: &TopologyArgs) -> Result<(), Failure> {
    let what = if args.copy {
        "topology --copy"
    } else {
        "topology"
    };
    Err(Failure::new(
        format!("{what} is not built yet"),
        if args.json {
            "this build of the command is not joined to the library's topology, so there is no JSON"
        } else {
            "this build of the command is not joined to the library's topology"
        },
        "build a later version of memferry; `lscpu` and `numactl -H` show part of it meanwhile",
    ))
}

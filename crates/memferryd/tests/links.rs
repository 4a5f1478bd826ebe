// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is linked into the program that runs as root.

use std::process::Command;

#[test]
fn neither_benches_nor_replay_run_as_root() {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(env!("CARGO_MANIFEST_DIR")).args([
        "tree",
        "--offline",
        "--package=memferryd",
        "--edges=normal",
        "--prefix=none",
    ]);
    let tree = cargo.output().expect("cargo");
    let tree = String::from_utf8(tree.stdout).expect("UTF-8");
    assert!(tree.contains("memferry-daemon v"), "{tree}");
    for crate_name in ["memferry-bench", "memferry-replay", "memferry-cli"] {
        assert!(!tree.contains(crate_name), "{crate_name}: {tree}");
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compiles the C core, freestanding as in the kernel, and beside it the table of layouts
//! that the tests compare the Rust declarations with.

use std::path::{Path, PathBuf};

fn main() {
    // Asked now, not when this was compiled: two checkouts may share a target folder.
    let package = std::env::var("CARGO_MANIFEST_DIR").expect("cargo names the package's folder");
    let core = Path::new(&package).join("../../core");
    println!("cargo:rerun-if-changed={}", core.display());

    compiler(&core)
        .files(sources(&core))
        .compile("memferry_core");
    wider_planes(&core);
    // Linked by the unit tests only, so no link line for everybody.
    compiler(&core)
        .file(core.join("layout_test.c"))
        .cargo_metadata(false)
        .compile("memferry_core_layout");

    // The tests compile the core again, in other ways, for the same machine.
    let target = std::env::var("TARGET").expect("cargo names the target");
    println!("cargo:rustc-env=MEMFERRY_TARGET={target}");
}

/// The passes over planes once more for each width of register that an x86-64 may have, with the width in the functions'
/// names; `hotness` chooses among them when it runs.
fn wider_planes(core: &Path) {
    if std::env::var("CARGO_CFG_TARGET_ARCH").as_deref() != Ok("x86_64") {
        return;
    }
    let avx512 = [
        "-mavx512f",
        "-mavx512bw",
        "-mavx512vl",
        "-mprefer-vector-width=512",
    ];
    let counts_ones = [&avx512[..], &["-mavx512vpopcntdq"]].concat();
    let widths = [
        ("avx2", &["-mavx2"][..]),
        ("avx512", &avx512),
        ("avx512_popcnt", &counts_ones),
    ];
    for (width, flags) in widths {
        let mut build = compiler(core);
        for name in ["sweep", "count"] {
            let renamed = format!("ferry_hot8_{name}_{width}");
            build.define(&format!("ferry_hot8_{name}"), renamed.as_str());
        }
        build
            .flags(flags)
            .file(core.join("hotness_planes.c"))
            .compile(&format!("memferry_core_{width}"));
    }
}

/// The C files of the core; those named `*_test.c` are not part of it.
fn sources(core: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(core)
        .unwrap_or_else(|error| panic!("cannot list the core in {}: {error}", core.display()));
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.expect("a readable entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "c"))
        .filter(|path| !path.to_string_lossy().ends_with("_test.c"))
        .collect();
    files.sort();
    files
}

fn compiler(core: &Path) -> cc::Build {
    let mut build = cc::Build::new();
    build
        .include(core.join("include"))
        .std("c11")
        .flag("-ffreestanding")
        .warnings(true)
        .extra_warnings(true)
        .warnings_into_errors(true)
        .flags(["-Wconversion", "-Wmissing-prototypes", "-Wshadow"]);
    // A policy that decides in microseconds in tests too: batches there are large.
    if std::env::var("OPT_LEVEL").as_deref() == Ok("0") {
        build.opt_level(1);
    }
    build
}

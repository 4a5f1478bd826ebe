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
    // Linked by the unit tests only, so no link line for everybody.
    compiler(&core)
        .file(core.join("layout_test.c"))
        .cargo_metadata(false)
        .compile("memferry_core_layout");

    // The tests compile the core again, in other ways, for the same machine.
    let target = std::env::var("TARGET").expect("cargo names the target");
    println!("cargo:rustc-env=MEMFERRY_TARGET={target}");
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

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names the shared library, and keeps it in memory once it is loaded: threads and handlers of pthread_atfork run in it.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libmemferry.so.0,-z,nodelete");
    // The tests compile C programs for the same machine.
    let target = std::env::var("TARGET").expect("cargo names the target");
    println!("cargo::rustc-env=MEMFERRY_TARGET={target}");
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names the shared library, and keeps it in memory once it is loaded: threads and handlers of pthread_atfork run in it.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let major = env!("CARGO_PKG_VERSION_MAJOR");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libmemferry.so.{major},-z,nodelete");
    // The tests compile C programs for the same machine.
    let target = std::env::var("TARGET").expect("cargo names the target");
    println!("cargo::rustc-env=MEMFERRY_TARGET={target}");
}

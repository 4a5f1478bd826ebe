#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# Runs tests under a checker: ci/sanitize.sh address|thread|miri [cargo test's arguments]
#
# address  AddressSanitizer and LeakSanitizer over the library and the C interface, tests that move pages included: moves
#          keep addresses and contents, and the sanitizer's own memory is elsewhere. The standard library is not
#          instrumented (only what is inlined from it), nor is the C core here: its own tests run it under sanitizers.
# thread   ThreadSanitizer over the library's own threads and locks. It must see every lock, and those of std are in
#          std: with the std that rustup ships, the tests of `workers` give 31 reports, each of data that a lock of std
#          guards or of the test harness. Suppressions for these would hide the races that are looked for. So it needs std's sources (rustup component rust-src, Debian package rust-src of the same version) and
#          builds std instrumented. It leaves out whatever moves pages: the kernel carries bytes from one address to
#          another, which the sanitizer cannot see. The pipeline's locks are model-checked by the ordinary tests.
# miri     What is Rust alone: no C core, no system calls that miri lacks. Needs a toolchain with miri.
#
# Exit status: as cargo's; 77 when the checker is not there and nothing ran, which is no pass; 2 for wrong usage.
# On a stable toolchain RUSTC_BOOTSTRAP opens the unstable flags, for these builds only.
set -eu
cd "$(dirname "$0")/.."

mode=${1-}
[ $# -eq 0 ] || shift
host=$(rustc -vV | sed -n 's/^host: //p')
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/sanitize-$mode"

did_not_run() {
    echo "$mode: NOT RUN: $1" >&2
    exit 77
}

case $mode in
address)
    export RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Zsanitizer=address"
    cargo test -p memferry --lib --tests --target "$host" "$@"
    # Its other tests build libraries for C programs, which lack the sanitizer's runtime. The one that is left out leaks
    # what a second panic carries, on purpose.
    cargo test -p memferry-c --lib --target "$host" "$@" -- --skip a_payload_that_panics
    ;;
thread)
    [ -f "$(rustc --print sysroot)/lib/rustlib/src/rust/library/std/src/lib.rs" ] ||
        did_not_run "std's sources are missing; try: rustup component add rust-src"
    export RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Zsanitizer=thread"
    cargo test -Zbuild-std -p memferry --lib --target "$host" "$@" -- \
        workers:: schedule:: forkgate:: pool:: hotness:: neighbouring_ranges
    cargo test -Zbuild-std -p memferry-c --lib --target "$host" "$@" -- --skip through_pointers
    ;;
miri)
    cargo miri --version >/dev/null 2>&1 ||
        did_not_run "this toolchain has no miri; try: cargo +nightly miri, with rustup component add miri rust-src"
    export MIRIFLAGS="-Zmiri-disable-isolation" PROPTEST_CASES=4
    cargo miri test -p memferry-linux --lib "$@" -- topology::tests::parse
    cargo miri test -p memferry --lib "$@" -- vma:: pipeline::batch:: migrator::tests::fill \
        migrator::tests::spread migrator::tests::only_allowed
    cargo miri test -p memferry-c --lib "$@" -- --skip through_pointers
    ;;
*)
    echo "usage: ci/sanitize.sh address|thread|miri [arguments of cargo test]" >&2
    exit 2
    ;;
esac

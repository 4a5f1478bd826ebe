#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# setup.sh [tests]: makes sure of cargo and a C compiler; for the tests, of what they need, too. install.sh says when it
# installs what is missing.
set -eu

missing=
command -v cc >/dev/null 2>&1 || missing="$missing gcc libc6-dev"
if [ "${1:-}" = tests ]; then
    # They compile the C header as C++ too.
    command -v c++ >/dev/null 2>&1 || missing="$missing g++"
    # They look into the objects that the compiler made.
    command -v nm >/dev/null 2>&1 || missing="$missing binutils"
    # They ask it for the flags of the installed library.
    command -v pkg-config >/dev/null 2>&1 || missing="$missing pkg-config"
    # They record what a command accesses.
    command -v valgrind >/dev/null 2>&1 || missing="$missing valgrind libc6-dbg"
fi

# shellcheck disable=SC2086 # a list of packages
[ -z "$missing" ] || "$(dirname "$0")/install.sh" $missing

if ! command -v cargo >/dev/null 2>&1; then
    echo "missing: cargo 1.85 or newer; Debian 13 has it: sudo apt-get install -y cargo make; elsewhere take rustup" >&2
    exit 1
fi
version=$(cargo --version | cut -d' ' -f2)
oldest=$(printf '%s\n1.85.0\n' "$version" | sort -V | head -n1)
if [ "$oldest" != 1.85.0 ]; then
    echo "cargo $version is too old: 1.85 or newer is needed: that of Debian 13, or of rustup" >&2
    exit 1
fi

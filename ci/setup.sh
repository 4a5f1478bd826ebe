#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# setup.sh [tests]: makes sure of cargo and a C compiler; for the tests, of what they need, too. As root on
# Debian it installs what is missing if it may: in CI, with YES=1, or once a person at the terminal agrees. Otherwise it
# prints the one line that does.
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

if [ -n "$missing" ]; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        echo "missing packages, to be installed with apt-get:$missing"
        if [ "${YES:-}" != 1 ] && [ -z "${CI:-}" ]; then
            if [ ! -t 0 ]; then
                echo "nothing was installed: run it again with YES=1, or run: apt-get install -y$missing" >&2
                exit 1
            fi
            printf 'Install them now? [y/N] '
            read -r answer || answer=
            case $answer in [yY]*) ;; *) echo "nothing was installed" >&2; exit 1 ;; esac
        fi
        # Servers that do not answer are asked again, and other runs of apt waited for.
        patient="-o Acquire::Retries=5 -o DPkg::Lock::Timeout=600"
        # shellcheck disable=SC2086 # lists of options and packages
        install() {
            apt-get update -qq $patient
            DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $patient $missing >/dev/null
        }
        # A list that could not be fetched is a warning to apt, and a package that is not in it an error.
        install || install
    else
        echo "missing:$missing; run: sudo apt-get install -y$missing" >&2
        exit 1
    fi
fi

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

#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# setup.sh [tests] [promtool] [deb] [test-deb] [test-kubernetes]: makes sure of cargo and a C compiler; for the tests, for Debian
# packages and for the tests of those, and of the chart, of what they need, too. install.sh says when it installs what is missing.
set -eu

missing=
need() { # COMMAND PACKAGES
    command -v "$1" >/dev/null 2>&1 || missing="$missing $2"
}
need cc 'gcc libc6-dev'
for what; do
    case $what in
        tests)
            # They compile the C header as C++ too.
            need c++ g++
            # They look into the objects that the compiler made.
            need nm binutils
            # They ask it for the flags of the installed library.
            need pkg-config pkg-config
            # They record what a command accesses.
            need valgrind 'valgrind libc6-dbg'
            ;;
        # It checks the metrics and the rules.
        promtool) need promtool prometheus ;;
        deb) need dpkg-shlibdeps dpkg-dev ;;
        test-deb)
            need lintian lintian
            need systemd-analyze systemd
            # They boot Debian 13 with the package.
            need mmdebstrap mmdebstrap
            need cpio cpio
            need qemu-system-x86_64 qemu-system-x86
            need pkg-config pkg-config
            # It stands for root.
            [ "$(id -u)" = 0 ] || need fakeroot fakeroot
            ;;
        test-kubernetes)
            # Debian 13 has an older one than go.mod asks for.
            if ! command -v go >/dev/null 2>&1; then
                echo "missing: Go 1.26 or newer, from https://go.dev/dl; it fetches its modules itself" >&2
                exit 1
            fi
            ;;
    esac
done

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

#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# install.sh PACKAGE...: installs Debian packages that are missing, if it may: as root on Debian in CI, with YES=1, or once
# a person at the terminal agrees. Otherwise it prints the one line that does, and fails.
set -eu

line="apt-get install -y --no-install-recommends $*"
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
    echo "missing: $*; run: sudo $line" >&2
    exit 1
fi
echo "missing packages, to be installed with apt-get: $*" >&2
if [ "${YES:-}" != 1 ] && [ -z "${CI:-}" ]; then
    if [ ! -t 0 ]; then
        echo "nothing was installed: run it again with YES=1, or run: $line" >&2
        exit 1
    fi
    printf 'Install them now? [y/N] ' >&2
    read -r answer || answer=
    case $answer in [yY]*) ;; *) echo "nothing was installed" >&2; exit 1 ;; esac
fi
# Servers that do not answer are asked again, and other runs of apt waited for.
patient="-o Acquire::Retries=5 -o DPkg::Lock::Timeout=600"
# shellcheck disable=SC2086 # a list of options
install() {
    apt-get update -qq $patient
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $patient "$@" >/dev/null
}
# A list that could not be fetched is a warning to apt, and a package that is not in it an error.
install "$@" || install "$@"

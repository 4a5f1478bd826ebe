#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# Compiles everything, tests included, with the oldest compiler that is supported: rustc and cargo of Debian 13.
#
# apt fetches them and what they need with lists of its own, and they are unpacked below ~/.cache/memferry: this
# machine's packages and sources stay as they are, and nobody has to be root. Linker and C compiler are this machine's.
#
# Exit status: as cargo's; 77 when the compiler is not there and nothing was compiled, which is no pass.
set -eu
cd "$(dirname "$0")/.."

did_not_run() {
    echo "oldest compiler: NOT RUN: $1. With rustup instead:" \
        "rustup toolchain install 1.85 && cargo +1.85 test --workspace --locked --no-run" >&2
    exit 77
}

command -v apt-get >/dev/null || did_not_run "apt-get is missing, so its packages cannot be fetched"
keys=/usr/share/keyrings/debian-archive-keyring.gpg
[ -f "$keys" ] || did_not_run "Debian's keys are missing; try: apt-get install debian-archive-keyring"

cache=${MEMFERRY_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/memferry}/oldest
mkdir -p "$cache" && cache=$(cd "$cache" && pwd)
work=$(mktemp -d "$cache/fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
mkdir -p "$work/lists/partial" "$work/debs/partial" "$work/root"

# The mirror of this machine, if its own packages come from Debian.
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep -m1 '/debian/$') ||
    mirror=http://deb.debian.org/debian/
echo "deb [arch=$(dpkg --print-architecture) signed-by=$keys] $mirror trixie main" >"$work/sources.list"
# Where nothing is installed, all that they need is fetched.
: >"$work/status"
export APT_CONFIG="$work/apt.conf"
cat >"$APT_CONFIG" <<END
Dir { Etc { sourcelist "$work/sources.list"; sourceparts "-"; }; State { lists "$work/lists"; status "$work/status"; };
      Cache::archives "$work/debs"; };
Acquire { Retries "5"; Languages "none"; };
APT::Sandbox::User "root";
END
apt-get update -qq || did_not_run "apt cannot read trixie at $mirror; is the mirror reachable, and are its keys known?"
version=$(apt-cache show --no-all-versions cargo | sed -n 's/^Version: //p')
[ -n "$version" ] || did_not_run "there is no cargo in trixie at $mirror; try another mirror in apt's sources"

root=$cache/$version
if [ ! -d "$root" ]; then
    apt-get install -qq --download-only --no-install-recommends cargo >/dev/null ||
        did_not_run "cargo $version could not be fetched from $mirror; try again"
    for deb in "$work"/debs/*.deb; do dpkg -x "$deb" "$work/root"; done
    # They need the C library that they were linked with, which its own loader starts.
    loader=$(cd "$work/root" && echo usr/lib/*/ld-linux*.so.*)
    printf '#!/bin/sh\nr=$(dirname "$0")\nexec "$r/%s" --library-path "$r/%s" "$r/usr/bin/${0##*/}" "$@"\n' \
        "$loader" "${loader%/*}" | tee "$work/root/rustc" >"$work/root/cargo"
    chmod +x "$work/root/rustc" "$work/root/cargo"
    mv "$work/root" "$root"
fi
CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/oldest" RUSTC="$root/rustc" "$root/cargo" test --workspace --locked --no-run

#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# test-deb.sh PACKAGES COMMAND DAEMON SHARED ARCHIVE: tests the packages that deb.sh left in the folder PACKAGES. lintian finds no
# error and no warning, and systemd-analyze a unit whose exposure is at most 3.0 of 10. dpkg installs them below a temporary
# root, upgrades them to packages of a later revision, removes and purges them; this machine's own packages stay as they are.
#
# Whatever it needs and does not find makes it fail.
set -eu

[ $# = 5 ] || { echo "usage: test-deb.sh PACKAGES COMMAND DAEMON SHARED ARCHIVE" >&2; exit 2; }
# dpkg gives files to root.
[ "$(id -u)" = 0 ] || exec fakeroot "$0" "$@"
PATH=$PATH:/usr/sbin:/sbin
packages=$1
shift
packaging=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
    echo "packages: $*" >&2
    exit 1
}
for tool in lintian systemd-analyze pkg-config cc; do
    command -v "$tool" >/dev/null || fail "$tool is missing, so they are not tested; install it"
done

lintian --allow-root --fail-on error,warning "$packages"/*.deb
systemd-analyze security --offline=true --threshold=30 "$packaging/memferry.service" >"$work/exposure" ||
    fail "the unit is exposed too much: $(cat "$work/exposure")"
tail -n1 "$work/exposure"

# A root in which dpkg finds what they depend on.
root=$work/root
state=$root/var/lib/dpkg
mkdir -p "$state/info" "$state/updates"
for package in "$packages"/*.deb; do
    dpkg-deb --field "$package" Depends | tr ',' '\n' | sed 's/^ *//; s/ .*//; /memferry/d'
done | sort -u | xargs dpkg-query --status >"$state/status"
dpkg() {
    command dpkg --root="$root" --log=/dev/null --force-script-chrootless --path-include='/*' "$@" </dev/null
}
files() {
    find "$root" -path "$state" -prune -o ! -type d -printf '%P\n' | sort
}
is_version() { # PACKAGES
    package=$(echo "$1"/memferry_*.deb)
    installed=$(dpkg-query --admindir="$state" --show --showformat='${Version} ${db:Status-Status}' memferry)
    [ "$installed" = "$(dpkg-deb --field "$package" Version) installed" ] || fail "$package was installed, and there is $installed"
}
names='memferry libmemferry-dev libmemferry0'
before=$(files)

dpkg --install "$packages"/*.deb
is_version "$packages"
# shellcheck disable=SC2086 # a list of names
wrong=$(dpkg --verify $names)
[ -z "$wrong" ] || fail "files are not what md5sums says: $wrong"
libdir=usr/lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH)
for file in usr/bin/memferry usr/bin/memferryd usr/share/man/man1/memferry.1.gz usr/share/man/man8/memferryd.8.gz \
    usr/share/bash-completion/completions/memferry usr/share/zsh/vendor-completions/_memferry \
    usr/share/fish/vendor_completions.d/memferry.fish usr/share/bash-completion/completions/memferryd usr/lib/systemd/system/memferry.service etc/memferry/memferry.toml \
    usr/include/memferry.h "$libdir/libmemferry.so.0" "$libdir/libmemferry.so" "$libdir/libmemferry.a" \
    "$libdir/pkgconfig/memferry.pc" usr/share/doc/memferry/copyright usr/share/doc/memferry/changelog.Debian.gz; do
    [ -f "$root/$file" ] || fail "$file is in no package"
done
[ ! -e "$root/etc/systemd" ] || fail "installing them enables the unit"

"$root/usr/bin/memferry" --version
config=$root/etc/memferry/memferry.toml
"$root/usr/bin/memferryd" check --config "$config" | grep 'only watches' ||
    fail "the daemon does more than watch by its default configuration"

export PKG_CONFIG_LIBDIR="$root/$libdir/pkgconfig" PKG_CONFIG_SYSROOT_DIR="$root" PKG_CONFIG_ALLOW_SYSTEM_CFLAGS=1 PKG_CONFIG_ALLOW_SYSTEM_LIBS=1
# shellcheck disable=SC2046 # lists of options
for link in -lmemferry -l:libmemferry.a; do
    cc -o "$work/move" "$packaging/../examples/c/move.c" $(pkg-config --cflags --libs --static memferry | sed "s/-lmemferry/$link/")
    status=0
    said=$(LD_LIBRARY_PATH="$root/$libdir" "$work/move" 2>&1) || status=$?
    case $status$said in
        0*'67108864 of 67108864 bytes intact' | 1*'no way to move pages here'*) ;;
        *) fail "a program that is linked with $link ends with status $status and says: $said" ;;
    esac
done

# What an administrator changes, the unit's link as of systemctl enable.
sed -i 's/^act = false/act = true/' "$config"
wants=$root/etc/systemd/system/multi-user.target.wants
mkdir -p "$wants"
ln -s /usr/lib/systemd/system/memferry.service "$wants/"
OUT=$work/later REVISION=2 "$packaging/deb.sh" "$@"
dpkg --install "$work"/later/*.deb
is_version "$work/later"
grep -q '^act = true' "$config" || fail "the upgrade changed the configuration"

# shellcheck disable=SC2086
dpkg --remove $names
[ ! -e "$root/usr" ] || fail "these are left in usr: $(find "$root/usr")"
grep -q '^act = true' "$config" || fail "removing them takes the configuration away"
# What the daemon would have left.
mkdir -p "$root/var/lib/memferry"
echo '{}' >"$root/var/lib/memferry/history.jsonl"
# shellcheck disable=SC2086
dpkg --purge $names
left=$(files)
[ "$left" = "$before" ] || fail "these are left: $left"
[ ! -e "$root/etc/memferry" ] || fail "/etc/memferry is left"
[ ! -e "$root/var/lib/memferry" ] || fail "the history is left"
echo "packages: installed, upgraded, removed and purged"

#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# test-upgrade.sh PACKAGES [COMMIT]: dpkg upgrades the package of an older COMMIT to those of the folder PACKAGES, and rolls back. Each
# time the daemon of either version takes the configuration and the history of the other one. COMMIT is the first with version 0.1.0
# that was packaged, and is built in target/upgrade.
#
# Daemons watch a made-up machine, a folder of files. Whatever it needs and does not find makes it fail.
set -eu

case $# in 1 | 2) ;; *) echo "usage: test-upgrade.sh PACKAGES [COMMIT]" >&2; exit 2 ;; esac
packages=$1
commit=${2:-e0d94ddd58654b2255c77469e6f80c95db7266b5}
PATH=$PATH:/usr/sbin:/sbin
top=$(cd "$(dirname "$0")/.." && pwd)
old=$top/target/upgrade
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
    echo "upgrade: $*" >&2
    exit 1
}

if [ ! -d "$old/deb" ]; then
    mkdir -p "$old"
    git -C "$top" archive --prefix=source/ "$commit" | tar -xC "$old"
    (
        cd "$old/source"
        CARGO_TARGET_DIR=$old/build cargo build --release --locked --package memferry-cli --package memferry-c
        built=$old/build/release
        SOURCE_DATE_EPOCH=$(git -C "$top" log -1 --format=%ct "$commit") OUT=$old/deb.new REVISION=0 \
            packaging/deb.sh "$built/memferry" "$built/libmemferry.so" "$built/libmemferry.a"
    )
    mv "$old/deb.new" "$old/deb"
fi

# A root in which dpkg finds what they depend on.
root=$work/root
mkdir -p "$root/var/lib/dpkg/info" "$root/var/lib/dpkg/updates"
for package in "$packages"/*.deb "$old"/deb/*.deb; do
    dpkg-deb --field "$package" Depends | tr ',' '\n' | sed 's/^ *//; s/ .*//; /memferry/d'
done | sort -u | xargs dpkg-query --status >"$root/var/lib/dpkg/status"
install() { # PACKAGES
    dpkg --root="$root" --log=/dev/null --force-script-chrootless,downgrade,confold --path-include='/*' --install "$1"/*.deb </dev/null
}
memferry=$root/usr/bin/memferry
config=$root/etc/memferry/memferry.toml

# A machine with a node of DRAM and a slow one, and a process.
machine=$work/machine
put() { # FILE TEXT
    mkdir -p "$(dirname "$machine/$1")"
    printf '%b\n' "$2" >"$machine/$1"
}
nodes=sys/devices/system/node
put sys/devices/system/cpu/online 0
put proc/cpuinfo 'processor : 0\nmodel name : Fake'
put proc/meminfo 'MemTotal: 1572864 kB\nMemFree: 786432 kB\nMemAvailable: 786432 kB'
put proc/sys/kernel/osrelease 6.12.57
put proc/sys/vm/max_map_count 65530
put proc/sys/vm/overcommit_memory 0
put proc/sys/kernel/numa_balancing 0
put proc/sys/kernel/numa_balancing_promote_rate_limit_MBps 65536
put proc/vmstat 'pgpromote_success 0'
for list in online has_memory; do put $nodes/$list 0-1; done
put $nodes/has_cpu 0
for node in 0 1; do
    put $nodes/node$node/meminfo "Node $node MemTotal: 1048576 kB\nNode $node MemFree: 524288 kB\nNode $node MemUsed: 0 kB"
done
put $nodes/node0/cpulist 0
put $nodes/node1/cpulist ''
put $nodes/node0/distance '10 20'
put $nodes/node1/distance '20 10'
put sys/devices/virtual/memory_tiering/memory_tier4/nodelist 0
put sys/devices/virtual/memory_tiering/memory_tier22/nodelist 1
put sys/kernel/mm/numa/demotion_enabled false

# The daemon of the version that is installed, for two seconds; it ends with a record.
history=$machine/history.jsonl
watch() {
    daemon="$root/usr/bin/memferryd"
    [ -e "$daemon" ] || daemon="$memferry daemon"
    $daemon --config "$config" --root "$machine" 2>"$work/log" &
    sleep 2
    kill "$!" 2>/dev/null || fail "the daemon did not start: $(cat "$work/log")"
    wait "$!" || fail "the daemon failed: $(cat "$work/log")"
}
records() { grep -c '"rounds"' "$history"; }
report() { # RECORDS
    [ "$(records)" -ge "$1" ] || fail "$(records) records, not $1"
    "$memferry" report --text "$history" >"$work/report" || fail "the history cannot be read"
    ! grep -i 'left out' "$work/report" || fail "lines of the history cannot be read"
}

install "$old/deb"
sed -i "s:^file = .*:file = \"/history.jsonl\":; s/^source = .*/source = \"numa-balancing\"/" "$config"
watch
report 1
install "$packages"
grep -q numa-balancing "$config" || fail "the upgrade changed the configuration"
report 1
watch
report 2
# What only the newer version knows.
printf 'min_size = "64M"\n' >>"$config"
sed -i '1i version = 2' "$config"
"$root/usr/bin/memferryd" check --config "$config" --root "$machine" >/dev/null || fail "the newer version refuses its own key"
sed -i '1d; $d' "$config"
install "$old/deb"
grep -q numa-balancing "$config" || fail "the rollback changed the configuration"
report 2
watch
report 3
echo "packages: upgraded from $commit and rolled back; either daemon went on with the other's configuration and history"

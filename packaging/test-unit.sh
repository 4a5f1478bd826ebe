#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# test-unit.sh PACKAGE: installs the package of the command in Debian 13 and boots that, with Debian's own kernel and systemd, in an
# emulated machine with a slow memory node. The unit starts, is reloaded, killed and stopped; pages in use come up; every setting
# comes back. What the machine prints is kept beside the package.
#
# Whatever it needs and does not find makes it fail.
set -eu

[ $# = 1 ] || { echo "usage: test-unit.sh PACKAGE" >&2; exit 2; }
package=$1
log=${package%/*}/unit.log
for tool in mmdebstrap cpio qemu-system-x86_64; do
    command -v "$tool" >/dev/null || { echo "unit: $tool is missing, so it is not tested; install it" >&2; exit 1; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cat >"$work/check" <<'END'
#!/bin/sh
# Prints what it does. The last line says whether all was right.
fail() {
    memferry top --once
    journalctl --no-pager --unit memferry --output cat | tail -n 40
    echo "unit: FAILED: $*"
    systemctl poweroff
    exit 1
}
# Until the command succeeds: 200 s at most, on a machine that is emulated.
await() {
    for _ in $(seq 200); do
        "$@" && return
        sleep 1
    done
    fail "waited in vain for: $*"
}
kdamonds=/sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds
balancing=/proc/sys/kernel/numa_balancing
demotion=/sys/kernel/mm/numa/demotion_enabled
settings() { cat $kdamonds $balancing $demotion; }
on_slow_node() { grep -o 'N1=[0-9]*' "/proc/$hot/numa_maps" | awk -F= '{ pages += $2 } END { print pages + 0 }'; }
is_up() {
    memferry top --json | grep -q '"promoted": *[1-9]' && [ "$(on_slow_node)" -le $((slow / 2)) ]
}
config=/etc/memferry/memferry.toml

set -x
# Debian's is 1, which brings pages up beside the daemon, or before it acts.
echo 0 >$balancing
before=$(settings)
systemctl start memferry || fail "it does not start"
memferry top --once | grep 'only watches' || fail "it does more than watch by its default configuration"
cat >/run/hot <<'HOT'
$bytes = 32 << 20;
$x = "a" x $bytes;
open READY, ">/run/ready";
while (1) { for ($i = 0; $i < length $x; $i += 4096) { $sum += ord substr($x, $i, 1) } }
HOT
systemd-run --unit=hot --property=CPUAffinity=1 perl /run/hot
# Interrupts it: else an emulated CPU keeps its translations, and memory in use looks idle.
systemd-run --unit=wakes --property=CPUAffinity=1 perl -e 'while (1) { select undef, undef, undef, 0.005 }'
hot=$(systemctl show --property MainPID --value hot)
await test -e /run/ready
memferry move --anonymous --pid "$hot" --to 1 || fail "its memory does not go to the slow node"
slow=$(on_slow_node)
[ "$slow" -ge 8000 ] || fail "its memory is not on the slow node"

sed -i 's/^act = false/act = true/' $config
systemctl reload memferry || fail "it cannot be reloaded"
await is_up
echo 'act = maybe' >>$config
systemctl reload memferry
await sh -c "memferry top --json | grep -q '\"reload_refused\": *true'"
sed -i '$d' $config

killed=$(systemctl show --property MainPID --value memferry)
kill -KILL "$killed"
await sh -c "memferry top --json | grep '\"pid\":' | grep -qv '\"pid\": *$killed,'"
journalctl --unit memferry --output cat | grep 'the last daemon was killed: its settings come back' || fail "nothing came back"
systemctl stop memferry || fail "it does not stop"
if journalctl --unit memferry --output cat | grep 'read from sysfs'; then fail "it does not use DAMON's tracepoint"; fi
[ "$(settings)" = "$before" ] || fail "settings are not what they were: $(settings)"
for source in numa-balancing perf; do
    sed -i "s/^source = .*/source = \"$source\"/" $config
    systemctl start memferry || fail "it does not start with $source"
    memferry top --once | grep "source $source" || fail "it did not take $source"
    systemctl stop memferry || fail "it does not stop"
    [ "$(settings)" = "$before" ] || fail "settings are not what they were: $(settings)"
done
[ -s /var/lib/memferry/history.jsonl ] || fail "there is no history"
journalctl --no-pager --unit memferry --output cat
uname -r
echo 'unit: all was right'
systemctl poweroff
END
cat >"$work/check.service" <<'END'
[Unit]
After=multi-user.target
[Service]
Type=oneshot
ExecStart=/usr/local/bin/check
StandardOutput=tty
StandardError=tty
TTYPath=/dev/ttyS0
END
# The kernel alone of its package: the machine has no disk.
# shellcheck disable=SC2016 # what mmdebstrap's shell expands
mmdebstrap --quiet --variant=minbase --include=systemd-sysv,dbus --components=main \
    --customize-hook="copy-in $package $work/check $work/check.service /srv" \
    --customize-hook='chroot "$1" sh -ec "
        cd /srv
        apt-get install --yes --quiet --no-install-recommends ./*.deb
        apt-get download --quiet \$(apt-cache depends linux-image-amd64 | sed -n \"s/.*Depends: //p\")
        mkdir kernel
        dpkg-deb --fsys-tarfile linux-image-*.deb | tar --extract --directory kernel ./boot
        install -m 755 check /usr/local/bin/check
        install -m 644 check.service /etc/systemd/system/
        mkdir -p /etc/systemd/system/multi-user.target.wants
        ln -s ../check.service /etc/systemd/system/multi-user.target.wants/
        ln -s /lib/systemd/systemd /init"' \
    --customize-hook="copy-out /srv/kernel $work" \
    --customize-hook='rm -rf "$1"/srv/* "$1"/var/lib/apt/lists "$1"/usr/share/doc "$1"/usr/share/locale' \
    trixie "$work/root.tar"
mkdir "$work/root"
tar --extract --directory "$work/root" --exclude './dev/*' --file "$work/root.tar"
(cd "$work/root" && find . | cpio --create --format=newc --owner=0:0 --quiet) >"$work/root.cpio"

# A node of DRAM with the CPUs, and a slow one.
timeout 1200 qemu-system-x86_64 -accel tcg,thread=multi -cpu max -M q35,hmat=on -smp 2 -m 3G -display none -nodefaults -no-reboot \
    -object memory-backend-ram,id=m0,size=2560M -object memory-backend-ram,id=m1,size=512M \
    -numa node,nodeid=0,memdev=m0,cpus=0-1 -numa node,nodeid=1,memdev=m1,initiator=0 \
    -numa hmat-lb,initiator=0,target=0,hierarchy=memory,data-type=access-latency,latency=10 \
    -numa hmat-lb,initiator=0,target=0,hierarchy=memory,data-type=access-bandwidth,bandwidth=20G \
    -numa hmat-lb,initiator=0,target=1,hierarchy=memory,data-type=access-latency,latency=60 \
    -numa hmat-lb,initiator=0,target=1,hierarchy=memory,data-type=access-bandwidth,bandwidth=5G \
    -kernel "$work"/kernel/boot/vmlinuz-* -initrd "$work/root.cpio" -serial stdio \
    -append 'console=ttyS0 panic=-1 loglevel=4 no_timer_check psi=1 systemd.show_status=0 systemd.mask=serial-getty@ttyS0.service systemd.mask=getty@tty1.service' \
    </dev/null >"$log" 2>&1 || true
grep -a 'unit: all was right' "$log" || { tail -n 60 "$log" >&2; exit 1; }

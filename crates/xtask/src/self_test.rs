// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the lab itself: runs that go wrong in every way it must notice, each in a real guest.
//! Linux's crash tests (CONFIG_LKDTM) make the kernel fail.

use std::fs;

use anyhow::Result;

use crate::run::{self, Kind, Run};
use crate::suite::Entry;
use crate::verdict::{Outcome, Verdict};

/// What the lab must say of a run.
enum Want {
    Passed,
    Skipped,
    /// For a reason with these words.
    Failed(&'static str),
}

/// What the kernel is told besides: memory that is added gets on line.
pub const APPEND: &str = " memhp_default_state=online_movable";

/// Its programs for the guest, in the checkout.
pub const PROGRAMS: &str = "lab/self-test";

/// Its guest dies each time, of what looks like a fault of QEMU.
const AGAIN: &str = "again";

/// Name, seconds, command, verdict. Three of them lose their guest, which is as many as a run
/// may lose; those after them show that it goes on. The last one loses it, too.
const CASES: [(&str, u64, &str, Want); 19] = [
    (
        "good",
        20,
        "echo 1..1; echo ok 1; echo here >$RESULTS/good",
        Want::Passed,
    ),
    (
        "warning",
        20,
        "echo WARNING >$LKDTM; echo 1..1; echo ok 1",
        Want::Failed("WARNING: CPU"),
    ),
    ("after-warning", 20, "echo 1..1; echo ok 1", Want::Passed),
    (
        "panic",
        20,
        "echo 1..1; echo ok 1; echo PANIC >$LKDTM",
        Want::Failed("Kernel panic"),
    ),
    (
        "oops",
        20,
        "echo 1..1; echo ok 1; echo EXCEPTION >$LKDTM",
        Want::Failed("the machine went off"),
    ),
    (
        "hang",
        10,
        "echo 1..1; echo ok 1; sleep 100000",
        Want::Failed("still running after"),
    ),
    ("no-plan", 20, "echo ok 1", Want::Failed("no plan")),
    (
        "short",
        20,
        "echo 1..2; echo ok 1",
        Want::Failed("planned 2 results and printed 1"),
    ),
    (
        "not-ok",
        20,
        "echo 1..1; echo not ok 1 this",
        Want::Failed("not ok 1 this"),
    ),
    (
        "status",
        20,
        "echo 1..1; echo ok 1; exit 3",
        Want::Failed("status 3"),
    ),
    (
        "missing",
        20,
        "./there-is-no-such-program",
        Want::Failed("status 127"),
    ),
    (
        "skips",
        20,
        "echo 1..1; echo ok 1 x '# SKIP nothing here'",
        Want::Skipped,
    ),
    (
        "applets",
        20,
        "busybox --list >/tmp/list; ls /bin | grep -vxFf /tmp/list || echo 1..1 && echo ok 1",
        Want::Passed,
    ),
    (
        "own-program",
        20,
        "[ $(uptime) = ours ] && echo 1..1 && echo ok 1",
        Want::Passed,
    ),
    (
        "nobody",
        20,
        "[ $(id -u nobody) = 65534 ] && echo 1..1 && echo ok 1",
        Want::Passed,
    ),
    (
        "swap",
        20,
        "echo 64M >/sys/block/zram0/disksize && mkswap /dev/zram0 && swapon /dev/zram0 && \
         grep zram0 /proc/swaps && swapoff /dev/zram0 && echo 1..1 && echo ok 1",
        Want::Passed,
    ),
    (
        "mount-loop",
        20,
        "dd if=/dev/zero of=/tmp/disk bs=1M count=8 && mke2fs -F /tmp/disk && mkdir -p /mnt && \
         mount -t ext4 -o loop /tmp/disk /mnt && echo x >/mnt/x && umount /mnt && echo 1..1 && echo ok 1",
        Want::Passed,
    ),
    (
        "late-node",
        20,
        "cd /sys/devices/system/node; [ ! -e node3 ] || grep 'MemTotal: *[1-9]' node3/meminfo && \
         echo 1..1 && echo ok 1",
        Want::Passed,
    ),
    (
        AGAIN,
        20,
        "echo 'Oops: int3: 0000' >/dev/kmsg; echo 'Code: 00 90 <90>' >/dev/kmsg; poweroff -f",
        Want::Failed("the machine went off"),
    ),
];

/// Runs them. Returns the report, and whether the lab said what it must.
pub fn run(run: &Run) -> Result<(String, bool)> {
    let entries: Vec<_> = CASES
        .iter()
        .map(|(name, seconds, command, _)| {
            let direct = "LKDTM=/sys/kernel/debug/provoke-crash/DIRECT";
            Entry::new(name, *seconds, &format!("{direct}; {command}"))
        })
        .collect();
    let verdicts = run.all(&entries, Kind::Tests)?;
    let mut text = format!("self-test of the lab on {}\n", run.title());
    let mut good = true;
    for (name, _, _, want) in &CASES {
        let got = verdicts.iter().find(|verdict| verdict.name == *name);
        let again = if *name == AGAIN && run.emulates() {
            run::AGAIN
        } else {
            0
        };
        let right = got.is_some_and(|verdict| is(verdict, want) && verdict.again == again);
        good &= right;
        let word = if right { "right" } else { "WRONG" };
        text += &match got {
            Some(verdict) => format!("  {word}  {name}: {}\n", said(&verdict.outcome)),
            None => format!("  {word}  {name}: no verdict\n"),
        };
    }
    let file = fs::read_to_string(run.folder("results/good")).unwrap_or_default();
    if file != "here\n" {
        good = false;
        text += "  WRONG  a file that a test left did not come out of the guest\n";
    }
    Ok((text, good))
}

fn is(verdict: &Verdict, want: &Want) -> bool {
    match (&verdict.outcome, want) {
        (Outcome::Passed { .. }, Want::Passed) | (Outcome::Skipped(_), Want::Skipped) => true,
        (Outcome::Failed(reasons), Want::Failed(words)) => {
            reasons.iter().any(|reason| reason.contains(words))
        }
        _ => false,
    }
}

fn said(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Passed { .. } => "passed".to_owned(),
        Outcome::Skipped(why) => format!("skipped, {why}"),
        Outcome::Failed(reasons) => format!("failed, {}", reasons.join("; ")),
        Outcome::NotFor(needs) => format!("not run, needs {needs}"),
    }
}

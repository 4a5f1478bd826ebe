// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds in a console's lines what a kernel says when something went wrong in it. A test during
//! which it says so has failed, whatever the test itself says.

/// What kernels say, as it stands in lib/, mm/ and kernel/ of Linux 6.12. Case matters.
const REPORTS: &[&str] = &[
    // BUG, WARN and what follows wild pointers
    "WARNING: ",
    "BUG: ",
    "kernel BUG at ",
    "Oops: ",
    "Oops[",
    "general protection fault",
    "Unable to handle kernel ",
    "Internal error: ",
    "Kernel panic - not syncing",
    "double fault:",
    "stack segment: ",
    "invalid opcode: ",
    "divide error: ",
    // lockdep and its kin
    "possible circular locking",
    "possible recursive locking",
    "possible irq lock inversion",
    "suspicious RCU usage",
    "inconsistent lock state",
    "bad unlock balance",
    "held lock freed",
    "lock held when returning to user space",
    "DEBUG_LOCKS_WARN_ON",
    "INFO: trying to register non-static key",
    "-safe -> ",
    "sleeping function called from invalid context",
    "scheduling while atomic",
    "workqueue leaked atomic",
    // sanitizers and debugging of memory
    "KASAN: ",
    "KCSAN: ",
    "KMSAN: ",
    "KFENCE: ",
    "UBSAN: ",
    "new suspected memory leaks",
    "ODEBUG: ",
    "DMA-API: ",
    "Bad page state",
    "Bad page map",
    "Bad rss-counter state",
    "refcount_t: ",
    "list_add corruption",
    "list_del corruption",
    "bad: scheduling from the idle thread",
    "page dumped because: VM_",
    "Object padding overwritten",
    "Redzone overwritten",
    "Poison overwritten",
    // no progress
    "blocked for more than",
    "soft lockup",
    "hard LOCKUP",
    "rcu_sched detected",
    "rcu_preempt detected",
    "self-detected stall",
    "detected stalls on CPUs/tasks",
    "detected expedited stalls",
    "workqueue lockup",
    // the file systems that the tests migrate pages of
    "EXT4-fs error",
    "Buffer I/O error",
    "I/O error, dev ",
];

/// Lines that contain one of the above and report nothing.
const HARMLESS: &[&str] = &[
    // Said at every boot of a kernel with the checker.
    "DMA-API: preallocated",
    "DMA-API: debugging enabled by kernel config",
    "DMA-API: debugging disabled",
    "DMA-API: disabled by",
    "ODEBUG: selftest passed",
    "KASAN: enabled",
    "kasan: KernelAddressSanitizer initialized",
    // The command line, as the kernel repeats it.
    "Command line: ",
    "Kernel command line: ",
];

/// What KCSAN's reports begin with, and end with.
const RACE: &str = "BUG: KCSAN: ";
const RACE_END: &str = "==========";

/// What the names of the series' functions begin with.
const OURS: &[&str] = &[
    "migrator_",
    "mtcopy_",
    "dcbm_",
    "ferry_",
    "pghot_",
    "kmigrated",
];

/// The lines among `console` that report something wrong. A data race is one if a function of the
/// series takes part: Linux has races of its own, which its authors know or do not mind.
pub fn find(console: &[String]) -> Vec<&str> {
    let reports = console.iter().enumerate().filter(|(at, line)| {
        is_report(line) && (!line.contains(RACE) || is_race_of_ours(&console[*at..]))
    });
    reports.map(|(_, line)| line.as_str()).collect()
}

/// How many data races among `console` are Linux's own.
pub fn races_of_linux(console: &[String]) -> usize {
    let races = console.iter().enumerate();
    races
        .filter(|(at, line)| line.contains(RACE) && !is_race_of_ours(&console[*at..]))
        .count()
}

/// Whether a function of the series stands in the report that `lines` begin with. One that is cut
/// short is taken for ours.
fn is_race_of_ours(lines: &[String]) -> bool {
    for line in lines {
        if line.contains(RACE_END) {
            return false;
        }
        let mut words = line.split_whitespace();
        if words.any(|word| OURS.iter().any(|name| word.starts_with(name))) {
            return true;
        }
    }
    true
}

/// Whether the kernel died of a breakpoint that was not in memory when the CPU met it. QEMU can run code that it translated
/// while another CPU patched it, which Linux does when a tracepoint or another static branch is switched. No kernel can do
/// so. Where it stopped, the byte before is no `int3` then; or it is one again, as the first byte of a jump that is being
/// patched the next time: a CPU that meets that one in time goes on.
pub fn is_stale_breakpoint(console: &[String]) -> bool {
    let Some(at) = console
        .iter()
        .position(|line| line.contains("Oops: int3: "))
    else {
        return false;
    };
    let code = console[at..]
        .iter()
        .find_map(|line| line.split_once("Code: "));
    let Some((before, behind)) = code.and_then(|(_, bytes)| bytes.split_once('<')) else {
        return false;
    };
    let behind: Vec<_> = behind
        .split([' ', '>'])
        .filter(|byte| !byte.is_empty())
        .collect();
    match before.split_whitespace().last() {
        Some("cc") => is_rest_of_jump(&behind),
        Some(_) => true,
        None => false,
    }
}

/// Whether `code` begins with what follows the first byte of a near jump or of the NOP in its place.
fn is_rest_of_jump(code: &[&str]) -> bool {
    matches!(
        code,
        ["1f", "44", "00", "00", ..] | [_, _, "00", "00", ..] | [_, _, "ff", "ff", ..]
    )
}

fn is_report(line: &str) -> bool {
    REPORTS.iter().any(|text| line.contains(text))
        && !HARMLESS.iter().any(|text| line.contains(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_of_every_kind_are_found() {
        for line in [
            "[    9.1] WARNING: CPU: 1 PID: 85 at mm/migrate.c:1234 migrate_pages_batch+0x1/0x2",
            "[    9.1] BUG: unable to handle page fault for address: ffffa1",
            "[    9.1] BUG: kernel NULL pointer dereference, address: 0000000000000008",
            "[    9.1] kernel BUG at mm/migrate.c:99!",
            "[    9.1] Oops: Oops: 0002 [#1] PREEMPT SMP NOPTI",
            "[    9.1] Oops: general protection fault, probably for non-canonical address 0xdead: 0000 [#1]",
            "[    9.1] Unable to handle kernel NULL pointer dereference at virtual address 00000008",
            "[    9.1] Internal error: Oops: 96000004 [#1] SMP",
            "[    9.1] Kernel panic - not syncing: Fatal exception",
            "[    9.1] WARNING: possible circular locking dependency detected",
            "[    9.1] WARNING: possible recursive locking detected",
            "[    9.1] WARNING: suspicious RCU usage",
            "[    9.1] WARNING: inconsistent lock state",
            "[    9.1] WARNING: HARDIRQ-safe -> HARDIRQ-unsafe lock order detected",
            "[    9.1] WARNING: bad unlock balance detected!",
            "[    9.1] WARNING: lock held when returning to user space!",
            "[    9.1] INFO: trying to register non-static key.",
            "[    9.1] BUG: sleeping function called from invalid context at mm/util.c:9",
            "[    9.1] BUG: scheduling while atomic: contents/85/0x00000002",
            "[    9.1] BUG: KASAN: slab-use-after-free in migrator_copy+0x1/0x2",
            "[    9.1] BUG: KCSAN: data-race in a / b",
            "[    9.1] BUG: KFENCE: out-of-bounds read in x",
            "[    9.1] UBSAN: array-index-out-of-bounds in mm/migrator.c:12:3",
            "[   70.1] kmemleak: 3 new suspected memory leaks (see /sys/kernel/debug/kmemleak)",
            "[    9.1] ODEBUG: free active (active state 0) object: ffff8 object type: work_struct",
            "[    9.1] DMA-API: dmatest dma0: device driver failed to check map error",
            "[    9.1] DMA-API: zynqmp-dma: device driver frees DMA memory with wrong function",
            "[    9.1] BUG: Bad page state in process contents  pfn:12345",
            "[    9.1] BUG: Bad page map in process contents  pte:1 pmd:2",
            "[    9.1] BUG: Bad rss-counter state mm:ffff8 type:MM_ANONPAGES val:2",
            "[    9.1] page dumped because: VM_BUG_ON_FOLIO(!folio_test_locked(folio))",
            "[    9.1] refcount_t: underflow; use-after-free.",
            "[    9.1] list_add corruption. next->prev should be prev (ffff1), but was ffff2.",
            "[    9.1] list_del corruption, ffff8->next is LIST_POISON1 (dead000000000100)",
            "[  240.1] INFO: task contents:85 blocked for more than 120 seconds.",
            "[   50.1] watchdog: BUG: soft lockup - CPU#1 stuck for 26s! [contents:85]",
            "[   50.1] rcu: INFO: rcu_preempt self-detected stall on CPU",
            "[   50.1] rcu: INFO: rcu_sched detected stalls on CPUs/tasks:",
            "[   50.1] rcu: INFO: rcu_preempt detected expedited stalls on CPUs/tasks: { 1-... }",
            "[   50.1] BUG: workqueue lockup - pool cpus=0 node=0 flags=0x0 nice=0 stuck for 31s!",
            "[    9.1] EXT4-fs error (device loop0): ext4_lookup:1: inode #2: comm x: deleted inode",
        ] {
            assert!(is_report(line), "{line}");
        }
    }

    /// KCSAN's report on two functions.
    fn race(one: &str, other: &str) -> String {
        let line = "=".repeat(66);
        format!(
            "[ 9.1] {line}\n[ 9.1] BUG: KCSAN: data-race in {one} / {other}\n[ 9.1] \n\
             [ 9.1] write to 0xffff8 of 8 bytes by task 85 on cpu 1:\n[ 9.1]  {one}+0x1/0x2\n\
             [ 9.1]  ret_from_fork+0x1/0x2\n[ 9.1] \n\
             [ 9.1] read to 0xffff8 of 8 bytes by task 86 on cpu 0:\n[ 9.1]  {other}+0x1/0x2\n\
             [ 9.1] {line}"
        )
    }

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn a_data_race_counts_if_the_series_takes_part() {
        for (one, other) in [
            ("mtcopy_lane_run", "dequeue_task"),
            ("dequeue_task", "migrator_count_show"),
        ] {
            let text = lines(&race(one, other));
            assert_eq!(find(&text).len(), 1, "{one}");
            assert_eq!(races_of_linux(&text), 0);
        }
        // Each for itself, whatever comes after it.
        let text = lines(&format!(
            "{}\n{}\n[ 9.9] WARNING: x",
            race("folio_unlock", "filemap_map_pages"),
            race("mtcopy_copy", "dequeue_task")
        ));
        assert_eq!(find(&text).len(), 2, "{text:?}");
        assert_eq!(races_of_linux(&text), 1);
        // Cut short: nobody knows whose.
        let text = lines(&race("folio_unlock", "filemap_map_pages"));
        assert_eq!(find(&text[..5]).len(), 1);
    }

    #[test]
    fn a_breakpoint_is_stale_if_memory_has_none() {
        let oops = |code: &str| {
            let lines = [
                "[    9.1] Oops: int3: 0000 [#1] SMP",
                "[    9.1] RIP: 0010:ttwu_do_activate.constprop.0+0x6c/0x150",
                code,
                "[    9.2] Code: 0f 05 <c3> cc",
            ];
            lines.map(str::to_owned)
        };
        assert!(is_stale_breakpoint(&oops(
            "[    9.1] Code: 24 18 00 66 <90> 49 8b"
        )));
        // Jumps that are being patched again.
        for rest in ["c4> 00 00 00 e9", "1f> 44 00 00 48", "12> fd ff ff 48"] {
            let code = format!("[    9.1] Code: 0f 84 b8 00 00 00 cc <{rest}");
            assert!(is_stale_breakpoint(&oops(&code)), "{rest}");
        }
        // Someone's own breakpoint, and one whose code is not shown.
        assert!(!is_stale_breakpoint(&oops(
            "[    9.1] Code: 24 18 00 cc <90> 49 8b"
        )));
        assert!(!is_stale_breakpoint(&oops(
            "[    9.1] Code: Unable to access opcode bytes"
        )));
        assert!(!is_stale_breakpoint(&[
            "[    9.1] Oops: Oops: 0002".to_owned()
        ]));
    }

    #[test]
    fn everyday_messages_are_not_reports() {
        for line in [
            "[    0.0] Linux version 6.12.117 (lab@memferry) (gcc (Debian 12.2.0) #1 SMP PREEMPT",
            "[    0.0] Command line: console=ttyS0 panic=-1 oops=panic note=BUG: none",
            "[    0.0] Kernel command line: console=ttyS0 panic=-1 oops=panic WARNING: none",
            "[    0.0] kasan: KernelAddressSanitizer initialized (generic)",
            "[    0.3] DMA-API: preallocated 65536 debug entries",
            "[    0.3] DMA-API: debugging enabled by kernel config",
            "[    0.3] ODEBUG: selftest passed",
            "[    0.0] rcu: RCU lockdep checking is enabled.",
            "[    0.0] Lock dependency validator: Copyright (c) 2006 Red Hat, Inc., Ingo Molnar",
            "[    0.4] Demotion targets for Node 0: preferred: 2, fallback: 2",
            "[    0.4] kmemleak: Kernel memory leak detector initialized (mem pool available: 15697)",
            "[    0.4] kmemleak: Automatic memory scanning thread started",
            "[    4.2] Memory failure: 0x12345: recovery action for free buddy page: Recovered",
            "[    4.2] Injecting memory failure at pfn 0x12345",
            "[    4.2] Soft offlining pfn 0x12345 at process virtual address 0x7f0000000000",
            "[    4.2] EXT4-fs (loop0): mounted filesystem 00 r/w with ordered data mode.",
            "[    4.2] contents (85): drop_caches: 3",
            "[    4.2] Offlined Pages 32768",
            // A page that could not leave a block of memory.
            "[    4.2] page dumped because: migration failure",
            "[    4.2] numa_add_cpu cpu 1 node 1: mask now 1",
            "[    4.2] Warning: unable to open an initial console.",
            "[    4.2] # debugging: 3 of 3 passed",
            "ok 1 - no BUG found",
        ] {
            assert!(!is_report(line), "{line}");
        }
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! `memferry move` with processes whose pages lie on known nodes.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use crate::Case;
use crate::program::{Done, command, memferry, nodes, number, signal};
use crate::victim::{PAGE, Victim};

pub const CASES: &[Case] = &[
    ("move_dry_run_moves_nothing", dry_run),
    ("move_brings_all_pages", brings_all),
    ("move_with_callers_brings_all_pages", callers),
    ("move_from_a_node_leaves_the_others", from_node),
    ("move_there_and_back_keeps_the_bytes", there_and_back),
    ("move_leaves_shared_pages_and_says_so", shared),
    ("move_keeps_its_rate", rate),
    ("move_of_a_process_that_ends_says_so", ends),
    ("move_stops_at_an_interrupt", interrupt),
    ("move_of_a_strange_process_needs_permission", permission),
    ("move_refuses_what_is_not_there", refusals),
    ("move_of_a_cgroup_or_a_unit_moves_all_of_it", cgroup),
    ("move_beside_migrate_pages", beside_migrate_pages),
];

const BYTES: usize = 16 << 20;

fn two() -> (u32, u32) {
    let nodes = nodes();
    (nodes[0], nodes[1])
}

fn dry_run() -> Result<(), String> {
    let (a, b) = two();
    let victim = Victim::new(BYTES, a, false);
    let line = format!("move --pid {} --to {b} --dry-run", victim.pid());
    memferry(&line)
        .gives(0)
        .says(&format!("would move to node {b}"));
    let json = memferry(&(line + " --json")).gives(0).json();
    let on_a = json["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .find(|of| of["node"] == a)
        .unwrap();
    assert!(number(&on_a["bytes"]) >= BYTES as u64, "{json}");
    assert_eq!(victim.pages_on(a), BYTES / PAGE);
    Ok(())
}

fn brings_all() -> Result<(), String> {
    let (a, b) = two();
    let mut victim = Victim::new(BYTES, a, false);
    let line = format!("move --pid {} --to {b} --anonymous", victim.pid());
    memferry(&line).gives(0).says(&format!("moved to node {b}"));
    victim.assert_whole_on(b);
    let json = memferry(&(line + " --json")).gives(0).json();
    assert_eq!(number(&json["moved"]["bytes"]), 0, "{json}");
    assert!(
        number(&json["already_there"]["bytes"]) >= BYTES as u64,
        "{json}"
    );
    Ok(())
}

fn callers() -> Result<(), String> {
    let (a, b) = two();
    let mut victim = Victim::new(BYTES, a, false);
    let line = format!(
        "move --pid {} --to {b} --anonymous --callers 4 --json",
        victim.pid()
    );
    let json = memferry(&line).gives(0).json();
    assert!(number(&json["moved"]["bytes"]) >= BYTES as u64, "{json}");
    victim.assert_whole_on(b);
    Ok(())
}

fn from_node() -> Result<(), String> {
    let (a, b) = two();
    let mut victim = Victim::new(BYTES, a, false);
    let line = format!(
        "move --pid {} --from {b} --to {a} --anonymous --json",
        victim.pid()
    );
    memferry(&line).gives(0);
    victim.assert_whole_on(a);
    let nodes = nodes();
    let Some(&other) = nodes.get(2) else {
        return Ok(());
    };
    // Neither the source nor the target: left alone, and that is no failure.
    let line = format!(
        "move --pid {} --from {other} --to {b} --anonymous --json",
        victim.pid()
    );
    let json = memferry(&line).gives(0).json();
    assert!(
        number(&json["elsewhere"]["bytes"]) >= BYTES as u64,
        "{json}"
    );
    victim.assert_whole_on(a);
    Ok(())
}

fn there_and_back() -> Result<(), String> {
    let nodes = nodes();
    let mut victim = Victim::new(BYTES, nodes[0], false);
    for &node in nodes.iter().skip(1).chain(nodes.first()) {
        memferry(&format!(
            "move --pid {} --to {node} --anonymous",
            victim.pid()
        ))
        .gives(0);
        victim.assert_whole_on(node);
    }
    Ok(())
}

fn shared() -> Result<(), String> {
    let (a, b) = two();
    let mut victim = Victim::new(BYTES, a, true);
    let line = format!("move --pid {} --to {b} --json", victim.pid());
    let done = memferry(&line)
        .gives(1)
        .says("stayed on a wrong node")
        .says("--all");
    let json = done.json();
    let stayed = json["stayed"].as_array().unwrap();
    let denied = stayed.iter().find(|of| of["errno"] == "EACCES").unwrap();
    assert!(number(&denied["bytes"]) >= BYTES as u64, "{json}");
    assert_eq!(victim.pages_on(a), BYTES / PAGE);
    let line = format!("move --pid {} --to {b} --all --json", victim.pid());
    let json = memferry(&line).json();
    assert!(number(&json["moved"]["bytes"]) >= BYTES as u64, "{json}");
    victim.assert_whole_on(b);
    Ok(())
}

fn rate() -> Result<(), String> {
    let (a, b) = two();
    let mut victim = Victim::new(BYTES, a, false);
    let started = Instant::now();
    memferry(&format!(
        "move --pid {} --to {b} --anonymous --rate 8M/s",
        victim.pid()
    ))
    .gives(0);
    // 16 MiB in parts of 2 MiB: all but the last are paid for before the end.
    let least = Duration::from_millis(1700);
    assert!(started.elapsed() >= least, "{:?}", started.elapsed());
    victim.assert_whole_on(b);
    Ok(())
}

/// A move that takes half a minute, when it has begun to move.
fn slow(victim: &Victim, to: u32) -> (String, Child) {
    let line = format!(
        "move --pid {} --to {to} --anonymous --rate 512K/s --json",
        victim.pid()
    );
    let mut child = command(&line).spawn().unwrap();
    while victim.pages_on(to) == 0 {
        assert!(
            child.try_wait().unwrap().is_none(),
            "it ended before it moved anything"
        );
        std::thread::yield_now();
    }
    (line, child)
}

fn ends() -> Result<(), String> {
    let (a, b) = two();
    let mut victim = Victim::new(BYTES, a, false);
    let (line, child) = slow(&victim, b);
    victim.kill();
    let done = Done::new(&line, child.wait_with_output().unwrap());
    let json = done.gives(1).says("ended while its pages moved").json();
    assert_eq!(json["end"], "process ended");
    assert!(number(&json["left_bytes"]) > 0, "{json}");
    Ok(())
}

fn interrupt() -> Result<(), String> {
    let (a, b) = two();
    let mut victim = Victim::new(BYTES, a, false);
    let (line, child) = slow(&victim, b);
    signal(child.id(), libc::SIGINT);
    let done = Done::new(&line, child.wait_with_output().unwrap());
    let json = done.gives(130).says("stopped: ").json();
    assert_eq!(json["end"], "interrupted");
    // What the account says is what the kernel says.
    assert!(
        number(&json["moved"]["bytes"]) >= (victim.pages_on(b) * PAGE) as u64,
        "{json}"
    );
    assert_eq!(victim.pages_on(a) + victim.pages_on(b), BYTES / PAGE);
    victim.assert_whole();
    Ok(())
}

fn permission() -> Result<(), String> {
    let (a, b) = two();
    let victim = Victim::new(1 << 20, a, false);
    let line = format!("move --pid {} --to {b}", victim.pid());
    let output = command(&line).uid(65534).gid(65534).output().unwrap();
    Done::new(&line, output)
        .gives(1)
        .says("ptrace")
        .says("try: ");
    assert_eq!(victim.pages_on(a), (1 << 20) / PAGE);
    Ok(())
}

fn refusals() -> Result<(), String> {
    let (a, b) = two();
    let victim = Victim::new(1 << 20, a, false);
    let pid = victim.pid();
    memferry(&format!("move --pid {pid} --to 999"))
        .gives(1)
        .says("no memory node 999");
    memferry(&format!("move --pid {pid} --from {a} --to {a}"))
        .gives(2)
        .says("moves nothing");
    memferry(&format!("move --pid 4194300 --to {b}"))
        .gives(1)
        .says("it has ended");
    memferry(&format!("move --pid 2 --to {b}"))
        .gives(1)
        .says("kernel thread");
    memferry(&format!("move --pid {pid} --to {b} --rate 0")).gives(2);
    Ok(())
}

/// Where cgroups of version 2 are mounted.
pub fn cgroups() -> Result<&'static Path, String> {
    let mount = Path::new("/sys/fs/cgroup");
    if !mount.join("cgroup.procs").exists() {
        let (kind, at) = (c"cgroup2".as_ptr(), c"/sys/fs/cgroup".as_ptr());
        // SAFETY: both are strings, and there are no options.
        let ret = unsafe { libc::mount(kind, at, kind, 0, std::ptr::null()) };
        if ret != 0 {
            let error = std::io::Error::last_os_error();
            return Err(format!("no cgroup version 2: {error}"));
        }
    }
    Ok(mount)
}

/// The cgroup of a unit, with a process in it and one below, and a process elsewhere.
fn cgroup() -> Result<(), String> {
    let (a, b) = two();
    let mount = cgroups()?;
    let unit = mount.join("fleet.service");
    let folders = [unit.clone(), unit.join("below")];
    let mut victims = [a, a, a].map(|node| Victim::new(BYTES, node, false));
    for (folder, victim) in folders.iter().zip(&victims) {
        fs::create_dir_all(folder).unwrap();
        fs::write(folder.join("cgroup.procs"), victim.pid().to_string()).unwrap();
    }
    for (target, to) in [("--cgroup /fleet.service", b), ("--unit fleet", a)] {
        let line = format!("move {target} --to {to} --anonymous --json");
        let json = memferry(&line).gives(0).json();
        assert_eq!(json["processes"].as_array().unwrap().len(), 2, "{json}");
        assert!(
            number(&json["moved"]["bytes"]) >= 2 * BYTES as u64,
            "{json}"
        );
        let [one, below, other] = &mut victims;
        one.assert_whole_on(to);
        below.assert_whole_on(to);
        other.assert_whole_on(a);
    }
    drop(victims);
    for folder in folders.iter().rev() {
        fs::remove_dir(folder).unwrap();
    }
    Ok(())
}

/// How long a process's pages take with `memferry move`, and with the system call of migratepages(8): the same process, there
/// and back in turn, the least of some rounds.
fn beside_migrate_pages() -> Result<(), String> {
    const BYTES: usize = 64 << 20;
    let (a, b) = two();
    let mut victim = Victim::new(BYTES, a, false);
    let mut least = [f64::MAX; 2];
    for _ in 0..5 {
        let line = format!("move --pid {} --to {b} --anonymous --json", victim.pid());
        let json = memferry(&line).gives(0).json();
        least[0] = least[0].min(json["seconds"].as_f64().unwrap());
        victim.assert_whole_on(b);
        let (from, to) = (1_u64 << b, 1_u64 << a);
        let started = Instant::now();
        // SAFETY: the kernel reads 64 bits of each mask.
        let left = unsafe { libc::syscall(libc::SYS_migrate_pages, victim.pid(), 65, &from, &to) };
        least[1] = least[1].min(started.elapsed().as_secs_f64());
        assert!(left >= 0, "{}", std::io::Error::last_os_error());
        victim.assert_whole_on(a);
    }
    let [ours, theirs] = least;
    println!(
        "# {} MiB: memferry move {:.1} ms, migrate_pages(2) {:.1} ms, {:.2} times as long",
        BYTES >> 20,
        ours * 1e3,
        theirs * 1e3,
        ours / theirs
    );
    Ok(())
}

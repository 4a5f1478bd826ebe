// SPDX-License-Identifier: MIT OR Apache-2.0
//! `memferryd` with processes on a machine with a slow tier: hot pages come up, what is above a limit goes down, every byte is
//! right, and the kernel's settings are as before, however the daemon ends.

use std::fs;
use std::io::Read;
use std::os::unix::fs::chown;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::Case;
use crate::program::{self, Done, memferry, memferryd, number, signal};
use crate::promote::need_tiers;
use crate::victim::{FAULTS, HOT, NOBODY, PAGE, POOL, SCATTERED, SCATTERED_EACH, Victim};

pub const CASES: &[Case] = &[
    ("daemon_by_its_defaults_brings_hot_pages_up", defaults),
    (
        "daemon_with_damon_brings_hot_pages_up_and_keeps_limits",
        damon,
    ),
    ("daemon_finds_hot_pages_that_lie_scattered", scattered),
    ("daemon_tiers_memory_that_a_group_shares", pool),
    ("daemon_looks_at_more_processes_than_damon_watches", many),
    ("daemon_with_perf_brings_pages_up_that_fault", page_faults),
    (
        "daemon_with_few_rights_works_or_says_which_is_missing",
        rights,
    ),
    ("daemon_that_watches_moves_nothing", watches),
    ("daemon_that_was_killed_is_undone_by_the_next", killed),
    ("daemon_names_who_has_damon", foreign),
    ("daemon_leaves_memory_with_a_policy", policy),
    ("daemon_keeps_a_protection_beside_a_flood", flood),
    ("daemon_is_killed_at_any_moment", || killed_often(10)),
    ("bench_promote_with_the_daemon", bench),
];

/// Cases that take long.
pub const LONG: &[Case] = &[("daemon_is_killed_200_times", || killed_often(200))];

const BYTES: usize = 64 << 20;
const CONFIG: &str = "/tmp/memferry.toml";
const GROUPS: &str = "[[group]]\nname = \"hot\"\nprocesses = [\"victim-hot\"]\n\n\
                      [[group]]\nname = \"idle\"\nprocesses = [\"victim-idle\"]\nlimit = \"16M\"\n";
const KDAMONDS: &str = "/sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds";
const BALANCING: &str = "/proc/sys/kernel/numa_balancing";

/// What the daemon may set.
const FILES: [&str; 6] = [
    BALANCING,
    "/proc/sys/kernel/numa_balancing_promote_rate_limit_MBps",
    "/sys/kernel/mm/numa/demotion_enabled",
    "/proc/sys/vm/pghot_enabled_sources",
    "/proc/sys/vm/pghot_promote_rate_limit_MBps",
    KDAMONDS,
];

fn settings() -> Vec<Option<String>> {
    FILES.map(|file| fs::read_to_string(file).ok()).to_vec()
}

/// A machine on which nothing but the daemon moves pages, and the settings as they were when this goes.
struct Quiet(String);

impl Quiet {
    fn new() -> Quiet {
        let before = fs::read_to_string(BALANCING).unwrap();
        fs::write(BALANCING, "0").unwrap();
        Quiet(before)
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        let _ = fs::write(BALANCING, self.0.trim());
    }
}

/// The daemon, ended when this goes.
struct Daemon(Child);

impl Daemon {
    fn new(config: &str) -> Daemon {
        fs::write(CONFIG, config).unwrap();
        Daemon(start().spawn().unwrap())
    }

    /// One with these capabilities alone.
    fn limited(config: &str, rights: &'static [libc::c_ulong]) -> Daemon {
        fs::write(CONFIG, config).unwrap();
        Daemon(limit(&mut start(), rights).spawn().unwrap())
    }

    /// Waits until its status is so, and fails with what it said if that takes ten minutes.
    fn wait(&mut self, what: &str, mut is_so: impl FnMut(&Value) -> bool) -> Value {
        let began = Instant::now();
        let mut last = Value::Null;
        while began.elapsed() < Duration::from_secs(600) {
            if let Some(ended) = self.0.try_wait().unwrap() {
                panic!("{what}: it ended ({ended}): {}", self.told());
            }
            let done = memferry("top --json");
            if done.status == Some(0) {
                last = done.json();
                if is_so(&last) {
                    return last;
                }
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        let _ = self.0.kill();
        panic!("{what}: not within ten minutes: {last:#}\n{}", self.told());
    }

    fn told(&mut self) -> String {
        let mut told = String::new();
        self.0
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut told)
            .unwrap();
        told
    }

    /// How often the thread of its rounds has slept.
    fn sleeps(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.0.id())).unwrap();
        let count = status
            .lines()
            .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        count.unwrap().trim().parse().unwrap()
    }

    /// Asks it to end, which it does with status 0. Returns what it told.
    fn end(mut self) -> String {
        signal(self.0.id(), libc::SIGTERM);
        let ended = self.0.wait().unwrap();
        let told = self.told();
        assert!(ended.success(), "{ended}: {told}");
        told
    }

    fn kill(mut self) {
        signal(self.0.id(), libc::SIGKILL);
        assert_eq!(self.0.wait().unwrap().signal(), Some(libc::SIGKILL));
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start() -> Command {
    program::daemon(&format!("--config {CONFIG}"))
}

/// Bits of capability sets (include/uapi/linux/capability.h).
const DAC_OVERRIDE: libc::c_ulong = 1;
const DAC_READ_SEARCH: libc::c_ulong = 2;
const SYS_PTRACE: libc::c_ulong = 19;
const SYS_ADMIN: libc::c_ulong = 21;
const PERFMON: libc::c_ulong = 38;

/// The command as root that can have these capabilities alone, as a unit or a container starts it.
fn limit<'a>(command: &'a mut Command, rights: &'static [libc::c_ulong]) -> &'a mut Command {
    let drop = move || {
        for right in (0..64).filter(|right| !rights.contains(right)) {
            // SAFETY: no memory is touched. Numbers beyond the last capability are refused.
            unsafe { libc::prctl(libc::PR_CAPBSET_DROP, right, 0, 0, 0) };
        }
        Ok(())
    };
    // SAFETY: between fork and exec the closure makes system calls alone.
    unsafe { command.pre_exec(drop) }
}

/// The nodes of the top tier, and one of the lowest.
fn tiers() -> (Vec<u32>, u32) {
    let json = memferry("topology --json").gives(0).json();
    let tiers = json["tiers"].as_array().unwrap();
    let of = |tier: &Value| -> Vec<u32> {
        let nodes = tier["nodes"].as_array().unwrap();
        nodes.iter().map(|node| number(node) as u32).collect()
    };
    (of(&tiers[0]), of(tiers.last().unwrap())[0])
}

fn group<'a>(status: &'a Value, name: &str) -> &'a Value {
    let groups = status["groups"].as_array().unwrap();
    groups.iter().find(|group| group["name"] == name).unwrap()
}

fn on_top(victim: &Victim, top: &[u32]) -> usize {
    top.iter().map(|node| victim.pages_on(*node)).sum()
}

/// A process that uses its memory on the slow node, and one that idles on the fast one.
fn two() -> (Victim, Victim, Vec<u32>) {
    let (top, slow) = tiers();
    (
        Victim::free(BYTES, slow, HOT),
        Victim::free(BYTES, top[0], "victim-idle"),
        top,
    )
}

fn has_damon() -> Result<(), String> {
    match fs::exists(KDAMONDS).unwrap() {
        true => Ok(()),
        false => Err("this kernel has no DAMON in sysfs".to_owned()),
    }
}

fn defaults() -> Result<(), String> {
    need_tiers()?;
    let _quiet = Quiet::new();
    let before = settings();
    let (mut hot, mut idle, top) = two();
    let mut daemon = Daemon::new(&format!("act = true\n{GROUPS}"));
    let status = daemon.wait("the hot pages are in the top tier", |_| {
        on_top(&hot, &top) * 100 >= BYTES / PAGE * 95
    });
    println!(
        "# source {} after {} rounds",
        status["source"]["name"], status["rounds"]
    );
    daemon.end();
    hot.assert_whole();
    idle.assert_whole();
    assert_eq!(settings(), before);
    Ok(())
}

fn damon() -> Result<(), String> {
    need_tiers()?;
    has_damon()?;
    let _quiet = Quiet::new();
    // A page that its process could not use for a while, since the host was busy, looks idle and goes down.
    let mut tries = [(); 3].iter().map(|()| damon_demotes());
    assert!(tries.any(|demoted| demoted == 0), "hot pages go down");
    Ok(())
}

/// Bytes of the hot process that went down.
fn damon_demotes() -> u64 {
    let before = settings();
    let (mut hot, mut idle, top) = two();
    let mut daemon = Daemon::new(&format!("act = true\nsource = \"damon\"\n{GROUPS}"));
    let status = daemon.wait(
        "hot pages are up, idle ones above the limit are down",
        |_| {
            let (hot, idle) = (on_top(&hot, &top), on_top(&idle, &top));
            hot * 100 >= BYTES / PAGE * 95 && idle * PAGE <= 18 << 20
        },
    );
    println!(
        "# {} rounds, CPU: daemon {} s, DAMON {} s in {} s",
        status["rounds"], status["cpu_seconds"], status["source"]["cpu_seconds"], status["seconds"]
    );
    // What moved is the daemon's own doing, and it says so.
    let status = daemon.wait("the account is whole", |status| {
        number(&group(status, "hot")["promoted"]) >= (BYTES / 100 * 95) as u64
            && number(&group(status, "idle")["demoted"]) >= (BYTES - (20 << 20)) as u64
    });
    let demoted = number(&group(&status, "hot")["demoted"]);
    memferry("top --once").gives(0).says("acts").says("damon");
    // It sleeps until DAMON reports. Where the host stops DAMON within a report it sleeps for each part.
    assert!((0..5).any(|_| sleeps_seldom(&mut daemon)));
    let told = daemon.end();
    assert!(!told.contains(WITHOUT_TRACEPOINT), "{told}");
    hot.assert_whole();
    idle.assert_whole();
    assert_eq!(settings(), before);
    demoted
}

/// One page of four is hot, and a limit leaves room for half of all: a piece of 2 MiB is as hot as any other, and the hot pages come up. The
/// regions alone may cost this slow machine more than the default's budget, which then leaves nothing for close looks.
fn scattered() -> Result<(), String> {
    const BYTES: usize = 20 << 20;
    need_tiers()?;
    has_damon()?;
    let _quiet = Quiet::new();
    let before = settings();
    let (top, slow) = tiers();
    let mut victim = Victim::free(BYTES, slow, SCATTERED);
    let group =
        format!("[[group]]\nname = \"some\"\nprocesses = [\"{SCATTERED}\"]\nlimit = \"10M\"\n");
    let mut daemon = Daemon::new(&format!(
        "act = true\nsource = \"damon\"\nsource_cpu = \"50%\"\n{group}"
    ));
    let hot = BYTES / PAGE / SCATTERED_EACH;
    let hot_on_top = |victim: &Victim| -> usize {
        let each = top.iter().map(|node| victim.each_on(SCATTERED_EACH, *node));
        each.sum()
    };
    let status = daemon.wait("the hot pages are in the top tier", |_| {
        hot_on_top(&victim) * 100 >= hot * 95
    });
    println!(
        "# up after {} s, {} of {} bytes promoted; CPU: daemon {} s, DAMON {} s",
        status["seconds"],
        self::group(&status, "some")["promoted"],
        BYTES / SCATTERED_EACH,
        status["cpu_seconds"],
        status["source"]["cpu_seconds"]
    );
    assert!(on_top(&victim, &top) * PAGE <= 11 << 20);
    daemon.end();
    victim.assert_whole();
    assert_eq!(settings(), before);
    Ok(())
}

/// Two processes share memory, and each has one half of it in its page tables: it comes up whole, counts once, and keeps a limit.
fn pool() -> Result<(), String> {
    need_tiers()?;
    has_damon()?;
    let _quiet = Quiet::new();
    let before = settings();
    let (top, slow) = tiers();
    let mut pool = Victim::free(BYTES, slow, POOL);
    let config = format!(
        "act = true\nsource = \"damon\"\n[[group]]\nname = \"pool\"\nprocesses = [\"{POOL}\"]\n"
    );
    let bytes = |status: &Value, of: &str| number(&group(status, "pool")[of]) as usize;
    let mut daemon = Daemon::new(&config);
    let status = daemon.wait("the pool is in the top tier", |status| {
        bytes(status, "top") * 100 >= BYTES * 95
            && on_top(&pool, &top) * 100 >= BYTES / PAGE / 2 * 95
    });
    assert!(
        bytes(&status, "resident") <= BYTES + BYTES / 8,
        "{status:#}"
    );
    daemon.end();
    // This has all of it in the page tables of the parent.
    pool.assert_whole();
    assert!(on_top(&pool, &top) * 100 >= BYTES / PAGE * 95);
    let mut daemon = Daemon::new(&format!("{config}limit = \"16M\"\n"));
    daemon.wait("what is above its limit is down", |_| {
        on_top(&pool, &top) * PAGE <= 18 << 20
    });
    daemon.end();
    pool.assert_whole();
    assert_eq!(settings(), before);
    Ok(())
}

/// Of more processes than one kdamond watches, the smallest one comes up, which another kdamond looks at in its turn.
fn many() -> Result<(), String> {
    const IDLE: usize = 36;
    need_tiers()?;
    has_damon()?;
    let _quiet = Quiet::new();
    let before = settings();
    let (top, slow) = tiers();
    // A daemon leaves processes with less than 16 MiB alone.
    let bytes = |mebibytes: usize| mebibytes << 20;
    let idle = || Victim::free(bytes(20), top[0], "victim-idle");
    let mut idle: Vec<Victim> = (0..IDLE).map(|_| idle()).collect();
    let mut hot = Victim::free(bytes(18), slow, HOT);
    let name = "[[group]]\nname = \"all\"\nprocesses = [\"victim-*\"]\n";
    let mut daemon = Daemon::new(&format!("act = true\nsource = \"damon\"\n{name}"));
    let status = daemon.wait("the smallest one is up", |_| {
        on_top(&hot, &top) * 100 >= bytes(18) / PAGE * 95
    });
    println!(
        "# up after {} s, {} rounds",
        status["seconds"], status["rounds"]
    );
    assert!(
        number(&status["source"]["watched"]) < IDLE as u64 + 1,
        "{status:#}"
    );
    let second = fs::read_to_string(format!(
        "{}/1/state",
        KDAMONDS.trim_end_matches("/nr_kdamonds")
    ));
    assert_eq!(second.unwrap().trim(), "on");
    daemon.end();
    hot.assert_whole();
    idle.iter_mut().for_each(Victim::assert_whole);
    assert_eq!(settings(), before);
    Ok(())
}

/// Whether the daemon sleeps five times a round at most; with looks for a report each 10 ms it was 26 times.
fn sleeps_seldom(daemon: &mut Daemon) -> bool {
    let (mut round, began) = (u64::MAX, daemon.sleeps());
    let status = daemon.wait("twenty more rounds", |status| {
        let now = number(&status["rounds"]);
        round = round.min(now);
        now >= round + 20
    });
    let (rounds, sleeps) = (number(&status["rounds"]) - round, daemon.sleeps() - began);
    println!("# it slept {sleeps} times in {rounds} rounds");
    sleeps <= 5 * rounds
}

/// What a daemon tells that reads DAMON's regions one by one.
const WITHOUT_TRACEPOINT: &str = "DAMON's regions are read from sysfs";

/// Whether this machine's PMU samples addresses, so that perf would not take page faults.
fn samples_loads() -> bool {
    ["cpu/events/mem-loads", "ibs_op/type"]
        .iter()
        .any(|file| fs::exists(format!("/sys/bus/event_source/devices/{file}")).unwrap())
}

fn perf(rest: &str) -> String {
    format!(
        "act = true\nsource = \"perf\"\n[[group]]\nname = \"faults\"\nprocesses = [\"{FAULTS}\"]\n{rest}"
    )
}

/// A page of each MiB faults; the others of its chunk come along.
fn page_faults() -> Result<(), String> {
    need_tiers()?;
    if samples_loads() {
        return Err("this machine's PMU samples loads".to_owned());
    }
    let _quiet = Quiet::new();
    let before = settings();
    let (top, slow) = tiers();
    let mut faults = Victim::free(BYTES, slow, FAULTS);
    let mut hot = Victim::free(BYTES, slow, HOT);
    let group = format!("[[group]]\nname = \"hot\"\nprocesses = [\"{HOT}\"]\n");
    let mut daemon = Daemon::new(&perf(&group));
    let status = daemon.wait("what faults is in the top tier", |_| {
        on_top(&faults, &top) * 100 >= BYTES / PAGE * 95
    });
    let source = &status["source"];
    println!("# {} rounds, {source}", status["rounds"]);
    let samples = &source["samples"];
    assert!(samples["event"] == "page-faults" && number(&samples["taken"]) > 0);
    // The weak source does not see what is in use and does not fault, and is named as such.
    assert_eq!(on_top(&hot, &top), 0);
    memferry("top --once")
        .gives(0)
        .says("only page faults: what does not fault looks idle");
    memferry("doctor").says("samples only page faults");
    daemon.end();
    faults.assert_whole();
    hot.assert_whole();
    assert_eq!(settings(), before);
    Ok(())
}

/// Processes of another user, as most are.
fn rights() -> Result<(), String> {
    need_tiers()?;
    has_damon()?;
    let _quiet = Quiet::new();
    let before = settings();
    let (top, slow) = tiers();
    let mut hot = Victim::of_user(BYTES, slow, HOT, NOBODY);
    let is_up = |victim: &Victim| on_top(victim, &top) * 100 >= BYTES / PAGE * 95;
    let damon = format!("act = true\nsource = \"damon\"\n{GROUPS}");
    for (rights, missing) in [
        (&[DAC_READ_SEARCH][..], "without CAP_SYS_PTRACE"),
        (&[SYS_PTRACE][..], "without CAP_DAC_READ_SEARCH"),
    ] {
        let mut daemon = Daemon::limited(&damon, rights);
        let says = |status: &Value| status["trouble"].as_str().unwrap_or("").ends_with(missing);
        daemon.wait(missing, says);
        daemon.end();
        assert_eq!(on_top(&hot, &top), 0);
    }
    let mut daemon = Daemon::limited(&damon, &[SYS_PTRACE, DAC_READ_SEARCH]);
    daemon.wait("hot pages are up with two rights", |_| is_up(&hot));
    let told = daemon.end();
    let line = told.lines().find(|line| line.contains(WITHOUT_TRACEPOINT));
    assert!(
        line.is_some_and(|line| line.contains("without CAP_PERFMON")),
        "{told}"
    );
    assert!(
        told.contains("stays where it is: without CAP_SYS_NICE"),
        "{told}"
    );
    hot.assert_whole();

    let once = |config: &str, rights| {
        fs::write(CONFIG, config).unwrap();
        let line = format!("--config {CONFIG} --once");
        Done::new(
            &line,
            limit(&mut program::daemon(&line), rights).output().unwrap(),
        )
    };
    let balancing = "act = true\nsource = \"numa-balancing\"\n";
    once(balancing, &[SYS_PTRACE, DAC_READ_SEARCH])
        .gives(1)
        .says("without CAP_SYS_ADMIN");
    once(balancing, &[SYS_ADMIN]).gives(0);
    demotes_of_nobody(&format!("{balancing}{GROUPS}"), top[0])?;

    let paranoid = "/proc/sys/kernel/perf_event_paranoid";
    let was = fs::read_to_string(paranoid).unwrap();
    fs::write(paranoid, "2").unwrap();
    once(&perf(""), &[SYS_PTRACE, DAC_READ_SEARCH])
        .gives(4)
        .says("without CAP_PERFMON");
    let mut faults = Victim::of_user(BYTES, slow, FAULTS, NOBODY);
    let mut daemon = Daemon::limited(&perf(""), &[SYS_PTRACE, DAC_READ_SEARCH, PERFMON]);
    if !samples_loads() {
        daemon.wait("what faults is up with three rights", |_| is_up(&faults));
    }
    daemon.end();
    fs::write(paranoid, was.trim()).unwrap();
    faults.assert_whole();
    assert_eq!(settings(), before);
    Ok(())
}

/// A cgroup that another user owns, above its limit.
fn demotes_of_nobody(config: &str, node: u32) -> Result<(), String> {
    let cgroups = crate::process::cgroups()?;
    fs::write(cgroups.join("cgroup.subtree_control"), "+memory").unwrap();
    let cgroup = cgroups.join("nobody");
    fs::create_dir_all(&cgroup).unwrap();
    let reclaim = cgroup.join("memory.reclaim");
    chown(&reclaim, Some(NOBODY), Some(NOBODY)).unwrap();
    // Its memory is charged where it was when it came to be.
    let join = |folder: &Path| fs::write(folder.join("cgroup.procs"), "0").unwrap();
    join(&cgroup);
    let mut idle = Victim::of_user(BYTES, node, "victim-idle", NOBODY);
    join(cgroups);
    for (rights, missing) in [
        (&[SYS_PTRACE, DAC_READ_SEARCH, SYS_ADMIN][..], true),
        (&[SYS_PTRACE, DAC_OVERRIDE, SYS_ADMIN][..], false),
    ] {
        let mut daemon = Daemon::limited(config, rights);
        daemon.wait("it may not demote, or does", |status| {
            let trouble = status["trouble"].as_str().unwrap_or("");
            match missing {
                true => trouble.ends_with("without CAP_DAC_OVERRIDE"),
                false => idle.pages_on(node) * PAGE <= 32 << 20,
            }
        });
        daemon.end();
    }
    idle.assert_whole();
    Ok(())
}

fn watches() -> Result<(), String> {
    need_tiers()?;
    let _quiet = Quiet::new();
    let before = settings();
    let (mut hot, idle, top) = two();
    fs::write(CONFIG, GROUPS).unwrap();
    memferryd(&format!("check --config {CONFIG}"))
        .gives(0)
        .says("only watches");
    let mut daemon = Daemon::new(GROUPS);
    daemon.wait("twenty rounds", |status| number(&status["rounds"]) >= 20);
    // A file that is wrong changes nothing, and is told with its line.
    fs::write(CONFIG, format!("{GROUPS}act = true\n")).unwrap();
    memferryd(&format!("check --config {CONFIG}"))
        .gives(3)
        .says("memferry.toml:9");
    signal(daemon.0.id(), libc::SIGHUP);
    let status = daemon.wait("the trouble is told", |status| !status["trouble"].is_null());
    assert!(
        status["trouble"]
            .as_str()
            .unwrap()
            .contains("memferry.toml:9"),
        "{status:#}"
    );
    daemon.wait("it goes on", |now| {
        number(&now["rounds"]) > number(&status["rounds"]) + 4
    });
    daemon.end();
    assert_eq!(on_top(&hot, &top), 0);
    assert_eq!(on_top(&idle, &top), BYTES / PAGE);
    hot.assert_whole();
    assert_eq!(settings(), before);
    Ok(())
}

fn killed() -> Result<(), String> {
    need_tiers()?;
    let _quiet = Quiet::new();
    let before = settings();
    let (hot, idle, _) = two();
    for source in ["numa-balancing", "damon"] {
        if source == "damon" && has_damon().is_err() {
            continue;
        }
        let config = format!("act = true\nsource = \"{source}\"\n{GROUPS}");
        let mut daemon = Daemon::new(&config);
        daemon.wait("three rounds", |status| number(&status["rounds"]) >= 3);
        let changed = settings();
        assert_ne!(changed, before, "{source}");
        daemon.kill();
        assert_eq!(settings(), changed, "{source}");
        memferryd(&format!("--config {CONFIG} --once --json")).gives(0);
        assert_eq!(settings(), before, "{source}");
    }
    drop((hot, idle));
    Ok(())
}

fn foreign() -> Result<(), String> {
    need_tiers()?;
    has_damon()?;
    fs::write(KDAMONDS, "1").unwrap();
    fs::write(CONFIG, format!("source = \"damon\"\n{GROUPS}")).unwrap();
    let done = memferryd(&format!("--config {CONFIG} --once"));
    let left = fs::read_to_string(KDAMONDS).unwrap();
    fs::write(KDAMONDS, "0").unwrap();
    done.gives(4).says("somebody else has set up 1 kdamonds");
    assert_eq!(left.trim(), "1");
    // Two daemons do not run at the same time.
    let mut daemon = Daemon::new(GROUPS);
    daemon.wait("a round", |status| number(&status["rounds"]) >= 1);
    memferryd(&format!("--config {CONFIG} --once"))
        .gives(1)
        .says("another daemon (pid");
    daemon.end();
    Ok(())
}

/// Its pages are bound to the slow node, and stay there though they are in use.
fn policy() -> Result<(), String> {
    need_tiers()?;
    has_damon()?;
    let _quiet = Quiet::new();
    let (top, slow) = tiers();
    let mut bound = Victim::new(BYTES, slow, false);
    let hot = Victim::free(BYTES / 4, slow, HOT);
    let config = format!(
        "act = true\nsource = \"damon\"\n{GROUPS}[[group]]\nname = \"bound\"\nprocesses = [\"commands\"]\nprotect = \"50%\"\n"
    );
    let mut daemon = Daemon::new(&config);
    daemon.wait("the other one's pages are up", |_| {
        on_top(&hot, &top) * 100 >= BYTES / 4 / PAGE * 95
    });
    bound.assert_whole_on(slow);
    daemon.end();
    Ok(())
}

/// Bytes that are free on a node.
fn free(node: u32) -> usize {
    let file = format!("/sys/devices/system/node/node{node}/meminfo");
    let text = fs::read_to_string(file).unwrap();
    let line = text.lines().find(|line| line.contains("MemFree:")).unwrap();
    let kib = line.split_whitespace().rev().nth(1).unwrap();
    kib.parse::<usize>().unwrap() << 10
}

/// Others use all of the top tier, and more than that; the pages of the protected one come up and stay.
fn flood() -> Result<(), String> {
    const PROTECTED: usize = 128 << 20;
    const FLOOD: &str = "victim-hot-more";
    need_tiers()?;
    has_damon()?;
    let _quiet = Quiet::new();
    let (top, slow) = tiers();
    // What stays free, of which CMA's 64 MiB cannot be bound to, is less than all that want to come up.
    let fill = |node: u32, left: usize, most: usize| {
        let bytes = (free(node) - left).min(most);
        Victim::free(bytes / (2 << 20) * (2 << 20), node, FLOOD)
    };
    let fill_top = |&node: &u32| fill(node, 128 << 20, usize::MAX);
    let mut others: Vec<Victim> = top.iter().map(fill_top).collect();
    // With all checkers the kernel itself has a quarter of the slow node.
    others.push(fill(slow, PROTECTED + (64 << 20), 2 * PROTECTED));
    let mut hot = Victim::free(PROTECTED, slow, HOT);
    let mut daemon = Daemon::new(&format!(
        "act = true\nsource = \"damon\"\n[[group]]\nname = \"hot\"\nprocesses = [\"{HOT}\"]\nprotect = {PROTECTED}\n\n\
         [[group]]\nname = \"flood\"\nprocesses = [\"{FLOOD}\"]\n"
    ));
    let part = |hot: &Victim| on_top(hot, &top) * 100 / (PROTECTED / PAGE);
    let status = daemon.wait("the protected pages are up", |_| part(&hot) >= 95);
    println!(
        "# up after {} s, {} rounds",
        status["seconds"], status["rounds"]
    );
    let until = number(&status["rounds"]) + 40;
    let mut least = 100;
    let status = daemon.wait("forty more rounds", |status| {
        least = least.min(part(&hot));
        number(&status["rounds"]) >= until
    });
    println!(
        "# part of the protected pages in the top tier: {least}% at the least, {}% at the end; the flood has {} of {} there",
        part(&hot),
        group(&status, "flood")["top"],
        group(&status, "flood")["resident"]
    );
    assert!(least >= 95, "{status:#}");
    daemon.end();
    hot.assert_whole();
    others.iter_mut().for_each(Victim::assert_whole);
    Ok(())
}

/// A start whose configuration is wrong puts back what a killed daemon changed, and does nothing else.
fn killed_often(times: u64) -> Result<(), String> {
    need_tiers()?;
    let _quiet = Quiet::new();
    let before = settings();
    let (mut hot, mut idle, top) = two();
    let source = has_damon().map_or("numa-balancing", |()| "damon");
    let limited = |hot: &str| {
        format!(
            "act = true\nsource = \"{source}\"\n[[group]]\nname = \"hot\"\nprocesses = [\"{HOT}\"]\n{hot}\n\
             [[group]]\nname = \"idle\"\nprocesses = [\"victim-idle\"]\nlimit = \"16M\"\n"
        )
    };
    let (mut changed, mut moved, mut random) = (0, 0, 0x9e37_79b9_u64);
    for time in 0..times {
        let was = on_top(&hot, &top);
        // Pages come up, or leave again; the daemon dies between its first instruction and its sixth round.
        let mut daemon = Daemon::new(&limited(["", "limit = \"2M\""][time as usize % 2]));
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let (pid, rounds) = (u64::from(daemon.0.id()), (random >> 33) % 6);
        if rounds > 0 {
            daemon.wait("its rounds", |status| {
                number(&status["pid"]) == pid && number(&status["rounds"]) >= rounds
            });
        }
        std::thread::sleep(Duration::from_millis((random >> 40) % 500));
        assert!(daemon.0.try_wait().unwrap().is_none(), "{}", daemon.told());
        daemon.kill();
        changed += u64::from(settings() != before);
        moved += u64::from(on_top(&hot, &top) != was);
        fs::write(CONFIG, "wrong").unwrap();
        memferryd(&format!("--config {CONFIG}"))
            .gives(3)
            .says("memferry.toml:1");
        assert_eq!(settings(), before, "after {time} kills");
        if time % 10 == 9 {
            hot.assert_whole();
            idle.assert_whole();
        }
    }
    println!(
        "# {times} times killed: {changed} times with settings changed, {moved} times with pages moved"
    );
    assert!(changed * 2 > times && (moved > 0 || source != "damon"));
    hot.assert_whole();
    idle.assert_whole();
    assert_eq!(settings(), before);
    Ok(())
}

/// The bench starts the daemon by itself, and what it reports of it is what was seen.
fn bench() -> Result<(), String> {
    need_tiers()?;
    has_damon()?;
    let _quiet = Quiet::new();
    let before = settings();
    let line = "bench promote --scenario 1 --mode none,daemon --size 16M --runs 1 --json";
    let run = |seconds: u32| {
        let json = memferry(&format!("{line} --seconds {seconds}"))
            .gives(0)
            .json();
        assert_eq!(settings(), before);
        let rows = json["rows"].as_array().unwrap();
        assert_eq!(rows.len(), 2, "{json:#}");
        rows[1].clone()
    };
    let all_up = |row: &Value| {
        number(&row["promoted_hot_pages"]) == number(&row["region_bytes"]) / PAGE as u64
    };
    // A guest whose host is busy needs longer for the same accesses.
    let mut row = run(30);
    for seconds in [60, 120] {
        if !all_up(&row) {
            row = run(seconds);
        }
    }
    assert_eq!(
        (&row["mode"], &row["source"]),
        (&"daemon".into(), &"damon".into())
    );
    assert!(all_up(&row), "{row}");
    assert!(
        number(&row["promoted_pages"]) >= number(&row["promoted_hot_pages"]),
        "{row}"
    );
    assert!(row["hot_in_top_95_s"].is_number(), "{row}");
    let ends = row["timeline"].as_array().unwrap().last().unwrap();
    assert!(number(&ends[1]) > 0, "{row}");
    for cost in ["tracker_cpu_s", "migration_cpu_s"] {
        assert!(row[cost].as_f64().unwrap() > 0.0, "{row}");
    }
    // Somebody else's DAMON is not taken.
    fs::write(KDAMONDS, "1").unwrap();
    let done = memferry(&format!("{line} --accesses 1000"));
    fs::write(KDAMONDS, "0").unwrap();
    done.gives(0)
        .says("Not available here: daemon; somebody else has set up 1 kdamonds");
    assert_eq!(settings(), before);
    Ok(())
}

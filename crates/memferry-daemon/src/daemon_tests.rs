// SPDX-License-Identifier: MIT OR Apache-2.0
//! The daemon's rounds on a made-up machine: files below a folder, and hands that only note what is to be moved.

use std::fs;
use std::io;
use std::sync::Mutex;

use super::*;
use crate::history::Record;
use crate::knobs::{BALANCING, BALANCING_RATE, DEMOTION};
use crate::machine::tests::{put, tree};
use crate::tiering::{CHUNK, Near, PagePlaces, Placed};
use memferry_linux::invented::changes;

/// Each process has 32 chunks; those of process 20 lie in the top tier.
#[derive(Clone, Default)]
struct Fake(Arc<Mutex<BTreeMap<(u32, usize), bool>>>);

const CHUNKS: usize = 32;
/// Chunks that do not move.
const BUSY: usize = 30;
const DENIED: usize = 31;

fn process(memory: Memory) -> ProcessId {
    match memory {
        Memory::Process(process) => process,
        Memory::Shared(object) => panic!("{object:?}"),
    }
}

impl Hands for Fake {
    fn share(&mut self, _: &Rc<[SharedMemory]>) {}

    fn near(&mut self, _: &Machine, _: Memory) -> Vec<Near> {
        let distance = 10;
        vec![Near { node: 0, distance }]
    }

    fn pages(&mut self, _: &Machine, _: ProcessId, _: usize) -> io::Result<PagePlaces> {
        unreachable!("no close looks here")
    }

    fn look(&mut self, _: &Machine, memory: Memory) -> io::Result<Vec<Placed>> {
        let process = process(memory);
        let mut places = self.0.lock().unwrap();
        let place = |number| {
            let place = places.entry((process.pid, number));
            Placed {
                number,
                resident: CHUNK as u64,
                top: CHUNK as u64 * u64::from(*place.or_insert(process.pid == 20)),
                node: 0,
            }
        };
        Ok((0..CHUNKS).map(place).collect())
    }

    fn unmovable(&mut self, memory: Memory) -> BTreeMap<Unmovable, u64> {
        let of = u64::from(process(memory).pid);
        BTreeMap::from([(Unmovable::Locked, of), (Unmovable::Hugetlb, 1)])
    }

    fn carry(&mut self, _: &Machine, of: &Move, _: &AtomicBool) -> Result<Carried, MoveError> {
        match of.number {
            BUSY => return Ok(Carried::stayed("EBUSY", of.bytes)),
            DENIED => {
                return Err(MoveError::System {
                    call: "move_pages",
                    hint: "",
                    source: io::Error::from_raw_os_error(libc::EPERM),
                });
            }
            _ => {}
        }
        let mut places = self.0.lock().unwrap();
        places.insert((process(of.memory).pid, of.number), of.way == Way::Up);
        Ok(Carried {
            moved: of.bytes,
            ..Carried::default()
        })
    }
}

impl Fake {
    fn top(&self, pid: u32) -> usize {
        let places = self.0.lock().unwrap();
        let on_top = places.iter().filter(|(key, top)| key.0 == pid && **top);
        on_top.count()
    }
}

const RECLAIM: &str = "sys/fs/cgroup/a/memory.reclaim";
const CONFIG: &str = "act = true\nsource = \"numa-balancing\"\n[[group]]\nname = \"all\"\nprocesses = [\"p20\"]\nlimit = \"32M\"\n";

fn machine(config: &str) -> (tempfile::TempDir, Options, Fake, Daemon) {
    let root = tree();
    let pages = (CHUNKS * CHUNK) >> rustix::param::page_size().trailing_zeros();
    for (file, text) in [
        ("proc/20/statm", &*format!("1 {pages} 0\n")),
        ("proc/20/cgroup", "0::/a\n"),
        ("proc/20/comm", "p20\n"),
        (
            "proc/20/stat",
            &format!("20 (p20) S {}900 0\n", "0 ".repeat(18)),
        ),
        (BALANCING, "1"),
        (BALANCING_RATE, "65536"),
        (DEMOTION, "false"),
        (RECLAIM, ""),
        ("memferry.toml", config),
    ] {
        put(root.path(), file, text);
    }
    let options = Options {
        config: root.path().join("memferry.toml"),
        root: root.path().to_owned(),
        dry_run: false,
        once: false,
        head: |root| format!("{{\"schema\":\"x\",\"root\":{root:?}}}"),
    };
    let (config, machine, fake) = (
        Config::read(&options.config).unwrap(),
        Machine::read(root.path()).unwrap(),
        Fake::default(),
    );
    let daemon = Daemon::new(
        &options,
        config,
        machine,
        Box::new(fake.clone()),
        Knobs::open(root.path()).unwrap(),
        Arc::default(),
    )
    .unwrap();
    (root, options, fake, daemon)
}

fn text(root: &Path, file: &str) -> String {
    crate::machine::text(root, file).unwrap()
}

/// What the daemon sets of the kernel that moves.
fn settings(root: &Path) -> [String; 3] {
    [BALANCING, BALANCING_RATE, DEMOTION].map(|file| text(root, file))
}

/// Gives the daemon another configuration.
fn configure(daemon: &mut Daemon, config: &str) {
    fs::write(&daemon.options.config, config).unwrap();
    daemon.reload();
}

/// The pace once saved up less than comes in a round, so that a round could take no more.
#[test]
fn the_configured_rate_is_reached_round_by_round() {
    let text = format!("{CONFIG}[brakes]\nbytes_per_second = \"64M\"\n");
    let config = Config::parse(&text, Path::new("x")).unwrap();
    let mut pace = pace(&config);
    let mut moved = 0;
    let round = ROUND.as_millis() as u64;
    for ms in (round..=10_000).step_by(round as usize) {
        let bytes = pace.budget(ms);
        let reserved = pace.reserve(ms, bytes).unwrap();
        pace.settle(reserved, bytes);
        moved += bytes;
    }
    // A second that is saved up, then the rest but for the first round; less than a byte a round is lost.
    let whole = (64 << 20) * (11_000 - round) / 1000;
    assert!((whole - 50..=whole).contains(&moved), "{moved} of {whole}");
}

#[test]
fn the_kernel_is_supervised_and_set_back() {
    let (root, _, fake, mut daemon) = machine(CONFIG);
    daemon.round();
    assert_eq!(text(root.path(), BALANCING), "3");
    assert_eq!(text(root.path(), BALANCING_RATE), "256");
    // 32 MiB are above the limit: the kernel is asked to demote them, and the daemon moves nothing.
    assert_eq!(text(root.path(), RECLAIM), (32 << 20).to_string());
    assert_eq!(fake.top(20), CHUNKS);
    let status = Status::read(root.path()).unwrap();
    assert_eq!(
        (status.source.name.as_str(), status.kernel_promoted),
        ("numa-balancing", Some(0))
    );
    assert_eq!(status.groups[0].used_within, None);
    assert_eq!(
        (status.groups[0].top, status.groups[0].limit),
        (64 << 20, Some(32 << 20))
    );
    // The same is not asked for again before the processes were looked at.
    put(root.path(), RECLAIM, "");
    daemon.round();
    assert_eq!(text(root.path(), RECLAIM), "");
    daemon.looks.clear();
    daemon.round();
    assert_eq!(text(root.path(), RECLAIM), (32 << 20).to_string());
    // A cgroup without the file is above its limit for good, which somebody has to know.
    assert_eq!(daemon.trouble, None);
    fs::remove_file(root.path().join(RECLAIM)).unwrap();
    daemon.looks.clear();
    daemon.round();
    assert!(daemon.trouble.as_ref().unwrap().contains(RECLAIM));
    daemon.end().unwrap();
    assert_eq!(settings(root.path()), ["1", "65536", "false"]);
    assert!(Status::read(root.path()).is_err());
}

#[test]
fn what_stayed_is_told_by_group_and_reason() {
    let none = "[[group]]\nname = \"none\"\nunits = [\"x\"]\n[[group]]";
    let (root, _, _, mut daemon) = machine(&CONFIG.replace("[[group]]", none));
    daemon.round();
    let of = |number| Move {
        memory: daemon.members[0].process.into(),
        number,
        way: Way::Down,
        cause: crate::tiering::Cause::Exchange,
        node: 0,
        bytes: CHUNK as u64,
        pages: None,
    };
    let moves = [0, BUSY, DENIED].map(of);
    daemon.carry(&moves, 1000, 256 << 20, 256 << 20);
    daemon.round();
    let status = Status::read(root.path()).unwrap();
    let [none, all] = &status.groups[..] else {
        panic!("{status:?}")
    };
    let chunk = CHUNK as u64;
    let expected = ["EBUSY", "EPERM"].map(|reason| (reason.to_owned(), chunk));
    assert_eq!(
        (all.stayed, &all.stayed_reasons),
        (2 * chunk, &expected.into())
    );
    assert!(none.stayed_reasons.is_empty());
    let told = "memferry_stayed_bytes_total{group=\"all\",reason=\"EBUSY\"} 2097152.0";
    assert!(metrics::text(&status).unwrap().contains(told));
}

/// Of 1 GiB and 512 MiB two thirds are the top tier's.
#[test]
fn what_the_kernel_protects_by_tier_is_a_protection_unless_another_is_given() {
    let protected = |cmdline: &str, more: &str| {
        let (root, _, _, mut daemon) = machine(&CONFIG.replace("limit", &format!("{more}\nlimit")));
        put(root.path(), "proc/cmdline", cmdline);
        put(root.path(), "sys/fs/cgroup/a/memory.low", "25165824\n");
        daemon.has_tiered_limits = tiered_limits::asked_for(root.path());
        daemon.round();
        Status::read(root.path()).unwrap().groups[0].protect
    };
    let asked = "quiet cgroup.memory=tiered_limits\n";
    assert_eq!(protected(asked, ""), 16 << 20);
    assert_eq!(protected(asked, "protect = \"8M\""), 8 << 20);
    assert_eq!(protected(asked, "protect = 0"), 0);
    assert_eq!(protected("quiet\n", ""), 0);
}

#[test]
fn what_cannot_be_moved_is_told_by_group_and_reason() {
    let (root, _, _, mut daemon) = machine(CONFIG);
    daemon.round();
    let status = Status::read(root.path()).unwrap();
    let expected = [("hugetlb", 1), ("locked", 20)].map(|(of, bytes)| (of.to_owned(), bytes));
    assert_eq!(status.groups[0].unmovable, expected.clone().into());
    let told = "memferry_group_unmovable_bytes{group=\"all\",reason=\"locked\"} 20.0";
    let metrics = metrics::text(&status).unwrap();
    assert!(metrics.contains(told), "{metrics}");
    let room = Room {
        free: BTreeMap::new(),
        budget: 0,
        waste: 50,
        reports: 1,
        kernel_moves: true,
    };
    let known = daemon.explain("20", &status, &room, &[]).unwrap();
    assert_eq!(known.memories[0].unmovable, expected.into());
    // A process that has ended has nothing.
    fs::remove_dir_all(root.path().join("proc/20")).unwrap();
    daemon.find();
    daemon.round();
    let status = Status::read(root.path()).unwrap();
    assert_eq!(status.groups[0].unmovable, BTreeMap::new());
}

/// Looks at large processes take seconds, in which a stop must be heard.
#[test]
fn a_stop_ends_the_looks() {
    let (_root, _, _, mut daemon) = machine(CONFIG);
    daemon.find();
    daemon.stop.store(true, Ordering::Relaxed);
    daemon.look();
    assert!(daemon.looks.is_empty());
    daemon.stop.store(false, Ordering::Relaxed);
    daemon.look();
    assert_eq!(daemon.looks.len(), 1);
}

#[test]
fn pressure_halves_the_rate_and_it_comes_back() {
    let (root, _, _, mut daemon) = machine(CONFIG);
    let press = |resource: &str, percent: &str| {
        let text = format!("some avg10={percent} avg60=0 avg300=0 total=0\n");
        put(root.path(), &format!("proc/pressure/{resource}"), &text);
    };
    press("memory", "50.00");
    daemon.round();
    assert_eq!(text(root.path(), BALANCING_RATE), "128");
    press("memory", "0.00");
    (0..QUIET_ROUNDS).for_each(|_| daemon.round());
    assert_eq!(text(root.path(), BALANCING_RATE), "256");
    // Some task always waits where there are more of them than CPUs: by default that brakes nothing.
    press("cpu", "99.99");
    daemon.round();
    assert_eq!(text(root.path(), BALANCING_RATE), "256");
    daemon.config.brakes.cpu_pressure = 99.0;
    daemon.round();
    assert_eq!(text(root.path(), BALANCING_RATE), "128");
}

/// Process 20 is in cgroup /a, 32 MiB above its group's limit; process 21 in /b, as far above its own.
#[test]
fn pressure_in_a_groups_own_cgroups_halves_its_rate_alone() {
    let of = |name: &str| {
        format!("[[group]]\nname = \"{name}\"\nprocesses = [\"{name}\"]\nlimit = \"16M\"\n")
    };
    let config = of("p20") + &of("p21") + "[brakes]\nbytes_per_second = \"32M\"\n";
    let (root, _, fake, mut daemon) = machine(&format!(
        "act = true\nsource = \"numa-balancing\"\n{config}"
    ));
    for file in ["statm", "comm", "stat"] {
        let copy = text(root.path(), &format!("proc/20/{file}")).replace("p20", "p21");
        put(root.path(), &format!("proc/21/{file}"), &(copy + "\n"));
    }
    put(root.path(), "proc/21/cgroup", "0::/b\n");
    let b = RECLAIM.replace("/a/", "/b/");
    put(root.path(), &b, "");
    let on_top = (0..CHUNKS).map(|number| ((21, number), true));
    fake.0.lock().unwrap().extend(on_top);
    let press = |file: &str| {
        let text = "some avg10=50.00 avg60=0 avg300=0 total=0\n";
        put(root.path(), &format!("sys/fs/cgroup/{file}.pressure"), text);
    };
    press("a/memory");
    // By default busy CPUs slow nobody.
    press("b/cpu");
    daemon.round();
    let asked = [RECLAIM, &b].map(|file| text(root.path(), file).parse::<u64>().unwrap() >> 20);
    assert_eq!(asked, [8, 16]);
    let status = Status::read(root.path()).unwrap();
    let rates = [0, 1].map(|group: usize| status.groups[group].pressure_rate);
    assert_eq!(
        (rates, status.pressure_rate),
        ([Some(500), Some(1000)], 1000)
    );
    let [p20, p21] = &status.groups[..] else {
        panic!("{status:?}")
    };
    assert_eq!((p20.memory_pressure, p20.cpu_pressure), (Some(50.0), None));
    assert_eq!((p21.memory_pressure, p21.cpu_pressure), (None, Some(50.0)));
    let told = "memferry_group_rate_ratio{group=\"p20\",reason=\"pressure\"} 0.5";
    assert!(metrics::text(&status).unwrap().contains(told));
    assert_eq!(daemon.claims()[0].pressure.per_mille(), 500);
}

#[test]
fn a_bad_file_changes_nothing_and_a_good_one_is_taken() {
    let (root, _, _, mut daemon) = machine(CONFIG);
    daemon.round();
    let before = daemon.config.clone();
    configure(&mut daemon, "act = true\nactt = false\n");
    assert_eq!(daemon.config, before);
    assert!(daemon.refused.as_ref().unwrap().contains("memferry.toml:2"));
    // A source that cannot be had is not taken either.
    configure(&mut daemon, &CONFIG.replace("numa-balancing", "damon"));
    assert_eq!(
        (&daemon.config, daemon.source.name()),
        (&before, "numa-balancing")
    );
    assert_eq!(text(root.path(), BALANCING), "3");
    // What only watches sets everything back.
    configure(&mut daemon, &CONFIG.replace("true", "false"));
    assert!(!daemon.config.act && daemon.refused.is_none());
    assert_eq!(settings(root.path()), ["1", "65536", "false"]);
}

#[test]
fn damon_is_taken_once_somebody_else_leaves_it() {
    let (root, _, fake, mut daemon) = machine(CONFIG);
    crate::source::tests::taken_damon(root.path(), true);
    configure(&mut daemon, &CONFIG.replace("numa-balancing", "auto"));
    assert_eq!(settings(root.path()), ["1", "65536", "false"]);
    daemon.round();
    // Only the limit moves anything; two chunks would not move.
    assert_eq!(
        (daemon.source.name(), fake.top(20)),
        ("none", CHUNKS / 2 + 2)
    );
    assert!(daemon.why.contains("somebody else"), "{}", daemon.why);
    daemon.find();
    assert_eq!(daemon.source.name(), "none");
    crate::source::tests::taken_damon(root.path(), false);
    daemon.find();
    assert_eq!((daemon.source.name(), daemon.watched), ("damon", 1));
    daemon.end().unwrap();
}

#[test]
fn names_of_cgroups_are_read_anew_and_a_bad_file_stops_no_other_group() {
    let folder = tempfile::tempdir().unwrap();
    let group = |name: &str| {
        let file = folder.path().join(name);
        format!("[[group]]\nname = {name:?}\ncgroup_names_file = {file:?}\n")
    };
    let (_root, _, _, mut daemon) = machine(&format!(
        "source = \"numa-balancing\"\n{}{}",
        group("broken"),
        group("pods")
    ));
    daemon.round();
    assert!(daemon.members.is_empty() && daemon.trouble.is_none());
    put(folder.path(), "broken/is", "a folder");
    put(folder.path(), "pods", "x\na\n");
    daemon.find();
    let groups: Vec<usize> = daemon.members.iter().map(|of| of.group).collect();
    assert_eq!(groups, [1]);
    let trouble = daemon.trouble.clone().unwrap();
    assert!(
        trouble.contains("broken: cannot read the names of cgroups"),
        "{trouble}"
    );
    // While it lasts it is logged once; mended and broken again, once more.
    daemon.find();
    assert!(!daemon.is_new(&trouble));
    daemon.trouble = None;
    assert!(!daemon.is_new(&trouble), "not at the next look");
    fs::remove_dir_all(folder.path().join("broken")).unwrap();
    put(folder.path(), "pods", "");
    daemon.find();
    daemon.find();
    assert!(daemon.members.is_empty() && daemon.is_new(&trouble));
}

#[test]
fn memory_that_comes_and_goes_is_seen_without_a_restart() {
    let (root, _, _, mut daemon) = machine(CONFIG);
    daemon.round();
    assert!(!daemon.looks.is_empty());
    let joins = "NODES/online = 0-2
         NODES/has_memory = 0-2
         NODES/node0/distance = 10 20 30
         NODES/node1/distance = 20 10 40
         NODES/node2/distance = 30 40 10
         NODES/node2/cpulist =
         NODES/node2/meminfo = Node 2 MemTotal: 1024 kB;Node 2 MemFree: 512 kB
         TIERS/memory_tier22/nodelist = 1-2";
    changes(root.path(), joins);
    daemon.find();
    assert!(daemon.looks.is_empty() && daemon.trouble.is_none());
    assert_eq!(daemon.machine.lower, [1, 2]);
    daemon.round();
    let lower = |daemon: &Daemon| daemon.status(&[], None, [None; 2]).tiers[1].nodes.clone();
    assert_eq!(
        (lower(&daemon)[1].node, lower(&daemon)[1].size),
        (2, 1 << 20)
    );
    // The driver goes on to bring blocks of it on line.
    let grows = "NODES/node2/meminfo = Node 2 MemTotal: 4096 kB;Node 2 MemFree: 512 kB";
    changes(root.path(), grows);
    daemon.find();
    assert_eq!(lower(&daemon)[1].size, 4 << 20);
    assert!(!daemon.looks.is_empty(), "the tiers are as before");
    // Without slow memory there is nothing to do, and nothing to end for.
    changes(root.path(), "TIERS/memory_tier22 = gone");
    daemon.find();
    assert!(daemon.trouble.as_ref().unwrap().contains("one memory tier"));
    changes(root.path(), "TIERS/memory_tier22/nodelist = 1");
    daemon.find();
    assert_eq!((&*daemon.machine.lower, &daemon.trouble), (&[1][..], &None));
}

#[test]
fn a_group_that_matches_nothing_is_told_once_until_it_matches() {
    let other = "[[group]]\nname = \"other\"\nunits = [\"x\"]\n";
    let (_root, _, _, mut daemon) = machine(&(CONFIG.to_owned() + other));
    assert_eq!(daemon.newly_unmatched(), ["all", "other"]);
    daemon.find();
    assert!(daemon.newly_unmatched().is_empty());
    for _ in 0..2 {
        daemon.members.clear();
        assert_eq!(daemon.newly_unmatched(), ["all"]);
        assert!(daemon.newly_unmatched().is_empty());
        daemon.find();
        assert!(!daemon.unmatched.contains("all"));
    }
}

fn records(root: &Path, file: &str) -> Vec<Record> {
    let text = fs::read_to_string(root.join(file)).unwrap_or_default();
    let records = text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    records.collect()
}

#[test]
fn the_history_follows_the_configuration_and_ends_with_the_daemon() {
    let place = |file: &str| format!("{CONFIG}[history]\nfile = \"/var/lib/memferry/{file}\"\n");
    let (root, _, _, mut daemon) = machine(&place("a"));
    let [a, b] = ["var/lib/memferry/a", "var/lib/memferry/b"];
    daemon.round();
    daemon.round();
    assert_eq!(records(root.path(), a).len(), 1, "one a minute");
    assert!(text(root.path(), a).contains("\"schema\""));
    // A file that is wrong changes nothing.
    configure(&mut daemon, &place("../b").replace("file", "fail"));
    daemon.round();
    assert!(daemon.refused.is_some() && !root.path().join(b).exists());
    configure(&mut daemon, &place("b"));
    daemon.round();
    let kept = records(root.path(), a);
    assert!(kept.len() == 2 && kept[0].next.is_some() && kept[1].next.is_none());
    let rounds = Status::read(root.path()).unwrap().rounds;
    assert_eq!(records(root.path(), b)[0].status.rounds, rounds);
    daemon.end().unwrap();
    assert_eq!(records(root.path(), b).last().unwrap().next, None);
    assert_eq!(records(root.path(), a).len(), 2);
}

#[test]
fn a_history_that_cannot_be_kept_stops_nothing_else() {
    let config = format!("{CONFIG}[history]\nfile = \"/var/lib/memferry/a\"\n");
    let (root, _, _, mut daemon) = machine(&config);
    // A file where the folder belongs, as a file system that cannot be written to.
    put(root.path(), "var/lib/memferry", "");
    daemon.round();
    daemon.round();
    assert_eq!(text(root.path(), BALANCING), "3", "it acts");
    let status = Status::read(root.path()).unwrap();
    assert_eq!((status.history_errors, status.errors), (1, 0));
    assert!(status.trouble.unwrap().contains("keep the history"));
    daemon.end().unwrap();
    assert_eq!(text(root.path(), BALANCING), "1");
}

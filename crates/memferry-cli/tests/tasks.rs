// SPDX-License-Identifier: MIT OR Apache-2.0
//! What an operator does with the command: a test for each task, by its name. docs/operators.md lists them.

mod command;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Stdio};

use command::child::{Waiting, terminal};
use command::daemon::daemon;
use command::machine::{FOLDER, KEPT, kernel, large, machine, put, sysctl, text, with_pghot};
use command::tiers::tiered;
use command::waiting::{cgroups, for_others, move_below, node, number};
use command::{done, fails, has, json, memferry, status, stderr, stdout, synthetic, words};
use memferry_linux::affinity;
use rustix::fs::{CWD, FileType, Mode, inotify, mknodat};
use rustix::pipe::fcntl_setpipe_size;
use serde_json::Value;

/// The folder of the project.
const PROJECT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// A recorded trace of the project.
const TRACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../traces/scan.trace");

/// Every command: the headings of the page that clap's definition makes.
fn commands() -> impl Iterator<Item = &'static str> {
    include_str!("../../../docs/command.md")
        .lines()
        .filter_map(|line| line.strip_prefix("## `memferry ")?.strip_suffix('`'))
}

fn kept(root: &Path) -> Vec<String> {
    let lines = |file: &str| fs::read_to_string(root.join(file)).unwrap_or_default();
    KEPT.map(lines).to_vec()
}

/// What a program of the machine says of a file that was written for it; `None` where there is no such program.
fn ask(line: &str) -> Option<String> {
    let words = words(line);
    match Command::new(words[0]).args(&words[1..]).output() {
        Err(error) => {
            println!("not run: {line}: {error}");
            None
        }
        Ok(output) => {
            let told = stdout(&output) + &stderr(&output);
            assert!(output.status.success(), "{line}: {told}");
            Some(told)
        }
    }
}

#[test]
fn install_and_uninstall() {
    let stage = tempfile::tempdir().expect("folder");
    // The library for C is tested in install.rs; a file stands for it here, and for the daemon.
    let library = stage.path().join("library");
    fs::write(&library, "").expect("file");
    let make = |goal: &str| {
        let library = library.display();
        let mut make = Command::new("make");
        make.args(["--silent", "-C", PROJECT, goal, "CARGO=true", "PREFIX=/usr"])
            .arg(format!("DESTDIR={}", stage.path().display()))
            .arg(format!(
                "BUILT={} {library} {library} {library}",
                env!("CARGO_BIN_EXE_memferry")
            ));
        let output = make.output().expect("make");
        assert!(output.status.success(), "{}", stderr(&output));
    };
    let placed = [
        "bin/memferry",
        "bin/memferryd",
        "share/man/man1/memferry.1",
        "share/man/man1/memferry-move.1",
        "share/man/man1/memferry-kernel-set.1",
        "share/man/man8/memferryd.8",
        "share/bash-completion/completions/memferry",
        "share/bash-completion/completions/memferryd",
        "share/zsh/site-functions/_memferry",
        "share/fish/vendor_completions.d/memferry.fish",
        "share/doc/memferry/docs/daemon.md",
        "share/doc/memferry/docs/measuring/promote.md",
    ];
    let is_there = |file: &&str| stage.path().join("usr").join(file).exists();
    make("install");
    assert!(placed.iter().all(is_there));
    let version = Command::new(stage.path().join("usr/bin/memferry"))
        .arg("--version")
        .output();
    assert_eq!(status(&version.expect("start")), 0);
    // What an older version had, and this one has not.
    let older = [
        "lib/libmemferry.so.0.0.1",
        "share/doc/memferry/docs/older.md",
    ];
    for file in older {
        fs::write(stage.path().join("usr").join(file), "").expect("file");
    }
    make("uninstall");
    assert!(!placed.iter().chain(&older).any(is_there));
}

#[test]
fn see_what_the_machine_can_do() {
    let output = memferry("topology");
    assert_eq!(stderr(&output), "");
    let text = done(&output);
    has(
        &text,
        "nodes | tiers | cache groups | UFFDIO_MOVE | vm.max_map_count",
    );
    assert!(
        text.lines().all(|line| line.chars().count() <= 100),
        "{text}"
    );
}

#[test]
fn see_how_the_kernel_copies() {
    let root = machine();
    let shown = done(&kernel(root.path(), "status"));
    has(
        &shown,
        "[none] auto kernel mtcopy | 4M | mtcopy lanes | 1536 | 6 MiB | kernel set --migrator auto",
    );
    assert!(!shown.contains("modprobe"), "{shown}");
    put(root.path(), "migrator", "none auto [kernel]\n");
    fs::remove_dir_all(root.path().join(FOLDER).join("mtcopy")).expect("remove");
    has(&stdout(&kernel(root.path(), "status")), "modprobe mtcopy");
}

#[test]
fn see_what_copies_for_each_reason_and_what_auto_has_learnt() {
    let root = machine();
    let reasons = "compaction none\ndemotion mtcopy only\nsyscall_or_cpuset auto\ndamon default\n";
    put(root.path(), "reasons", reasons);
    let shown = stdout(&kernel(root.path(), "status"));
    let table: Vec<String> = shown
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    for line in [
        "compaction none none",
        "demotion mtcopy mtcopy only",
        "syscall_or_cpuset auto auto",
        "damon default none",
    ] {
        assert!(table.iter().any(|of| of.contains(line)), "{line}: {shown}");
    }
    has(&shown, "debugfs is not mounted");
    let told = json(&kernel(root.path(), "status --json"));
    assert!(
        told["auto"].is_null() && told["auto_not_told"].is_string(),
        "{told}"
    );
    let demotion = &told["reasons"][1];
    let expected = serde_json::json!({"reason": "demotion", "choice": "mtcopy", "only": true});
    assert_eq!(demotion, &expected);
    let folder = root.path().join("sys/kernel/debug/migration");
    fs::create_dir_all(&folder).expect("folder");
    let learnt = |rows: &str| {
        let head = "reason folio bytes batches plain choice gain\n";
        fs::write(folder.join("auto"), format!("{head}{rows}")).expect("file");
    };
    learnt("");
    has(
        &stdout(&kernel(root.path(), "status")),
        "auto has learnt nothing yet",
    );
    learnt("syscall_or_cpuset base 4194304 1200 36 mtcopy:3+dcbm:2 1430\n");
    let shown = stdout(&kernel(root.path(), "status"));
    has(&shown, "mtcopy:3+dcbm:2 | 4M | 1.43x | 1200 | 3%");
    let told = json(&kernel(root.path(), "status --json"));
    assert_eq!(
        (&told["auto"][0]["plain"], &told["auto"][0]["gain"]),
        (&36.into(), &1.43.into())
    );
    learnt("one two\n");
    fails(&kernel(root.path(), "status"), "migration/auto:2");
    // Where nothing asks auto there is nothing to say.
    fs::remove_dir_all(&folder).expect("folder");
    put(root.path(), "reasons", "demotion default\n");
    assert!(!stdout(&kernel(root.path(), "status")).contains("learnt"));
}

#[test]
fn set_how_the_kernel_copies() {
    let root = machine();
    let line = "set --migrator mtcopy --mtcopy-lanes 4 --reason demotion=mtcopy-only,compaction=none --max-batch-bytes 8M";
    let dry = done(&kernel(root.path(), &format!("{line} --dry-run")));
    has(&dry, "would set migrator: none -> mtcopy");
    assert_eq!(text(root.path(), "migrator"), "[none] auto kernel mtcopy\n");
    has(&done(&kernel(root.path(), line)), "mtcopy/lanes: 2 -> 4");
    for (file, expected) in [
        ("migrator", "mtcopy\n"),
        ("mtcopy/lanes", "4\n"),
        ("reasons", "compaction none\ndemotion mtcopy only\n"),
        ("max_batch_bytes", "8388608\n"),
    ] {
        assert_eq!(text(root.path(), file), expected, "{file}");
    }
}

#[test]
fn undo_what_a_killed_benchmark_set() {
    let root = machine();
    let (folder, balancing) = (
        root.path().join("run/memferry"),
        root.path().join("proc/sys/kernel/numa_balancing"),
    );
    let stored = folder.join("restore.json");
    fs::create_dir_all(&folder).expect("folder");
    fs::write(&balancing, "2\n").expect("file");
    put(root.path(), "migrator", "none kernel [mtcopy]\n");
    fs::write(
        &stored,
        r#"{"schema": "memferry-restore/1", "arguments": ["bench", "promote"], "before": [
            ["proc/sys/kernel/numa_balancing", "1"], ["sys/kernel/mm/migration/migrator", "none"], ["sys/gone", "1"]]}"#,
    )
    .expect("file");
    let shown = done(&kernel(root.path(), "status"));
    has(
        &shown,
        "`memferry bench promote` was killed | set --restore | numa_balancing: 2, before 1",
    );
    let shown = json(&kernel(root.path(), "status --json"));
    assert_eq!(shown["left"]["running"], false);
    assert_eq!(shown["left"]["steps"].as_array().map(Vec::len), Some(2));
    for line in ["set --persist", "set --migrator none"] {
        fails(&kernel(root.path(), line), "set --restore");
    }
    let both = kernel(root.path(), "set --restore --migrator none");
    assert_eq!(status(&both), 2);
    let tried = stdout(&kernel(root.path(), "set --restore --dry-run"));
    has(&tried, "would set proc/sys/kernel/numa_balancing: 2 -> 1");
    assert!(stored.exists());
    done(&kernel(root.path(), "set --restore"));
    assert_eq!(fs::read_to_string(&balancing).expect("file"), "1\n");
    assert_eq!(text(root.path(), "migrator"), "none\n");
    assert!(!stored.exists());
    has(
        &done(&kernel(root.path(), "set --restore")),
        "Nothing to do",
    );
    fs::write(&stored, "half").expect("file");
    fails(&kernel(root.path(), "set --restore"), "restore.json");
}

/// All reasons, as systemd-tmpfiles writes them.
const AT_BOOT: &str = "compaction auto,memory_failure default,memory_hotplug default,syscall_or_cpuset default,\
                       mempolicy_mbind default,numa_misplaced default,contig_range default,longterm_pin default,\
                       demotion mtcopy,damon default";

#[test]
fn have_settings_come_back_at_boot() {
    let root = with_pghot();
    let line = "set --migrator mtcopy --mtcopy-lanes 4 --reason demotion=mtcopy,compaction=auto --pghot-sources pgtscan,hwhints --persist";
    let dry = done(&kernel(root.path(), &format!("{line} --dry-run")));
    has(
        &dry,
        "would write /etc/tmpfiles.d | -vm.pghot_enabled_sources = 6",
    );
    assert!(!root.path().join("etc").exists());
    let told = done(&kernel(root.path(), line));
    for file in KEPT {
        has(&told, &format!("wrote /{file}"));
    }
    assert_eq!(text(root.path(), "mtcopy/lanes"), "4\n");

    // The machine boots. What writes to the kernel's files does not truncate them, as these are not the kernel's.
    for file in ["migrator", "reasons", "mtcopy/lanes"] {
        put(root.path(), file, "");
    }
    let [modules, sysctls, _, order] = &kept(root.path())[..] else {
        panic!("four files");
    };
    assert_eq!(modules.lines().last(), Some("mtcopy"));
    has(order, "After=systemd-modules-load.service");
    let below = root.path().display();
    if ask(&format!("systemd-tmpfiles --create --boot --root={below}")).is_some() {
        for (file, then) in [
            ("migrator", "mtcopy"),
            ("reasons", AT_BOOT),
            ("mtcopy/lanes", "4"),
        ] {
            assert_eq!(text(root.path(), file).trim(), then, "{file}");
        }
    }
    // There is no root folder for sysctl(8), and this kernel need not have pghot.
    let file = root.path().join(KEPT[1]);
    let told = ask(&format!(
        "sysctl --dry-run --ignore --load={}",
        file.display()
    ));
    assert!(!told.is_some_and(|told| told.contains("invalid syntax")));
    let settings: Vec<&str> = sysctls.lines().skip(1).collect();
    assert_eq!(
        settings,
        [
            "-vm.pghot_target_nid = 0",
            "-vm.pghot_promote_rate_limit_MBps = 65536",
            "-vm.pghot_enabled_sources = 6"
        ]
    );
    assert_eq!(sysctl(root.path(), "pghot_enabled_sources"), "6");

    // The next call keeps what it does not change, and writes what has changed alone.
    put(root.path(), "migrator", "none auto kernel [mtcopy]\n");
    put(root.path(), "reasons", &AT_BOOT.replace(',', "\n"));
    let json = json(&kernel(
        root.path(),
        "set --mtcopy-lanes 8 --persist --json",
    ));
    assert_eq!(json["files"].as_array().map(Vec::len), Some(1), "{json}");
    let now = &kept(root.path())[2];
    has(now, "/mtcopy/lanes - - - - 8 | /migrator - - - - mtcopy");
    has(
        &stdout(&kernel(root.path(), "set --persist")),
        "Nothing to do",
    );
}

#[test]
fn have_settings_come_back_no_more() {
    let root = with_pghot();
    done(&kernel(root.path(), "set --persist"));
    let dry = stdout(&kernel(root.path(), "set --forget --dry-run"));
    has(&dry, "would remove /etc/sysctl.d");
    assert!(kept(root.path()).iter().all(|text| !text.is_empty()));
    done(&kernel(root.path(), "set --forget"));
    assert!(KEPT.iter().all(|file| !root.path().join(file).exists()));
    assert_eq!(text(root.path(), "mtcopy/lanes"), "2\n");
    has(
        &stdout(&kernel(root.path(), "set --forget")),
        "Nothing to do",
    );
    // A module that is loaded no more is not loaded at boot, and what has gone is forgotten.
    kernel(root.path(), "set --persist");
    fs::remove_dir_all(root.path().join("sys/kernel/mm/migration/mtcopy")).expect("remove");
    kernel(root.path(), "set --persist");
    assert!(!root.path().join(KEPT[0]).exists());
}

#[test]
fn move_a_process() {
    let process = Waiting::new();
    for callers in ["1", "3"] {
        let (pid, node) = (process.pid(), node());
        let output = memferry(&format!(
            "move --pid {pid} --to {node} --callers {callers} --rate 1G/s --json"
        ));
        let json = json(&output);
        let stayed = json["stayed"].as_array().expect("stayed");
        let counted: u64 = ["moved", "already_there", "elsewhere"]
            .iter()
            .map(|name| &json[name])
            .chain(stayed)
            .map(|pages| number(&pages["bytes"]))
            .sum();
        assert_eq!(counted, number(&json["resident_bytes"]), "{json}");
        assert_eq!(status(&output), i32::from(!stayed.is_empty()), "{json}");
        assert!(json["end"].is_null());
    }
}

#[test]
fn move_a_unit() {
    let (one, other) = (Waiting::new(), Waiting::new());
    // A process of another PID namespace is 0, and one has ended.
    let own = format!("0\n{}\n4194303\n", one.pid());
    let root = cgroups(&[
        ("system.slice/some.service", &own),
        ("system.slice/some.service/below", &other.pid()),
        ("system.slice/other.service", "1\n"),
    ]);
    let path = "/system.slice/some.service";
    let mut expected = [&one, &other].map(|of| u64::from(of.0.id()));
    expected.sort_unstable();
    for target in [
        "--unit some".to_owned(),
        "--unit some.service".to_owned(),
        format!("--cgroup {path}"),
        "--cgroup system.slice/some.service".to_owned(),
        format!("--cgroup /sys/fs/cgroup{path}"),
    ] {
        let line = format!("move {target} --to {}", node());
        let output = move_below(root.path(), &(line.clone() + " --dry-run --json"));
        assert_eq!(status(&output), 0, "{target}: {}", stderr(&output));
        let json = json(&output);
        assert_eq!(json["cgroup"], path);
        let processes = json["processes"].as_array().expect("processes");
        let pids: Vec<u64> = processes.iter().map(|of| number(&of["pid"])).collect();
        assert_eq!(pids, expected);
        let bytes = |of: &Value| number(&of["resident_bytes"]);
        assert_eq!(processes.iter().map(bytes).sum::<u64>(), bytes(&json));
        let text = stdout(&move_below(root.path(), &(line + " --anonymous")));
        let pids = format!("{} | {}", one.pid(), other.pid());
        has(&text, &format!("some.service, 2 processes | {pids} | cat"));
    }
}

#[test]
fn read_a_result() {
    let file = synthetic("move");
    let output = memferry(&format!("report --text {}", file.display()));
    has(&done(&output), "GB/s | mtcopy | ceiling");
}

#[test]
fn draw_a_result() {
    let folder = tempfile::tempdir().expect("folder");
    let page = folder.path().join("page.html");
    let (file, page_name) = (synthetic("stall"), page.to_str().expect("path"));
    let output = memferry(&format!("report {} -o {page_name}", file.display()));
    assert_eq!(status(&output), 0, "{}", stderr(&output));
    assert!(stdout(&output).contains(page_name) || stderr(&output).contains(page_name));
    let drawn = fs::read_to_string(&page).expect("page");
    assert!(drawn.contains("<svg") && !drawn.contains("<script"));
}

#[test]
fn compare_two_results() {
    let folder = tempfile::tempdir().expect("folder");
    let other = folder.path().join("other.json");
    let file = synthetic("move");
    let text = fs::read_to_string(&file).expect("file");
    fs::write(&other, text.replace("\"mtcopy\"", "\"dcbm\"")).expect("file");
    let (file, other) = (file.to_str().expect("path"), other.to_str().expect("path"));
    let output = memferry(&format!("report {file} {other} -o -"));
    has(&done(&output), "mtcopy | dcbm");
}

#[test]
fn record_and_replay_a_trace() {
    let folder = tempfile::tempdir().expect("folder");
    let run = |line: &str| {
        let mut run = command::command();
        run.current_dir(folder.path())
            .args(words(line))
            .env("PATH", "/usr/bin:/bin");
        let output = run.output().expect("start");
        assert_eq!(status(&output), 0, "{line}: {}", stderr(&output));
        stdout(&output)
    };
    run("trace record --max-accesses 200000 --cache 4K -o some.trace -- /bin/ls /");
    assert!(run("trace info some.trace").contains("events"));
    let shown = run("replay some.trace --policy lru,ours --top 25% --html page.html");
    has(&shown, "lru | ours");
    assert!(folder.path().join("page.html").exists());
}

/// The command with its stdin and stderr in pipes, in a folder of its own, as a shell starts it at a terminal.
fn interruptible(line: &str, folder: &Path) -> Waiting {
    let mut command = command::command();
    command
        .current_dir(folder)
        .env("PATH", "/usr/bin:/bin")
        .args(words(line))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    Waiting(command.spawn().expect("start"))
}

/// Each works without end, or waits for what never comes. What can stop cleanly gives 130; the shell gives it for the rest.
/// Here `bench promote` ends at once on one tier, and `bench compaction`, which fills a node, runs in the lab alone.
#[test]
fn interrupt_each() {
    let folder = tempfile::tempdir().expect("folder");
    for line in [
        "bench move --runs 100000000 --total 4M --folio 4K,2M",
        "bench count --runs 100000000 --folios 1,2",
        "bench stall --rounds 1000000000 --total 4M",
        "bench cache --runs 100000000 --total 4M --working-set 1M",
        "bench reproduce garg-v3-1b --backend user --scale 1/512 --runs 100000000",
        "trace record -- /bin/cat",
        "replay -",
    ] {
        let is_alone = affinity::allowed().expect("affinity").len() < 2;
        if is_alone && line.starts_with("bench cache") {
            println!("not run: {line}: there is one CPU");
            continue;
        }
        let mut child = interruptible(line, folder.path());
        child.until(|child| child.catches_interrupts().then_some(()));
        child.interrupt();
        let ended = child.ended();
        let (out, told) = (stdout(&ended), stderr(&ended));
        assert_eq!(ended.status.code(), Some(130), "{line}: {told}");
        if line.starts_with("bench") {
            assert!(told.contains("interrupted"), "{line}: {told}");
            // Either nothing was measured yet, or the table says that it is not whole.
            assert_eq!(
                told.contains("before anything"),
                out.is_empty(),
                "{line}: {out}{told}"
            );
            assert!(
                out.is_empty() || out.contains("Stopped by the user"),
                "{line}: {out}"
            );
        }
    }
    let lackey = " L 1000,8\n".repeat(PIPE);
    let trace = fs::read(TRACE).expect("trace");
    for (line, input) in [
        ("trace import --format lackey -", lackey.as_bytes()),
        ("trace reduce - --window 6553600", &trace[..]),
        ("trace info -", &trace[..]),
    ] {
        let mut child = interruptible(line, folder.path());
        let mut stdin = child.0.stdin.take().expect("stdin");
        fcntl_setpipe_size(&stdin, PIPE).expect("pipe");
        // Once twice of what the pipe holds is written, the command reads, and waits for the rest.
        stdin.write_all(&input[..2 * PIPE]).expect(line);
        child.interrupt();
        let ended = child.ended();
        assert_eq!(
            ended.status.signal(),
            Some(libc::SIGINT),
            "{line}: {}",
            stderr(&ended)
        );
    }
    let left = fs::read_dir(folder.path()).expect("list");
    let left: Vec<_> = left.map(|of| of.expect("entry").file_name()).collect();
    assert!(left.iter().all(|name| name == "memferry.trace"), "{left:?}");
}

/// The least that a pipe holds.
const PIPE: usize = 4096;

/// It is interrupted while it reads which processes a cgroup has. What moves between nodes is interrupted where there are two.
#[test]
fn interrupt_a_move() {
    let process = Waiting::new();
    let root = cgroups(&[("some.slice", "")]);
    let list = root.path().join("sys/fs/cgroup/some.slice/cgroup.procs");
    fs::remove_file(&list).expect("remove");
    mknodat(CWD, &list, FileType::Fifo, Mode::RWXU, 0).expect("FIFO");
    let (node, below) = (node(), root.path().display());
    let line = format!("move --cgroup some.slice --to {node} --root {below} --json");
    let mut child = interruptible(&line, root.path());
    // It can be opened as soon as the command reads it.
    let mut list = child.until(|_| {
        let mut options = File::options();
        options.write(true).custom_flags(libc::O_NONBLOCK);
        options.open(&list).ok()
    });
    child.interrupt();
    writeln!(list, "{}", process.pid()).expect("write");
    drop(list);
    let ended = child.ended();
    assert_eq!(ended.status.code(), Some(130), "{}", stderr(&ended));
    has(&stderr(&ended), "interrupted");
    let json: Value = serde_json::from_str(&stdout(&ended)).expect("JSON");
    assert_eq!(
        (&json["end"], &json["complete"]),
        (&"interrupted".into(), &false.into())
    );
    assert_eq!(number(&json["left_bytes"]), number(&json["resident_bytes"]));
}

/// Each look at its processes finds another one, as while a shell's loop runs.
#[test]
fn move_a_cgroup_that_gains_processes_without_end() {
    let root = cgroups(&[("some.slice", "")]);
    let list = root.path().join("sys/fs/cgroup/some.slice/cgroup.procs");
    fs::remove_file(&list).expect("remove");
    mknodat(CWD, &list, FileType::Fifo, Mode::RWXU, 0).expect("FIFO");
    let looked = inotify::init(inotify::CreateFlags::CLOEXEC).expect("inotify");
    inotify::add_watch(&looked, &list, inotify::WatchFlags::CLOSE_NOWRITE).expect("watch");
    std::thread::spawn(move || {
        for pid in 4_194_304.. {
            let mut list = File::options().write(true).open(&list).expect("list");
            writeln!(list, "{pid}").expect("write");
            drop(list);
            // One event of 16 bytes, and the name: until the reader has closed it.
            rustix::io::read(&looked, &mut [0; 256]).expect("event");
        }
    });
    let line = format!("move --cgroup some.slice --to {}", node());
    fails(&move_below(root.path(), &line), "again and again");
}

/// Both are meant to run until they are interrupted, so it is no failure.
#[test]
fn interrupt_daemon_and_top() {
    let root = tiered();
    let below = root.path().display();
    let config = root.path().join("memferry.toml");
    let group = "source = \"numa-balancing\"\n[[group]]\nname = \"all\"\nprocesses = [\"*\"]\n";
    fs::write(&config, group).expect("file");
    let mut daemon = daemon(root.path());
    let daemon = daemon
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut daemon = Waiting(daemon.spawn().expect("start"));
    let top = format!("top --root {below}");
    daemon.until(|_| (status(&memferry(&top)) == 0).then_some(()));
    let (mut person, program) = terminal();
    let mut shown = command::command();
    shown
        .args(words(&top))
        .stdin(program.try_clone().expect("clone"))
        .stdout(program.try_clone().expect("clone"))
        .stderr(program);
    let mut shown = Waiting(shown.spawn().expect("start"));
    let (mut seen, mut part) = (String::new(), [0; 4096]);
    // An arrow moves the mark, and Enter opens the group.
    for (keys, shows) in [("\x1b[B\r", "only watches"), ("", "protected: 0 bytes")] {
        while !seen.contains(shows) {
            let count = person.read(&mut part).expect("page");
            seen += &String::from_utf8_lossy(&part[..count]);
        }
        person.write_all(keys.as_bytes()).expect("keys");
    }
    // Ctrl-C is a key to a page that takes all keys.
    person.write_all(b"\x03").expect("key");
    assert_eq!(shown.0.wait().expect("end").code(), Some(0), "{seen}");
    daemon.interrupt();
    let ended = daemon.ended();
    assert_eq!(ended.status.code(), Some(0), "{}", stderr(&ended));
    has(&stderr(&ended), "every setting is back");
}

#[test]
fn give_each_a_wrong_argument() {
    assert!(commands().count() > 20);
    for line in commands() {
        let output = memferry(&format!("{line} --no-such-option"));
        assert_eq!(status(&output), 2, "{line}");
        has(&stderr(&output), "--no-such-option | --help");
        assert_eq!(stdout(&output), "", "{line}");
    }
}

#[test]
fn fill_the_disk() {
    let folder = tempfile::tempdir().expect("folder");
    let text = folder.path().join("lackey.txt");
    fs::write(&text, " L 1000,8\n").expect("write");
    let (page, text) = (synthetic("move"), text.display());
    for line in [
        "--help".to_owned(),
        "topology".to_owned(),
        "kernel status".to_owned(),
        format!("trace info {TRACE}"),
        format!("replay {TRACE} --policy lru --top 50%"),
        format!("trace import --format lackey {text} -o -"),
        format!("trace reduce {TRACE} --window 6553600 -o -"),
        format!("report {} -o -", page.display()),
    ] {
        let full = File::options().write(true).open("/dev/full");
        let mut command = command::command();
        command.args(words(&line)).stdout(full.expect("/dev/full"));
        fails(&command.output().expect("start"), "cannot write to stdout");
    }
}

#[test]
fn close_the_pipe() {
    let page = synthetic("move");
    let page = page.display();
    let folder = tempfile::tempdir().expect("folder");
    let file = folder.path().join("result.json");
    let bench = "bench count --quick --runs 1 --folios 1 --destination warm";
    for line in [
        "--help".to_owned(),
        "topology".to_owned(),
        "topology --json".to_owned(),
        "kernel status".to_owned(),
        format!("report {page} -o -"),
        format!("report {page} --text"),
        format!("trace info {TRACE}"),
        format!("trace reduce {TRACE} --window 6553600 -o -"),
        format!("replay {TRACE} --policy lru --top 50%"),
        format!("{bench} --json={}", file.display()),
    ] {
        let (reader, writer) = UnixStream::pair().expect("pair");
        drop(reader);
        let output = command::command()
            .args(words(&line))
            .stdout(OwnedFd::from(writer))
            .stderr(Stdio::piped())
            .output()
            .expect("start");
        assert_eq!((status(&output), &*stderr(&output)), (0, ""), "{line}");
    }
    has(&fs::read_to_string(file).expect("file"), "memferry-bench/1");
}

#[test]
fn use_66_cpus() {
    let root = large(66, "6.12.57");
    let shown = done(&memferry(&format!(
        "topology --root {}",
        root.path().display()
    )));
    has(&shown, "66 CPUs | 0-65");
    assert!(
        shown.lines().all(|line| line.chars().count() <= 100),
        "{shown}"
    );
    let stall = "bench stall --quick --rounds 1 --total 2M --batch 64K --threads 66 --json";
    let json = json(&memferry(stall));
    assert_eq!(number(&json["rows"][0]["threads"]), 66);
}

#[test]
fn have_no_rights() {
    // SAFETY: no memory is touched.
    if unsafe { libc::geteuid() } != 0 {
        return println!(
            "not run: only root has processes and files that another user may not touch"
        );
    }
    let process = Waiting::new();
    let root = machine();
    let folder = tempfile::tempdir().expect("folder");
    let program = for_others(folder.path(), root.path());
    let (pid, node, below) = (process.pid(), node(), root.path().display());
    for (line, part) in [
        (format!("move --pid {pid} --to {node}"), "ptrace"),
        (
            format!("kernel set --mtcopy-lanes 4 --persist --root {below}"),
            "be root",
        ),
        (
            format!("kernel set --persist --root {below}"),
            "memferry.conf",
        ),
    ] {
        let mut program = Command::new(&program);
        let output = program.args(words(&line)).uid(65534).gid(65534).output();
        fails(&output.expect("start"), part);
    }
    assert_eq!(text(root.path(), "mtcopy/lanes"), "2\n");
}

/// Before userfaultfd could move pages, and without the series.
#[test]
fn use_an_old_kernel() {
    let root = large(4, "5.10.0");
    fs::create_dir_all(root.path().join("sys/kernel/mm")).expect("folder");
    let topology = memferry(&format!("topology --root {}", root.path().display()));
    has(&done(&topology), "5.10.0");
    let shown = done(&kernel(root.path(), "status"));
    has(
        &shown,
        "no batch migration | CONFIG_MIGRATION_COPY_OFFLOAD | memferry move --pid | no hot-page tracking",
    );
    let json = json(&kernel(root.path(), "status --json"));
    assert_eq!(json["available"], false);
    assert!(json["migrators"].is_null() && json["next"].is_string());
    fails(
        &kernel(root.path(), "set --migrator kernel"),
        "nothing to set",
    );
    for line in ["set --persist", "heat"] {
        fails(&kernel(root.path(), line), "");
    }
    assert!(!root.path().join("etc").exists());
}

/// Every task is in the list that operators read, and what that list names is there.
#[test]
fn the_list_of_tasks_is_whole() {
    let docs = Path::new(PROJECT).join("docs");
    let page = fs::read_to_string(docs.join("operators.md")).expect("page");
    let (_, list) = page.split_once("## Twenty tasks").expect("list");
    let rows = list
        .lines()
        .skip_while(|line| !line.starts_with('|'))
        .skip(2);
    let rows: Vec<&str> = rows.take_while(|line| line.starts_with('|')).collect();
    let tests = rows.iter().flat_map(|row| {
        let last = row.trim_end_matches('|').rsplit('|').next().expect("cell");
        last.split('`').skip(1).step_by(2)
    });
    let named: BTreeSet<&str> = tests.collect();
    let own: BTreeSet<&str> = (include_str!("tasks.rs").split("#[test]\nfn ").skip(1))
        .filter_map(|text| text.split_once('(').map(|(name, _)| name))
        .filter(|name| *name != "the_list_of_tasks_is_whole")
        .collect();
    let guest = ["bench", "process", "promote"].map(|file| {
        let path = format!("crates/guest-tests/src/bin/commands/{file}.rs");
        fs::read_to_string(Path::new(PROJECT).join(path)).expect("guest tests")
    });
    assert!(
        own.is_subset(&named),
        "not in the list: {:?}",
        own.difference(&named)
    );
    for name in named.difference(&own) {
        assert!(
            guest.concat().contains(&format!("(\"{name}\",")),
            "no test is called {name}"
        );
    }
    assert_eq!(rows.len(), 20);
}

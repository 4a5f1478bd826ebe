// SPDX-License-Identifier: MIT OR Apache-2.0
//! `memferryd` and `memferry top` on an invented machine with two tiers.

mod command;

use std::fs;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use command::child::Waiting;
use command::output::{check_head, done, fails_with, has, json, status, stderr, stdout};
use command::tiers::{GROUP, configure, tiered};
use command::{command, memferryd};
use memferry_daemon::Status;
use memferry_linux::invented::{change, put};
use serde_json::Value;

/// The daemon of this tree, with the configuration in it.
fn daemon(root: &Path) -> Command {
    let mut daemon = command();
    daemon.arg("--root").arg(root);
    daemon.arg("--config").arg(root.join("memferry.toml"));
    daemon
}

fn started(root: &Path) -> Waiting {
    Waiting(daemon(root).spawn().expect("start"))
}

/// What a daemon of this tree says that it does; none while it has not said any.
fn status_of(root: &Path) -> Option<Status> {
    Status::read(root).ok()
}

#[test]
fn a_wrong_configuration_is_told_with_its_line() {
    let root = tiered();
    configure(root.path(), "[brakes]\nwaste = 10\nhaste = 1\n");
    let below = root.path().display();
    let wrong = memferryd(&format!("check --config {below}/memferry.toml"));
    fails_with(3, &wrong, "memferry.toml:4: | `waste`");
    assert_eq!(status(&memferryd("chek")), 2);
    let missing = memferryd("check --config /nonexistent");
    fails_with(3, &missing, "look whether the path is right");
}

/// A restart mends neither a configuration nor a machine, so the unit makes none.
#[test]
fn a_configuration_and_a_machine_that_are_not_right_have_exit_statuses_of_their_own() {
    let root = tiered();
    let runs = || daemon(root.path()).arg("--once").output().expect("start");
    fails_with(3, &runs(), "cannot read the configuration");
    configure(root.path(), "act = maybe\n");
    fails_with(3, &runs(), "memferry.toml:1:");
    configure(root.path(), &format!("source = \"damon\"\n{GROUP}"));
    fails_with(4, &runs(), "the source damon cannot be had");
    let tiers = "sys/devices/virtual/memory_tiering";
    change(root.path(), &format!("{tiers}/memory_tier22 = gone"));
    change(root.path(), &format!("{tiers}/memory_tier4/nodelist = 0-1"));
    fails_with(4, &runs(), "one memory tier");
    // What else is in its way may go.
    fs::remove_file(root.path().join("run/memferry/daemon.lock")).expect("lock");
    put(root.path(), "run/memferry/daemon.lock/x", "");
    fails_with(1, &runs(), "open the lock");
    let unit = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../packaging/memferry.service"
    );
    let unit = fs::read_to_string(unit).expect("unit");
    has(&unit, "RestartPreventExitStatus=2 3 4");
}

/// Puts a process with so many pages in memory into the tree.
fn process(root: &Path, pid: u32, name: &str, cgroup: &str, pages: u64) {
    let zeroes = "0 ".repeat(18);
    for (file, text) in [
        ("statm", format!("999999 {pages} 1 0 0 0 0\n")),
        ("cgroup", format!("0::{cgroup}\n")),
        ("comm", format!("{name}\n")),
        ("stat", format!("{pid} ({name}) S {zeroes}{pid}00 0 0\n")),
    ] {
        put(root, &format!("proc/{pid}/{file}"), &text);
    }
}

#[test]
fn check_tells_what_each_group_matches_now() {
    let root = tiered();
    let gib = (1 << 30) / rustix::param::page_size() as u64;
    let postgres = "/system.slice/system-postgresql.slice/postgresql@15-main.service";
    let pod = "/kubepods-besteffort-pod1_2.slice:cri-containerd:17";
    for (pid, name, cgroup, pages) in [
        (11, "postgres", postgres, gib),
        (12, "postgres", postgres, gib),
        (13, "postgres", postgres, 1),
        (14, "redis-server", "/system.slice/redis.service", gib),
        (15, "java", pod, gib),
        (16, "kthreadd", "/", 0),
        (17, "little", "/", 1),
    ] {
        process(root.path(), pid, name, cgroup, pages);
    }
    put(root.path(), "names", "kubepods-besteffort-pod1_2.slice\n");
    let names = root.path().join("names");
    let groups = [
        ("db", "units = [\"postgresql@*\"]".to_owned()),
        ("cache", "units = [\"redis\"]".to_owned()),
        ("pods", format!("cgroup_names_file = {names:?}")),
        ("none", "processes = [\"spark*\"]".to_owned()),
        ("rest", "processes = [\"*\"]".to_owned()),
    ];
    let group = |(name, keys): &(&str, String)| format!("[[group]]\nname = \"{name}\"\n{keys}\n");
    configure(root.path(), &groups.iter().map(group).collect::<String>());
    let below = root.path().display();
    let line = format!("check --root {below} --config {below}/memferry.toml");
    has(
        &done(&memferryd(&line)),
        "5 groups, only watches
        |db: 2 processes, 2 GiB in memory: postgres; 1 process of less than 16 MiB left alone
        |cache: 1 process, 1 GiB in memory: redis-server\n
        |pods: 1 process, 1 GiB in memory: java
        |none: matches nothing now
        |rest: 1 process, left alone: less than 16 MiB each",
    );
    let file = json(&memferryd(&format!("{line} --json")));
    check_head(&file, "check");
    let db = &file["matches"][0];
    assert_eq!((&db["group"], &db["processes"]), (&"db".into(), &2.into()));
    assert_eq!(db["resident_bytes"], 2_u64 << 30);
    assert_eq!(
        (&db["names"][0], &db["small"]),
        (&"postgres".into(), &1.into())
    );
    // What it would say for minutes is said once.
    let once = daemon(root.path()).arg("--once").output().expect("start");
    assert_eq!(stderr(&once).matches("matches no process").count(), 2);
}

#[test]
fn a_configuration_for_a_newer_version_is_taken_without_what_it_adds() {
    let root = tiered();
    configure(root.path(), &format!("version = 2\nhaste = 1\n{GROUP}"));
    let below = root.path().display();
    let checked = done(&memferryd(&format!("check --config {below}/memferry.toml")));
    has(&checked, "1 groups | ignored, as | line 2: `haste`");
    let once = daemon(root.path()).arg("--once").output().expect("start");
    has(&done(&once), "only watches");
    has(&stderr(&once), "WARN | newer version | line 2: `haste`");
}

#[test]
fn the_packaged_configuration_only_watches() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/memferry.toml");
    let output = memferryd(&format!("check --config {path}"));
    has(&done(&output), "only watches");
}

/// Files of a kernel that was booted with psi=0.
#[test]
fn a_brake_without_pressure_is_told_once() {
    let root = tiered();
    configure(root.path(), GROUP);
    let told = || stderr(&daemon(root.path()).arg("--once").output().expect("start"));
    for file in ["memory", "cpu"] {
        put(root.path(), &format!("proc/pressure/{file}"), "");
    }
    let silent = told();
    assert_eq!(silent.matches("boot with psi=1").count(), 1, "{silent}");
    has(&silent, "WARN | /proc/pressure/memory");
    let text = "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n";
    put(root.path(), "proc/pressure/memory", text);
    let silent = told();
    assert!(!silent.contains("psi"), "{silent}");
}

#[test]
fn the_log_has_a_level() {
    let root = tiered();
    configure(root.path(), GROUP);
    let told = |level: &str| {
        let mut daemon = daemon(root.path());
        stderr(
            &daemon
                .args(["--once", "--log", level])
                .output()
                .expect("start"),
        )
    };
    has(&told("debug"), "DEBUG round | INFO started");
    let warn = told("warn");
    assert!(!warn.contains("INFO") && warn.contains("WARN"), "{warn}");
    has(&told("loud"), "'loud' | error, warn, info, debug");
}

#[test]
fn a_log_that_cannot_be_written_ends_nothing() {
    let root = tiered();
    configure(root.path(), GROUP);
    let mut daemon = daemon(root.path());
    let full = fs::OpenOptions::new().write(true).open("/dev/full");
    daemon.arg("--once").stderr(full.expect("/dev/full"));
    has(&done(&daemon.output().expect("start")), "only watches");
}

#[test]
fn a_daemon_that_writes_a_file_ends_in_order_when_asked() {
    let root = tiered();
    configure(root.path(), GROUP);
    let file = root.path().join("status.json");
    let mut once = daemon(root.path());
    once.arg("--once").arg(format!("--json={}", file.display()));
    let mut once = Waiting(once.spawn().expect("start"));
    once.until(|_| status_of(root.path()));
    // A reload, then the end.
    once.signal(libc::SIGHUP);
    once.signal(libc::SIGTERM);
    assert_eq!(once.0.wait().expect("wait").code(), Some(0));
    assert!(status_of(root.path()).is_none(), "its status goes with it");
    let text = fs::read_to_string(&file).expect("file");
    let json: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(json["schema"], "memferry-daemon/1");
}

/// File systems of this test alone, without space and read-only; a reload names a place that can be written to.
#[test]
fn a_history_that_cannot_be_kept_stops_nothing_and_a_reload_mends_it() {
    let mut can = Command::new("unshare");
    can.args(["--user", "--map-root-user", "--mount", "true"]);
    if !can.status().is_ok_and(|status| status.success()) {
        eprintln!("skipped: no namespace can be made here");
        return;
    }
    for (mount, why) in [
        (
            "mount -t tmpfs -o size=4096 none $DISK && head -c 4096 /dev/zero >$DISK/x",
            "No space left",
        ),
        ("mount -t tmpfs -o ro none $DISK", "Read-only file system"),
    ] {
        let root = tiered();
        let keep_in = |file: &str| {
            configure(
                root.path(),
                &format!("{GROUP}[history]\nfile = \"{file}\"\n"),
            );
        };
        keep_in("/var/lib/history.jsonl");
        let disk = root.path().join("var/lib");
        fs::create_dir_all(&disk).expect("folder");
        let mut daemon = Command::new("unshare");
        let script =
            format!("{mount} && exec $MEMFERRYD --root $ROOT --config $ROOT/memferry.toml");
        daemon.args(["--user", "--map-root-user", "--mount", "sh", "-c", &script]);
        daemon
            .env("DISK", &disk)
            .env("ROOT", root.path())
            .env("MEMFERRYD", env!("CARGO_BIN_EXE_memferryd"));
        daemon.stderr(Stdio::piped());
        let mut daemon = Waiting(daemon.spawn().expect("start"));
        let now = || status_of(root.path());
        let met = daemon.until(|_| now().filter(|of| of.rounds > 3));
        has(&met.trouble.expect("trouble"), why);
        assert_eq!((met.history_errors, met.errors), (1, 0));
        keep_in("/var/log/history.jsonl");
        daemon.signal(libc::SIGHUP);
        daemon.until(|_| now().filter(|of| of.trouble.is_none()));
        daemon.interrupt();
        assert_eq!(daemon.0.wait().expect("wait").code(), Some(0));
        let kept = fs::read_to_string(root.path().join("var/log/history.jsonl"));
        assert_eq!(
            kept.expect("history").lines().count(),
            3,
            "a head, the first, the last"
        );
        let mut told = String::new();
        let stderr = daemon.0.stderr.as_mut().expect("stderr");
        stderr.read_to_string(&mut told).expect("read");
        assert_eq!(told.matches(why).count(), 1, "{told}");
    }
}

/// Debian's package prometheus has it. `make test-all` installs it; elsewhere this needs none.
fn promtool(arguments: &[&str], input: &str) -> Option<Output> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/prometheus");
    let mut promtool = Command::new("promtool");
    promtool.args(arguments).current_dir(folder);
    promtool.stdin(Stdio::piped()).stdout(Stdio::piped());
    let started = promtool.stderr(Stdio::piped()).spawn();
    if started
        .as_ref()
        .is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    {
        eprintln!("skipped: there is no promtool");
        return None;
    }
    let mut child = started.expect("start");
    let mut stdin = child.stdin.take().expect("stdin");
    stdin.write_all(input.as_bytes()).expect("write");
    drop(stdin);
    Some(child.wait_with_output().expect("wait"))
}

#[test]
fn promtool_finds_no_fault_in_metrics_and_rules() {
    let root = tiered();
    let socket = root.path().join("metrics");
    let listen = format!("[metrics]\nlisten = \"unix:{}\"\n", socket.display());
    configure(root.path(), &(GROUP.to_owned() + &listen));
    let mut daemon = started(root.path());
    // The first round has been told of.
    let text = daemon.until(|_| {
        let mut stream = UnixStream::connect(&socket).ok()?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        text.contains("node=\"1\"").then_some(text)
    });
    let (_, metrics) = text.split_once("\r\n\r\n").expect("body");
    for (arguments, input) in [
        (&["check", "metrics"][..], metrics),
        (&["check", "rules", "memferry.rules.yml"], ""),
        (&["check", "config", "prometheus.yml"], ""),
        (&["test", "rules", "memferry.rules.test.yml"], ""),
    ] {
        let Some(checked) = promtool(arguments, input) else {
            return;
        };
        let told = stdout(&checked) + &stderr(&checked);
        assert_eq!(status(&checked), 0, "{arguments:?}: {told}");
    }
}

/// Prometheus itself, for ten minutes, while the configuration is read anew each two seconds with other groups.
#[test]
#[ignore = "ten minutes; `make test-all` runs it, with Debian's package prometheus"]
fn prometheus_scrapes_while_groups_come_and_go() {
    const SCRAPED: Duration = Duration::from_secs(600);
    let root = tiered();
    let free = || {
        let socket = TcpListener::bind("127.0.0.1:0").expect("port");
        socket.local_addr().expect("address")
    };
    let (metrics, web) = (free(), free());
    let groups = |first: u64| {
        let group = |number| format!("[[group]]\nname = \"g{number}\"\nunits = [\"x{number}\"]\n");
        let of: String = (first..first + 3).map(group).collect();
        configure(
            root.path(),
            &format!("{of}[metrics]\nlisten = \"{metrics}\"\n"),
        );
    };
    groups(0);
    let mut daemon = started(root.path());
    let scrape = format!(
        "global: {{scrape_interval: 1s, scrape_timeout: 900ms}}\nscrape_configs: [{{job_name: memferry, static_configs: [{{targets: [\"{metrics}\"]}}]}}]\n"
    );
    put(root.path(), "prometheus.yml", &scrape);
    let mut prometheus = Command::new("prometheus");
    let option = |name: &str, file: &str| format!("--{name}={}", root.path().join(file).display());
    prometheus
        .arg(option("config.file", "prometheus.yml"))
        .arg(option("storage.tsdb.path", "prometheus"))
        .arg(format!("--web.listen-address={web}"))
        .stderr(Stdio::null());
    let mut prometheus = Waiting(prometheus.spawn().expect("Debian's package prometheus"));
    // The sum of what a query finds; none while it finds nothing.
    let query = |what: &str| {
        let mut stream = TcpStream::connect(web).ok()?;
        let what = what.replace('[', "%5B").replace(']', "%5D");
        let get = format!("GET /api/v1/query?query={what} HTTP/1.0\r\n\r\n");
        stream.write_all(get.as_bytes()).ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        let answer: Value = serde_json::from_str(text.split_once("\r\n\r\n")?.1).ok()?;
        let found = answer["data"]["result"].as_array()?;
        let value = |of: &Value| of["value"][1].as_str()?.parse::<f64>().ok();
        let values: Option<Vec<f64>> = found.iter().map(value).collect();
        values.filter(|of| !of.is_empty()).map(|of| of.iter().sum())
    };
    prometheus.until(|_| query("up").filter(|up| *up == 1.0));
    let began = Instant::now();
    let mut first = 0;
    while began.elapsed() < SCRAPED {
        first += 1;
        groups(first % 7);
        daemon.signal(libc::SIGHUP);
        std::thread::sleep(Duration::from_secs(2));
    }
    assert_eq!(query("min_over_time(up[9m])"), Some(1.0), "a scrape failed");
    let scrapes = query("count_over_time(up[9m])").expect("scrapes");
    assert!(scrapes > 400.0, "{scrapes} scrapes in nine minutes");
    let seen = query("count(count_over_time(memferry_group_top_bytes[9m]))");
    assert_eq!(seen, Some(9.0), "groups");
    assert_eq!(query("memferry_reload_refused"), Some(0.0));
    daemon.interrupt();
    assert_eq!(daemon.0.wait().expect("wait").code(), Some(0));
}

#[test]
fn wrong_usage_is_status_2_and_says_what_is_accepted() {
    for (line, says) in [
        ("--json", "--once"),
        ("--no-such-option", "--help"),
        ("check --once", "--once"),
        ("check --json x.json", "write --json=x.json"),
        ("--config x check", "--config"),
    ] {
        let wrong = memferryd(line);
        assert_eq!(status(&wrong), 2, "{line}");
        has(&stderr(&wrong), says);
    }
}

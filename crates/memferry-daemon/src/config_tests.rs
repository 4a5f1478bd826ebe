// SPDX-License-Identifier: MIT OR Apache-2.0
//! Each key of a configuration: what is taken, and what is told of what is not.

use super::*;

const GOOD: &str = r#"
act = true
source = "damon"
source_cpu = "5%"

[brakes]
bytes_per_second = "1G"
memory_pressure = 5
waste = 40

[metrics]
listen = "127.0.0.1:9464"

[history]
file = "/var/lib/memferry/history.jsonl"
bytes = "2M"

[[group]]
name = "db"
cgroups = ["/system.slice/postgres*"]
units = ["redis.service"]
protect = "40%"
weight = 300

[[group]]
name = "batch"
processes = ["spark*"]
cgroup_names_file = "/run/names/batch"
limit = "64M"
"#;

fn parse(text: &str) -> Result<Config, DaemonError> {
    Config::parse(text, Path::new("memferry.toml"))
}

#[test]
fn every_key_is_read() {
    let config = parse(GOOD).unwrap();
    assert!(config.act);
    assert_eq!((config.source, config.source_cpu), (SourceChoice::Damon, 5));
    assert_eq!(config.brakes.bytes_per_second, 1 << 30);
    assert_eq!(
        (config.brakes.memory_pressure, config.brakes.waste),
        (5.0, 40)
    );
    assert_eq!(
        config.metrics,
        Some(Listen::Tcp("127.0.0.1:9464".parse().unwrap()))
    );
    let history = config.history.as_ref().unwrap();
    assert_eq!(history.file, Path::new("/var/lib/memferry/history.jsonl"));
    assert_eq!(history.bytes, 2 << 20);
    let [db, batch] = &config.groups[..] else {
        panic!("{config:?}")
    };
    assert_eq!(
        (db.protect, db.weight, db.limit),
        (Some(Amount::Percent(40)), 300, None)
    );
    assert_eq!(
        (batch.limit, batch.weight),
        (Some(Amount::Bytes(64 << 20)), 100)
    );
    assert_eq!(
        (&db.cgroup_names_file, batch.cgroup_names_file.as_deref()),
        (&None, Some(Path::new("/run/names/batch")))
    );
    assert_eq!(Amount::Percent(40).of(1000), 400);
}

#[test]
fn what_is_no_file_of_text_is_no_matter_of_rights() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = folder.path().join("bytes");
    fs::write(&bytes, [0xff]).unwrap();
    for path in [folder.path(), &bytes, &folder.path().join("none")] {
        let hint = Config::read(path).unwrap_err().hint();
        assert!(hint.contains("--config"), "{hint}");
    }
}

#[test]
fn metrics_are_public_if_told() {
    for (listen, public) in [
        ("0.0.0.0:1", true),
        ("[::1]:1", false),
        ("127.0.0.9:1", false),
        ("127.0.0.1:1", true),
    ] {
        let text = format!("[metrics]\nlisten = {listen:?}\npublic = {public}\n");
        let listen = Some(Listen::Tcp(listen.parse().unwrap()));
        assert_eq!(parse(&text).unwrap().metrics, listen);
    }
}

/// Others write the file of names: a FIFO would hang the daemon, a device fill its memory.
#[test]
fn names_of_cgroups_come_from_small_regular_files_of_their_folder() {
    use rustix::fs::{FileType, mknodat};
    use std::os::unix::fs::symlink;
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let names = |name: &str| {
        let file = at(name);
        let text = format!("[[group]]\nname = \"a\"\ncgroup_names_file = {file:?}\n");
        parse(&text).unwrap().groups[0].cgroup_names()
    };
    // As the kubelet writes a ConfigMap.
    fs::create_dir(at("..1")).unwrap();
    fs::write(at("..1/pods"), "x\ny\n").unwrap();
    symlink("..1", at("..data")).unwrap();
    symlink("..data/pods", at("pods")).unwrap();
    assert_eq!(names("pods").unwrap(), ["x", "y"].map(str::to_owned).into());
    assert!(names("none").unwrap().is_empty());
    assert!(names("none/none").unwrap().is_empty());

    mknodat(CWD, at("fifo"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    symlink("/dev/zero", at("zero")).unwrap();
    symlink("../etc/passwd", at("up")).unwrap();
    fs::write(at("large"), "x\n".repeat(1 << 20)).unwrap();
    fs::write(at("bytes"), [0xff]).unwrap();
    for (name, says) in [
        ("..1", "no regular file"),
        ("fifo", "no regular file"),
        ("zero", "out of its folder"),
        ("up", "out of its folder"),
        ("large", "more than 1048576 bytes"),
        ("bytes", "UTF-8"),
    ] {
        let error = names(name).unwrap_err();
        assert!(error.to_string().contains(says), "{name}: {error}");
        assert!(error.hint().contains("1 MiB"), "{}", error.hint());
    }
}

#[test]
fn nothing_acts_unless_told() {
    let config = parse("").unwrap();
    assert!(!config.act && config.groups.is_empty());
    assert!(config.metrics.is_none() && config.history.is_none());
    assert_eq!(config.source_cpu, 3);
}

#[test]
fn what_is_wrong_is_told_with_its_line_and_what_is_allowed() {
    let assert_told = |text: &str, line: usize, says: &str| {
        let DaemonError::Config { line: at, what, .. } = parse(text).unwrap_err() else {
            panic!()
        };
        assert_eq!(at, line, "{text}: {what}");
        assert!(what.contains(says), "{text}: {what}");
    };
    let one = "[[group]]\nname = \"a\"\nprocesses = [\"x\"]\n";
    let history = "[history]\nfile = \"/h\"\n";
    let half = format!("{one}protect = \"60%\"\n{}", one.replace("\"a\"", "\"b\""));
    // The line behind the others is the wrong one.
    for (before, wrong, says) in [
        (
            "act = true\n",
            "actt = 1",
            "expected one of `act`, `source`",
        ),
        ("\n", "source = \"dammon\"", "`damon`"),
        ("", "act = 1", "expected a boolean"),
        ("\n", "source_cpu = 3", "give whole percent, \"1%\""),
        ("\n", "source_cpu = 0.5", "\"1%\" to \"100%\""),
        ("\n", "source_cpu = \"0%\"", "\"1%\" to \"100%\""),
        ("\n", "source_cpu = \"101%\"", "of one CPU"),
        ("\n", "source_cpu = \"64M\"", "give whole percent"),
        ("\n", "source_cpu = true", "\"1%\" to \"100%\""),
        ("act = true\n", "\"", ""),
        ("[brakes]\n", "bytes_per_second = \"fast\"", "give 2M to 4T"),
        ("[brakes]\n", "memory_pressure = 101", "from 0.1 to 100"),
        ("[brakes]\n", "waste = 101", "give 0 to 100"),
        ("[brakes]\n", "waste = 0.5", "for 0.5 of the whole give 50"),
        ("[brakes]\n", "waste = 40.5", "give 0 to 100, as 40"),
        (
            "[metrics]\n",
            "listen = \"0.0.0.0:1\"",
            "write \"127.0.0.1:1\", or public = true",
        ),
        (
            "[metrics]\npublic = false\n",
            "listen = \"[::]:1\"",
            "names and sizes of groups",
        ),
        (
            "[metrics]\n",
            "listen = \"here\"",
            "unix:/run/memferry/metrics",
        ),
        ("[history]\n", "file = \"here\"", "absolute path"),
        (history, "bytes = \"64K\"", "give 1M to 1T"),
        (one, "weight = 0", "from 1 to 10000"),
        (one, "protect = \"140%\"", "give 0 to 100"),
        (one, "protect = \"x%\"", "\"0%\" to \"100%\""),
        (one, "protect = \"0.5%\"", "for 0.5 of the whole give 50"),
        (one, "protect = 0.5", "text as \"8G\" or \"40%\""),
        (one, "protect = \"0.5\"", "a percentage is \"40%\""),
        (one, "limit = 40", "for a percentage give \"40%\""),
        (one, "cgroups = [\"a.slice\"]", "write \"/a.slice\""),
        (one, "units = [\"a.timer\"]", "no processes"),
        (one, "executables = [\"bin/a\"]", "write \"*/bin/a\""),
        (one, "users = [\"no one\"]", "/etc/passwd has no user"),
        (one, "users = [-1]", "the name or number of a user"),
        (one, "exclude = [\"/bin/a\"]", "has no folder"),
        (one, "min_size = \"1M\"", "give 16M to 1024T"),
        (
            "[[group]]\nname = \"a\"\n",
            "processes = [\"prometheus-node-exporter\"]",
            "write \"prometheus-node\"",
        ),
        (one, "cgroups = [\"/a[\"]", "no pattern"),
        (one, "cgroup_names_file = \"names\"", "no absolute path"),
        (
            &format!("{one}protect = \"2G\"\n"),
            "limit = \"1G\"",
            "at least",
        ),
    ] {
        let line = before.matches('\n').count() + 1;
        assert_told(&format!("{before}{wrong}\n"), line, says);
    }
    for (text, line, says) in [
        ("[history]\nbytes = \"2M\"", 1, "missing field `file`"),
        (
            "act = true\n\n[[group]]\nname = \"a\"",
            3,
            "give cgroups, units, processes, executables, users or cgroup_names_file",
        ),
        (
            "[[group]]\nname = \"a b\"\nunits = [\"x\"]",
            2,
            "letters, digits",
        ),
        (&format!("{one}{one}"), 5, "already"),
        (&format!("{half}protect = \"60%\""), 5, "100%"),
    ] {
        assert_told(text, line, says);
    }
}

#[test]
fn unknown_keys_are_ignored_in_a_file_for_a_newer_version_alone() {
    let more = GOOD.replace("waste =", "haste.most = 7\nwaste =");
    let more = more.replace("weight = 300\n", "weight = 300\nhuge = { pages = true }\n");
    let more = more + "\n[later]\nx = 1\n\n[[last]]\nname = \"a\"\n";
    let of = |version: &str, text: &str| parse(&format!("version = {version}\n{text}"));
    assert_eq!(of("1", GOOD).unwrap(), parse(GOOD).unwrap());
    for older in [parse(&more), of("1", &more)] {
        let error = older.unwrap_err().to_string();
        assert!(error.contains("unknown field `"), "{error}");
    }
    let newer = of("2", &more).unwrap();
    for key in ["haste", "huge", "later", "last"] {
        let line = 2 + more.lines().position(|line| line.contains(key)).unwrap();
        let told = format!("line {line}: `{key}`");
        assert!(newer.ignored.contains(&told), "{told}: {:?}", newer.ignored);
    }
    assert_eq!(newer.ignored.len(), 4);
    let known = Config {
        ignored: Vec::new(),
        ..newer
    };
    assert_eq!(known, parse(GOOD).unwrap());
    // What is known has to be right, whatever the version.
    let DaemonError::Config { line, what, .. } = of(
        "2",
        &more.replace("memory_pressure = 5", "memory_pressure = 500"),
    )
    .unwrap_err() else {
        panic!()
    };
    assert!(
        line > 6 && what.contains("from 0.1 to 100"),
        "{line}: {what}"
    );
    assert!(of("\"2\"", GOOD).is_err());
}

/// Each mutation of a good file is read or refused with a line that the file has.
#[test]
fn no_mutation_panics() {
    let mut random = fastrand::Rng::with_seed(19);
    let (mut good, mut bad) = (0, 0);
    for _ in 0..4000 {
        let mut bytes = GOOD.as_bytes().to_vec();
        for _ in 0..random.usize(1..4) {
            let at = random.usize(..bytes.len());
            match random.u8(..5) {
                0 => bytes[at] = random.u8(..),
                1 => drop(bytes.remove(at)),
                2 => bytes.insert(at, *random.choice(b"[]\"=#\n%9-.\\{}e").unwrap()),
                3 => bytes.truncate(at.max(1)),
                _ => {
                    let from = random.usize(..=at);
                    let copy = bytes[from..at].to_vec();
                    bytes.splice(at..at, copy);
                }
            }
        }
        let text = String::from_utf8_lossy(&bytes);
        match parse(&text) {
            Ok(_) => good += 1,
            Err(DaemonError::Config { line, what, .. }) => {
                bad += 1;
                assert!(
                    (1..=text.matches('\n').count() + 1).contains(&line),
                    "{line}: {what}\n{text}"
                );
                assert!(!what.is_empty());
            }
            Err(other) => panic!("{other}"),
        }
    }
    assert!(good > 100 && bad > 1000, "{good} {bad}");
}

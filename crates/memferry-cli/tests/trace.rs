// SPDX-License-Identifier: MIT OR Apache-2.0
//! Traces as a user makes and looks at them. Recording needs valgrind, which ci/setup.sh installs.

mod command;

use std::fs;
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Output, Stdio};

use command::child::Waiting;
use command::{done, fails, has, json, memferry, status, stderr, stdout, with_signals, words};

/// Runs `memferry trace` in a folder of its own; what it names without a path is there.
fn trace(folder: &Path, line: &str) -> Output {
    let mut command = command::command();
    command.current_dir(folder).arg("trace").args(words(line));
    command.output().expect("start")
}

fn info(file: &Path) -> serde_json::Value {
    json(&memferry(&format!("trace info --json {}", file.display())))
}

#[test]
fn a_command_is_recorded_and_keeps_its_output() {
    let folder = tempfile::tempdir().expect("folder");
    let output = trace(folder.path(), "record -o echo.trace -- /bin/echo --its own");
    assert_eq!(stdout(&output), "--its own\n");
    has(&stderr(&output), "echo.trace: ");

    let path = folder.path().join("echo.trace");
    let description = info(&path);
    assert_eq!(description["schema"], "memferry-trace/1");
    assert_eq!(description["name"], "/bin/echo --its own");
    assert_eq!(description["clock"], "accesses");
    assert_eq!(description["cache"]["bytes"], 1 << 20);
    let number = |name: &str| description[name].as_u64().expect("number");
    // echo and its loader: some dozens of pages, some hundred thousand accesses, most of them hits of the cache.
    assert!((20..5000).contains(&number("pages")), "{description}");
    assert!(number("seen") > 50_000, "{description}");
    assert!(
        number("accesses") > 100 && number("accesses") < number("seen") / 4,
        "{description}"
    );
    assert_eq!(
        number("file_bytes"),
        fs::metadata(&path).expect("stat").len()
    );

    let text = stdout(&memferry(&format!("trace info {}", path.display())));
    has(
        &text,
        "lackey (valgrind- | instruction fetches | 1 MiB | bytes per access",
    );
}

#[test]
fn options_say_what_is_left_out() {
    let folder = tempfile::tempdir().expect("folder");
    let record = |name: &str, options: &str| {
        let line = format!("record -o {name} {options} -- /bin/true");
        done(&trace(folder.path(), &line));
        info(&folder.path().join(name))
    };
    let all = record("all", "--cache 0 --window 0 --name true");
    assert_eq!(all["name"], "true");
    assert_eq!(all["cache"], serde_json::Value::Null);
    // An access on two pages is two events.
    assert!(all["accesses"].as_u64() >= all["seen"].as_u64(), "{all}");
    assert!(all["events"].as_u64() >= all["seen"].as_u64(), "{all}");
    let data = record("data", "--cache 0 --data-only");
    assert!(
        data["accesses"].as_u64() < all["accesses"].as_u64(),
        "{data}"
    );
    let huge = record("huge", "--page 2M --max-accesses 1k");
    assert_eq!(huge["page_bytes"], 2 << 20);
    assert_eq!(huge["seen"], 1000);
}

#[test]
fn a_command_that_fails_leaves_its_trace_and_status_1() {
    let folder = tempfile::tempdir().expect("folder");
    fs::write(folder.path().join("fails"), "exit 3\n").expect("write");
    fails(
        &trace(folder.path(), "record -- /bin/sh fails"),
        "ended with status 3",
    );
    // The default name.
    assert!(info(&folder.path().join("memferry.trace"))["events"].as_u64() > Some(0));
}

#[test]
fn what_cannot_run_leaves_no_trace() {
    let folder = tempfile::tempdir().expect("folder");
    for (command, part) in [
        ("-- /no/such/program", "/no/such/program was not found"),
        ("-- no-such-program", "no-such-program was not found"),
        ("-- /etc/passwd", "/etc/passwd cannot be run"),
        ("-- /etc", "/etc cannot be run"),
        ("--skip 1G -- /bin/true", "to skip"),
        ("-o - -- /bin/true", "--output"),
    ] {
        fails(&trace(folder.path(), &format!("record {command}")), part);
    }
    let left = fs::read_dir(folder.path()).expect("list").count();
    assert_eq!(left, 0);
}

#[test]
fn an_output_that_cannot_be_written_is_told_before_anything_runs() {
    let folder = tempfile::tempdir().expect("folder");
    for output in ["no/such/folder/x.trace", ".", "/proc/x.trace"] {
        let told = trace(
            folder.path(),
            &format!("record -o {output} -- /bin/touch ran"),
        );
        fails(&told, "cannot write | try: name a file in a folder");
        assert_eq!(fs::read_dir(folder.path()).expect("list").count(), 0);
    }
}

#[test]
fn a_missing_valgrind_is_told_with_how_to_get_it() {
    let folder = tempfile::tempdir().expect("folder");
    let output = command::command()
        .env("PATH", folder.path())
        .current_dir(folder.path())
        .args(["trace", "record", "--", "/bin/true"])
        .output()
        .expect("start");
    fails(&output, "apt-get install valgrind");
}

#[test]
fn an_endless_command_ends_with_the_accesses_that_were_asked_for() {
    let folder = tempfile::tempdir().expect("folder");
    fs::write(folder.path().join("endless"), "while :; do :; done\n").expect("write");
    let line = "record --skip 200k --max-accesses 100k --cache 0 -- /bin/sh endless";
    done(&trace(folder.path(), line));
    assert_eq!(info(&folder.path().join("memferry.trace"))["seen"], 100_000);
}

/// A shell that is being recorded and has begun; the recording's signals have this action.
fn recorded(folder: &Path, script: &str, action: libc::sighandler_t) -> Waiting {
    let mut record = command::command();
    record
        .current_dir(folder)
        .args(["trace", "record", "--", "/bin/sh", "-c"])
        .arg(format!("echo ready; {script}"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    with_signals(&mut record, action);
    let mut child = Waiting(record.spawn().expect("start"));
    let mut ready = [0; 6];
    let stdout = child.0.stdout.as_mut().expect("stdout");
    stdout.read_exact(&mut ready).expect("read");
    assert_eq!(&ready, b"ready\n");
    child
}

#[test]
fn an_interrupt_leaves_a_whole_trace() {
    let folder = tempfile::tempdir().expect("folder");
    let mut child = recorded(folder.path(), "while :; do :; done", libc::SIG_DFL);
    child.interrupt();
    let output = child.ended();
    assert_eq!(status(&output), 130, "{}", stderr(&output));
    has(&stderr(&output), "interrupted");
    assert!(info(&folder.path().join("memferry.trace"))["events"].as_u64() > Some(0));
}

/// As nohup and shells start background jobs.
#[test]
fn signals_that_were_ignored_stay_ignored() {
    let folder = tempfile::tempdir().expect("folder");
    let mut child = recorded(folder.path(), "read line", libc::SIG_IGN);
    for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGTERM] {
        child.signal(signal);
    }
    let stdin = child.0.stdin.as_mut().expect("stdin");
    stdin.write_all(b"\n").expect("write");
    let output = child.ended();
    assert_eq!(status(&output), 0, "{}", stderr(&output));
}

#[test]
fn texts_of_other_tools_become_traces() {
    let folder = tempfile::tempdir().expect("folder");
    for (format, text, accesses, pages) in [
        ("lackey", "==1== x\nI  0401ab70,3\n S 1fff000758,8\n", 2, 2),
        (
            "perf",
            "ls 1/1 5.000001: cpu/mem-loads/: 7f1000\nls 1/1 5.000002: cpu/mem-stores/: 7f1008\n",
            2,
            1,
        ),
        (
            "damon",
            "monitoring_start: 0 ns\ntarget_id: 0\n1000-3000 (8.000 KiB) 5 0\n",
            10,
            2,
        ),
    ] {
        fs::write(folder.path().join("input.txt"), text).expect("write");
        let line = format!("import --format {format} input.txt");
        done(&trace(folder.path(), &line));
        let description = info(&folder.path().join("memferry.trace"));
        assert_eq!(description["accesses"], accesses, "{description}");
        assert_eq!(description["pages"], pages, "{description}");
        assert_eq!(description["name"], "input.txt");
    }
}

#[test]
fn a_text_is_read_from_stdin_and_a_trace_written_to_stdout() {
    let mut child = command::command()
        .args(["trace", "import", "--format", "lackey", "-", "-o", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("start");
    let mut input = child.stdin.take().expect("stdin");
    input.write_all(b" L 1000,8\n").expect("write");
    drop(input);
    let output = child.wait_with_output().expect("end");
    assert_eq!(status(&output), 0);
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("x.trace");
    fs::write(&path, &output.stdout).expect("write");
    assert_eq!(info(&path)["accesses"], 1);
}

#[test]
fn a_text_that_is_not_right_is_told_with_its_line() {
    let folder = tempfile::tempdir().expect("folder");
    for (format, text, part) in [
        ("lackey", " L 1000,8\nhello\n L 1000,8\n", "line 2"),
        ("perf", "5.000001: 1000\n5.000000: 1000\n", "line 2"),
        ("damon", "\nhello\n", "line 2"),
        ("lackey", "==1== nothing\n", "no access"),
        ("perf", "ls 1/1 5.000001: cycles: 0\n", "no access"),
    ] {
        fs::write(folder.path().join("input.txt"), text).expect("write");
        let line = format!("import --format {format} input.txt");
        fails(&trace(folder.path(), &line), part);
        assert!(!folder.path().join("memferry.trace").exists());
    }
    let missing = trace(folder.path(), "import --format perf none.txt");
    fails(&missing, "none.txt");
}

#[test]
fn samples_that_are_left_out_are_counted() {
    let folder = tempfile::tempdir().expect("folder");
    let text =
        "a 1/1 5.000001: e: 1000\nb 2/2 5.000002: e: 1000\na 1/1 5.000003: e: ffffa7c22b4b2a00\n";
    fs::write(folder.path().join("input.txt"), text).expect("write");
    let import = "import --format perf input.txt";
    fails(&trace(folder.path(), import), "--only");
    let output = trace(folder.path(), &format!("{import} --only 1 --sampling 1000"));
    done(&output);
    has(
        &stderr(&output),
        "1 samples of the kernel's memory | 1 samples of other processes",
    );
    let description = info(&folder.path().join("memferry.trace"));
    assert_eq!(description["sampling"], 1000);
}

#[test]
fn a_damaged_trace_is_told_with_its_offset() {
    let folder = tempfile::tempdir().expect("folder");
    fs::write(folder.path().join("input.txt"), " L 1000,8\n S 2000,8\n").expect("write");
    let import = "import --format lackey input.txt";
    done(&trace(folder.path(), import));
    let good = fs::read(folder.path().join("memferry.trace")).expect("read");
    let mut flipped = good.clone();
    // Within the header.
    flipped[20] ^= 1;
    let mut newer = good.clone();
    newer[8] = 9;
    for (bytes, part) in [
        (&good[..good.len() - 3], format!("byte {}", good.len() - 3)),
        (&flipped[..], "damaged at byte 10".to_owned()),
        (&newer[..], "version 9".to_owned()),
        (&b"I  0401ab70,3\n"[..], "memferry trace import".to_owned()),
        (&[][..], "memferry trace import".to_owned()),
    ] {
        fs::write(folder.path().join("bad.trace"), bytes).expect("write");
        let output = trace(folder.path(), "info bad.trace");
        fails(&output, &format!("bad.trace | {part}"));
    }
}

#[test]
fn a_trace_is_reduced_into_another() {
    let folder = tempfile::tempdir().expect("folder");
    let text = " L 1000,8\n L 2000,8\n".repeat(20);
    fs::write(folder.path().join("input.txt"), text).expect("write");
    let import = "import --format lackey --cache 0 --window 2 input.txt";
    done(&trace(folder.path(), import));
    let path = folder.path().join("memferry.trace");
    assert_eq!(info(&path)["events"], 40);
    let reduce = |window| {
        trace(
            folder.path(),
            &format!("reduce memferry.trace --window {window}"),
        )
    };
    fails(&reduce(5), "whole windows of 2");
    done(&reduce(20));
    let description = info(&folder.path().join("memferry-reduced.trace"));
    assert_eq!(
        (&description["events"], &description["accesses"]),
        (&4.into(), &40.into())
    );
    assert_eq!(description["window"], 20);
    assert_eq!(info(&path)["events"], 40, "the trace itself stays");
}

#[test]
fn a_signal_leaves_no_temporary_file() {
    let folder = tempfile::tempdir().expect("folder");
    let names = || fs::read_dir(folder.path()).expect("list").count();
    let mut import = command::command();
    import
        .args(["trace", "import", "--format", "lackey", "-"])
        .current_dir(folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut child = Waiting(import.spawn().expect("start"));
    child.until(|_| (names() > 0).then_some(()));
    child.signal(libc::SIGTERM);
    let ended = child.0.wait().expect("end");
    assert_eq!((ended.signal(), names()), (Some(libc::SIGTERM), 0));
}

#[test]
fn the_traces_of_the_repository_are_whole() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces");
    for name in ["compiler", "gups", "redis", "scan", "sort", "sqlite"] {
        let description = info(&folder.join(name).with_extension("trace"));
        assert!(description["pages"].as_u64() > Some(2000), "{description}");
    }
}

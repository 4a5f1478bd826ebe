// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a program that has ended said. The tests of `memferryd` use it, too.

use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output};

use serde_json::Value;

/// A program with an environment that does not change its output.
pub fn quiet(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env_clear();
    with_signals(&mut command, libc::SIG_DFL);
    command
}

/// What the child does about signals is not what the tests do: those may run under nohup, or as a background job of a shell.
pub fn with_signals(command: &mut Command, action: libc::sighandler_t) {
    // SAFETY: signal(2) may be called between fork and exec.
    unsafe {
        command.pre_exec(move || {
            for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
                libc::signal(signal, action);
            }
            Ok(())
        });
    }
}

/// The words of a line.
pub fn words(line: &str) -> Vec<&str> {
    line.split_terminator(' ').collect()
}

/// Its exit status; a signal is none.
pub fn status(output: &Output) -> i32 {
    output.status.code().expect("no signal")
}

/// What it wrote to stdout; it must have succeeded.
#[track_caller]
pub fn done(output: &Output) -> String {
    assert_eq!(status(output), 0, "{}", stderr(output));
    stdout(output)
}

/// What it wrote to stdout, which is JSON, whether it succeeded or not.
#[track_caller]
pub fn json(output: &Output) -> Value {
    serde_json::from_str(&stdout(output)).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// It failed, said why and what to try, and these parts are in what it said.
#[track_caller]
pub fn fails(output: &Output, parts: &str) {
    fails_with(1, output, parts);
}

/// The same with another exit status.
#[track_caller]
pub fn fails_with(code: i32, output: &Output, parts: &str) {
    assert_eq!(status(output), code, "{output:?}");
    has(&stderr(output), &format!("why: | try: | {parts}"));
}

/// Checks that all parts are in a text; a `|` stands between them.
#[track_caller]
pub fn has(text: &str, parts: &str) {
    for part in parts.split('|').map(str::trim) {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// Every file of a finished command says what wrote it, when and how, and that it is complete.
#[track_caller]
pub fn check_head(file: &Value, arguments: &str) {
    assert_eq!(file["version"], env!("CARGO_PKG_VERSION"));
    let date = file["date"].as_str().expect("date");
    let past = humantime::parse_rfc3339(date).expect("RFC 3339").elapsed();
    assert!(past.is_ok_and(|past| past.as_secs() < 3600), "{date}");
    let told: Vec<&str> = (file["arguments"].as_array().expect("arguments").iter())
        .filter_map(Value::as_str)
        .collect();
    assert!(told.join(" ").starts_with(arguments), "{told:?}");
    assert!(file["settings"].is_object(), "{file}");
    assert_eq!(file["complete"], true);
}

/// The file without what differs from run to run and from machine to machine.
#[track_caller]
pub fn without_head(mut file: Value, arguments: &str) -> Value {
    check_head(&file, arguments);
    for field in ["version", "date", "arguments", "settings", "host"] {
        file[field].take();
    }
    file
}

/// What it wrote to stdout.
pub fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

/// What it wrote to stderr.
pub fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("UTF-8")
}

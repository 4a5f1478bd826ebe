// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `make install` puts in place, and `make uninstall` takes away; and what make may install for itself.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod command;

use std::path::Path;
use std::process::{Command, Stdio};

use command::built::{built, output, run};
use command::child::terminal;

/// What `packaging/install.sh` installs, for a C program that knows pkg-config alone.
#[test]
fn an_installed_library_is_found_by_pkg_config_and_runs() {
    let folder = tempfile::tempdir().expect("folder");
    let prefix = folder.path();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let libraries = built("memferry-c", &["/libmemferry.so", "/libmemferry.a"]);
    let script = |action: &str| {
        let mut script = Command::new(root.join("packaging/install.sh"));
        script
            .env("PREFIX", prefix)
            .env_remove("DESTDIR")
            .env_remove("LIBDIR");
        script.arg(action);
        script
    };
    let mut install = script("install");
    install
        .arg(env!("CARGO_BIN_EXE_memferry"))
        .arg(command::daemon::path());
    run(install.args(&libraries));
    // The command's errors and help name it.
    assert!(prefix.join("share/doc/memferry/docs/daemon.md").is_file());
    let asked = |options: &[&str]| {
        let mut ask = Command::new("pkg-config");
        ask.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"));
        run(ask.args(options).arg("memferry")).trim().to_owned()
    };
    assert_eq!(asked(&["--modversion"]), env!("CARGO_PKG_VERSION"));
    for (name, options) in [
        ("shared", &["--cflags", "--libs"][..]),
        ("static", &["--cflags", "--libs", "--static"][..]),
    ] {
        let program = prefix.join(name);
        let flags = asked(options);
        let mut link = Command::new("cc");
        link.arg("-o").arg(&program);
        link.arg(root.join("examples/c/move.c"));
        for flag in flags.split_whitespace() {
            // The archive, where the linker would take the shared library.
            match (name, flag) {
                ("static", "-lmemferry") => link.arg("-l:libmemferry.a"),
                _ => link.arg(flag),
            };
        }
        run(&mut link);
        let mut program = Command::new(program);
        if name == "shared" {
            program.env("LD_LIBRARY_PATH", prefix.join("lib"));
        }
        let ran = output(&mut program);
        let said = String::from_utf8_lossy(&ran.stdout) + String::from_utf8_lossy(&ran.stderr);
        assert!(
            match ran.status.code() {
                Some(0) => said.ends_with("\n67108864 of 67108864 bytes intact\n"),
                code => code == Some(1) && said.contains("no way to move pages here"),
            },
            "{}: {said}",
            ran.status
        );
    }
    let installed = Command::new(prefix.join("bin/memferry"))
        .arg("--version")
        .output();
    assert!(installed.unwrap().status.success());
    run(&mut script("uninstall"));
    let mut left = run(Command::new("find").arg(prefix).args(["!", "-type", "d"]))
        .lines()
        .map(|path| path.rsplit('/').next().unwrap().to_owned())
        .collect::<Vec<_>>();
    left.sort();
    assert_eq!(
        left,
        ["shared", "static"],
        "only what the test made is left"
    );
}

/// A machine with cargo and without a C compiler, whose apt-get tells what it was asked for.
fn machine_without_a_compiler() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in [
        ("id", "echo 0"),
        ("cargo", "echo cargo 1.90.0"),
        ("apt-get", r#"echo "$@" >>"$(dirname "$0")/asked""#),
    ] {
        let path = folder.path().join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&path, mode).unwrap();
    }
    for name in ["cut", "sort", "head", "dirname"] {
        let found = ["/usr/bin", "/bin"].map(|folder| Path::new(folder).join(name));
        let found = found.into_iter().find(|path| path.exists()).unwrap();
        std::os::unix::fs::symlink(found, folder.path().join(name)).unwrap();
    }
    folder
}

/// What `make demo` calls first: no package comes onto a machine whose owner did not agree.
#[test]
fn packages_are_installed_with_consent_alone() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ci/setup.sh");
    // At a terminal that an answer comes from, or without one.
    let run = |consent: Option<(&str, &str)>, answer: Option<&str>| {
        let machine = machine_without_a_compiler();
        let mut setup = Command::new("/bin/sh");
        setup.arg(&script).env_clear().env("PATH", machine.path());
        setup.envs(consent);
        setup.stdin(Stdio::null());
        let mut person = None;
        if let Some(answer) = answer {
            let (mut at, program) = terminal();
            std::io::Write::write_all(&mut at, answer.as_bytes()).unwrap();
            setup.stdin(program);
            person = Some(at);
        }
        let ran = output(&mut setup);
        drop(person);
        let said = String::from_utf8_lossy(&ran.stdout) + String::from_utf8_lossy(&ran.stderr);
        assert!(said.contains(": gcc libc6-dev"), "{said}");
        let asked = std::fs::read_to_string(machine.path().join("asked"));
        (
            ran.status.success(),
            asked.unwrap_or_default(),
            said.into_owned(),
        )
    };
    for (consent, answer) in [(None, None), (None, Some("n\n")), (None, Some("\n"))] {
        let (done, asked, said) = run(consent, answer);
        assert!(!done && asked.is_empty(), "{answer:?}: {said}");
        assert!(said.contains("nothing was installed"), "{said}");
        assert_eq!(said.contains("YES=1"), answer.is_none(), "{said}");
    }
    for (consent, answer) in [
        (Some(("YES", "1")), None),
        (Some(("CI", "true")), None),
        (None, Some("y\n")),
    ] {
        let (done, asked, said) = run(consent, answer);
        assert!(done, "{consent:?}: {said}");
        assert!(
            asked.contains("install") && asked.contains("gcc libc6-dev"),
            "{asked}"
        );
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `make install` puts in place, and `make uninstall` takes away.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../memferry-c/tests/built/mod.rs"]
mod built;

use std::path::Path;
use std::process::Command;

use built::{built, output, run};

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
        script.args([action, env!("CARGO_BIN_EXE_memferry")]);
        run(script.args(&libraries))
    };
    script("install");
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
            said.ends_with("bytes intact\n") || said.contains("no way to move pages here"),
            "{said}"
        );
    }
    let installed = Command::new(prefix.join("bin/memferry"))
        .arg("--version")
        .output();
    assert!(installed.unwrap().status.success());
    script("uninstall");
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

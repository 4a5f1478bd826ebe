// SPDX-License-Identifier: MIT OR Apache-2.0
//! What cargo has built, and commands that must succeed. The command's tests use it, too.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Cargo tells tests no paths of other packages' products, so it is asked for them, in the profile of this test. The library
/// it has built already when it comes to this.
pub fn built(package: &str, end: &[&str]) -> Vec<PathBuf> {
    // The test's own path is PROFILE/deps/NAME, the profile `debug` for dev and test.
    let own = std::env::current_exe().unwrap();
    let folder = own.ancestors().nth(2).unwrap();
    let profile = match folder.file_name().unwrap().to_str().unwrap() {
        "debug" => "test",
        other => other,
    };
    let target_dir = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["build", "--offline", "--message-format", "json"])
        .args(["--package", package, "--profile", profile])
        .arg("--target-dir")
        .arg(target_dir);
    // A folder between them is the target's, where one was named.
    let named = folder.parent().filter(|parent| *parent != target_dir);
    if let Some(triple) = named.and_then(Path::file_name) {
        cargo.arg("--target").arg(triple);
    }
    let messages = run(&mut cargo);
    let found = |end: &&str| {
        let product = messages.split('"').find(|text| text.ends_with(end));
        let product = product.map(PathBuf::from);
        product.unwrap_or_else(|| panic!("{cargo:?} names no {end}: {messages}"))
    };
    end.iter().map(found).collect()
}

/// What the command came to.
pub fn output(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|error| {
        panic!("cannot start {command:?}: {error}; this test needs it, install it")
    })
}

/// What the command printed to its output; fails with all that it printed otherwise.
pub fn run(command: &mut Command) -> String {
    let output = output(command);
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{command:?} failed: {}\n{printed}{errors}",
        output.status
    );
    printed
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compiles C programs against both libraries and runs them. A missing compiler fails these tests: nothing is skipped.
//!
//! Where userspace cannot move pages, the programs must say so, with the words of the Rust library.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod built;

use built::{built, output, run};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

const HERE: &str = env!("CARGO_MANIFEST_DIR");
const SONAME: &str = concat!("libmemferry.so.", env!("CARGO_PKG_VERSION_MAJOR"));

/// The libraries under test.
struct Libraries {
    shared: PathBuf,
    archive: PathBuf,
}

fn libraries() -> &'static Libraries {
    static BUILT: OnceLock<Libraries> = OnceLock::new();
    BUILT.get_or_init(|| {
        let mut paths = built("memferry-c", &["/libmemferry.so", "/libmemferry.a"]).into_iter();
        Libraries {
            shared: paths.next().unwrap(),
            archive: paths.next().unwrap(),
        }
    })
}

/// The system's compiler for C or C++, warnings as errors, with the folder of the header.
fn compiler(cpp: bool, std: &str) -> Command {
    let target = env!("MEMFERRY_TARGET");
    let mut build = cc::Build::new();
    build
        .cpp(cpp)
        .target(target)
        .host(target)
        .opt_level(1)
        .cargo_metadata(false);
    let mut command = build.get_compiler().to_command();
    command
        .args([
            std,
            "-Wall",
            "-Wextra",
            "-Wpedantic",
            "-Wshadow",
            "-Werror",
            "-I",
        ])
        .arg(Path::new(HERE).join("include"));
    command
}

/// A folder for what one test builds.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("c-api-{name}"));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

#[derive(Clone, Copy)]
enum Linked {
    Shared,
    Archive,
}

/// Compiles a program against one of the libraries; the command runs it.
fn program(source: &Path, test: &str, linked: Linked) -> Command {
    let built = folder(test);
    let program = built.join("program");
    let mut link = compiler(false, "-std=gnu11");
    link.arg(source).arg("-o").arg(&program);
    match linked {
        Linked::Shared => link.arg(&libraries().shared),
        Linked::Archive => link.arg(&libraries().archive),
    };
    run(link.args(["-pthread", "-ldl", "-lm"]));
    let mut command = Command::new(program);
    if let Linked::Shared = linked {
        // Its soname is what the loader looks for; an installation has the same link.
        let soname = built.join(SONAME);
        let _ = std::fs::remove_file(&soname);
        std::os::unix::fs::symlink(&libraries().shared, &soname).unwrap();
        command.env("LD_LIBRARY_PATH", &built);
    }
    command
}

/// Why pages cannot be moved to others of their node here, in the Rust library's words; `None` where they can.
fn no_backend() -> Option<String> {
    let options = memferry::MoverOptions::new(memferry::Batch::default());
    memferry::Mover::new(options.backend(memferry::Backend::Userfaultfd))
        .err()
        .map(|error| error.to_string())
}

fn example_moves(linked: Linked, test: &str) {
    let source = Path::new(HERE).join("../../examples/c/move.c");
    let mut command = program(&source, test, linked);
    if let Some(why) = no_backend() {
        let output = output(&mut command);
        assert_eq!(output.status.code(), Some(1));
        assert!(
            String::from_utf8_lossy(&output.stderr).contains(&why),
            "{output:?}"
        );
        return;
    }
    let printed = run(&mut command);
    let bytes = 64 << 20;
    // The counts of folios depend on the system's huge pages.
    let moved = printed
        .lines()
        .find(|line| line.starts_with("moved: "))
        .unwrap();
    assert!(
        moved.ends_with(&format!(" folios, {bytes} bytes")),
        "{printed}"
    );
    assert!(
        printed.ends_with(&format!("{bytes} of {bytes} bytes intact\n")),
        "{printed}"
    );
}

#[test]
fn the_example_moves_with_the_shared_library() {
    example_moves(Linked::Shared, "move-shared");
}

#[test]
fn the_example_moves_with_the_archive() {
    example_moves(Linked::Archive, "move-archive");
}

fn errors_are_reported(linked: Linked, test: &str) {
    let source = Path::new(HERE).join("tests/c/errors.c");
    let mut command = program(&source, test, linked);
    let (tap, expected) = match no_backend() {
        None => (run(&mut command), 200),
        Some(why) => {
            let output = output(&mut command);
            let tap = String::from_utf8_lossy(&output.stdout).into_owned();
            assert_eq!(output.status.code(), Some(77), "{tap}");
            assert!(tap.contains(&why), "{tap}");
            (tap, 30)
        }
    };
    let passed = tap.lines().filter(|line| line.starts_with("ok ")).count();
    assert!(
        passed >= expected && tap.ends_with(&format!("1..{passed}\n")),
        "{tap}"
    );
}

#[test]
fn errors_are_reported_by_the_shared_library() {
    errors_are_reported(Linked::Shared, "errors-shared");
}

#[test]
fn errors_are_reported_by_the_archive() {
    errors_are_reported(Linked::Archive, "errors-archive");
}

#[test]
fn a_caller_may_leave_a_move_by_longjmp_and_by_cancellation() {
    let source = Path::new(HERE).join("tests/c/leave.c");
    let mut command = program(&source, "leave", Linked::Shared);
    if no_backend().is_some() {
        assert_eq!(output(&mut command).status.code(), Some(77));
        return;
    }
    let tap = run(&mut command);
    assert!(tap.ends_with("1..154\n"), "{tap}");
}

#[test]
fn a_program_may_move_its_own_heap() {
    let source = Path::new(HERE).join("tests/c/heap.c");
    let mut command = program(&source, "heap", Linked::Shared);
    if no_backend().is_some() {
        assert_eq!(output(&mut command).status.code(), Some(77));
        return;
    }
    let tap = run(&mut command);
    assert!(tap.ends_with("1..3\n"), "{tap}");
}

/// A program that would hang does so with its signals blocked: it is killed after a time that no host is too slow for.
fn guarded(program: &Command) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", "600"]);
    command.arg(program.get_program()).args(program.get_args());
    let set = program.get_envs();
    command.envs(set.filter_map(|(name, value)| Some((name, value?))));
    command
}

fn everything_moves(program: &Command) {
    let mut command = guarded(program);
    if no_backend().is_some() {
        assert_eq!(output(&mut command).status.code(), Some(77));
        return;
    }
    let tap = run(&mut command);
    assert!(tap.ends_with("1..6\n"), "{tap}");
}

fn everything() -> PathBuf {
    Path::new(HERE).join("tests/c/everything.c")
}

#[test]
fn a_program_may_move_all_it_has_with_the_shared_library() {
    everything_moves(&program(&everything(), "everything-shared", Linked::Shared));
}

#[test]
fn a_program_may_move_all_it_has_with_the_archive() {
    everything_moves(&program(
        &everything(),
        "everything-archive",
        Linked::Archive,
    ));
}

#[test]
fn a_program_may_move_all_it_has_with_a_library_that_it_loads() {
    let built = folder("everything-loaded").join("program");
    run(compiler(false, "-std=gnu11")
        .arg("-DDLOPEN")
        .arg(everything())
        .args(["-pthread", "-ldl"])
        .arg("-o")
        .arg(&built));
    everything_moves(Command::new(built).arg(&libraries().shared));
}

#[test]
fn a_mover_and_the_handlers_of_fork_outlive_dlclose() {
    let source = Path::new(HERE).join("tests/c/unload.c");
    let built = folder("unload").join("program");
    run(compiler(false, "-std=gnu11")
        .arg(source)
        .args(["-pthread", "-ldl"])
        .arg("-o")
        .arg(&built));
    let printed = run(Command::new(built).arg(&libraries().shared));
    assert_eq!(printed, "used after dlclose\n");
}

#[test]
fn the_header_is_c11_and_cpp11() {
    let source = folder("header").join("header.c");
    std::fs::write(
        &source,
        "#include <memferry.h>\n#include <memferry.h>\nint used = MEMFERRY_AUTO;\n",
    )
    .unwrap();
    run(compiler(false, "-std=c11")
        .arg("-fsyntax-only")
        .arg(&source));
    run(compiler(true, "-std=c++11")
        .args(["-fsyntax-only", "-x", "c++"])
        .arg(&source));
}

/// The shared library gives out what the header declares, and nothing else.
#[test]
fn the_header_declares_what_the_library_exports() {
    let header = std::fs::read_to_string(Path::new(HERE).join("include/memferry.h")).unwrap();
    let mut declared: Vec<&str> = header
        .lines()
        .filter(|line| {
            line.starts_with("int ") || line.starts_with("void ") || line.starts_with("const char ")
        })
        .map(|line| {
            line.split('(')
                .next()
                .unwrap()
                .rsplit([' ', '*'])
                .next()
                .unwrap()
        })
        .collect();
    declared.sort_unstable();
    assert!(declared.len() > 5, "{declared:?}");
    let symbols = run(Command::new("nm")
        .args(["-D", "--defined-only"])
        .arg(&libraries().shared));
    let mut exported: Vec<&str> = symbols
        .lines()
        .map(|line| line.rsplit(' ').next().unwrap())
        .collect();
    exported.sort_unstable();
    assert_eq!(exported, declared);
}

#[test]
fn the_shared_library_is_named_and_stays_loaded() {
    let dynamic = run(Command::new("readelf").arg("-d").arg(&libraries().shared));
    assert!(dynamic.contains(&format!("[{SONAME}]")), "{dynamic}");
    assert!(dynamic.contains("NODELETE"), "{dynamic}");
}

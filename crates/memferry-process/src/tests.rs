// SPDX-License-Identifier: MIT OR Apache-2.0
//! Surveys of invented processes, and moves of real ones on whatever nodes this machine has.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;

use super::*;
use std::sync::atomic::AtomicBool;

const PRESENT: u64 = 1 << 63;

/// A folder that looks like /proc with one process.
fn invented(maps: &str, present: &[usize]) -> (tempfile::TempDir, Process) {
    let proc = tempfile::tempdir().unwrap();
    fs::create_dir_all(proc.path().join("self")).unwrap();
    let folder = proc.path().join("77");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("maps"), maps).unwrap();
    let pagemap = fs::File::create(folder.join("pagemap")).unwrap();
    // As the kernel's, it ends beyond every address that is asked for.
    pagemap.set_len(1 << 20).unwrap();
    for page in present {
        let entry = (PRESENT | 0x1234).to_ne_bytes();
        pagemap.write_all_at(&entry, *page as u64 * 8).unwrap();
    }
    let process = Process::open_below(proc.path(), 77).unwrap();
    (proc, process)
}

const MAPS: &str = "\
00400000-00500000 r-xp 00000000 08:01 12                         /bin/program
00500000-00a00000 rw-p 00000000 00:00 0                          [heap]
00b00000-00b01000 rw-s 00000000 00:01 77                         /dev/zero (deleted)
00c00000-00c01000 r--p 00000000 00:00 0                          [vvar]
00d00000-00d01000 rw-s 00000000 00:06 9                          /dev/mem
";

#[test]
fn a_survey_has_each_part_with_pages_once() {
    let page = page_size();
    if page != 4096 {
        return println!("not run: the invented addresses are of 4 KiB pages");
    }
    let present = [
        0x400, 0x401, 0x4ff, 0x500, 0x5ff, 0x600, 0x601, 0x9ff, 0xb00, 0xc00, 0xd00,
    ];
    let (_proc, process) = invented(MAPS, &present);
    let survey = process.survey(Kinds::All).unwrap();
    // Neither the kernel's own page nor the device counts.
    assert_eq!(
        (survey.mappings, survey.resident_bytes),
        (3, 9 * page as u64)
    );
    assert_eq!(
        survey.parts,
        [
            0x40_0000..0x50_0000,
            0x50_0000..0x60_0000,
            0x60_0000..0x80_0000,
            0x80_0000..0xa0_0000,
            0xb0_0000..0xb0_1000,
        ]
    );
    let survey = process.survey(Kinds::Anonymous).unwrap();
    assert_eq!(
        (survey.mappings, survey.resident_bytes),
        (1, 5 * page as u64)
    );
}

#[test]
fn a_survey_of_ranges_has_their_pages_alone() {
    if page_size() != 4096 {
        return println!("not run: the invented addresses are of 4 KiB pages");
    }
    let (_proc, process) = invented(MAPS, &[0x500, 0x5ff, 0x600, 0x601, 0x9ff]);
    let ranges = [0x5f_f000..0x60_1000, 0x9f_0000..0xa0_0000];
    let survey = process.survey_of(&ranges).unwrap();
    assert_eq!((survey.mappings, survey.resident_bytes), (2, 3 * 4096));
    let parts = [
        0x5f_f000..0x60_0000,
        0x60_0000..0x60_1000,
        0x9f_0000..0xa0_0000,
    ];
    assert_eq!(survey.parts, parts);
}

#[test]
fn a_process_without_memory_is_told() {
    let (proc, process) = invented("", &[]);
    let error = process.survey(Kinds::All).unwrap_err();
    assert!(error.to_string().contains("kernel thread"), "{error}");
    fs::remove_dir_all(proc.path().join("77")).unwrap();
    assert!(process.has_ended());
    let error = Process::open_below(proc.path(), 77).unwrap_err();
    assert!(error.to_string().contains("it has ended"), "{error}");
    for pid in [0, u32::MAX] {
        let error = Process::open(pid).unwrap_err();
        assert!(
            error.to_string().contains("no process has that number"),
            "{error}"
        );
    }
}

/// A program that waits for its stdin to close.
fn waiting() -> Child {
    let mut child = Command::new("cat")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // Once it answers, it is loaded and gets no further pages.
    let mut answer = [0];
    let (stdin, stdout) = (child.stdin.as_mut(), child.stdout.as_mut());
    stdin.unwrap().write_all(b"x").unwrap();
    stdout.unwrap().read_exact(&mut answer).unwrap();
    child
}

fn options(to: u32) -> ProcessMove {
    ProcessMove {
        callers: 2,
        ..ProcessMove::new(to)
    }
}

static NEVER: AtomicBool = AtomicBool::new(false);

fn moved(
    process: &Process,
    survey: &Survey,
    options: &ProcessMove,
) -> Result<ProcessResult, MoveError> {
    process.move_pages(survey, options, &Progress::default(), &NEVER)
}

#[test]
fn every_page_of_a_running_process_is_counted() {
    let mut child = waiting();
    let process = Process::open(child.id()).unwrap();
    let survey = process.survey(Kinds::All).unwrap();
    assert!(survey.resident_bytes > 0);
    let census = process.census(&survey, 2, &NEVER).unwrap();
    let on_nodes: u64 = census.nodes.values().map(|count| count.bytes).sum();
    assert!(on_nodes > 0 && on_nodes <= survey.resident_bytes);
    let node = *census.nodes.keys().next().unwrap();
    let progress = Progress::default();
    let result = process
        .move_pages(&survey, &options(node), &progress, &NEVER)
        .unwrap();
    assert!(
        result.already_there.bytes > 0 && result.end.is_none(),
        "{result:?}"
    );
    let looked = progress.looked_bytes.load(Ordering::Relaxed);
    let counted = [result.moved, result.already_there, result.elsewhere];
    let counted: u64 = counted.iter().map(|count| count.bytes).sum();
    assert_eq!(counted + result.stayed_bytes(), looked);
    // From a node where nothing lies, nothing moves.
    let from_nowhere = ProcessMove {
        from: Some(node + 1000),
        ..options(node)
    };
    let result = moved(&process, &survey, &from_nowhere).unwrap();
    assert_eq!(result.moved.bytes, 0);
    drop(child.stdin.take());
    child.wait().unwrap();
}

#[test]
fn a_process_that_ends_is_told() {
    let mut child = waiting();
    let process = Process::open(child.id()).unwrap();
    let survey = process.survey(Kinds::All).unwrap();
    assert!(!process.has_ended());
    child.kill().unwrap();
    let is_told = || {
        assert!(process.has_ended());
        for error in [
            process.survey(Kinds::All).unwrap_err(),
            process
                .survey_of(&[0..1 << 30, 1 << 30..1 << 40])
                .unwrap_err(),
            process.census(&survey, 1, &NEVER).unwrap_err(),
            moved(&process, &survey, &options(0)).unwrap_err(),
        ] {
            assert!(matches!(error, MoveError::NoProcess { .. }), "{error}");
        }
    };
    // A zombie: its parent has not asked for its status.
    let (of, options) = (child.id(), libc::WEXITED | libc::WNOWAIT);
    let mut info = std::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
    // SAFETY: the information is written to its place.
    let waited = unsafe { libc::waitid(libc::P_PID, of, info.as_mut_ptr(), options) };
    assert_eq!(waited, 0);
    is_told();
    child.wait().unwrap();
    is_told();
}

#[test]
fn a_cancelled_move_says_what_it_left() {
    let mut child = waiting();
    let process = Process::open(child.id()).unwrap();
    let survey = process.survey(Kinds::All).unwrap();
    let cancel = AtomicBool::new(true);
    let result = process
        .move_pages(&survey, &options(0), &Progress::default(), &cancel)
        .unwrap();
    assert!(matches!(result.end, Some(End::Cancelled)), "{result:?}");
    assert_eq!(result.left_bytes, survey.resident_bytes);
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_node_that_is_not_there_is_told() {
    let process = Process::open(std::process::id()).unwrap();
    let survey = process.survey(Kinds::Anonymous).unwrap();
    let error = moved(&process, &survey, &options(1000)).unwrap_err();
    assert!(
        matches!(error, MoveError::BadNode { node: 1000, .. }),
        "{error}"
    );
}

#[test]
fn every_errno_of_a_page_has_its_words() {
    for (errno, name) in [
        (libc::EACCES, "EACCES"),
        (libc::EBUSY, "EBUSY"),
        (libc::ENOMEM, "ENOMEM"),
        (libc::ENOTTY, "errno"),
    ] {
        assert_eq!(Reason::of(errno).name(), name);
        assert_eq!(Reason::of(errno).errno(), errno);
    }
}

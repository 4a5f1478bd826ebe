// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lanes that break off.

use super::*;

/// Calls that a lane makes in a step, and a setup in which call `n` of one is made in the middle of a move.
fn steps() -> Vec<(Site, usize, Setup)> {
    let never = |site, errno| inject(site, 0, usize::MAX / 2, Fault::Errno(errno));
    let hole = SEGMENT / PAGE;
    let with_hole = |stale| Setup {
        segments: vec![Filled::Pages, Filled::Nothing, Filled::Sieve(2)],
        stale: vec![stale],
        ..Setup::default()
    };
    let refused = Setup {
        script: vec![never(Site::Remap, libc::EINVAL)],
        ..Setup::default()
    };
    vec![
        (Site::Unmap, 1, Setup::default()),
        (Site::Remap, 1, Setup::default()),
        (Site::Scan, 1, Setup::default()),
        (Site::Pending, 1, Setup::default()),
        // Of a place that the kernel refuses to move pages to.
        (Site::Fill, 0, refused),
        // Of a fault on a block that never was, and on a page of one that was.
        (Site::Release, 0, with_hole(hole)),
        (Site::Zero, 0, with_hole(2 * hole)),
        // Of a place that is told to be unmapped.
        (
            Site::Watches,
            0,
            Setup {
                script: vec![
                    inject(Site::Remap, 0, 1, Fault::Errno(libc::EAGAIN)),
                    inject(Site::Remap, 1, usize::MAX / 2, Fault::Errno(libc::EINVAL)),
                ],
                ..Setup::default()
            },
        ),
    ]
}

/// A lane that breaks off in the middle: its pages would be lost, and the other lanes wait for it.
#[test]
fn a_panic_in_any_step_ends_the_process_and_says_so() {
    const CHILD: &str = "MEMFERRY_TEST_PANIC";
    let steps = steps();
    if let Ok(case) = std::env::var(CHILD) {
        let case: usize = case.parse().unwrap();
        let (site, broken, setup) = &steps[case / 2];
        let setup = Setup {
            lanes: 1 + case % 2 * 2,
            ..setup.clone()
        };
        setup.run_with(&|memory| {
            let Range { start, end } = memory.range();
            let unmapped = tell(Site::Remap, 0, Message::Unmap { start, end });
            Box::new(move |kernel, at, n, range| {
                assert!(at != *site || n != *broken, "{site:?} breaks");
                if *site == Site::Watches {
                    unmapped(kernel, at, n, range);
                }
            })
        });
        return;
    }
    for (case, (site, ..)) in (0..).zip(steps.iter().flat_map(|step| [step, step])) {
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args([
                "pipeline::tests::panics::a_panic_in_any_step_ends_the_process_and_says_so",
                "--exact",
                "--nocapture",
            ])
            .env(CHILD, case.to_string())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        let signal = std::os::unix::process::ExitStatusExt::signal(&output.status);
        assert_eq!(signal, Some(libc::SIGABRT), "{site:?}, case {case}: {said}");
        assert!(
            said.contains("ending the process") && said.contains(&format!("{site:?} breaks")),
            "case {case}: {said}"
        );
    }
}

/// Pages whose places refuse them come back once they no longer do, however long that takes; meanwhile the move says what it waits for.
#[test]
fn pages_that_cannot_come_back_for_long_are_told_of_once_and_come_back() {
    const CHILD: &str = "MEMFERRY_TEST_REFUSED";
    if std::env::var_os(CHILD).is_some() {
        let setup = Setup {
            segments: vec![Filled::Pages; 2],
            lanes: 2,
            script: [Site::Remap, Site::Fill]
                .map(|site| inject(site, 0, 3000, Fault::Errno(libc::EAGAIN)))
                .to_vec(),
            ..Setup::default()
        };
        let ended = setup.run_pipeline();
        return ended.assert_all_moved(&setup);
    }
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args([
            "pipeline::tests::panics::pages_that_cannot_come_back_for_long_are_told_of_once_and_come_back",
            "--exact",
            "--nocapture",
        ])
        .env(CHILD, "")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let lines: Vec<_> = said
        .lines()
        .filter(|line| line.starts_with("memferry: "))
        .collect();
    let [line] = lines[..] else {
        panic!("{said}");
    };
    assert!(
        line.contains("error 11") && line.contains("free memory"),
        "{line}"
    );
}

/// The step in which the kernel copies is undone like any other copy.
#[test]
fn a_panic_where_the_kernel_copies_sends_the_batch_back() {
    for lanes in [1, 3] {
        let setup = Setup {
            lanes,
            ask_nodes: false,
            recycle: false,
            ..Setup::default()
        };
        let ended = setup.run_with(&|_| {
            Box::new(|_, at, n, _| {
                if at == Site::Fill && n == 1 {
                    // Without the hook's message.
                    std::panic::resume_unwind(Box::new("the call breaks"));
                }
            })
        });
        let (moved, stayed) = (ended.result.moved.bytes, ended.result.no_memory.bytes);
        assert!(moved > 0 && stayed > 0, "{moved} {stayed}");
    }
}

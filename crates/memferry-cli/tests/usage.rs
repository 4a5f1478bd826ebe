// SPDX-License-Identifier: MIT OR Apache-2.0
//! Help, wrong usage and exit statuses, as a shell sees them.

mod command;

use std::fs::{self, File};
use std::path::Path;
use std::process::Output;

use command::{done, fails, has, json, memferry, status, stderr, stdout, words};

/// A recorded trace of the repository.
const TRACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../traces/scan.trace");

fn synthetic(bench: &str) -> String {
    command::synthetic(bench).to_str().expect("path").to_owned()
}

/// Runs the command with stdout closed.
fn without_stdout(arguments: &[&str]) -> Output {
    std::process::Command::new("sh")
        .args([
            "-c",
            r#"exec "$0" "$@" >&-"#,
            env!("CARGO_BIN_EXE_memferry"),
        ])
        .args(arguments)
        .output()
        .expect("start")
}

#[test]
fn help_names_every_command_but_the_hidden_one() {
    let output = memferry("--help");
    assert_eq!(status(&output), 0);
    let text = stdout(&output);
    has(
        &text,
        "topology | doctor | bench | move | kernel | trace | report | Exit status | 4K, 64KiB",
    );
    assert!(!text.contains("generate"), "{text}");
}

#[test]
fn help_of_a_benchmark_names_its_options_and_defaults() {
    for (bench, parts) in [
        (
            "move",
            "--total | 1GiB, less on a small machine | 4K,16K,64K | --published | --json | [default: 1M for each lane, 2M at most]",
        ),
        (
            "count",
            "--folios | 1,8,16,32,64,256,512,2048 | [default: 2M]",
        ),
        ("stall", "--batch | --threads | --seconds | --rounds"),
        (
            "promote",
            "--scenario | none, numab2 | --hwhints-event | as root | sets them back | --workload | oracle | [default: 0.99]",
        ),
    ] {
        let text = done(&memferry(&format!("bench {bench} --help")));
        // Wrapping must not break what is looked for.
        has(
            &text.split_whitespace().collect::<Vec<_>>().join(" "),
            parts,
        );
    }
}

#[test]
fn wrong_usage_is_status_2_and_says_what_is_accepted() {
    #[rustfmt::skip]
    let wrong = [
        ("", "Usage"),
        ("bench", "Usage"),
        ("migrate", "unrecognized subcommand"),
        ("bench move --total 1GB", "64KiB"),
        ("bench move --folio 4K,5K", "power of two"),
        ("bench move --lanes 0", "at least 1"),
        ("doctor --json x.json", "write --json=x.json"),
        ("bench move --migrator dma", "per-folio, batch, mtcopy"),
        ("bench move --destination hot", "warm, unaligned, cold, default, both, all"),
        ("bench move --folio 4M", "from 4K to 2M"),
        ("bench move --folio 2K", "from 4K to 2M"),
        ("bench move --batch 64K", "--batch 2M or more"),
        ("bench move --batch 2052K", "2M at most"),
        ("bench count --batch 5000", "multiple of the 4K page"),
        ("bench count --folio 3M", "power of two"),
        ("bench stall --batch 64K,16M", "2M at most"),
        ("bench stall --backend kernel --folio 64K", "splits folios of 64K"),
        ("bench stall --backend kernel --migrator batch", "no migrator of the kernel"),
        ("bench stall --backend kernel --copy memcpy", "--backend user"),
        ("bench stall --folio 2M --batch 64K", "--batch 2M or more"),
        ("bench stall --seconds 1 --rounds 1", "cannot be used with"),
        ("bench move --migrator kernel", "without --backend kernel"),
        ("bench move --from 0 --to 0", "nothing moves"),
        ("bench stall --from 2 --to 2", "nothing moves"),
        ("bench stall --migrator none", "the kernel's"),
        ("bench move --backend kernel --migrator batch", "no migrator of the kernel"),
        ("bench compaction --migrator per-folio", "no migrator of the kernel"),
        ("bench count --backend kernel --destination warm", "only --destination cold"),
        ("bench move --backend kernel --batch 2M", "--max-batch-bytes"),
        ("bench move --backend kernel --from 1 --to 1", "nothing moves"),
        ("bench move --backend kernel --allow-faulty-kernel", "--backend user"),
        ("bench count --backend kernel --allow-faulty-kernel", "--backend user"),
        ("bench stall --backend kernel --allow-faulty-kernel", "--backend user"),
        ("bench reproduce garg-v3-1b --allow-faulty-kernel", "--backend user"),
        ("bench move --migrator batch --learn 60", "--migrator auto"),
        ("bench promote --mode none --source hwhints", "--mode pghot"),
        ("bench promote --scenario 1 --regions 4", "--scenario 2"),
        ("bench promote --scenario 4", "possible values: 1, 2, 3"),
        ("bench promote --mode damon", "none, numab2, pghot, daemon"),
        ("bench promote --source rumours", "hintfaults, pgtscan, hwhints"),
        ("bench promote --threads 0", "1..=4096"),
        ("bench promote --seconds 3 --accesses 9", "cannot be used with"),
        ("bench promote --like pghot-v5-1", "pghot-v6-1, pghot-v6-2"),
        ("bench promote --scale 1/128", "--like <NAME>"),
        ("bench promote --mode oracle", "--workload zipf"),
        ("bench promote --skew 2", "--workload <LIST>"),
        ("bench promote --workload zipf --skew 9", "between 0 and 4"),
        ("bench promote --workload zipf --scenario 1", "cannot be used with"),
        ("bench promote --like pghot-v6-1 --scale 2", "at most 1"),
        ("bench reproduce garg-v9", "--list"),
        ("report", "<FILE>"),
        ("report x.json --published", "--text"),
        ("kernel", "Usage"),
        ("kernel set", "--migrator"),
        ("kernel set --persist --forget", "cannot be used with"),
        ("kernel set --reason demotion", "REASON=CHOICE"),
        ("kernel set --reasons all", "unexpected"),
        ("kernel set --mtcopy-lanes 0", "1..=64"),
        ("kernel set --mtcopy-lanes 65", "1..=64"),
        ("kernel set --pghot-sources rumours", "hintfaults,hwhints,pgtscan"),
        ("kernel set --pghot-target 1023", "0..=1022"),
        ("kernel set --pghot-rate-limit 0", "1..=4194304"),
        ("kernel set --pghot-rate-limit 4194305", "1..=4194304"),
        ("kernel heat --most 0", "at least 1"),
        ("kernel set --max-batch-bytes 4MB", "64KiB"),
        ("kernel set --min-batch-bytes 0", "unexpected"),
        ("move", "--pid"),
        ("move --pid 1", "--to"),
        ("move --pid 1 --unit x --to 1", "cannot be used with"),
        ("move --cgroup / --unit x --to 1", "cannot be used with"),
        ("move --pid 0 --to 1", "1.."),
        ("move --pid x --to 1", "invalid"),
        ("move --pid 1 --to 1 --from 1", "moves nothing"),
        ("move --pid 1 --to -1", "unexpected"),
        ("move --pid 1 --to 1 --callers 0", "1..=1024"),
        ("move --pid 1 --to 1 --callers 100000", "1..=1024"),
        ("move --pid 1 --to 1 --rate 0", "larger than 0"),
        ("move --pid 1 --to 1 --rate fast", "not a rate"),
        ("move --pid 1 --to 1 --all --anonymous", "cannot be used with"),
        ("replay", "TRACE"),
        ("replay x --policy best", "numab2, pghot-default"),
        ("replay x --top 0%", "0.1% to 100%"),
        ("replay x --top 0", "larger than 0"),
        ("trace", "Usage"),
        ("trace record", "<COMMAND>"),
        ("trace record --cache 3M x", "power of two from 4K to 1G"),
        ("trace record --page 1K x", "power of two from 4K to 1G"),
        ("trace record --window 3G x", "2147483648"),
        ("trace record --max-accesses 0 x", "1 or more"),
        ("trace import x", "--format"),
        ("trace import --format gem5 x", "lackey, perf, damon"),
        ("trace import --format perf --window 1 x", "--format lackey"),
        ("trace import --format lackey --only 1 x", "perf and damon"),
        ("trace import --format damon --sampling 2 x", "--format perf"),
        ("trace info", "<FILE>"),
    ];
    for (line, part) in wrong {
        let output = memferry(line);
        assert_eq!(status(&output), 2, "{line}: {}", stderr(&output));
        has(&stderr(&output), part);
        assert!(stdout(&output).is_empty(), "{line}");
        let usage_of_all = stderr(&output).contains("Usage: memferry <COMMAND>");
        assert!(!usage_of_all || !line.contains(' '), "{line}");
    }
}

/// As scripts and units of before it was one call it.
#[test]
fn the_daemon_is_another_program() {
    for line in ["daemon", "daemon check", "daemon --config x"] {
        let output = memferry(line);
        assert_eq!(status(&output), 2, "{line}");
        has(&stderr(&output), "`memferryd` | memferryd check");
    }
}

/// What a published scenario says is not said twice.
#[test]
fn options_that_contradict_a_published_scenario_are_refused() {
    for option in words("--scenario=1 --size=1G --regions=4 --threads=2 --demotion=on --quick") {
        let output = memferry(&format!("bench promote --like pghot-v6-2 {option}"));
        assert_eq!(status(&output), 2, "{option}");
        has(&stderr(&output), "--like | cannot be used with");
    }
}

#[test]
fn a_benchmark_that_cannot_save_its_result_fails_before_it_measures() {
    for path in ["/no/such/folder/x.json", "no-such-folder/"] {
        let output = memferry(&format!("bench move --json={path}"));
        fails(&output, path);
    }
}

#[test]
fn text_is_as_wide_as_columns_says() {
    let widest = |columns: &str| {
        let output = command::command()
            .args(["report", "--text", &synthetic("move")])
            .env("COLUMNS", columns)
            .output()
            .expect("start");
        let lines = stdout(&output);
        let width = lines.lines().map(|line| line.chars().count());
        width.max().expect("lines")
    };
    assert!(widest("60") <= 60);
    assert!((61..=100).contains(&widest("none")));
    assert!(widest("200") > 100);
}

#[test]
fn a_closed_stdout_is_told() {
    let page = synthetic("move");
    for arguments in [
        &["--help"][..],
        &["--version"],
        &["topology"],
        &["bench", "move"],
        &["report", &page, "-o", "-"],
    ] {
        fails(&without_stdout(arguments), "stdout is closed");
    }
}

#[test]
fn what_needs_no_stdout_works_without_it() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("page.html");
    let page = path.to_str().expect("path");
    done(&without_stdout(&["report", &synthetic("move"), "-o", page]));
    assert!(path.exists());
    assert_eq!(status(&without_stdout(&["migrate"])), 2);
}

#[test]
fn json_goes_to_stdout_or_beside_the_text_into_a_file() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("result.json");
    for line in [
        "topology".to_owned(),
        "kernel status".to_owned(),
        format!("trace info {TRACE}"),
        format!("replay {TRACE} --policy lru --top 50%"),
    ] {
        let alone = json(&memferry(&format!("{line} --json")));
        let text = done(&memferry(&format!("{line} --json={}", path.display())));
        assert!(!text.contains("\"schema\""), "{line}");
        assert!(text.lines().count() > 1, "{line}");
        let file = File::open(&path).expect("file");
        let file: serde_json::Value = serde_json::from_reader(file).expect("JSON");
        assert_eq!(file["schema"], alone["schema"], "{line}");
        fs::remove_file(&path).expect("remove");
    }
}

/// Whatever it is called, and if only stdin knows its name.
#[test]
fn no_command_writes_where_it_reads() {
    let folder = tempfile::tempdir().expect("folder");
    let file = folder.path().join("a.trace");
    let run = |line: &str| {
        fs::copy(TRACE, &file).expect("copy");
        let output = command::command()
            .args(words(line))
            .current_dir(folder.path())
            .stdin(File::open(&file).expect("open"))
            .output()
            .expect("start");
        assert_eq!(status(&output), 2, "{line}: {}", stderr(&output));
        has(&stderr(&output), "name another file");
        let now = fs::read(&file).expect("read");
        assert!(now == fs::read(TRACE).expect("read"), "{line}");
    };
    for line in [
        "trace reduce a.trace --window 6553600 -o a.trace",
        "trace reduce - --window 6553600 -o a.trace",
        "trace import --format lackey - -o a.trace",
        "trace info a.trace --json=a.trace",
        "report a.trace -o a.trace",
        "replay b a.trace --json=a.trace",
        "replay a.trace b --html a.trace",
        "replay - --json=a.trace",
        "replay - --html ./a.trace",
        "replay a.trace --json=b --html b",
        "replay a.trace --json=b --html ./b",
    ] {
        run(line);
    }
    assert!(!Path::new(&folder.path().join("b")).exists());
}

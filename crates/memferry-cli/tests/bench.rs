// SPDX-License-Identifier: MIT OR Apache-2.0
//! The benchmarks end to end: they really move memory, little of it. No test here looks at how fast.

mod command;

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::process::Stdio;

use command::child::{Waiting, terminal};
use command::{check_head, done, fails, has, json, memferry, status, stderr, stdout, words};
use memferry_linux::affinity;
use serde_json::Value;

/// Runs `memferry bench ARGUMENTS --json=FILE`; gives the tables and the file.
fn bench(arguments: &str, folder: &Path) -> (String, Value) {
    let path = folder.join("result.json");
    let output = command::command()
        .arg("bench")
        .args(arguments.split(' '))
        .arg(format!("--json={}", path.display()))
        .output()
        .expect("start");
    done(&output);
    let json = serde_json::from_str(&fs::read_to_string(&path).expect("file")).expect("JSON");
    check_head(&json, &format!("bench {arguments}"));
    // What the report reads is what the schema allows.
    let mut words = arguments.split(' ');
    let anatomy = words.find(|word| *word == "--anatomy").unwrap_or_default();
    let (path, page) = (path.display(), folder.join("page.html"));
    let shown = memferry(&format!("report --text {path} {anatomy}"));
    assert_eq!(done(&shown), stdout(&output));
    done(&memferry(&format!("report {path} -o {}", page.display())));
    (stdout(&output), json)
}

fn rows(file: &Value) -> &[Value] {
    file["rows"].as_array().expect("rows")
}

fn number(value: &Value) -> u64 {
    value
        .as_u64()
        .unwrap_or_else(|| panic!("no number: {value}"))
}

/// The ceiling that a row's share refers to.
fn ceiling<'a>(file: &'a Value, row: &Value) -> &'a Value {
    let is_huge = number(&row["folio_bytes"]) >= 2 << 20;
    let page = if is_huge { 2 << 20 } else { 4096 };
    let mut ceilings = file["ceiling"].as_array().expect("ceiling").iter();
    ceilings
        .find(|of| of["lanes"] == row["lanes"] && number(&of["page_bytes"]) == page)
        .unwrap_or_else(|| panic!("no ceiling for {row}"))
}

#[test]
fn move_gives_a_verified_row_for_every_case() {
    let folder = tempfile::tempdir().expect("folder");
    let (text, file) = bench(
        "move --quick --total 4M --runs 1 --folio 4K,64K,2M --lanes 1,2",
        folder.path(),
    );
    assert_eq!(
        rows(&file).len(),
        2 * 3 * 5,
        "destinations, folios, migrators with lanes"
    );
    for row in rows(&file) {
        assert_eq!(number(&row["bytes"]), 4 << 20);
        assert_eq!(number(&row["runs"]), 1);
        assert_eq!(row["verified_bytes"], row["bytes"], "{row}");
        let share = row["gbps"].as_f64().expect("gbps")
            / ceiling(&file, row)["gbps"].as_f64().expect("gbps");
        assert!(
            (share - row["of_ceiling"].as_f64().expect("share")).abs() < 1e-9,
            "{row}"
        );
    }
    assert_eq!(file["ceiling"].as_array().expect("ceiling").len(), 4);
    has(
        &text,
        "destination warm | destination cold | per-folio, 1 lane | mtcopy, 2 lanes | --quick run",
    );
    assert_eq!(
        text.matches("ceiling, 2 lanes").count(),
        2,
        "once for each table: {text}"
    );
}

#[test]
fn the_anatomy_tells_where_the_time_of_a_page_goes() {
    let folder = tempfile::tempdir().expect("folder");
    let (text, file) = bench(
        "move --total 4M --runs 2 --folio 4K,2M --lanes 2 --migrator mtcopy --anatomy",
        folder.path(),
    );
    has(
        &text,
        "anatomy, folios of 4 KiB, destination warm | anatomy, folios of 2 MiB, destination cold | GB/s without waiting",
    );
    for row in rows(&file) {
        let runs = row["runs_gbps"].as_array().expect("runs").iter();
        let runs: Vec<f64> = runs.filter_map(Value::as_f64).collect();
        let mean = row["gbps"].as_f64().expect("gbps");
        assert!((runs[0] + runs[1] - 2.0 * mean).abs() < 1e-9, "{row}");
        let steps = row["steps"].as_object().expect("steps");
        assert_eq!(row["lane_steps"].as_array().map(Vec::len), Some(2), "{row}");
        let ns = |name: &str| number(&steps[name]);
        assert!(ns("batches") > 0 && ns("unmap_ns") > 0, "{row}");
        assert!(ns("copy_ns") + ns("fill_ns") > 0, "{row}");
        let each = steps.iter().filter(|(name, _)| name.ends_with("_ns"));
        let all: u64 = each.map(|(_, value)| number(value)).sum();
        // Two lanes have no more than twice the time of the slowest run.
        let (gbps, sd) = (&row["gbps"], &row["gbps_sd"]);
        let least = gbps.as_f64().expect("gbps") - 2.0 * sd.as_f64().expect("gbps_sd");
        let longest = (4 << 20) as f64 / least.max(1e-9);
        assert!(all as f64 <= 2.0 * longest, "{row}");
    }
}

#[test]
fn a_full_run_has_the_default_options_an_unaligned_range_and_a_baseline_beside() {
    let folder = tempfile::tempdir().expect("folder");
    let (text, file) = bench(
        "move --total 4M --runs 1 --folio 4K,2M --lanes 1",
        folder.path(),
    );
    let count = |destination: &str, migrator: &str| {
        let of = |row: &&Value| row["destination"] == destination && row["migrator"] == migrator;
        rows(&file).iter().filter(of).count()
    };
    assert_eq!(count("default", "mtcopy"), 2, "{text}");
    assert_eq!(count("warm, unaligned range", "mtcopy"), 1, "{text}");
    let baselines = match number(&file["host"]["nodes"]) {
        1 => [count("warm", "three-pass"), count("cold", "three-pass")],
        _ => [count("cold", "move_pages"), 2],
    };
    assert_eq!(baselines, [2, 2], "{text}");
    for row in rows(&file) {
        let skipped = u64::from(row["destination"] == "warm, unaligned range") * 4096;
        assert_eq!(number(&row["bytes"]), (4 << 20) - skipped, "{row}");
        assert_eq!(number(&row["verified_bytes"]), 4 << 20, "{row}");
    }
}

#[test]
fn a_lane_count_that_was_not_asked_for_has_its_ceiling() {
    let folder = tempfile::tempdir().expect("folder");
    let (_, file) = bench(
        "move --total 2M --runs 2 --folio 4K --lanes 2 --destination warm --migrator batch,mtcopy --batch 64K",
        folder.path(),
    );
    assert_eq!(rows(&file).len(), 2);
    for row in rows(&file) {
        ceiling(&file, row);
        assert_eq!(number(&row["verified_bytes"]), 2 * number(&row["bytes"]));
    }
}

#[test]
fn count_gives_a_row_for_every_number_of_folios() {
    let folder = tempfile::tempdir().expect("folder");
    for (folio, bytes, page) in [("2M", 2 << 20, 2 << 20), ("64K", 65536, 4096)] {
        let (text, file) = bench(
            &format!("count --quick --runs 1 --folios 1,2 --folio {folio} --destination warm"),
            folder.path(),
        );
        let cpus = number(&file["host"]["cpus"]);
        let columns = if cpus > 1 { 5 } else { 4 };
        assert_eq!(rows(&file).len(), 2 * columns);
        for row in rows(&file) {
            assert_eq!(
                number(&row["bytes"]),
                number(&row["folios"]) * bytes,
                "{row}"
            );
            assert_eq!(row["verified_bytes"], row["bytes"], "{row}");
        }
        for ceiling in file["ceiling"].as_array().expect("ceiling") {
            assert_eq!(
                number(&ceiling["page_bytes"]),
                page,
                "one kind of pages, as the folios"
            );
        }
        has(&text, "destination warm");
        assert_eq!(
            text.contains("made of base pages"),
            folio == "64K",
            "{text}"
        );
    }
}

/// Its range was empty, and the move refused.
#[test]
fn an_unaligned_range_of_one_page_is_left_out() {
    let folder = tempfile::tempdir().expect("folder");
    let line = "count --quick --runs 1 --folio 4K --destination unaligned --lanes 1 --folios";
    let (text, file) = bench(&format!("{line} 1,2"), folder.path());
    let counts: Vec<u64> = rows(&file)
        .iter()
        .map(|row| number(&row["folios"]))
        .collect();
    assert_eq!(counts, [2, 2], "mtcopy and auto");
    has(&text, "of one page there is none");
    fails(
        &memferry(&format!("bench {line} 1")),
        "nothing was measured | of one page there is none",
    );
}

#[test]
fn stall_loses_no_write_and_counts_every_access() {
    let folder = tempfile::tempdir().expect("folder");
    let (text, file) = bench(
        "stall --rounds 3 --total 4M --migrator per-folio,mtcopy --folio 4K,2M,4K --lanes 1,1",
        folder.path(),
    );
    assert!(!text.contains("made of base pages"), "{text}");
    // per-folio has one batch, its folio; mtcopy has those from 64 KiB to 2 MiB that hold a folio.
    assert_eq!(rows(&file).len(), 1 + 6 + 1 + 1, "{file}");
    for row in rows(&file) {
        assert!(number(&row["accesses"]) >= number(&row["stalled"]), "{row}");
        assert_eq!(number(&row["verified_bytes"]), 4 << 20, "{row}");
        for rate in ["accesses_per_s", "alone_accesses_per_s"] {
            assert!(row[rate].as_f64().is_some_and(|rate| rate > 0.0), "{row}");
        }
        if row["migrator"] == "per-folio" {
            assert_eq!(row["batch_bytes"], row["folio_bytes"]);
        }
        for quantiles in [&row["stall_ns"], &row["access_ns"]] {
            let values = ["p50", "p99", "p999", "max"].map(|name| number(&quantiles[name]));
            assert!(values.is_sorted(), "{row}");
        }
    }
    has(&text, "p99.9");
}

#[test]
fn cache_has_a_verified_row_for_each_copy_routine() {
    if affinity::allowed().expect("affinity").len() < 2 {
        let refused = memferry("bench cache --quick --total 4M");
        return fails(&refused, "do not fit a cache");
    }
    let refused = memferry("bench cache --quick --total 4M --working-set 65536T");
    fails(
        &refused,
        "working set of 65536T has no room | --working-set",
    );
    let folder = tempfile::tempdir().expect("folder");
    let (text, file) = bench("cache --total 4M --runs 2 --working-set 1M", folder.path());
    let routines = memferry::copy::available();
    assert_eq!(rows(&file).len(), routines.len(), "{file}");
    for (row, routine) in rows(&file).iter().zip(routines) {
        assert_eq!(row["copy"], routine.name());
        assert_eq!(row["bypasses_cache"], routine.bypasses_cache());
        assert_eq!(number(&row["working_set_bytes"]), 1 << 20);
        assert_eq!(number(&row["verified_bytes"]), 2 * (4 << 20), "{row}");
        assert_eq!(row["runs_lost"].as_array().map(Vec::len), Some(2), "{row}");
        let rate = row["alone_reads_per_s"].as_f64();
        assert!(rate > Some(0.0), "{row}");
        // It cannot lose more than all; a busy host lets it read less alone than beside a move.
        assert!(
            row["lost"].as_f64().is_some_and(|lost| lost <= 1.0),
            "{row}"
        );
        has(&text, routine.name());
    }
}

#[test]
fn more_threads_than_a_page_has_cache_lines_lose_no_write() {
    let folder = tempfile::tempdir().expect("folder");
    for threads in [66, 256] {
        let (_, file) = bench(
            &format!("stall --quick --rounds 3 --total 2M --batch 64K --threads {threads}"),
            folder.path(),
        );
        let row = &rows(&file)[0];
        assert_eq!(number(&row["threads"]), threads);
        assert_eq!(number(&row["verified_bytes"]), 2 << 20);
    }
}

#[test]
fn a_process_with_one_cpu_of_several_measures_with_that_one() {
    let usable = affinity::allowed().expect("affinity");
    // That of this thread alone, and of what it starts.
    affinity::pin(&usable[..1]).expect("affinity");
    let folder = tempfile::tempdir().expect("folder");
    for arguments in [
        "move --quick --total 2M --runs 1 --folio 4K",
        "count --quick --runs 1 --folios 1 --folio 64K",
        "stall --quick --rounds 1 --total 2M --batch 64K --folio 64K",
    ] {
        let (text, file) = bench(arguments, folder.path());
        let other_folios = arguments.contains("--folio 64K");
        assert_eq!(text.contains("made of base pages"), other_folios, "{text}");
        for row in rows(&file) {
            assert_eq!(number(&row["lanes"]), 1, "{row}");
        }
    }
}

#[test]
fn a_total_that_is_not_what_was_asked_for_is_told_at_once() {
    let line =
        "bench move --total 3M --runs 1 --folio 4K --migrator batch --destination warm --json";
    let output = memferry(line);
    assert_eq!(status(&output), 0, "{}", stderr(&output));
    has(&stderr(&output), "warning: The total is 4M instead of 3M");
    // Stdout is JSON alone, and nothing of a progress bar is anywhere in a pipe.
    let file = json(&output);
    assert_eq!(number(&rows(&file)[0]["bytes"]), 4 << 20);
    has(&file["notes"].to_string(), "4M instead of 3M");
    assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
}

#[test]
fn a_lane_too_many_is_refused_before_memory_is_filled() {
    let cpus = affinity::allowed().expect("CPUs").len();
    for bench in ["move", "count", "stall"] {
        let output = memferry(&format!("bench {bench} --migrator mtcopy --lanes 1,5000"));
        let told =
            format!("mtcopy cannot have 5000 lanes here | {cpus} CPUs | --lanes up to {cpus}");
        fails(&output, &told);
        assert_eq!(stdout(&output), "", "nothing was measured");
    }
}

/// Those that had started waited for the others for ever.
#[test]
fn threads_that_cannot_be_started_are_told() {
    let spec = r#"{"lower":0,"top":[0],"cpus":[0],"regions":1,"region_bytes":2097152,"threads":4096,"accesses":1,
                   "most_ms":null,"fill":false,"even":false,"counter":"kernel","sample_ms":1}"#;
    let stall = command::words("bench stall --threads 1024 --total 8M --seconds 1 --batch 64K");
    for (line, threads) in [(&stall[..], 1024), (&["promote-run", spec], 4096)] {
        let lines = File::open(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")).expect("lines");
        let output = std::process::Command::new("sh")
            .args(["-c", r#"ulimit -v 1500000 && exec "$0" "$@""#])
            .arg(command::command().get_program())
            .args(line)
            .stdin(lines)
            .output()
            .expect("start");
        let said = stdout(&output) + &stderr(&output);
        has(
            &said,
            &format!("cannot start {threads} threads | ulimit -v"),
        );
    }
}

#[test]
fn an_unknown_copy_routine_is_told_before_anything_moves() {
    for bench in ["move", "count", "stall"] {
        let named = memferry(&format!("bench {bench} --copy bad"));
        let set = command::command()
            .args(["bench", bench])
            .env("MEMFERRY_COPY", "bad")
            .output()
            .expect("start");
        for output in [named, set] {
            fails(&output, "unknown copy routine | bad | topology --copy");
            assert_eq!(stdout(&output), "");
        }
    }
}

/// Starts the command at a terminal; gives the side that a person sees. Its stdout may be elsewhere.
fn at_terminal(line: &str, stdout: Option<Stdio>) -> (Waiting, File) {
    let (person, program) = terminal();
    let stdout = stdout.unwrap_or_else(|| program.try_clone().expect("clone").into());
    let mut command = command::command();
    command
        .args(words(line))
        .env("TERM", "xterm-256color")
        .stdout(stdout)
        .stderr(program);
    // The command, which holds the program's side, goes with this call: the last one is the child's.
    (Waiting(command.spawn().expect("start")), person)
}

const ENDLESS: &str =
    "bench move --runs 100000000 --total 4M --folio 4K --migrator batch --lanes 1";

/// What ended early says so by its status also if nobody reads the rest.
#[test]
fn an_interrupt_counts_without_a_reader() {
    for json in ["", " --json", " --json=/dev/full"] {
        let line = format!("{ENDLESS}{json}");
        let (mut child, mut person) = at_terminal(&line, Some(Stdio::piped()));
        drop(child.0.stdout.take());
        let told = interrupted_when_measured(&child, &mut person);
        assert_eq!(
            child.0.wait().expect("end").code(),
            Some(130),
            "{json}: {told}"
        );
        assert!(told.contains("stopped half-way"), "{json}: {told}");
        let full = "/dev/full";
        assert_eq!(told.contains(full), json.contains(full), "{told}");
    }
}

#[test]
fn a_file_that_is_full_fails_and_the_tables_are_printed_all_the_same() {
    let line = "bench count --quick --runs 1 --folios 1 --destination warm --json=/dev/full";
    let output = memferry(line);
    fails(&output, "cannot write /dev/full");
    has(&stdout(&output), "per-folio");
}

/// Interrupts an endless benchmark once its bar says that a case was measured; gives what the terminal shows.
fn interrupted_when_measured(child: &Waiting, person: &mut File) -> String {
    interrupted_when(child, person, |text| {
        // Some digit but 0 of so many done: a case was measured.
        text.match_indices("/200000000").any(|(at, _)| {
            text[..at].ends_with(|c: char| c.is_ascii_digit()) && !text[..at].ends_with(" 0")
        })
    })
}

/// Interrupts a benchmark once the terminal shows what is waited for; gives what it shows in the end.
fn interrupted_when(child: &Waiting, person: &mut File, shows: impl Fn(&str) -> bool) -> String {
    let mut seen = Vec::new();
    let mut interrupted = false;
    let mut part = [0; 4096];
    // At the end of the program's side Linux gives EIO.
    while let Ok(count @ 1..) = person.read(&mut part) {
        seen.extend_from_slice(&part[..count]);
        if !interrupted && shows(&String::from_utf8_lossy(&seen)) {
            interrupted = true;
            child.interrupt();
        }
    }
    String::from_utf8_lossy(&seen).into_owned()
}

/// It moved for the whole time that --learn gives it.
#[test]
fn an_interrupt_ends_what_auto_learns() {
    let line = "bench move --learn 3600 --migrator auto --total 4M --folio 4K";
    let (mut child, mut person) = at_terminal(line, None);
    let told = interrupted_when(&child, &mut person, |text| text.contains("auto x"));
    assert_eq!(child.0.wait().expect("end").code(), Some(130), "{told}");
    has(&told, "stopped before anything was measured");
}

#[test]
fn a_terminal_shows_progress_and_keeps_what_was_measured_before_an_interrupt() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("half.json");
    let line = format!("{ENDLESS} --json={}", path.display());
    let (mut child, mut person) = at_terminal(&line, None);
    let text = interrupted_when_measured(&child, &mut person);
    assert_eq!(child.0.wait().expect("end").code(), Some(130), "{text}");
    has(&text, "bench move | batch x1, 1024 of 4K");
    let (_, end) = text
        .rsplit_once("\u{1b}[2K")
        .expect("the bar is wiped away");
    has(
        end,
        "bench move, destination warm | batch, 1 lane | Stopped by the user | stopped half-way | NOT COMPLETE",
    );
    assert!(
        end.lines()
            .all(|line| line.trim_end().chars().count() <= 80),
        "{end}"
    );
    let half: Value =
        serde_json::from_str(&fs::read_to_string(&path).expect("file")).expect("JSON");
    assert_eq!(half["complete"], false);
}

/// The process of a run, as `bench promote` uses it, on one node: it places, accesses and compares memory, and says so.
#[test]
fn the_process_of_a_promotion_run_accounts_for_its_accesses() {
    let spec = r#"{"lower":0,"top":[0],"cpus":[0],"regions":2,"region_bytes":2097152,"threads":2,"accesses":5000,
                   "most_ms":null,"fill":false,"even":false,"counter":"kernel","sample_ms":1}"#;
    let mut child = command::command()
        .args(["promote-run", spec])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("start");
    std::io::Write::write_all(&mut child.stdin.take().expect("stdin"), b"go\ngo\n").expect("write");
    let said = done(&child.wait_with_output().expect("end"));
    let lines: Vec<Value> = (said.lines())
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(
        lines[0]["ready"],
        serde_json::json!({"filled": 0, "locked": 0})
    );
    let done = &lines[1]["done"];
    assert_eq!(number(&done["accesses"]), 2 * 2 * 5000);
    assert_eq!(
        done["top_accesses"].as_f64(),
        Some(20_000.0),
        "all memory is the top tier here"
    );
    let regions = done["regions"].as_array().expect("regions");
    assert_eq!(regions.len(), 2);
    for region in regions {
        assert_eq!(
            (&region["arrived_pages"], &region["share"]),
            (&0.into(), &1.0.into()),
            "{region}"
        );
    }
    assert_eq!(lines[2]["checked"], 4 << 20);
}

/// The same of a workload: its operations go on for the time that was asked for, and every byte is compared.
#[test]
fn the_process_of_a_workload_accounts_for_its_operations() {
    for (workload, memory) in [("hotset", "shared"), ("chase", "base"), ("served", "file")] {
        let rate = if workload == "served" { "1000" } else { "null" };
        let spec = format!(
            r#"{{"workload":"{workload}","skew":0.99,"rate":{rate},"memory":"{memory}","bytes":16777216,"room":null,"placing":"random",
                "misses":null,"seed":1,"seconds":0.2,"lower":0,"top":[0],"cpus":[0],"threads":2,"counter":"kernel","sample_ms":20}}"#
        );
        let mut child = command::command()
            .args(["promote-run", &spec])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("start");
        std::io::Write::write_all(&mut child.stdin.take().expect("stdin"), b"go\ngo\n")
            .expect("write");
        let said = done(&child.wait_with_output().expect("end"));
        let lines: Vec<Value> = (said.lines())
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect();
        let seen = &lines[1]["worked"];
        let phases = seen["phases"].as_array().expect("phases");
        assert_eq!(phases.len(), if workload == "hotset" { 2 } else { 1 });
        for phase in phases {
            let last = phase.as_array().expect("samples").last().expect("a sample");
            let (operations, ns) = (number(&last["operations"]), number(&last["busy_ns"]));
            assert!(operations > 100 && ns > 0, "{workload}: {last}");
            if workload == "served" {
                // 200 of each thread, fewer if this machine stands still.
                assert!(
                    operations <= 400 && number(&seen["latency"][0]["max"]) > 0,
                    "{last}"
                );
            }
        }
        assert_eq!(seen["top_share"], 1.0, "all memory is the top tier here");
        assert_eq!(seen["pages_in_top"], 4096, "{workload}");
        assert_eq!(lines[2]["checked"], 16 << 20, "{workload}");
    }
}

#[test]
fn the_process_of_a_promotion_run_ends_with_the_command() {
    let spec = r#"{"lower":0,"top":[0],"cpus":[0],"regions":1,"region_bytes":2097152,"threads":1,"accesses":1,
                   "most_ms":null,"fill":false,"even":false,"counter":"kernel","sample_ms":1}"#;
    let output = command::command()
        .args(["promote-run", spec])
        .stdin(Stdio::null())
        .output()
        .expect("start");
    // Nobody lets it go on, so it makes no access.
    assert_eq!(stdout(&output).lines().count(), 1, "{}", stdout(&output));
    fails(&memferry("promote-run no-JSON"), "memferry bench promote");
}

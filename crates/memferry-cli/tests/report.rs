// SPDX-License-Identifier: MIT OR Apache-2.0
//! `memferry report` from files to a page.

mod command;

use std::fs;
use std::path::Path;

use command::{done, fails, has, memferry, stderr, synthetic};

fn report(files: &[&Path], page: &Path) -> std::process::Output {
    let mut command = command::command();
    command.arg("report").args(files).arg("-o").arg(page);
    command.output().expect("start")
}

/// The page of all synthetic files.
fn page() -> String {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("report.html");
    let files = ["move", "count", "stall", "promote", "gain"].map(synthetic);
    let files: Vec<&Path> = files.iter().map(AsRef::as_ref).collect();
    let output = report(&files, &path);
    assert_eq!(done(&output), "");
    let page = fs::read_to_string(&path).expect("page");
    let charts = page.matches("role=\"img\"").count();
    let told = format!("memferry: wrote {}, {charts} charts\n", path.display());
    assert_eq!(stderr(&output), told);
    page
}

#[test]
fn the_page_needs_no_network_and_no_script() {
    let page = page();
    for foreign in [
        "<script", "http://", "https://", "<link", "<img", "url(", "@import", "src=",
    ] {
        assert!(!page.contains(foreign), "{foreign}");
    }
    assert!(page.starts_with("<!DOCTYPE html>"));
    has(
        &page,
        "name=\"viewport\" | prefers-color-scheme: dark | @media print",
    );
}

#[test]
fn the_page_says_what_was_measured() {
    let page = page();
    has(&page, "<h1>4 KiB pages move at 20.2 GB&#x2f;s, 82% of what");
    has(
        &page,
        "Throughput by folio size, destination warm | Throughput by lanes, destination warm",
    );
    has(
        &page,
        "Throughput by number of folios of 2 MiB, destination cold | 2048 folios did not fit in memory",
    );
    has(
        &page,
        "Time that an access waits | p99.9 | Over its own one-by-one way, by folio size",
    );
    has(
        &page,
        "RFC V2 2025-03-19 | RFC V3 2025-09-23 | RFC v4 2026-03-09 | Zi Yan RFC 2025-01-03",
    );
    has(
        &page,
        "GB/s do not compare | Synthetic CPU (invented for tests)",
    );
    has(
        &page,
        "Hot set in the top tier over time, scenario 1 | Pages promoted over time, scenario 2",
    );
    has(
        &page,
        "Pages promoted per second, pghot-v6-1 | pghot pgtscan, default",
    );
    has(
        &page,
        "What programs gain | Time of an operation, zipf | halves, hotset",
    );
}

#[test]
fn every_picture_has_a_title_a_description_and_ids_of_its_own() {
    let page = page();
    let pictures = page.matches("role=\"img\"").count();
    assert!(pictures >= 15, "{pictures}");
    assert_eq!(page.matches("<desc id=").count(), pictures);
    let mut ids: Vec<&str> = page
        .split(" id=\"")
        .skip(1)
        .filter_map(|rest| rest.split('"').next())
        .collect();
    let all = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!((ids.len(), all), (2 * pictures, 2 * pictures));
    assert!(!page.contains("NaN") && !page.contains("inf,") && !page.contains(">inf"));
}

#[test]
fn every_row_of_the_files_is_in_the_page() {
    let page = page();
    for bench in ["move", "count", "stall"] {
        let text = fs::read_to_string(synthetic(bench)).expect("file");
        let file: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        for row in file["rows"].as_array().expect("rows") {
            let gbps = format!("<td>{:.3}</td>", row["gbps"].as_f64().expect("gbps"));
            assert!(page.contains(&gbps), "{bench}: {gbps}");
        }
    }
}

#[test]
fn nothing_in_a_file_becomes_markup() {
    let folder = tempfile::tempdir().expect("folder");
    // Also the name of the file stands in the page.
    let evil = "</title></svg><script>alert(1)</script><img src=x onerror='alert(2)'>\"";
    let path = folder.path().join("<script>alert(3)<&.json");
    for bench in ["move", "count", "stall"] {
        let text = fs::read_to_string(synthetic(bench)).expect("file");
        let mut file: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        for field in ["cpu", "kernel", "hypervisor", "copy"] {
            file["host"][field] = evil.into();
        }
        file["notes"] = serde_json::json!([evil]);
        for row in file["rows"].as_array_mut().expect("rows") {
            for field in ["backend", "migrator", "destination"] {
                row[field] = evil.into();
            }
        }
        fs::write(&path, file.to_string()).expect("write");
        let page = folder.path().join("page.html");
        done(&report(&[&path], &page));
        let page = fs::read_to_string(page).expect("page");
        // It is shown as text.
        has(&page, "&lt;script&gt;alert(1)");
        for markup in ["<script", "<img", "onerror='"] {
            assert!(!page.contains(markup), "{bench}: {markup}");
        }
    }
}

#[test]
fn a_bad_file_leaves_the_old_page_and_says_why() {
    let folder = tempfile::tempdir().expect("folder");
    let page = folder.path().join("page.html");
    fs::write(&page, "the old page").expect("write");
    let good = synthetic("move");
    let bad = folder.path().join("bad.json");
    let newer = fs::read_to_string(&good).expect("file");
    for (text, why) in [
        ("not json".to_owned(), "it is not JSON"),
        (String::new(), "it is not JSON"),
        ("[1]".to_owned(), "no \"schema\""),
        (
            r#"{"schema":"memferry-replay/1"}"#.to_owned(),
            "memferry-replay/1 | bench/1",
        ),
        (
            r#"{"schema":"memferry-bench/1"}"#.to_owned(),
            "does not fit",
        ),
        (
            r#"{"schema":"memferry-promote/1"}"#.to_owned(),
            "memferry-promote/1",
        ),
        (
            newer.replace("bench/1", "bench/9"),
            "memferry-bench/9 | with the version of memferry that wrote it",
        ),
        (newer.replace("\"rows\"", "\"lines\""), "rows"),
    ] {
        fs::write(&bad, text).expect("write");
        fails(&report(&[&good, &bad], &page), &format!("bad.json | {why}"));
        assert_eq!(fs::read_to_string(&page).expect("page"), "the old page");
    }
    fs::remove_file(&bad).expect("remove");
    fails(&report(&[&bad], &page), "memferry bench move --json");
    let left = fs::read_dir(folder.path()).expect("list").count();
    assert_eq!(left, 1, "no temporary file stays");
}

#[test]
fn the_page_may_go_to_stdout_and_the_tables_to_a_terminal() {
    let file = synthetic("stall");
    let file = file.to_str().expect("path");
    let html = done(&memferry(&format!("report {file} -o -")));
    assert!(html.starts_with("<!DOCTYPE html>"));
    let text = done(&memferry(&format!("report {file} --text --published")));
    has(
        &text,
        "p99.9 | No published series gives the time that an access waits.",
    );
    assert!(text.lines().all(|line| line.chars().count() <= 100));
}

#[test]
fn what_is_not_complete_is_marked_above_its_figures() {
    let folder = tempfile::tempdir().expect("folder");
    let [path, page] = ["half.json", "page.html"].map(|name| folder.path().join(name));
    let whole = fs::read_to_string(synthetic("move")).expect("file");
    let says_nothing = whole.replace(" \"complete\": true,\n", "");
    assert_ne!(says_nothing, whole);
    let stopped = whole.replace("\"complete\": true", "\"complete\": false");
    for (text, marked) in [(whole, false), (says_nothing, true), (stopped, true)] {
        fs::write(&path, text).expect("write");
        done(&report(&[&path], &page));
        let shown = done(&memferry(&format!("report --text {}", path.display())));
        let page = fs::read_to_string(&page).expect("page");
        let banner = page.find("NOT COMPLETE");
        assert_eq!(banner.is_some(), marked);
        assert_eq!(shown.contains("NOT COMPLETE"), marked);
        if let Some(banner) = banner {
            assert!(banner < page.find("<h1>").expect("headline"));
            has(page[banner..].lines().next().expect("line"), "half.json");
        }
    }
}

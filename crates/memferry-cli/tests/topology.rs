// SPDX-License-Identifier: MIT OR Apache-2.0
//! `memferry topology` on the machine that runs the tests.

mod command;

use command::{fails, json, memferry, stdout};

#[test]
fn json_agrees_with_the_kernel() {
    let json = json(&memferry("topology --json"));
    assert_eq!(json["schema"], "memferry-topology/1");
    let limit = std::fs::read_to_string("/proc/sys/vm/max_map_count").expect("read");
    assert_eq!(json["limits"]["max_map_count"].to_string(), limit.trim());
    let cpus = json["nodes"].as_array().expect("nodes").iter();
    let cpus: usize = cpus
        .map(|node| node["cpus"].as_array().expect("cpus").len())
        .sum();
    assert_eq!(json["machine"]["cpus"], cpus);
    for ability in json["abilities"].as_array().expect("abilities") {
        let available = ability["available"].as_bool().expect("available");
        assert_eq!(available, ability["why"].is_null(), "{ability}");
    }
    assert!(json.get("copy").is_none());
    let abilities = json["abilities"].as_array().expect("abilities");
    let can_move = abilities
        .iter()
        .any(|ability| ability["name"] == "UFFDIO_MOVE" && ability["available"] == true);
    let cost = json["move_cost"]["uffdio_move_ns"].as_f64();
    assert_eq!(cost.is_some_and(|ns| ns > 0.0), can_move, "{cost:?}");
}

#[test]
fn an_unknown_copy_routine_is_told_before_anything_is_measured() {
    let output = command::command()
        .args(["topology", "--copy"])
        .env("MEMFERRY_COPY", "bad")
        .output()
        .expect("start");
    fails(&output, "MEMFERRY_COPY=bad | memcpy");
    assert_eq!(stdout(&output), "");
}

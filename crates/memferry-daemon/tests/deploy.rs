// SPDX-License-Identifier: MIT OR Apache-2.0
//! Alert rules, dashboard and docs/fleet.md name only metrics, labels and values of labels that the daemon exposes. That the rules are right
//! is for promtool to say.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use memferry_daemon::metrics;
use memferry_daemon::status::{
    GroupStatus, NodeStatus, SampleStatus, SourceStatus, Status, TierStatus, UsedWithin,
};
use serde_json::Value;

/// By sample and label, the label's values.
type Exposed = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

/// Labels that Prometheus itself puts on what it scrapes.
const TARGET: [&str; 2] = ["instance", "job"];

/// A state in which every metric is there.
fn exposed() -> Exposed {
    let node = |node| NodeStatus {
        node,
        ..NodeStatus::default()
    };
    let tier = |first| TierStatus {
        nodes: vec![node(first), node(first + 1)],
    };
    let status = Status {
        source: SourceStatus {
            name: "damon".to_owned(),
            cpu_seconds: Some(1.0),
            cpu_budget: Some(3),
            regions: Some(512),
            samples: Some(SampleStatus::default()),
            ..SourceStatus::default()
        },
        tiers: [0, 2].map(tier).into(),
        memory_pressure: Some(1.0),
        cpu_pressure: Some(1.0),
        kernel_promoted: Some(1),
        kernel_demoted: Some(1),
        groups: vec![GroupStatus {
            name: "db".to_owned(),
            limit: Some(1),
            used_within: Some(UsedWithin::default()),
            pressure_rate: Some(1),
            unmovable: BTreeMap::from([("locked".to_owned(), 1)]),
            stayed_reasons: BTreeMap::from([("EBUSY".to_owned(), 1)]),
            ..GroupStatus::default()
        }],
        ..Status::default()
    };
    let text = metrics::text(&status).unwrap();
    let mut exposed = Exposed::new();
    for sample in text.lines().filter(|line| !line.starts_with('#')) {
        for (name, labels) in selectors(sample) {
            let known = exposed.entry(name.to_owned()).or_default();
            for (label, value) in labels {
                known
                    .entry(label.to_owned())
                    .or_default()
                    .insert(value.to_owned());
            }
        }
    }
    exposed
}

/// Label and value of `label="value"`, `label!~"value"` and the like.
fn matcher(text: &str) -> Option<(&str, &str)> {
    let (label, value) = text.split_once(['=', '!'])?;
    Some((label.trim(), value.trim_matches(['=', '~', ' ', '"'])))
}

/// Samples of memferry that a text names, each with what is between its braces.
fn selectors(text: &str) -> Vec<(&str, Vec<(&str, &str)>)> {
    let is_word = |of: char| of.is_ascii_alphanumeric() || of == '_';
    let starts = text
        .match_indices("memferry_")
        .filter(|(at, _)| !text[..*at].ends_with(is_word));
    let selector = |(at, _): (usize, &str)| {
        let rest = &text[at..];
        let (name, rest) = rest.split_at(rest.find(|of: char| !is_word(of)).unwrap_or(rest.len()));
        let inside = rest
            .strip_prefix('{')
            .and_then(|rest| rest.split_once('}'))
            .map_or("", |(inside, _)| inside);
        (name, inside.split(',').filter_map(matcher).collect())
    };
    starts.map(selector).collect()
}

/// Labels that a text names elsewhere: of aggregations, matches, templates and variables.
fn labels(text: &str) -> Vec<&str> {
    let between = |start: &'static str, end: &'static str| {
        let parts = text.split(start).skip(1);
        parts.filter_map(move |of| Some(of.split_once(end)?.0))
    };
    let lists = ["by (", "without (", "on (", "ignoring ("];
    let of_lists = lists
        .into_iter()
        .flat_map(|list| between(list, ")"))
        .flat_map(|of| of.split(','));
    let of_templates = between("{{", "}}")
        .map(|of| of.trim().trim_start_matches("$labels."))
        .filter(|of| !of.starts_with("$value"));
    let of_variables = between("label_values(", ")").filter_map(|of| Some(of.rsplit_once(',')?.1));
    of_lists
        .chain(of_templates)
        .chain(of_variables)
        .map(str::trim)
        .collect()
}

fn check(file: &str, text: &str) {
    let exposed = exposed();
    let named = selectors(text);
    assert!(!named.is_empty(), "{file} names no metric");
    for (name, matchers) in named {
        let known = exposed
            .get(name)
            .unwrap_or_else(|| panic!("{file}: {name} is not exposed"));
        for (label, value) in matchers.iter().filter(|(label, _)| !TARGET.contains(label)) {
            let values = known
                .get(*label)
                .unwrap_or_else(|| panic!("{file}: {name} has no label {label}"));
            // Groups are named by the configuration, nodes numbered by the machine.
            let is_fixed = !["group", "node"].contains(label);
            for value in value.split('|').filter(|_| is_fixed) {
                assert!(
                    values.contains(value),
                    "{file}: {label} of {name} is never {value}, but one of {values:?}"
                );
            }
        }
    }
    for label in labels(text) {
        let is_known = exposed.values().any(|known| known.contains_key(label));
        assert!(
            is_known || TARGET.contains(&label),
            "{file}: no metric has a label {label}"
        );
    }
}

fn read(file: &str) -> String {
    let path = format!("{}/../../deploy/{file}", env!("CARGO_MANIFEST_DIR"));
    fs::read_to_string(path).unwrap()
}

fn strings<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
    match value {
        Value::String(text) => found.push(text),
        Value::Array(all) => all.iter().for_each(|of| strings(of, found)),
        Value::Object(all) => all.values().for_each(|of| strings(of, found)),
        _ => {}
    }
}

#[test]
fn rules_name_what_is_exposed_and_each_is_tested() {
    let (rules, tests) = (
        read("prometheus/memferry.rules.yml"),
        read("prometheus/memferry.rules.test.yml"),
    );
    check("memferry.rules.yml", &rules);
    check("memferry.rules.test.yml", &tests);
    for rule in rules.split("- alert: ").skip(1) {
        let name = rule.lines().next().unwrap();
        assert!(
            rule.contains("summary: ") && rule.contains("description: "),
            "{name} does not say what to do"
        );
        assert!(
            tests.contains(&format!("alertname=\"{name}\"")),
            "{name} is not tested"
        );
    }
}

#[test]
fn the_page_on_fleets_names_what_is_exposed() {
    check("fleet.md", &read("../docs/fleet.md"));
}

#[test]
fn the_dashboard_shows_what_is_exposed_and_has_each_id_once() {
    let dashboard: Value = serde_json::from_str(&read("grafana/memferry.json")).unwrap();
    let mut texts = Vec::new();
    strings(&dashboard, &mut texts);
    let text = texts.join("\n");
    check("memferry.json", &text);
    let shown: BTreeSet<&str> = selectors(&text).into_iter().map(|(name, _)| name).collect();
    for name in exposed().keys() {
        assert!(shown.contains(name.as_str()), "no panel shows {name}");
    }
    let mut ids = BTreeSet::new();
    let mut taken = BTreeMap::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        let id = panel["id"].as_u64().unwrap();
        assert!(ids.insert(id), "two panels have the id {id}");
        let at = |of: &str| panel["gridPos"][of].as_u64().unwrap();
        for x in at("x")..at("x") + at("w") {
            for y in at("y")..at("y") + at("h") {
                let other = taken.insert((x, y), id);
                assert!(
                    x < 24 && other.is_none(),
                    "{id} lies on {other:?} or outside"
                );
            }
        }
    }
}

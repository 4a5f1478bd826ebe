// SPDX-License-Identifier: MIT OR Apache-2.0
//! The page of a replay: `page.html` filled in. Every text reaches it through the template, which escapes it.

use memferry_replay::machine::{NS_PER_ACCESS, SCALE};
use memferry_replay::policy::Kind;
use serde::Serialize;

use super::Case;
use super::picture::{Border, Heat, borders, course, heat};
use super::text::{count, percent, table, title};
use crate::chart::{Drawing, draw};
use crate::html::{self, Fact, Head};
use crate::table::{Table, counted};

#[derive(Serialize)]
struct Page {
    #[serde(flatten)]
    head: Head,
    heats: Vec<Heat>,
    sections: Vec<Section>,
}

#[derive(Serialize)]
struct Section {
    title: String,
    name: String,
    about: String,
    course: Option<Drawing>,
    /// Index into the page's heatmaps.
    heat: usize,
    borders: Vec<Border>,
    table: Table,
}

/// The page for these replays.
pub fn render(cases: &[Case]) -> Result<String, minijinja::Error> {
    let mut heats = Vec::new();
    let mut sections = Vec::new();
    for (index, case) in cases.iter().enumerate() {
        let same = index > 0 && std::ptr::eq(cases[index - 1].loaded, case.loaded);
        if !same {
            heats.push(heat(case.loaded));
        }
        sections.push(section(case, heats.len() - 1));
    }
    let machine = cases
        .first()
        .map(|case| case.loaded.machine.clone())
        .unwrap_or_default();
    let page = Page {
        head: Head {
            command: "replay",
            version: env!("CARGO_PKG_VERSION"),
            headline: headline(cases),
            machine: format!(
                "Top tier {} ns, lower tier {} ns; a promotion {} ns, a demotion {} ns, a hint fault {} ns; the source walks the \
             page tables every {} ms and samples one cache miss in {}. Traces without a clock: {NS_PER_ACCESS} ns an access, one page and one access for {SCALE}.",
                machine.top_ns,
                machine.low_ns,
                machine.promote_ns,
                machine.demote_ns,
                machine.fault_ns,
                machine.walk_ms,
                machine.sample_period
            ),
            facts: facts(cases),
        },
        heats,
        sections,
    };
    html::render(include_str!("page.html"), &page)
}

fn section(case: &Case, heat: usize) -> Section {
    let trace = &case.loaded.trace;
    Section {
        title: title(case),
        name: trace.name.clone(),
        about: format!(
            "{} accesses in {} events to {} pages of {} bytes",
            count(case.loaded.truth.accesses),
            count(trace.events.len() as u64),
            trace.pages.len(),
            trace.page_bytes
        ),
        course: draw(&course(case)),
        heat,
        borders: borders(case),
        table: table(case),
    }
}

/// The share of a policy, averaged over the cases that have it.
fn mean(cases: &[Case], kind: Kind) -> Option<f64> {
    let share = |case: &Case| {
        let mut outcomes = case.outcomes.iter();
        outcomes.find(|of| of.policy == kind).map(|of| of.top_share)
    };
    let shares: Option<Vec<f64>> = cases.iter().map(share).collect();
    let shares = shares.filter(|shares| !shares.is_empty())?;
    Some(shares.iter().sum::<f64>() / shares.len() as f64)
}

fn headline(cases: &[Case]) -> String {
    let many = counted(cases.len(), "replay");
    match (mean(cases, Kind::Ours), mean(cases, Kind::Oracle)) {
        (Some(ours), Some(oracle)) => format!(
            "The top tier serves {} of the accesses under ours, {} under the oracle that knows the trace ({many}).",
            percent(ours),
            percent(oracle)
        ),
        _ => format!("What the top tier serves, by policy ({many})."),
    }
}

fn facts(cases: &[Case]) -> Vec<Fact> {
    let fact = |kind: Kind| {
        mean(cases, kind).map(|share| Fact {
            value: percent(share),
            label: format!("{kind}, served by the top tier"),
        })
    };
    Kind::ALL.into_iter().filter_map(fact).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::Loaded;
    use memferry_replay::machine::Machine;
    use memferry_replay::replay::replay;
    use memferry_replay::synthetic;
    use memferry_replay::truth::Truth;

    #[test]
    fn the_page_has_a_line_and_a_border_per_policy_and_no_markup_of_the_trace() {
        let mut trace = synthetic::phases(300, 30_000, 4, 1);
        trace.name = "<script>alert(1)</script>".to_owned();
        let truth = Truth::of(&trace);
        let loaded = Loaded {
            file: "a<b.trace".to_owned(),
            trace,
            truth,
            machine: Machine::default(),
        };
        let run = |kind| {
            let (trace, truth, machine) = (&loaded.trace, &loaded.truth, &loaded.machine);
            let outcome = replay(trace, truth, machine, 75, kind, &mut |_| true);
            outcome.expect("parameters").expect("not stopped")
        };
        let case = Case {
            loaded: &loaded,
            outcomes: Kind::ALL.map(run).into(),
        };
        let html = render(&[case]).expect("page");
        assert!(!html.contains("<script"));
        assert_eq!(html.matches("class=\"border").count(), Kind::ALL.len());
        assert!(html.contains("under the oracle that knows the trace (1 replay)"));
        for kind in Kind::ALL {
            assert!(
                html.contains(&format!("{kind}, served by the top tier")),
                "{kind}"
            );
        }
    }
}

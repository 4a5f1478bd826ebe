// SPDX-License-Identifier: MIT OR Apache-2.0
//! The report's content in reading order, and its HTML through `page.html`.
//!
//! Every text reaches the page through the template, which escapes it: nothing that a benchmark file
//! holds can become markup.

use serde::Serialize;

use super::headline::{facts, sentence};
use super::load::Loaded;
use super::{compare, data, figures, reproduced};
use crate::chart::{Chart, Drawing, draw};
use crate::html::{self, Head};
use crate::schema::{BenchFile, Rows};
use crate::table::{self, Table, throughput};
use crate::units::{about, lanes, long};

/// The page before it is HTML.
#[derive(Serialize)]
struct Page {
    #[serde(flatten)]
    head: Head,
    /// What stands above the first figure if a file is not complete, and the names of those files.
    incomplete: Option<(&'static str, String)>,
    sections: Vec<Section>,
    multiples: Vec<Drawing>,
    machines: Vec<Machine>,
    data: Vec<Table>,
    published: Vec<Table>,
}

/// What one file shows.
#[derive(Serialize)]
struct Section {
    title: &'static str,
    /// What the file shows, in a sentence.
    headline: String,
    intro: &'static str,
    /// The file, and the machine where the report has several.
    source: String,
    charts: Vec<Drawing>,
    tables: Vec<Table>,
    notes: Vec<String>,
}

/// A machine and its properties.
#[derive(Serialize)]
struct Machine {
    name: String,
    properties: Vec<(&'static str, String)>,
}

/// The page for these files, and how many charts it has.
pub fn render(loaded: &[Loaded]) -> Result<(String, usize), minijinja::Error> {
    let files = loaded.iter().map(|loaded| &loaded.file);
    let machines = machines(files.clone());
    let first = machines.first().map(|machine| machine.name.clone());
    // The head names one machine, so its figures are that machine's.
    let head = (files.clone()).filter(|file| Some(table::machine(&file.host)) == first);
    let page = Page {
        head: Head {
            command: "report",
            version: env!("CARGO_PKG_VERSION"),
            headline: headline(head.clone()),
            facts: facts(head),
            machine: first.clone().unwrap_or_default(),
        },
        incomplete: incomplete(loaded),
        sections: (loaded.iter())
            .map(|loaded| section(loaded, machines.len() > 1))
            .collect(),
        multiples: drawings(compare::charts(loaded)),
        machines,
        data: (loaded.iter())
            .flat_map(|loaded| data::tables(&loaded.name, &loaded.file))
            .collect(),
        published: ["move", "count", "topology-spread", "topology-fill"]
            .into_iter()
            .flat_map(|bench| table::published::tables(bench, true))
            .collect(),
    };
    let html = html::render(include_str!("page.html"), &page)?;
    let charts = page.sections.iter().map(|section| section.charts.len());
    let charts = charts.sum::<usize>() + page.multiples.len();
    Ok((html, charts))
}

fn incomplete(loaded: &[Loaded]) -> Option<(&'static str, String)> {
    let files = loaded.iter().filter(|of| !of.file.envelope.complete);
    let names: Vec<&str> = files.map(|of| of.name.as_str()).collect();
    (!names.is_empty()).then(|| (table::INCOMPLETE, names.join(", ")))
}

/// If the first file repeats a published table, the sentence is of that.
fn headline<'a>(files: impl Iterator<Item = &'a BenchFile> + Clone) -> String {
    let first = files.clone().next();
    let repeated = first.and_then(|file| file.reproduces.as_ref());
    let repeated = repeated.and_then(reproduced::sentence);
    repeated.unwrap_or_else(|| sentence(files))
}

fn drawings(charts: Vec<Chart>) -> Vec<Drawing> {
    charts.iter().filter_map(draw).collect()
}

fn section(loaded: &Loaded, name_machine: bool) -> Section {
    let (title, intro) = match loaded.file.rows {
        Rows::Move(_) => (
            "Moving memory",
            "The same bytes are moved in folios of each size. The dashed lines are the ceiling: what \
             as many threads copy when no page is moved, between memory that is mapped the same way \
             (base pages, for folios of 2 MiB THPs). Warm destination pages were there before; \
             cold ones are allocated inside the timed part.",
        ),
        Rows::Count(_) => (
            "Few folios or many",
            "One move of a growing number of folios: where the cost of starting a move stops to matter.",
        ),
        Rows::Stall(_) => (
            "What the application feels",
            "Threads keep reading and writing the pages that are being moved. An access that meets a \
             page on its way waits until the page has arrived; larger batches move faster and let it \
             wait longer.",
        ),
        Rows::Cache(_) => (
            "What others lose of the cache",
            "A thread reads data that fits the last-level cache, in an order that no prefetcher knows, while pages move on other CPUs \
             of that cache, with one copy routine after the other.",
        ),
        Rows::Compaction(_) => (
            "Compacting a fragmented node",
            "Base pages fill blocks of 2 MiB, every second page is given back, and one thread has the kernel compact the node: \
             how long that takes, what of it a migrator copies, and what a program loses that shares the CPU.",
        ),
        Rows::Gain(_) => (
            "What programs gain",
            "Threads do what programs do, on more memory than the top tier has room for. The gain is the time that an operation takes \
             less than with no promotion, over the same of the best placement in that room. Every mode makes the same accesses.",
        ),
        Rows::Promote(_) => (
            "Promoting hot pages",
            "Threads access pages of a slow tier at random. Where the pages lie is looked up while they do, so it is known \
             how soon they came to the top tier and which accesses it served. Every mode makes the same accesses.",
        ),
    };
    let mut source = loaded.name.clone();
    if name_machine {
        source += &format!(" · {}", table::machine(&loaded.file.host));
    }
    Section {
        title,
        headline: headline(std::iter::once(&loaded.file)),
        intro,
        source,
        charts: drawings(figures::charts(&loaded.file)),
        tables: table::tables(&loaded.file),
        notes: loaded.file.notes.clone(),
    }
}

/// The machines of the files, each once, with all that its files say about it.
fn machines<'a>(files: impl Iterator<Item = &'a BenchFile>) -> Vec<Machine> {
    let mut machines: Vec<Machine> = Vec::new();
    for file in files {
        let name = table::machine(&file.host);
        let mut properties = properties(file);
        if let Some(known) = machines.iter_mut().find(|machine| machine.name == name) {
            // A later file adds what an earlier one did not measure, such as the copy routine. Ceilings of
            // several files are several measurements: those of the first that has any stand for all.
            properties.retain(|(of, _)| known.properties.iter().all(|(have, _)| have != of));
            known.properties.append(&mut properties);
        } else {
            machines.push(Machine { name, properties });
        }
    }
    machines
}

fn properties(file: &BenchFile) -> Vec<(&'static str, String)> {
    let host = &file.host;
    let mut list = vec![
        ("Processor", host.cpu.clone()),
        ("CPUs online", host.cpus.to_string()),
        ("Memory nodes", host.nodes.to_string()),
        ("Linux", host.kernel.clone()),
        ("Base page", long(host.page_size as u64)),
    ];
    if host.memory_bytes > 0 {
        list.push(("Memory", about(host.memory_bytes)));
    }
    list.push((
        "Huge page",
        match host.thp_bytes {
            0 => "none".to_owned(),
            bytes => long(bytes as u64),
        },
    ));
    let hypervisor = host.hypervisor.clone();
    list.push((
        "Hypervisor",
        hypervisor.unwrap_or_else(|| "none reported".to_owned()),
    ));
    if let Some(copy) = &host.copy {
        list.push(("Copy routine", copy.clone()));
    }
    for ceiling in &file.ceiling {
        list.push((
            "Ceiling",
            format!(
                "{} GB/s, {}, {}",
                throughput(ceiling.gbps, ceiling.gbps_sd),
                lanes(ceiling.lanes),
                table::pages(ceiling)
            ),
        ));
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic;

    fn loaded(bench: &str) -> Loaded {
        Loaded {
            name: format!("{bench}.json"),
            file: synthetic::file(bench),
        }
    }

    #[test]
    fn one_machine_is_described_once() {
        let files = [loaded("stall"), loaded("move"), loaded("count")];
        let machines = machines(files.iter().map(|of| &of.file));
        assert_eq!(machines.len(), 1);
        let ceilings = machines[0].properties.iter().filter(|of| of.0 == "Ceiling");
        assert_eq!(
            ceilings.count(),
            4,
            "from the first file that measured them"
        );
    }

    #[test]
    fn the_head_speaks_of_one_machine() {
        let mut other = loaded("move");
        other.file.host.cpu = "Another synthetic CPU".to_owned();
        let rows = synthetic::move_rows(&mut other.file);
        for row in rows {
            row.gbps *= 10.0;
        }
        let (html, _) = render(&[loaded("move"), other]).expect("page");
        let (head, _) = html.split_once("</header>").expect("header");
        assert!(
            !head.contains("Another") && head.contains("24.1 GB"),
            "{head}"
        );
    }

    #[test]
    fn a_published_table_that_is_repeated_speaks_in_the_head() {
        let (html, _) = render(&[loaded("reproduce")]).expect("page");
        let (head, _) = html.split_once("</header>").expect("header");
        assert!(
            head.contains("synthetic-1: the copy is 35% of moving"),
            "{head}"
        );
    }

    #[test]
    fn every_mark_has_its_tooltip() {
        let (html, _) = render(&[loaded("move"), loaded("stall")]).expect("page");
        let marks = html.matches("class=\"mark\"").count();
        assert!(marks > 64, "{marks}");
        assert_eq!(html.matches("class=\"mark\"><title>").count(), marks);
    }
}

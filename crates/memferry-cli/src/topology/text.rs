// SPDX-License-Identifier: MIT OR Apache-2.0
//! The machine as tables for a terminal or a log. It arranges what `description` holds and reads nothing.

use memferry_linux::topology::parse::format_id_list;
use memferry_linux::topology::{
    CacheGroup, DmaChannel, Limits, Node, NumaBalancing, Overcommit, Thp, ThpSize, Tier,
};

use super::description::{Capability, Copies, Description, MoveCost};
use crate::schema::THP_BYTES;
use crate::table::text::{Align, draw, paragraphs, wrap};
use crate::table::{Table, counted, groups, or_dash, setting};
use crate::units::{about, short};

/// The whole machine.
pub fn machine(of: &Description, columns: usize) -> String {
    let mut text = wrap(&headline(of), columns, "") + "\n\n";
    text += &draw(&nodes(of), columns, Align::Right);
    text += &draw(&tiers(of), columns, Align::Left);
    text += &draw(&caches(of), columns, Align::Left);
    text += &match &of.thp {
        Some(thp) => draw(&huge_pages(thp), columns, Align::Left),
        None => "This kernel has no transparent huge pages.\n\n".to_owned(),
    };
    if !of.dma_channels.is_empty() {
        text += &draw(&dma_engines(of), columns, Align::Left);
    }
    text += &abilities(of, columns);
    if let Some(cost) = &of.move_cost {
        text += &draw(&move_cost(cost), columns, Align::Left);
    }
    text += &draw(&settings(of), columns, Align::Left);
    if let Some(copies) = &of.copy {
        text += &copy_tables(copies, columns);
    }
    // The last table ends the output.
    text.truncate(text.trim_end().len());
    text + "\n"
}

fn headline(of: &Description) -> String {
    let machine = &of.machine;
    let with_memory = of.nodes.iter().filter(|node| node.has_memory).count();
    let mut parts = vec![
        machine
            .cpu
            .clone()
            .unwrap_or_else(|| "unknown CPU".to_owned()),
        counted(machine.cpus, "CPU"),
        counted(with_memory, "memory node"),
        format!(
            "{} of memory ({} available)",
            about(machine.memory_bytes),
            about(machine.available_bytes)
        ),
        format!("pages of {}", short(machine.page_bytes)),
        format!("Linux {}", machine.kernel),
    ];
    match (&machine.hypervisor, machine.is_virtual) {
        (Some(name), _) => parts.push(format!("virtual ({name})")),
        (None, Some(true)) => parts.push("virtual".to_owned()),
        _ => {}
    }
    parts.join(", ")
}

/// A list of ids, or a word that there are none.
fn ids(list: &[u32]) -> String {
    if list.is_empty() {
        "none".to_owned()
    } else {
        format_id_list(list)
    }
}

fn nodes(of: &Description) -> Table {
    let mut head = vec!["node", "tier", "CPUs", "memory", "free"];
    let to: Vec<String> = of
        .nodes
        .iter()
        .map(|node| format!("to {}", node.id))
        .collect();
    head.extend(to.iter().map(String::as_str));
    let line = |node: &Node| {
        let mut line = vec![node.id.to_string(), or_dash(node.tier), ids(&node.cpus)];
        line.extend(match node.has_memory {
            true => [
                about(node.memory_total_bytes),
                about(node.memory_free_bytes),
            ],
            false => ["none".to_owned(), "none".to_owned()],
        });
        line.extend(of.nodes.iter().map(|to| or_dash(node.distance_to(to.id))));
        line
    };
    Table::new(
        "nodes",
        "distances as the firmware tells them: 10 is local, 20 twice as slow",
        &head,
        of.nodes.iter().map(line).collect(),
    )
}

fn tiers(of: &Description) -> Table {
    let line = |(index, tier): (usize, &Tier)| {
        let name = tier.kernel_id.map(|id| format!("memory_tier{id}"));
        let name = name.unwrap_or_else(|| "none: all memory is taken as one tier".to_owned());
        vec![index.to_string(), ids(&tier.nodes), name]
    };
    Table::new(
        "tiers",
        "fastest first",
        &["tier", "nodes", "kernel's name"],
        of.tiers.iter().enumerate().map(line).collect(),
    )
}

fn caches(of: &Description) -> Table {
    let line = |group: &CacheGroup| {
        vec![
            ids(&group.cpus),
            or_dash(group.level.map(|level| format!("L{level}"))),
            or_dash(group.size_bytes.map(about)),
            group
                .node
                .map_or_else(|| "several".to_owned(), |node| node.to_string()),
        ]
    };
    Table::new(
        "cache groups",
        "CPUs that share a last-level cache",
        &["CPUs", "level", "size", "node"],
        of.cache_groups.iter().map(line).collect(),
    )
}

fn huge_pages(thp: &Thp) -> Table {
    let who = |mode: &str| {
        match mode {
            "always" => "always: every mapping that is large enough",
            "madvise" => "madvise: mappings that ask for them",
            "never" => "never",
            other => other,
        }
        .to_owned()
    };
    let line = |size: &ThpSize| vec![short(size.bytes), who(&size.mode)];
    Table::new(
        "transparent huge pages",
        format!(
            "the one that a whole page table maps: {}; what a fault does when none is free: {}",
            short(thp.pmd_bytes),
            thp.defrag
        ),
        &["size", "who gets them"],
        thp.sizes.iter().map(line).collect(),
    )
}

/// A line for each driver and node, as a machine can have a hundred channels that are alike.
fn dma_engines(of: &Description) -> Table {
    let alike = groups(&of.dma_channels, |of| (of.driver.clone(), of.node));
    let line = |((driver, node), channels): (_, Vec<&DmaChannel>)| {
        let used = channels.iter().filter(|channel| channel.in_use).count();
        let counts = [channels.len(), used].map(|count| count.to_string());
        [vec![or_dash(driver), or_dash(node)], counts.to_vec()].concat()
    };
    let rows = alike.into_iter().map(line).collect();
    Table::new(
        "DMA channels",
        "those that copy memory serve the kernel's migrator dcbm, which says which they are",
        &["driver", "node", "channels", "in use"],
        rows,
    )
}

fn abilities(of: &Description, columns: usize) -> String {
    let line = |ability: &Capability| {
        let state = if ability.available { "yes" } else { "no" };
        [ability.name, ability.purpose, state]
            .map(str::to_owned)
            .to_vec()
    };
    let table = Table::new(
        "what this kernel lets memferry do",
        "found by trying, as the user who asks",
        &["ability", "what it is for", "here"],
        of.abilities.iter().map(line).collect(),
    );
    let mut text = draw(&table, columns, Align::Left);
    let missing = of
        .abilities
        .iter()
        .filter_map(|ability| Some((ability.name, ability.why.as_ref()?)));
    let missing = missing.map(|(name, why)| format!("no {name}: {why}"));
    let below = paragraphs(missing.chain(of.notes.iter().cloned()), columns);
    if !below.is_empty() {
        text += &(below + "\n");
    }
    text
}

fn move_cost(cost: &MoveCost) -> Table {
    let ns = |ns: f64| format!("{ns:.0} ns");
    let bound = format!("base pages move at {:.1} GB/s at most", cost.bound_gbps);
    let mut rows = vec![["UFFDIO_MOVE".to_owned(), ns(cost.uffdio_move_ns), bound]];
    if let Some(between) = &cost.between_nodes {
        let taken = |is_it: bool| if is_it { "what the mover takes" } else { "" }.to_owned();
        let kernel = between.move_pages_ns < between.userfaultfd_ns;
        rows.push([
            "userfaultfd to another node".to_owned(),
            ns(between.userfaultfd_ns),
            taken(!kernel),
        ]);
        rows.push([
            "in pieces of 16 KiB".to_owned(),
            ns(between.userfaultfd_pieces_ns),
            match between.move_pages_ns < between.userfaultfd_pieces_ns {
                true => "lists of pieces go by move_pages(2)".to_owned(),
                false => "lists of pieces go this way".to_owned(),
            },
        ]);
        rows.push([
            "move_pages(2) there".to_owned(),
            ns(between.move_pages_ns),
            taken(kernel),
        ]);
    }
    Table::new(
        "what a base page takes",
        match cost.beside_a_thread {
            true => {
                "the fastest of a few times 64 pages to and fro, beside a thread on another CPU"
            }
            false => {
                "the fastest of a few times 64 pages to and fro, with no thread on another CPU"
            }
        },
        &["way", "each page", "what it means"],
        rows.into_iter().map(Vec::from).collect(),
    )
}

fn settings(of: &Description) -> Table {
    let Limits {
        max_map_count,
        unprivileged_userfaultfd,
        overcommit_memory,
        nr_hugepages,
    } = of.limits;
    let switch = |on: bool| if on { "on" } else { "off" }.to_owned();
    let balancing = |of: &NumaBalancing| match (of.placement, of.tiering) {
        (false, false) => "off".to_owned(),
        (true, false) => "placement".to_owned(),
        (false, true) => "tiering".to_owned(),
        (true, true) => "both".to_owned(),
    };
    let absent = || "absent".to_owned();
    let mut rows = vec![
        setting(
            "vm.max_map_count",
            max_map_count.to_string(),
            "mappings of one process at most",
        ),
        setting(
            "vm.unprivileged_userfaultfd",
            unprivileged_userfaultfd.map_or_else(absent, switch),
            "userfaultfd(2) for everyone",
        ),
        setting(
            "vm.overcommit_memory",
            match overcommit_memory {
                Overcommit::Heuristic => "heuristic",
                Overcommit::Always => "always",
                Overcommit::Never => "never",
            },
            "what mappings may promise",
        ),
        setting(
            "vm.nr_hugepages",
            nr_hugepages.map_or_else(absent, |count| count.to_string()),
            "hugetlb pages, set aside",
        ),
        setting(
            "kernel.numa_balancing",
            of.numa_balancing.as_ref().map_or_else(absent, balancing),
            "placement can move pages back",
        ),
        setting(
            "demotion_enabled",
            of.demotion.map_or_else(absent, switch),
            "reclaim demotes to slower tiers",
        ),
    ];
    rows.push(match &of.migrators {
        Some(migrators) => setting(
            "kernel's migrator",
            &*migrators.active,
            "copies what the kernel migrates",
        ),
        None => setting(
            "kernel's migrator",
            "stock kernel",
            "see `memferry kernel status`",
        ),
    });
    Table::new(
        "limits and settings",
        "files of /proc/sys, and of /sys/kernel/mm",
        &["name", "value", "meaning"],
        rows,
    )
}

fn copy_tables(of: &Copies, columns: usize) -> String {
    let marked = |name: &str| {
        let mark = if name == of.best { " *" } else { "" };
        format!("{name}{mark}")
    };
    let about_routines = of.routines.iter();
    let routines = Table::new(
        "copy routines",
        "* is the one that memferry uses; MEMFERRY_COPY=NAME chooses another",
        &["routine", "what it does"],
        about_routines
            .map(|routine| vec![marked(routine.name), routine.about.to_owned()])
            .collect(),
    );
    let text = draw(&routines, columns, Align::Left);
    let rows: Vec<_> = of.rows.iter().collect();
    let table = Table {
        title: "how fast they copy".to_owned(),
        caption: format!(
            "GB/s between pages of a kind, median of {} runs over {}",
            of.runs,
            about(of.buffer_bytes)
        ),
        ..Table::pivot(
            "routine",
            &rows,
            |row| marked(row.routine),
            |row| (row.page_bytes, row.threads),
            |(page_bytes, threads)| {
                let huge = page_bytes >= THP_BYTES as u64;
                let pages = if huge { "THPs" } else { "base pages" };
                format!("{pages}, {}", counted(threads, "thread"))
            },
            |row| format!("{:.1}", row.gbps),
        )
    };
    text + &draw(&table, columns, Align::Right)
}

#[cfg(test)]
mod tests {
    use super::super::description::{CopyRoutine, CopyRow};
    use super::*;

    #[test]
    fn copy_routines_stand_by_pages_and_threads() {
        let row = |routine, page_bytes, threads, gbps| CopyRow {
            routine,
            page_bytes,
            threads,
            gbps,
            gbps_min: gbps,
            gbps_max: gbps,
        };
        let routine = |name| CopyRoutine {
            name,
            about: "synthetic",
        };
        let copies = Copies {
            best: "fast",
            buffer_bytes: 64 << 20,
            runs: 3,
            routines: vec![routine("memcpy"), routine("fast")],
            rows: vec![
                row("memcpy", 4096, 1, 8.0),
                row("fast", 4096, 1, 12.8),
                row("memcpy", 2 << 20, 8, 61.0),
            ],
        };
        let text = copy_tables(&copies, 100);
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let lines: Vec<String> = text.lines().map(words).collect();
        for expected in [
            "fast * synthetic",
            "routine base pages, 1 thread THPs, 8 threads",
            "memcpy 8.0 61.0",
            "fast * 12.8",
        ] {
            assert!(
                lines.iter().any(|line| line == expected),
                "{expected}: {text}"
            );
        }
    }
}

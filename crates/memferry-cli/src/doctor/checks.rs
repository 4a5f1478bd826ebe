// SPDX-License-Identifier: MIT OR Apache-2.0
//! The checks: each a function from what the kernel shows to what is to be said of it. None writes or measures.
//!
//! A setting is looked at where it matters: those of tiering on machines with two tiers. Commands are for `sh` as root.

use memferry_daemon::Status;
use memferry_daemon::machine::pressure as psi;
use memferry_daemon::tiered_limits::asked_for;

use super::cxl;
use super::description::{Finding, Severity, finding, note, wrong};
use super::machine::{CAP_SYS_NICE, CAP_SYS_PTRACE, Machine, nodes_text};
use crate::cli::Use;

/// A check: what it finds on a machine.
pub type Check = fn(&Machine) -> Vec<Finding>;

/// What moves pages between tiers.
const TIERING: &[Use] = &[Use::Daemon, Use::Kernel];

/// All checks by their names, which JSON has, and what their findings count for: how memory comes to tiers, what moves pages
/// between them, who else does, rights.
pub const CHECKS: [(&str, &[Use], Check); 18] = [
    ("cxl", Use::ALL, cxl::check),
    ("dax", Use::ALL, dax),
    ("offline", Use::ALL, offline),
    ("tiers", TIERING, tiers),
    ("demotion", &[Use::Kernel], demotion),
    ("promotion", TIERING, promotion),
    ("promotion-rate", &[Use::Kernel], promotion_rate),
    ("zone-reclaim", TIERING, zone_reclaim),
    ("lru-gen", TIERING, lru_gen),
    ("thp", TIERING, thp),
    ("interleave", TIERING, interleave),
    ("damon", TIERING, damon),
    ("tiered-limits", TIERING, tiered_limits),
    ("pressure", &[Use::Daemon], pressure),
    ("daemon", &[Use::Daemon], daemon),
    ("userfaultfd", &[Use::Move], userfaultfd),
    ("uffdio-move", &[Use::Move], uffdio_move),
    ("rights", &[Use::Move], rights),
];

const DAX: &str = "sys/bus/dax/devices";
const NODES: &str = "sys/devices/system/node";
const KDAMONDS: &str = "sys/kernel/mm/damon/admin/kdamonds";
const INTERLEAVE: &str = "sys/kernel/mm/mempolicy/weighted_interleave";

/// Memory that no node has, because another driver than kmem has it, or none.
fn dax(machine: &Machine) -> Vec<Finding> {
    let devices = machine.entries(DAX, "dax").into_iter();
    devices
        .filter_map(|device| {
            machine.number(&format!("{DAX}/{device}/size")).filter(|bytes| *bytes > 0)?;
            let driver = machine.link(&format!("{DAX}/{device}/driver"));
            let node = machine.text(&format!("{DAX}/{device}/target_node"));
            let what = match driver.as_deref() {
                Some("kmem") => return None,
                _ if node.is_some_and(|node| node.starts_with('-')) => {
                    let what = format!("the firmware gave {device} no node (target_node is negative)");
                    let why = "the driver kmem takes no memory without a node: the firmware's SRAT has to name its addresses";
                    return Some(wrong(what, why));
                }
                Some(other) => format!("{device} is held by {other}"),
                None => format!("{device} has no driver"),
            };
            let why = "its memory is no node's, so nothing is demoted to it; leave it so if a program maps it: the command loses what is on it";
            let mend = format!("daxctl reconfigure-device --mode=system-ram {device}");
            Some(wrong(what, why).mend(mend))
        })
        .collect()
}

/// Memory blocks that are there and not on line.
fn offline(machine: &Machine) -> Vec<Finding> {
    let nodes = machine.entries(NODES, "node").into_iter();
    nodes
        .filter_map(|node| {
            let folder = format!("{NODES}/{node}");
            let blocks = machine.entries(&folder, "memory");
            let is_offline = |block: &&String| {
                machine.text(&format!("{folder}/{block}/state")).as_deref() == Some("offline")
            };
            let offline = blocks.iter().filter(is_offline).count();
            let what = format!("{offline} of {} memory blocks of {node} are off line", blocks.len());
            let has_cpu = (machine.topology.nodes.iter())
                .any(|of| of.has_cpu && node == format!("node{}", of.id));
            let severity = if has_cpu { Severity::Note } else { Severity::Wrong };
            let mend = format!(
                "grep -lx offline /{folder}/memory*/state | while read f; do echo online_movable > $f; done"
            );
            (offline > 0).then(|| finding(severity, what, "no page can be there").mend(mend))
        })
        .collect()
}

/// Memory without CPUs that counts as fast as that beside them, and that there is no other. The daemon does not start with one tier.
fn tiers(machine: &Machine) -> Vec<Finding> {
    let mut found = tiers_of_any(machine);
    if machine.purpose == Some(Use::Daemon) && machine.topology.tiers.len() == 1 {
        found
            .iter_mut()
            .for_each(|of| of.severity = Severity::Wrong);
    }
    found
}

fn tiers_of_any(machine: &Machine) -> Vec<Finding> {
    let topology = &machine.topology;
    let of_cpus = topology.top_tiers() - 1;
    let nodes = topology.nodes_with_memory();
    let (near, far): (Vec<_>, Vec<_>) = nodes
        .filter(|node| node.tier == Some(of_cpus))
        .partition(|node| node.has_cpu);
    if (near.is_empty() || far.is_empty()) && topology.tiers.len() == 1 {
        return vec![note(
            "all memory is in one tier",
            "nothing is promoted or demoted; CXL memory is a slower tier once a region and the driver kmem make a node of it",
        )];
    }
    if near.is_empty() || far.is_empty() {
        return Vec::new();
    }
    let ids: Vec<u32> = far.iter().map(|node| node.id).collect();
    let nodes = nodes_text(&ids);
    if topology.tiers[of_cpus].kernel_id.is_none() {
        return vec![note(
            format!("this kernel names no memory tiers, and {nodes} without CPUs is there"),
            "nothing is demoted to it or promoted from it; Linux has tiers since 6.1",
        )];
    }
    let of_dax = machine.entries(DAX, "dax").into_iter().any(|device| {
        let node = machine.number(&format!("{DAX}/{device}/target_node"));
        node.is_some_and(|node| ids.iter().any(|id| u64::from(*id) == node))
    });
    let what = format!("{nodes} without CPUs is in the top tier");
    let why = "pages are not demoted to memory of the same tier; the kernel takes memory for slow if the firmware's HMAT says \
               so, or if it is reserved for special purposes (EFI_MEMORY_SP) and comes through kmem";
    let is_cxl = of_dax || !machine.entries(cxl::DEVICES, "mem").is_empty();
    vec![if is_cxl {
        wrong(what, why)
    } else {
        note(what, why)
    }]
}

fn demotion(machine: &Machine) -> Vec<Finding> {
    let Some(slow) = machine.slow_nodes() else {
        return Vec::new();
    };
    let file = "sys/kernel/mm/numa/demotion_enabled";
    let why = format!("a full top tier swaps pages out instead of moving them to {slow}");
    match machine.topology.demotion_enabled {
        Some(true) => Vec::new(),
        Some(false) => vec![wrong("demotion is off", why).set(file, "1")],
        None => vec![wrong("this kernel cannot demote", why)],
    }
}

fn promotion(machine: &Machine) -> Vec<Finding> {
    let pghot = machine.number("proc/sys/vm/pghot_enabled_sources");
    let Some(slow) = machine.slow_nodes() else {
        return Vec::new();
    };
    let file = "proc/sys/kernel/numa_balancing";
    let mode = machine.topology.kernel_interface.numa_balancing;
    let is_on = mode.is_some_and(|mode| mode.tiering || mode.placement);
    if let Some(start) = &machine.start {
        let what = "kernel.numa_balancing is on";
        let why = format!(
            "it moves pages of {slow} up as well, whatever the daemon's groups are due: switch it off"
        );
        let beside = wrong(what, why).set(file, "0").only(Use::Daemon);
        let is_beside = is_on && start.source_name(machine).as_deref() != Some("numa-balancing");
        return is_beside.then_some(beside).into_iter().collect();
    }
    if pghot.unwrap_or(0) != 0 {
        return Vec::new();
    }
    let acting = running_daemon(machine).filter(promotes);
    if let Some(Status { pid, .. }) = acting.filter(|_| machine.purpose.is_none()) {
        let beside = note(
            "kernel.numa_balancing is on",
            format!(
                "it moves pages of {slow} up beside memferryd (pid {pid}), whatever its groups are due"
            ),
        );
        let beside = beside.set(file, "0").only(Use::Daemon);
        return is_on.then_some(beside).into_iter().collect();
    }
    let found = match mode {
        Some(mode) if mode.tiering => return Vec::new(),
        Some(mode) if mode.placement => note(
            "kernel.numa_balancing is 1",
            format!("pages of {slow} that became hot come to the top tier only while it has room"),
        )
        // Bits: 1 places pages by their threads' nodes, 2 promotes.
        .set(file, "3"),
        Some(_) if kdamonds(machine).iter().any(|of| is(machine, of, "on")) => note(
            "kernel.numa_balancing is 0",
            format!("pages of {slow} that became hot stay there unless the running kdamond promotes them"),
        )
        .set(file, "2"),
        Some(_) => wrong(
            "kernel.numa_balancing is 0",
            format!("pages of {slow} that became hot stay there, unless memferryd acts, which wants it off"),
        )
        .set(file, "2"),
        None => wrong(
            "this kernel has no NUMA balancing (CONFIG_NUMA_BALANCING)",
            format!("pages of {slow} that became hot stay there"),
        ),
    };
    vec![found.only(Use::Kernel)]
}

fn promotion_rate(machine: &Machine) -> Vec<Finding> {
    let file = "proc/sys/kernel/numa_balancing_promote_rate_limit_MBps";
    let balancing = machine.topology.kernel_interface.numa_balancing;
    let promotes = machine.slow_nodes().is_some() && balancing.is_some_and(|mode| mode.tiering);
    match machine.number(file) {
        Some(0) if promotes => vec![
            wrong(
                "the rate limit of promotion is 0",
                "NUMA balancing promotes nothing once the top tier is full",
            )
            .set(file, "65536"),
        ],
        _ => Vec::new(),
    }
}

fn zone_reclaim(machine: &Machine) -> Vec<Finding> {
    let file = "proc/sys/vm/zone_reclaim_mode";
    match (machine.slow_nodes(), machine.number(file)) {
        (Some(slow), Some(1..)) => vec![
            note(
                "vm.zone_reclaim_mode is on",
                format!("an allocation on a full node reclaims there before it takes free memory of {slow}"),
            )
            .set(file, "0"),
        ],
        _ => Vec::new(),
    }
}

fn lru_gen(machine: &Machine) -> Vec<Finding> {
    let (enabled, min_ttl) = (
        "sys/kernel/mm/lru_gen/enabled",
        "sys/kernel/mm/lru_gen/min_ttl_ms",
    );
    let (Some(slow), Some(bits)) = (machine.slow_nodes(), machine.hex(enabled)) else {
        return Vec::new();
    };
    // Bit 0 is the main switch.
    if bits & 1 == 0 {
        return vec![
            note(
                "the multi-generational LRU is off",
                "reclaim knows less of which pages are cold, and direct reclaim takes longer",
            )
            .set(enabled, "y"),
        ];
    }
    match machine.number(min_ttl) {
        Some(ms @ 1..) => vec![
            wrong(
                format!("lru_gen keeps pages of the last {ms} ms (min_ttl_ms)"),
                format!("if all pages of a top node are younger, the kernel kills a process although {slow} may have room"),
            )
            .set(min_ttl, "0"),
        ],
        _ => Vec::new(),
    }
}

fn thp(machine: &Machine) -> Vec<Finding> {
    let (Some(_), Some(thp)) = (machine.slow_nodes(), &machine.topology.thp) else {
        return Vec::new();
    };
    let file = |name| format!("sys/kernel/mm/transparent_hugepage/{name}");
    let never = thp.sizes.iter().all(|size| size.mode == "never");
    if never {
        return vec![
            note(
                "transparent huge pages are off",
                "pages move between tiers one by one, which takes longer for each byte",
            )
            .set(&file("enabled"), "madvise"),
        ];
    }
    match &*thp.defrag {
        "always" => vec![
            note(
                "page faults wait for huge pages (defrag is always)",
                "in a full top tier each of them reclaims and compacts first",
            )
            .set(&file("defrag"), "defer+madvise"),
        ],
        _ => Vec::new(),
    }
}

/// Weighted interleave as it is without weights. The file `auto` is `__auto_type` where a compiler's macro renamed it.
fn interleave(machine: &Machine) -> Vec<Finding> {
    let nodes = machine.topology.nodes_with_memory();
    let weight = |id| machine.number(&format!("{INTERLEAVE}/node{id}"));
    let weights: Vec<u64> = nodes.filter_map(|node| weight(node.id)).collect();
    let Some(slow) = machine.slow_nodes() else {
        return Vec::new();
    };
    if weights.len() < 2 || weights.iter().any(|other| *other != weights[0]) {
        return Vec::new();
    }
    let found = note(
        "weighted interleave gives all nodes the same weight",
        format!(
            "programs that use it put as many pages on {slow} as on the top tier; the weights in /{INTERLEAVE} shall be as the bandwidths"
        ),
    );
    let auto = ["auto", "__auto_type"].map(|name| format!("{INTERLEAVE}/{name}"));
    let auto = auto
        .iter()
        .find_map(|file| Some((file, machine.text(file)?)));
    vec![match auto {
        Some((file, on)) if on == "false" => found.set(file, "true"),
        _ => found,
    }]
}

/// The kdamonds of DAMON's sysfs, but the daemon's.
fn kdamonds(machine: &Machine) -> Vec<String> {
    // The daemon takes DAMON only where nobody else has it.
    if running_daemon(machine).is_some_and(|status| status.source.name == "damon") {
        return Vec::new();
    }
    machine.entries(KDAMONDS, "")
}

fn is(machine: &Machine, kdamond: &str, state: &str) -> bool {
    machine
        .text(&format!("{KDAMONDS}/{kdamond}/state"))
        .as_deref()
        == Some(state)
}

fn damon(machine: &Machine) -> Vec<Finding> {
    let mut found = Vec::new();
    for (module, does) in [
        ("damon_stat", "it takes CPU time for statistics"),
        ("damon_reclaim", "it swaps cold pages out and demotes none"),
        (
            "damon_lru_sort",
            "it sorts the LRU lists, by which pages are demoted",
        ),
    ] {
        let file = format!("sys/module/{module}/parameters/enabled");
        if matches!(machine.text(&file).as_deref(), Some("Y" | "1")) {
            let why = format!("{does}, and other users of DAMON may be refused");
            found.push(note(format!("{module} is on"), why).set(&file, "N"));
        }
    }
    let count = format!("{KDAMONDS}/nr_kdamonds");
    let kdamonds = kdamonds(machine);
    let set_up = machine.number(&count).filter(|_| !kdamonds.is_empty());
    if set_up > Some(0) && kdamonds.iter().all(|number| is(machine, number, "off")) {
        let what = format!("of {} kdamonds set up none is on", kdamonds.len());
        let why =
            "memferryd leaves DAMON to whoever did so; the command is for where nobody needs them";
        found.push(note(what, why).set(&count, "0"));
    }
    for number in kdamonds.iter().filter(|number| is(machine, number, "on")) {
        let pid = machine.text(&format!("{KDAMONDS}/{number}/pid"));
        let pid = pid.map_or_else(String::new, |pid| format!(" (pid {pid})"));
        // No command: the kdamond belongs to somebody, who may need it.
        found.push(note(
            format!("kdamond {number}{pid} is on"),
            "somebody uses DAMON: a second user of its sysfs would replace those settings",
        ));
    }
    let pghot = machine.number("proc/sys/vm/pghot_enabled_sources");
    let is_hidden = machine.is_hidden(&count);
    if machine.slow_nodes().is_some()
        && pghot.is_none()
        && machine.number(&count).is_none()
        && !is_hidden
    {
        found.push(
            note(
                "this kernel has no DAMON in sysfs (CONFIG_DAMON_SYSFS)",
                "memferryd finds hot pages by it, else by what perf samples",
            )
            .only(Use::Daemon),
        );
    }
    if is_hidden {
        found.push(
            note(
                "who uses DAMON is not known",
                "only root may read its files",
            )
            .mend("sudo memferry doctor"),
        );
    }
    found
}

/// That the limits of cgroups are asked to be of each tier.
fn tiered_limits(machine: &Machine) -> Vec<Finding> {
    if machine.slow_nodes().is_none() || !asked_for(&machine.root) {
        return Vec::new();
    }
    vec![note(
        "the kernel was booted with cgroup.memory=tiered_limits",
        "one with that series splits the limits of cgroups by tier, another ignores it; memferryd takes memory.min and memory.low for what it \
         protects of a group without `protect`",
    )]
}

/// Files of PSI that tell nothing: the kernel was booted with psi=0, or has none.
fn pressure(machine: &Machine) -> Vec<Finding> {
    let files = ["memory", "cpu"].map(|resource| format!("proc/pressure/{resource}"));
    let mut silent = files
        .iter()
        .filter(|file| psi(&machine.root, file).is_none());
    let (Some(_), Some(file)) = (machine.slow_nodes(), silent.next()) else {
        return Vec::new();
    };
    vec![note(
        format!("/{file} is missing or empty"),
        "memferryd does not slow down while programs wait for memory or CPUs; boot with psi=1 on the kernel's command line",
    )]
}

/// The status of a daemon that runs: a killed one leaves its file.
pub fn running_daemon(machine: &Machine) -> Option<Status> {
    let status = Status::read(&machine.root).ok()?;
    status.is_of_a_process(&machine.root).then_some(status)
}

/// Whether a daemon moves pages up itself, rather than let the kernel do so.
fn promotes(status: &Status) -> bool {
    status.act && !["pghot", "numa-balancing"].contains(&&*status.source.name)
}

/// A daemon that runs and says of itself that something fails: its configuration, its source, its history; or whose source is weak.
fn daemon(machine: &Machine) -> Vec<Finding> {
    let Some(status) = running_daemon(machine) else {
        return Vec::new();
    };
    let pid = status.pid;
    let trouble = status.trouble.map(|trouble| {
        note(
            format!("memferryd (pid {pid}) has trouble"),
            format!("{trouble}; docs/daemon.md says what goes on without it"),
        )
    });
    let samples = status.source.samples;
    let is_weak = samples.is_some_and(|of| of.event == "page-faults");
    let weak = is_weak.then(|| {
        note(
            format!("memferryd (pid {pid}) samples only page faults"),
            "memory that is in use and does not fault looks idle to it; take another source if there is one",
        )
    });
    trouble.into_iter().chain(weak).collect()
}

fn userfaultfd(machine: &Machine) -> Vec<Finding> {
    let file = "proc/sys/vm/unprivileged_userfaultfd";
    let why = "programs of this user cannot move their own memory while they use it";
    let may = machine.has_capability(CAP_SYS_PTRACE) || machine.may_use("dev/userfaultfd");
    match machine.topology.limits.unprivileged_userfaultfd {
        None => vec![note(
            "this kernel has no userfaultfd (CONFIG_USERFAULTFD)",
            why,
        )],
        Some(false) if !may => {
            vec![note("there is userfaultfd, but this user may not use it", why).set(file, "1")]
        }
        Some(_) => Vec::new(),
    }
}

fn uffdio_move(machine: &Machine) -> Vec<Finding> {
    let faults = memferry::probe::known_faults(&machine.topology).into_iter();
    faults
        .map(|fault| note("moves within a program are at risk", fault))
        .collect()
}

fn rights(machine: &Machine) -> Vec<Finding> {
    let needed = [
        (CAP_SYS_NICE, "CAP_SYS_NICE"),
        (CAP_SYS_PTRACE, "CAP_SYS_PTRACE"),
    ];
    let missing = needed
        .iter()
        .filter(|(bit, _)| !machine.has_capability(*bit));
    let missing: Vec<&str> = missing.map(|(_, name)| *name).collect();
    if missing.is_empty() {
        return Vec::new();
    }
    vec![note(
        format!("{} missing", missing.join(" and ")),
        "`memferry move` moves processes of this user alone, and no page that others map too; run it as root",
    )]
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! DAMON's own tiering for the time of one run, with the parameters of `scripts/mem_tier.sh` of damo 3.3: one kdamond watches the near node and
//! demotes, one watches the lower node and promotes.

use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use memferry_daemon::source::damon_absence;
use memferry_linux::damon::{Context, KDAMONDS, Setup};
use memferry_linux::zones::spans;

use super::cost::thread_seconds;
use super::mover::Done;
use super::place::Place;
use crate::failure::Failure;
use crate::region::PAGE;
use crate::restore::Restore;

/// How many kdamonds there are.
const COUNT: &str = "sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds";
/// The numbers of the kdamonds.
const DEMOTING: usize = 0;
const PROMOTING: usize = 1;

/// mem_tier.sh: the intervals begin with damo's usual ones. DAMON tunes them so that it sees 4% of the accesses that it could see in three
/// aggregations, between 5 ms and 10 s from sample to sample.
const INTERVALS_US: [u32; 3] = [5_000, 100_000, 1_000_000];
const INTERVALS_GOAL: [(&str, u32); 4] = [
    ("access_bp", 400),
    ("aggrs", 3),
    ("min_sample_us", 5_000),
    ("max_sample_us", 10_000_000),
];
const REGIONS: [usize; 2] = [10, 1000];
/// mem_tier.sh: once a second, and 200 MiB then at most.
const APPLY_US: u32 = 1_000_000;
const QUOTA_BYTES: u64 = 200 << 20;
const QUOTA_MS: u32 = 1000;
/// mem_tier.sh: of the top node 0.5% are to be free, and 99.7% are to be used.
const FREE_BP: u32 = 50;
const USED_BP: u32 = 9970;
/// How DAMON comes from the goal to the quota. `consist` begins with a byte and goes up by the part of the goal that is missing, once a second;
/// `temporal` takes the whole quota until the goal is reached, and nothing then. mem_tier.sh leaves it at `consist`, which is all that Linux
/// before 7.1 has.
pub const TUNERS: [&str; 2] = ["consist", "temporal"];
/// How often the promoting kdamond brings its counts up to date in sysfs.
const REFRESH_MS: u32 = 100;

/// DAMON answers EBUSY while a kdamond brings its counts up to date.
const TRIES: usize = 100;
const PATIENCE: Duration = Duration::from_millis(5);

/// What a kdamond is told, beside what both are.
struct Scheme {
    kdamond: usize,
    /// The node that it watches, and the one that pages go to.
    from: u32,
    to: u32,
    action: &'static str,
    accesses: std::ops::RangeInclusive<u32>,
    /// What is wanted of the top node.
    goal: (&'static str, u32),
    /// Whether a page that was accessed since the last look is moved, or one that was not.
    allow_young: bool,
}

fn schemes(place: &Place) -> [Scheme; 2] {
    [
        Scheme {
            kdamond: DEMOTING,
            from: place.near,
            to: place.lower,
            action: "migrate_cold",
            accesses: 0..=0,
            goal: ("node_mem_free_bp", FREE_BP),
            allow_young: false,
        },
        Scheme {
            kdamond: PROMOTING,
            from: place.lower,
            to: place.near,
            action: "migrate_hot",
            // 5% of the samples of an aggregation, which are 20.
            accesses: 1..=u32::MAX,
            goal: ("node_mem_used_bp", USED_BP),
            allow_young: true,
        },
    ]
}

/// All files of both kdamonds, but for their states.
fn setup(place: &Place, tuner: &str, zoneinfo: &str) -> Setup {
    let mut setup = Setup::default();
    setup.put(COUNT.to_owned(), 2);
    for of in schemes(place) {
        let context = Context {
            operations: "paddr",
            intervals_us: INTERVALS_US,
            regions: REGIONS,
            targets: 1,
            schemes: 1,
        };
        let context = setup.context(of.kdamond, &context);
        for (name, value) in INTERVALS_GOAL {
            let goal = format!("{context}/monitoring_attrs/intervals/intervals_goal/{name}");
            setup.put(goal, value);
        }
        let regions = format!("{context}/targets/0/regions");
        let spans = spans(zoneinfo, of.from);
        setup.put(format!("{regions}/nr_regions"), spans.len());
        for (index, span) in spans.iter().enumerate() {
            setup.put(format!("{regions}/{index}/start"), span.start);
            setup.put(format!("{regions}/{index}/end"), span.end);
        }
        let scheme = setup.scheme(&context, 0, of.action, APPLY_US, of.accesses);
        setup.put(format!("{scheme}/target_nid"), of.to);
        let quotas = format!("{scheme}/quotas");
        setup.put(format!("{quotas}/bytes"), QUOTA_BYTES);
        setup.put(format!("{quotas}/reset_interval_ms"), QUOTA_MS);
        for weight in ["sz", "nr_accesses", "age"] {
            setup.put(format!("{quotas}/weights/{weight}_permil"), 1);
        }
        if tuner != TUNERS[0] {
            setup.put(format!("{quotas}/goal_tuner"), tuner);
        }
        setup.put(format!("{quotas}/goals/nr_goals"), 1);
        let (metric, value) = of.goal;
        setup.put(format!("{quotas}/goals/0/target_metric"), metric);
        setup.put(format!("{quotas}/goals/0/target_value"), value);
        setup.put(format!("{quotas}/goals/0/nid"), place.near);
        setup.put(format!("{scheme}/filters/nr_filters"), 1);
        setup.put(format!("{scheme}/filters/0/type"), "young");
        setup.put(format!("{scheme}/filters/0/matching"), "Y");
        let allow = if of.allow_young { "Y" } else { "N" };
        setup.put(format!("{scheme}/filters/0/allow"), allow);
    }
    setup.put(format!("{KDAMONDS}/{PROMOTING}/refresh_ms"), REFRESH_MS);
    setup
}

/// What a killed benchmark leaves, with what it was before: the states first, because a kdamond that runs cannot be removed.
pub fn made() -> Vec<(String, String)> {
    let state = |kdamond| (state(kdamond), "off".to_owned());
    let count = (COUNT.to_owned(), "0".to_owned());
    vec![state(DEMOTING), state(PROMOTING), count]
}

fn state(kdamond: usize) -> String {
    format!("{KDAMONDS}/{kdamond}/state")
}

/// Why DAMON does not tier here, and what would help; `None` if it does. Only the kernel knows what it takes, so it is asked: all but the
/// states is written, and taken away.
///
/// # Errors
/// See [`Restore::new`].
pub fn absence(
    root: &Path,
    place: &Place,
    tuner: &str,
) -> Result<Option<(String, String)>, Failure> {
    if let Some(why) = damon_absence(root) {
        let next = "boot Linux 6.17 or newer with CONFIG_DAMON_SYSFS=y and CONFIG_DAMON_PADDR=y, be root, and end what else uses DAMON";
        return Ok(Some((why, next.to_owned())));
    }
    let mut restore = Restore::new(root, &[COUNT])?;
    restore.begin()?;
    let refused = set_up(root, place, tuner).err();
    restore.bring_back()?;
    Ok(refused.map(|(file, error)| {
        let why = format!("this kernel's DAMON does not tier: /{file}: {error}");
        let since = if tuner == TUNERS[0] { "6.17" } else { "7.1" };
        let next = format!("boot Linux {since} or newer with CONFIG_DAMON_PADDR=y");
        (why, next)
    }))
}

/// Writes the whole setup; the file that was refused, and why.
fn set_up(root: &Path, place: &Place, tuner: &str) -> Result<(), (String, io::Error)> {
    const ZONES: &str = "proc/zoneinfo";
    let zoneinfo = std::fs::read_to_string(root.join(ZONES));
    let zoneinfo = zoneinfo.map_err(|error| (ZONES.to_owned(), error))?;
    for (file, text) in setup(place, tuner, &zoneinfo).files {
        let told = |error| io::Error::other(format!("{text:?} was refused: {error}"));
        write(root, &file, &text).map_err(|error| (file, told(error)))?;
    }
    Ok(())
}

/// Writes a file that is there.
fn write(root: &Path, file: &str, text: &str) -> io::Result<()> {
    let path = root.join(file);
    for _ in 0..TRIES {
        let file = OpenOptions::new().write(true).truncate(true).open(&path);
        match file.and_then(|mut file| file.write_all(text.as_bytes())) {
            Err(error) if error.kind() == ErrorKind::ResourceBusy => std::thread::sleep(PATIENCE),
            other => return other,
        }
    }
    Err(ErrorKind::ResourceBusy.into())
}

fn read(root: &Path, file: &str) -> Option<String> {
    let text = std::fs::read_to_string(root.join(file)).ok()?;
    Some(text.trim().to_owned())
}

/// Bytes that a kdamond has moved, as sysfs knows it.
fn moved(root: &Path, kdamond: usize) -> Option<u64> {
    let stats = format!("{KDAMONDS}/{kdamond}/contexts/0/schemes/0/stats");
    read(root, &format!("{stats}/sz_applied"))?.parse().ok()
}

/// Pages that DAMON has promoted in the run.
pub fn promoted() -> u64 {
    moved(Path::new("/"), PROMOTING).unwrap_or(0) / PAGE as u64
}

/// DAMON's tiering while it is on.
pub struct Damos {
    root: PathBuf,
}

impl Damos {
    /// Switches it on.
    pub fn start(root: &Path, place: &Place, tuner: &str) -> Result<Self, Failure> {
        let failed = |why: String| {
            let next = "end what else uses DAMON (`memferry doctor` names it), or run other modes";
            Failure::new("cannot begin DAMON's tiering", why, next)
        };
        if let Some(who) = damon_absence(root) {
            return Err(failed(who));
        }
        let damos = Self {
            root: root.to_owned(),
        };
        let refused = |(file, error)| failed(format!("/{file}: {error}"));
        set_up(root, place, tuner).map_err(refused)?;
        for kdamond in [DEMOTING, PROMOTING] {
            let state = state(kdamond);
            write(root, &state, "on").map_err(|error| refused((state, error)))?;
        }
        Ok(damos)
    }

    /// Switches it off; what it did. A kdamond does both, so its CPU time is the source's.
    pub fn end(self) -> Result<Done, Failure> {
        let mut done = Done::default();
        // First the one that promotes: it is part of the run until then.
        for kdamond in [PROMOTING, DEMOTING] {
            let (bytes, cpu_s) = self.stop(kdamond).map_err(|why| {
                Failure::new(
                    "DAMON's tiering did not last until the end of the run",
                    format!("kdamond {kdamond}: {why}"),
                    "end what else uses DAMON (`memferry doctor` names it), or run other modes",
                )
            })?;
            let pages = bytes / PAGE as u64;
            match kdamond {
                PROMOTING => done.promoted_pages = pages,
                _ => done.demoted_pages = pages,
            }
            done.source_cpu_s += cpu_s;
        }
        Ok(done)
    }

    /// Ends a kdamond: the bytes that it moved, and its CPU seconds.
    fn stop(&self, kdamond: usize) -> Result<(u64, f64), String> {
        let state = state(kdamond);
        let pid = read(&self.root, &format!("{KDAMONDS}/{kdamond}/pid")).unwrap_or_default();
        let set =
            |text| write(&self.root, &state, text).map_err(|error| format!("{text}: {error}"));
        // The kernel answers after the next sample.
        set("update_schemes_stats")?;
        let bytes = moved(&self.root, kdamond).ok_or("sysfs has no count of what it moved")?;
        let cpu_s = thread_seconds(&self.root.join("proc").join(pid)).unwrap_or(0.0);
        set("off")?;
        Ok((bytes, cpu_s))
    }
}

impl Drop for Damos {
    fn drop(&mut self) {
        // What does not work here, the restored settings tell.
        for (file, before) in made() {
            if read(&self.root, &file).is_some_and(|now| now != before) {
                let _ = write(&self.root, &file, &before);
            }
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::synthetic::{machine, put};

    pub fn place() -> Place {
        Place {
            lower: 2,
            near: 0,
            top: vec![0, 1],
            cpus: vec![0],
        }
    }

    const ZONES: &str = "Node 0, zone DMA\n spanned 4095\n start_pfn: 1\nNode 0, zone Normal\n spanned 10\n start_pfn: 5000\n\
                         Node 2, zone Normal\n spanned 100\n start_pfn: 10000\n";

    /// A kernel with all that is written. Files of a folder do not come and go as the kernel's do.
    pub fn kernel() -> tempfile::TempDir {
        let root = machine(&[("proc/zoneinfo", ZONES)]);
        for (file, _) in setup(&place(), TUNERS[1], ZONES).files {
            put(root.path(), &file, "");
        }
        for (file, before) in made() {
            put(root.path(), &file, &before);
        }
        for kdamond in [DEMOTING, PROMOTING] {
            let stats = format!("{KDAMONDS}/{kdamond}/contexts/0/schemes/0/stats/sz_applied");
            let bytes = (kdamond + 3) * PAGE;
            put(root.path(), &stats, &bytes.to_string());
            let pid = 70 + kdamond;
            put(
                root.path(),
                &format!("{KDAMONDS}/{kdamond}/pid"),
                &pid.to_string(),
            );
            put(
                root.path(),
                &format!("proc/{pid}/schedstat"),
                "1500000000 0 1\n",
            );
        }
        root
    }

    fn said(root: &Path, file: &str) -> String {
        read(root, &format!("{KDAMONDS}/{file}")).expect("file")
    }

    #[test]
    fn both_kdamonds_are_told_what_the_sample_tells_them_and_all_comes_back() {
        let root = kernel();
        let root = root.path();
        assert_eq!(absence(root, &place(), TUNERS[0]).expect("settings"), None);
        assert_eq!(
            (said(root, "nr_kdamonds"), said(root, "0/state")),
            ("0".to_owned(), "off".to_owned())
        );
        let damos = Damos::start(root, &place(), TUNERS[0]).expect("start");
        assert_eq!(said(root, "nr_kdamonds"), "2");
        for (kdamond, expected) in [
            (
                0,
                "on paddr 400 2 4096 16777216 migrate_cold 0 0 2 209715200 node_mem_free_bp 50 0 N",
            ),
            (
                1,
                "on paddr 400 1 40960000 41369600 migrate_hot 1 4294967295 0 209715200 node_mem_used_bp 9970 0 Y",
            ),
        ] {
            let scheme = "contexts/0/schemes/0";
            let files = [
                "state",
                "contexts/0/operations",
                "contexts/0/monitoring_attrs/intervals/intervals_goal/access_bp",
                "contexts/0/targets/0/regions/nr_regions",
                "contexts/0/targets/0/regions/0/start",
                "contexts/0/targets/0/regions/0/end",
                &format!("{scheme}/action"),
                &format!("{scheme}/access_pattern/nr_accesses/min"),
                &format!("{scheme}/access_pattern/nr_accesses/max"),
                &format!("{scheme}/target_nid"),
                &format!("{scheme}/quotas/bytes"),
                &format!("{scheme}/quotas/goals/0/target_metric"),
                &format!("{scheme}/quotas/goals/0/target_value"),
                &format!("{scheme}/quotas/goals/0/nid"),
                &format!("{scheme}/filters/0/allow"),
            ];
            let told = files.map(|file| said(root, &format!("{kdamond}/{file}")));
            assert_eq!(told.join(" "), expected);
        }
        assert!(
            Damos::start(root, &place(), TUNERS[0]).is_err(),
            "it is taken"
        );
        let done = damos.end().expect("end");
        assert_eq!((done.promoted_pages, done.demoted_pages), (4, 3));
        assert!((done.source_cpu_s - 3.0).abs() < 1e-9 && done.cpu_s == 0.0);
        for (file, before) in made() {
            assert_eq!(read(root, &file), Some(before), "{file}");
        }
    }

    #[test]
    fn a_kernel_that_lacks_something_is_told_with_the_file() {
        let root = kernel();
        let goal = format!("{KDAMONDS}/0/contexts/0/schemes/0/quotas/goals/0/nid");
        std::fs::remove_file(root.path().join(&goal)).expect("remove");
        let (why, next) = absence(root.path(), &place(), TUNERS[0])
            .expect("settings")
            .expect("absent");
        assert!(why.contains(&goal) && next.contains("6.17"), "{why} {next}");
        assert_eq!(said(root.path(), "nr_kdamonds"), "0");
        assert!(Damos::start(root.path(), &place(), TUNERS[0]).is_err());
        assert_eq!(said(root.path(), "nr_kdamonds"), "0");
        put(root.path(), &goal, "");
        let of = |tuner| absence(root.path(), &place(), tuner).expect("settings");
        assert_eq!(of(TUNERS[1]), None);
        let file = format!("{KDAMONDS}/1/contexts/0/schemes/0/quotas/goal_tuner");
        assert_eq!(read(root.path(), &file), Some(TUNERS[1].to_owned()));
        std::fs::remove_file(root.path().join(&file)).expect("remove");
        assert!(of(TUNERS[0]).is_none() && of(TUNERS[1]).is_some_and(|of| of.1.contains("7.1")));
        put(root.path(), COUNT, "1");
        let (why, _) = absence(root.path(), &place(), TUNERS[0])
            .expect("settings")
            .expect("absent");
        assert!(why.contains("somebody else"), "{why}");
        assert_eq!(said(root.path(), "nr_kdamonds"), "1");
    }

    #[test]
    fn what_is_not_ended_is_off_when_it_goes() {
        let root = kernel();
        drop(Damos::start(root.path(), &place(), TUNERS[0]).expect("start"));
        for (file, before) in made() {
            assert_eq!(read(root.path(), &file), Some(before), "{file}");
        }
    }
}

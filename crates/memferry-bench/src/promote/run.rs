// SPDX-License-Identifier: MIT OR Apache-2.0
//! One run: starts its process, switches the mode on for the time of its accesses, and makes a row of what both saw.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use super::control::Control;
use super::cost::Cost;
use super::mode::Mode;
use super::mover::{Done, Mover};
use super::place::Place;
use super::spec::{Job, Message, Seen, Spec};
use super::watch::promoted_of;
use crate::args::promote::Scenario;
use crate::failure::{Failure, OrFail};
use crate::schema::FromTo;
use crate::schema::promote::PromoteRow;
use crate::ui::Ui;

/// The name of a run's process.
pub const NAME: &str = "promote-run";

/// How often it is looked whether the user wants to stop.
const PATIENCE: Duration = Duration::from_millis(100);

/// How often the rate of accesses is measured at most, and by how much more a try must find for another one.
const RATE_TRIES: usize = 5;
const RATE_GAIN: f64 = 1.1;

/// What all runs share.
pub struct Bench<'a> {
    pub root: &'a Path,
    pub place: Place,
    pub control: Control,
    pub ui: &'a Ui,
}

impl Bench<'_> {
    /// One run; none if the user stopped it.
    pub fn run(
        &mut self,
        scenario: Scenario,
        mode: &Mode,
        round: usize,
        spec: &Spec,
    ) -> Result<Option<PromoteRow>, Failure> {
        let measured = self.measure(mode, spec)?;
        Ok(measured.map(|of| row(scenario, mode, round, spec, &self.place, &of)))
    }

    /// How many accesses a thread makes in a second while nothing promotes; none if the user stopped it.
    ///
    /// What disturbs the machine makes it look slower than it is, and the runs would be too short. So it is measured
    /// until it gets no faster.
    pub fn rate(&mut self, spec: &Spec) -> Result<Option<f64>, Failure> {
        let none = Mode::plain("none");
        let spec = Spec {
            accesses: u64::MAX,
            most_ms: Some(1000),
            regions: 1,
            fill: false,
            ..spec.clone()
        };
        let mut fastest = 0.0_f64;
        for _ in 0..RATE_TRIES {
            let Some(of) = self.measure(&none, &spec)? else {
                return Ok(None);
            };
            let rate = of.seen.accesses as f64 / spec.threads as f64 / of.seen.seconds;
            if rate < fastest * RATE_GAIN {
                return Ok(Some(fastest.max(rate)));
            }
            fastest = rate;
        }
        Ok(Some(fastest))
    }

    fn measure(&mut self, mode: &Mode, spec: &Spec) -> Result<Option<Measured<Seen>>, Failure> {
        let job = Job::Scenario(Spec {
            counter: mode.counter(),
            ..spec.clone()
        });
        let seen = |message| match message {
            Message::Done(seen) => Some(*seen),
            _ => None,
        };
        self.drive(mode, &job, seen)
    }

    /// Has a process do its accesses while a mode is on, and compare its memory; none if the user stopped it. `seen` takes what it says
    /// of the accesses.
    pub fn drive<T>(
        &mut self,
        mode: &Mode,
        job: &Job,
        seen: impl Fn(Message) -> Option<T>,
    ) -> Result<Option<Measured<T>>, Failure> {
        self.control.off()?;
        let mut process = Process::start(job)?;
        let Some(Message::Ready { filled, locked }) = process.hear(self.ui)? else {
            return self.ended_early();
        };
        let process_name = job.process();
        let Some(mover) = Mover::start(mode, self.root, process_name, &self.place, self.ui)? else {
            return Ok(None);
        };
        let before = Cost::read(self.root)?;
        self.control.on(mode)?;
        process.say()?;
        let heard = process.hear(self.ui);
        // Off before anything else: what is promoted now is not part of the run.
        let moved = mover.end();
        self.control.off()?;
        let Some(seen) = heard?.and_then(seen) else {
            return self.ended_early();
        };
        let cost = Cost::read(self.root)?.since(&before);
        let moved = moved?;
        process.say()?;
        let Some(Message::Checked(verified)) = process.hear(self.ui)? else {
            return self.ended_early();
        };
        Ok(Some(Measured {
            seen,
            cost,
            moved,
            filled,
            locked,
            verified,
        }))
    }

    fn ended_early<T>(&self) -> Result<Option<Measured<T>>, Failure> {
        match self.ui.stopped() {
            true => Ok(None),
            false => Err(Failure::new(
                "a run did not say what was expected of it",
                "its process is of another version of memferry",
                "install memferry as a whole, then run it again",
            )),
        }
    }
}

/// What one run came to.
pub struct Measured<T> {
    /// What its process saw.
    pub seen: T,
    pub cost: Cost,
    /// What the daemon or DAMON did, where it promotes.
    pub moved: Option<Done>,
    pub filled: u64,
    pub locked: u64,
    pub verified: u64,
}

impl<T> Measured<T> {
    /// Pages promoted: by the count of the daemon or of DAMON where that promotes.
    pub fn promoted(&self) -> u64 {
        let of_kernel = || promoted_of(&self.cost.counters);
        (self.moved.as_ref()).map_or_else(of_kernel, |of| of.promoted_pages)
    }

    /// Pages demoted, by reclaim and by the daemon or DAMON.
    pub fn demoted(&self) -> u64 {
        self.cost.demoted() + self.moved.unwrap_or_default().demoted_pages
    }

    /// CPU seconds of what finds hot pages: with hint faults those that the accessing threads spent in the kernel, too.
    pub fn tracker_s(&self, mode: &Mode, system_s: f64) -> f64 {
        let faults = if mode.has_hint_faults() {
            system_s
        } else {
            0.0
        };
        self.cost.tracker_s + faults + self.moved.unwrap_or_default().source_cpu_s
    }

    /// CPU seconds of what migrates; not known where the accessing threads do that, or what finds hot pages.
    pub fn migration_s(&self, mode: &Mode) -> Option<f64> {
        let all = self.cost.migration_s + self.moved.unwrap_or_default().cpu_s;
        (!["numab2", "damos"].contains(&mode.name)).then_some(all)
    }
}

fn row(
    scenario: Scenario,
    mode: &Mode,
    round: usize,
    spec: &Spec,
    place: &Place,
    measured: &Measured<Seen>,
) -> PromoteRow {
    let Measured { seen, cost, .. } = measured;
    let promoted = measured.promoted();
    let seen_hot: u64 = seen.regions.iter().map(|region| region.arrived_pages).sum();
    // Where a page stands for its neighbours, more can seem to arrive than the kernel promoted; it counts all it promotes.
    let hot = if promoted > 0 {
        seen_hot.min(promoted)
    } else {
        seen_hot
    };
    let mean = |values: Vec<f64>| values.iter().sum::<f64>() / values.len().max(1) as f64;
    // One region that never arrives leaves the time without a value: a mean of the others would flatter it.
    let reached: Option<Vec<f64>> = seen.regions.iter().map(|region| region.reached_s).collect();
    let first = seen.promoted.first().map_or(0, |&(_, count)| count);
    PromoteRow {
        scenario: scenario.number(),
        mode: mode.name.to_owned(),
        source: mode.source.map(str::to_owned),
        record: mode.record.clone(),
        run: round,
        seconds: seen.seconds,
        hot_in_top_95_s: reached.filter(|of| !of.is_empty()).map(mean),
        promoted_pages: promoted,
        promoted_hot_pages: hot,
        demoted_pages: measured.demoted(),
        top_share: seen.top_accesses / (seen.accesses.max(1)) as f64,
        // A page that came and went between two looks is in the kernel's count only, and so counts against precision.
        precision: (promoted.max(hot) > 0).then(|| hot as f64 / promoted.max(hot) as f64),
        recall: mean(seen.regions.iter().map(|region| region.share).collect()),
        tracker_cpu_s: measured.tracker_s(mode, seen.system_s),
        migration_cpu_s: measured.migration_s(mode),
        demotion_cpu_s: cost.demotion_s,
        access_system_s: seen.system_s,
        hint_faults: cost.counter("numa_hint_faults"),
        threads: spec.threads,
        accesses: seen.accesses,
        region_bytes: spec.region_bytes as u64,
        regions: spec.regions,
        fill_bytes: measured.filled,
        locked_bytes: measured.locked,
        nodes: FromTo {
            from: place.lower,
            to: place.near,
        },
        verified_bytes: measured.verified,
        counters: cost.told(),
        timeline: thin(&seen.promoted, |&(at, count)| {
            (at, count.saturating_sub(first))
        }),
        hot_timeline: thin(&seen.hot, |&of| of),
    }
}

/// Points of a timeline: more show nothing more.
pub const POINTS: usize = 240;

/// Some of the points, evenly, with the first and the last.
fn thin<T, U>(points: &[T], make: impl Fn(&T) -> U) -> Vec<U> {
    let step = points.len().div_ceil(POINTS).max(1);
    let last = points.len().saturating_sub(1);
    let kept = points.iter().enumerate();
    kept.filter(|(at, _)| at % step == 0 || *at == last)
        .map(|(_, point)| make(point))
        .collect()
}

/// The process of a run; it ends with the value.
struct Process {
    child: Child,
    heard: Receiver<String>,
}

impl Process {
    fn start(job: &Job) -> Result<Self, Failure> {
        let (failed, next) = (
            "cannot start the process of a run",
            "run memferry from a file that is still there",
        );
        let spec = serde_json::to_string(job)
            .or_fail("cannot write the run as JSON", "report this as a bug")?;
        let program = std::env::current_exe().or_fail(failed, next)?;
        let mut child = Command::new(program)
            .args(["promote-run", &spec])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // A Ctrl-C of the terminal is for the command, which then ends this.
            .process_group(0)
            .spawn()
            .or_fail(failed, next)?;
        let (told, heard) = channel();
        if let Some(stdout) = child.stdout.take() {
            std::thread::spawn(move || {
                let lines = BufReader::new(stdout).lines().map_while(Result::ok);
                // The receiver goes when the run is over.
                lines.map(|line| told.send(line)).find(Result::is_err)
            });
        }
        Ok(Self { child, heard })
    }

    /// What it says next; none if the user stopped it.
    fn hear(&mut self, ui: &Ui) -> Result<Option<Message>, Failure> {
        loop {
            if ui.stopped() {
                return Ok(None);
            }
            match self.heard.recv_timeout(PATIENCE) {
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(self.died()),
                Ok(line) => {
                    return match serde_json::from_str(&line) {
                        Ok(Message::Failed([what, why, next])) => {
                            Err(Failure::new(what, why, next))
                        }
                        Ok(message) => Ok(Some(message)),
                        Err(error) => Err(Failure::new(
                            "a run said nothing useful",
                            error,
                            "report this as a bug",
                        )),
                    };
                }
            }
        }
    }

    /// Lets it go on.
    fn say(&mut self) -> Result<(), Failure> {
        let stdin = self.child.stdin.as_mut();
        match stdin.map(|stdin| stdin.write_all(b"go\n")) {
            Some(Ok(())) => Ok(()),
            _ => Err(self.died()),
        }
    }

    fn died(&mut self) -> Failure {
        let ended = self.child.wait();
        let status = ended.map_or_else(|error| error.to_string(), |status| status.to_string());
        Failure::new(
            "the process of a run ended early",
            status,
            "if the kernel killed it for want of memory (dmesg tells), give a smaller --size",
        )
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::promote::spec::RegionSeen;

    fn measured(reached: &[Option<f64>], promoted: u64) -> Measured<Seen> {
        let region = |&reached_s: &Option<f64>| RegionSeen {
            reached_s,
            arrived_pages: 100,
            share: 0.5,
        };
        let counter = |name: &str, count: u64| (name.to_owned(), count);
        Measured {
            seen: Seen {
                seconds: 4.0,
                accesses: 1000,
                top_accesses: 250.0,
                system_s: 0.5,
                regions: reached.iter().map(region).collect(),
                promoted: vec![(0.0, 70), (1.0, 90)],
                hot: vec![(0.0, 0.0)],
            },
            cost: Cost {
                counters: [
                    counter("pgpromote_success", promoted),
                    counter("pgdemote_kswapd", 3),
                    counter("numa_hint_faults", 8),
                ]
                .into(),
                tracker_s: 0.25,
                migration_s: 0.125,
                demotion_s: 0.0,
            },
            moved: None,
            filled: 0,
            locked: 0,
            verified: 4096,
        }
    }

    fn of(
        name: &'static str,
        source: Option<&'static str>,
        measured: &Measured<Seen>,
    ) -> PromoteRow {
        let mode = Mode {
            source,
            ..Mode::plain(name)
        };
        let spec = Spec {
            regions: 2,
            region_bytes: 2 << 20,
            threads: 1,
            ..Spec::default()
        };
        let place = Place {
            lower: 2,
            near: 0,
            top: vec![0],
            cpus: vec![0],
        };
        row(Scenario::Full, &mode, 1, &spec, &place, measured)
    }

    #[test]
    fn shares_come_from_what_was_seen_and_counted() {
        let row = of(
            "pghot",
            Some("pgtscan"),
            &measured(&[Some(1.0), Some(3.0)], 400),
        );
        assert_eq!(row.hot_in_top_95_s, Some(2.0));
        assert_eq!(
            (
                row.promoted_pages,
                row.promoted_hot_pages,
                row.demoted_pages
            ),
            (400, 200, 3)
        );
        assert_eq!(row.precision, Some(0.5));
        assert!((row.top_share - 0.25).abs() < 1e-9 && (row.recall - 0.5).abs() < 1e-9);
        assert_eq!(row.timeline, [(0.0, 0), (1.0, 20)]);
        assert_eq!(row.case(), "pghot pgtscan");
    }

    #[test]
    fn a_region_that_never_arrived_leaves_no_time() {
        let row = of("numab2", None, &measured(&[Some(1.0), None], 0));
        assert_eq!(row.hot_in_top_95_s, None);
        assert_eq!(
            row.precision,
            Some(1.0),
            "seen, though the kernel counts none"
        );
    }

    #[test]
    fn time_in_the_kernel_is_the_trackers_where_faults_track() {
        let measured = measured(&[None], 1);
        let cost = |name, source| {
            let row = of(name, source, &measured);
            (row.tracker_cpu_s, row.migration_cpu_s)
        };
        assert_eq!(cost("pghot", Some("pgtscan")), (0.25, Some(0.125)));
        assert_eq!(cost("pghot", Some("hintfaults")), (0.75, Some(0.125)));
        assert_eq!(cost("numab2", None), (0.75, None));
        assert_eq!(cost("none", None), (0.25, Some(0.125)));
    }

    #[test]
    fn what_the_daemon_moved_and_took_is_the_rows() {
        let mut measured = measured(&[None], 0);
        measured.moved = Some(Done {
            promoted_pages: 160,
            demoted_pages: 60,
            cpu_s: 0.5,
            source_cpu_s: 1.0,
        });
        let row = of("daemon", Some("damon"), &measured);
        assert_eq!((row.promoted_pages, row.demoted_pages), (160, 63));
        assert_eq!(row.precision, Some(100.0 / 160.0));
        assert_eq!(
            (row.tracker_cpu_s, row.migration_cpu_s),
            (1.25, Some(0.625))
        );
    }

    #[test]
    fn a_long_timeline_keeps_its_ends() {
        let points: Vec<usize> = (0..1000).collect();
        let kept = thin(&points, |&point| point);
        assert!(kept.len() <= POINTS + 1, "{}", kept.len());
        assert_eq!((kept.first(), kept.last()), (Some(&0), Some(&999)));
        assert_eq!(thin(&[1, 2], |&point| point), [1, 2]);
    }
}

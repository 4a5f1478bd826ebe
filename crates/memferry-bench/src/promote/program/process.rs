// SPDX-License-Identifier: MIT OR Apache-2.0
//! The process of a run of a program: starts and fills it, places its pages, is its client while the clock runs, and compares the
//! values of all keys afterwards.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use super::client::Client;
use super::server::{Page, Server, file_name};
use super::spec::{ProgramSeen, ProgramSpec, Room};
use crate::failure::{Failure, OrFail};
use crate::promote::filling::{Filling, Want, left_for};
use crate::promote::place::room_to_fill;
use crate::promote::spec::Message;
use crate::promote::worker::{await_word, look_from_elsewhere, say};
use crate::promote::workload::spec::{Placing, Sample};
use crate::promote::workload::zipf::Scatter;
use crate::region::PAGE;
use crate::schema::gain::Truth;
use crate::stall::quantiles;
use crate::timed;

/// Of the pages that are to be moved, so many must come: a few are held or were freed.
const CAME: f64 = 0.95;
/// What may be free of a node beside the room: what the kernel frees meanwhile.
const FREED: usize = 32 << 20;
/// Operations between two looks at the clock.
const PART: u64 = 64;
/// The last part of a run whose latencies are also counted by themselves.
const LAST: f64 = 0.75;
/// Frames whose misses are asked for at a time.
const FRAMES: u64 = 32 << 10;

/// Serves one run to the process at the other end of stdin and stdout.
pub fn run(spec: &ProgramSpec) -> Result<(), Failure> {
    look_from_elsewhere(&spec.cpus);
    let mut server = Server::start(spec.program, &spec.cpus)?;
    let mut client = Client::new(spec.program, spec.keys, spec.skew, spec.seed);
    client
        .load(&mut server.links)
        .map_err(|error| wrong(spec, &error))?;
    let pages: Vec<usize> = server.pages()?.iter().map(|page| page.0).collect();
    let bytes = (pages.len() * PAGE) as u64;
    let room = match spec.room {
        Room::All => bytes,
        Room::Part => bytes / 8 * 3,
        Room::Bytes(bytes) => bytes,
    };
    let mut filling = Filling::default();
    let mut placed = Vec::new();
    if spec.placing != Placing::All {
        came(server.bring(&pages, spec.lower)?, pages.len(), spec.lower)?;
        let want = Want {
            top: &spec.top,
            threads: 1,
            idle_bytes: Some(0),
            left_bytes: left_for(spec.placing, room),
        };
        filling = Filling::new(&want)?;
        filling.check_full(&want, FREED)?;
        placed = chosen(spec, &pages, room as usize / PAGE)?;
        place(&server, spec, &placed)?;
    }
    say(&Message::Ready {
        filled: filling.bytes(),
        locked: filling.locked_bytes(),
    })?;
    await_word()?;
    let before = in_top(&server, spec, &placed)?;
    let mut seen = ProgramSeen {
        bytes,
        room,
        ..work(spec, &mut server, &mut client)?
    };
    let kept = in_top(&server, spec, &placed)?;
    seen.work.placed = (!placed.is_empty()).then_some((before, kept));
    let pages: Vec<usize> = server.pages()?.iter().map(|page| page.0).collect();
    seen.work.pages_in_top = in_top(&server, spec, &pages)?;
    say(&Message::Answered(Box::new(seen)))?;
    await_word()?;
    client
        .check(&mut server.links)
        .map_err(|error| wrong(spec, &error))?;
    say(&Message::Checked(client.compared))
}

fn wrong(spec: &ProgramSpec, error: &io::Error) -> Failure {
    Failure::new(
        format!("{} does not answer as it must", file_name(spec.program)),
        error,
        "run it with --mode none: if that fails too, it is not promotion; the program may be short of memory",
    )
}

fn came(came: usize, of: usize, node: u32) -> Result<(), Failure> {
    match (came as f64) < CAME * of as f64 {
        true => Err(Failure::new(
            "cannot place pages of the program",
            format!("{came} of {of} came to node {node}"),
            "give a smaller --size or --room, or end what uses the memory",
        )),
        false => Ok(()),
    }
}

fn in_top(server: &Server, spec: &ProgramSpec, pages: &[usize]) -> Result<u64, Failure> {
    let count = server
        .count(pages, &spec.top)
        .map_err(crate::nodes::call_failed)?;
    Ok(count as u64)
}

/// The pages that go to the top tier before the clock begins.
fn chosen(spec: &ProgramSpec, pages: &[usize], room: usize) -> Result<Vec<usize>, Failure> {
    match (spec.placing, &spec.misses) {
        (Placing::Random, _) => {
            let scatter = Scatter::new(pages.len(), !spec.seed);
            let random = (0..room.min(pages.len())).map(|of| pages[scatter.place(of)]);
            Ok(random.collect())
        }
        (Placing::Best(most), Some(misses)) => best(misses, pages, most as usize),
        _ => Ok(Vec::new()),
    }
}

/// Of these pages the ones with the most misses, so many at most.
fn best(misses: &Path, pages: &[usize], most: usize) -> Result<Vec<usize>, Failure> {
    let text = fs::read_to_string(misses).or_fail(
        format!(
            "cannot read the misses of mode none in {}",
            misses.display()
        ),
        "run it again, with nothing that deletes temporary files",
    )?;
    let line = |line: &str| {
        let (page, count) = line.split_once(' ')?;
        Some((page.parse::<usize>().ok()?, count.parse::<u64>().ok()?))
    };
    let misses: HashMap<usize, u64> = text.lines().filter_map(line).collect();
    let of = |page: &usize| Some((*page, *misses.get(page)?));
    let mut best: Vec<(usize, u64)> = pages.iter().filter_map(of).collect();
    best.sort_by_key(|of| std::cmp::Reverse(of.1));
    best.truncate(most);
    Ok(best.into_iter().map(|of| of.0).collect())
}

fn place(server: &Server, spec: &ProgramSpec, pages: &[usize]) -> Result<(), Failure> {
    let mut left = pages;
    for &node in &spec.top {
        let fit = left.len().min(room_to_fill(node)? / PAGE);
        let (now, later) = left.split_at(fit);
        server.bring(now, node)?;
        left = later;
    }
    // Promotion may go nearer to the watermarks than what fills the tier.
    server.bring(left, spec.top[0])?;
    let there = in_top(server, spec, pages)? as usize;
    came(there, pages.len(), spec.top[0])
}

/// All operations; what was seen.
fn work(
    spec: &ProgramSpec,
    server: &mut Server,
    client: &mut Client,
) -> Result<ProgramSeen, Failure> {
    let writes = matches!(spec.placing, Placing::Nothing) && spec.misses.is_some();
    if writes {
        timed::watch_frames();
    }
    let told = |error| wrong(spec, &error);
    let mut look = Look::new(spec, server)?;
    let length = Duration::from_secs_f64(spec.seconds);
    let period = Duration::from_millis(spec.sample_ms);
    let (last_from, mut next) = (length.mul_f64(LAST), period);
    let started = Instant::now();
    loop {
        let at = started.elapsed();
        if at >= next || at >= length {
            look.now(started, server, client.operations)?;
            next = at + period;
        }
        if at >= length {
            break;
        }
        for _ in 0..PART {
            client
                .operation(&mut server.links, at >= last_from)
                .map_err(told)?;
        }
    }
    client.finish(&mut server.links).map_err(told)?;
    let seen = look.end(server, client)?;
    if let (true, Some(path)) = (writes, &spec.misses) {
        let misses = misses(&server.pages()?).or_fail(UNANSWERED.0, UNANSWERED.1)?;
        timed::watch(&(0..0));
        let lines = misses
            .iter()
            .map(|(page, count)| format!("{page} {count}\n"));
        fs::write(path, lines.collect::<String>()).or_fail(
            format!("cannot write {}", path.display()),
            "free memory or disk space where temporary files are",
        )?;
    }
    Ok(seen)
}

/// The misses of each page that had some: of its frame, which was its own meanwhile, as nothing moved it.
fn misses(pages: &[Page]) -> io::Result<Vec<(usize, u32)>> {
    let mut frames: Vec<(u64, usize)> = pages.iter().map(|&(page, frame)| (frame, page)).collect();
    frames.sort_unstable();
    let mut misses = Vec::new();
    for part in frames.chunk_by(|a, b| a.0 / FRAMES == b.0 / FRAMES) {
        let first = part[0].0 / FRAMES * FRAMES;
        let start = first as usize * PAGE;
        let counts = timed::misses(&(start..start + FRAMES as usize * PAGE))?;
        let with = part
            .iter()
            .map(|&(frame, page)| (page, counts[(frame - first) as usize]));
        misses.extend(with.filter(|of| of.1 > 0));
    }
    Ok(misses)
}

/// What is seen while the clock runs.
struct Look<'a> {
    spec: &'a ProgramSpec,
    before: Option<Truth>,
    /// At the last sample.
    last: Option<Truth>,
    run_ns: u64,
    system_s: f64,
    samples: Vec<Sample>,
}

impl<'a> Look<'a> {
    fn new(spec: &'a ProgramSpec, server: &Server) -> Result<Self, Failure> {
        let before = truth()?;
        let mut look = Self {
            spec,
            last: before.clone(),
            before,
            run_ns: 0,
            system_s: server.system_s(),
            samples: Vec::new(),
        };
        look.run_ns = run_ns(server)?;
        look.samples.push(Sample {
            promoted: look.promoted(),
            ..Sample::default()
        });
        Ok(look)
    }

    fn promoted(&self) -> u64 {
        self.spec.counter.promoted()()
    }

    fn now(&mut self, started: Instant, server: &Server, operations: u64) -> Result<(), Failure> {
        let now = truth()?;
        let top_share = self.share(self.last.as_ref(), now.as_ref());
        self.last = now;
        self.samples.push(Sample {
            at_s: started.elapsed().as_secs_f64(),
            operations,
            busy_ns: run_ns(server)? - self.run_ns,
            promoted: self.promoted(),
            top_share,
        });
        Ok(())
    }

    /// Of the lines that came from memory, those from the top tier.
    fn share(&self, from: Option<&Truth>, to: Option<&Truth>) -> f64 {
        let (Some(from), Some(to)) = (from, to) else {
            return 0.0;
        };
        let misses = to.clone().since(from.clone()).misses;
        let top = (self.spec.top.iter()).filter_map(|&node| misses.get(node as usize));
        top.sum::<u64>() as f64 / misses.iter().sum::<u64>().max(1) as f64
    }

    fn end(self, server: &Server, client: &Client) -> Result<ProgramSeen, Failure> {
        let mut seen = ProgramSeen::default();
        seen.work.top_share = self.share(self.before.as_ref(), self.last.as_ref());
        seen.work.system_s = server.system_s() - self.system_s;
        seen.work.latency = Some((quantiles(&client.all), quantiles(&client.last)));
        seen.work.truth = match (self.before, self.last) {
            (Some(before), Some(last)) => Some(last.since(before)),
            _ => None,
        };
        seen.work.phases = vec![self.samples];
        Ok(seen)
    }
}

fn run_ns(server: &Server) -> Result<u64, Failure> {
    server.run_ns().or_fail(
        "cannot read how long the program ran",
        "it may have ended; the system's log may tell why",
    )
}

fn truth() -> Result<Option<Truth>, Failure> {
    timed::truth().or_fail(UNANSWERED.0, UNANSWERED.1)
}

/// What fails when a timed machine does not answer, and what to try.
const UNANSWERED: (&str, &str) = (
    "cannot read what the timed machine counted",
    "run memferry and the lab of one version",
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pages_with_the_most_misses_are_the_best() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        fs::write(file.path(), "4096 3\n8192 9\n12288 5\n16384 7\n").expect("written");
        let pages = [4096, 8192, 16384, 20480];
        assert_eq!(best(file.path(), &pages, 2).expect("read"), [8192, 16384]);
        assert_eq!(
            best(file.path(), &pages, 9).expect("read"),
            [8192, 16384, 4096],
            "one has none"
        );
        assert!(best(Path::new("/nonexistent"), &pages, 2).is_err());
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The client of a program: some requests are always under way, over several links, keys come by Zipf's law, and each answer is compared.

use std::collections::VecDeque;
use std::io;
use std::time::Instant;

use fastrand::Rng;
use hdrhistogram::Histogram;

use super::server::Link;
use super::words::{self, Request};
use crate::args::program::Program;
use crate::promote::workload::zipf::{Scatter, Zipf};

/// One request of so many sets the key, the others get it (workload B of YCSB: 95% reads).
const SETS: u64 = 20;

/// Requests that are under way.
const UNDER_WAY: usize = 8;

/// What is under way.
struct Sent {
    link: usize,
    of: Request,
    key: usize,
    version: u32,
    at: Instant,
}

/// A client.
pub struct Client {
    program: Program,
    versions: Vec<u32>,
    zipf: Zipf,
    scatter: Scatter,
    random: Rng,
    under_way: VecDeque<Sent>,
    told: Vec<u8>,
    wanted: Vec<u8>,
    heard: Vec<u8>,
    /// Bytes that were compared.
    pub compared: u64,
    pub operations: u64,
    pub all: Histogram<u64>,
    /// Of the last quarter.
    pub last: Histogram<u64>,
}

impl Client {
    pub fn new(program: Program, keys: usize, skew: f64, seed: u64) -> Self {
        // Two digits, so that the histogram stays in a CPU's own caches.
        let empty = || Histogram::new_with_bounds(1, 600_000_000_000, 2).expect("constant bounds");
        Self {
            program,
            versions: vec![0; keys],
            zipf: Zipf::new(keys, skew),
            scatter: Scatter::new(keys, seed),
            random: Rng::with_seed(seed),
            under_way: VecDeque::new(),
            told: Vec::new(),
            wanted: Vec::new(),
            heard: vec![0; 64 << 10],
            compared: 0,
            operations: 0,
            all: empty(),
            last: empty(),
        }
    }

    /// Makes all keys.
    pub fn load(&mut self, links: &mut [Link]) -> io::Result<()> {
        (0..self.versions.len()).try_for_each(|key| self.put(links, Request::Make, key, None))?;
        self.finish(links)
    }

    /// Compares the values of all keys.
    pub fn check(&mut self, links: &mut [Link]) -> io::Result<()> {
        (0..self.versions.len()).try_for_each(|key| self.put(links, Request::Get, key, None))?;
        self.finish(links)
    }

    /// One more request of the sequence, once there is an answer to an earlier one.
    pub fn operation(&mut self, links: &mut [Link], in_last: bool) -> io::Result<()> {
        let random = self.random.u64(..);
        let key = self.scatter.place(self.zipf.rank(random));
        let of = match self.random.u64(..SETS) {
            0 => Request::Set,
            _ => Request::Get,
        };
        self.put(links, of, key, Some(in_last))
    }

    /// Sends a request. `in_last`: whether its predecessor counts, and in the last quarter.
    fn put(
        &mut self,
        links: &mut [Link],
        of: Request,
        key: usize,
        in_last: Option<bool>,
    ) -> io::Result<()> {
        if self.under_way.len() >= UNDER_WAY {
            self.take(links, in_last)?;
        }
        if of == Request::Set {
            self.versions[key] += 1;
        }
        // Requests of one key keep their order, which a program does not promise between links.
        let (link, version) = (key % links.len(), self.versions[key]);
        self.told.clear();
        words::request(self.program, of, key, version, &mut self.told);
        let at = Instant::now();
        links[link].tell(&self.told)?;
        self.under_way.push_back(Sent {
            link,
            of,
            key,
            version,
            at,
        });
        Ok(())
    }

    /// Waits for what is under way.
    pub fn finish(&mut self, links: &mut [Link]) -> io::Result<()> {
        while !self.under_way.is_empty() {
            self.take(links, None)?;
        }
        Ok(())
    }

    /// Takes the answer to the request that waits longest.
    fn take(&mut self, links: &mut [Link], in_last: Option<bool>) -> io::Result<()> {
        let Some(sent) = self.under_way.pop_front() else {
            return Ok(());
        };
        self.wanted.clear();
        words::answer(
            self.program,
            sent.of,
            sent.key,
            sent.version,
            &mut self.wanted,
        );
        let mut compared = 0;
        while compared < self.wanted.len() {
            let rest = &self.wanted[compared..];
            let room = rest.len().min(self.heard.len());
            let count = links[sent.link].hear(&mut self.heard[..room])?;
            if count == 0 {
                return Err(io::Error::other("the program has ended"));
            }
            if self.heard[..count] != rest[..count] {
                let (got, wanted) = (&self.heard[..count.min(60)], &rest[..count.min(60)]);
                return Err(io::Error::other(format!(
                    "key {}, version {}: at byte {compared} of the answer came {:?} in place of {:?}",
                    sent.key,
                    sent.version,
                    String::from_utf8_lossy(got),
                    String::from_utf8_lossy(wanted)
                )));
            }
            compared += count;
        }
        self.compared += compared as u64;
        if let Some(in_last) = in_last {
            let ns = sent.at.elapsed().as_nanos() as u64;
            self.all.saturating_record(ns);
            if in_last {
                self.last.saturating_record(ns);
            }
            self.operations += 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::thread;

    use super::*;

    /// A program that answers each request with these bytes.
    fn answering(answer: Vec<u8>, request_bytes: usize) -> Link {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        thread::spawn(move || {
            let mut request = vec![0; request_bytes];
            while theirs.read_exact(&mut request).is_ok() && theirs.write_all(&answer).is_ok() {}
        });
        Link::Socket(ours)
    }

    #[test]
    fn what_was_stored_must_come_back() {
        let mut stored = Vec::new();
        words::answer(Program::Redis, Request::Get, 0, 0, &mut stored);
        let mut request = Vec::new();
        words::request(Program::Redis, Request::Get, 0, 0, &mut request);
        let mut client = Client::new(Program::Redis, 1, 0.99, 1);
        let mut links = [answering(stored.clone(), request.len())];
        client.check(&mut links).expect("the same");
        assert_eq!(client.compared, stored.len() as u64);
        stored[500] ^= 1;
        let mut links = [answering(stored, request.len())];
        let told = client.check(&mut links).expect_err("changed").to_string();
        assert!(told.contains("key 0, version 0"), "{told}");
    }

    #[test]
    fn a_program_that_ends_is_told() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        drop(theirs);
        let mut client = Client::new(Program::Memcached, 1, 0.99, 1);
        assert!(client.check(&mut [Link::Socket(ours)]).is_err());
    }
}

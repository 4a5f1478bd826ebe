// SPDX-License-Identifier: MIT OR Apache-2.0
//! A program that answers requests: started on its CPUs without a policy of memory, so that the kernel may promote its pages, and with
//! the same addresses each time, so that the pages of one run are those of another. All of them are base pages.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use memferry_linux::{affinity, numa};
use rustix::process::{Signal, set_parent_process_death_signal};
use tempfile::TempDir;

use super::words;
use crate::args::program::Program;
use crate::failure::{Failure, OrFail};
use crate::nodes::{TRIES, call_failed};
use crate::region::PAGE;

/// Connections, as of several clients.
const CONNECTIONS: usize = 8;
/// How long a program may take until it listens, and to answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// /proc/PID/pagemap: the page is in memory; it is of a file or shared; where it is.
const PRESENT: u64 = 1 << 63;
const OF_FILE: u64 = 1 << 61;
const FRAME: u64 = (1 << 55) - 1;

/// A page: its address, and the number of its frame.
pub type Page = (usize, u64);

/// A program that runs.
pub struct Server {
    child: Child,
    pub links: Vec<Link>,
    /// Its socket.
    _folder: TempDir,
}

/// A way to it.
pub enum Link {
    Socket(UnixStream),
    Pipes(std::process::ChildStdin, std::process::ChildStdout),
}

impl Link {
    pub fn tell(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Socket(socket) => socket.write_all(bytes),
            Self::Pipes(to, _) => to.write_all(bytes),
        }
    }

    pub fn hear(&mut self, to: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Socket(socket) => socket.read(to),
            Self::Pipes(_, from) => from.read(to),
        }
    }
}

/// The name of the program's file, which is that of its process.
pub fn file_name(program: Program) -> &'static str {
    match program {
        Program::Redis => "redis-server",
        Program::Memcached => "memcached",
        Program::Sqlite => "sqlite3",
    }
}

fn arguments(program: Program, socket: &str) -> Vec<&str> {
    match program {
        Program::Redis => vec![
            "--port",
            "0",
            "--unixsocket",
            socket,
            "--save",
            "",
            "--appendonly",
            "no",
            "--loglevel",
            "warning",
        ],
        // It must not evict what was stored.
        Program::Memcached => vec!["-u", "root", "-t", "1", "-M", "-m", "4096", "-s", socket],
        Program::Sqlite => vec!["-batch", ":memory:"],
    }
}

impl Server {
    /// Starts it on these CPUs, and waits until it listens.
    pub fn start(program: Program, cpus: &[u32]) -> Result<Self, Failure> {
        let name = file_name(program);
        let failed = format!("cannot start {name}");
        let next = "install it (on Debian: redis-server, memcached, sqlite3); in the lab: cargo xtask programs";
        let folder = tempfile::tempdir().or_fail(&failed, "have a /tmp that can be written to")?;
        let socket = folder.path().join("socket");
        let mut command = Command::new(name);
        let pipe = |wanted: bool| {
            if wanted {
                Stdio::piped()
            } else {
                Stdio::null()
            }
        };
        let by_pipes = program == Program::Sqlite;
        command
            .args(arguments(program, &socket.to_string_lossy()))
            .stdin(pipe(by_pipes))
            .stdout(pipe(by_pipes));
        let prepare = || {
            // SAFETY: the calls change what this process executes next, its addresses and the size of its pages, and nothing else.
            let failed = unsafe {
                libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong) < 0
                    || libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) < 0
            };
            if failed {
                return Err(io::Error::last_os_error());
            }
            Ok(set_parent_process_death_signal(Some(Signal::KILL))?)
        };
        // SAFETY: the closure makes system calls that may be made after a fork.
        unsafe { command.pre_exec(prepare) };
        // It has the CPUs of who starts it.
        let own = affinity::allowed().unwrap_or_default();
        let _ = affinity::pin(cpus);
        let started = command.spawn();
        let _ = affinity::pin(&own);
        let mut server = Self {
            child: started.or_fail(&failed, next)?,
            links: Vec::new(),
            _folder: folder,
        };
        server.connect(program, &socket).or_fail(failed, next)?;
        Ok(server)
    }

    fn connect(&mut self, program: Program, socket: &Path) -> io::Result<()> {
        if let (Some(to), Some(from)) = (self.child.stdin.take(), self.child.stdout.take()) {
            self.links.push(Link::Pipes(to, from));
        } else {
            let from = Instant::now();
            while self.links.len() < CONNECTIONS {
                match UnixStream::connect(socket) {
                    Ok(link) => {
                        link.set_read_timeout(Some(PATIENCE))?;
                        self.links.push(Link::Socket(link));
                    }
                    Err(error) => {
                        if let Some(status) = self.child.try_wait()? {
                            return Err(io::Error::other(format!("it ended at once: {status}")));
                        }
                        if from.elapsed() > PATIENCE {
                            return Err(error);
                        }
                        std::thread::sleep(Duration::from_millis(10));
                    }
                }
            }
        }
        let first = words::first(program);
        self.links
            .iter_mut()
            .take(1)
            .try_for_each(|link| link.tell(first))
    }

    fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    fn file(&self, name: &str) -> String {
        format!("/proc/{}/{name}", self.child.id())
    }

    /// Time that its threads ran, in nanoseconds.
    pub fn run_ns(&self) -> io::Result<u64> {
        let mut clock = 0;
        let mut time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: both calls write what they are given, and nothing else.
        let error = unsafe {
            match libc::clock_getcpuclockid(self.pid(), &raw mut clock) {
                0 if libc::clock_gettime(clock, &raw mut time) == 0 => 0,
                0 => return Err(io::Error::last_os_error()),
                error => error,
            }
        };
        match error {
            0 => Ok(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }

    /// Seconds that its threads spent in the kernel, in steps of a tick.
    pub fn system_s(&self) -> f64 {
        let stat = fs::read_to_string(self.file("stat")).unwrap_or_default();
        let after_name = stat.rsplit(") ").next().unwrap_or_default();
        let ticks = after_name
            .split(' ')
            .nth(12)
            .and_then(|word| word.parse::<f64>().ok());
        ticks.unwrap_or(0.0) / rustix::param::clock_ticks_per_second() as f64
    }

    /// Its own pages in memory, by address.
    pub fn pages(&self) -> Result<Vec<Page>, Failure> {
        let next = "be root, with /proc mounted";
        let failed = "cannot read which pages the program has";
        let maps = fs::read_to_string(self.file("maps")).or_fail(failed, next)?;
        let pagemap = File::open(self.file("pagemap")).or_fail(failed, next)?;
        let mut pages = Vec::new();
        for (start, end) in maps.lines().filter_map(writable) {
            let mut entries = vec![0; (end - start) / PAGE * 8];
            let read = pagemap
                .read_at(&mut entries, (start / PAGE * 8) as u64)
                .or_fail(failed, next)?;
            for (number, entry) in entries[..read].chunks_exact(8).enumerate() {
                let entry = entry.try_into().map_or(0, u64::from_ne_bytes);
                if entry & PRESENT != 0 && entry & OF_FILE == 0 {
                    pages.push((start + number * PAGE, entry & FRAME));
                }
            }
        }
        match pages.iter().any(|page| page.1 != 0) {
            true => Ok(pages),
            false => Err(Failure::new(failed, "the kernel tells no frame", next)),
        }
    }

    /// Moves pages to a node, as far as they can be; gives how many are there.
    pub fn bring(&self, pages: &[usize], node: u32) -> Result<usize, Failure> {
        let mut left = pages.to_vec();
        for _ in 0..TRIES {
            let nodes = vec![node as i32; left.len()];
            let mut status = vec![0; left.len()];
            numa::move_pages(self.pid(), &left, Some(&nodes), &mut status, false)
                .map_err(call_failed)?;
            numa::move_pages(self.pid(), &left, None, &mut status, false).map_err(call_failed)?;
            let mut at = status.iter().map(|&of| of == node as i32);
            left.retain(|_| !at.next().unwrap_or(false));
            if left.is_empty() {
                break;
            }
        }
        Ok(pages.len() - left.len())
    }

    /// How many of these pages are on these nodes.
    pub fn count(&self, pages: &[usize], nodes: &[u32]) -> io::Result<usize> {
        let mut status = vec![0; pages.len()];
        numa::move_pages(self.pid(), pages, None, &mut status, false)?;
        let is = |status: &&i32| u32::try_from(**status).is_ok_and(|node| nodes.contains(&node));
        Ok(status.iter().filter(is).count())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The range of a line of /proc/PID/maps, if its memory is private and can be written.
fn writable(line: &str) -> Option<(usize, usize)> {
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let parse = |text| usize::from_str_radix(text, 16).ok();
    rest.starts_with("rw-p")
        .then(|| Some((parse(start)?, parse(end)?)))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_memory_that_can_be_written_is_the_programs_own() {
        let line =
            |rights: &str| format!("7ffff7000000-7ffff7002000 {rights} 00000000 00:00 0 [heap]");
        assert_eq!(
            writable(&line("rw-p")),
            Some((0x7fff_f700_0000, 0x7fff_f700_2000))
        );
        assert_eq!(writable(&line("r-xp")), None);
        assert_eq!(writable(&line("rw-s")), None);
        assert_eq!(writable(""), None);
    }

    #[test]
    fn a_program_that_is_not_there_is_told_with_its_package() {
        let told = Server::start(Program::Memcached, &[0]).map(|_| ());
        if let Err(told) = told {
            assert!(told.to_string().contains("install it"), "{told}");
        }
    }
}

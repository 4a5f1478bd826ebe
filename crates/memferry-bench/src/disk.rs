// SPDX-License-Identifier: MIT OR Apache-2.0
//! The load of `--disk`: a thread that writes a file and reads it back past the page cache, comparing every byte, and what it and the moves lose.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use memferry_linux::affinity;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl, fstatfs};

use super::pinned::{PinnedThread, Since};
use super::rounds::Run;
use crate::failure::Failure;
use crate::schema::disk::BesideDisk;
use crate::spread::mean_sd;

/// What is written at a time: a timed call of some milliseconds has many of them.
const BLOCK: usize = 64 << 10;
/// Blocks of the file.
const BLOCKS: u64 = 256;
/// How long the disk works with nothing beside it, at least, to know what it can do.
const ALONE: Duration = Duration::from_millis(100);
/// `f_type` of tmpfs in statfs(2).
const TMPFS: i64 = 0x0102_1994;

/// A file on the disk, gone when this value goes.
pub struct Disk {
    file: Arc<File>,
    folder: PathBuf,
}

/// The thread, while this value lives.
pub struct DiskLoad {
    thread: PinnedThread,
    failed: Arc<OnceLock<String>>,
    folder: PathBuf,
    /// Bytes a second with nothing beside it.
    alone_per_s: f64,
}

/// What one run came to beside the disk.
#[derive(Clone, Debug, Default)]
pub struct DiskRun {
    /// The moves' throughput, GB/s.
    pub gbps: f64,
    /// Bytes that the migrator copied; `None` for migrator none.
    pub copied: Option<u64>,
    /// Bytes compared afterwards.
    pub verified: u64,
    /// Of the disk, before the moves and beside them, GB/s.
    pub disk_gbps: [f64; 2],
    /// Bytes that were read back.
    pub disk_verified: u64,
}

#[repr(C, align(4096))]
struct Block([u8; BLOCK]);

impl Disk {
    /// Makes the file in this folder.
    ///
    /// # Errors
    /// It cannot be made, or its file system is no disk's or cannot do without the page cache.
    pub fn new(folder: &Path) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| {
            let next =
                "give --disk a writable folder of a file system on a disk, such as ext4 or xfs";
            Failure::new(
                format!("cannot use {} as a disk load", folder.display()),
                error,
                next,
            )
        };
        let file = tempfile::tempfile_in(folder).map_err(failed)?;
        if fstatfs(&file).map_err(|error| failed(error.into()))?.f_type == TMPFS {
            return Err(failed(std::io::Error::other("tmpfs is no disk")));
        }
        let direct =
            fcntl_getfl(&file).and_then(|flags| fcntl_setfl(&file, flags | OFlags::DIRECT));
        direct.map_err(|error| failed(error.into()))?;
        let block = Box::new(Block([0; BLOCK]));
        for index in 0..BLOCKS {
            file.write_all_at(&block.0, index * BLOCK as u64)
                .map_err(failed)?;
        }
        Ok(Self {
            file: Arc::new(file),
            folder: folder.to_owned(),
        })
    }

    /// Starts the thread, and lets it work alone for a moment.
    ///
    /// # Errors
    /// The thread cannot be started, or the disk fails.
    pub fn start(&self) -> Result<DiskLoad, Failure> {
        let unstarted = |error: std::io::Error| {
            Failure::new(
                "cannot start the disk's thread",
                error,
                "raise RLIMIT_NPROC",
            )
        };
        let cpus = affinity::allowed().map_err(unstarted)?;
        let failed = Arc::new(OnceLock::new());
        let (file, failure) = (Arc::clone(&self.file), Arc::clone(&failed));
        let mut blocks = [Box::new(Block([0; BLOCK])), Box::new(Block([0; BLOCK]))];
        let mut round = 0;
        let work = move || {
            round += 1;
            let done = write_and_read(&file, round, &mut blocks);
            done.map_or_else(
                |why| {
                    let _ = failure.set(why);
                    thread::yield_now();
                    0
                },
                |()| 2 * BLOCK as u64,
            )
        };
        let cpu = cpus.last().copied().unwrap_or(0);
        let mut load = DiskLoad {
            thread: PinnedThread::start("disk".to_owned(), cpu, work).map_err(unstarted)?,
            failed,
            folder: self.folder.clone(),
            alone_per_s: 0.0,
        };
        while load.thread.done() == 0 && load.failed.get().is_none() {
            thread::yield_now();
        }
        // Of a disk that failed, `run` says so.
        let failed = || load.failed.get().is_some();
        load.alone_per_s = load.thread.per_s(ALONE, failed);
        Ok(load)
    }
}

/// Writes a block that no round before has written so, reads it into the other one, and compares.
fn write_and_read(file: &File, round: u64, blocks: &mut [Box<Block>; 2]) -> Result<(), String> {
    let [written, read] = blocks;
    for (index, word) in written.0.chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&(round << 32 | index as u64).to_ne_bytes());
    }
    let at = round % BLOCKS * BLOCK as u64;
    let told = |error: std::io::Error| error.to_string();
    file.write_all_at(&written.0, at).map_err(told)?;
    file.read_exact_at(&mut read.0, at).map_err(told)?;
    match written.0 == read.0 {
        true => Ok(()),
        false => Err(format!(
            "the block at byte {at} is not what was written there"
        )),
    }
}

impl DiskLoad {
    /// Now.
    pub fn since(&self) -> Since {
        Since::now(self.thread.done())
    }

    /// Bytes a second since then, written and read.
    pub fn per_s(&self, since: &Since) -> f64 {
        since.per_s(self.thread.done())
    }

    /// What a run came to, beside which the disk had so many bytes a second.
    ///
    /// # Errors
    /// The disk failed, or has lost a byte.
    pub fn run(&self, moved: &Run) -> Result<DiskRun, Failure> {
        if let Some(why) = self.failed.get() {
            return Err(Failure::new(
                format!(
                    "the disk of {} failed beside the moves",
                    self.folder.display()
                ),
                why,
                "look into the kernel's log",
            ));
        }
        Ok(DiskRun {
            gbps: moved.gbps,
            copied: moved.copied,
            verified: moved.verified,
            disk_gbps: [self.alone_per_s, moved.disk_per_s.unwrap_or(0.0)].map(|of| of / 1e9),
            disk_verified: self.thread.done() / 2,
        })
    }
}

/// What these runs and the disk lost beside each other.
pub fn beside(runs: &[Run]) -> Option<BesideDisk> {
    let pairs: Vec<(f64, &DiskRun)> = (runs.iter())
        .filter_map(|run| Some((run.gbps, run.beside_disk.as_ref()?)))
        .collect();
    let mean =
        |of: &dyn Fn(&(f64, &DiskRun)) -> f64| mean_sd(&Vec::from_iter(pairs.iter().map(of))).0;
    let runs_gbps: Vec<f64> = pairs.iter().map(|(_, of)| of.gbps).collect();
    let (gbps, gbps_sd) = mean_sd(&runs_gbps);
    let lost = |before: f64, now: f64| 1.0 - now / before;
    (!pairs.is_empty()).then(|| BesideDisk {
        gbps,
        gbps_sd,
        runs_gbps,
        lost: mean(&|(alone, of)| lost(*alone, of.gbps)),
        copied_bytes: pairs.iter().map(|(_, of)| of.copied).sum(),
        verified_bytes: pairs.iter().map(|(_, of)| of.verified).sum(),
        disk_alone_gbps: mean(&|(_, of)| of.disk_gbps[0]),
        disk_gbps: mean(&|(_, of)| of.disk_gbps[1]),
        disk_lost: mean(&|(_, of)| lost(of.disk_gbps[0], of.disk_gbps[1])),
        disk_verified_bytes: pairs.iter().map(|(_, of)| of.disk_verified).sum(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_comes_back_and_a_lost_write_is_found() {
        let file = tempfile::tempfile().expect("file");
        let mut blocks = [Box::new(Block([0; BLOCK])), Box::new(Block([0; BLOCK]))];
        assert_eq!(write_and_read(&file, 1, &mut blocks), Ok(()));
        assert_eq!(file.metadata().expect("file").len(), 2 * BLOCK as u64);
        let null = File::options().read(true).write(true).open("/dev/zero");
        let why = write_and_read(&null.expect("/dev/zero"), 3, &mut blocks).expect_err("zeroes");
        assert!(why.contains("byte 196608"), "{why}");
    }

    #[test]
    fn losses_are_taken_run_by_run() {
        let run = |gbps: f64, beside: f64, disk: [f64; 2]| Run {
            gbps,
            beside_disk: Some(DiskRun {
                gbps: beside,
                copied: Some(10),
                disk_gbps: disk,
                ..DiskRun::default()
            }),
            ..Run::default()
        };
        // The machine became half as fast.
        let found = beside(&[run(8.0, 6.0, [1.0, 0.5]), run(4.0, 3.0, [0.5, 0.25])]).expect("runs");
        assert_eq!((found.lost, found.disk_lost), (0.25, 0.5));
        assert_eq!((found.gbps, found.copied_bytes), (4.5, Some(20)));
        assert_eq!(beside(&[Run::default()]), None);
    }
}

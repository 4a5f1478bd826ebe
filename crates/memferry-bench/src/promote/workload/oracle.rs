// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which pages a run places before its clock begins: random ones, or the best that fit.

use std::fs;
use std::io;
use std::path::Path;

use super::pattern::Pattern;
use super::spec::{Placing, WorkSpec};
use super::zipf::Scatter;
use crate::failure::{Failure, OrFail};
use crate::region::PAGE;

/// Where misses are not known, accesses are counted: so many for each page on average.
const ACCESSES: usize = 32;

/// The folios that are placed before each phase, as places in the memory; none if nothing is placed. Folios have `folio` bytes, and
/// `load` gives the word at an offset.
pub fn placements(
    spec: &WorkSpec,
    pattern: &Pattern,
    folio: usize,
    load: impl Fn(usize) -> u64,
) -> Result<Vec<Vec<usize>>, Failure> {
    let folios = spec.bytes / folio;
    let pages = match spec.placing {
        Placing::Nothing => return Ok(Vec::new()),
        Placing::All => return Ok(vec![Vec::from_iter(0..folios)]),
        Placing::Random => {
            let room = spec.room.map_or(folios, |room| room as usize / folio);
            let scatter = Scatter::new(folios, !spec.seed);
            let random = (0..room.min(folios)).map(|of| scatter.place(of));
            return Ok(vec![random.collect()]);
        }
        Placing::Best(pages) => pages as usize,
    };
    let counts = match &spec.misses {
        Some(path) => read(path, spec.bytes / PAGE)?,
        None => {
            let accesses = spec.bytes / PAGE * ACCESSES;
            let count = |phase| pattern.count(spec.threads, phase, accesses, &load);
            (0..pattern.phases()).map(count).collect()
        }
    };
    let best = |counts: &Vec<u32>| best(counts, folio / PAGE, pages);
    Ok(counts.iter().map(best).collect())
}

/// The folios of so many pages with the highest counts, no more than fit into `room` pages.
fn best(counts: &[u32], pages: usize, room: usize) -> Vec<usize> {
    let sum = |of: &[u32]| of.iter().map(|&count| u64::from(count)).sum::<u64>();
    let sums: Vec<u64> = counts.chunks(pages).map(sum).collect();
    let mut best: Vec<usize> = (0..sums.len()).filter(|&of| sums[of] > 0).collect();
    best.sort_by_key(|&of| std::cmp::Reverse(sums[of]));
    best.truncate(room / pages);
    best
}

/// Writes the misses of each page, phase by phase.
pub fn write(path: &Path, phases: &[Vec<u32>]) -> Result<(), Failure> {
    let counts = phases.iter().flatten();
    let bytes: Vec<u8> = counts.flat_map(|count| count.to_ne_bytes()).collect();
    fs::write(path, bytes).or_fail(
        format!("cannot write {}", path.display()),
        "free memory or disk space where temporary files are",
    )
}

fn read(path: &Path, pages: usize) -> Result<Vec<Vec<u32>>, Failure> {
    let read = || -> io::Result<Vec<Vec<u32>>> {
        let bytes = fs::read(path)?;
        let count = |of: &[u8]| of.try_into().map_or(0, u32::from_ne_bytes);
        let counts: Vec<u32> = bytes.chunks_exact(4).map(count).collect();
        Ok(counts.chunks(pages).map(<[u32]>::to_vec).collect())
    };
    read().or_fail(
        format!("cannot read the misses of mode none in {}", path.display()),
        "run it again, with nothing that deletes temporary files",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::workload::{Memory, Workload};

    fn spec(placing: Placing) -> WorkSpec {
        WorkSpec {
            workload: Workload::Hotset,
            skew: 1.0,
            rate: None,
            memory: Memory::Base,
            bytes: 16 << 20,
            room: Some(4 << 20),
            placing,
            misses: None,
            seed: 1,
            seconds: 1.0,
            lower: 0,
            top: vec![0],
            cpus: vec![0],
            threads: 1,
            counter: crate::promote::mover::Counter::default(),
            sample_ms: 100,
        }
    }

    fn placed(spec: &WorkSpec, folio: usize) -> Vec<Vec<usize>> {
        let pattern = Pattern::new(spec.workload, spec.memory, spec.bytes, spec.skew, spec.seed);
        placements(spec, &pattern, folio, |_| 0).expect("placed")
    }

    #[test]
    fn the_pages_with_the_most_misses_are_the_best() {
        assert_eq!(best(&[3, 9, 0, 7, 8], 1, 3), [1, 4, 3]);
        assert_eq!(best(&[3, 9, 0, 7, 8], 1, 9), [1, 4, 3, 0], "one has none");
        // As folios of two pages: sums 12, 7, 8.
        assert_eq!(best(&[3, 9, 0, 7, 8, 0], 2, 5), [0, 2]);
    }

    #[test]
    fn each_phase_has_the_misses_that_were_written_for_it() {
        let file = tempfile::NamedTempFile::new().expect("file");
        let mut phases = vec![vec![1; 4096], vec![1; 4096]];
        (phases[0][77], phases[1][78]) = (u32::MAX, 5);
        write(file.path(), &phases).expect("written");
        let mut spec = spec(Placing::Best(1));
        spec.misses = Some(file.path().to_owned());
        assert_eq!(placed(&spec, PAGE), [[77], [78]]);
        assert_eq!(
            placed(
                &WorkSpec {
                    placing: Placing::Best(512),
                    ..spec
                },
                512 * PAGE
            ),
            [[0], [0]]
        );
    }

    #[test]
    fn without_misses_the_accesses_rank() {
        // The hot quarter of each half.
        let phases = placed(&spec(Placing::Best(1024)), PAGE);
        let pieces = |pages: &[usize]| {
            let mut pieces: Vec<usize> = pages.iter().map(|page| page / 512).collect();
            pieces.sort_unstable();
            pieces.dedup();
            pieces
        };
        let (first, second) = (pieces(&phases[0]), pieces(&phases[1]));
        assert_eq!((phases[0].len(), first.len(), second.len()), (1024, 2, 2));
        assert!(first.iter().all(|of| !second.contains(of)));
    }

    #[test]
    fn random_pages_fill_the_room_and_are_the_same_for_a_seed() {
        let random = placed(&spec(Placing::Random), PAGE);
        assert_eq!((random.len(), random[0].len()), (1, 1024));
        assert_eq!(random, placed(&spec(Placing::Random), PAGE));
        let beyond = random[0].iter().filter(|&&page| page >= 2048).count();
        assert!((400..624).contains(&beyond), "{beyond}");
        assert_eq!(placed(&spec(Placing::All), 512 * PAGE)[0].len(), 8);
        assert!(placed(&spec(Placing::Nothing), PAGE).is_empty());
    }
}

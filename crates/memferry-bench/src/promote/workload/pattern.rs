// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which lines a workload touches, in which order: the same for the same seed, in every mode. It touches no memory itself.

use fastrand::Rng;

use super::zipf::{Scatter, Zipf, below};
use crate::args::workload::{Memory, Workload};
use crate::region::{LINE, PAGE, THP};

/// Lines of an operation of `served`.
const LINES: usize = 8;
/// One of so many pieces is hot at a time.
const HOT_OF: usize = 4;

/// What a workload does to memory of some size.
pub struct Pattern {
    pick: Pick,
    bytes: usize,
    /// Whether half of the accesses are stores.
    stores: bool,
    seed: u64,
}

enum Pick {
    /// So many lines of one page.
    Zipf {
        zipf: Zipf,
        scatter: Scatter,
        lines: usize,
    },
    /// Of the scattered pieces the first `hot` in the first phase, the next ones in the second.
    Hotset {
        scatter: Scatter,
        hot: usize,
        pieces: usize,
    },
    /// A binary tree in heap order, a node in each line, its pages scattered.
    Chase(Scatter),
    Stream,
    Uniform,
}

impl Pattern {
    /// Over so many bytes, a multiple of 2 MiB, 16 MiB at least.
    pub fn new(workload: Workload, memory: Memory, bytes: usize, skew: f64, seed: u64) -> Self {
        let pages = bytes / PAGE;
        let by_law = |lines| Pick::Zipf {
            zipf: Zipf::new(pages, skew),
            scatter: Scatter::new(pages, seed),
            lines,
        };
        let pick = match workload {
            Workload::Zipf => by_law(1),
            Workload::Served => by_law(LINES),
            Workload::Hotset => Pick::Hotset {
                scatter: Scatter::new(bytes / THP, seed),
                hot: bytes / THP / HOT_OF,
                pieces: bytes / THP,
            },
            Workload::Chase => Pick::Chase(Scatter::new(pages, seed)),
            Workload::Stream => Pick::Stream,
            Workload::Uniform => Pick::Uniform,
        };
        let reads = matches!(workload, Workload::Chase | Workload::Stream);
        Self {
            pick,
            bytes,
            stores: !reads && memory != Memory::File,
            seed,
        }
    }

    /// How often the hot pages change, and one.
    pub fn phases(&self) -> usize {
        match self.pick {
            Pick::Hotset { .. } => 2,
            _ => 1,
        }
    }

    /// The operations of one thread of so many, from a phase on.
    pub fn sequence(&self, thread: usize, threads: usize, phase: usize) -> Sequence<'_> {
        // The first draw of neighbouring seeds is similar, not so after a multiplication.
        let seed = (self.seed << 16 | thread as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        Sequence {
            pattern: self,
            random: Rng::with_seed(seed ^ phase as u64),
            phase,
            at: self.bytes / threads * thread / LINE * LINE,
        }
    }

    /// How many accesses there are to each page in a phase, of so many threads together that make at least `accesses`. `load` gives
    /// the word that a load reads at an offset.
    pub fn count(
        &self,
        threads: usize,
        phase: usize,
        accesses: usize,
        load: impl Fn(usize) -> u64,
    ) -> Vec<u32> {
        let mut counts = vec![0; self.bytes / PAGE];
        for thread in 0..threads {
            let mut sequence = self.sequence(thread, threads, phase);
            let mut left = accesses.div_ceil(threads) as isize;
            while left > 0 {
                sequence.operation(&mut |at, _| {
                    counts[at / PAGE] += 1;
                    left -= 1;
                    load(at)
                });
            }
        }
        counts
    }
}

/// Where one thread is.
pub struct Sequence<'a> {
    pattern: &'a Pattern,
    random: Rng,
    phase: usize,
    /// Of a stream, the offset of the next line.
    at: usize,
}

impl Sequence<'_> {
    /// Goes on with the other hot pages.
    pub fn turn(&mut self) {
        self.phase += 1;
    }

    /// Goes to a random place, so that what follows is a sample of the accesses: elsewhere than in a stream any operation is one.
    pub fn jump(&mut self) {
        let lines = (self.pattern.bytes / LINE) as u64;
        self.at = below(self.random.u64(..), lines) as usize * LINE;
    }

    /// One operation: `touch` gets the offset of each of its lines and whether it is a store, and gives the word that was loaded.
    #[inline]
    pub fn operation(&mut self, touch: &mut impl FnMut(usize, bool) -> u64) {
        let stores = self.pattern.stores;
        match &self.pattern.pick {
            Pick::Zipf {
                zipf,
                scatter,
                lines,
            } => {
                let mut random = self.random.u64(..);
                let page = scatter.place(zipf.rank(random)) * PAGE;
                for more in (0..*lines).rev() {
                    touch(page + line(random), stores && is_store(random));
                    if more > 0 {
                        random = self.random.u64(..);
                    }
                }
            }
            Pick::Hotset {
                scatter,
                hot,
                pieces,
            } => {
                let (which, where_) = (self.random.u64(..), self.random.u64(..));
                let first = self.phase * hot;
                let piece = if ((which >> 32) * 10) >> 32 < 9 {
                    first + below(which, *hot as u64) as usize
                } else {
                    let cold = below(which, (pieces - hot) as u64) as usize;
                    if cold < first { cold } else { cold + hot }
                };
                let page = (where_ >> 32) as usize % (THP / PAGE) * PAGE;
                let at = scatter.place(piece) * THP + page + line(where_);
                touch(at, stores && is_store(where_));
            }
            Pick::Chase(scatter) => {
                const NODES: usize = PAGE / LINE;
                let mut ways = self.random.u64(..);
                let (mut node, nodes) = (0, self.pattern.bytes / LINE);
                while node < nodes {
                    let at = scatter.place(node / NODES) * PAGE + node % NODES * LINE;
                    // The child depends on the word that its parent holds: the load cannot begin before that word is there.
                    let child = (touch(at, false) >> 32 ^ ways) & 1;
                    ways >>= 1;
                    node = 2 * node + 1 + child as usize;
                }
            }
            Pick::Stream => {
                touch(self.at, false);
                self.at += LINE;
                if self.at == self.pattern.bytes {
                    self.at = 0;
                }
            }
            Pick::Uniform => {
                let random = self.random.u64(..);
                let pages = (self.pattern.bytes / PAGE) as u64;
                let page = (((random >> 32) * pages) >> 32) as usize * PAGE;
                touch(page + line(random), stores && is_store(random));
            }
        }
    }
}

/// The offset of a line of a page, by the lowest bits but one of a random number.
fn line(random: u64) -> usize {
    (random >> 1) as usize % (PAGE / LINE) * LINE
}

fn is_store(random: u64) -> bool {
    random & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: usize = 32 << 20;

    fn pattern(workload: Workload) -> Pattern {
        Pattern::new(workload, Memory::Base, BYTES, 0.99, 3)
    }

    /// The lines of some operations.
    fn lines(pattern: &Pattern, thread: usize, operations: usize) -> Vec<(usize, bool)> {
        let mut sequence = pattern.sequence(thread, 2, 0);
        let mut lines = Vec::new();
        for _ in 0..operations {
            sequence.operation(&mut |at, store| {
                lines.push((at, store));
                (at as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15)
            });
        }
        lines
    }

    #[test]
    fn accesses_depend_on_seed_and_thread_alone_and_half_of_them_are_stores() {
        use clap::ValueEnum;
        for &workload in Workload::value_variants() {
            let of = lines(&pattern(workload), 0, 20_000);
            assert_eq!(of, lines(&pattern(workload), 0, 20_000), "{workload:?}");
            assert_ne!(of, lines(&pattern(workload), 1, 20_000), "{workload:?}");
            let other = Pattern::new(workload, Memory::Base, BYTES, 0.99, 4);
            assert_eq!(
                of == lines(&other, 0, 20_000),
                workload == Workload::Stream,
                "{workload:?}"
            );
            assert!(of.iter().all(|(at, _)| at % LINE == 0 && *at < BYTES));
            let stores = of.iter().filter(|of| of.1).count() as f64 / of.len() as f64;
            let expected = match workload {
                Workload::Chase | Workload::Stream => 0.0,
                _ => 0.5,
            };
            assert!((stores - expected).abs() < 0.01, "{workload:?}: {stores}");
            let of_file = Pattern::new(workload, Memory::File, BYTES, 0.99, 3);
            assert!(lines(&of_file, 0, 100).iter().all(|of| !of.1));
        }
    }

    #[test]
    fn pages_of_the_law_are_scattered_and_their_lines_alike() {
        let of = lines(&pattern(Workload::Zipf), 0, 200_000);
        let mut pages = vec![0; BYTES / PAGE];
        let mut places = [0; PAGE / LINE];
        for (at, _) in &of {
            pages[at / PAGE] += 1;
            places[at % PAGE / LINE] += 1;
        }
        assert!(places.iter().all(|&of| (2700..3600).contains(&of)));
        let mut hottest = Vec::from_iter(0..pages.len());
        hottest.sort_by_key(|&page| std::cmp::Reverse(pages[page]));
        // Of 8,192 pages the hottest hundred take half, and lie in all parts of the memory.
        let share: i32 = hottest[..100].iter().map(|&page| pages[page]).sum();
        assert!((100_000..112_000).contains(&share), "{share}");
        for part in 0..8 {
            let inside = hottest[..100].iter().filter(|&&of| of / 1024 == part);
            assert!((4..30).contains(&inside.count()), "{part}");
        }
        let served = lines(&pattern(Workload::Served), 0, 1000);
        assert_eq!(served.len(), 8000);
        let same_page =
            |lines: &[(usize, bool)]| lines.iter().all(|of| of.0 / PAGE == lines[0].0 / PAGE);
        assert!(served.chunks(LINES).all(same_page));
    }

    #[test]
    fn a_quarter_of_the_pieces_takes_nine_tenths_and_another_one_after_the_turn() {
        let pattern = pattern(Workload::Hotset);
        let hot_pieces = |phase| {
            let counts = pattern.count(1, phase, 160_000, |_| 0);
            let pieces = counts.chunks(THP / PAGE).map(|of| of.iter().sum::<u32>());
            let pieces: Vec<u32> = pieces.collect();
            let hot = (0..pieces.len()).filter(|&of| pieces[of] > 10_000);
            let hot: Vec<usize> = hot.collect();
            let share: u32 = hot.iter().map(|&of| pieces[of]).sum();
            assert!((143_000..145_000).contains(&share), "{share}: {pieces:?}");
            assert!(pieces.iter().all(|&of| of > 1000), "{pieces:?}");
            hot
        };
        let (first, second) = (hot_pieces(0), hot_pieces(1));
        assert_eq!((first.len(), second.len()), (4, 4));
        assert!(first.iter().all(|of| !second.contains(of)));
        let mut sequence = pattern.sequence(0, 1, 0);
        sequence.turn();
        let mut inside = 0;
        for _ in 0..1000 {
            sequence.operation(&mut |at, _| {
                inside += i32::from(second.contains(&(at / THP)));
                0
            });
        }
        assert!((850..950).contains(&inside), "{inside}");
    }

    #[test]
    fn a_descent_follows_the_words_that_it_loads() {
        let pattern = pattern(Workload::Chase);
        let descent = |word: &dyn Fn(usize) -> u64| {
            let (mut sequence, mut way) = (pattern.sequence(0, 1, 0), Vec::new());
            sequence.operation(&mut |at, _| {
                way.push(at);
                word(way.len())
            });
            way
        };
        let all = descent(&|_| 0);
        // 2^19 nodes: each level but the last is passed.
        assert!((19..=20).contains(&all.len()), "{}", all.len());
        let other = descent(&|step| u64::from(step == 5) << 32);
        assert_eq!(all[..5], other[..5]);
        assert!(all[5..].iter().zip(&other[5..]).all(|(a, b)| a != b));
        // The upper levels are visited more: the root's page by each descent.
        let counts = pattern.count(1, 0, 100_000, |at| {
            (at as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15)
        });
        let hottest = counts.iter().max().expect("pages");
        assert!(*hottest >= 6 * 100_000 / 21, "{hottest}");
    }

    #[test]
    fn a_stream_reads_each_line_once_before_it_begins_again() {
        let pattern = pattern(Workload::Stream);
        let counts = pattern.count(1, 0, 2 * BYTES / LINE, |_| 0);
        assert!(counts.iter().all(|&of| of as usize == 2 * PAGE / LINE));
        assert_eq!(lines(&pattern, 1, 1)[0].0, BYTES / 2);
        let (mut sequence, mut first_half) = (pattern.sequence(0, 1, 0), 0);
        for _ in 0..1000 {
            sequence.jump();
            sequence.operation(&mut |at, _| {
                first_half += i32::from(at < BYTES / 2);
                0
            });
        }
        assert!((420..580).contains(&first_half), "{first_half}");
    }
}

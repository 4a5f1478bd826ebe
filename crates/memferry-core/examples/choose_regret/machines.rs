// SPDX-License-Identifier: MIT OR Apache-2.0
//! Machines to choose on: options with their true costs, made up or published; and how a class of work does on one.

use memferry_core::choose::{Batch, Choose, ChooseOption};

/// The bytes of a huge page.
pub const HUGE: u64 = 2 << 20;

/// What an option really costs.
#[derive(Clone, Debug)]
pub struct Cost {
    /// As tables name it: `mtcopy 4`.
    pub name: String,
    pub option: ChooseOption,
    /// Bytes and time, by bytes; between two of them in a straight line, beyond them in proportion.
    pub points: Vec<(u64, f64)>,
}

impl Cost {
    /// A start-up time and a time per byte, given as GB/s.
    pub fn line(name: String, option: ChooseOption, start_ns: f64, gbps: f64) -> Self {
        let far = 1_u64 << 40;
        Self {
            name,
            option,
            points: vec![(0, start_ns), (far, start_ns + far as f64 / gbps)],
        }
    }

    /// The true time of so many bytes, without noise.
    pub fn ns(&self, bytes: u64) -> f64 {
        let at = self.points.partition_point(|&(known, _)| known < bytes);
        let Some(&(right, right_ns)) = self.points.get(at) else {
            let (last, ns) = self.points[at - 1];
            return ns * bytes as f64 / last as f64;
        };
        let (left, left_ns) = match at {
            0 => (0, 0.0),
            _ => self.points[at - 1],
        };
        left_ns + (right_ns - left_ns) * (bytes - left) as f64 / (right - left) as f64
    }
}

/// One machine and kind of work.
#[derive(Clone, Debug)]
pub struct Machine {
    pub name: String,
    pub cpus: u16,
    pub channels: u16,
    /// The first one is the plain copy.
    pub costs: Vec<Cost>,
}

/// What a batch takes that truly costs `ns`: up to 20 % more or less, and one in 200 is preempted and takes ten times as long.
fn noisy(ns: f64, random: &mut fastrand::Rng) -> f64 {
    let preempted = if random.u8(0..200) == 0 { 10.0 } else { 1.0 };
    ns * (0.8 + 0.4 * random.f64()) * preempted
}

/// True costs of the batches of one run, one entry per batch, in ns.
#[derive(Default)]
pub struct Run {
    pub chosen: Vec<f64>,
    pub plain: Vec<f64>,
    pub trials: u64,
    /// Batches, or rests of one, that another option than the plain copy was used for, trials not counted.
    pub away: u64,
    /// Of each option, all batches.
    pub fixed: Vec<f64>,
}

impl Run {
    /// The most that `batches` in a row cost, as a share of the plain copy's.
    pub fn worst(&self, batches: usize) -> f64 {
        let sums = |costs: &[f64]| {
            let mut sum = 0.0;
            let mut sums = vec![0.0];
            sums.extend(costs.iter().map(|cost| {
                sum += cost;
                sum
            }));
            sums
        };
        let (chosen, plain) = (sums(&self.chosen), sums(&self.plain));
        (batches..chosen.len())
            .map(|end| (chosen[end] - chosen[end - batches]) / (plain[end] - plain[end - batches]))
            .fold(0.0, f64::max)
    }

    /// The total as a share of the best option's.
    pub fn regret(&self) -> f64 {
        self.chosen.iter().sum::<f64>() / self.fixed[self.best()]
    }

    /// The option that all batches together would have taken the least time with.
    pub fn best(&self) -> usize {
        let options = 0..self.fixed.len();
        let best = options.min_by(|&a, &b| self.fixed[a].total_cmp(&self.fixed[b]));
        best.expect("a machine has the plain copy")
    }
}

impl Machine {
    /// A class that knows nothing of this machine's costs.
    pub fn class(&self) -> Choose {
        let options: Vec<ChooseOption> = self.costs.iter().map(|cost| cost.option).collect();
        Choose::new(&options)
    }

    /// Moves `nr` batches of `work`.
    pub fn run(
        &self,
        class: &mut Choose,
        work: &Work,
        nr: usize,
        random: &mut fastrand::Rng,
    ) -> Run {
        let mut run = Run {
            fixed: vec![0.0; self.costs.len()],
            ..Run::default()
        };
        for _ in 0..nr {
            let total = work.bytes.draw(random);
            let mut left = total;
            let mut chosen = 0.0;
            while left > 0 {
                let choice = class.choose(&Batch {
                    bytes: left,
                    folio_bytes: work.folio_bytes,
                    cpus: self.cpus,
                    channels: self.channels,
                    urgent: false,
                });
                let ns = self.costs[choice.option as usize].ns(choice.bytes);
                class.learn(&choice, noisy(ns, random) as u64);
                chosen += ns;
                run.trials += u64::from(choice.trial);
                run.away += u64::from(choice.option > 0 && !choice.trial);
                left -= choice.bytes;
            }
            run.chosen.push(chosen);
            run.plain.push(self.costs[0].ns(total));
            for (sum, cost) in run.fixed.iter_mut().zip(&self.costs) {
                *sum += cost.ns(total);
            }
        }
        run
    }
}

/// The sizes of a kind of migration, and its folios.
pub struct Work {
    pub name: &'static str,
    pub folio_bytes: u64,
    pub bytes: Sizes,
}

/// The bytes of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sizes {
    Same(u64),
    /// Base pages: mostly `usual`, one in `one_in` batches evenly from `least` to `most`.
    Mixed {
        usual: u64,
        one_in: u32,
        least: u64,
        most: u64,
    },
    /// 256 KiB to 64 MiB by doubling.
    Doubling,
}

impl Sizes {
    fn draw(self, random: &mut fastrand::Rng) -> u64 {
        match self {
            Self::Same(bytes) => bytes,
            Self::Mixed {
                usual,
                one_in,
                least,
                most,
            } => {
                4096 * if random.u32(0..one_in) == 0 {
                    random.u64(least..=most)
                } else {
                    usual
                }
            }
            Self::Doubling => (256 << 10) << random.u32(0..9),
        }
    }
}

/// What reaches the copy stage of Linux 6.12 and the mover, by reason. Compaction migrates about 32 pages at a time, up to a
/// whole pageblock; promotion takes 512 pages or a huge page; `move_pages` has no limit but `max_batch_bytes` (4 MiB) in
/// the kernel, and whole ranges of 64 MiB in userspace. Both: compaction
/// and promotion in one class.
pub const WORK: [Work; 6] = [
    Work {
        name: "compaction",
        folio_bytes: 4096,
        bytes: Sizes::Mixed {
            usual: 32,
            one_in: 8,
            least: 33,
            most: 512,
        },
    },
    Work {
        name: "promotion",
        folio_bytes: 4096,
        bytes: Sizes::Mixed {
            usual: 512,
            one_in: 4,
            least: 64,
            most: 511,
        },
    },
    Work {
        name: "promotion, huge",
        folio_bytes: HUGE,
        bytes: Sizes::Same(HUGE),
    },
    Work {
        name: "move_pages",
        folio_bytes: 4096,
        bytes: Sizes::Mixed {
            usual: 1024,
            one_in: 8,
            least: 1,
            most: 1024,
        },
    },
    Work {
        name: "move_range",
        folio_bytes: 4096,
        bytes: Sizes::Doubling,
    },
    Work {
        name: "both, base pages",
        folio_bytes: 4096,
        bytes: Sizes::Mixed {
            usual: 32,
            one_in: 2,
            least: 512,
            most: 512,
        },
    },
];

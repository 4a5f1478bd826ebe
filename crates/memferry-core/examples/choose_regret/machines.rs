// SPDX-License-Identifier: MIT OR Apache-2.0
//! Machines to choose on: options with their true costs, made up or published; and how a class of work does on one.

use std::collections::HashMap;
use std::sync::LazyLock;

use memferry_core::choose::{Batch, Choice, Choose, ChooseOption};

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
    /// Of CPU lanes and channels together: the options that each side costs alone. `points` are then what memory allows.
    pub sides: Option<[usize; 2]>,
}

impl Cost {
    /// A start-up time and a time per byte, given as GB/s.
    pub fn line(name: String, option: ChooseOption, start_ns: f64, gbps: f64) -> Self {
        let far = 1_u64 << 40;
        Self {
            name,
            option,
            points: vec![(0, start_ns), (far, start_ns + far as f64 / gbps)],
            sides: None,
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
    /// Adds an option of the lanes of one and the channels of another at the same time.
    pub fn split(&mut self, sides: [usize; 2], memory_gbps: f64) {
        let [cpus, channels] = sides.map(|side| &self.costs[side]);
        let option = ChooseOption {
            start_ns: cpus.option.start_ns.max(channels.option.start_ns),
            cpus: cpus.option.cpus,
            channels: channels.option.channels,
        };
        let name = format!("{} and {}", cpus.name, channels.name);
        let start_ns = cpus.points[0].1.min(channels.points[0].1);
        self.costs.push(Cost {
            sides: Some(sides),
            ..Cost::line(name, option, start_ns, memory_gbps)
        });
    }

    /// What both sides of a split truly take, or those without a part nothing.
    fn sides(&self, sides: [usize; 2], cpu_bytes: u64, bytes: u64) -> [f64; 2] {
        let ns = |side: usize, part| match part {
            0 => 0.0,
            part => self.costs[side].ns(part),
        };
        [ns(sides[0], cpu_bytes), ns(sides[1], bytes - cpu_bytes)]
    }

    /// The true time of a batch by one option; of a split at the best cut in 256ths, between two folios.
    fn fixed(&self, option: usize, bytes: u64, folio_bytes: u64) -> f64 {
        let cost = &self.costs[option];
        let Some(sides) = cost.sides else {
            return cost.ns(bytes);
        };
        let cuts = (0..=256).map(|part| {
            let cut = (bytes * part / 256) & !(folio_bytes - 1);
            let [cpus, channels] = self.sides(sides, cut, bytes);
            cpus.max(channels)
        });
        cuts.fold(f64::INFINITY, f64::min).max(cost.ns(bytes))
    }

    /// The true time of what was chosen, which the class learns with noise.
    fn carry(&self, class: &mut Choose, choice: &Choice, random: &mut fastrand::Rng) -> f64 {
        let cost = &self.costs[choice.option as usize];
        let Some(sides) = cost.sides else {
            let ns = cost.ns(choice.bytes);
            class.learn(choice, noisy(ns, random) as u64);
            return ns;
        };
        let sides = self.sides(sides, choice.cpu_bytes, choice.bytes);
        let memory = cost.ns(choice.bytes);
        // What disturbs a batch disturbs both sides.
        let noise = noisy(1.0, random);
        let [cpus, channels] = sides.map(|ns| noise * ns.max(memory));
        class.learn(choice, cpus.max(channels) as u64);
        class.learn_split(choice, cpus as u64, channels as u64);
        sides[0].max(sides[1]).max(memory)
    }

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
        let mut known: HashMap<u64, Vec<f64>> = HashMap::new();
        for number in 0..nr {
            let total = work.bytes.draw(number, random);
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
                chosen += self.carry(class, &choice, random);
                run.trials += u64::from(choice.trial);
                run.away += u64::from(choice.option > 0 && !choice.trial);
                left -= choice.bytes;
            }
            let options = 0..self.costs.len();
            let fixed = known.entry(total).or_insert_with(|| {
                options
                    .map(|option| self.fixed(option, total, work.folio_bytes))
                    .collect()
            });
            run.chosen.push(chosen);
            run.plain.push(fixed[0]);
            for (sum, ns) in run.fixed.iter_mut().zip(fixed) {
                *sum += *ns;
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
    /// What reached the copy stage in the lab's guest, in its order: base pages of one benchmark in `batches.csv`.
    Recorded(&'static str),
}

/// The recorded batches of one benchmark, in bytes: compaction isolates 256 pages at a time while a migrator is active, and
/// promotion and demotion 512.
fn recorded(name: &'static str) -> &'static [u64] {
    static ALL: LazyLock<HashMap<&str, Vec<u64>>> = LazyLock::new(|| {
        let mut all = HashMap::<_, Vec<_>>::new();
        for line in include_str!("batches.csv").lines().skip(1) {
            let fields: Vec<&str> = line.split(',').collect();
            let [work, _, folios, times] = fields[..] else {
                panic!("batches.csv: {line}");
            };
            let number = |field: &str| field.parse::<u64>().expect("a number in batches.csv");
            let batches = std::iter::repeat_n(4096 * number(folios), number(times) as usize);
            all.entry(work).or_default().extend(batches);
        }
        all
    });
    &ALL[name]
}

impl Sizes {
    fn draw(self, number: usize, random: &mut fastrand::Rng) -> u64 {
        match self {
            Self::Same(bytes) => bytes,
            Self::Recorded(name) => {
                let all = recorded(name);
                all[number % all.len()]
            }
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

/// What reaches the copy stage of Linux 6.12 and the mover, by reason. Without a migrator compaction isolates 32 pages at a time; promotion takes 512 pages or a huge page; `move_pages` has no limit but `max_batch_bytes` (4 MiB) in
/// the kernel, and whole ranges of 64 MiB in userspace. Both: compaction
/// and promotion in one class.
pub const WORK: [Work; 8] = [
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
    Work {
        name: "compaction, recorded",
        folio_bytes: 4096,
        bytes: Sizes::Recorded("compaction"),
    },
    Work {
        name: "promotion, recorded",
        folio_bytes: 4096,
        bytes: Sizes::Recorded("promotion"),
    },
];

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The declarations of the core's headers, by hand, and compared with what the C compiler
//! sees by this module's tests. Nothing here decides or checks anything.

use std::ffi::c_int;
use std::mem::MaybeUninit;

unsafe extern "C" {
    /// # Safety
    /// `lanes` and `granule` must not be 0.
    pub(crate) fn ferry_share_begin(
        total: usize,
        lanes: usize,
        granule: usize,
        lane: usize,
    ) -> usize;
}

/// The numbers of the hotness policy. [`Policy`](crate::hotness::Policy) checks them.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Params {
    /// A record whose last access is older than this, in ms, has left the window: the next access starts from
    /// `recall`, and the next sweep makes it idle. In default mode up to 255 ms sooner, never later.
    pub window_ms: u32,
    /// Frequency at which a page is ready.
    pub threshold: u32,
    /// The most of a frequency that outlives the window: 0 starts anew, as pghot does.
    pub recall: u32,
    /// log2 of how many accesses more each level above the threshold takes; 0 counts every access, as pghot does.
    pub step: u32,
    /// The longest time between two sweeps, in ms.
    pub sweep_ms: u32,
    /// Each how many sweeps the records cool by a level; 0 for never.
    pub cool_sweeps: u32,
    /// log2 of how many age classes a level of frequency outweighs in the ranking.
    pub freq_shift: u32,
    /// What an exchange must win, in accesses per window.
    pub cost: u32,
    /// By how many heats each bounce of a page raises the bar for its promotion.
    pub damp: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct BadParam {
    pub field: u32,
    pub least: u64,
    pub most: u64,
}

/// What a record says at some time.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct View {
    pub freq: u32,
    pub eighths: u32,
    pub age: u32,
    pub ready: u32,
    pub node: u32,
}

/// One sweep over the records.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sweep {
    /// Time in ms, modulo 2^32.
    pub now: u32,
    /// Time of the sweep before it. If that was longer ago than `sweep_ms` every record becomes idle.
    pub last: u32,
    /// Counts the sweeps from 1 on.
    pub number: u32,
}

/// Frequencies of a histogram, in eighths: 0 to 7 accesses.
pub const EIGHTHS: usize = 57;
/// Age classes of a histogram: 0 to 3 of records in the window, 4 to 15 of idle ones.
pub const AGES: usize = 16;
/// The first age class of idle records.
pub const IDLE_AGE: usize = 4;
/// Heats: 0 to 127.
pub const HEATS: u32 = 128;
/// Pages of a section: 128 MiB in pages of 4 KiB.
pub const SECTION_PAGES: usize = 32768;
/// The largest weight of an access.
pub const WEIGHT_MAX: u32 = 0xffff;

pub(crate) const NO_NODE: u32 = 1023;
pub(crate) const FORMAT_DEFAULT: u32 = 0;
pub(crate) const FORMAT_PRECISE: u32 = 1;

/// Pages by frequency, in eighths, and age class. Pages of which nothing is known are in the last class of frequency 0.
#[repr(C)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    /// How many there are.
    pub pages: [[u64; AGES]; EIGHTHS],
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            pages: [[0; AGES]; EIGHTHS],
        }
    }
}

/// The border between what fits a budget and what does not.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    /// Pages of more heat fit.
    pub heat: u32,
    /// How many those are.
    pub above: u64,
    /// Of the pages of just this heat, how many fit as well.
    pub room: u64,
}

/// What two tiers should exchange.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exchange {
    /// Pages to move each way; if 0 the other fields are 0.
    pub pages: u64,
    /// Least heat of those of the lower tier.
    pub hot: u32,
    /// How many of just that heat; of more heat, all.
    pub hot_room: u64,
    /// Most heat of those of the top tier.
    pub cold: u32,
    /// How many of just that heat; of less heat, all.
    pub cold_room: u64,
}

/// The numbers of one target's pace. [`Pace`](crate::pace::Pace) checks them.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PaceParams {
    /// Bytes per second.
    pub rate: u64,
    /// How much unused time is saved up, in ms.
    pub burst_ms: u32,
    /// How often the threshold is adjusted, in ms.
    pub window_ms: u32,
    /// The threshold to begin with, in ms.
    pub reference_ms: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PaceState {
    pub tokens: i64,
    pub depth: u64,
    pub per_ms: u64,
    pub candidates: u64,
    pub per_ms_rest: u32,
    pub carry: u32,
    pub refilled: u32,
    pub window_start: u32,
    pub threshold_ms: u32,
}

/// How much room the top tier keeps for new pages, and when page tables are worth a walk.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BalanceParams {
    /// Room for the new pages of so many rounds is kept.
    pub rounds: u32,
    /// It shrinks by 1/2^`fade_shift` a round once fewer pages come.
    pub fade_shift: u32,
    /// It is at most 1/2^`most_shift` of the tier.
    pub most_shift: u32,
    /// Each how many rounds a bounce counts less.
    pub bounce_rounds: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BalanceState {
    pub room: u64,
}

/// The highest rate of a pace, in bytes per second.
pub const PACE_RATE_MAX: u64 = 1 << 42;
/// What a pace can be asked for at most, in bytes.
pub const PACE_BYTES_MAX: u64 = 1 << 59;

/// Options of a class at most, the plain copy among them.
pub const CHOOSE_OPTIONS: usize = 16;
/// Size classes of estimates: 16 KiB to 64 MiB.
pub(crate) const CHOOSE_SIZES: usize = 13;
/// Batches from one trial to the next, at least.
pub const CHOOSE_TRIAL: u32 = 64;

/// One way to copy a batch.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChooseOption {
    /// The most that its start-up may take, for the first trial: measured or assumed.
    pub start_ns: u32,
    /// Idle CPUs that it needs beside the caller's own.
    pub cpus: u16,
    /// DMA channels that it needs; an option that needs both splits its batches.
    pub channels: u16,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ChooseCost {
    pub mean: u32,
    pub spread: u32,
    pub margin: u32,
    pub samples: u16,
    pub streak: i8,
    pub cpu_share: u8,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ChooseState {
    pub slack: u64,
    pub bank: [u64; 2],
    pub nr_options: u32,
    pub since: u32,
    pub turn: u32,
    pub next: u32,
    pub options: [ChooseOption; CHOOSE_OPTIONS],
    pub costs: [[ChooseCost; CHOOSE_SIZES]; CHOOSE_OPTIONS],
}

/// What is to be copied, and by what it could be.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Of all its folios, at least 1.
    pub bytes: u64,
    /// Of one folio, a power of two; parts of a batch are multiples of it.
    pub folio_bytes: u64,
    /// Idle CPUs that could help.
    pub cpus: u16,
    /// DMA channels that are free.
    pub channels: u16,
    /// Somebody waits for this batch: no trial.
    pub urgent: bool,
}

/// The answer.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// The first so many bytes of the batch; ask again for the rest.
    pub bytes: u64,
    /// How many of these CPU lanes copy in a split, while channels copy the others.
    pub cpu_bytes: u64,
    /// What a trial takes at most, as far as is known or assumed.
    pub most_ns: u64,
    /// By which option; 0 is the plain copy.
    pub option: u32,
    /// Another option is better as far as is known.
    pub trial: bool,
}

unsafe extern "C" {
    /// # Safety
    /// `options` must be valid for `nr_options` reads, which is 1 to [`CHOOSE_OPTIONS`].
    pub(crate) fn ferry_choose_start(
        choose: &mut ChooseState,
        options: *const ChooseOption,
        nr_options: u32,
    );
    pub(crate) safe fn ferry_choose(choose: &mut ChooseState, batch: &Batch, choice: &mut Choice);
    /// # Safety
    /// `choice` must be one of this state's answers, with any time.
    pub(crate) fn ferry_choose_learn(choose: &mut ChooseState, choice: &Choice, ns: u64);
    /// # Safety
    /// As [`ferry_choose_learn`].
    pub(crate) fn ferry_choose_learn_split(
        choose: &mut ChooseState,
        choice: &Choice,
        cpu_ns: u64,
        channel_ns: u64,
    );

    pub(crate) safe fn ferry_hot_defaults(format: u32, params: &mut MaybeUninit<Params>);
    pub(crate) safe fn ferry_hot_check(format: u32, params: &Params, bad: &mut BadParam) -> c_int;
    pub(crate) safe fn ferry_hot8_access(
        record: u8,
        params: &Params,
        now: u32,
        weight: u32,
        random: u32,
    ) -> u8;
    pub(crate) safe fn ferry_hot32_access(
        record: u32,
        params: &Params,
        now: u32,
        weight: u32,
        random: u32,
        node: u32,
    ) -> u32;
    pub(crate) safe fn ferry_hot8_aged(record: u8, params: &Params, sweep: &Sweep) -> u8;
    pub(crate) safe fn ferry_hot32_aged(record: u32, params: &Params, sweep: &Sweep) -> u32;
    pub(crate) safe fn ferry_hot8_view(record: u8, now: u32) -> View;
    pub(crate) safe fn ferry_hot32_view(record: u32, now: u32) -> View;
    pub(crate) safe fn ferry_hot8_age_ms(record: u8, now: u32) -> u32;
    pub(crate) safe fn ferry_hot32_age_ms(record: u32, now: u32) -> u32;
    pub(crate) safe fn ferry_hot8_claim(record: u8) -> u8;
    pub(crate) safe fn ferry_hot32_claim(record: u32) -> u32;
    pub(crate) safe fn ferry_hot8_unclaim(record: u8) -> u8;
    pub(crate) safe fn ferry_hot32_unclaim(record: u32) -> u32;
    /// # Safety
    /// `records` must be valid for reads and writes of `nr_records`, which fits 32 bits.
    pub(crate) fn ferry_hot8_sweep(
        records: *mut u8,
        nr_records: usize,
        params: &Params,
        sweep: &Sweep,
        histogram: &mut Histogram,
    ) -> usize;
    /// # Safety
    /// `records` must be valid for reads and writes of `nr_records`.
    pub(crate) fn ferry_hot32_sweep(
        records: *mut u32,
        nr_records: usize,
        params: &Params,
        sweep: &Sweep,
        histogram: &mut Histogram,
    ) -> usize;
    /// # Safety
    /// `records` must be valid for `nr_records` reads, which fits 32 bits.
    pub(crate) fn ferry_hot8_count(
        records: *const u8,
        nr_records: usize,
        now: u32,
        histogram: &mut Histogram,
    );
    /// # Safety
    /// `records` must be valid for `nr_records` reads.
    pub(crate) fn ferry_hot32_count(
        records: *const u32,
        nr_records: usize,
        now: u32,
        histogram: &mut Histogram,
    );
    /// # Safety
    /// `records` must be valid for `nr_records` reads, and `found` for `space` writes.
    pub(crate) fn ferry_hot8_find(
        records: *const u8,
        nr_records: usize,
        from: &mut usize,
        params: &Params,
        now: u32,
        least: u32,
        most: u32,
        found: *mut u32,
        space: usize,
    ) -> usize;
    /// # Safety
    /// As [`ferry_hot8_find`].
    pub(crate) fn ferry_hot32_find(
        records: *const u32,
        nr_records: usize,
        from: &mut usize,
        params: &Params,
        now: u32,
        least: u32,
        most: u32,
        found: *mut u32,
        space: usize,
    ) -> usize;
    pub(crate) safe fn ferry_hot_heat(params: &Params, eighths: u32, age: u32) -> u32;
    pub(crate) safe fn ferry_hot_cut(
        params: &Params,
        histogram: &Histogram,
        least_freq: u32,
        budget: u64,
        cut: &mut Cut,
    );
    pub(crate) safe fn ferry_hot_exchange(
        params: &Params,
        top: &Histogram,
        lower: &Histogram,
        budget: u64,
        exchange: &mut Exchange,
    );
    pub(crate) safe fn ferry_balance_defaults(
        format: u32,
        hot: &mut MaybeUninit<Params>,
        params: &mut MaybeUninit<BalanceParams>,
    );
    pub(crate) safe fn ferry_balance_room(
        balance: &mut BalanceState,
        params: &BalanceParams,
        born: u64,
        capacity: u64,
        free: u64,
    ) -> u64;
    pub(crate) safe fn ferry_balance_idle(hot: &Params) -> u32;
    pub(crate) safe fn ferry_balance_fill(
        balance: &BalanceState,
        hot: &Params,
        lower: &Histogram,
        free: u64,
        budget: u64,
        cut: &mut Cut,
    ) -> u64;
    pub(crate) safe fn ferry_balance_bar(hot: &Params, heat: u32, bounces: u32) -> u32;
    pub(crate) safe fn ferry_hot_majority(majority: u16, node: u32) -> u16;
    pub(crate) safe fn ferry_hot_majority_node(majority: u16) -> u32;
    pub(crate) safe fn ferry_hot_promoted(entry: u16, tag: u32, bounced: &mut u32) -> u16;
    pub(crate) safe fn ferry_hot_demoted(entry: u16, tag: u32) -> u16;
    pub(crate) safe fn ferry_hot_bounce_aged(entry: u16) -> u16;
    pub(crate) safe fn ferry_hot_bounces(entry: u16, tag: u32) -> u32;

    pub(crate) safe fn ferry_pace_defaults(params: &mut MaybeUninit<PaceParams>);
    pub(crate) safe fn ferry_pace_check(params: &PaceParams, bad: &mut BadParam) -> c_int;
    pub(crate) safe fn ferry_pace_start(pace: &mut PaceState, params: &PaceParams, now: u32);
    pub(crate) safe fn ferry_pace_reserve(pace: &mut PaceState, now: u32, bytes: u64) -> bool;
    pub(crate) safe fn ferry_pace_settle(pace: &mut PaceState, reserved: u64, moved: u64);
    pub(crate) safe fn ferry_pace_budget(pace: &mut PaceState, now: u32) -> u64;
    pub(crate) safe fn ferry_pace_candidate(pace: &mut PaceState, bytes: u64);
    pub(crate) safe fn ferry_pace_threshold(
        pace: &mut PaceState,
        params: &PaceParams,
        now: u32,
    ) -> u32;
    pub(crate) safe fn ferry_pace_bypass(
        pace: &mut PaceState,
        params: &PaceParams,
        free: u64,
        node: u64,
        watermark: u64,
    ) -> bool;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::{CStr, c_char};
    use std::mem::{align_of, offset_of, size_of};

    #[repr(C)]
    struct Layout {
        name: *const c_char,
        at: u64,
        size: u64,
        align: u64,
    }

    #[link(name = "memferry_core_layout", kind = "static")]
    unsafe extern "C" {
        static ferry_layouts: [Layout; 0];
        static ferry_nr_layouts: usize;
    }

    type Row = (String, u64, u64, u64);

    fn layout_in_c() -> Vec<Row> {
        // SAFETY: the table is constant, has as many rows as its length says, and each name
        // is a string literal.
        let rows = unsafe {
            std::slice::from_raw_parts((&raw const ferry_layouts).cast(), ferry_nr_layouts)
        };
        let row = |row: &Layout| {
            // SAFETY: see above.
            let name = unsafe { CStr::from_ptr(row.name) };
            (
                name.to_string_lossy().into_owned(),
                row.at,
                row.size,
                row.align,
            )
        };
        rows.iter().map(row).collect()
    }

    fn size_of_field<S, F>(_: fn(&S) -> &F) -> u64 {
        size_of::<F>() as u64
    }

    macro_rules! structures {
        ($($c:literal = $rust:ident: $($field:ident),*;)*) => {
            vec![$(
                ($c.into(), 0, size_of::<$rust>() as u64, align_of::<$rust>() as u64),
                $((
                    concat!($c, ".", stringify!($field)).into(),
                    offset_of!($rust, $field) as u64,
                    size_of_field(|s: &$rust| &s.$field),
                    0,
                ),)*
            )*]
        };
    }

    #[test]
    fn declarations_equal_the_c_headers() {
        let mut rows: Vec<Row> = structures! {
            "ferry_hot_params" = Params: window_ms, threshold, recall, step, sweep_ms, cool_sweeps,
                freq_shift, cost, damp;
            "ferry_bad" = BadParam: field, least, most;
            "ferry_hot_view" = View: freq, eighths, age, ready, node;
            "ferry_hot_sweep" = Sweep: now, last, number;
            "ferry_hot_histogram" = Histogram: pages;
            "ferry_hot_cut" = Cut: heat, above, room;
            "ferry_balance_params" = BalanceParams: rounds, fade_shift, most_shift, bounce_rounds;
            "ferry_balance" = BalanceState: room;
            "ferry_choose_option" = ChooseOption: start_ns, cpus, channels;
            "ferry_choose_cost" = ChooseCost: mean, spread, margin, samples, streak, cpu_share;
            "ferry_choose" = ChooseState: slack, bank, nr_options, since, turn, next, options, costs;
            "ferry_batch" = Batch: bytes, folio_bytes, cpus, channels, urgent;
            "ferry_choice" = Choice: bytes, cpu_bytes, most_ns, option, trial;
            "ferry_hot_exchange" = Exchange: pages, hot, hot_room, cold, cold_room;
            "ferry_pace_params" = PaceParams: rate, burst_ms, window_ms, reference_ms;
            "ferry_pace" = PaceState: tokens, depth, per_ms, candidates, per_ms_rest, carry, refilled,
                window_start, threshold_ms;
        };
        for (name, value) in [
            ("FERRY_SHARE_GRANULE", crate::GRANULE as u64),
            ("FERRY_CHOOSE_OPTIONS", CHOOSE_OPTIONS as u64),
            ("FERRY_CHOOSE_SIZES", CHOOSE_SIZES as u64),
            ("FERRY_CHOOSE_PLAIN", 0),
            ("FERRY_CHOOSE_TRIAL", CHOOSE_TRIAL.into()),
            ("FERRY_HOT_DEFAULT", FORMAT_DEFAULT.into()),
            ("FERRY_HOT_PRECISE", FORMAT_PRECISE.into()),
            ("FERRY_HOT_SECTION", SECTION_PAGES as u64),
            ("FERRY_HOT_NO_NODE", NO_NODE.into()),
            ("FERRY_HOT8_READY", 0x80),
            ("FERRY_HOT32_READY", 1 << 31),
            ("FERRY_HOT_EIGHTHS", EIGHTHS as u64),
            ("FERRY_HOT_AGES", AGES as u64),
            ("FERRY_HOT_IDLE_AGE", IDLE_AGE as u64),
            ("FERRY_HOT_HEATS", HEATS.into()),
            ("FERRY_HOT_WEIGHT_MAX", WEIGHT_MAX.into()),
            ("FERRY_HOT_OK", 0),
            ("FERRY_HOT_WINDOW_MS", 1),
            ("FERRY_HOT_THRESHOLD", 2),
            ("FERRY_HOT_RECALL", 3),
            ("FERRY_HOT_STEP", 4),
            ("FERRY_HOT_SWEEP_MS", 5),
            ("FERRY_HOT_COOL_SWEEPS", 6),
            ("FERRY_HOT_FREQ_SHIFT", 7),
            ("FERRY_HOT_COST", 8),
            ("FERRY_HOT_DAMP", 9),
            ("FERRY_PACE_RATE_MAX", PACE_RATE_MAX),
            ("FERRY_PACE_BYTES_MAX", PACE_BYTES_MAX),
            ("FERRY_PACE_OK", 0),
            ("FERRY_PACE_RATE", 1),
            ("FERRY_PACE_BURST_MS", 2),
            ("FERRY_PACE_WINDOW_MS", 3),
            ("FERRY_PACE_REFERENCE_MS", 4),
        ] {
            rows.push((name.into(), value, 0, 0));
        }
        assert_eq!(rows, layout_in_c());
    }
}

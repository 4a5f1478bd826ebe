// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sizes and times as people write and read them: `64K`, `2 MiB`, `310 µs`.
//!
//! Sizes are powers of 1024, as folio sizes are; throughput and its limits are in GB of 1e9 bytes.

use std::fmt;
use std::str::FromStr;

/// A number of bytes given on the command line; never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

/// Suffixes and the power of two that each stands for.
const SUFFIXES: [(&str, u32); 9] = [
    ("", 0),
    ("K", 10),
    ("KIB", 10),
    ("M", 20),
    ("MIB", 20),
    ("G", 30),
    ("GIB", 30),
    ("T", 40),
    ("TIB", 40),
];

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (number, suffix) = split_number(text);
        let known = SUFFIXES
            .iter()
            .find(|(name, _)| suffix.eq_ignore_ascii_case(name));
        let bytes = known.and_then(|&(_, shift)| times(number, 1 << shift));
        let bytes = bytes.ok_or(
            "not a size; give bytes (1048576) or a number with K, M, G or T, which are powers of 1024 \
             (4K, 64KiB, 1.5G, 1GiB)",
        )?;
        match u64::try_from(bytes) {
            Ok(0) => Err("a size must be larger than 0".to_owned()),
            Ok(bytes) => Ok(Self(bytes)),
            Err(_) => Err("larger than the largest size, 16 EiB".to_owned()),
        }
    }
}

/// The number that a text begins with, and the rest.
fn split_number(text: &str) -> (&str, &str) {
    let rest = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    text.split_at(text.len() - rest.len())
}

/// So many units in whole bytes; bytes have no decimals.
fn times(number: &str, unit: u64) -> Option<u128> {
    let (whole, decimals) = number.split_once('.').unwrap_or((number, ""));
    let is_number = match number.contains('.') {
        true => !whole.is_empty() && !decimals.is_empty() && unit > 1,
        false => !whole.is_empty(),
    };
    if !is_number {
        return None;
    }
    let digits: u128 = format!("{whole}{decimals}").parse().ok()?;
    let parts = 10_u128.checked_pow(decimals.len() as u32)?;
    Some(digits.checked_mul(unit.into())? / parts)
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&short(self.0))
    }
}

/// The smallest folio, and what a batch is a multiple of: the base page where the benchmarks run.
pub const SMALLEST: Size = Size(4 << 10);

/// The largest folio, and the largest batch: one page table's worth, which is the library's limit.
pub const LARGEST: Size = Size(2 << 20);

/// Parses the size of a folio: a power of two from 4 KiB to 2 MiB.
pub fn folio_size(text: &str) -> Result<Size, String> {
    let size: Size = text.parse()?;
    if !(SMALLEST..=LARGEST).contains(&size) || !size.0.is_power_of_two() {
        return Err("a folio is a power of two from 4K to 2M (4K, 16K, 64K … 2M)".to_owned());
    }
    Ok(size)
}

/// Parses the size of a batch: whole base pages, 2 MiB at most.
pub fn batch_size(text: &str) -> Result<Size, String> {
    let size: Size = text.parse()?;
    small_batch(size)?;
    whole_pages(text)
}

/// Refuses batches that the library does not take.
pub fn small_batch(size: Size) -> Result<(), String> {
    match size > LARGEST {
        true => Err(
            "a batch is 2M at most, one page table's worth: a larger one only lets accesses wait \
             longer"
                .to_owned(),
        ),
        false => Ok(()),
    }
}

/// Parses the size of a batch of any size: whole base pages.
pub fn whole_pages(text: &str) -> Result<Size, String> {
    let size: Size = text.parse()?;
    if size.0 % SMALLEST.0 != 0 {
        return Err("a batch is a multiple of the 4K page (4K, 64K, 100K … 2M)".to_owned());
    }
    Ok(size)
}

/// Parses a count of at least one.
pub fn positive(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("must be at least 1".to_owned()),
        Ok(count) => Ok(count),
        Err(_) => Err("not a whole number of at least 1".to_owned()),
    }
}

/// Parses a number of bytes that may be zero.
pub fn bytes_or_none(text: &str) -> Result<u64, String> {
    match text {
        "0" => Ok(0),
        _ => text.parse::<Size>().map(|size| size.0),
    }
}

/// Parses bytes per second, with `/s` or without: in powers of 1000, as throughput is printed, but for KiB, MiB, GiB and TiB.
pub fn rate(text: &str) -> Result<u64, String> {
    let text = text.strip_suffix("/s").unwrap_or(text);
    let (number, suffix) = split_number(text);
    let letter = suffix.strip_suffix(['B', 'b']).unwrap_or(suffix);
    let power = ["", "K", "M", "G", "T"]
        .iter()
        .position(|name| letter.eq_ignore_ascii_case(name));
    let bytes = match power {
        Some(power) => times(number, 1000_u64.pow(power as u32)),
        None => text.parse().ok().map(|Size(bytes)| bytes.into()),
    };
    match bytes.map(u64::try_from) {
        Some(Ok(0)) => Err("a rate must be larger than 0".to_owned()),
        Some(Ok(bytes)) => Ok(bytes),
        _ => Err(
            "not a rate; give bytes a second, or a number with K, M, G or T, which are powers of 1000 \
             (100M, 1.5GB/s, 64MiB/s)"
                .to_owned(),
        ),
    }
}

/// The largest unit that divides `bytes` evenly, and how often it does.
fn split(bytes: u64) -> (u64, usize) {
    let shift = (bytes.trailing_zeros() / 10 * 10).min(40);
    if bytes == 0 {
        return (0, 0);
    }
    (bytes >> shift, shift as usize / 10)
}

/// A size for a table head or an axis: `4K`, `2M`, `1000`.
pub fn short(bytes: u64) -> String {
    let (number, unit) = split(bytes);
    format!("{number}{}", ["", "K", "M", "G", "T"][unit])
}

/// A size for a sentence: `4 KiB`, `2 MiB`, `1000 bytes`.
pub fn long(bytes: u64) -> String {
    let (number, unit) = split(bytes);
    format!("{number} {}", ["bytes", "KiB", "MiB", "GiB", "TiB"][unit])
}

/// An amount that need not be a power of two, rounded: `7.8 GiB`.
pub fn about(bytes: u64) -> String {
    let units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    let digits = usize::from(unit > 0 && value < 99.95 && value.fract() > 0.04);
    format!("{value:.digits$} {}", units[unit])
}

/// An amount in decimal units, as throughput counts it: `84 GB`.
pub fn decimal(bytes: u64) -> String {
    let units = ["bytes", "kB", "MB", "GB", "TB", "PB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1000.0 && unit + 1 < units.len() {
        value /= 1000.0;
        unit += 1;
    }
    let digits = usize::from(unit > 0 && value < 9.95);
    format!("{value:.digits$} {}", units[unit])
}

/// A time in nanoseconds with three significant digits at most: `640 ns`, `31 µs`, `1.2 ms`.
pub fn time(ns: u64) -> String {
    let mut value = ns as f64;
    for unit in ["ns", "µs", "ms"] {
        if value < 999.5 {
            let digits = usize::from(unit != "ns" && value < 9.95);
            return format!("{value:.digits$} {unit}");
        }
        value /= 1000.0;
    }
    format!("{value:.1} s")
}

/// `1 lane`, `2 lanes`.
pub fn lanes(count: usize) -> String {
    if count == 1 {
        "1 lane".to_owned()
    } else {
        format!("{count} lanes")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, bytes) in [
            ("4K", 4096),
            ("4k", 4096),
            ("64KiB", 65536),
            ("2M", 2 << 20),
            ("1GiB", 1 << 30),
            ("1048576", 1 << 20),
            ("3T", 3 << 40),
            ("1.5G", 3 << 29),
            ("0.25KiB", 256),
        ] {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
    }

    #[test]
    fn wrong_sizes_say_what_is_accepted() {
        for text in [
            "", "K", "4KB", "1.5", ".5K", "1.K", "1.2.3K", "-1", " 4K", "4 K", "x", "4KK", "٤K",
            "é",
        ] {
            let error = text.parse::<Size>().expect_err(text);
            assert!(error.contains("64KiB"), "{text}: {error}");
        }
        assert!(
            "0".parse::<Size>()
                .expect_err("zero")
                .contains("larger than 0")
        );
        assert!(
            "99999999999999T"
                .parse::<Size>()
                .expect_err("large")
                .contains("16 EiB")
        );
        assert!("99999999999999999999".parse::<Size>().is_err());
    }

    #[test]
    fn rates_are_decimal_and_limits_are_sizes() {
        for (text, bytes) in [
            ("100M/s", 100_000_000),
            ("1.5GB/s", 1_500_000_000),
            ("64MiB", 64 << 20),
            ("4096", 4096),
        ] {
            assert_eq!(rate(text), Ok(bytes), "{text}");
        }
        for text in ["0", "1M/h", "M", "1.5", "99999999T"] {
            assert!(rate(text).is_err(), "{text}");
        }
        assert_eq!(
            (bytes_or_none("0"), bytes_or_none("2M")),
            (Ok(0), Ok(2 << 20))
        );
    }

    #[test]
    fn written_sizes_are_read_back() {
        for bytes in [1, 1000, 4096, 65536, 3 << 20, 1 << 30, 5 << 40, 1 << 52] {
            assert_eq!(short(bytes).parse(), Ok(Size(bytes)));
        }
        assert_eq!(long(2 << 20), "2 MiB");
        assert_eq!(about(8_385_540_096), "7.8 GiB");
        assert_eq!(about(1 << 30), "1 GiB");
        assert_eq!(decimal(85_899_345_920), "86 GB");
    }

    #[test]
    fn times_change_unit_where_the_number_grows_long() {
        for (ns, text) in [
            (0, "0 ns"),
            (640, "640 ns"),
            (999, "999 ns"),
            (1_000, "1.0 µs"),
            (31_400, "31 µs"),
            (999_600, "1.0 ms"),
            (1_234_567, "1.2 ms"),
            (12_000_000_000, "12.0 s"),
        ] {
            assert_eq!(time(ns), text);
        }
    }
}

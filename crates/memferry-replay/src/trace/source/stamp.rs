// SPDX-License-Identifier: MIT OR Apache-2.0
//! The time in a line of `perf script` or of the kernel's trace: `24658.917788:`.

/// Nanoseconds of `seconds.fraction:`, the fraction having 6 digits or 9; `None` for any other word.
pub fn nanoseconds(word: &str) -> Option<u64> {
    let (seconds, fraction) = word.strip_suffix(':')?.split_once('.')?;
    let unit = match fraction.len() {
        6 => 1000,
        9 => 1,
        _ => return None,
    };
    let seconds = digits(seconds)?.checked_mul(1_000_000_000)?;
    seconds.checked_add(digits(fraction)?.checked_mul(unit)?)
}

/// A number of decimal digits and nothing else.
pub fn digits(word: &str) -> Option<u64> {
    let plain = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| word.parse().ok()).flatten()
}

/// A number of hexadecimal digits and nothing else.
pub fn hex(word: &str) -> Option<u64> {
    let plain = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    plain.then(|| u64::from_str_radix(word, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_resolutions_are_read_and_nothing_else() {
        assert_eq!(nanoseconds("24658.917788:"), Some(24_658_917_788_000));
        assert_eq!(nanoseconds("0.000000001:"), Some(1));
        for word in [
            "24658.917788",
            "24658.91:",
            "24658:",
            ".917788:",
            "x.917788:",
            "1.91778x:",
            "-1.917788:",
            "99999999999999.000000:",
            "",
        ] {
            assert_eq!(nanoseconds(word), None, "{word}");
        }
    }
}

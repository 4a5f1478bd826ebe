// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whole numbers in as few bytes as they need: seven bits a byte, lowest first, the top bit set where more follow.

/// Bytes of the longest number, 64 bits.
pub const LONGEST: usize = 10;

/// Appends `value`.
pub fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Takes a number off the front of `input`; `None` if it ends early or has more than 64 bits.
pub fn take(input: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for (at, &byte) in input.iter().enumerate().take(LONGEST) {
        let bits = u64::from(byte & 0x7f);
        // The tenth byte holds the last of 64 bits.
        if at + 1 == LONGEST && byte > 1 {
            return None;
        }
        value |= bits << (7 * at);
        if byte & 0x80 == 0 {
            *input = &input[at + 1..];
            return Some(value);
        }
    }
    None
}

/// From `before` to `after`, near numbers becoming small ones in both directions.
pub fn step(before: u64, after: u64) -> u64 {
    let step = after.wrapping_sub(before) as i64;
    (step << 1 ^ step >> 63) as u64
}

/// The `after` of which [`step`] is the step.
pub fn follow(before: u64, step: u64) -> u64 {
    let back = (step & 1).wrapping_neg();
    before.wrapping_add(step >> 1 ^ back)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_was_put_is_taken(values in prop::collection::vec(any::<u64>(), 0..20)) {
            let mut bytes = Vec::new();
            for &value in &values {
                put(&mut bytes, value >> (value % 64));
            }
            let mut rest = &bytes[..];
            for &value in &values {
                prop_assert_eq!(take(&mut rest), Some(value >> (value % 64)));
            }
            prop_assert!(rest.is_empty());
        }

        #[test]
        fn a_step_leads_to_where_it_was_made_for(before: u64, after: u64) {
            prop_assert_eq!(follow(before, step(before, after)), after);
        }
    }

    #[test]
    fn near_numbers_are_small_steps() {
        assert_eq!([step(5, 5), step(5, 4), step(5, 6)], [0, 1, 2]);
        assert_eq!(step(u64::MAX, 0), 2);
    }

    #[test]
    fn a_number_that_ends_early_or_is_too_long_is_none() {
        assert_eq!(take(&mut &[][..]), None);
        assert_eq!(take(&mut &[0x80][..]), None);
        assert_eq!(take(&mut &[0xff; 11][..]), None);
        let mut too_large = [0xff; LONGEST];
        too_large[LONGEST - 1] = 2;
        assert_eq!(take(&mut &too_large[..]), None);
        too_large[LONGEST - 1] = 1;
        assert_eq!(take(&mut &too_large[..]), Some(u64::MAX));
    }
}

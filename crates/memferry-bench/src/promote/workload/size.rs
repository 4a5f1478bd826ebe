// SPDX-License-Identifier: MIT OR Apache-2.0
//! How much memory a workload accesses, and how much room the top tier has for it.

use crate::args::promote::PromoteArgs;
use crate::failure::Failure;
use crate::region::THP;
use crate::units::{Size, about};

/// The least that a workload accesses: `hotset` takes pieces of 2 MiB by quarters.
const LEAST: u64 = 16 << 20;

/// Bytes, multiples of 2 MiB.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sizes {
    /// That are accessed.
    pub bytes: u64,
    /// Of the top tier that are to be had.
    pub room: u64,
}

impl Sizes {
    /// What was asked for, or what is usual as far as it fits, with notes. `below` bytes are to be had of the lower tier, `top` of the
    /// top one.
    pub fn choose(
        args: &PromoteArgs,
        usual: u64,
        below: u64,
        top: u64,
    ) -> Result<(Self, Vec<String>), Failure> {
        let mut notes = Vec::new();
        let asked = args.size.map(|size| size.0);
        let bytes = fit("--size", "are accessed", asked, usual, below, &mut notes)?;
        if bytes < LEAST {
            return Err(Failure::new(
                "there is too little memory for a workload",
                format!("{} are less than {}", about(bytes), about(LEAST)),
                "give a larger --size, or end what uses the memory of the lower tier",
            ));
        }
        let asked = args.of_workload.room.map(|room| room.0);
        let usual = bytes / 8 * 3;
        let room = fit(
            "--room",
            "of the top tier are to be had",
            asked,
            usual,
            top,
            &mut notes,
        )?;
        Ok((Self { bytes, room }, notes))
    }
}

fn fit(
    option: &str,
    what: &str,
    asked: Option<u64>,
    usual: u64,
    most: u64,
    notes: &mut Vec<String>,
) -> Result<u64, Failure> {
    let whole = |bytes: u64| bytes / THP as u64 * THP as u64;
    let (wanted, most) = (whole(asked.unwrap_or(usual)), whole(most));
    if wanted <= most {
        return Ok(wanted);
    }
    if asked.is_some() {
        return Err(Failure::new(
            format!("there is no memory for {option} {}", Size(wanted)),
            format!("{} are free", about(most)),
            format!("give a smaller {option}, or end what uses the memory"),
        ));
    }
    notes.push(format!(
        "{} {what} instead of {}; there is no room for more.",
        Size(most),
        Size(wanted)
    ));
    Ok(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_sizes_are_reduced_and_given_ones_refused() {
        let of = |line: &str, below: u64, top: u64| {
            let args = PromoteArgs::read(&format!("--workload zipf {line}"));
            Sizes::choose(&args, 1 << 30, below << 20, top << 20)
        };
        let sizes = |bytes: u64, room: u64| Sizes {
            bytes: bytes << 20,
            room: room << 20,
        };
        assert_eq!(
            of("", 4096, 900).expect("fits"),
            (sizes(1024, 384), Vec::new())
        );
        assert_eq!(
            of("--size 64M --room 9M", 99, 900).expect("fits").0,
            sizes(64, 8)
        );
        let (reduced, notes) = of("", 801, 101).expect("reduced");
        assert_eq!((reduced, notes.len()), (sizes(800, 100), 2));
        assert!(
            notes[1].starts_with("100M of the top tier are to be had instead of 300M"),
            "{notes:?}"
        );
        let told = of("--size 1G", 801, 900)
            .expect_err("too large")
            .to_string();
        assert!(
            told.contains("--size 1G") && told.contains("800 MiB are free"),
            "{told}"
        );
        assert!(of("--room 1G", 4096, 900).is_err());
        assert!(of("--size 8M", 4096, 900).is_err());
    }
}

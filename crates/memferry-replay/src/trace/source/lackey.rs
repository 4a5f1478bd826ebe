// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `valgrind --tool=lackey --trace-mem=yes` writes: every access of a program, in order.
//!
//! ```text
//! ==123== Lackey, an example Valgrind tool      what valgrind itself says
//! I  0401ab70,3                                 instruction fetch: address in hex, bytes
//!  S 1fff000758,8                               store
//!  L 04034590,8                                 load
//!  M 0421c7cc,4                                 modify: a load and a store of the same bytes
//! ```

use std::io::{BufRead, Write};

use crate::error::Error;
use crate::trace::{Header, Totals};

use super::lines::Lines;
use super::recorder::{More, Recorder, Span};
use super::{Access, Kind};

/// Bytes of the largest access that is believed: above what any instruction moves (XSAVE areas are below 16 KiB).
const LARGEST: u32 = 16 << 10;

/// The next access of lackey's text; `None` at the end. A last line that is not whole, as that of a valgrind that was killed,
/// is left out.
fn next_access<R: BufRead>(lines: &mut Lines<R>) -> Result<Option<Access>, Error> {
    while let Some(line) = lines.next_line()? {
        if let Some(access) = access(line) {
            return Ok(Some(access));
        }
        if is_remark(line) {
            continue;
        }
        if lines.is_cut() {
            break;
        }
        return Err(lines.unexpected(
            "access as lackey writes it (` L 1fff000758,8`)",
            "trace with valgrind --tool=lackey --trace-mem=yes --log-file=FILE, which keeps the program's own \
             output out of it",
        ));
    }
    Ok(None)
}

/// Reads a line that tells an access.
fn access(line: &[u8]) -> Option<Access> {
    let (kind, rest) = match line {
        [b'I', b' ', b' ', rest @ ..] => (Kind::Instruction, rest),
        [b' ', b'L', b' ', rest @ ..] => (Kind::Load, rest),
        [b' ', b'S', b' ', rest @ ..] => (Kind::Store, rest),
        [b' ', b'M', b' ', rest @ ..] => (Kind::Modify, rest),
        _ => return None,
    };
    let comma = rest.iter().position(|&byte| byte == b',')?;
    let (digits, size) = (&rest[..comma], &rest[comma + 1..]);
    if digits.is_empty() || digits.len() > 16 || size.is_empty() || size.len() > 5 {
        return None;
    }
    let mut address = 0;
    for &digit in digits {
        address = address << 4 | u64::from(char::from(digit).to_digit(16)?);
    }
    let mut bytes = 0;
    for &digit in size {
        bytes = bytes * 10 + char::from(digit).to_digit(10)?;
    }
    (1..=LARGEST).contains(&bytes).then_some(Access {
        address,
        bytes,
        kind,
    })
}

/// Whether a line is valgrind's own: `==123== …`, `--123-- …`, `**123** …`.
fn is_remark(line: &[u8]) -> bool {
    let mark = match line {
        [] => return true,
        [b'=', b'=', ..] => b"==",
        [b'-', b'-', ..] => b"--",
        [b'*', b'*', ..] => b"**",
        _ => return false,
    };
    let rest = &line[2..];
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    digits > 0 && rest[digits..].starts_with(mark)
}

/// Records what lackey's text tells, to its end or until as many accesses as were asked for are recorded.
pub fn record<W: Write>(from: impl BufRead, recorder: &mut Recorder<W>) -> Result<More, Error> {
    let mut lines = Lines::new(from);
    while let Some(access) = next_access(&mut lines)? {
        if recorder.record(access)? == More::No {
            return Ok(More::No);
        }
    }
    Ok(More::Yes)
}

/// Makes a trace of lackey's text.
pub fn import<W: Write>(
    from: impl BufRead,
    out: W,
    header: &Header,
    span: Span,
) -> Result<(W, Totals), Error> {
    let mut recorder = Recorder::new(out, header, span)?;
    record(from, &mut recorder)?;
    recorder.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str) -> Result<Vec<Access>, Error> {
        let mut lines = Lines::new(text.as_bytes());
        let mut accesses = Vec::new();
        while let Some(access) = next_access(&mut lines)? {
            accesses.push(access);
        }
        Ok(accesses)
    }

    /// Written by valgrind 3.19.0 of /bin/true.
    const REAL: &str = "\
==14780== Lackey, an example Valgrind tool
==14780== Copyright (C) 2002-2017, and GNU GPL'd, by Nicholas Nethercote.
==14780== Using Valgrind-3.19.0 and LibVEX; rerun with -h for copyright info
==14780== Command: /bin/true
==14780== 
I  0401ab70,3
I  0401ab73,5
 S 1fff000758,8
 L 04034590,8
 M 0421c7cc,4
==14780== 
==14780== Counted 0 calls to main()
";

    #[test]
    fn real_output_is_read() {
        let access = |kind, address, bytes| Access {
            address,
            bytes,
            kind,
        };
        assert_eq!(
            all(REAL).expect("read"),
            [
                access(Kind::Instruction, 0x401_ab70, 3),
                access(Kind::Instruction, 0x401_ab73, 5),
                access(Kind::Store, 0x1f_ff00_0758, 8),
                access(Kind::Load, 0x403_4590, 8),
                access(Kind::Modify, 0x421_c7cc, 4),
            ]
        );
    }

    #[test]
    fn a_line_of_something_else_is_told_with_its_number() {
        for line in [
            "hello",
            " L 1000",
            " L ,8",
            " L 1000,",
            " L 1000,0",
            " L 1000,99999",
            " L 10000000000000000,8",
            " L 100g,8",
            " X 1000,8",
            "L 1000,8",
            "==x== y",
            "=12= y",
        ] {
            let error = all(&format!("==1== \nI  04,1\n{line}\n L 1000,8\n"));
            let error = error.expect_err(line);
            assert_eq!(error.at(), Some(3), "{error}");
            assert!(error.to_string().contains(line), "{error}");
            assert!(error.next().contains("--log-file"), "{error}");
        }
    }

    #[test]
    fn a_last_line_that_was_cut_off_is_left_out() {
        assert_eq!(all("I  04,1\n L 10").expect("cut").len(), 1);
        // One that reads well without its end is taken.
        assert_eq!(all("I  04,1\n L 1000,8").expect("read").len(), 2);
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The lines of a guest that are not a test's: what `lab/guest/init` says on the wire and marks on
//! the console.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use crate::command;

/// What the guest says of itself.
#[derive(Debug, PartialEq, Eq)]
pub enum Word<'a> {
    /// The first process runs.
    Boot,
    Begin(&'a str),
    /// The test ended with this status, as a shell has it.
    End(&'a str, i32),
    /// An archive of so many bytes with this SHA-256 follows, in base64.
    Files(usize, &'a str),
    Sent,
    /// The job is done; the machine goes off.
    Done,
}

/// What `line` of the wire says, if it is not a test's.
pub fn read(line: &str) -> Option<Word<'_>> {
    let mut words = line.strip_prefix("@@lab ")?.split(' ');
    let word = match (words.next()?, words.next(), words.next()) {
        ("boot", None, None) => Word::Boot,
        ("begin", Some(name), None) => Word::Begin(name),
        ("end", Some(name), Some(status)) => Word::End(name, status.parse().ok()?),
        ("files", Some(size), Some(sum)) => Word::Files(size.parse().ok()?, sum),
        ("sent", None, None) => Word::Sent,
        ("done", None, None) => Word::Done,
        _ => return None,
    };
    Some(word)
}

/// A mark on the console: where the messages of a test begin and end.
#[derive(Debug, PartialEq, Eq)]
pub enum Mark<'a> {
    Begin(&'a str),
    End(&'a str),
}

/// Whether `line` of the console is a mark.
pub fn mark(line: &str) -> Option<Mark<'_>> {
    let (_, rest) = line.split_once("lab: ")?;
    if let Some(name) = rest.strip_prefix("begin ") {
        return Some(Mark::Begin(name.trim_end()));
    }
    rest.strip_prefix("end ")
        .map(|name| Mark::End(name.trim_end()))
}

/// Unpacks what the guest sent as `lines` into `folder`, if all of it came.
pub fn unpack(lines: &[String], size: usize, sum: &str, folder: &Path) -> Result<()> {
    let bytes = decode(lines)?;
    let digest: String = Sha256::digest(&bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    if bytes.len() != size || digest != sum {
        bail!(
            "the guest's result files came damaged: {} bytes of {size}",
            bytes.len()
        );
    }
    fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
    let archive = tempfile::NamedTempFile::new()?;
    fs::write(archive.path(), &bytes)?;
    command::logged(
        Command::new("tar")
            .args(["-xz", "--no-same-owner", "-f"])
            .arg(archive.path())
            .arg("-C")
            .arg(folder),
        &archive.path().with_extension("log"),
        "unpack the guest's result files",
    )?;
    let _ = fs::remove_file(archive.path().with_extension("log"));
    Ok(())
}

/// Decodes base64.
fn decode(lines: &[String]) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let (mut bits, mut held) = (0u32, 0);
    for character in lines.iter().flat_map(|line| line.trim().bytes()) {
        let value = match character {
            b'A'..=b'Z' => character - b'A',
            b'a'..=b'z' => character - b'a' + 26,
            b'0'..=b'9' => character - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            b'=' => continue,
            _ => bail!("the guest's result files came damaged: not base64"),
        };
        bits = bits << 6 | u32::from(value);
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held & 0xff) as u8);
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_test_prints_is_not_taken_for_ours() {
        assert_eq!(read("@@lab begin contents"), Some(Word::Begin("contents")));
        assert_eq!(
            read("@@lab end contents 137"),
            Some(Word::End("contents", 137))
        );
        assert_eq!(read("@@lab boot"), Some(Word::Boot));
        for line in [
            "ok 1 begin",
            " @@lab done",
            "@@lab",
            "@@lab end x",
            "@@lab begin a b",
        ] {
            assert_eq!(read(line), None, "{line}");
        }
    }

    #[test]
    fn marks_come_with_the_kernel_s_time() {
        assert_eq!(
            mark("[    3.141592] lab: begin contents"),
            Some(Mark::Begin("contents"))
        );
        assert_eq!(
            mark("[    3.2] lab: end contents\r"),
            Some(Mark::End("contents"))
        );
        assert_eq!(mark("[    3.3] slab: 3 begin"), None);
    }

    #[test]
    fn base64_is_decoded_across_lines() {
        let lines = ["TWVt".to_owned(), "ZmVycnk=\r".to_owned()];
        assert_eq!(decode(&lines).unwrap(), b"Memferry");
        assert!(decode(&["[ 3.1]".to_owned()]).is_err());
    }

    #[test]
    fn damaged_files_are_not_unpacked() {
        let folder = tempfile::tempdir().unwrap();
        let error = unpack(&["TWVt".to_owned()], 4, "", folder.path())
            .unwrap_err()
            .to_string();
        assert!(error.contains("3 bytes of 4"), "{error}");
    }
}

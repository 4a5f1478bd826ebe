// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the kernel's choice `auto` has learnt: debugfs `migration/auto`.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use crate::topology::error::{ParseError, TopologyError};
use crate::topology::files::Root;

/// The file, below the root.
const FILE: &str = "sys/kernel/debug/migration/auto";

/// The folder that only root may look into, below the root.
const DEBUGFS: &str = "sys/kernel/debug";

/// What it chooses for batches of one reason, one class of folios and about one size.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "json", derive(serde::Serialize, schemars::JsonSchema))]
pub struct Learnt {
    /// Why the kernel migrates.
    pub reason: String,
    /// `base` (one page), `large`, or `huge` (what one page-table entry of the middle level maps).
    pub folio: String,
    /// The most bytes of such a batch.
    pub bytes: u64,
    /// Batches since `auto` became a choice.
    pub batches: u64,
    /// Those of them that were copied plainly.
    pub plain: u64,
    /// `plain`, `NAME:LANES`, or several of them with `+` between, which share a batch.
    pub choice: String,
    /// The plain copy's mean time over that of the choice.
    pub gain: f64,
}

/// Why it is not known what `auto` has learnt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotTold {
    /// The folder of debugfs is shut.
    #[error("only root may read debugfs")]
    NoRights,
    /// Debugfs is not mounted.
    #[error("debugfs is not mounted on /sys/kernel/debug")]
    NoDebugfs,
    /// Debugfs is there, the file is not.
    #[error(
        "debugfs has no migration/auto: this kernel was built without CONFIG_DEBUG_FS, or hides it"
    )]
    NoFile,
}

impl NotTold {
    /// What to do about it.
    pub fn hint(self) -> &'static str {
        match self {
            Self::NoRights => "be root",
            Self::NoDebugfs => "mount -t debugfs debugfs /sys/kernel/debug",
            Self::NoFile => "build it with CONFIG_DEBUG_FS=y",
        }
    }
}

impl Learnt {
    /// What is known, one line for each reason, class and size that was seen; the inner `Err` says why that is not told.
    ///
    /// # Errors
    /// The file is not as documented.
    pub fn read_from(root: &Path) -> Result<Result<Vec<Self>, NotTold>, TopologyError> {
        let text = match fs::read_to_string(root.join(FILE)) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                return Ok(Err(NotTold::NoRights));
            }
            // An empty folder is what debugfs is mounted on.
            Err(_) => {
                let mut entries = fs::read_dir(root.join(DEBUGFS)).into_iter().flatten();
                let is_mounted = entries.next().is_some();
                return Ok(Err(match is_mounted {
                    true => NotTold::NoFile,
                    false => NotTold::NoDebugfs,
                }));
            }
        };
        let lines = text.lines().enumerate().skip(1);
        let rows = lines.map(|(number, line)| {
            let expected = "reason, folio, bytes, batches, plain, choice and gain";
            let row = Self::parse(line);
            row.ok_or_else(|| ParseError::new(expected, line).at_line(number + 1))
        });
        let rows: Result<Vec<Self>, ParseError> = rows.collect();
        let rows = rows.map_err(|error| Root(root).parse_error(FILE, error))?;
        Ok(Ok(rows))
    }

    fn parse(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [reason, folio, bytes, batches, plain, choice, gain] = words[..] else {
            return None;
        };
        Some(Self {
            reason: reason.to_owned(),
            folio: folio.to_owned(),
            bytes: bytes.parse().ok()?,
            batches: batches.parse().ok()?,
            plain: plain.parse().ok()?,
            choice: choice.to_owned(),
            gain: gain.parse::<u64>().ok()? as f64 / 1000.0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_is_a_row_and_absence_says_why() {
        let root = tempfile::tempdir().unwrap();
        let read = || Learnt::read_from(root.path());
        assert_eq!(read().unwrap(), Err(NotTold::NoDebugfs));
        fs::create_dir_all(root.path().join(DEBUGFS).join("sched")).unwrap();
        assert_eq!(read().unwrap(), Err(NotTold::NoFile));
        let put = |text: &str| crate::invented::put(root.path(), FILE, text);
        let head = "reason folio bytes batches plain choice gain\n";
        put(head);
        assert_eq!(read().unwrap(), Ok(Vec::new()));
        put(&format!(
            "{head}demotion base 4194304 1200 37 mtcopy:3+dcbm:2 1430\ncompaction huge 2097152 80 80 plain 1000\n"
        ));
        let rows = read().unwrap().unwrap();
        let first = Learnt {
            reason: "demotion".to_owned(),
            folio: "base".to_owned(),
            bytes: 4 << 20,
            batches: 1200,
            plain: 37,
            choice: "mtcopy:3+dcbm:2".to_owned(),
            gain: 1.43,
        };
        assert_eq!((rows.len(), &rows[0]), (2, &first));
        put(&format!("{head}demotion base many 1 1 plain 1000\n"));
        let error = read().unwrap_err();
        assert!(error.to_string().contains("migration/auto:2"), "{error}");
    }
}

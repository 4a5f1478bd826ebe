// SPDX-License-Identifier: MIT OR Apache-2.0
//! The findings as `memferry doctor --json` writes them, schema `memferry-doctor/1`.

use schemars::JsonSchema;
use serde::Serialize;

use super::checks::CHECKS;
use super::machine::Machine;
use super::start;
use crate::cli::Use;
use crate::file::Content;

/// All findings.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "DoctorFile")]
pub struct Description {
    /// The release.
    pub kernel: String,
    /// What the machine is to do, as `--for` says; null if it is judged for all.
    #[serde(rename = "for")]
    pub purpose: Option<Use>,
    /// The names of the checks, in the order of the findings.
    pub checks: Vec<&'static str>,
    pub findings: Vec<Finding>,
    /// Whether the daemon can start here; null unless the machine is for it.
    pub verdict: Option<String>,
}

/// What one check found.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Finding {
    pub check: &'static str,
    pub severity: Severity,
    /// What it counts for.
    #[serde(rename = "for")]
    pub purposes: Vec<Use>,
    pub what: String,
    /// Why it matters.
    pub why: String,
    /// A command for root's shell; null if no command mends it.
    pub mend: Option<String>,
}

/// How much a finding matters; [`Severity::Wrong`] decides the exit status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Tiering does not work as it should.
    Wrong,
    /// A choice or a limit to know of.
    Note,
}

impl Severity {
    /// Its name, as JSON has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Wrong => "wrong",
            Self::Note => "note",
        }
    }
}

/// Something found, which no command mends yet.
pub fn finding(severity: Severity, what: impl Into<String>, why: impl Into<String>) -> Finding {
    Finding {
        check: "",
        severity,
        purposes: Vec::new(),
        what: what.into(),
        why: why.into(),
        mend: None,
    }
}

pub fn wrong(what: impl Into<String>, why: impl Into<String>) -> Finding {
    finding(Severity::Wrong, what, why)
}

pub fn note(what: impl Into<String>, why: impl Into<String>) -> Finding {
    finding(Severity::Note, what, why)
}

impl Finding {
    /// Mended by a command for root's shell.
    pub fn mend(self, command: impl Into<String>) -> Self {
        Self {
            mend: Some(command.into()),
            ..self
        }
    }

    /// It counts for this alone.
    pub fn only(self, purpose: Use) -> Self {
        Self {
            purposes: vec![purpose],
            ..self
        }
    }

    /// Mended by writing a value to one of the kernel's files.
    pub fn set(self, file: &str, value: &str) -> Self {
        self.mend(format!("echo {value} > /{file}"))
    }
}

impl Content for Description {
    const SCHEMA: &'static str = "memferry-doctor/1";
}

impl Description {
    /// Runs the checks of what the machine is to do.
    pub fn new(machine: &Machine) -> Self {
        let is_wanted = |purposes: &[Use]| machine.purpose.is_none_or(|of| purposes.contains(&of));
        let more = machine.start.iter().flat_map(|_| start::CHECKS);
        let all = CHECKS.into_iter().chain(more);
        let checks = Vec::from_iter(all.filter(|(_, purposes, _)| is_wanted(purposes)));
        let found = checks.iter().flat_map(|(name, purposes, check)| {
            let named = |found: Finding| Finding {
                check: name,
                purposes: match found.purposes.is_empty() {
                    true => purposes.to_vec(),
                    false => found.purposes,
                },
                ..found
            };
            check(machine).into_iter().map(named)
        });
        Self {
            kernel: machine.topology.kernel_interface.release.clone(),
            purpose: machine.purpose,
            findings: found.filter(|of| is_wanted(&of.purposes)).collect(),
            checks: checks.iter().map(|(name, ..)| *name).collect(),
            verdict: (machine.start.as_ref()).map(|start| start.verdict(machine)),
        }
    }

    /// How many findings are of this severity.
    pub fn count(&self, severity: Severity) -> usize {
        let alike = |finding: &&Finding| finding.severity == severity;
        self.findings.iter().filter(alike).count()
    }
}

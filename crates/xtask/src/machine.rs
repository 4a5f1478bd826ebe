// SPDX-License-Identifier: MIT OR Apache-2.0
//! A machine of the lab: how its kernel is built and how QEMU stands in for it, as `lab/NAME.toml`
//! describes it. What profiles add is in `profile`.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::cli::Usage;

/// One machine.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// The file's name without `.toml`.
    #[serde(skip)]
    pub name: String,
    pub kernel: Kernel,
    pub guest: Guest,
    pub qemu: Qemu,
}

/// How its kernel is built.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kernel {
    pub arch: String,
    #[serde(default)]
    pub cross_compile: String,
    /// The image's make target, and where it is then.
    pub target: String,
    pub image: String,
    /// Names of files in `kernel/configs`, without `.config`.
    pub fragments: Vec<String>,
}

/// What runs in it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Guest {
    /// A static busybox for the guest's architecture.
    pub busybox: String,
    /// None where Rust programs cannot be built for it.
    pub rust_target: Option<String>,
    /// Serial ports: for the kernel's messages, and for what tests print and leave.
    pub console: String,
    pub wire: String,
    /// More of the kernel's command line.
    #[serde(default)]
    pub append: String,
}

/// How QEMU stands in for it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Qemu {
    pub program: String,
    pub args: Vec<String>,
    /// Arguments for hardware virtualisation; none where the architectures differ.
    #[serde(default)]
    pub kvm: Vec<String>,
    pub tcg: Vec<String>,
    /// What the kernel's command line says only then.
    #[serde(default)]
    pub tcg_append: String,
    /// Arguments for an emulation whose clock counts instructions; none if there is no such use.
    #[serde(default)]
    pub counting: Vec<String>,
    /// How long it may take until the first process runs, under emulation.
    pub boot_seconds: u64,
}

impl Machine {
    /// Reads the description of the machine `name` in the checkout `root`.
    pub fn read(root: &Path, name: &str) -> Result<Self> {
        let folder = root.join("lab");
        let path = folder.join(format!("{name}.toml"));
        if !path.is_file() {
            let names = names(&folder)?.join(", ");
            bail!(Usage(format!("no machine {name}; there are: {names}")));
        }
        let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        let mut machine: Self =
            basic_toml::from_str(&text).with_context(|| format!("{}", path.display()))?;
        machine.name = name.to_owned();
        Ok(machine)
    }
}

/// The machines described in `folder`.
fn names(folder: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("list {}", folder.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|end| end == "toml") {
            names.extend(
                path.file_stem()
                    .map(|stem| stem.to_string_lossy().into_owned()),
            );
        }
    }
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_description_in_the_checkout_can_be_read() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for name in names(&root.join("lab")).unwrap() {
            Machine::read(&root, &name).unwrap();
        }
    }

    #[test]
    fn an_unknown_machine_is_told_which_there_are() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let error = Machine::read(&root, "pdp11").unwrap_err().to_string();
        assert!(
            error.contains("pdp11") && error.contains("x86_64"),
            "{error}"
        );
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! A machine of the lab: how its kernel is built and how QEMU stands in for it, as `lab/NAME.toml`
//! describes it. What profiles add is in `profile`.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use fs_err as fs;
use serde::Deserialize;

use crate::cli::Usage;
use crate::timed::Timed;
use crate::tree::files_ending;

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
    /// How its memory takes time, if it does.
    pub timed: Option<Timed>,
}

/// A file that describes a machine by another one.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Variant {
    /// The other one's name.
    like: String,
    /// More arguments of QEMU, behind the other one's: of an option given twice QEMU takes the last.
    #[serde(default)]
    args: Vec<String>,
    /// The same under emulation alone.
    #[serde(default)]
    emulated: Vec<String>,
    /// In place of the other one's.
    device_tree: Option<PathBuf>,
    /// What tests may need of it, beside what the other one has.
    #[serde(default)]
    has: Vec<Feature>,
    /// Parameters of a timed machine in place of the other one's.
    #[serde(default)]
    timed: Timed,
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

/// What only some machines have, and some tests need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Feature {
    /// Rust programs can be built for it.
    Rust,
    /// A node that the kernel takes for slower memory.
    SlowTier,
    /// Memory that is there from boot and can go off line; arm64 refuses.
    OfflineMemory,
    /// A node of slower memory that is off line at first.
    LateNode,
    /// DMA channels that copy between memory.
    DmaChannels,
    /// Two nodes of four CPUs, two last-level caches each.
    FourCaches,
    /// A kernel that can suspend its devices.
    Suspend,
    /// Memory that takes time, by a model.
    Timed,
}

/// What runs in it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Guest {
    /// Debian's name of the guest's architecture, if it is not the host's.
    pub debian_arch: Option<String>,
    /// None where Rust programs cannot be built for it.
    pub rust_target: Option<String>,
    /// What tests may need of it; `rust` goes with `rust_target`, and `timed` with the table `[timed]`.
    #[serde(default)]
    pub has: Vec<Feature>,
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
    /// The source of the device tree, in `lab`, for a machine that does not describe itself.
    pub device_tree: Option<PathBuf>,
    pub args: Vec<String>,
    /// Arguments for hardware virtualisation; none where the architectures differ.
    #[serde(default)]
    pub kvm: Vec<String>,
    /// Arguments for emulation; a timed machine has those of `timed` alone.
    #[serde(default)]
    pub tcg: Vec<String>,
    /// What the kernel's command line says only then.
    #[serde(default)]
    pub tcg_append: String,
    /// Arguments for an emulation whose clock counts instructions.
    #[serde(default)]
    pub counting: Vec<String>,
    /// Arguments for an emulation whose clock is modelled, and what the kernel's command line says then.
    #[serde(default)]
    pub timed: Vec<String>,
    #[serde(default)]
    pub timed_append: String,
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
        let text = fs::read_to_string(&path)?;
        if text.lines().any(|line| line.starts_with("like")) {
            let variant: Variant =
                basic_toml::from_str(&text).with_context(|| format!("{}", path.display()))?;
            let mut machine = Self::read(root, &variant.like)?;
            machine.name = name.to_owned();
            machine.guest.has.extend(variant.has);
            let Qemu {
                args,
                tcg,
                counting,
                timed,
                device_tree,
                ..
            } = &mut machine.qemu;
            args.extend(variant.args);
            for emulation in [tcg, counting, timed] {
                emulation.extend(variant.emulated.iter().cloned());
            }
            if let Some(file) = variant.device_tree {
                *device_tree = Some(folder.join(file));
            }
            if let Some(timed) = &mut machine.timed {
                timed.replace(variant.timed);
                timed
                    .check()
                    .with_context(|| format!("{}", path.display()))?;
            }
            return Ok(machine);
        }
        let mut machine: Self =
            basic_toml::from_str(&text).with_context(|| format!("{}", path.display()))?;
        machine.name = name.to_owned();
        if machine.guest.rust_target.is_some() {
            machine.guest.has.push(Feature::Rust);
        }
        if let Some(timed) = &machine.timed {
            timed
                .check()
                .with_context(|| format!("{}", path.display()))?;
            machine.guest.has.push(Feature::Timed);
        }
        let tree = &mut machine.qemu.device_tree;
        *tree = tree.take().map(|file| folder.join(file));
        Ok(machine)
    }

    /// Replaces parameters of `[timed]` by `sets`, each NAME=VALUES.
    pub fn set(&mut self, sets: &[String]) -> Result<()> {
        if sets.is_empty() {
            return Ok(());
        }
        let Some(timed) = &mut self.timed else {
            bail!(Usage(format!(
                "--set is for machines whose memory takes time, and {} is none; try --machine timed",
                self.name
            )));
        };
        for text in sets {
            timed.set(text)?;
        }
        timed
            .check()
            .map_err(|error| Usage(format!("--set: {error}")))?;
        Ok(())
    }
}

/// The machines described in `folder`.
pub fn names(folder: &Path) -> Result<Vec<String>> {
    let files = files_ending(folder, "toml")?.into_iter();
    Ok(files
        .filter_map(|path| Some(path.file_stem()?.to_string_lossy().into_owned()))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_description_in_the_checkout_can_be_read() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for name in names(&root.join("lab")).unwrap() {
            let machine = Machine::read(&root, &name).unwrap();
            let qemu = machine.qemu;
            assert!(qemu.device_tree.is_none_or(|file| file.is_file()), "{name}");
            let emulation = if machine.timed.is_some() {
                vec![qemu.timed]
            } else {
                vec![qemu.tcg, qemu.counting]
            };
            assert!(emulation.iter().all(|words| !words.is_empty()), "{name}");
        }
    }

    #[test]
    fn timed_machines_say_the_same_of_their_cpus_twice() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for name in names(&root.join("lab")).unwrap() {
            let Machine { qemu, timed, .. } = Machine::read(&root, &name).unwrap();
            let Some(timed) = timed else { continue };
            let at = qemu.args.iter().rposition(|word| word == "-smp").unwrap();
            let smp = qemu.args[at + 1].clone() + ",";
            let lines = timed.lines();
            let values = |name: &str| -> Vec<u64> {
                let line = lines.lines().find(|line| line.starts_with(name)).unwrap();
                line.split(' ')
                    .skip(1)
                    .map(|value| value.parse().unwrap())
                    .collect()
            };
            let cpus = values("cpus ")[0];
            let sockets = values("cpu_node ").into_iter().max().unwrap() + 1;
            assert!(smp.starts_with(&format!("{cpus},")), "{name}: {smp}");
            assert!(
                smp.contains(&format!(",sockets={sockets},")),
                "{name}: {smp}"
            );
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

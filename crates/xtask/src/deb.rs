// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask deb`: Debian packages of a kernel with the series, configured as Debian configures
//! its own. Linux's bindeb-pkg makes them. docs/operators.md tells how to install them.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use fs_err as fs;

use crate::base::{self, Base};
use crate::build::{self, Options};
use crate::cache::write_if_changed;
use crate::cli::Usage;
use crate::command;
use crate::host::{self, Need};
use crate::lab::Lab;
use crate::machine::Machine;
use crate::packages;
use crate::series::MACHINE;
use crate::tree::{Series, Tree, files_ending};
use crate::ui::step;

/// Debian's own configuration.
const CONFIG: &str = "/usr/src/linux-config-6.12/config.amd64_none_amd64.xz";

/// What packages need besides what builds a kernel, and the Debian packages that have it.
const NEEDS: [Need; 8] = [
    ("dh_builddeb", "debhelper"),
    ("dpkg-buildpackage", "dpkg-dev"),
    ("cpio", "cpio"),
    ("rsync", "rsync"),
    ("depmod", "kmod"),
    ("openssl", "openssl"),
    ("/usr/include/openssl/ssl.h", "libssl-dev"),
    (CONFIG, "linux-config-6.12"),
];

/// What --quick compiles: where the series meets Linux, and what it adds.
const QUICK: [&str; 8] = [
    "kernel/sched/build_policy.o",
    "kernel/sched/fair.o",
    "mm/",
    "lib/memferry/",
    "drivers/crypto/ccp/",
    "drivers/dma/ptdma/",
    "drivers/migrate_offload/",
    "drivers/migrate_offload/dcbm/",
];

/// Builds the packages from the checkout `root`; `quick` makes none and compiles only the series' objects.
pub fn run(root: &Path, quick: bool, base: Base, source: Option<&Path>) -> Result<bool> {
    if base.name != base::DEFAULT {
        bail!(Usage(format!(
            "packages are made with Debian's configuration of Linux {}; leave out --base",
            base::DEFAULT
        )));
    }
    let series = Series::read(root, &base)?;
    let lab = Lab::open(root, Machine::read(root, MACHINE)?, base, source)?;
    host::require(root, if quick { &NEEDS[5..] } else { &NEEDS })?;
    let mut unpack = Command::new("xz");
    unpack.args(["--decompress", "--stdout", CONFIG]);
    let config = command::output(&mut unpack, "")?;

    let tree = Tree::open(&lab, "deb")?;
    let place = tree.linux.parent().context("a tree in the cache")?;
    tree.set(&series)?;
    configure(&lab, &tree, &config)?;
    if quick {
        step!("compiling the series with Debian's configuration");
        build::make(
            &tree,
            &lab.machine,
            &QUICK,
            "deb-quick.log",
            "compile the series with Debian's configuration",
        )?;
        println!("ok      the series compiles with Debian's configuration");
        return Ok(true);
    }

    for old in files_ending(place, "deb")? {
        fs::remove_file(&old)?;
    }
    step!(
        "building the packages, hours on few cores (progress: {})",
        tree.state.join("deb.log").display()
    );
    build::make(
        &tree,
        &lab.machine,
        &["bindeb-pkg"],
        "deb.log",
        "build the packages",
    )?;
    let output = root.join(packages::FOLDER);
    fs::create_dir_all(&output)?;
    for package in files_ending(place, "deb")? {
        let copy = output.join(package.file_name().unwrap_or_default());
        fs::copy(&package, &copy)?;
        println!("{}", copy.display());
    }
    Ok(true)
}

/// The options that the packages have other than Debian's.
fn ours(root: &Path) -> Result<Options> {
    let mut options = Options::new();
    build::parse(&build::fragment(root, "deb")?, &mut options);
    Ok(options)
}

/// The text of `config` with `ours` in place of what it says of them.
fn with_options(config: &str, ours: &Options) -> String {
    let mut options = Options::new();
    build::parse(config, &mut options);
    options.extend(ours.clone());
    build::text(&options)
}

/// Configures the tree as `config` has it, with our options.
fn configure(lab: &Lab, tree: &Tree, config: &str) -> Result<()> {
    let ours = ours(&lab.root)?;
    let asked = tree.state.join("asked.config");
    let place = tree.linux.join(".config");
    let wanted = with_options(config, &ours);
    if write_if_changed(&asked, wanted.as_bytes())? || !place.exists() {
        fs::copy(&asked, &place)?;
    }
    build::make(
        tree,
        &lab.machine,
        &["olddefconfig"],
        "config.log",
        "configure the kernel",
    )?;
    build::check(tree, &ours).context("Debian's configuration does not do")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_options_replace_those_of_the_configuration() {
        let config = "CONFIG_DEBUG_INFO=y\n# CONFIG_DEBUG_INFO_NONE is not set\n\
                      CONFIG_LOCALVERSION=\"\"\n# CONFIG_LOCALVERSION_AUTO is not set\nCONFIG_A=y\n";
        let ours = ours(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")).unwrap();
        let text = with_options(config, &ours);
        for line in [
            "CONFIG_DEBUG_INFO=n",
            "CONFIG_DEBUG_INFO_NONE=y",
            "CONFIG_LOCALVERSION=\"-memferry\"",
            "CONFIG_LOCALVERSION_AUTO=n",
            "CONFIG_A=y",
        ] {
            assert!(text.lines().any(|got| got == line), "{line}: {text}");
        }
        for name in ours.keys() {
            let set = text
                .lines()
                .filter(|line| line.split('=').next() == Some(name));
            assert_eq!(set.count(), 1, "{name}");
        }
    }
}

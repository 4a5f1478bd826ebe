// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask deb`: Debian packages of a kernel with the series, configured as Debian configures
//! its own. Linux's bindeb-pkg makes them. docs/operators.md tells how to install them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::build;
use crate::cache::{Cache, write_if_changed};
use crate::host::{self, Need};
use crate::machine::Machine;
use crate::packages;
use crate::series::MACHINE;
use crate::source::Source;
use crate::tree::{Series, Tree};
use crate::ui::Ui;

/// Debian's own configuration, and the package that has it.
const CONFIG: &str = "/usr/src/linux-config-6.12/config.amd64_none_amd64.xz";
const CONFIG_PACKAGE: &str = "linux-config-6.12";

/// What packages need besides what builds a kernel, and the Debian packages that have it.
const NEEDS: [Need; 7] = [
    ("dh_builddeb", "debhelper"),
    ("dpkg-buildpackage", "dpkg-dev"),
    ("cpio", "cpio"),
    ("rsync", "rsync"),
    ("depmod", "kmod"),
    ("openssl", "openssl"),
    ("/usr/include/openssl/ssl.h", "libssl-dev"),
];

/// What the packages have other than Debian's. The release's name keeps them apart from Debian's;
/// debug information would make them several times as large and the build as long.
const OPTIONS: [(&str, &str); 11] = [
    ("CONFIG_LOCALVERSION", "\"-memferry\""),
    ("CONFIG_MIGRATION_COPY_OFFLOAD", "y"),
    ("CONFIG_MIGRATOR_MTCOPY", "m"),
    ("CONFIG_MIGRATOR_DCBM", "m"),
    ("CONFIG_AMD_PTDMA", "m"),
    ("CONFIG_PGHOT", "y"),
    ("CONFIG_PGHOT_HWHINTS", "y"),
    ("CONFIG_PGHOT_PGTSCAN", "y"),
    ("CONFIG_DEBUG_INFO", "n"),
    ("CONFIG_DEBUG_INFO_NONE", "y"),
    ("CONFIG_DEBUG_INFO_DWARF_TOOLCHAIN_DEFAULT", "n"),
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

#[derive(clap::Args)]
pub struct Args {
    /// Where to put the packages [default: target/kernel-deb]
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Another configuration, plain or .xz [default: Debian's, of package linux-config-6.12]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Make no packages; compile only the series' objects with that configuration
    #[arg(long, conflicts_with = "output")]
    quick: bool,
    /// Linux's source, instead of Debian's package linux-source-6.12
    #[arg(long, value_name = "TARBALL")]
    source: Option<PathBuf>,
    /// Show the steps also when stderr is not a terminal
    #[arg(long, short)]
    verbose: bool,
}

/// Builds the packages from the checkout `root`. Returns true, or an error.
pub fn run(root: &Path, args: &Args) -> Result<bool> {
    let ui = Ui::new(args.verbose);
    let machine = Machine::read(root, MACHINE)?;
    let series = Series::read(root)?;
    let output = match &args.output {
        Some(folder) => std::path::absolute(folder)?,
        None => root.join(packages::FOLDER),
    };
    let source = Source::find(root, args.source.as_deref(), &machine)?;
    let mut needs = if args.quick { &NEEDS[5..] } else { &NEEDS[..] }.to_vec();
    if args.config.is_none() {
        needs.push((CONFIG, CONFIG_PACKAGE));
    }
    host::require(root, &needs)?;
    let config = read_config(args.config.as_deref().unwrap_or(Path::new(CONFIG)))?;

    let cache = Cache::open()?;
    let place = source.tree(&cache, &machine.kernel.arch, "deb");
    let _lock = cache.lock(
        &place.file_name().unwrap_or_default().to_string_lossy(),
        &ui,
    )?;
    let tree = Tree::new(&place);
    if !tree.linux.exists() {
        source.unpack(&tree.linux, &ui)?;
    }
    tree.set(&series)?;
    configure(&tree, &machine, &config)?;
    if args.quick {
        ui.step("compiling the series with Debian's configuration");
        build::make(
            &tree,
            &machine,
            &QUICK,
            "deb-quick.log",
            "compile the series with Debian's configuration",
        )?;
        println!("ok      the series compiles with Debian's configuration");
        return Ok(true);
    }

    for old in packages::list(&place)? {
        fs::remove_file(&old).with_context(|| format!("remove {}", old.display()))?;
    }
    ui.step(&format!(
        "building the packages, hours on few cores (progress: {})",
        tree.state.join("deb.log").display()
    ));
    build::make(
        &tree,
        &machine,
        &["bindeb-pkg"],
        "deb.log",
        "build the packages",
    )?;
    fs::create_dir_all(&output).with_context(|| format!("create {}", output.display()))?;
    for package in packages::list(&place)? {
        let copy = output.join(package.file_name().unwrap_or_default());
        fs::copy(&package, &copy).with_context(|| format!("copy {}", package.display()))?;
        println!("{}", copy.display());
    }
    Ok(true)
}

/// The text of the configuration `path`.
fn read_config(path: &Path) -> Result<String> {
    if path.extension().is_none_or(|end| end != "xz") {
        return fs::read_to_string(path).with_context(|| format!("read {}", path.display()));
    }
    let output = Command::new("xz")
        .args(["--decompress", "--stdout"])
        .arg(path)
        .output()
        .context("run xz; try: sudo apt-get install -y xz-utils")?;
    if !output.status.success() {
        bail!(
            "{}: {}",
            path.display(),
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    String::from_utf8(output.stdout).with_context(|| format!("{} is not text", path.display()))
}

/// `config` with our options in place of what it says of them.
fn with_options(config: &str) -> String {
    let ours = |line: &str| {
        OPTIONS.iter().any(|(name, _)| {
            line.strip_prefix("# ")
                .unwrap_or(line)
                .strip_prefix(name)
                .is_some_and(|rest| rest.starts_with('=') || rest == " is not set")
        })
    };
    let kept = config
        .lines()
        .filter(|line| !ours(line))
        .map(|line| format!("{line}\n"));
    let added = OPTIONS.iter().map(|(name, value)| match *value {
        "n" => format!("# {name} is not set\n"),
        value => format!("{name}={value}\n"),
    });
    kept.chain(added).collect()
}

/// Configures the tree from `config`, unless it is so already.
fn configure(tree: &Tree, machine: &Machine, config: &str) -> Result<()> {
    let wanted = with_options(config);
    let asked = tree.state.join("asked.config");
    let place = tree.linux.join(".config");
    if write_if_changed(&asked, wanted.as_bytes())? || !place.exists() {
        fs::copy(&asked, &place).context("write .config")?;
    }
    build::make(
        tree,
        machine,
        &["olddefconfig"],
        "config.log",
        "configure the kernel",
    )?;
    let got = fs::read_to_string(&place).context("read .config")?;
    for (name, value) in OPTIONS {
        let is = got
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
            .unwrap_or("n");
        if is != value {
            bail!(
                "the kernel cannot have {name}={value} with this configuration (is {is}); an \
                 option that it depends on is missing there; try Debian's"
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_options_replace_those_of_the_configuration() {
        let config = "CONFIG_DEBUG_INFO=y\n# CONFIG_DEBUG_INFO_NONE is not set\n\
                      CONFIG_LOCALVERSION=\"\"\n# CONFIG_LOCALVERSION_AUTO is not set\nCONFIG_A=y\n";
        let text = with_options(config);
        assert!(!text.contains("CONFIG_DEBUG_INFO=y"), "{text}");
        assert!(text.contains("# CONFIG_DEBUG_INFO is not set\n"), "{text}");
        assert!(text.contains("CONFIG_DEBUG_INFO_NONE=y\n"), "{text}");
        assert!(
            text.contains("CONFIG_LOCALVERSION=\"-memferry\"\n"),
            "{text}"
        );
        assert!(
            text.contains("# CONFIG_LOCALVERSION_AUTO is not set\n"),
            "{text}"
        );
        assert!(text.contains("CONFIG_A=y\n"), "{text}");
        for (name, _) in OPTIONS {
            let set = text
                .lines()
                .filter(|line| line.split([' ', '=']).any(|word| word == name));
            assert_eq!(set.count(), 1, "{name}");
        }
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Builds a kernel from a tree and keeps what a boot needs of it. Linux as it is and with the
//! series are built in one tree, in place, so that the second costs little: at another path, or
//! from another tree, make would build everything again. Profiles with checkers have their own.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use anyhow::{Context, Result, bail};
use fs_err as fs;

use crate::base::Base;
use crate::cache::{Key, make_folder, write_if_changed};
use crate::command::{self, first_line};
use crate::lab::Lab;
use crate::machine::Machine;
use crate::packages;
use crate::profile::Profile;
use crate::source;
use crate::tree::{Files, Series, Tree, files_below, files_in};
use crate::ui::step;

/// Where a checkout has the modules for the tests.
const MODULES: &str = "kernel/selftests/modules";

/// Part of every key: to be changed when this file makes other kernels from the same inputs.
const RECIPE: &[u8] = b"1";

/// A finished kernel.
#[derive(Clone, Debug)]
pub struct Image {
    /// Holds the files below.
    pub folder: PathBuf,
    /// What `uname -r` says.
    pub release: String,
}

impl Image {
    /// What QEMU boots.
    pub fn kernel(&self) -> PathBuf {
        self.folder.join("image")
    }

    /// Its modules, at their paths in the source.
    pub fn modules(&self) -> PathBuf {
        self.folder.join("modules")
    }

    /// The kernel of `folder`, if it is there and complete.
    pub fn open(folder: PathBuf) -> Option<Self> {
        let release = fs::read_to_string(folder.join("release")).ok()?;
        Some(Self {
            folder,
            release: release.trim().to_owned(),
        })
    }
}

/// What a kernel is built from, beside Linux's source.
pub struct Inputs {
    pub series: Series,
    pub options: Options,
    /// The sources of the tests' modules.
    pub modules: Files,
}

/// Builds the kernel of `profile`, or takes it from the cache.
pub fn image(lab: &Lab, profile: Profile) -> Result<Image> {
    if profile == Profile::Debian {
        return packages::image(lab);
    }
    image_of(lab, profile, &inputs(lab, profile)?)
}

/// What the cache calls the kernel of `profile`, whether it is built or not.
pub fn name(lab: &Lab, profile: Profile) -> Result<String> {
    if profile == Profile::Debian {
        let folder = packages::image(lab)?.folder;
        let name = folder.file_name().context("a folder in the cache")?;
        return Ok(name.to_string_lossy().into_owned());
    }
    key(lab, &inputs(lab, profile)?)
}

fn inputs(lab: &Lab, profile: Profile) -> Result<Inputs> {
    let series = if profile.has_series() {
        Series::read(&lab.root, &lab.base)?
    } else {
        Series::none()
    };
    Ok(Inputs {
        series,
        options: options(&lab.root, &lab.base, &lab.machine, profile)?,
        modules: modules(&lab.root)?,
    })
}

/// Builds a kernel from `inputs` in the tree of `profile`, or takes it from the cache.
pub fn image_of(lab: &Lab, profile: Profile, inputs: &Inputs) -> Result<Image> {
    let machine = &lab.machine;
    let key = key(lab, inputs)?;
    let folder = lab.cache.root.join("images").join(&key);
    if let Some(image) = Image::open(folder.clone()) {
        return Ok(image);
    }

    step!(
        "the cache has no kernel {key} ({}, {profile}) yet",
        machine.name
    );
    let tree = Tree::open(lab, profile.tree())?;
    if let Some(image) = Image::open(folder.clone()) {
        return Ok(image);
    }
    let version = source::version(&tree.linux)?;
    let changed = tree.set(&inputs.series)?;
    step!("Linux {version}, profile {profile}: {changed} files of the source changed");
    configure(&tree, machine, &inputs.options)?;
    step!(
        "building the kernel (progress: {})",
        tree.state.join("build.log").display()
    );
    let targets = [machine.kernel.target.as_str(), "modules"];
    make(&tree, machine, &targets, "build.log", "build the kernel")?;
    make_modules(&tree, machine, &inputs.modules)?;
    make_folder(&folder, |part| keep(&tree, machine, part))?;
    step!("the kernel is built");
    Image::open(folder.clone()).with_context(|| format!("{} is incomplete", folder.display()))
}

/// What names the result: everything that goes in.
fn key(lab: &Lab, inputs: &Inputs) -> Result<String> {
    let kernel = &lab.machine.kernel;
    let mut key = Key::default();
    key.add(RECIPE);
    key.add(lab.source.id.as_bytes());
    key.add(kernel.arch.as_bytes());
    key.add(kernel.target.as_bytes());
    inputs.series.add_to(&mut key);
    for (name, value) in &inputs.options {
        key.add(name.as_bytes());
        key.add(value.as_bytes());
    }
    key.add_files(&inputs.modules);
    for tool in ["gcc", "ld"] {
        let program = format!("{}{tool}", kernel.cross_compile);
        key.add(first_line(Command::new(program).arg("--version"))?.as_bytes());
    }
    Ok(key.name())
}

/// Options by name: "y", "m", "n" or another value.
pub type Options = BTreeMap<String, String>;

/// What the fragments of `machine` and `profile` ask for; later ones win.
pub fn options(root: &Path, base: &Base, machine: &Machine, profile: Profile) -> Result<Options> {
    let mut options = Options::new();
    let names = machine.kernel.fragments.iter().map(String::as_str);
    for name in names.chain(profile.fragments().iter().copied()) {
        parse(&fragment(root, name)?, &mut options);
    }
    parse(&base.options(root)?, &mut options);
    Ok(options)
}

/// The text of a fragment.
pub fn fragment(root: &Path, name: &str) -> Result<String> {
    let path = root.join("kernel/configs").join(format!("{name}.config"));
    Ok(fs::read_to_string(path)?)
}

/// Reads the lines of a configuration into `options`.
pub fn parse(text: &str, options: &mut Options) {
    for line in text.lines().map(str::trim) {
        if let Some(name) = line
            .strip_prefix("# ")
            .and_then(|rest| rest.strip_suffix(" is not set"))
        {
            options.insert(name.to_owned(), "n".to_owned());
        } else if let Some((name, value)) = line.split_once('=') {
            if name.starts_with("CONFIG_") {
                options.insert(name.to_owned(), value.to_owned());
            }
        }
    }
}

/// The options that `config` does not have as they were `asked`.
fn unmet(asked: &Options, config: &str) -> Vec<String> {
    let mut got = Options::new();
    parse(config, &mut got);
    asked
        .iter()
        .filter(|(name, value)| got.get(*name).map_or("n", String::as_str) != value.as_str())
        .map(|(name, value)| {
            format!(
                "{name}={value} (is {})",
                got.get(name).map_or("n", String::as_str)
            )
        })
        .collect()
}

/// Writes the tree's configuration: nothing but what is asked, and what that needs.
pub fn configure(tree: &Tree, machine: &Machine, options: &Options) -> Result<()> {
    let asked = tree.state.join("asked.config");
    write_if_changed(&asked, text(options).as_bytes())?;
    let all = format!("KCONFIG_ALLCONFIG={}", asked.display());
    let targets = ["allnoconfig", &all];
    make(
        tree,
        machine,
        &targets,
        "config.log",
        "configure the kernel",
    )?;
    check(tree, options)
}

/// The configuration of `options`.
pub fn text(options: &Options) -> String {
    let lines = options
        .iter()
        .map(|(name, value)| format!("{name}={value}\n"));
    lines.collect()
}

/// Refuses a tree whose configuration is not as the options of kernel/configs `asked`.
pub fn check(tree: &Tree, asked: &Options) -> Result<()> {
    let config = fs::read_to_string(tree.linux.join(".config")).context("read .config")?;
    let unmet = unmet(asked, &config);
    if !unmet.is_empty() {
        bail!(
            "the kernel cannot have these options of kernel/configs: {}; another option that they \
             depend on is missing there, or this Linux has no such option",
            unmet.join(", ")
        );
    }
    Ok(())
}

/// Runs make in the tree.
pub fn make(tree: &Tree, machine: &Machine, targets: &[&str], log: &str, what: &str) -> Result<()> {
    let jobs = thread::available_parallelism().map_or(1, usize::from);
    let mut command = Command::new("make");
    command
        .arg("-C")
        .arg(&tree.linux)
        .arg(format!("-j{jobs}"))
        .arg(format!("ARCH={}", machine.kernel.arch))
        .arg(format!("CROSS_COMPILE={}", machine.kernel.cross_compile))
        // Nothing of where and when may get in: make would build again what names it.
        .args([
            "LOCALVERSION=",
            "KBUILD_BUILD_USER=lab",
            "KBUILD_BUILD_HOST=memferry",
        ])
        .args([
            "KBUILD_BUILD_TIMESTAMP=Thu Jan  1 00:00:00 UTC 1970",
            "KBUILD_BUILD_VERSION=1",
        ])
        .args(targets)
        .env_remove("MAKEFLAGS")
        .env_remove("MFLAGS")
        .env_remove("MAKELEVEL")
        .env("LC_ALL", "C");
    command::logged(&mut command, &tree.state.join(log), what)
}

/// The sources of the tests' modules.
pub fn modules(root: &Path) -> Result<Files> {
    files_in(&root.join(MODULES))
}

/// Builds the tests' modules in a folder of their own, anew, since it takes seconds.
pub fn make_modules(tree: &Tree, machine: &Machine, sources: &Files) -> Result<()> {
    let folder = tree.state.join("modules");
    let _ = fs::remove_dir_all(&folder);
    for (path, content) in sources {
        write_if_changed(&folder.join(path), content)?;
    }
    if sources.is_empty() {
        return Ok(());
    }
    let targets = [&format!("M={}", folder.display()), "modules"];
    make(
        tree,
        machine,
        &targets,
        "modules.log",
        "build kernel/selftests/modules",
    )
}

/// Copies what a boot needs to the image `folder`.
fn keep(tree: &Tree, machine: &Machine, folder: &Path) -> Result<()> {
    let linux = &tree.linux;
    copy(&linux.join(&machine.kernel.image), &folder.join("image"))?;
    copy(&linux.join(".config"), &folder.join("config"))?;
    let release = linux.join("include/config/kernel.release");
    copy(&release, &folder.join("release"))?;
    let order = fs::read_to_string(linux.join("modules.order")).unwrap_or_default();
    let modules = folder.join("modules");
    fs::create_dir_all(&modules)?;
    for object in order.lines() {
        let module = Path::new(object).with_extension("ko");
        copy(&linux.join(&module), &modules.join(&module))?;
    }
    keep_modules(tree, folder)
}

/// Copies the tests' modules that were built in `tree` into the image `folder`.
pub fn keep_modules(tree: &Tree, folder: &Path) -> Result<()> {
    let ours = tree.state.join("modules");
    if !ours.is_dir() {
        return Ok(());
    }
    for module in files_below(&ours)? {
        if module.extension().is_some_and(|end| end == "ko") {
            let name = module.file_name().context("a file")?;
            copy(&module, &folder.join("modules/selftests").join(name))?;
        }
    }
    Ok(())
}

/// Copies the file `from` to `to`, whose folder need not be there.
pub fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to.parent().context("a file")?)?;
    fs::copy(from, to)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_fragments_win() {
        let mut options = Options::new();
        parse(
            "CONFIG_A=y\nCONFIG_B=m\n# a remark = nothing\n",
            &mut options,
        );
        parse("# CONFIG_A is not set\nCONFIG_C=\"x=y\"\n", &mut options);
        let got: Vec<_> = options
            .iter()
            .map(|(name, value)| format!("{name} {value}"))
            .collect();
        assert_eq!(got, ["CONFIG_A n", "CONFIG_B m", "CONFIG_C \"x=y\""]);
    }

    #[test]
    fn options_that_the_kernel_lacks_are_named() {
        let mut asked = Options::new();
        parse(
            "CONFIG_A=y\nCONFIG_B=m\nCONFIG_C=n\nCONFIG_D=n\nCONFIG_E=y\n",
            &mut asked,
        );
        let config = "CONFIG_A=y\nCONFIG_B=y\n# CONFIG_C is not set\nCONFIG_F=y\n";
        assert_eq!(
            unmet(&asked, config),
            ["CONFIG_B=m (is y)", "CONFIG_E=y (is n)"]
        );
    }
}

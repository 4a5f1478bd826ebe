// SPDX-License-Identifier: MIT OR Apache-2.0
//! The Linux that the series is built on: a folder of `kernel/hooks`, and Debian's package of its source. Unpacking it
//! is for `source`.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use fs_err as fs;
use serde::Deserialize;

use crate::apt;
use crate::cache::{Cache, make_folder};
use crate::cli::Usage;
use crate::host;
use crate::ui::step;

/// What is built unless told.
pub const DEFAULT: &str = "6.12";

/// Where the bases are, in the checkout.
const FOLDER: &str = "kernel/hooks";

/// `base.toml` in the folder of a base.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Description {
    /// "6.12": which releases its hooks fit.
    version: String,
    /// Debian's package of such a source.
    package: String,
    /// The suite that has it, if that is not the host's own.
    suite: Option<String>,
}

pub struct Base {
    pub name: String,
    description: Description,
}

impl Base {
    /// The base `name` of the checkout `root`.
    pub fn read(root: &Path, name: &str) -> Result<Self> {
        let path = root.join(FOLDER).join(name).join("base.toml");
        let Ok(text) = fs::read_to_string(&path) else {
            let mut names = Vec::new();
            for entry in fs::read_dir(root.join(FOLDER))? {
                names.push(entry?.file_name().to_string_lossy().into_owned());
            }
            names.sort();
            bail!(Usage(format!(
                "no base {name}; there are: {}",
                names.join(", ")
            )));
        };
        Ok(Self {
            name: name.to_owned(),
            description: basic_toml::from_str(&text)
                .with_context(|| format!("read {}", path.display()))?,
        })
    }

    /// The folder of the diffs to Linux's own files, in the checkout.
    pub fn hooks(&self) -> String {
        format!("{FOLDER}/{}", self.name)
    }

    /// What folders of its results have behind the machine and the profile.
    pub fn suffix(&self) -> String {
        if self.name == DEFAULT {
            String::new()
        } else {
            format!("-{}", self.name)
        }
    }

    /// Refuses the release `version` if the hooks are for another.
    pub fn check(&self, version: &str, tarball: &Path) -> Result<()> {
        let ours = &self.description.version;
        if version == ours || version.starts_with(&format!("{ours}.")) {
            return Ok(());
        }
        bail!(
            "{} is Linux {version}, and the hooks of {} are made for {ours}; install {}, or name a tarball of {ours} \
             with --source",
            tarball.display(),
            self.name,
            self.description.package
        );
    }

    /// The options of `kernel/configs` that this Linux has by another name, or not at all.
    pub fn options(&self, root: &Path) -> Result<String> {
        let path = root.join(self.hooks()).join("options.config");
        Ok(if path.exists() {
            fs::read_to_string(path)?
        } else {
            String::new()
        })
    }

    /// Where Debian's package has the source.
    fn installed(&self) -> String {
        format!("/usr/src/{}.tar.xz", self.description.package)
    }

    /// Debian's tarball: of the installed package, which is installed if the host's suite has it, or of the package of a
    /// newer suite, unpacked in `cache`.
    pub fn tarball(&self, root: &Path, cache: &Cache) -> Result<PathBuf> {
        let installed = PathBuf::from(self.installed());
        let Some(suite) = &self.description.suite else {
            host::require(root, &[(&self.installed(), &self.description.package)])?;
            return Ok(installed);
        };
        if installed.exists() {
            return Ok(installed);
        }
        let folder = cache.root.join("sources").join(&self.description.package);
        let tarball = folder.join(installed.strip_prefix("/")?);
        if !tarball.exists() {
            let _lock = cache.lock(&self.description.package)?;
            if !tarball.exists() {
                fetch(&self.description.package, suite, &folder)?;
            }
        }
        Ok(tarball)
    }
}

/// Unpacks Debian's `package` of `suite` in `folder`, with a list of suites of its own: the host's stays as it is.
fn fetch(package: &str, suite: &str, folder: &Path) -> Result<()> {
    step!("fetching {package} of {suite}");
    let mirror = apt::mirror().with_context(|| {
        format!(
            "apt-get knows no mirror of Debian, which has {package} in {suite}; name a tarball with --source"
        )
    })?;
    let log = folder.with_file_name(format!("{package}.log"));
    make_folder(folder, |part| {
        let list = part.join("sources.list");
        fs::write(&list, format!("deb {mirror} {suite} main\n"))?;
        let options = [
            format!("--option=Dir::Etc::sourcelist={}", list.display()),
            "--option=Dir::Etc::sourceparts=-".to_owned(),
        ];
        apt::unpack(package, &options, part, &log)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
    }

    #[test]
    fn every_base_says_what_it_is_for() {
        for entry in fs::read_dir(root().join(FOLDER)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let base = Base::read(&root(), &name).unwrap();
            let version = &base.description.version;
            base.check(&format!("{version}.9"), Path::new("x")).unwrap();
        }
    }

    #[test]
    fn another_base_and_another_linux_are_refused_with_what_to_try() {
        let error = Base::read(&root(), "5.4").err().unwrap().to_string();
        assert!(error.contains(DEFAULT), "{error}");
        let base = Base::read(&root(), DEFAULT).unwrap();
        let error = base.check("5.4.1", Path::new("linux.tar")).unwrap_err();
        let error = error.to_string();
        assert!(
            error.contains("5.4.1") && error.contains("--source"),
            "{error}"
        );
        base.check("6.120.1", Path::new("linux.tar")).unwrap_err();
    }
}

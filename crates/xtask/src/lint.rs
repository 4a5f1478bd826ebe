// SPDX-License-Identifier: MIT OR Apache-2.0
//! What compilers and Linux's checkers say of the series' code and pages: gcc with W=1, sparse, kernel-doc, Sphinx.
//! And whether Linux's objects name nothing new where the series is configured out. All in a tree
//! of its own, in which only the objects concerned are built.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use fs_err as fs;

use crate::base::Base;
use crate::build;
use crate::command;
use crate::machine::Machine;
use crate::profile::Profile;
use crate::tree::{Series, Tree, files_ending};
use crate::ui::step;

/// The tree, and what it is built for.
pub struct Lint<'a> {
    pub root: &'a Path,
    pub base: &'a Base,
    pub tree: &'a Tree,
    pub machine: &'a Machine,
    pub series: &'a Series,
}

impl Lint<'_> {
    /// What is to be found. The tree has the series afterwards.
    pub fn findings(&self) -> Result<Vec<String>> {
        let touched: Vec<_> = self.series.hooked().into_iter().filter(is_c).collect();
        let ours: Vec<_> = self.series.files.keys().filter(is_c).collect();

        step!("sparse and W=1 on Linux as it is");
        self.tree.set(&Series::none())?;
        self.configure(Profile::Vanilla)?;
        let touched = self.objects(touched.iter())?;
        let before = counted(&self.build(&touched, "lint-before.log")?);
        let symbols = self.symbols(&touched)?;
        let pages_before = counted(&self.pages("htmldocs-before.log")?);

        step!("the same code, with the series and configured out");
        self.tree.set(self.series)?;
        self.configure(Profile::Vanilla)?;
        self.build(&touched, "lint-off.log")?;
        let mut findings = Vec::new();
        for symbol in self.symbols(&touched)?.difference(&symbols) {
            findings.push(format!("with the options off there is {symbol}"));
        }

        step!("sparse and W=1 on the series");
        self.configure(Profile::Release)?;
        let mut objects = self.objects(ours.iter().copied())?;
        objects.extend(touched);
        let text = self.build(&objects, "lint-after.log")?;
        findings.extend(self.new_warnings(before, &text));
        findings.extend(self.new_warnings(pages_before, &self.pages("htmldocs-after.log")?));

        step!("kernel-doc");
        findings.extend(self.kernel_doc()?);
        findings.sort();
        findings.dedup();
        Ok(findings)
    }

    /// The warnings in `text` about files of the series, or that it touches, which are not among the `old` ones.
    fn new_warnings(&self, mut old: BTreeMap<String, usize>, text: &str) -> Vec<String> {
        let mut new = Vec::new();
        for (warning, line) in warnings(text) {
            let path = Path::new(warning.split(':').next().unwrap_or_default());
            let left = old.entry(warning.clone()).or_default();
            if *left > 0 {
                *left -= 1;
            } else if self.series.files.contains_key(path)
                || self.series.hooked().iter().any(|other| other == path)
            {
                new.push(line);
            }
        }
        new
    }

    /// Makes HTML of the folders whose pages the series adds or touches. Returns what Sphinx says, in the form of gcc. What
    /// refers to other folders is unknown to it, with the series and without.
    fn pages(&self, log: &str) -> Result<String> {
        step!("htmldocs");
        let hooked = self.series.hooked();
        let paths = self.series.files.keys().chain(&hooked);
        let folders: BTreeSet<_> = paths
            .filter(|path| path.extension().is_some_and(|end| end == "rst"))
            .filter_map(|path| path.parent()?.strip_prefix("Documentation").ok()?.to_str())
            .collect();
        let folders: Vec<_> = folders.into_iter().collect();
        let html = self.tree.state.join("html");
        // Sphinx says nothing of pages that it need not make again.
        let _ = fs::remove_dir_all(&html);
        let targets = [
            "htmldocs",
            &format!("SPHINXDIRS={}", folders.join(" ")),
            &format!("BUILDDIR={}", html.display()),
        ];
        build::make(
            self.tree,
            self.machine,
            &targets,
            log,
            "make HTML of the pages",
        )?;
        let text = fs::read_to_string(self.tree.state.join(log))?;
        Ok(page_warnings(&text, &self.tree.linux))
    }

    fn configure(&self, profile: Profile) -> Result<()> {
        let options = build::options(self.root, self.base, self.machine, profile)?;
        build::configure(self.tree, self.machine, &options)
    }

    /// Builds `objects` anew, with sparse and more warnings. Returns what was said.
    fn build(&self, objects: &[String], log: &str) -> Result<String> {
        for object in objects {
            // gcc says nothing about what it need not compile.
            let _ = fs::remove_file(self.tree.linux.join(object));
        }
        let mut targets = vec!["C=2", "W=1"];
        targets.extend(objects.iter().map(String::as_str));
        build::make(
            self.tree,
            self.machine,
            &targets,
            log,
            "compile what the series adds and touches",
        )?;
        let path = self.tree.state.join(log);
        let text = fs::read(&path)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// The objects that the C files `paths` become part of.
    fn objects<'p>(&self, paths: impl Iterator<Item = &'p PathBuf>) -> Result<Vec<String>> {
        let mut objects = Vec::new();
        for path in paths {
            let source = self.includer(path)?.unwrap_or_else(|| path.clone());
            objects.push(source.with_extension("o").display().to_string());
        }
        objects.sort();
        objects.dedup();
        Ok(objects)
    }

    /// The C file beside `path` that includes it, as kernel/sched does.
    fn includer(&self, path: &Path) -> Result<Option<PathBuf>> {
        let folder = path.parent().context("a file in a folder")?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let line = format!("#include \"{name}\"");
        let place = self.tree.linux.join(folder);
        for other in files_ending(&place, "c")? {
            let text = fs::read(&other)?;
            if String::from_utf8_lossy(&text).lines().any(|at| at == line) {
                return Ok(other.file_name().map(|name| folder.join(name)));
            }
        }
        Ok(None)
    }

    /// The external symbols that `objects` define and refer to: "mm/migrate.o: U migrator_copy".
    fn symbols(&self, objects: &[String]) -> Result<BTreeSet<String>> {
        let nm = format!("{}nm", self.machine.kernel.cross_compile);
        let mut command = Command::new(nm);
        command
            .args(["--extern-only", "--print-file-name", "--format=posix"])
            .args(objects)
            .current_dir(&self.tree.linux);
        Ok(symbols(&command::output(&mut command, "")?))
    }

    /// What kernel-doc says of the comments in our files. It says nothing of Linux's own, whose
    /// comments the series does not touch.
    fn kernel_doc(&self) -> Result<Vec<String>> {
        let code = self
            .series
            .files
            .keys()
            .filter(|path| path.extension().is_some_and(|end| end == "c" || end == "h"));
        let output = Command::new("perl")
            .arg("scripts/kernel-doc")
            .args(["-none", "-Wall"])
            .args(code)
            .current_dir(&self.tree.linux)
            .output()
            .context("run perl; try: sudo apt-get install -y perl")?;
        let said = String::from_utf8_lossy(&output.stderr);
        let findings = complaints(&said);
        if !output.status.success() && findings.is_empty() {
            bail!("kernel-doc ended with {}: {}", output.status, said.trim());
        }
        Ok(findings)
    }
}

fn is_c(path: &impl AsRef<Path>) -> bool {
    path.as_ref().extension().is_some_and(|end| end == "c")
}

/// What `nm --format=posix` says, without addresses: `OBJECT: NAME KIND ADDRESS SIZE`.
fn symbols(text: &str) -> BTreeSet<String> {
    text.lines()
        .filter_map(|line| {
            let mut words = line.split(' ');
            Some(format!(
                "{} {} {}",
                words.next()?,
                words.next()?,
                words.next()?
            ))
        })
        .collect()
}

/// The warnings and errors in a log: without line numbers, for comparison, and as they are.
fn warnings(text: &str) -> Vec<(String, String)> {
    text.lines()
        .filter(|line| line.contains(" warning: ") || line.contains(" error: "))
        .map(|line| {
            let (place, rest) = line.split_once(' ').unwrap_or((line, ""));
            let path = place.split(':').next().unwrap_or_default();
            (format!("{path}: {rest}"), line.to_owned())
        })
        .collect()
}

/// Sphinx's log in the form of gcc's: paths in `linux`, `warning` and `error` in small letters. What a page takes out of
/// comments is at the comment: `PAGE:LINE: ./FILE:LINE: WARNING: TEXT`.
fn page_warnings(text: &str, linux: &Path) -> String {
    let root = format!("{}/", linux.display());
    text.replace(&root, "")
        .replace(": WARNING: ", ": warning: ")
        .replace(": ERROR: ", ": error: ")
        .lines()
        .map(|line| line.split_once(": ./").map_or(line, |(_, comment)| comment))
        .fold(String::new(), |all, line| all + line + "\n")
}

/// The warnings and errors of kernel-doc: `PATH:LINE: warning: TEXT`, and of that of later
/// Linux, which is written in Python: `Warning: PATH:LINE TEXT`, with status 0.
fn complaints(text: &str) -> Vec<String> {
    text.lines()
        .filter(|line| {
            let line = line.to_lowercase();
            line.contains("warning: ") || line.contains("error: ")
        })
        .map(str::to_owned)
        .collect()
}

/// How often each is there.
fn counted(text: &str) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for (warning, _) in warnings(text) {
        *counts.entry(warning).or_default() += 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_symbol_is_seen_wherever_the_others_lie() {
        let before = symbols("mm/a.o: migrate_pages T 10 20\nmm/a.o: memcpy U\n");
        let after =
            symbols("mm/a.o: migrate_pages T 18 2c\nmm/a.o: memcpy U\nmm/a.o: our_copy U\n");
        let new: Vec<_> = after.difference(&before).collect();
        assert_eq!(new, ["mm/a.o: our_copy U"]);
    }

    #[test]
    fn kernel_doc_complains_in_two_forms() {
        let text = "mm/a.c:8: warning: parameter 'b' not described in 'f'\n\
                    Warning: mm/a.c:7 parameter 'b' not described in 'f'\n\
                    Error: mm/b.c:1 Cannot read file\n\
                    Info: mm/a.c:7 Scanning doc for function f\n";
        assert_eq!(complaints(text).len(), 3);
    }

    #[test]
    fn sphinx_complains_of_pages_and_of_comments() {
        let text = "/t/linux/Documentation/mm/a.rst:7: WARNING: unknown document: 'b'\n\
                    /t/linux/Documentation/mm/a:120: ./mm/a.c:395: ERROR: Unexpected indentation.\n\
                    WARNING: dot(1) not found\n";
        let text = page_warnings(text, Path::new("/t/linux"));
        let all: Vec<_> = warnings(&text).into_iter().map(|(of, _)| of).collect();
        assert_eq!(
            all,
            [
                "Documentation/mm/a.rst: warning: unknown document: 'b'",
                "mm/a.c: error: Unexpected indentation."
            ]
        );
    }

    #[test]
    fn a_warning_that_only_moved_is_the_same() {
        let before =
            "  CC      mm/migrate.o\nmm/migrate.c:10:5: warning: context imbalance in 'a'\n";
        let after = "mm/migrate.c:17:5: warning: context imbalance in 'a'\n\
                     mm/migrator.c:3: warning: Function parameter 'b' not described\n";
        let old = counted(before);
        let new = warnings(after);
        assert_eq!(old.get(&new[0].0), Some(&1));
        assert_eq!(old.get(&new[1].0), None);
        assert!(new[1].0.starts_with("mm/migrator.c: warning: "));
        assert_eq!(old.len(), 1);
    }
}

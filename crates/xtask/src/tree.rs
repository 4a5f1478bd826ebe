// SPDX-License-Identifier: MIT OR Apache-2.0
//! A tree of Linux's source, with or without the series. Only files whose content changes are
//! written, so that make builds little; the originals of changed files are kept, so that the
//! series can be taken out or replaced. Building is for `build`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use fs_err as fs;

use crate::base::Base;
use crate::cache::{Key, Lock, write_if_changed};
use crate::command;
use crate::lab::Lab;
use crate::mail::Mail;
use crate::source;

/// The files of the policy core that the series has: where Linux keeps them below lib/memferry, and their names without
/// .h and .c; some have only one of the two.
const CORE: [(&str, &[&str]); 2] = [
    ("", &["types", "share", "choose"]),
    (
        "hotness",
        &[
            "hotness",
            "hotness_rank",
            "hotness_time",
            "pace",
            "balance",
            "hotness_test",
            "pace_test",
            "balance_test",
        ],
    ),
];

/// What the series is made of, as files of the checkout.
pub struct Series {
    /// In the order in which they apply: what they change in Linux's own files.
    pub mails: Vec<Mail>,
    /// Files that Linux gains: path in Linux, and content.
    pub files: Files,
    /// The folder of the mails in the checkout.
    pub hooks: String,
}

impl Series {
    /// None: Linux as it is.
    pub fn none() -> Self {
        Self {
            mails: Vec::new(),
            files: Files::new(),
            hooks: String::new(),
        }
    }

    /// Reads that for `base` from the checkout `root`.
    pub fn read(root: &Path, base: &Base) -> Result<Self> {
        let hooks = base.hooks();
        let mut files = files_in(&root.join("kernel/tree"))?;
        // The policy core, byte for byte, where the kernel keeps such things.
        for (folder, names) in CORE {
            for name in names {
                let header = format!("{name}.h");
                let source = format!("{name}.c");
                let places = [
                    (
                        Path::new("core/include/memferry").join(&header),
                        Path::new("include/linux/memferry").join(&header),
                    ),
                    (
                        Path::new("core").join(&source),
                        Path::new("lib/memferry").join(folder).join(&source),
                    ),
                ];
                for (ours, theirs) in places {
                    if root.join(&ours).exists() {
                        files.insert(theirs, fs::read(root.join(ours))?);
                    }
                }
            }
        }

        let folder = root.join(&hooks);
        let list = folder.join("series");
        let list = fs::read_to_string(&list)?;
        let mut mails = Vec::new();
        let mut part = String::new();
        for line in list
            .lines()
            .map(|line| line.split('#').next().unwrap_or_default().trim())
            .filter(|line| !line.is_empty())
        {
            if let Some(name) = line
                .strip_prefix('[')
                .and_then(|rest| rest.strip_suffix(']'))
            {
                name.clone_into(&mut part);
            } else if part.is_empty() {
                bail!("{hooks}/series: {line} comes before the first [PART]");
            } else {
                let path = folder.join(line);
                let file = fs::read_to_string(&path)?;
                mails.push(Mail::new(&part, line, file));
            }
        }
        Ok(Self {
            mails,
            files,
            hooks,
        })
    }

    /// Takes everything into `key`.
    pub fn add_to(&self, key: &mut Key) {
        for mail in &self.mails {
            key.add(mail.file.as_bytes());
        }
        key.add_files(&self.files);
    }

    /// The files of Linux that the hooks change.
    pub fn hooked(&self) -> Vec<PathBuf> {
        let mut paths = Vec::new();
        for mail in &self.mails {
            for line in mail.diff.lines() {
                let path = line
                    .strip_prefix("--- a/")
                    .and_then(|rest| rest.split('\t').next());
                paths.extend(path.map(PathBuf::from));
            }
        }
        paths.sort();
        paths.dedup();
        paths
    }
}

/// An unpacked tree.
pub struct Tree {
    /// The source.
    pub linux: PathBuf,
    /// Beside it: what we know of it.
    pub state: PathBuf,
    /// Nobody else changes or builds it meanwhile. None for a tree that is not in the cache.
    pub _lock: Option<Lock>,
}

impl Tree {
    /// The lab's tree of `kind`, unpacked if it is not there, once nobody else has it.
    pub fn open(lab: &Lab, kind: &str) -> Result<Self> {
        let name = format!("{}-{}-{kind}", lab.source.id, lab.machine.kernel.arch);
        let lock = lab.cache.lock(&name)?;
        let folder = lab.cache.root.join("trees").join(name);
        let linux = folder.join("linux");
        if !linux.exists() {
            lab.source.unpack(&linux, &lab.base)?;
        }
        Ok(Self {
            linux,
            state: folder.join("lab"),
            _lock: Some(lock),
        })
    }

    /// Makes the tree Linux with exactly `series`. Returns how many files changed.
    pub fn set(&self, series: &Series) -> Result<usize> {
        let wanted = self.with_series(series)?;
        let added = self.state.join("added");
        let mut changed = 0;
        // What an earlier series had and this one has not goes first; the list of what is ours
        // grows before the tree does, so that an interrupted change can be taken back.
        let before: Vec<PathBuf> = fs::read_to_string(&added)
            .unwrap_or_default()
            .lines()
            .map(PathBuf::from)
            .collect();
        let mut ours: Vec<_> = before.iter().chain(wanted.keys()).collect();
        ours.sort();
        ours.dedup();
        write_list(&added, &ours)?;
        for path in before.iter().filter(|path| !wanted.contains_key(*path)) {
            let place = self.linux.join(path);
            if let Ok(original) = fs::read(self.original(path)) {
                changed += usize::from(write_if_changed(&place, &original)?);
            } else if place.exists() {
                fs::remove_file(&place)?;
                changed += 1;
            }
        }
        for (path, content) in &wanted {
            changed += usize::from(write_if_changed(&self.linux.join(path), content)?);
        }
        write_list(&added, &wanted.keys().collect::<Vec<_>>())?;
        Ok(changed)
    }

    /// What each file that the series changes or adds shall be.
    fn with_series(&self, series: &Series) -> Result<Files> {
        let scratch = tempfile::tempdir()?;
        let mut wanted = series.files.clone();
        for path in series.hooked() {
            let original = self.keep_original(&path)?;
            write_if_changed(&scratch.path().join(&path), &original)?;
        }
        let version = source::version(&self.linux)?;
        for mail in &series.mails {
            apply(scratch.path(), series, mail, &mail.diff, &version)?;
        }
        for (path, content) in files_in(scratch.path())? {
            if wanted.contains_key(&path) {
                bail!("{} is both hooked and added by the series", path.display());
            }
            wanted.insert(path, content);
        }
        Ok(wanted)
    }

    /// The content of `path` in Linux as it is, kept from now on.
    fn keep_original(&self, path: &Path) -> Result<Vec<u8>> {
        let kept = self.original(path);
        if let Ok(content) = fs::read(&kept) {
            return Ok(content);
        }
        let place = self.linux.join(path);
        let content = fs::read(&place).with_context(|| {
            format!(
                "a hook changes {}, which this Linux has not",
                path.display()
            )
        })?;
        write_if_changed(&kept, &content)?;
        Ok(content)
    }

    fn original(&self, path: &Path) -> PathBuf {
        self.state.join("originals").join(path)
    }
}

/// Applies `diff`, that of `mail` of `series`, to the files of Linux `version` in `folder`. What surrounds a change must be as it was: a
/// hook for which it is not is for a person to look at.
pub fn apply(folder: &Path, series: &Series, mail: &Mail, diff: &str, version: &str) -> Result<()> {
    if diff.is_empty() {
        return Ok(());
    }
    let mut git = command::git(folder);
    git.args(["apply", "--whitespace=nowarn", "-"]);
    command::output(&mut git, diff).with_context(|| {
        format!(
            "{}/{} is not made for this Linux ({version}); try another release of it with --source",
            series.hooks, mail.name
        )
    })?;
    Ok(())
}

/// Files by path, with their content.
pub type Files = BTreeMap<PathBuf, Vec<u8>>;

/// Every file below `folder`, by its path there.
pub fn files_in(folder: &Path) -> Result<Files> {
    let mut files = Files::new();
    for path in files_below(folder)? {
        files.insert(path.strip_prefix(folder)?.to_owned(), fs::read(&path)?);
    }
    Ok(files)
}

fn write_list(path: &Path, list: &[&PathBuf]) -> Result<()> {
    let text: String = list
        .iter()
        .map(|path| format!("{}\n", path.display()))
        .collect();
    write_if_changed(path, text.as_bytes())?;
    Ok(())
}

/// The files in `folder` whose names end so, sorted.
pub fn files_ending(folder: &Path, end: &str) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder)?.map(|entry| Ok(entry?.path()));
    let mut files = entries.collect::<Result<Vec<_>>>()?;
    files.retain(|path| path.extension().is_some_and(|of| of == end));
    files.sort();
    Ok(files)
}

/// Every file below `folder`, sorted.
pub fn files_below(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                folders.push(entry.path());
            } else {
                files.push(entry.path());
            }
        }
    }
    files.sort();
    Ok(files)
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs of Debian's packages for guests, with the shared libraries that they load and nothing else, since they lie in the guest's
//! memory. The packages are unpacked in the cache; the host's own stay as they are.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use fs_err as fs;

use crate::apt;
use crate::cache::{Cache, make_folder};
use crate::command;
use crate::host::has;
use crate::ui::step;

/// What loads a program and its libraries, in the packages and in the guest.
const LOADER: &str = "lib64/ld-linux-x86-64.so.2";

/// Where libraries are, in the packages.
const LIBRARIES: [&str; 2] = ["lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu"];

/// The files that a guest needs for these `programs`, each a package and its program with a colon between: where they are, and where the
/// guest has them.
pub fn files(cache: &Cache, programs: &[String]) -> Result<Vec<(PathBuf, String)>> {
    let split = |program: &String| {
        let (package, name) = program.split_once(':')?;
        Some((package.to_owned(), name.to_owned()))
    };
    let programs: Option<Vec<_>> = programs.iter().map(split).collect();
    let programs = programs.context("a program of Debian is written PACKAGE:PROGRAM")?;
    let mut files = Vec::new();
    for (package, name) in programs {
        let root = unpacked(cache, &package)?;
        let program = root.join("usr/bin").join(&name);
        if !program.is_file() {
            bail!(
                "Debian's package {package} has no usr/bin/{name}; correct `debian` in lab/timed/matrix.toml, or delete {} to fetch it again",
                root.display()
            );
        }
        for library in libraries(&root, &program)? {
            let base = library.file_name().unwrap_or_default().to_string_lossy();
            let place = match library.ends_with(LOADER) {
                true => LOADER.to_owned(),
                false => format!("{}/{base}", LIBRARIES[0]),
            };
            files.push((library, place));
        }
        files.push((program, format!("programs/{name}")));
    }
    files.sort_by(|a, b| a.1.cmp(&b.1));
    // Libraries that several programs load.
    files.dedup_by(|a, b| a.1 == b.1);
    Ok(files)
}

/// The folder that `package` and all that it depends on are unpacked in.
fn unpacked(cache: &Cache, package: &str) -> Result<PathBuf> {
    let folder = cache.root.join("debian").join(package);
    let _lock = cache.lock(&format!("debian-{package}"))?;
    if folder.is_dir() {
        return Ok(folder);
    }
    if !has("apt-get") || !has("dpkg-deb") {
        bail!(
            "missing: {package} of Debian, which the lab fetches with apt-get; without it put what its package and those that it needs \
             contain in {}",
            folder.display()
        );
    }
    step!("fetching {package} of Debian");
    let log = folder.with_extension("log");
    make_folder(&folder, |new| apt::unpack_with_all(package, new, &log))?;
    Ok(folder)
}

/// The libraries that `program` loads, as the loader below `root` finds them there, and the loader.
fn libraries(root: &Path, program: &Path) -> Result<Vec<PathBuf>> {
    let folders = LIBRARIES.map(|folder| root.join(folder).display().to_string());
    let mut list = Command::new(root.join(LOADER));
    list.arg("--library-path")
        .arg(folders.join(":"))
        .arg("--list")
        .arg(program);
    let text = command::output(&mut list, "")
        .with_context(|| format!("list the libraries of {}", program.display()))?;
    let mut found = vec![root.join(LOADER)];
    for line in text.lines() {
        found.extend(
            library(line)?.filter(|path| path.starts_with(root) && !path.ends_with(LOADER)),
        );
    }
    Ok(found)
}

/// The path in a line of the loader's list; none of what is no file.
fn library(line: &str) -> Result<Option<PathBuf>> {
    let Some((name, found)) = line.trim().split_once(" => ") else {
        return Ok(None);
    };
    if found.starts_with("not found") {
        bail!("no package has {name}");
    }
    let path = found.split(" (").next().unwrap_or_default();
    Ok(Some(PathBuf::from(path)))
}

/// Bytes of these files.
pub fn bytes(files: &[(PathBuf, String)]) -> Result<u64> {
    let lengths = files.iter().map(|(path, _)| Ok(fs::metadata(path)?.len()));
    lengths.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_list_names_a_file_or_none() {
        let path = |line| library(line).unwrap();
        assert_eq!(
            path("\tlibz.so.1 => /r/lib/libz.so.1 (0x00007f08)"),
            Some(PathBuf::from("/r/lib/libz.so.1"))
        );
        assert_eq!(path("\tlinux-vdso.so.1 (0x00007f08)"), None);
        let error = library("libx.so => not found").unwrap_err();
        assert!(error.to_string().contains("libx.so"), "{error}");
    }

    #[test]
    fn a_program_without_its_package_is_refused() {
        let cache = Cache::open().unwrap();
        let error = files(&cache, &["redis".to_owned()]).unwrap_err();
        assert!(error.to_string().contains("PACKAGE:PROGRAM"), "{error}");
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's settings while the benchmark runs, and as they were before when it ends, however it ends.

use std::fs;
use std::path::{Path, PathBuf};

use super::mode::{BALANCING, DEMOTION, ENABLED, EVENT, Mode, SCAN_SIZE, TARGET};
use super::place::Place;
use crate::failure::Failure;
use crate::restore::Restore;

/// The kernel's settings, which come back when this value goes.
pub struct Control {
    root: PathBuf,
    before: Restore,
}

impl Control {
    /// Nothing is changed yet below `root`.
    ///
    /// # Errors
    /// See [`Restore::new`].
    pub fn new(root: &Path) -> Result<Self, Failure> {
        // What promotes comes last: before it, what it uses.
        const FILES: &[&str] = &[SCAN_SIZE, EVENT, TARGET, DEMOTION, ENABLED, BALANCING];
        Ok(Self {
            root: root.to_owned(),
            before: Restore::new(root, FILES)?,
        })
    }

    /// Sets what all runs share: nothing promotes, reclaim demotes as `demotion` says, pghot knows target and event.
    pub fn prepare(
        &mut self,
        place: &Place,
        demotion: bool,
        event: Option<&str>,
    ) -> Result<(), Failure> {
        self.off()?;
        self.set(DEMOTION, if demotion { "true" } else { "false" })?;
        self.set(TARGET, &place.near.to_string())?;
        match event {
            Some(event) => self.set(EVENT, event),
            None => Ok(()),
        }
    }

    /// Nothing promotes.
    pub fn off(&mut self) -> Result<(), Failure> {
        self.set(BALANCING, "0")?;
        self.set(ENABLED, "0")
    }

    /// This mode promotes.
    pub fn on(&mut self, mode: &Mode) -> Result<(), Failure> {
        mode.files()
            .iter()
            .try_for_each(|(file, text)| self.set(file, text))
    }

    /// Writes a file of [`Control::new`] if it is there.
    pub fn set(&mut self, file: &str, text: &str) -> Result<(), Failure> {
        let path = self.root.join(file);
        let now = match fs::read_to_string(&path) {
            Ok(now) => now.trim().to_owned(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(refused(&path, text, &error)),
        };
        if now == text {
            return Ok(());
        }
        self.before.begin()?;
        fs::write(&path, format!("{text}\n")).map_err(|error| refused(&path, text, &error))
    }

    /// Sets everything back.
    pub fn restore(mut self) -> Result<(), Failure> {
        self.before.bring_back()
    }
}

fn refused(path: &Path, text: &str, error: &std::io::Error) -> Failure {
    Failure::new(
        format!("cannot set {} to {text:?}", path.display()),
        error,
        "be root, outside of a container with a read-only /proc or /sys; what was changed is set back",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::machine;

    fn place() -> Place {
        Place {
            lower: 2,
            near: 1,
            top: vec![0, 1],
            cpus: vec![1],
        }
    }

    fn mode(name: &'static str, source: Option<&'static str>) -> Mode {
        Mode {
            source,
            ..Mode::plain(name)
        }
    }

    const BEFORE: [(&str, &str); 5] = [
        (BALANCING, "1\n"),
        (DEMOTION, "false\n"),
        (ENABLED, "4\n"),
        (TARGET, "0\n"),
        (EVENT, "none\n"),
    ];

    fn texts(root: &Path) -> Vec<String> {
        let text = |(file, _): &(&str, &str)| fs::read_to_string(root.join(file)).expect("file");
        BEFORE.iter().map(text).collect()
    }

    #[test]
    fn every_mode_sets_its_files_and_all_come_back() {
        let root = machine(&BEFORE);
        let mut control = Control::new(root.path()).expect("nothing is left");
        control
            .prepare(&place(), true, Some("1 2 3"))
            .expect("prepare");
        assert_eq!(
            texts(root.path()),
            ["0\n", "true\n", "0\n", "1\n", "1 2 3\n"]
        );
        for (of, balancing, enabled) in [
            (mode("none", None), "0\n", "0\n"),
            (mode("numab2", None), "2\n", "0\n"),
            (mode("pghot", Some("hintfaults")), "2\n", "1\n"),
            (mode("pghot", Some("hwhints")), "0\n", "2\n"),
            (mode("pghot", Some("pgtscan")), "0\n", "4\n"),
        ] {
            control.on(&of).expect("on");
            let now = texts(root.path());
            assert_eq!((&*now[0], &*now[2]), (balancing, enabled), "{of:?}");
            control.off().expect("off");
        }
        control.restore().expect("restore");
        assert_eq!(texts(root.path()), BEFORE.map(|(_, text)| text));
    }

    #[test]
    fn a_kernel_without_pghot_has_fewer_files() {
        let root = machine(&BEFORE[..2]);
        let mut control = Control::new(root.path()).expect("nothing is left");
        control.prepare(&place(), true, None).expect("prepare");
        control.on(&mode("numab2", None)).expect("on");
        control.restore().expect("restore");
        let text = fs::read_to_string(root.path().join(BALANCING)).expect("file");
        assert_eq!(text, "1\n");
        assert!(!root.path().join(ENABLED).exists(), "no file is made");
    }

    #[test]
    fn what_cannot_be_set_back_is_named() {
        let root = machine(&BEFORE);
        let mut control = Control::new(root.path()).expect("nothing is left");
        control.prepare(&place(), true, None).expect("prepare");
        let gone = root.path().join(DEMOTION);
        fs::remove_file(&gone).expect("remove");
        fs::create_dir(&gone).expect("folder");
        let told = control.restore().expect_err("a folder").to_string();
        assert!(
            told.contains(DEMOTION) && told.contains("by hand"),
            "{told}"
        );
        let text = fs::read_to_string(root.path().join(BALANCING)).expect("file");
        assert_eq!(text, "1\n", "the others come back all the same");
    }
}

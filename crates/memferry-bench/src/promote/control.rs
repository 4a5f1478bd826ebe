// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's settings while the benchmark runs, and as they were before when it ends, however it ends.

use std::fs;
use std::path::{Path, PathBuf};

use super::damos;
use super::mode::{BALANCING, DEMOTION, ENABLED, EVENT, MGLRU, Mode, SCAN_SIZE, TARGET};
use super::place::Place;
use crate::args::promote::{PromoteArgs, Switch};
use crate::failure::Failure;
use crate::restore::Restore;

/// The kernel's settings, which come back when this value goes.
pub struct Control {
    root: PathBuf,
    before: Restore,
}

impl Control {
    /// Nothing is changed yet below `root`; these modes are to be run.
    ///
    /// # Errors
    /// See [`Restore::new`].
    pub fn new(root: &Path, modes: &[Mode]) -> Result<Self, Failure> {
        // What promotes comes last: before it, what it uses.
        const FILES: &[&str] = &[
            SCAN_SIZE, EVENT, TARGET, MGLRU, DEMOTION, ENABLED, BALANCING,
        ];
        let mut before = Restore::new(root, FILES)?;
        if modes.iter().any(Mode::is_damos) {
            before.will_be_made(damos::made());
        }
        Ok(Self {
            root: root.to_owned(),
            before,
        })
    }

    /// Sets what all runs share: nothing promotes, reclaim demotes and keeps generations as it is told, pghot knows target and event.
    pub fn prepare(&mut self, place: &Place, args: &PromoteArgs) -> Result<(), Failure> {
        self.off()?;
        self.set(DEMOTION, if args.demotes() { "true" } else { "false" })?;
        match args.mglru {
            Some(Switch::On) => self.set(MGLRU, "y")?,
            Some(Switch::Off) => self.set(MGLRU, "n")?,
            None => {}
        }
        self.set(TARGET, &place.near.to_string())?;
        match args.hwhints_event.as_deref() {
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
    use crate::synthetic::{machine, put};

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

    const BEFORE: [(&str, &str); 6] = [
        (BALANCING, "1\n"),
        (DEMOTION, "false\n"),
        (ENABLED, "4\n"),
        (TARGET, "0\n"),
        (EVENT, "none\n"),
        (MGLRU, "0x0007\n"),
    ];

    fn texts(root: &Path) -> Vec<String> {
        let text = |(file, _): &(&str, &str)| fs::read_to_string(root.join(file)).expect("file");
        BEFORE.iter().map(text).collect()
    }

    #[test]
    fn every_mode_sets_its_files_and_all_come_back() {
        let root = machine(&BEFORE);
        let mut control = Control::new(root.path(), &[]).expect("nothing is left");
        let mut args = PromoteArgs::read("--mglru off");
        args.hwhints_event = Some("1 2 3".to_owned());
        control.prepare(&place(), &args).expect("prepare");
        assert_eq!(
            texts(root.path()),
            ["0\n", "true\n", "0\n", "1\n", "1 2 3\n", "n\n"]
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
        let mut control = Control::new(root.path(), &[]).expect("nothing is left");
        control
            .prepare(&place(), &PromoteArgs::read(""))
            .expect("prepare");
        control.on(&mode("numab2", None)).expect("on");
        control.restore().expect("restore");
        let text = fs::read_to_string(root.path().join(BALANCING)).expect("file");
        assert_eq!(text, "1\n");
        assert!(!root.path().join(ENABLED).exists(), "no file is made");
    }

    #[test]
    fn damon_is_set_back_where_it_is_a_mode() {
        let root = damos::tests::kernel();
        let modes = [Mode::plain("damos")];
        let mut control = Control::new(root.path(), &modes).expect("nothing is left");
        control
            .set(BALANCING, "0")
            .expect("it is not there: nothing is stored");
        put(root.path(), BALANCING, "1\n");
        control.off().expect("off");
        // As a benchmark leaves it that is killed.
        std::mem::forget(
            damos::Damos::start(root.path(), &damos::tests::place(), damos::TUNERS[0])
                .expect("start"),
        );
        let stored = crate::restore::left(root.path())
            .expect("readable")
            .expect("left");
        assert_eq!(stored.steps.len(), 4, "{:?}", stored.steps);
        control.restore().expect("restore");
        for (file, before) in damos::made() {
            let text = fs::read_to_string(root.path().join(&file)).expect("file");
            assert_eq!(text.trim(), before, "{file}");
        }
    }

    #[test]
    fn what_cannot_be_set_back_is_named() {
        let root = machine(&BEFORE);
        let mut control = Control::new(root.path(), &[]).expect("nothing is left");
        control
            .prepare(&place(), &PromoteArgs::read(""))
            .expect("prepare");
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

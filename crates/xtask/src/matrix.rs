// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask timed`: benchmarks in every combination of workload, modes, seed and the model's parameters, each a cell with a boot of
//! its own. A finished cell is kept by kernel, plugin, parameters and command, so that a run goes on where the last one stopped.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use fs_err as fs;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::base::{self, Base};
use crate::build;
use crate::cache::{Key, Lock};
use crate::cli::Usage;
use crate::command::interrupted;
use crate::debian;
use crate::gains::Gains;
use crate::guest::Programs;
use crate::lab::Lab;
use crate::machine::Machine;
use crate::model::{self, Model};
use crate::profile::Profile;
use crate::qemu::Accelerator;
use crate::run::{Kind, Place, Run};
use crate::suite::Entry;
use crate::ui::step;
use crate::verdict::{Outcome, Verdict};

/// The list of matrices, in a checkout.
const LIST: &str = "lab/timed/matrix.toml";

/// The name of the file that a cell's command leaves in $RESULTS.
const RESULT: &str = "cell.json";

#[derive(clap::Args)]
pub struct Args {
    /// This matrix of lab/timed/matrix.toml only; can be repeated
    #[arg(long = "matrix", value_name = "NAME")]
    matrices: Vec<String>,
    /// Run nothing; print which cells are there
    #[arg(long, conflicts_with = "report")]
    list: bool,
    /// Run nothing; print a table of the cells that are there
    #[arg(long)]
    report: bool,
    /// Multiply all time limits, on a machine busy with other things
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..1000))]
    patience: u64,
}

#[derive(clap::Args)]
pub struct ProgramArgs {
    /// These programs only: redis, memcached, sqlite
    #[arg(long = "program", value_name = "LIST", value_delimiter = ',')]
    programs: Vec<String>,
    /// What kind of kernel: one with the series, Linux as it is, or Debian's configuration with the series
    #[arg(long, value_enum)]
    profile: Option<Profile>,
    /// Multiply all time limits, on a machine busy with other things
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..1000))]
    patience: u64,
}

/// The name of the matrix of `cargo xtask programs`.
const PROGRAMS: &str = "programs";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    matrix: Vec<Matrix>,
}

/// Cells of one kernel on one machine.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Matrix {
    name: String,
    #[serde(default = "default_base")]
    base: String,
    profile: Profile,
    machine: String,
    /// What stands for {workload}, {mode} and {seed} in the command.
    workloads: Vec<String>,
    modes: Vec<String>,
    seeds: Vec<u64>,
    /// Programs of Debian that guests have, as PACKAGE:PROGRAM.
    #[serde(default)]
    debian: Vec<String>,
    /// Parameters of the model that are replaced, as --set takes them.
    #[serde(default = "as_they_are")]
    sets: Vec<Vec<String>>,
    /// How long a cell may take, before the accelerator's slowness counts.
    seconds: u64,
    /// Leaves its JSON file as $RESULTS/cell.json.
    command: String,
}

fn default_base() -> String {
    base::DEFAULT.to_owned()
}

fn as_they_are() -> Vec<Vec<String>> {
    vec![Vec::new()]
}

/// One boot.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Cell {
    /// The parameters that are replaced.
    sets: Vec<String>,
    command: String,
}

/// Does what `args` ask. Returns whether every cell that ran left its file.
pub fn run(root: &Path, args: &Args, source: Option<&Path>) -> Result<bool> {
    let mut good = true;
    for matrix in chosen(root, &args.matrices)? {
        let machine = Machine::read(root, &matrix.machine)?;
        if machine.timed.is_none() {
            bail!(
                "{LIST}: {}: {} is no timed machine",
                matrix.name,
                machine.name
            );
        }
        let mut lab = matrix.lab(root, machine, source)?;
        if args.list || args.report {
            let programs = matrix.programs(&lab)?;
            let kept = kept(&mut lab, &matrix, &programs.key()?)?;
            print!(
                "{}",
                if args.list {
                    list(&kept)
                } else {
                    report(&kept)?
                }
            );
        } else {
            good &= matrix.run(&mut lab, args.patience)?;
        }
    }
    Ok(good)
}

/// Runs what is missing of the programs that `args` name, and prints what all of them came to. Returns whether none failed.
pub fn run_programs(root: &Path, args: &ProgramArgs, source: Option<&Path>) -> Result<bool> {
    let mut good = true;
    for mut matrix in chosen(root, &[PROGRAMS.to_owned()])? {
        matrix.take(&args.programs)?;
        matrix.profile = args.profile.unwrap_or(matrix.profile);
        let machine = Machine::read(root, &matrix.machine)?;
        matrix.profile.require(&machine)?;
        let mut lab = matrix.lab(root, machine, source)?;
        good &= matrix.run(&mut lab, args.patience)?;
        let key = matrix.programs(&lab)?.key()?;
        print!("{}", report(&kept(&mut lab, &matrix, &key)?)?);
    }
    Ok(good)
}

/// The matrices of these `names`, or all of them.
fn chosen(root: &Path, names: &[String]) -> Result<Vec<Matrix>> {
    let text = fs::read_to_string(root.join(LIST))?;
    let List { matrix: mut all } = basic_toml::from_str(&text).context(LIST)?;
    if let Some(name) = names
        .iter()
        .find(|name| !all.iter().any(|of| of.name == **name))
    {
        let there: Vec<_> = all.iter().map(|matrix| matrix.name.as_str()).collect();
        bail!(Usage(format!(
            "no matrix {name}; there are: {}",
            there.join(", ")
        )));
    }
    all.retain(|matrix| names.is_empty() || names.contains(&matrix.name));
    Ok(all)
}

/// Each cell, and the path of its file, which is there once the cell is finished.
fn kept(lab: &mut Lab, matrix: &Matrix, programs: &str) -> Result<Vec<(Cell, PathBuf)>> {
    let kernel = build::name(lab, matrix.profile)?;
    let plugin = model::key(&lab.root)?;
    let folder = lab.root.join("target/timed").join(&matrix.name);
    let parameters = lab.machine.timed.clone();
    let mut kept = Vec::new();
    for cell in matrix.cells() {
        lab.machine.timed.clone_from(&parameters);
        lab.machine.set(&cell.sets)?;
        let mut key = Key::default();
        let parameters = lab.machine.timed.as_ref().map(|timed| timed.lines());
        for part in [
            &kernel,
            &plugin,
            programs,
            &lab.machine.qemu.timed_append,
            &parameters.unwrap_or_default(),
            &cell.command,
        ] {
            key.add(part.as_bytes());
        }
        for word in lab.machine.qemu.args.iter().chain(&lab.machine.qemu.timed) {
            key.add(word.as_bytes());
        }
        let path = folder.join(format!("{}.json", key.name()));
        kept.push((cell, path));
    }
    lab.machine.timed = parameters;
    Ok(kept)
}

fn list(kept: &[(Cell, PathBuf)]) -> String {
    let there = kept.iter().filter(|(_, path)| path.is_file()).count();
    let lines = kept.iter().map(|(cell, path)| {
        let mark = if path.is_file() { "there  " } else { "missing" };
        format!(
            "{mark} {} [{}] {}\n",
            path.display(),
            cell.parameters(),
            cell.command
        )
    });
    format!(
        "{}{there} of {} cells are there\n",
        lines.collect::<String>(),
        kept.len()
    )
}

fn report(kept: &[(Cell, PathBuf)]) -> Result<String> {
    let mut gains = Gains::default();
    let mut there = 0;
    for (cell, path) in kept.iter().filter(|(_, path)| path.is_file()) {
        let file = serde_json::from_slice(&fs::read(path)?)
            .with_context(|| format!("read {}; delete it to run the cell again", path.display()))?;
        gains.add(&cell.parameters(), &file);
        there += 1;
    }
    Ok(format!(
        "Modelled time; {there} of {} cells; ± is the 95% confidence of the mean over seeds.\n\n{}\n",
        kept.len(),
        gains.table()
    ))
}

impl Matrix {
    /// The lab of its machine.
    fn lab(&self, root: &Path, machine: Machine, source: Option<&Path>) -> Result<Lab> {
        Lab::open(root, machine, Base::read(root, &self.base)?, source)
    }

    /// What its guests have.
    fn programs(&self, lab: &Lab) -> Result<Programs> {
        let mut programs = Programs::build(lab)?;
        if !self.debian.is_empty() {
            let files = debian::files(&lab.cache, &self.debian)?;
            step!(
                "programs of Debian: {} files, {:.1} MB of the guest's memory",
                files.len(),
                debian::bytes(&files)? as f64 / 1e6
            );
            programs.add_files(files);
        }
        Ok(programs)
    }

    /// Leaves the workloads of these names, all if there is none.
    fn take(&mut self, names: &[String]) -> Result<()> {
        if let Some(name) = names.iter().find(|name| !self.workloads.contains(name)) {
            bail!(Usage(format!(
                "no program {name}; there are: {}",
                self.workloads.join(", ")
            )));
        }
        self.workloads
            .retain(|name| names.is_empty() || names.contains(name));
        Ok(())
    }

    /// Every combination, with all seeds of one before the next.
    fn cells(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        for sets in &self.sets {
            for workload in &self.workloads {
                for mode in &self.modes {
                    for seed in &self.seeds {
                        let words = [("{workload}", workload), ("{mode}", mode)];
                        let seed = seed.to_string();
                        let mut command = self.command.replace("{seed}", &seed);
                        for (word, value) in words {
                            command = command.replace(word, value);
                        }
                        cells.push(Cell {
                            sets: sets.clone(),
                            command,
                        });
                    }
                }
            }
        }
        cells
    }

    /// Runs the cells that are missing and that no other run has taken. Returns whether all of them left their file.
    fn run(&self, lab: &mut Lab, patience: u64) -> Result<bool> {
        let model = Model::find(lab)?.context("a timed machine")?;
        let image = build::image(lab, self.profile)?;
        let programs = self.programs(lab)?;
        let kept = kept(lab, self, &programs.key()?)?;
        let parameters = lab.machine.timed.clone();
        let mut good = true;
        for (number, (cell, path)) in (1..).zip(&kept) {
            let Some(_lock) = Lock::try_take(&path.with_extension("lock"))? else {
                continue;
            };
            if path.is_file() {
                continue;
            }
            step!(
                "{}, cell {number} of {}: {}",
                self.name,
                kept.len(),
                cell.command
            );
            lab.machine.timed.clone_from(&parameters);
            lab.machine.set(&cell.sets)?;
            let run = Run {
                lab,
                profile: self.profile,
                place: Place::take_free(lab, self.profile, "-matrix")?,
                image: image.clone(),
                programs: programs.clone(),
                accelerator: Accelerator::Timed,
                model: Some(&model),
                patience,
                guests: 1,
                short: false,
            };
            match cell.run(&run, self.seconds) {
                Ok(file) => keep(path, &file)?,
                Err(error) if interrupted() => return Err(error),
                Err(error) => {
                    eprintln!("{}: {}: {error:#}", self.name, cell.command);
                    good = false;
                }
            }
        }
        Ok(good)
    }
}

impl Cell {
    /// What is replaced, for people.
    fn parameters(&self) -> String {
        if self.sets.is_empty() {
            "as they are".to_owned()
        } else {
            self.sets.join(" ")
        }
    }

    /// Boots, and returns what is kept.
    fn run(&self, run: &Run, seconds: u64) -> Result<Value> {
        let entry = Entry::new("cell", seconds, &self.command);
        let verdicts = run.all(&[entry], Kind::Quiet)?;
        if let Some(verdict) = verdicts.iter().find(|verdict| verdict.is_failure()) {
            bail!("{} (see {})", why(verdict), run.folder("").display());
        }
        let read = |name: &str| -> Result<Value> {
            let path = run.folder("results").join(name);
            let text = fs::read(&path)
                .with_context(|| format!("the command left no {name} in $RESULTS"))?;
            serde_json::from_slice(&text).with_context(|| format!("read {}", path.display()))
        };
        Ok(json!({
            "modelled": true,
            "machine": run.lab.machine.name,
            "kernel": run.title(),
            "sets": self.sets,
            "parameters": run.lab.machine.timed.as_ref().map(|timed| timed.lines()),
            "command": self.command,
            "truth": sound(read("truth.json")?)?,
            "result": read(RESULT)?,
        }))
    }
}

/// The model's totals, if what was measured may be used.
fn sound(truth: Value) -> Result<Value> {
    for name in ["waits_given_up", "skew_violations"] {
        if truth[name].as_u64() != Some(0) {
            bail!("the model counted {name}: {}; run it again", truth[name]);
        }
    }
    Ok(truth)
}

fn why(verdict: &Verdict) -> String {
    match &verdict.outcome {
        Outcome::Failed(reasons) => format!("{}: {}", verdict.name, reasons.join("; ")),
        _ => verdict.name.clone(),
    }
}

/// Writes `file` to `path`, whole or not at all.
fn keep(path: &Path, file: &Value) -> Result<()> {
    let part = path.with_extension("part");
    fs::write(&part, format!("{file:#}\n"))?;
    Ok(fs::rename(part, path)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
    }

    #[test]
    fn the_list_in_the_checkout_can_be_run() {
        for matrix in chosen(&root(), &[]).unwrap() {
            Base::read(&root(), &matrix.base).unwrap();
            for cell in matrix.cells() {
                let mut machine = Machine::read(&root(), &matrix.machine).unwrap();
                machine.set(&cell.sets).unwrap();
                assert!(machine.timed.is_some(), "{}", matrix.name);
                assert!(cell.command.contains(RESULT), "{}", cell.command);
                assert!(!cell.command.contains('{'), "{}", cell.command);
            }
        }
        let error = chosen(&root(), &["none".to_owned()]).err().unwrap();
        assert!(error.is::<Usage>() && error.to_string().contains("there are"));
    }

    #[test]
    fn a_matrix_is_every_combination() {
        let text = "[[matrix]]\nname = 'a'\nprofile = 'release'\nmachine = 'timed'\nworkloads = ['x', 'y']\n\
                    modes = ['n,o']\nseeds = [1, 2]\nsets = [[], ['cpus=1']]\nseconds = 1\n\
                    command = 'run {workload} {mode} {seed}'\n";
        let List { matrix } = basic_toml::from_str(text).unwrap();
        let cells = matrix[0].cells();
        assert_eq!(cells.len(), 8);
        assert_eq!(cells[1].command, "run x n,o 2");
        assert_eq!(cells[7].sets, ["cpus=1"]);
    }

    #[test]
    fn what_is_there_is_listed_and_reported() {
        let folder = tempfile::tempdir().unwrap();
        let cell = Cell {
            sets: vec!["overlap=1".to_owned()],
            command: "run".to_owned(),
        };
        let paths = ["a.json", "b.json"].map(|name| folder.path().join(name));
        keep(
            &paths[0],
            &json!({"result": [{"workload": "zipf", "mode": "none", "ns_per_op": 9.5}]}),
        )
        .unwrap();
        let kept = paths.map(|path| (cell.clone(), path));
        let listed = list(&kept);
        assert!(
            listed.contains("missing") && listed.contains("1 of 2"),
            "{listed}"
        );
        let told = report(&kept).unwrap();
        assert!(told.contains("overlap=1") && told.contains("9.5"), "{told}");
    }
}

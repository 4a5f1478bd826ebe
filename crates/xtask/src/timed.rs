// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table `[timed]` of a machine: the parameters of the model by which its memory takes time. Out of it come QEMU's memory
//! nodes, the HMAT, and the file that the model reads, so that all of them say the same. The model is lab/timed.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::os::fd::RawFd;
use std::path::Path;

use anyhow::{Result, bail};
use serde::Deserialize;

use crate::cli::Usage;

/// Parameters by name.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(transparent)]
pub struct Timed(BTreeMap<String, Value>);

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(
    untagged,
    expecting = "an integer, an array of integers, or an array of such arrays"
)]
enum Value {
    One(u64),
    List(Vec<u64>),
    Rows(Vec<Vec<u64>>),
}

/// The parameters that describe the machine, which every one has.
const CPUS: &str = "cpus";
const CPU_NODE: &str = "cpu_node";
const CPU_GROUP: &str = "cpu_group";
const NODE_BYTES: &str = "node_bytes";
const NODE_MB_PER_S: &str = "node_mb_per_s";
const LATENCY_PS: &str = "latency_ps";

/// QEMU takes sizes of nodes in these steps.
const MIB: u64 = 1 << 20;

impl Timed {
    /// Refuses parameters that do not describe a machine.
    pub fn check(&self) -> Result<()> {
        let cpus = self.one(CPUS)? as usize;
        let nodes = self.list(NODE_BYTES)?.len();
        for (name, wanted, of) in [
            (CPU_NODE, cpus, "CPUs"),
            (CPU_GROUP, cpus, "CPUs"),
            (NODE_MB_PER_S, nodes, "nodes"),
        ] {
            let count = self.list(name)?.len();
            if count != wanted {
                bail!("{name} has {count} values for {wanted} {of}");
            }
        }
        let cpu_nodes = self.cpu_nodes()?;
        if cpu_nodes == 0 || (0..cpu_nodes).any(|node| !self.has_cpus(node)) || cpu_nodes > nodes {
            bail!(
                "{CPU_NODE} must name the first nodes, each of them, and none that {NODE_BYTES} has not"
            );
        }
        let latency = self.rows(LATENCY_PS)?;
        if latency.len() != cpu_nodes || latency.iter().any(|row| row.len() != nodes) {
            bail!(
                "{LATENCY_PS} must have a row for each of {cpu_nodes} nodes with CPUs, of {nodes} values"
            );
        }
        if let Some(bytes) = self
            .list(NODE_BYTES)?
            .iter()
            .find(|bytes| *bytes % MIB != 0)
        {
            bail!("{NODE_BYTES}: {bytes} is not a multiple of {MIB}");
        }
        Ok(())
    }

    /// Replaces parameters by those of `others`.
    pub fn replace(&mut self, others: Self) {
        self.0.extend(others.0);
    }

    /// Replaces a parameter by that of `text`, NAME=VALUES.
    pub fn set(&mut self, text: &str) -> Result<()> {
        let Some((name, values)) = text.split_once('=') else {
            bail!(Usage(format!("--set {text}: no value; try --set {text}=1")));
        };
        let Some(old) = self.0.get_mut(name) else {
            let names: Vec<_> = self.0.keys().map(String::as_str).collect();
            bail!(Usage(format!(
                "--set {text}: the machine has no parameter {name}; there are: {}",
                names.join(", ")
            )));
        };
        let Some(new) = old.replaced(values) else {
            bail!(Usage(format!(
                "--set {text}: {name} is {}; write it as in --set {name}={}",
                old.described(),
                old.written(",", "/")
            )));
        };
        *old = new;
        Ok(())
    }

    /// The file that the model reads: the memory of the nodes is open as `fds`, and it leaves its totals at `truth`.
    pub fn file(&self, fds: &[RawFd], truth: &Path) -> String {
        let fds: Vec<_> = fds.iter().map(ToString::to_string).collect();
        format!(
            "{}node_fd {}\ntruth {}\n",
            self.lines(),
            fds.join(" "),
            truth.display()
        )
    }

    /// The parameters, one or a row of one in a line.
    pub fn lines(&self) -> String {
        let mut text = String::new();
        for (name, value) in &self.0 {
            match value {
                Value::Rows(rows) => {
                    for (number, row) in rows.iter().enumerate() {
                        let row = Value::List(row.clone()).written(" ", "");
                        let _ = writeln!(text, "{name} {number} {row}");
                    }
                }
                value => {
                    let _ = writeln!(text, "{name} {}", value.written(" ", ""));
                }
            }
        }
        text
    }

    /// How large each node is, in bytes.
    pub fn node_bytes(&self) -> Result<&[u64]> {
        self.list(NODE_BYTES)
    }

    /// QEMU's arguments for the memory, its nodes and their CPUs, and the HMAT. The memory is open as `fds`.
    pub fn arguments(&self, fds: &[RawFd]) -> Result<Vec<String>> {
        let bytes = self.node_bytes()?;
        let latency = self.rows(LATENCY_PS)?;
        let speed = self.list(NODE_MB_PER_S)?;
        let mut words = vec![
            "-m".to_owned(),
            format!("{}M", bytes.iter().sum::<u64>() / MIB),
        ];
        let mut add = |option: &str, value: String| words.extend([option.to_owned(), value]);
        for (node, (bytes, fd)) in bytes.iter().zip(fds).enumerate() {
            add(
                "-object",
                format!(
                    "memory-backend-file,id=m{node},size={bytes},mem-path=/proc/self/fd/{fd},share=on"
                ),
            );
            // The nearest CPUs'.
            let near = (0..latency.len()).min_by_key(|from| latency[*from][node]);
            let initiator = match near {
                Some(from) if !self.has_cpus(node) => format!(",initiator={from}"),
                _ => String::new(),
            };
            add(
                "-numa",
                format!("node,nodeid={node},memdev=m{node}{initiator}"),
            );
        }
        // A socket has one node.
        for node in 0..latency.len() {
            add("-numa", format!("cpu,node-id={node},socket-id={node}"));
        }
        for (from, row) in latency.iter().enumerate() {
            for (node, (ps, speed)) in row.iter().zip(speed).enumerate() {
                let pair = format!("hmat-lb,initiator={from},target={node},hierarchy=memory");
                let ns = (ps + 500) / 1000;
                add(
                    "-numa",
                    format!("{pair},data-type=access-latency,latency={ns}"),
                );
                // QEMU's M are MiB; Linux reads them as MB.
                add(
                    "-numa",
                    format!("{pair},data-type=access-bandwidth,bandwidth={speed}M"),
                );
            }
        }
        Ok(words)
    }

    /// How many nodes have CPUs.
    fn cpu_nodes(&self) -> Result<usize> {
        let last = self.list(CPU_NODE)?.iter().max();
        Ok(last.map_or(0, |node| *node as usize + 1))
    }

    fn has_cpus(&self, node: usize) -> bool {
        let nodes = self.list(CPU_NODE).unwrap_or_default();
        nodes.contains(&(node as u64))
    }

    fn one(&self, name: &str) -> Result<u64> {
        match self.0.get(name) {
            Some(Value::One(value)) => Ok(*value),
            _ => bail!("[timed] needs {name}, an integer"),
        }
    }

    fn list(&self, name: &str) -> Result<&[u64]> {
        match self.0.get(name) {
            Some(Value::List(values)) => Ok(values),
            _ => bail!("[timed] needs {name}, an array of integers"),
        }
    }

    fn rows(&self, name: &str) -> Result<&[Vec<u64>]> {
        match self.0.get(name) {
            Some(Value::Rows(rows)) => Ok(rows),
            _ => bail!("[timed] needs {name}, an array of arrays of integers"),
        }
    }
}

impl Value {
    /// The value of `text`, if it has as many integers as this one: with commas between them, and / between rows.
    fn replaced(&self, text: &str) -> Option<Self> {
        let row = |row: &str| -> Option<Vec<u64>> {
            row.split(',').map(|value| value.parse().ok()).collect()
        };
        let rows = text.split('/').map(row).collect::<Option<Vec<_>>>()?;
        let new = match (self, rows.as_slice()) {
            (Self::One(_), [row]) if row.len() == 1 => Self::One(row[0]),
            (Self::List(_), [row]) => Self::List(row.clone()),
            (Self::Rows(_), _) => Self::Rows(rows),
            _ => return None,
        };
        (new.lengths() == self.lengths()).then_some(new)
    }

    /// How many integers each row has.
    fn lengths(&self) -> Vec<usize> {
        match self {
            Self::One(_) => vec![1],
            Self::List(values) => vec![values.len()],
            Self::Rows(rows) => rows.iter().map(Vec::len).collect(),
        }
    }

    fn described(&self) -> String {
        match self {
            Self::One(_) => "an integer".to_owned(),
            Self::List(values) => format!("an array of {} integers", values.len()),
            Self::Rows(rows) => format!(
                "an array of {} rows, with / between them, of {} integers",
                rows.len(),
                rows.first().map_or(0, Vec::len)
            ),
        }
    }

    /// Its integers, with `comma` between them and `slash` between rows.
    fn written(&self, comma: &str, slash: &str) -> String {
        let list = |values: &[u64]| {
            let values: Vec<_> = values.iter().map(ToString::to_string).collect();
            values.join(comma)
        };
        match self {
            Self::One(value) => value.to_string(),
            Self::List(values) => list(values),
            Self::Rows(rows) => {
                let rows: Vec<_> = rows.iter().map(|row| list(row)).collect();
                rows.join(slash)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "cpus = 2\nnode_bytes = [1073741824, 536870912, 2147483648]\ncpu_node = [0, 1]\n\
                         cpu_group = [0, 1]\nlatency_ps = [[100000, 180000, 250000], [180000, 100000, 330000]]\n\
                         node_mb_per_s = [30000, 30000, 12000]\noverlap = 1\n";

    fn table(text: &str) -> Timed {
        basic_toml::from_str(text).unwrap()
    }

    #[test]
    fn the_model_reads_a_line_for_each_parameter_and_each_row_of_one() {
        let timed = table(TABLE);
        timed.check().unwrap();
        let want = "cpu_group 0 1\ncpu_node 0 1\ncpus 2\nlatency_ps 0 100000 180000 250000\n\
                    latency_ps 1 180000 100000 330000\nnode_bytes 1073741824 536870912 2147483648\n\
                    node_mb_per_s 30000 30000 12000\noverlap 1\nnode_fd 7 8 9\ntruth /r/truth.json\n";
        assert_eq!(timed.file(&[7, 8, 9], Path::new("/r/truth.json")), want);
    }

    #[test]
    fn qemu_and_the_hmat_get_the_same_numbers() {
        let words = table(TABLE).arguments(&[7, 8, 9]).unwrap();
        let has = |option: &str, value: &str| words.windows(2).any(|pair| pair == [option, value]);
        assert!(has("-m", "3584M"), "{words:?}");
        assert!(has(
            "-object",
            "memory-backend-file,id=m1,size=536870912,mem-path=/proc/self/fd/8,share=on"
        ));
        assert!(has("-numa", "node,nodeid=1,memdev=m1"));
        assert!(has("-numa", "node,nodeid=2,memdev=m2,initiator=0"));
        assert!(has("-numa", "cpu,node-id=1,socket-id=1"));
        let hmat = "hmat-lb,initiator=1,target=2,hierarchy=memory,data-type=access";
        assert!(has("-numa", &format!("{hmat}-latency,latency=330")));
        assert!(has("-numa", &format!("{hmat}-bandwidth,bandwidth=12000M")));
        let pairs = words.iter().filter(|word| word.starts_with("hmat-lb"));
        assert_eq!(pairs.count(), 2 * 2 * 3);
    }

    #[test]
    fn a_table_that_is_no_machine_is_told() {
        for (old, new, why) in [
            ("cpus = 2\n", "", "needs cpus"),
            ("cpus = 2", "cpus = [2]", "cpus, an integer"),
            (
                "cpu_group = [0, 1]",
                "cpu_group = [0]",
                "cpu_group has 1 values for 2 CPUs",
            ),
            (
                "cpu_node = [0, 1]",
                "cpu_node = [0, 2]",
                "cpu_node must name the first",
            ),
            (", [180000, 100000, 330000]", "", "a row for each of 2"),
            ("536870912", "536870913", "not a multiple"),
        ] {
            let error = table(&TABLE.replace(old, new)).check().unwrap_err();
            assert!(error.to_string().contains(why), "{new:?}: {error}");
        }
        let error = basic_toml::from_str::<Timed>("cpus = 'two'\n").unwrap_err();
        assert!(
            error.to_string().contains("an integer, an array"),
            "{error}"
        );
    }

    #[test]
    fn a_parameter_can_be_replaced_by_one_of_the_same_shape() {
        let mut timed = table(TABLE);
        timed.set("overlap=0").unwrap();
        timed.set("latency_ps=1,2,3/4,5,6").unwrap();
        timed.set("node_mb_per_s=7,8,9").unwrap();
        let lines = timed.lines();
        for line in ["overlap 0", "latency_ps 1 4 5 6", "node_mb_per_s 7 8 9"] {
            assert!(lines.lines().any(|got| got == line), "{lines}");
        }
        for (text, why) in [
            ("overlap", "--set overlap=1"),
            ("speed=1", "there are: cpu_group"),
            ("overlap=1,2", "overlap is an integer"),
            ("overlap=-1", "--set overlap=0"),
            ("node_mb_per_s=7,8", "an array of 3 integers"),
            ("latency_ps=1,2,3", "--set latency_ps=1,2,3/4,5,6"),
        ] {
            let error = timed.set(text).unwrap_err();
            assert!(error.is::<Usage>(), "{text}");
            assert!(error.to_string().contains(why), "{text}: {error}");
        }
    }
}

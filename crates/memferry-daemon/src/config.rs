// SPDX-License-Identifier: MIT OR Apache-2.0
//! The configuration: TOML whose errors name the line and what is allowed. Unknown keys are refused, unless the file says that it is
//! for a newer version of the program: then they are ignored, so that an older one starts with it.
//!
//! Reading changes nothing; whoever reloads keeps the old configuration when this fails.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue, Deserializer};

use crate::error::DaemonError;
use crate::members::LEAST_RESIDENT;
use crate::patterns;

/// The version of the keys below. Whoever adds a key raises it.
pub const VERSION: u64 = 1;

/// Everything that can be configured.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Whether anything is moved or set; else the daemon only watches.
    pub act: bool,
    /// What reports heat.
    pub source: SourceChoice,
    /// Percent of one CPU that DAMON or perf may take, 1 to 100.
    pub source_cpu: u32,
    /// What slows the daemon down.
    pub brakes: Brakes,
    /// Where metrics are served, if anywhere.
    pub metrics: Option<Listen>,
    /// Where the history is kept, if anywhere.
    pub history: Option<HistoryPlace>,
    /// The tenants, in the order in which they take processes.
    pub groups: Vec<Group>,
    /// Keys of a file for a newer version that this one does not know, each with its line.
    pub ignored: Vec<String>,
}

/// Which source is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SourceChoice {
    /// pghot, else DAMON, else perf where the PMU samples addresses.
    #[default]
    Auto,
    /// DAMON's sysfs.
    Damon,
    /// Hot-page tracking of the kernel series, supervised.
    Pghot,
    /// Addresses that perf samples; page faults where the PMU samples none.
    Perf,
    /// The kernel's mode 2, supervised.
    NumaBalancing,
}

/// What slows the daemon down.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Brakes {
    /// Bytes promoted per second at most.
    #[serde(deserialize_with = "rate")]
    pub bytes_per_second: u64,
    /// PSI of memory, some avg10 in percent, above which rates halve.
    #[serde(deserialize_with = "percent")]
    pub memory_pressure: f64,
    /// The same of the CPUs.
    #[serde(deserialize_with = "percent")]
    pub cpu_pressure: f64,
    /// Percent of the promoted bytes that were not used again, above which the rate halves.
    #[serde(deserialize_with = "whole_percent")]
    pub waste: u64,
}

impl Default for Brakes {
    /// The kernel moves some GB/s on one CPU: a tenth of it. A tenth of the time is what a program notices of stalls by memory.
    /// A CPU that is waited for all the time is busy, not overloaded. A page that is used again half the time still gains.
    fn default() -> Self {
        Self {
            bytes_per_second: 256 << 20,
            memory_pressure: 10.0,
            cpu_pressure: 100.0,
            waste: 50,
        }
    }
}

/// A tenant.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// Its name in metrics.
    pub name: String,
    /// Cgroups with all below them, by their paths.
    pub cgroups: Vec<glob::Pattern>,
    /// Units of systemd, by their whole names.
    pub units: Vec<glob::Pattern>,
    /// Processes by their names.
    pub processes: Vec<glob::Pattern>,
    /// Processes by the paths of their programs.
    pub executables: Vec<glob::Pattern>,
    /// Processes by the numbers of the users whose they are.
    pub users: Vec<u32>,
    /// Of all these not those with such names.
    pub exclude: Vec<glob::Pattern>,
    /// Nor those with less in memory, bytes.
    pub min_size: u64,
    /// A file of names of cgroups, which somebody else keeps up to date.
    pub cgroup_names_file: Option<PathBuf>,
    /// Of the top tier, kept for it; without it what the kernel keeps for its cgroups, if that is by tier.
    pub protect: Option<Amount>,
    /// Of the top tier, at most.
    pub limit: Option<Amount>,
    /// Share of what nobody protects, beside the other groups' weights.
    pub weight: u32,
}

/// An amount of the top tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "NumberOrText")]
pub enum Amount {
    /// Bytes.
    Bytes(u64),
    /// Percent of the tier, 0 to 100.
    Percent(u64),
}

impl Amount {
    /// In bytes, of a tier of so many.
    pub fn of(self, tier: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.min(tier),
            Self::Percent(percent) => (u128::from(tier) * u128::from(percent) / 100) as u64,
        }
    }
}

/// Where metrics are served.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum Listen {
    /// An address of this machine.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

/// Where the history is kept.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HistoryPlace {
    /// The newer part; the older one is beside it.
    #[serde(deserialize_with = "absolute")]
    pub file: PathBuf,
    /// What both parts take at most.
    #[serde(default = "history_bytes", deserialize_with = "bounded")]
    pub bytes: u64,
}

/// A day of 7 groups at a record a minute is half of it.
fn history_bytes() -> u64 {
    16 << 20
}

fn absolute<'de, D: serde::Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
    let path = PathBuf::deserialize(from)?;
    match path.is_absolute() && path.file_name().is_some() {
        true => Ok(path),
        false => Err(serde::de::Error::custom(format!(
            "{path:?} is no place; give an absolute path as \"/var/lib/memferry/history.jsonl\""
        ))),
    }
}

fn bounded<'de, D: serde::Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    // Below, a few groups have a record an hour; above, it was meant otherwise.
    bytes_in(from, (1 << 20)..=(1 << 40), "a size; give 1M to 1T")
}

/// A rate that pace takes; the least lets a 2 MiB chunk go each second.
fn rate<'de, D: serde::Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    let allowed = (2 << 20)..=memferry_core::pace::PACE_RATE_MAX;
    bytes_in(from, allowed, "a rate; give 2M to 4T bytes per second")
}

fn bytes_in<'de, D: serde::Deserializer<'de>>(
    from: D,
    allowed: RangeInclusive<u64>,
    what: &str,
) -> Result<u64, D::Error> {
    let bytes = match NumberOrText::deserialize(from)? {
        NumberOrText::Number(bytes) => Some(bytes),
        NumberOrText::Text(text) => size(&text),
    };
    bytes
        .filter(|bytes| allowed.contains(bytes))
        .ok_or_else(|| serde::de::Error::custom(format!("not {what}; {SIZE}")))
}

#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "a number of bytes, or text as \"8G\" or \"40%\""
)]
enum NumberOrText {
    Number(u64),
    Text(String),
}

const SIZE: &str = "a size is bytes, or text with K, M, G or T (powers of 1024): \"64M\", \"1.5G\"";

/// Bytes that a text says.
fn size(text: &str) -> Option<u64> {
    let text = text.trim().trim_end_matches("iB").trim_end_matches('B');
    let (number, shift) = match text.char_indices().last()? {
        (at, unit) if unit.is_ascii_alphabetic() => {
            let shift = "KMGT".find(unit.to_ascii_uppercase())?;
            (&text[..at], 10 * (shift as u32 + 1))
        }
        _ => (text, 0),
    };
    let number: f64 = number.trim().parse().ok()?;
    let bytes = number * f64::from(2_u32).powi(shift as i32);
    // Less than a byte is not meant as none.
    let allowed = 1.0..(1_u64 << 60) as f64;
    (bytes == 0.0 || allowed.contains(&bytes)).then_some(bytes as u64)
}

impl TryFrom<NumberOrText> for Amount {
    type Error = String;

    fn try_from(raw: NumberOrText) -> Result<Self, String> {
        let bytes = match raw {
            NumberOrText::Number(bytes) if bytes < 1 << 60 => bytes,
            NumberOrText::Number(_) => return Err(format!("too large; {SIZE}")),
            NumberOrText::Text(text) => match text.strip_suffix('%') {
                Some(percent) => {
                    let number = percent.trim().parse().map_err(|_| {
                        format!("{text:?} is no percentage; give \"0%\" to \"100%\"")
                    })?;
                    return whole(number).map(Self::Percent);
                }
                None => size(&text).ok_or_else(|| {
                    format!("{text:?} is neither a size nor a percentage; {SIZE}, a percentage is \"40%\"")
                })?,
            },
        };
        match bytes {
            1..=100 => Err(format!(
                "{bytes} is {bytes} bytes; for a percentage give \"{bytes}%\", else {SIZE}"
            )),
            _ => Ok(Self::Bytes(bytes)),
        }
    }
}

impl TryFrom<String> for Listen {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return match Path::new(path).is_absolute() {
                true => Ok(Self::Unix(path.into())),
                false => Err(format!("{path:?} is no absolute path")),
            };
        }
        match text.parse::<SocketAddr>() {
            Ok(address) => Ok(Self::Tcp(address)),
            Err(_) => Err(format!(
                "{text:?} is no place to listen at; give \"127.0.0.1:9464\" or \"unix:/run/memferry/metrics\""
            )),
        }
    }
}

/// Integers are percentages as well.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a number of percent, 0 to 100")]
enum Number {
    Whole(u32),
    Broken(f64),
}

fn percent<'de, D: serde::Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    let number = match Number::deserialize(from)? {
        Number::Whole(number) => f64::from(number),
        Number::Broken(number) => number,
    };
    match number {
        0.1..=100.0 => Ok(number),
        _ => Err(serde::de::Error::custom(format!(
            "{number} is not from 0.1 to 100"
        ))),
    }
}

fn whole_percent<'de, D: serde::Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    let number = match Number::deserialize(from)? {
        Number::Whole(number) => f64::from(number),
        Number::Broken(number) => number,
    };
    whole(number).map_err(serde::de::Error::custom)
}

/// A percentage of whole numbers.
fn whole(percent: f64) -> Result<u64, String> {
    let instead = match percent {
        0.0..=100.0 if percent.fract() == 0.0 => return Ok(percent as u64),
        0.0..1.0 => format!("; for {percent} of the whole give {:.0}", percent * 100.0),
        1.0..=100.0 => format!(", as {percent:.0}"),
        _ => String::new(),
    };
    Err(format!(
        "{percent} is no whole percent; give 0 to 100{instead}"
    ))
}

/// Percent of one CPU, as "3%".
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "Text")]
struct SourceCpu(u32);

/// A number alone is read, too, so that the error says what to write.
#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "a percentage of one CPU, as text: \"1%\" to \"100%\""
)]
enum Text {
    Text(String),
    Number(f64),
}

impl TryFrom<Text> for SourceCpu {
    type Error = String;

    fn try_from(raw: Text) -> Result<Self, String> {
        let text = match raw {
            Text::Text(text) => text,
            Text::Number(number) => number.to_string(),
        };
        let whole = |percent: &str| percent.trim().parse().ok();
        // Less than 1% is below what the kernel's clock ticks of 10 ms tell in five seconds.
        match text.strip_suffix('%').and_then(whole) {
            Some(percent @ 1..=100) => Ok(Self(percent)),
            _ => Err(format!(
                "{text:?} is no share of one CPU for the source; give whole percent, \"1%\" to \"100%\""
            )),
        }
    }
}

impl Default for SourceCpu {
    /// In the lab the daemon and DAMON together took 2.5% of a CPU of a billion instructions a second beside 2 GiB in use.
    fn default() -> Self {
        Self(3)
    }
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct File {
    act: bool,
    source: SourceChoice,
    source_cpu: SourceCpu,
    brakes: Brakes,
    metrics: Option<Metrics>,
    history: Option<HistoryPlace>,
    #[serde(rename = "group")]
    groups: Vec<Spanned<RawGroup>>,
    /// That of [`VERSION`] for which the file was written.
    version: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Metrics {
    listen: Spanned<Listen>,
    /// Whether other machines may read them.
    #[serde(default)]
    public: bool,
}

impl Metrics {
    fn check(self) -> Located<Listen> {
        match self.listen.get_ref() {
            Listen::Tcp(address) if !address.ip().is_loopback() && !self.public => {
                let what = format!(
                    "{address} is reached from the network, where anyone could read names and sizes of groups; \
                     write \"127.0.0.1:{port}\", or public = true below [metrics] if they may",
                    port = address.port()
                );
                Err((self.listen.span(), what))
            }
            _ => Ok(self.listen.into_inner()),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawGroup {
    name: Spanned<String>,
    #[serde(default)]
    cgroups: Vec<Spanned<String>>,
    #[serde(default)]
    units: Vec<Spanned<String>>,
    #[serde(default)]
    processes: Vec<Spanned<String>>,
    #[serde(default)]
    executables: Vec<Spanned<String>>,
    #[serde(default)]
    users: Vec<Spanned<User>>,
    #[serde(default)]
    exclude: Vec<Spanned<String>>,
    #[serde(default = "least_resident", deserialize_with = "min_size")]
    min_size: u64,
    cgroup_names_file: Option<Spanned<PathBuf>>,
    protect: Option<Amount>,
    limit: Option<Spanned<Amount>>,
    weight: Option<Spanned<u32>>,
}

fn least_resident() -> u64 {
    LEAST_RESIDENT
}

fn min_size<'de, D: serde::Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    let allowed = LEAST_RESIDENT..=1 << 50;
    bytes_in(from, allowed, "a size; give 16M to 1024T")
}

/// A user, by number or by name.
#[derive(Deserialize)]
#[serde(untagged, expecting = "the name or number of a user")]
enum User {
    Number(u32),
    Name(String),
}

impl User {
    /// Names are those of this machine, or of this container.
    fn number(&self) -> Result<u32, String> {
        let name = match self {
            Self::Number(number) => return Ok(*number),
            Self::Name(name) => name,
        };
        let known = fs::read_to_string("/etc/passwd").unwrap_or_default();
        let found = known.lines().find_map(|line| {
            let mut fields = line.split(':');
            (fields.next() == Some(name)).then(|| fields.nth(1)?.parse().ok())?
        });
        found.ok_or_else(|| {
            format!("/etc/passwd has no user {name:?}; `id -u {name}` says the number of one that is elsewhere: write that, without quotes")
        })
    }
}

/// The largest weight: what cgroup's cpu.weight takes as well.
const MOST_WEIGHT: u32 = 10_000;

type Located<T> = Result<T, (Range<usize>, String)>;

/// Reads a file, and where it has keys that are not known, which one for a newer version may.
fn read(text: &str) -> Result<(File, Vec<Range<usize>>), toml::de::Error> {
    let mut table = DeTable::parse(text)?;
    let mut unknown: Vec<(Range<usize>, toml::de::Error)> = Vec::new();
    loop {
        let error = match File::deserialize(Deserializer::from(table.clone())) {
            Ok(file) if file.version > VERSION || unknown.is_empty() => {
                return Ok((file, unknown.into_iter().map(|(span, _)| span).collect()));
            }
            Ok(_) => return Err(unknown.swap_remove(0).1),
            Err(error) => error,
        };
        let is_unknown = error.message().starts_with("unknown field");
        match error.span().filter(|_| is_unknown) {
            Some(span) if remove(table.get_mut(), &span) => unknown.push((span, error)),
            _ => return Err(error),
        }
    }
}

/// Removes the key that stands there, with its value; whether there is one.
fn remove(table: &mut DeTable<'_>, at: &Range<usize>) -> bool {
    let key = table.keys().find(|key| key.span() == *at);
    if let Some(key) = key.map(|key| key.get_ref().to_string()) {
        return table.remove(&*key).is_some();
    }
    table.iter_mut().any(|(_, value)| match value.get_mut() {
        DeValue::Table(table) => remove(table, at),
        DeValue::Array(all) => all.iter_mut().any(|of| match of.get_mut() {
            DeValue::Table(table) => remove(table, at),
            _ => false,
        }),
        _ => false,
    })
}

impl Config {
    /// Whether groups get parts of the top tier that the kernel would not give them, which moves by heat alone.
    pub fn divides(&self) -> bool {
        let is_none = |of: &Amount| matches!(of, Amount::Bytes(0) | Amount::Percent(0));
        let protects = |of: &Group| of.protect.is_some_and(|of| !is_none(&of));
        let mut weights = self.groups.iter().map(|of| of.weight);
        let first = weights.next();
        self.groups.iter().any(protects) || weights.any(|weight| Some(weight) != first)
    }

    /// Reads a file.
    ///
    /// # Errors
    /// The file cannot be read, or the first line that is wrong and what is allowed there.
    pub fn read(path: &Path) -> Result<Self, DaemonError> {
        let text = fs::read_to_string(path).map_err(|error| DaemonError::ConfigFile {
            path: path.to_owned(),
            error,
        })?;
        Self::parse(&text, path)
    }

    /// Reads the text of a file.
    ///
    /// # Errors
    /// The first line that is wrong and what is allowed there.
    pub fn parse(text: &str, path: &Path) -> Result<Self, DaemonError> {
        let line = |at: usize| {
            let before = text.as_bytes().get(..at).unwrap_or(text.as_bytes());
            before.iter().filter(|byte| **byte == b'\n').count() + 1
        };
        let located = read(text)
            .map_err(|error| (error.span().unwrap_or(0..0), error.message().to_owned()))
            .and_then(|(raw, unknown)| Ok((Self::check(raw)?, unknown)));
        match located {
            Ok((config, unknown)) => {
                let told = |span: Range<usize>| {
                    format!(
                        "line {}: `{}`",
                        line(span.start),
                        text.get(span).unwrap_or_default()
                    )
                };
                Ok(Self {
                    ignored: unknown.into_iter().map(told).collect(),
                    ..config
                })
            }
            Err((span, what)) => Err(DaemonError::Config {
                file: path.to_owned(),
                line: line(span.start),
                what: what.replace('\n', " "),
            }),
        }
    }

    fn check(raw: File) -> Located<Self> {
        let (mut names, mut percent) = (BTreeSet::new(), 0);
        let mut groups = Vec::new();
        for raw in raw.groups {
            let span = raw.span();
            let group = Group::check(raw.into_inner(), span.clone(), &mut names)?;
            if let Some(Amount::Percent(of)) = group.protect {
                percent += of;
            }
            if percent > 100 {
                let what = format!(
                    "the groups up to here protect {percent}% of the top tier; 100% is all of it"
                );
                return Err((span, what));
            }
            groups.push(group);
        }
        Ok(Self {
            act: raw.act,
            source: raw.source,
            source_cpu: raw.source_cpu.0,
            brakes: raw.brakes,
            metrics: raw.metrics.map(Metrics::check).transpose()?,
            history: raw.history,
            groups,
            ignored: Vec::new(),
        })
    }
}

fn read_each(
    texts: Vec<Spanned<String>>,
    read: fn(&str) -> Result<glob::Pattern, String>,
) -> Located<Vec<glob::Pattern>> {
    let read = |text: Spanned<String>| read(text.get_ref()).map_err(|what| (text.span(), what));
    texts.into_iter().map(read).collect()
}

impl Group {
    fn check(raw: RawGroup, span: Range<usize>, names: &mut BTreeSet<String>) -> Located<Self> {
        let name = raw.name.get_ref().clone();
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.is_empty() || !name.chars().all(is_plain) {
            let what = format!("{name:?} is no name; letters, digits, - _ and . are allowed");
            return Err((raw.name.span(), what));
        }
        if !names.insert(name.clone()) {
            return Err((
                raw.name.span(),
                format!("there is a group {name:?} already"),
            ));
        }
        let names_file = raw.cgroup_names_file;
        if let Some(path) = names_file
            .as_ref()
            .filter(|path| !path.get_ref().is_absolute())
        {
            let what = format!("{:?} is no absolute path", path.get_ref());
            return Err((path.span(), what));
        }
        let named = [&raw.cgroups, &raw.units, &raw.processes, &raw.executables];
        let is_empty = named.iter().all(|of| of.is_empty()) && raw.users.is_empty();
        if is_empty && names_file.is_none() {
            let what = format!(
                "the group {name:?} takes no process; give cgroups, units, processes, executables, users or cgroup_names_file"
            );
            return Err((span, what));
        }
        let weight = raw.weight.as_ref().map_or(100, |weight| *weight.get_ref());
        if let Some(of) = raw.weight.filter(|_| !(1..=MOST_WEIGHT).contains(&weight)) {
            return Err((
                of.span(),
                format!("{weight} is not from 1 to {MOST_WEIGHT}"),
            ));
        }
        if let Some(limit) = &raw.limit {
            let protect = raw.protect.unwrap_or(Amount::Bytes(0));
            let is_less = match (protect, *limit.get_ref()) {
                (Amount::Bytes(protect), Amount::Bytes(limit))
                | (Amount::Percent(protect), Amount::Percent(limit)) => limit < protect,
                _ => false,
            };
            if is_less {
                let what = "the limit is less than what is protected; it must be at least that";
                return Err((limit.span(), what.to_owned()));
            }
        }
        Ok(Self {
            name,
            cgroups: read_each(raw.cgroups, patterns::of_cgroups)?,
            units: read_each(raw.units, patterns::of_units)?,
            processes: read_each(raw.processes, patterns::of_processes)?,
            executables: read_each(raw.executables, patterns::of_executables)?,
            users: (raw.users.into_iter())
                .map(|user| user.get_ref().number().map_err(|what| (user.span(), what)))
                .collect::<Result<_, _>>()?,
            exclude: read_each(raw.exclude, patterns::of_processes)?,
            min_size: raw.min_size,
            cgroup_names_file: names_file.map(Spanned::into_inner),
            protect: raw.protect,
            limit: raw.limit.map(Spanned::into_inner),
            weight,
        })
    }

    /// The names in its file now, one a line. A file that is not there has none: whoever keeps it has not begun.
    ///
    /// # Errors
    /// The file cannot be read, or is none that may be.
    pub fn cgroup_names(&self) -> Result<BTreeSet<String>, DaemonError> {
        let Some(path) = &self.cgroup_names_file else {
            return Ok(BTreeSet::new());
        };
        match read_names(path) {
            Ok(text) => Ok(text.lines().map(str::to_owned).collect()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(BTreeSet::new()),
            Err(error) => Err(DaemonError::Names {
                path: path.clone(),
                error,
            }),
        }
    }
}

/// Some ten thousand names of cgroups.
const NAMES_BYTES: u64 = 1 << 20;

/// The text of a file that others write, who may not be trusted: reading it never waits, and takes a bounded time. Links may
/// lead to files of its own folder, as those of a Kubernetes ConfigMap do, and not to what only the daemon may read.
fn read_names(path: &Path) -> io::Result<String> {
    let refused = |why: String| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return refused("the path names no file".to_owned());
    };
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let folder = openat(CWD, folder, flags | OFlags::DIRECTORY, Mode::empty())?;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let opened = openat2(
        &folder,
        name,
        flags | OFlags::NONBLOCK | OFlags::NOCTTY,
        Mode::empty(),
        resolve,
    );
    let file = match opened {
        Ok(file) => fs::File::from(file),
        Err(rustix::io::Errno::XDEV) => {
            return refused("it is a link that leads out of its folder".to_owned());
        }
        Err(error) => return Err(error.into()),
    };
    if !file.metadata()?.is_file() {
        return refused("it is no regular file".to_owned());
    }
    let mut text = String::new();
    let read = file.take(NAMES_BYTES + 1).read_to_string(&mut text)?;
    match read as u64 > NAMES_BYTES {
        true => refused(format!("it has more than {NAMES_BYTES} bytes")),
        false => Ok(text),
    }
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;

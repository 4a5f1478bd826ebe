// SPDX-License-Identifier: MIT OR Apache-2.0
//! The text forms of sysfs and procfs: lists of ids, bracketed choices, sizes, distances, meminfo, cpuinfo.
//! Total functions from `&str`: no text makes them panic, and none makes them allocate more than a small
//! multiple of its length plus 256 KiB. No files here.

use super::error::ParseError;

/// The largest CPU or node id that [`id_list`] accepts. Kernels are built for at most 8192 CPUs (x86, `MAXSMP`)
/// and 1024 nodes (`NODES_SHIFT` 10); eight times the former bounds a list at 256 KiB whatever the text says.
pub const MAX_ID: u32 = 65_535;

/// Reads a list of ids as `cpu/online`, `cpulist` and `nodelist` write it: `0-3,8,10-11`, or nothing.
///
/// Returns the ids in ascending order, each once; ranges may overlap and come in any order.
///
/// # Errors
/// Anything else than decimal ids and ranges, a range that descends, an id above [`MAX_ID`].
pub fn id_list(text: &str) -> Result<Vec<u32>, ParseError> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let mut ranges = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        match (id(first), id(last)) {
            (Some(first), Some(last)) if first <= last => ranges.push((first, last)),
            _ => {
                let expected = format!("a list of ids up to {MAX_ID} such as 0-3,8,10-11");
                return Err(ParseError::new(expected, part));
            }
        }
    }
    ranges.sort_unstable();
    let mut ids: Vec<u32> = Vec::new();
    for (first, last) in ranges {
        let next = ids.last().map_or(first, |&highest| first.max(highest + 1));
        ids.extend(next..=last);
    }
    Ok(ids)
}

/// Writes ascending ids the way [`id_list`] reads them: `0-3,8,10-11`.
pub fn format_id_list(ids: &[u32]) -> String {
    let mut parts: Vec<String> = Vec::new();
    for run in ids.chunk_by(|a, b| a.checked_add(1) == Some(*b)) {
        match run {
            [first, .., last] => parts.push(format!("{first}-{last}")),
            _ => parts.extend(run.iter().map(u32::to_string)),
        }
    }
    parts.join(",")
}

fn id(digits: &str) -> Option<u32> {
    decimal(digits)
        .and_then(|n| u32::try_from(n).ok())
        .filter(|&n| n <= MAX_ID)
}

/// Digits only: `str::parse` alone would also take a leading plus.
fn decimal(digits: &str) -> Option<u64> {
    if digits.bytes().all(|b| b.is_ascii_digit()) {
        digits.parse().ok()
    } else {
        None
    }
}

/// Names of which one is active, as sysfs shows a choice: `always [madvise] never`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "json", derive(serde::Serialize, schemars::JsonSchema))]
pub struct Choice {
    /// All names, in the order of the file, without brackets.
    #[cfg_attr(feature = "json", serde(rename = "all"))]
    pub names: Vec<String>,
    /// The name that stood in brackets; one of `names`.
    pub active: String,
}

/// Reads a choice such as `kernel [mtcopy] dcbm`.
///
/// # Errors
/// No name or more than one in brackets, a bracket anywhere else, empty brackets.
pub fn choice(text: &str) -> Result<Choice, ParseError> {
    let wrong = || {
        ParseError::new(
            "names with exactly one in brackets such as always [madvise] never",
            text.trim(),
        )
    };
    let mut names = Vec::new();
    let mut active = None;
    for word in text.split_whitespace() {
        let bracketed = word.strip_prefix('[').and_then(|w| w.strip_suffix(']'));
        let name = bracketed.unwrap_or(word);
        if name.is_empty() || name.contains(['[', ']']) {
            return Err(wrong());
        }
        if bracketed.is_some() && active.replace(name.to_owned()).is_some() {
            return Err(wrong());
        }
        names.push(name.to_owned());
    }
    active
        .map(|active| Choice { names, active })
        .ok_or_else(wrong)
}

/// Reads a size as `cacheN/indexM/size` writes it, in bytes: `36864K`; also `32M`, `1G` and plain bytes.
///
/// # Errors
/// Anything else, or a size of 2^64 bytes and more.
pub fn size(text: &str) -> Result<u64, ParseError> {
    let text = text.trim();
    let units = [('K', 1 << 10), ('M', 1 << 20), ('G', 1 << 30)];
    let (digits, unit) = units
        .iter()
        .find_map(|&(letter, unit)| Some((text.strip_suffix(letter)?, unit)))
        .unwrap_or((text, 1_u64));
    decimal(digits)
        .and_then(|n| n.checked_mul(unit))
        .ok_or_else(|| ParseError::new("a size in bytes such as 36864K", text))
}

/// Reads one non-negative decimal number.
///
/// # Errors
/// Anything else, or a number of 2^64 and more.
pub fn number(text: &str) -> Result<u64, ParseError> {
    let text = text.trim();
    decimal(text).ok_or_else(|| ParseError::new("a non-negative number", text))
}

/// Reads a switch: `true` or `1`, `false` or `0`.
///
/// # Errors
/// Anything else.
pub fn switch(text: &str) -> Result<bool, ParseError> {
    match text.trim() {
        "true" | "1" => Ok(true),
        "false" | "0" => Ok(false),
        other => Err(ParseError::new("true, false, 1 or 0", other)),
    }
}

/// Reads `nodeN/distance`: one relative distance for each online node, ascending by node id; 10 is local.
///
/// # Errors
/// Anything else than decimal numbers below 2^32 between white space, or none at all.
pub fn distances(text: &str) -> Result<Vec<u32>, ParseError> {
    let expected = "distances such as 10 21";
    let mut values = Vec::new();
    for word in text.split_whitespace() {
        let value = decimal(word).and_then(|n| u32::try_from(n).ok());
        values.push(value.ok_or_else(|| ParseError::new(expected, word))?);
    }
    if values.is_empty() {
        Err(ParseError::new(expected, text.trim()))
    } else {
        Ok(values)
    }
}

/// What [`meminfo`] takes from `/proc/meminfo` or `nodeN/meminfo`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemInfo {
    /// `MemTotal` in bytes.
    pub total_bytes: u64,
    /// `MemFree` in bytes.
    pub free_bytes: u64,
    /// `MemAvailable` in bytes; a node's file has none.
    pub available_bytes: Option<u64>,
}

/// Reads `/proc/meminfo` (`MemTotal: 16 kB`), or with `node` that node's file (`Node 0 MemTotal: 16 kB`).
///
/// Lines about other things are left unread, so that a newer kernel's lines do no harm. Of a line that comes
/// twice the last counts.
///
/// # Errors
/// No `MemTotal` or `MemFree`, or a wanted line that does not end in a number of kB or is about another node.
pub fn meminfo(text: &str, node: Option<u32>) -> Result<MemInfo, ParseError> {
    let prefix = node.map(|id| format!("Node {id} ")).unwrap_or_default();
    let (mut total, mut free, mut available) = (None, None, None);
    for (index, line) in text.lines().enumerate() {
        let Some((head, value)) = line.split_once(':') else {
            continue;
        };
        let (slot, name) = match head.split_whitespace().last() {
            Some("MemTotal") => (&mut total, "MemTotal"),
            Some("MemFree") => (&mut free, "MemFree"),
            Some("MemAvailable") => (&mut available, "MemAvailable"),
            _ => continue,
        };
        let digits = value
            .trim()
            .strip_suffix("kB")
            .filter(|_| head.strip_prefix(&*prefix) == Some(name));
        let bytes = digits
            .and_then(|d| decimal(d.trim_end()))
            .and_then(|kib| kib.checked_mul(1024));
        let wrong =
            || ParseError::new(format!("{prefix}{name}: NUMBER kB"), line).at_line(index + 1);
        *slot = Some(bytes.ok_or_else(wrong)?);
    }
    let missing = |name| ParseError::new(format!("a line {prefix}{name}: NUMBER kB"), text.trim());
    Ok(MemInfo {
        total_bytes: total.ok_or_else(|| missing("MemTotal"))?,
        free_bytes: free.ok_or_else(|| missing("MemFree"))?,
        available_bytes: available,
    })
}

/// What [`cpuinfo`] takes from `/proc/cpuinfo`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CpuInfo {
    /// `model name`, or on arm64, which writes none, implementer and part such as `implementer 0x41 part 0xd03`.
    pub model: Option<String>,
    /// Whether the `flags` hold `hypervisor`; `None` where there are no flags to tell (arm64).
    pub hypervisor: Option<bool>,
}

/// Reads the first CPU's block of `/proc/cpuinfo`. No text is an error: architectures differ in what they write.
pub fn cpuinfo(text: &str) -> CpuInfo {
    let mut info = CpuInfo::default();
    let (mut implementer, mut part) = (None, None);
    for line in text
        .lines()
        .skip_while(|l| l.trim().is_empty())
        .take_while(|l| !l.trim().is_empty())
    {
        let Some((key, value)) = line.split_once(':') else {
            continue;
        };
        match key.trim() {
            "model name" if !value.trim().is_empty() => info.model = Some(value.trim().to_owned()),
            "flags" => {
                info.hypervisor = Some(value.split_whitespace().any(|flag| flag == "hypervisor"))
            }
            "CPU implementer" => implementer = Some(value.trim()),
            "CPU part" => part = Some(value.trim()),
            _ => {}
        }
    }
    if let (None, Some(implementer), Some(part)) = (&info.model, implementer, part) {
        info.model = Some(format!("implementer {implementer} part {part}"));
    }
    info
}

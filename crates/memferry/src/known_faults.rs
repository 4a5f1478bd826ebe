// SPDX-License-Identifier: MIT OR Apache-2.0
//! Faults of UFFDIO_MOVE that Linux mended later, recognised by the kernel's release. docs/limits.md lists them for users.
//!
//! A release does not tell what a distribution mended besides, so a kernel counts as faulty until its number says otherwise.

/// Major, minor and patch; a release candidate is older than patch 0.
type Release = (u32, u32, i32);

/// One fault.
#[derive(Debug)]
pub(crate) struct KnownFault {
    /// What it does to a process that moves pages.
    pub what: &'static str,
    /// The first sound release of each stable series that was mended, ascending. The last one is the first of mainline.
    mended: &'static [Release],
}

/// By the age of their mending. Those of 6.12 and 6.10.10 are read in Debian's changelog of linux 6.12.117, the others in the mails
/// in which the stable releases were reviewed or announced.
const FAULTS: [KnownFault; 6] = [
    // c0205eaf3af9: src_folio changed while it may be pinned (huge pages).
    KnownFault {
        what: "a huge page that is pinned while it moves can be corrupted",
        mended: &[(6, 8, 8), (6, 9, 0)],
    },
    // 71c186efc1b2, 4828d207dc51: unstable PMDs in mfill_atomic() and move_pages().
    KnownFault {
        what: "it can take a huge page for a page table and crash",
        mended: &[(6, 10, 10), (6, 11, 0)],
    },
    // 37b338eed105 and before it: split_folio() with references of the other movers.
    KnownFault {
        what: "threads that move the same large folio can wait for each other for ever",
        mended: &[(6, 12, 19), (6, 13, 7), (6, 14, 0)],
    },
    // c50f8e6053b0: the folio of a moved swap entry keeps its old index and anon_vma.
    KnownFault {
        what: "moving a page that is being swapped out can crash the kernel",
        mended: &[(6, 12, 20), (6, 13, 8), (6, 14, 0)],
    },
    // 0ea148a79919: the swap entry is reused between the look at the swap cache and the move.
    KnownFault {
        what: "moving a page that is being swapped out can lose its contents",
        mended: &[(6, 12, 37), (6, 15, 5), (6, 16, 0)],
    },
    // aba6faec0103: a PMD migration entry is taken for a huge page.
    KnownFault {
        what: "moving a huge page that the kernel migrates can crash the kernel",
        mended: &[(6, 12, 43), (6, 15, 11), (6, 16, 2), (6, 17, 0)],
    },
];

/// 4165b7d1c45c: the wait for a PMD migration entry is given a copy of the entry on the stack, and takes for the lock of the
/// page table whatever belongs to the stack's page. Mainline has its mending since between 7.2-rc4 and 7.2-rc5, and the queue
/// of 6.18 had it in August 2026; which stable releases came of that is not known, so none counts as mended.
///
/// It is not refused: nearly every kernel has it, it needs the kernel to migrate a huge page in the very moment of its move,
/// and base pages never meet it.
const WAITS_ON_A_COPY: KnownFault = KnownFault {
    what: "if the kernel migrates a huge page of the range (compaction, NUMA balancing, demotion) in the moment that it is \
           moved, the kernel can crash",
    mended: &[(7, 2, 0)],
};

impl KnownFault {
    fn is_in(&self, release: Release) -> bool {
        let series = |of: Release| (of.0, of.1);
        let own = self.mended.iter().find(|m| series(**m) == series(release));
        own.or(self.mended.last()).is_some_and(|m| release < *m)
    }
}

/// The faults of a release such as `6.12.36-amd64`; none of one that cannot be read.
pub(crate) fn of(release: &str) -> Vec<&'static KnownFault> {
    let Some(release) = parse(release) else {
        return Vec::new();
    };
    FAULTS.iter().filter(|f| f.is_in(release)).collect()
}

/// Why a kernel of that release is refused, and what to try; `None` if nothing is known against it.
pub(crate) fn refusal(release: &str) -> Option<String> {
    let faults = of(release);
    let worst = faults.last()?;
    let others = match faults.len() {
        1 => String::new(),
        more => format!(" ({} known faults in all, docs/limits.md)", more),
    };
    Some(format!(
        "Linux {release} has known faults of UFFDIO_MOVE: {}{others}; take Linux 6.12.43, 6.16.2 or a later one, or \
         allow a faulty kernel if its distributor has mended them",
        worst.what
    ))
}

/// What can befall huge pages on a kernel of that release that is not refused for it; `None` if nothing is known, or the release
/// cannot be read.
pub(crate) fn huge_page_risk(release: &str) -> Option<&'static str> {
    let fault = &WAITS_ON_A_COPY;
    parse(release)
        .is_some_and(|release| fault.is_in(release))
        .then_some(fault.what)
}

/// Whether UFFDIO_MOVE flushes the TLB for each base page; of a release that cannot be read it does not.
pub(crate) fn flushes_each_page(release: &str) -> bool {
    parse(release).is_some_and(|release| release < (6, 18, 0))
}

/// Whether /proc/PID/maps answers for single mappings.
#[cfg(test)]
pub(crate) fn answers_for_mappings(release: &str) -> bool {
    parse(release).is_some_and(|release| release >= (6, 11, 0))
}

fn parse(release: &str) -> Option<Release> {
    let numbers = release
        .split(|c: char| !c.is_ascii_digit() && c != '.')
        .next()?;
    let mut numbers = numbers.split('.').map(str::parse::<u32>);
    let (major, minor) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    let patch = numbers.next().and_then(Result::ok);
    let is_candidate = patch.unwrap_or(0) == 0 && release.contains("-rc");
    let patch = i32::try_from(patch.unwrap_or(0)).ok()?;
    Some((major, minor, if is_candidate { -1 } else { patch }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_read_as_distributions_write_them() {
        for (text, release) in [
            ("6.12.36", (6, 12, 36)),
            ("6.12.43+deb13-amd64", (6, 12, 43)),
            ("6.8.0-45-generic", (6, 8, 0)),
            ("6.16.0-rc4", (6, 16, -1)),
            ("6.17-rc1", (6, 17, -1)),
            ("6.18.44-fc-v669", (6, 18, 44)),
            ("7.0", (7, 0, 0)),
        ] {
            assert_eq!(parse(text), Some(release), "{text}");
        }
        for other in ["", "linux", "6", "6.", "x.12.3"] {
            assert_eq!(parse(other), None, "{other}");
        }
    }

    #[test]
    fn each_series_is_sound_from_its_own_release_on() {
        let count = |release| of(release).len();
        for (release, faults) in [
            ("6.8.7", 6),
            ("6.8.8", 5),
            ("6.10.9", 5),
            ("6.10.10", 4),
            ("6.11.0", 4),
            ("6.12.18", 4),
            ("6.12.19", 3),
            ("6.12.36", 2),
            ("6.12.37", 1),
            ("6.12.42", 1),
            ("6.12.43", 0),
            ("6.12.117", 0),
            ("6.13.8", 2),
            ("6.14.11", 2),
            ("6.15.4", 2),
            ("6.15.5", 1),
            ("6.15.10", 1),
            ("6.15.11", 0),
            ("6.16.1", 1),
            ("6.16.2", 0),
            ("6.17.0-rc1", 1),
            ("6.17.0", 0),
            ("6.18.44", 0),
            ("7.1.0", 0),
        ] {
            assert_eq!(count(release), faults, "{release}");
        }
    }

    #[test]
    fn what_huge_pages_risk_is_told_and_refuses_nothing() {
        for release in ["6.12.117-amd64", "6.18.44", "7.1.9", "7.2.0-rc4"] {
            assert!(huge_page_risk(release).is_some(), "{release}");
            assert_eq!(refusal(release), None, "{release}");
        }
        for release in ["7.2.0", "7.3.4-amd64", "linux"] {
            assert_eq!(huge_page_risk(release), None, "{release}");
        }
    }

    #[test]
    fn a_refusal_names_the_release_and_what_to_do() {
        let text = refusal("6.12.36-amd64").unwrap();
        for part in ["6.12.36-amd64", "6.12.43", "allow a faulty kernel"] {
            assert!(text.contains(part), "{text}");
        }
        assert_eq!(refusal("6.18.1"), None);
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether KVM can run our guests here. That /dev/kvm opens says little: on some virtual machines
//! guests then fail in their first instructions. So one kernel is booted, and the answer kept
//! until the host, QEMU or the kernel's release is another.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use fs_err::{self as fs, OpenOptions};

use crate::build::Image;
use crate::cache::{Key, write_if_changed};
use crate::command::first_line;
use crate::guest::{self, Programs};
use crate::lab::Lab;
use crate::machine::Machine;
use crate::qemu::{Accelerator, Qemu};
use crate::session::{Limits, Session};
use crate::ui::step;

/// How long a guest may take to its first process with KVM: it needs one or two seconds.
const BOOT: Duration = Duration::from_secs(20);

/// KVM if it works, else emulation; of a timed machine its own.
pub fn accelerator(lab: &Lab, image: &Image, programs: &Programs) -> Result<Accelerator> {
    let machine = &lab.machine;
    if machine.timed.is_some() {
        return Ok(Accelerator::Timed);
    }
    let device = OpenOptions::new().read(true).write(true).open("/dev/kvm");
    if machine.qemu.kvm.is_empty() || device.is_err() {
        return Ok(Accelerator::Tcg);
    }
    let mut key = Key::default();
    key.add(first_line(Command::new(&machine.qemu.program).arg("--version"))?.as_bytes());
    // Not the image's key: a change of the series changes nothing about it.
    key.add(image.release.as_bytes());
    key.add(machine.name.as_bytes());
    key.add(&fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default());
    let kept = lab.cache.root.join("probes").join(key.name());
    let verdict = if let Ok(known) = fs::read_to_string(&kept) {
        known
    } else {
        step!("trying whether KVM works");
        let files = guest::file_system(&lab.root, image, &programs.bare(), &[])?;
        let works = boots(machine, image, &files)?;
        if !works {
            step!("KVM cannot run this kernel; emulating");
        }
        let verdict = if works { "kvm\n" } else { "tcg\n" };
        write_if_changed(&kept, verdict.as_bytes())?;
        verdict.to_owned()
    };
    Ok(match verdict.trim() {
        "kvm" => Accelerator::Kvm,
        _ => Accelerator::Tcg,
    })
}

/// Whether a guest runs its first process with KVM.
fn boots(machine: &Machine, image: &Image, files: &[u8]) -> Result<bool> {
    let Ok(qemu) = Qemu::start(machine, Accelerator::Kvm, None, &image.kernel(), files, "") else {
        return Ok(false);
    };
    let limits = Limits {
        boot: BOOT,
        tests: BTreeMap::new(),
        between: BOOT,
    };
    // It runs no test, so it sends no files.
    let mut log = io::sink();
    let session = Session::new(&limits, &mut log, Path::new(""), false);
    Ok(session.follow(qemu)?.reached.is_some())
}

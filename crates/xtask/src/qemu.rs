// SPDX-License-Identifier: MIT OR Apache-2.0
//! A running machine: starts QEMU, hands out the lines of its console and of its wire, and ends it.
//! What the lines mean is for `session`.

use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use fs_err as fs;
use tempfile::TempDir;

use crate::command;
use crate::machine::Machine;
use crate::model::{Memory, Timing};

/// How long QEMU may take to start, on a machine busy with other things.
const START: Duration = Duration::from_secs(60);

/// Who computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accelerator {
    Kvm,
    Tcg,
    /// Emulation by one thread, with a clock that counts instructions.
    Counting,
    /// Emulation with a clock that follows modelled time.
    Timed,
}

impl Accelerator {
    /// How much longer tests may take.
    pub fn slowness(self) -> u64 {
        match self {
            Self::Kvm | Self::Tcg => 1,
            // One thread emulates all CPUs.
            Self::Counting => 3,
            // The model looks at every access.
            Self::Timed => 4,
        }
    }
}

/// A line from the machine, without its end.
#[derive(Debug)]
pub enum Line {
    Console(String),
    Wire(String),
}

/// What came of waiting for a line.
pub enum Next {
    Line(Line),
    Nothing,
    /// The machine is off and everything it said was handed out.
    Off,
}

/// A running machine; it ends when this is dropped.
pub struct Qemu {
    child: Child,
    lines: Receiver<Line>,
    /// Holds the file system and the wire's socket.
    _folder: TempDir,
}

impl Qemu {
    /// Boots `kernel` with the `file_system` and these words on its command line, and no one at the console. A timed
    /// machine has a `timing`.
    pub fn start(
        machine: &Machine,
        accelerator: Accelerator,
        timing: Option<&Timing>,
        kernel: &Path,
        file_system: &[u8],
        append: &str,
    ) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let socket = folder.path().join("wire");
        let listener = UnixListener::bind(&socket).context("make a socket for QEMU")?;
        let append = format!("lab.wire={} {append}", machine.guest.wire);
        let (mut command, memory) = command(
            machine,
            accelerator,
            timing,
            kernel,
            file_system,
            folder.path(),
            &append,
        )?;
        let mut child = command
            .args(["-serial", "stdio", "-serial", "chardev:wire", "-chardev"])
            .arg(format!("socket,id=wire,path={}", socket.display()))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("run {}", machine.qemu.program))?;
        drop(memory);

        let (sender, lines) = mpsc::channel();
        let console = child.stdout.take().context("QEMU's output")?;
        let errors = child.stderr.take().context("QEMU's errors")?;
        forward(console, Line::Console, sender.clone());
        forward(
            errors,
            |line| Line::Console(format!("qemu: {line}")),
            sender.clone(),
        );
        let mut qemu = Self {
            child,
            lines,
            _folder: folder,
        };

        listener.set_nonblocking(true)?;
        let began = Instant::now();
        loop {
            match listener.accept() {
                Ok((stream, _)) => {
                    stream.set_nonblocking(false)?;
                    forward(stream, Line::Wire, sender);
                    return Ok(qemu);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error).context("wait for QEMU"),
            }
            if let Some(status) = qemu.child.try_wait()? {
                drop(sender);
                let said: Vec<_> = qemu.lines.iter().map(|line| format!("{line:?}")).collect();
                bail!(
                    "{} ended at once with {status}: {}",
                    machine.qemu.program,
                    said.join("; ")
                );
            }
            if began.elapsed() > START {
                bail!(
                    "{} does not start within {} s",
                    machine.qemu.program,
                    START.as_secs()
                );
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits for a line, for a while.
    pub fn next(&self, wait: Duration) -> Next {
        match self.lines.recv_timeout(wait) {
            Ok(line) => Next::Line(line),
            Err(RecvTimeoutError::Timeout) => Next::Nothing,
            Err(RecvTimeoutError::Disconnected) => Next::Off,
        }
    }

    /// Switches the machine off, as by its mains plug.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Qemu {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Boots with the user at the console, until the machine goes off.
pub fn interactive(
    machine: &Machine,
    accelerator: Accelerator,
    timing: Option<&Timing>,
    kernel: &Path,
    file_system: &[u8],
) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (mut command, _memory) = command(
        machine,
        accelerator,
        timing,
        kernel,
        file_system,
        folder.path(),
        "",
    )?;
    command
        .args(["-serial", "mon:stdio", "-serial", "null"])
        .status()
        .with_context(|| format!("run {}", machine.qemu.program))?;
    Ok(())
}

/// QEMU's command line, without its serial ports, and the memory of a timed machine, to be kept until QEMU runs.
fn command(
    machine: &Machine,
    accelerator: Accelerator,
    timing: Option<&Timing>,
    kernel: &Path,
    file_system: &[u8],
    folder: &Path,
    append: &str,
) -> Result<(Command, Option<Memory>)> {
    let packed = folder.join("initramfs.cpio");
    fs::write(&packed, file_system)?;
    // An oops ends the machine: a test after it would prove nothing. A warning does not: it is
    // found on the console.
    let emulated = match accelerator {
        Accelerator::Tcg => machine.qemu.tcg_append.as_str(),
        Accelerator::Timed => machine.qemu.timed_append.as_str(),
        Accelerator::Kvm | Accelerator::Counting => "",
    };
    let append = format!(
        "console={} panic=-1 oops=panic loglevel=7 printk.devkmsg=on {} {emulated} {append}",
        machine.guest.console, machine.guest.append
    );
    let (mut command, memory) = match (&machine.timed, timing) {
        (Some(timed), Some(timing)) => {
            let memory = Memory::new(timed)?;
            (timing.command(timed, &memory, folder)?, Some(memory))
        }
        _ => (Command::new(&machine.qemu.program), None),
    };
    if let Some(source) = &machine.qemu.device_tree {
        let blob = folder.join("machine.dtb");
        command::logged(
            Command::new("dtc")
                .args(["-I", "dts", "-O", "dtb", "-o"])
                .arg(&blob)
                .arg(source),
            &folder.join("dtc.log"),
            "compile the device tree",
        )?;
        command.arg("-dtb").arg(blob);
    }
    command
        .args(&machine.qemu.args)
        .args(match accelerator {
            Accelerator::Kvm => &machine.qemu.kvm,
            Accelerator::Tcg => &machine.qemu.tcg,
            Accelerator::Counting => &machine.qemu.counting,
            Accelerator::Timed => &machine.qemu.timed,
        })
        .args(["-display", "none", "-no-reboot", "-kernel"])
        .arg(kernel)
        .arg("-initrd")
        .arg(packed)
        .args(["-append", &append]);
    Ok((command, memory))
}

/// Sends the lines of `from` until it ends.
fn forward(from: impl Read + Send + 'static, line: fn(String) -> Line, to: Sender<Line>) {
    thread::spawn(move || {
        let mut from = BufReader::new(from);
        let mut bytes = Vec::new();
        while from
            .read_until(b'\n', &mut bytes)
            .is_ok_and(|count| count > 0)
        {
            let text = String::from_utf8_lossy(&bytes);
            if to
                .send(line(text.trim_end_matches(['\r', '\n']).to_owned()))
                .is_err()
            {
                break;
            }
            bytes.clear();
        }
    });
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! `memferry top`: what the daemon does, as its status file says it: once, or as a page that is drawn anew each second.

use std::io::{self, IsTerminal, Read, Write};
use std::path::Path;

use memferry_daemon::Status;
use memferryd::files::StatusFile;
use memferryd::page::{self, View};
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetwinsize, tcsetattr,
};

use crate::cli::TopArgs;
use crate::failure::{Failure, OrFail};
use crate::results::Results;

/// Rows and columns where the terminal does not say.
const SIZE: (usize, usize) = (24, 80);

/// Shows it.
pub fn run(args: &TopArgs) -> Result<(), Failure> {
    let root = &args.shown.root;
    let is_once = args.once || args.shown.json.json.is_some();
    if is_once || !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        let results = Results::open(&args.shown.json, &[])?;
        let status = read(root)?;
        return results.tell(root, &StatusFile { status: &status }, || {
            page::draw(&status, None, &View::default())
        });
    }
    // Before the screen is changed.
    let mut status = read(root)?;
    let screen = Screen::new().map_err(Failure::stdout)?;
    let (mut before, mut is_paused) = (None, false);
    let mut view = View {
        marked: Some(0),
        ..View::default()
    };
    loop {
        screen
            .draw(&page::draw(&status, before.as_ref(), &view))
            .map_err(Failure::stdout)?;
        let row = view.marked.unwrap_or(0);
        match screen.key() {
            Some(b'q' | 3) => return Ok(()),
            Some(b'p') => is_paused = !is_paused,
            Some(b's') => view.sort += 1,
            Some(b'k') => view.marked = Some(row.saturating_sub(1)),
            Some(b'j') => view.marked = Some((row + 1).min(status.groups.len().saturating_sub(1))),
            Some(b'\r' | b'\n') => view.is_open = !view.is_open,
            Some(_) => {}
            None if is_paused => {}
            None => before = Some(std::mem::replace(&mut status, read(root)?)),
        }
    }
}

fn read(root: &Path) -> Result<Status, Failure> {
    let status = Status::read(root).or_fail(
        "there is nothing to show",
        "start it: systemctl start memferry, or `memferryd`",
    )?;
    // Of a daemon below another root, too, the number is one of this machine's.
    match status.is_of_a_process(Path::new("/")) {
        true => Ok(status),
        false => Err(Failure::new(
            format!("memferryd, pid {}, has ended", status.pid),
            "it was killed, so the settings are as it left them",
            "start it again, or `memferryd --once --dry-run` to set them back alone",
        )),
    }
}

/// The terminal, as it was when this goes.
struct Screen {
    before: Termios,
}

impl Screen {
    fn new() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut now = before.clone();
        // Keys come one by one; without one a read ends after a second, which is the clock of the page.
        now.local_modes -= LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG;
        now.special_codes[SpecialCodeIndex::VMIN] = 0;
        now.special_codes[SpecialCodeIndex::VTIME] = 10;
        tcsetattr(io::stdin(), OptionalActions::Now, &now)?;
        // The other screen, without a cursor.
        write!(io::stdout(), "\x1b[?1049h\x1b[?25l")?;
        Ok(Self { before })
    }

    fn draw(&self, page: &str) -> io::Result<()> {
        let size = tcgetwinsize(io::stdout())
            .ok()
            .filter(|size| size.ws_row > 0 && size.ws_col > 0);
        let (rows, columns) = size.map_or(SIZE, |size| (size.ws_row.into(), size.ws_col.into()));
        let mut out = String::from("\x1b[H");
        for line in page.lines().take(rows) {
            out.extend(line.chars().take(columns));
            out += "\x1b[K\r\n";
        }
        // No newline behind the last row: it would scroll.
        out.truncate(out.len() - 2);
        write!(io::stdout(), "{out}\x1b[J")?;
        io::stdout().flush()
    }

    /// The next key; an arrow is `j` or `k`.
    fn key(&self) -> Option<u8> {
        let next = || {
            let mut key = [0];
            let read = io::stdin().lock().read(&mut key);
            (read.ok()? == 1).then_some(key[0])
        };
        match next()? {
            b'\x1b' => match (next(), next()) {
                (Some(b'['), Some(b'A')) => Some(b'k'),
                (Some(b'['), Some(b'B')) => Some(b'j'),
                _ => Some(b'\x1b'),
            },
            key => Some(key),
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // Nobody is left to tell.
        let _ = write!(io::stdout(), "\x1b[?25h\x1b[?1049l");
        let _ = io::stdout().flush();
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! `memferry generate`: man pages and shell completions, from the definitions in `cli`.

use std::fs;
use std::io;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::{Cli, GenerateArgs, Generated};
use crate::failure::Failure;

/// Writes the files into the folder that was named.
pub fn run(args: &GenerateArgs) -> Result<(), Failure> {
    let write = || -> io::Result<()> {
        fs::create_dir_all(&args.out)?;
        match args.what {
            Generated::Man => clap_mangen::generate_to(Cli::command(), &args.out),
            Generated::Completions => [Shell::Bash, Shell::Zsh, Shell::Fish]
                .into_iter()
                .try_for_each(|shell| {
                    clap_complete::generate_to(shell, &mut Cli::command(), "memferry", &args.out)
                        .map(drop)
                }),
        }
    };
    write().map_err(|error| {
        Failure::new(
            format!("cannot write into {}", args.out.display()),
            error,
            "name a folder that you may write to, with space left",
        )
    })
}

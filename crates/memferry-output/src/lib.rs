// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a command tells, of all programs alike: results as text and as JSON files, failures, and exit statuses.
//!
//! A program reads its options ([`args`]), calls a library, and gives what that returns to [`results`]: as text, with amounts as
//! [`units`] writes them, and as a [`mod@file`] with its [`envelope`] and the [`host`]. A [`failure`] says what, why and what to try;
//! [`exit`] alone turns it into a status. [`mod@printable`] makes names of others harmless. [`signals`] end a program without leaving half a file. What is measured, moved or
//! drawn is not here.

pub mod args;
pub mod envelope;
pub mod exit;
pub mod failure;
pub mod file;
pub mod host;
pub mod printable;
pub mod results;
pub mod signals;
pub mod units;

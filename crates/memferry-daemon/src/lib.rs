// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tiering of other processes by itself, on stock kernels: what `memferryd` does.
//!
//! The way is [`source`] (what is hot) -> [`tiering`] (what goes where, by the core's policy and the [`tenants`]' shares) ->
//! [`hands`] (the library's moves), once per round of [`daemon`]. [`knobs`] holds every setting that is changed, [`status`] says
//! what is done, [`history`] what was. All files are read below a root folder, which tests replace.

pub mod config;
pub mod daemon;
mod error;
pub mod explain;
pub mod hands;
pub mod history;
pub mod knobs;
pub mod machine;
pub mod members;
pub mod metrics;
pub mod owner;
pub mod patterns;
mod rights;
pub mod shared;
pub mod source;
pub mod status;
pub mod tenants;
pub mod tiered_limits;
pub mod tiering;

pub use config::Config;
pub use daemon::{Options, run};
pub use error::DaemonError;
pub use status::Status;

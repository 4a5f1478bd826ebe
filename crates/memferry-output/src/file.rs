// SPDX-License-Identifier: MIT OR Apache-2.0
//! The file that `--json` writes: what a command tells, in the envelope that files of benchmarks have, too.
//!
//! Files of benchmarks are read again, and `memferry_bench::schema` describes them.

use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;

use crate::envelope::Envelope;
use crate::host::{self, Host};

/// What a command tells.
pub trait Content: Serialize {
    /// The name of its fields, and their version.
    const SCHEMA: &'static str;

    /// Whether it is all that was asked for.
    fn is_complete(&self) -> bool {
        true
    }
}

impl<T: Content> Content for &T {
    const SCHEMA: &'static str = T::SCHEMA;

    fn is_complete(&self) -> bool {
        T::is_complete(self)
    }
}

/// A file; its description in the schema is that of the content.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "{T}", description = "")]
pub struct File<T: Content> {
    #[schemars(extend("const" = T::SCHEMA))]
    schema: &'static str,
    #[serde(flatten)]
    envelope: Envelope,
    /// The machine; null where its files do not tell.
    host: Option<Host>,
    #[serde(flatten)]
    content: T,
}

impl<T: Content> File<T> {
    /// Of what the machine below `root` has told just now.
    pub fn now(root: &Path, content: T) -> Self {
        let topology = host::read_from(root).ok();
        Self {
            schema: T::SCHEMA,
            envelope: Envelope {
                complete: content.is_complete(),
                ..Envelope::now(root)
            },
            host: topology.map(|of| host::describe(&of, None)),
            content,
        }
    }
}

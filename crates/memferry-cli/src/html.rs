// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pages from templates: one environment for all, in which every text is escaped, whatever a template's name ends in.
//! The frame, the styles and the charts are those of every page.

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, Error};
use serde::Serialize;

/// What every page begins with.
#[derive(Serialize)]
pub struct Head {
    /// The command that made it.
    pub command: &'static str,
    /// The version of memferry.
    pub version: &'static str,
    /// What was found, in one sentence.
    pub headline: String,
    /// Where.
    pub machine: String,
    pub facts: Vec<Fact>,
}

/// One large figure with the words that belong to it.
#[derive(Debug, PartialEq, Serialize)]
pub struct Fact {
    /// `20.2 GB/s`.
    pub value: String,
    /// What it is.
    pub label: String,
}

/// Fills in a page's template, which extends `frame.html`.
pub fn render(template: &'static str, page: &impl Serialize) -> Result<String, Error> {
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    environment.set_syntax(
        SyntaxConfig::builder()
            .trim_blocks(true)
            .lstrip_blocks(true)
            .build()?,
    );
    for (name, text) in [
        ("frame.html", include_str!("frame.html")),
        ("page.css", include_str!("page.css")),
        ("chart.html", include_str!("chart/chart.html")),
        ("page.html", template),
    ] {
        environment.add_template(name, text)?;
    }
    environment.get_template("page.html")?.render(Serde(page))
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pages from templates: one environment for all, in which every text is escaped, whatever a template's name ends in.
//! Styles and charts are the report's, and there for every page.

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, Error};
use serde::Serialize;

/// Fills in `page.html` of these templates (name and text).
pub fn render(
    templates: &[(&'static str, &'static str)],
    page: &impl Serialize,
) -> Result<String, Error> {
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    environment.set_syntax(
        SyntaxConfig::builder()
            .trim_blocks(true)
            .lstrip_blocks(true)
            .build()?,
    );
    environment.add_template("page.css", include_str!("report/page.css"))?;
    environment.add_template("chart.html", include_str!("report/chart.html"))?;
    for (name, text) in templates {
        environment.add_template(name, text)?;
    }
    environment.get_template("page.html")?.render(Serde(page))
}

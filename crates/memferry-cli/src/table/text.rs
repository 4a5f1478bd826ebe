// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tables on a terminal or in a log: split where they are too wide, readable without colour.

use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Table as Drawn, presets};

use super::{Table, machine, tables};
use crate::schema::{BenchFile, Rows};

/// Spaces between two columns.
const GAP: usize = 2;

/// A whole benchmark: the machine, its tables, the published ones if wanted, the notes.
pub fn benchmark(file: &BenchFile, anatomy: bool, published: bool, columns: usize) -> String {
    let copy = file.host.copy.as_ref();
    let copy = copy.map_or_else(String::new, |copy| format!(", copy routine {copy}"));
    let mut text = wrap(&(machine(&file.host) + &copy), columns, "") + "\n\n";
    if !file.envelope.complete {
        text += &(wrap(super::INCOMPLETE, columns, "") + "\n\n");
    }
    let anatomy = match &file.rows {
        Rows::Move(rows) if anatomy => {
            let of_user = super::anatomy::tables(rows).into_iter();
            let of_kernel = super::anatomy::kernel(rows).into_iter();
            (of_user.chain(of_kernel).chain(super::dma::tables(rows))).collect()
        }
        Rows::Count(rows) if anatomy => {
            let of_kernel = super::anatomy::kernel(rows).into_iter();
            of_kernel.chain(super::dma::tables(rows)).collect()
        }
        _ => Vec::new(),
    };
    for table in tables(file).iter().chain(&anatomy) {
        text += &draw(table, columns, Align::Right);
    }
    if published {
        text += &published_text(file, columns);
    }
    for note in &file.notes {
        text += &wrap(&format!("note: {note}"), columns, "      ");
        text.push('\n');
    }
    printable(&text)
}

/// A text from elsewhere, which must not steer the terminal; its lines stay.
pub fn printable(text: &str) -> String {
    text.replace(|c: char| c.is_control() && c != '\n', "\u{fffd}")
}

fn published_text(file: &BenchFile, columns: usize) -> String {
    let tables = match &file.rows {
        Rows::Move(_) => super::published::tables("move", false),
        Rows::Count(_) => super::published::tables("count", false),
        Rows::Cache(_) => {
            return "No published series gives what others lose of the cache.\n\n".to_owned();
        }
        Rows::Stall(_) => {
            return "No published series gives the time that an access waits.\n\n".to_owned();
        }
        Rows::Promote(rows) => super::promote::published(rows),
        Rows::Gain(_) => {
            return "No published series has these workloads.\n\n".to_owned();
        }
        Rows::Compaction(_) => {
            return "`memferry bench reproduce garg-v4-compaction` has the published figures.\n\n"
                .to_owned();
        }
    };
    let mut text = wrap(
        "Published figures come from the machines that each table names: compare shapes and \
         multiples, not GB/s or seconds.",
        columns,
        "",
    ) + "\n\n";
    for table in tables {
        text += &draw(&table, columns, Align::Right);
    }
    text
}

/// On which side the cells of a table stand, but for its first column: that is always on the left.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Align {
    /// Words.
    Left,
    /// Figures.
    Right,
}

/// Draws one table, as several below each other where its columns do not fit.
pub fn draw(table: &Table, columns: usize, align: Align) -> String {
    let width = |column: usize| {
        let cells = table.rows.iter().map(|row| row[column].chars().count());
        cells
            .chain([table.head[column].chars().count()])
            .max()
            .unwrap_or(0)
    };
    let first = width(0);
    let widest = (1..table.head.len()).map(width).max().unwrap_or(0);
    let fit = (columns.saturating_sub(first) / (widest + GAP)).max(1);
    let whole = first
        + (1..table.head.len())
            .map(|column| width(column) + GAP)
            .sum::<usize>();
    let parts = if whole <= columns {
        1
    } else {
        (table.head.len() - 1).div_ceil(fit)
    };
    // Parts of equal width look like one table; every column is as wide as the widest.
    let part = (table.head.len() - 1).div_ceil(parts).max(1);

    let mut text = wrap(&table.title, columns, "  ");
    text.push('\n');
    text += &wrap(&table.caption, columns, "");
    text.push('\n');
    let values: Vec<usize> = (1..table.head.len()).collect();
    for chosen in values.chunks(part) {
        text += &draw_part(table, chosen, (parts > 1).then_some(widest), align);
        text.push('\n');
    }
    text
}

fn draw_part(table: &Table, chosen: &[usize], width: Option<usize>, align: Align) -> String {
    let pick = |row: &[String]| -> Vec<String> {
        let chosen = chosen.iter().map(|&column| row[column].clone());
        std::iter::once(row[0].clone()).chain(chosen).collect()
    };
    let mut drawn = Drawn::new();
    drawn
        .load_preset(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(pick(&table.head));
    for row in &table.rows {
        drawn.add_row(pick(row));
    }
    for (index, column) in drawn.column_iter_mut().enumerate() {
        column.set_padding((0, 0));
        if index > 0 {
            column.set_cell_alignment(match align {
                Align::Left => CellAlignment::Left,
                Align::Right => CellAlignment::Right,
            });
            column.set_padding((GAP as u16, 0));
            if let Some(width) = width {
                let width = comfy_table::Width::Fixed((width + GAP) as u16);
                column.set_constraint(ColumnConstraint::LowerBoundary(width));
            }
        }
    }
    let lines = drawn.lines().map(|line| line.trim_end().to_owned());
    let mut lines: Vec<String> = lines.collect();
    // Only a line under the head, as in a printed book.
    let width = lines.iter().map(|line| line.chars().count()).max();
    lines.insert(1, "─".repeat(width.unwrap_or(0)));
    lines.into_iter().map(|line| line + "\n").collect()
}

/// Texts below each other, each wrapped, with its further lines indented.
pub fn paragraphs<T: AsRef<str>>(texts: impl IntoIterator<Item = T>, columns: usize) -> String {
    let wrapped = |text: T| wrap(text.as_ref(), columns, "  ") + "\n";
    texts.into_iter().map(wrapped).collect()
}

/// Breaks `text` at spaces so that no line is longer than `columns`.
pub fn wrap(text: &str, columns: usize, indent: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let length = lines.last().map_or(0, |line| line.chars().count());
        match lines.last_mut() {
            Some(line) if length == 0 => line.push_str(word),
            Some(line) if length + 1 + word.chars().count() <= columns => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(format!("{indent}{word}")),
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic;

    #[test]
    fn the_tables_of_each_file() {
        for bench in synthetic::FILES {
            let text = benchmark(&synthetic::file(bench), false, false, 100);
            insta::assert_snapshot!(bench, text);
        }
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        for bench in synthetic::FILES {
            for columns in [80, 100, 140] {
                let text = benchmark(&synthetic::file(bench), true, true, columns);
                println!("{text}");
                for line in text.lines() {
                    assert!(line.chars().count() <= columns, "{columns}: {line}");
                    assert_eq!(line, line.trim_end());
                }
            }
        }
    }

    #[test]
    fn a_wide_table_is_split_and_keeps_every_column() {
        let text = benchmark(&synthetic::file("move"), false, false, 80);
        for size in ["4K", "16K", "64K", "128K", "256K", "512K", "1M", "2M"] {
            let heads = text
                .lines()
                .filter(|line| line.split_whitespace().any(|word| word == size))
                .count();
            assert_eq!(heads, 2, "{size}: once for warm, once for cold");
        }
        let rows = |text: &str| text.matches("mtcopy, 2 lanes").count();
        assert!(rows(&text) > rows(&benchmark(&synthetic::file("move"), false, false, 200)));
    }

    #[test]
    fn a_file_cannot_steer_the_terminal() {
        let mut file = synthetic::file("stall");
        file.host.cpu = "\u{1b}[31mred\u{7}".to_owned();
        file.notes = vec!["\u{9b}2J".to_owned()];
        let text = benchmark(&file, false, false, 100);
        assert!(text.contains("[31mred"));
        assert!(!text.contains(['\u{1b}', '\u{7}', '\u{9b}']));
    }

    #[test]
    fn published_tables_are_shown_on_demand() {
        let text = |published| benchmark(&synthetic::file("count"), false, published, 100);
        assert!(!text(false).contains("published") && text(true).contains("NVIDIA Grace"));
    }
}

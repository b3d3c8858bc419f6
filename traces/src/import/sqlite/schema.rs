//! Tables, and which of their columns is which.

use super::{Row, Value};

/// A table.
#[derive(Clone, Debug)]
pub(in crate::import) struct Table {
    /// Its name.
    pub name: String,
    pub(super) root: u64,
    columns: Vec<String>,
    /// The column that stands for the row's number, which is not stored again.
    alias: Option<usize>,
}

impl Table {
    /// The table that a row of the schema describes; `None` for indices, views and tables without rows of their own.
    pub(super) fn of(row: &Row<'_>) -> Option<Table> {
        let (kind, name) = (row.column(0).text()?, row.column(1).text()?);
        let (root, sql) = (row.column(3).unsigned()?, row.column(4).text()?);
        if kind != "table" || root == 0 {
            return None;
        }
        let definitions = definitions(sql);
        let alias = definitions.iter().position(|definition| {
            let upper = definition.to_ascii_uppercase();
            upper.contains("INTEGER") && upper.contains("PRIMARY KEY")
        });
        let columns = definitions.iter().map(|d| column_name(d)).collect();
        Some(Table { name: name.into(), root, columns, alias })
    }

    /// The place of a column.
    pub fn column(&self, name: &str) -> Option<Column> {
        let index = self.columns.iter().position(|column| column == name)?;
        Some(Column { index, alias: self.alias == Some(index) })
    }
}

/// A column of a table.
#[derive(Clone, Copy, Debug)]
pub(in crate::import) struct Column {
    index: usize,
    alias: bool,
}

impl Column {
    /// Its value in a row.
    pub fn of<'a>(self, row: &Row<'a>) -> Value<'a> {
        if self.alias { Value::Int(row.id) } else { row.column(self.index) }
    }
}

/// The definitions between the outermost parentheses, comments left out.
fn definitions(sql: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut depth = 0usize;
    let lines = sql.lines().map(|line| line.split("--").next().unwrap_or_default());
    for c in lines.flat_map(|line| line.chars().chain(['\n'])) {
        match c {
            '(' => {
                depth += 1;
                if depth == 1 {
                    continue;
                }
            }
            ')' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    break;
                }
            }
            ',' if depth == 1 => {
                parts.push(String::new());
                continue;
            }
            _ => {}
        }
        if depth > 0 {
            parts.last_mut().expect("there is one from the start").push(c);
        }
    }
    parts
}

fn column_name(definition: &str) -> String {
    let word = definition.split_whitespace().next().unwrap_or_default();
    word.trim_matches(['"', '`', '[', ']', '\'']).to_string()
}

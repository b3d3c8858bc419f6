//! Runs side by side: a row per run, the metrics in groups.

use crate::quantity::show;
use comfy_table::{CellAlignment, LineStyle, Table, TableStyle};
use poolsim_core::metric::{self, name};
use poolsim_core::record::RunRecord;

/// A run with the name that its row carries (the policy as the user wrote it).
pub struct Row<'a> {
    /// The row's name.
    pub label: &'a str,
    /// What the run measured.
    pub record: &'a RunRecord,
}

/// The groups in the order in which they are printed; each fits 80 columns beside a short label.
/// `events` and `allocs` stand in none: they are the same in every row.
pub(crate) const GROUPS: &[(&str, &[&str])] = &[
    (
        "Outcome",
        &[
            name::ooms,
            name::rescued,
            name::retries,
            name::utilisation,
            name::fragmentation,
            name::device_time_ns,
        ],
    ),
    (
        "Memory at its peaks",
        &[
            name::peak_requested_bytes,
            name::peak_allocated_bytes,
            name::peak_active_bytes,
            name::peak_reserved_bytes,
        ],
    ),
    ("Distance to the bound", &[name::live_bound_bytes, name::packed_bytes, name::over_bound]),
    (
        "Memory on average over time",
        &[
            name::mean_requested_bytes,
            name::mean_allocated_bytes,
            name::mean_active_bytes,
            name::mean_reserved_bytes,
        ],
    ),
    ("Memory at the end", &[name::final_allocated_bytes, name::final_reserved_bytes]),
    (
        "Bytes lost when the reservation peaked",
        &[
            name::lost_to_rounding_bytes,
            name::lost_to_stranded_bytes,
            name::lost_to_free_ranges_bytes,
            name::lost_to_other_streams_bytes,
            name::largest_free_bytes,
        ],
    ),
    (
        "Device calls",
        &[
            name::device_calls,
            name::cuda_malloc_calls,
            name::cuda_free_calls,
            name::map_calls,
            name::unmap_calls,
            name::synchronize_calls,
        ],
    ),
];

/// Metrics that say something of the trace rather than of a run.
#[cfg(test)]
const SAME_IN_EVERY_ROW: &[&str] = &[name::events, name::allocs];

/// The runs as text. Groups that are wider than `width` columns go on in a further table; `None` sets no
/// bound. A metric that no run measured has no column; one that only some measured shows `-`.
pub fn render(rows: &[Row<'_>], width: Option<usize>) -> String {
    let mut text = String::new();
    for (title, names) in GROUPS {
        let columns: Vec<Column> = names.iter().filter_map(|n| column(rows, n)).collect();
        if columns.is_empty() {
            continue;
        }
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(title);
        text.push('\n');
        for part in parts(rows, &columns, width) {
            text.push_str(&one_table(rows, part));
        }
    }
    text
}

struct Column {
    title: String,
    cells: Vec<String>,
}

impl Column {
    fn width(&self) -> usize {
        let longest = self.title.lines().chain(self.cells.iter().map(String::as_str));
        longest.map(|line| line.chars().count()).max().unwrap_or(0) + PADDING
    }
}

/// Blanks that each column takes beside its content.
const PADDING: usize = 2;

fn column(rows: &[Row<'_>], metric_name: &str) -> Option<Column> {
    let metric = metric::find(metric_name).expect("groups name only metrics of the table");
    if rows.iter().all(|row| row.record.metric(metric_name).is_none()) {
        return None;
    }
    let cell = |row: &Row<'_>| {
        row.record.metric(metric_name).map_or_else(|| "-".into(), |value| show(value, metric.unit))
    };
    // Two short lines rather than one long one: the headings are wider than the numbers.
    Some(Column {
        title: metric.title.replacen(' ', "\n", 1),
        cells: rows.iter().map(cell).collect(),
    })
}

/// Cuts the columns into runs that fit beside the labels.
fn parts<'a>(rows: &[Row<'_>], columns: &'a [Column], width: Option<usize>) -> Vec<&'a [Column]> {
    let Some(width) = width else { return vec![columns] };
    let label = rows.iter().flat_map(|r| label_lines(r.label)).map(|l| l.chars().count()).max();
    let room = width.saturating_sub(label.unwrap_or(0) + PADDING);
    let mut parts = Vec::new();
    let (mut start, mut used) = (0, 0);
    for (i, column) in columns.iter().enumerate() {
        if i > start && used + column.width() > room {
            parts.push(&columns[start..i]);
            (start, used) = (i, 0);
        }
        used += column.width();
    }
    parts.push(&columns[start..]);
    parts
}

fn one_table(rows: &[Row<'_>], columns: &[Column]) -> String {
    let mut table = plain_table();
    let heads = columns.iter().map(|c| c.title.clone());
    table.set_header(std::iter::once("policy".to_string()).chain(heads).collect::<Vec<_>>());
    for (i, row) in rows.iter().enumerate() {
        let label = label_lines(row.label).join("\n");
        let cells = columns.iter().map(|c| c.cells[i].clone());
        table.add_row(std::iter::once(label).chain(cells).collect::<Vec<_>>());
    }
    numbers_right(&mut table);
    finish(&table)
}

/// Longest label that stays on one line.
const LABEL: usize = 28;

/// A policy spec cut after commas, so that a long one takes several lines rather than the whole width.
fn label_lines(label: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for item in label.split_inclusive(',') {
        let line = lines.last_mut().expect("starts with one line");
        if !line.is_empty() && line.chars().count() + item.chars().count() > LABEL {
            lines.push(item.into());
        } else {
            line.push_str(item);
        }
    }
    lines
}

/// An empty table in the house style: a rule under the headings, nothing else.
pub fn plain_table() -> Table {
    let mut table = Table::new();
    table.load_style(HOUSE);
    table
}

/// Aligns a column to the left again.
pub fn words_left(table: &mut Table, column: usize) {
    if let Some(column) = table.column_mut(column) {
        column.set_cell_alignment(CellAlignment::Left);
    }
}

/// Aligns every column but the first to the right.
pub fn numbers_right(table: &mut Table) {
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
}

/// The table as lines without trailing blanks, each ended by a newline.
pub fn finish(table: &Table) -> String {
    table.lines().fold(String::new(), |text, line| text + line.trim_end() + "\n")
}

const HOUSE: TableStyle = TableStyle::new().header_separator(LineStyle::none().fill('-'));

#[cfg(test)]
mod tests {
    use super::*;
    use poolsim_core::metric::{METRICS, Unit};

    #[test]
    fn every_metric_that_differs_between_runs_has_one_column() {
        for metric in METRICS {
            let places: usize = GROUPS
                .iter()
                .map(|(_, names)| names.iter().filter(|n| **n == metric.name).count())
                .sum();
            let expected = usize::from(!SAME_IN_EVERY_ROW.contains(&metric.name));
            assert_eq!(places, expected, "{} stands in {places} groups", metric.name);
        }
    }

    #[test]
    fn narrow_terminals_get_the_same_columns_in_more_tables() {
        use poolsim_core::record::Value;
        let mut record = RunRecord::default();
        for metric in METRICS {
            let value = match metric.unit {
                Unit::Ratio => Value::Real(0.925),
                Unit::Count => Value::Int(12_345),
                Unit::Bytes | Unit::Nanos => Value::Int(12_345_678_901),
            };
            record.set(metric.name, value);
        }
        let rows = [Row { label: "expandable", record: &record }];
        let (wide, narrow) = (render(&rows, None), render(&rows, Some(80)));
        assert!(narrow.lines().all(|line| line.chars().count() <= 80), "{narrow}");
        let words = |text: &str| {
            let mut words: Vec<String> = text.split_whitespace().map(String::from).collect();
            words.retain(|w| w != "policy" && w != "expandable" && !w.starts_with("--"));
            words.sort();
            words
        };
        assert_eq!(words(&wide), words(&narrow));
        insta::assert_snapshot!(narrow.lines().take(5).collect::<Vec<_>>().join("\n"), @r"
        Outcome
         policy        OOMs  rescued  retries  utilisation  fragmentation   device
                                                                              time
        ---------------------------------------------------------------------------
         expandable  12,345   12,345   12,345       92.5 %         92.5 %  12.35 s
        ");
    }

    #[test]
    fn long_specs_are_cut_after_commas() {
        assert_eq!(label_lines("expandable"), ["expandable"]);
        assert_eq!(
            label_lines("pytorch,garbage_collection_threshold:0.8,max_split_size_mb:128"),
            ["pytorch,", "garbage_collection_threshold:0.8,", "max_split_size_mb:128"]
        );
    }
}

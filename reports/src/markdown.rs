//! A report as Markdown, with its figures beside it.

use crate::data::RunSet;
use crate::figure::{FIGURES, Image};
use crate::prose;
use crate::quantity::{show, show_count, show_plural, show_signed};
use crate::report::ReportError;
use crate::table::{GROUPS, Row};
use crate::verdict::{not_measured, verdict};
use poolsim_core::metric;
use poolsim_core::units::ShowBytes;
use std::path::{Path, PathBuf};

/// The text, and the figures that it shows.
///
/// # Errors
/// A figure that could not be drawn.
pub fn render(set: &RunSet, path: &Path) -> Result<Vec<(PathBuf, Vec<u8>)>, ReportError> {
    let stem = path.file_stem().map_or_else(String::new, |s| s.to_string_lossy().into_owned());
    let mut text = format!("# {}\n\n{}\n", plain(&title(set)), plain(&verdict(set)));
    text += "\nNot measured, or not there:\n\n";
    for line in not_measured(set) {
        text += &format!("- {}\n", plain(&line));
    }
    for run in &set.runs {
        for warning in &run.record.warnings {
            text += &format!("- {}: {}\n", plain(&run.label), plain(warning));
        }
    }
    text += &tables(set);
    text += &waterfalls(set);
    text += &frontiers(set);
    let mut files = Vec::new();
    for figure in FIGURES {
        let Some(bytes) = figure.draw(set, Image::Svg)? else { continue };
        let name = format!("{stem}-{}.svg", figure.name);
        // An address in brackets may hold blanks.
        text += &format!("\n![{}](<{name}>)\n\n{}.\n", figure.caption, figure.caption);
        files.push((path.with_file_name(name), bytes));
    }
    for run in &set.runs {
        let ooms = prose::ooms(&run.label, &run.record);
        if !ooms.is_empty() {
            text += &format!("\n{}", plain(&ooms));
        }
    }
    let rows: Vec<_> = set.runs.iter().map(|run| (run.label.as_str(), &run.record)).collect();
    let provenance = prose::provenance(&rows, &set.machine);
    let fence = fence(&provenance, &set.command);
    text += &format!("\n## Where the numbers come from\n\n{fence}text\n{provenance}command    ");
    text += &format!("{}\n{fence}\n", set.command.replace('\n', "\n           "));
    files.insert(0, (path.into(), text.into_bytes()));
    Ok(files)
}

/// What the report is of.
pub(crate) fn title(set: &RunSet) -> String {
    let mut traces: Vec<&str> =
        set.runs.iter().map(|run| run.record.provenance.trace.as_str()).collect();
    traces.dedup();
    let name = |path: &str| {
        Path::new(path).file_name().map_or(path.into(), |n| n.to_string_lossy().into_owned())
    };
    match traces.as_slice() {
        [one] => name(one),
        several => format!("{} traces", several.len()),
    }
}

fn tables(set: &RunSet) -> String {
    let rows: Vec<Row<'_>> =
        set.runs.iter().map(|run| Row { label: &run.label, record: &run.record }).collect();
    let mut text = String::new();
    for (title, names) in GROUPS {
        let measured: Vec<_> = names
            .iter()
            .filter(|name| rows.iter().any(|row| row.record.metric(name).is_some()))
            .map(|name| metric::find(name).expect("groups name only metrics of the table"))
            .collect();
        if measured.is_empty() {
            continue;
        }
        text += &format!("\n## {title}\n\n| policy |");
        measured.iter().for_each(|metric| text += &format!(" {} |", metric.title));
        text += "\n|---|";
        measured.iter().for_each(|_| text += "---:|");
        text.push('\n');
        for row in &rows {
            text += &format!("| {} |", plain(row.label).replace('|', "\\|"));
            for metric in &measured {
                let value = row.record.metric(metric.name);
                text += &format!(" {} |", value.map_or("-".into(), |v| show(v, metric.unit)));
            }
            text.push('\n');
        }
    }
    text
}

/// A column a policy, a row a step.
fn waterfalls(set: &RunSet) -> String {
    let known: Vec<_> =
        set.runs.iter().filter_map(|run| Some((run, run.waterfall.as_ref()?))).collect();
    let mut text = String::new();
    for (run, found) in known {
        text += &format!("\n## Which rule costs how much: {}\n\n", plain(&run.label));
        if found.ooms > 0 {
            let refused = show_plural(found.ooms, "request");
            text +=
                &format!("This run refuses {refused}, so that its reservation says little.\n\n");
        }
        text += "| | bytes |\n|---|---:|\n";
        let end = |title: &str, bytes: u64| format!("| {title} | {} |\n", ShowBytes(bytes));
        text += &end("live bound", found.live);
        for measured in &found.causes {
            let bytes =
                measured.peak.map_or("not separable".into(), |_| show_signed(measured.bytes));
            text += &format!("| {} | {bytes} |\n", measured.cause.title());
        }
        text += &format!("| interaction | {} |\n", show_signed(found.interaction));
        text += &end("peak reserved", found.peak);
    }
    text
}

/// A row a policy.
fn frontiers(set: &RunSet) -> String {
    let known: Vec<_> =
        set.runs.iter().filter_map(|run| Some((run, run.frontier.as_ref()?))).collect();
    let Some(bound) = known.iter().map(|(_, found)| found.bound).min() else {
        return String::new();
    };
    let mut text = format!(
        "\n## On how little memory the job lives\n\nNothing lives on less than {}.\n\n",
        ShowBytes(bound)
    );
    text +=
        "| policy | smallest memory | all suffice from | retries there |\n|---|---:|---:|---:|\n";
    for (run, found) in known {
        let bytes = |n: Option<u64>| n.map_or("none".into(), |n| ShowBytes(n).to_string());
        let doubt = if found.uncertain { " (uncertain)" } else { "" };
        text += &format!(
            "| {}{doubt} | {} | {} | {} |\n",
            plain(&run.label).replace('|', "\\|"),
            bytes(found.smallest()),
            bytes(found.safe()),
            found.tight.map_or("-".into(), |tight| show_count(tight.retries)),
        );
    }
    text
}

/// Text from outside so that it stays text: no markup, no line of its own.
fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for c in text.trim_end().chars() {
        match c {
            '\n' | '\r' => plain.push(' '),
            '<' => plain.push_str("&lt;"),
            '&' => plain.push_str("&amp;"),
            '\\' | '`' | '*' | '_' | '[' | ']' => plain.extend(['\\', c]),
            c => plain.push(c),
        }
    }
    plain
}

/// A fence that the text cannot close.
fn fence(texts: &str, more: &str) -> String {
    let longest = |text: &str| text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    "`".repeat(longest(texts).max(longest(more)).max(2) + 1)
}

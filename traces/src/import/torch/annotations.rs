//! Named spans: annotations beside the trace, and texts that entries carry.

use super::entries::{Origin, Times};
use super::fold::MARK;
use super::rows::{Label, NO_TIME, Rows, Stage};
use crate::pickle::{Folded, Objects, TextId, Value};
use poolsim_core::error::{Place, TraceErrorKind};
use poolsim_core::event::Annotation;
use poolsim_core::recording::Entry;
use poolsim_core::{Nanos, TraceError};
use std::collections::{BTreeMap, BTreeSet};

/// Spans that texts on entries may make; texts that change with every entry are no phases.
const MAX_LABEL_SPANS: usize = 65_536;

/// The external annotations of a device. Starts and ends are matched per name, inner spans first.
pub fn external(
    list: Value,
    objects: &Objects,
    rows: &Rows,
    device: u32,
    times: &Times,
    notes: &mut Vec<String>,
) -> Result<Vec<Annotation>, TraceError> {
    let items = match list {
        Value::None => return Ok(Vec::new()),
        other => objects.items(other).ok_or_else(no_marks)?,
    };
    let mut spans: Vec<Annotation> = Vec::new();
    let mut open: BTreeMap<TextId, Vec<usize>> = BTreeMap::new();
    let (mut early, mut orphans, mut timeless) = (BTreeSet::new(), 0, 0u64);
    let zero = time_zero(rows, times);
    for n in 0..items.len() {
        let Value::Folded(Folded { kind: MARK, index }) = items.get(n) else {
            return Err(no_marks());
        };
        let mark = rows.marks[index as usize];
        if mark.device.is_some_and(|d| d != device) {
            continue;
        }
        let Some(zero) = zero.filter(|_| mark.time != NO_TIME) else {
            timeless += 1;
            continue;
        };
        let at = mark.time.saturating_sub(zero);
        let name = || objects.texts.get(mark.name).to_owned();
        match mark.stage {
            Stage::Start => {
                open.entry(mark.name).or_default().push(spans.len());
                spans.push(Annotation { name: name(), start: at, end: None });
            }
            Stage::End => match open.get_mut(&mark.name).and_then(Vec::pop) {
                Some(span) => {
                    spans[span].end = Some(at);
                    if mark.time < zero {
                        early.insert(span);
                    }
                }
                None if mark.time < zero => orphans += 1,
                None => spans.push(Annotation { name: name(), start: 0, end: Some(at) }),
            },
            Stage::Point => spans.push(Annotation { name: name(), start: at, end: Some(at) }),
        }
    }
    if !early.is_empty() || orphans > 0 {
        let count = early.len() + orphans;
        notes.push(format!("{count} annotations ended before the first entry and were left out"));
        let mut index = 0..;
        spans.retain(|_| index.next().is_some_and(|i| !early.contains(&i)));
    }
    if timeless > 0 {
        notes.push(format!(
            "{timeless} annotation marks cannot be placed in time and were left out"
        ));
    }
    Ok(spans)
}

/// The time of the first entry, or of the first mark if there are no entries at all.
fn time_zero(rows: &Rows, times: &Times) -> Option<Nanos> {
    let first_mark = || rows.marks.iter().map(|m| m.time).find(|&t| t != NO_TIME);
    times.first.or_else(|| if times.untimed { None } else { first_mark() })
}

fn no_marks() -> TraceError {
    TraceError::new(
        TraceErrorKind::Malformed,
        Place::Whole,
        "`external_annotations` is no list of annotations (dicts with `name` and `stage`)",
    )
}

/// Spans of entries that carry the same user metadata or compile context.
pub fn labels(
    entries: &[Entry],
    origin: &Origin,
    rows: &Rows,
    objects: &Objects,
    notes: &mut Vec<String>,
) -> Vec<Annotation> {
    let mut spans = Vec::new();
    for (kind, labels) in
        [("user_metadata", &rows.user_metadata), ("compile_context", &rows.compile_contexts)]
    {
        let before = spans.len();
        let mut dropped = 0u64;
        label_spans(entries, origin, labels, |text, start, end| {
            if spans.len() - before == MAX_LABEL_SPANS {
                dropped += 1;
                return;
            }
            let name = format!("{kind}: {}", objects.texts.get(text));
            spans.push(Annotation { name, start, end: Some(end) });
        });
        if dropped > 0 {
            notes.push(format!(
                "{kind} changes so often that only its first {MAX_LABEL_SPANS} spans are kept; \
                 {dropped} were left out"
            ));
        }
    }
    spans
}

fn label_spans(
    entries: &[Entry],
    origin: &Origin,
    labels: &[Label],
    mut span: impl FnMut(TextId, u64, u64),
) {
    if labels.is_empty() {
        return;
    }
    let at = |n: usize| {
        let next = labels.partition_point(|l| l.from <= origin.row(n));
        labels[..next].last().and_then(|l| l.text)
    };
    let mut current: Option<(TextId, u64)> = None;
    for (n, entry) in entries.iter().enumerate() {
        let text = at(n);
        if current.map(|(t, _)| t) != text {
            if let Some((text, start)) = current {
                span(text, start, entries[n - 1].at);
            }
            current = text.map(|t| (t, entry.at));
        }
    }
    if let (Some((text, start)), Some(last)) = (current, entries.last()) {
        span(text, start, last.at);
    }
}

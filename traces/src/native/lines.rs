//! `trace.jsonl`: one JSON object a line, so that a program can append events as they happen.

use super::document::{Document, json_error};
use super::event::{EventSeed, kind_of};
use super::header::AnnotationRow;
use super::state::State;
use super::{EVENT_FIELDS, FIELDS};
use crate::import::{read_error, top_level_keys};
use poolsim_core::error::{Place, TraceErrorKind};
use poolsim_core::event::Annotation;
use poolsim_core::{Trace, TraceError};
use serde::de::DeserializeSeed;
use std::io::{BufRead, Read};

/// Most bytes of a line: side tables may be long.
const MAX_LINE: u64 = 256 << 20;

/// Reads a trace from JSON lines: events, annotations and header fields, each object on a line of its own.
///
/// # Errors
/// The line and what was wrong with it.
pub fn read_jsonl(mut reader: impl BufRead) -> Result<Trace, TraceError> {
    let mut state = State::default();
    let mut line = Vec::new();
    let mut offset = 0;
    for number in 1.. {
        line.clear();
        let read = (&mut reader).take(MAX_LINE).read_until(b'\n', &mut line);
        let read = read.map_err(|e| read_error(&e, offset))? as u64;
        if read == 0 {
            break;
        }
        offset += read;
        let fail =
            |what: String| TraceError::new(TraceErrorKind::Malformed, Place::Line(number), what);
        if read == MAX_LINE {
            return Err(fail(format!("the line is longer than {MAX_LINE} bytes")));
        }
        if !line.trim_ascii().is_empty() {
            read_line(&mut state, &line).map_err(|mut error| {
                error.place = Place::Line(number);
                error
            })?;
        }
    }
    state.finish().map_err(|what| TraceError::new(TraceErrorKind::Malformed, Place::Whole, what))
}

fn read_line(state: &mut State, line: &[u8]) -> Result<(), TraceError> {
    let keys = top_level_keys(line).unwrap_or_default();
    let has = |names: &[&str]| keys.iter().any(|key| names.contains(&key.as_str()));
    let event = keys.iter().any(|key| kind_of(key).is_some());
    let mut json = serde_json::Deserializer::from_slice(line);
    let json = &mut json;
    let read = if keys.iter().any(|key| key == "annotation") {
        serde::Deserialize::deserialize(&mut *json)
            .map(|row: AnnotationRow| state.annotations.push(Annotation::from(row)))
    } else if !event && has(FIELDS) && !has(EVENT_FIELDS) {
        state.allow_parts();
        Document(state).deserialize(&mut *json)
    } else {
        EventSeed(state).deserialize(&mut *json)
    };
    let ended = read.and_then(|()| json.end());
    ended.map_err(|e| json_error(&e, None))
}

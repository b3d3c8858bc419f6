//! `trace.json`: one JSON object.

use super::event::EventSeed;
use super::header::read_field;
use super::state::State;
use poolsim_core::error::{Place, TraceErrorKind};
use poolsim_core::{Trace, TraceError};
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use std::fmt;
use std::io::Read;

/// Reads a trace from one JSON document.
///
/// # Errors
/// The line, the event if it is in one, and what was wrong with it.
pub fn read_json(reader: impl Read) -> Result<Trace, TraceError> {
    let mut state = State::default();
    let mut json = serde_json::Deserializer::from_reader(reader);
    let read = Document(&mut state).deserialize(&mut json);
    read.map_err(|e| json_error(&e, Some(state.event_count())))?;
    json.end().map_err(|e| json_error(&e, None))?;
    state.finish().map_err(|what| TraceError::new(TraceErrorKind::Malformed, Place::Whole, what))
}

/// An error of serde_json with its line as the place.
pub(crate) fn json_error(error: &serde_json::Error, event: Option<usize>) -> TraceError {
    use serde_json::error::Category;
    let kind = match error.classify() {
        Category::Io if error.io_error_kind() != Some(std::io::ErrorKind::InvalidData) => {
            TraceErrorKind::Io
        }
        _ => TraceErrorKind::Malformed,
    };
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    let mut what = text.strip_suffix(&place).unwrap_or(&text).to_string();
    if error.is_eof() {
        what.push_str("; the file is cut short");
    }
    if let Some(event) = event.filter(|_| error.is_data()) {
        what = format!("column {}, after {event} events: {what}", error.column());
    }
    TraceError::new(kind, Place::Line(error.line().max(1) as u64), what)
}

/// The document, or in JSON lines the part of it that stands on one line.
pub(crate) struct Document<'a>(pub &'a mut State);

impl<'de> DeserializeSeed<'de> for Document<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Document<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a trace such as {\"poolsim_trace\": 1, \"events\": […]}")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            if key != "events" {
                read_field(self.0, &key, &mut map)?;
            } else if self.0.first_time("events") {
                map.next_value_seed(Events(self.0))?;
            } else {
                return Err(A::Error::custom("`events` is given twice"));
            }
        }
        Ok(())
    }
}

struct Events<'a>(&'a mut State);

impl<'de> DeserializeSeed<'de> for Events<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Events<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of events")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while seq.next_element_seed(EventSeed(self.0))?.is_some() {}
        Ok(())
    }
}

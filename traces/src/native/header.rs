//! The fields of the document beside its events.

use super::event::Size;
use super::stacks::Call;
use super::state::State;
use super::{FIELDS, VERSION};
use crate::suggest;
use poolsim_core::event::{Annotation, Knows, PoolInfo};
use poolsim_core::heap::HeapImage;
use poolsim_core::{Nanos, PoolFlags};
use serde::Deserialize;
use serde::de::{Error, MapAccess};
use serde_json::Value;
use std::collections::BTreeMap;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PoolRow {
    id: PoolKey,
    #[serde(default)]
    no_split: bool,
    #[serde(default)]
    use_on_oom: bool,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "a number, or a pair of numbers as in PyTorch")]
enum PoolKey {
    One(u64),
    Pair(u64, u64),
}

impl From<PoolRow> for PoolInfo {
    fn from(row: PoolRow) -> PoolInfo {
        let id = match row.id {
            PoolKey::One(number) => (number, 0),
            PoolKey::Pair(a, b) => (a, b),
        };
        let PoolRow { no_split, use_on_oom, .. } = row;
        PoolInfo { id, flags: PoolFlags { no_split, use_on_oom } }
    }
}

/// A named span; also a line of its own in JSON lines.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AnnotationRow {
    #[serde(alias = "annotation")]
    name: String,
    #[serde(default)]
    start: Nanos,
    #[serde(default)]
    end: Option<Nanos>,
}

impl From<AnnotationRow> for Annotation {
    fn from(row: AnnotationRow) -> Annotation {
        Annotation { name: row.name, start: row.start, end: row.end }
    }
}

/// Reads the field `key`, which is not `events`, into `state`.
pub(crate) fn read_field<'de, A: MapAccess<'de>>(
    state: &mut State,
    key: &str,
    map: &mut A,
) -> Result<(), A::Error> {
    let wrong = A::Error::custom::<String>;
    if !FIELDS.contains(&key) {
        return Err(wrong(suggest::unknown("field", key, FIELDS)));
    }
    if !state.first_time(key) {
        return Err(wrong(format!("`{key}` is given twice")));
    }
    let header = &mut state.header;
    match key {
        "poolsim_trace" => check_version(map.next_value()?).map_err(wrong)?,
        "source" => header.source = map.next_value()?,
        "device" => header.device = map.next_value()?,
        "device_name" => header.device_name = map.next_value()?,
        "device_memory" => header.device_memory = Some(map.next_value::<Size>()?.0),
        "memory_fraction" => {
            header.memory_fraction = Some(fraction(map.next_value()?).map_err(wrong)?)
        }
        "settings" => header.settings = map.next_value()?,
        "framework" => header.framework = map.next_value()?,
        "streams" => header.streams = map.next_value()?,
        "start_unix_us" => header.start_unix_us = map.next_value()?,
        "notes" => header.notes = map.next_value()?,
        "pools" => {
            let rows = map.next_value::<Vec<PoolRow>>()?;
            header.pools = rows.into_iter().map(PoolInfo::from).collect();
        }
        "knows" => {
            header.knows = knows(map.next_value()?).map_err(wrong)?;
            state.knows_given = true;
        }
        "capacity" => state.capacity = Some(map.next_value::<Size>()?.0),
        "attributes" => header.attributes = map.next_value()?,
        "ids" => state.set_ids(&map.next_value::<String>()?).map_err(wrong)?,
        "frames" => state.stacks.add_frames(map.next_value::<Vec<Call>>()?),
        "stacks" => state.stacks.add_stacks(map.next_value()?),
        "annotations" => {
            let rows = map.next_value::<Vec<AnnotationRow>>()?;
            state.annotations.extend(rows.into_iter().map(Annotation::from));
        }
        "initial_heap" => state.initial_heap = Some(map.next_value::<HeapImage>()?),
        other => unreachable!("`{other}` is a field, and `events` is read by the caller"),
    }
    Ok(())
}

fn check_version(version: u64) -> Result<(), String> {
    match version {
        VERSION => Ok(()),
        newer if newer > VERSION => Err(format!(
            "the trace has schema version {newer}; this poolsim reads version {VERSION}. Use a newer poolsim"
        )),
        _ => Err(format!("`poolsim_trace` is the schema version: write {VERSION}")),
    }
}

fn fraction(value: f64) -> Result<f64, String> {
    if value > 0.0 && value <= 1.0 {
        return Ok(value);
    }
    Err(format!("`memory_fraction` is {value}; it must be above 0 and at most 1"))
}

fn knows(given: BTreeMap<String, bool>) -> Result<Knows, String> {
    let Ok(Value::Object(mut all)) = serde_json::to_value(Knows::default()) else {
        unreachable!("Knows is a struct of booleans")
    };
    for (name, value) in given {
        if !all.contains_key(&name) {
            let known: Vec<&str> = all.keys().map(String::as_str).collect();
            return Err(suggest::unknown("field of `knows`", &name, &known));
        }
        all.insert(name, value.into());
    }
    Ok(serde_json::from_value(Value::Object(all)).expect("Knows is a struct of booleans"))
}

//! The driver call log of a CUDA program, see [`crate::calls`].

mod facts;
mod fold;

use super::{Imported, Importer, Input, read_error};
use crate::calls::{Kind, MAGIC, NO_DEVICE, RECORD_LEN, Record, VERSION};
use crate::open::{DeviceSummary, OpenOptions, Source};
use facts::Facts;
use fold::Fold;
use poolsim_core::error::{Place, TraceErrorKind};
use poolsim_core::{Trace, TraceError};
use std::collections::BTreeMap;
use std::io::{self, Read};

/// The row of [`super::IMPORTERS`].
pub static IMPORTER: Importer = Importer {
    name: "driver-calls",
    summary: "driver call log, written by poolsim capture --driver",
    extensions: &["calls"],
    sniff: |head| head.first_chunk().and_then(start).is_some(),
    read: |input: Input, options: &OpenOptions| read(input.reader, options.device),
};

/// The first record, if these bytes are one.
fn start(bytes: &[u8; RECORD_LEN]) -> Option<Record> {
    record(bytes).filter(|record| record.kind == Kind::START && record.a == MAGIC)
}

fn record(bytes: &[u8; RECORD_LEN]) -> Option<Record> {
    let mut words = [0; 8];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    }
    Record::of_words(words)
}

/// Reads a log: the calls of `device`, or of the device with the most.
///
/// # Errors
/// Of the reader; content that is no such log, or of a later version; a device without calls; no request at all.
pub fn read(mut reader: impl Read, device: Option<u32>) -> Result<Imported, TraceError> {
    let mut facts = Facts::default();
    let mut calls = Vec::new();
    let mut at = 0;
    let mut bytes = [0; RECORD_LEN];
    while whole(&mut reader, &mut bytes).map_err(|e| read_error(&e, at))? {
        let place = Place::Byte(at);
        at += RECORD_LEN as u64;
        if at == RECORD_LEN as u64 {
            let first = start(&bytes).ok_or_else(|| {
                TraceError::new(TraceErrorKind::Malformed, place, "is no driver call log")
            })?;
            if first.b != VERSION {
                let what = format!(
                    "has version {} of the driver call log; {VERSION} can be read",
                    first.b
                );
                return Err(TraceError::new(TraceErrorKind::Refused, place, what));
            }
        }
        match record(&bytes) {
            Some(record) if record.kind.name().is_some() => calls.push(record),
            Some(record) => facts.take(&record),
            None if bytes == [0; RECORD_LEN] => {}
            None => facts.damaged += 1,
        }
    }
    if at == 0 {
        return Err(TraceError::new(TraceErrorKind::Malformed, Place::Whole, "is empty"));
    }
    facts.finish_texts();
    calls.sort_by_key(|call| call.at);
    trace_of(&calls, facts, device)
}

/// Fills `bytes`; false at the end, also where a part of a record is left (the file was cut).
fn whole(reader: &mut impl Read, bytes: &mut [u8; RECORD_LEN]) -> io::Result<bool> {
    match reader.read_exact(bytes) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(e) => Err(e),
    }
}

fn trace_of(calls: &[Record], facts: Facts, asked: Option<u32>) -> Result<Imported, TraceError> {
    let mut devices: BTreeMap<u32, u64> = BTreeMap::new();
    for call in calls.iter().filter(|call| call.device != NO_DEVICE) {
        *devices.entry(u32::from(call.device)).or_default() += 1;
    }
    let most = devices.iter().max_by_key(|(device, calls)| (**calls, u32::MAX - **device));
    let device = asked.or(most.map(|(device, _)| *device)).unwrap_or(0);
    if asked.is_some() && !devices.contains_key(&device) {
        let known: Vec<String> = devices.keys().map(u32::to_string).collect();
        let what =
            format!("holds no calls of device {device}; it has those of: {}", known.join(", "));
        return Err(TraceError::new(TraceErrorKind::Refused, Place::Whole, what));
    }
    let mut fold = Fold::new(device);
    for call in calls {
        fold.call(call, &facts)
            .map_err(|what| TraceError::new(TraceErrorKind::Refused, Place::Whole, what))?;
    }
    let mut trace: Trace = fold.finish();
    facts.describe(&mut trace.header, device);
    if trace.events.is_empty() {
        let what = "is a driver call log without a request for device memory; was CUDA used, and did the program get that far?";
        return Err(TraceError::new(TraceErrorKind::NoEvents, Place::Whole, what));
    }
    let summary = |(&index, &entries): (&u32, &u64)| DeviceSummary { index, entries, segments: 0 };
    let mut devices: Vec<DeviceSummary> = devices.iter().map(summary).collect();
    if devices.is_empty() {
        devices.push(DeviceSummary { index: device, entries: calls.len() as u64, segments: 0 });
    }
    Ok(Imported { devices, source: Source::Trace(Box::new(trace)) })
}

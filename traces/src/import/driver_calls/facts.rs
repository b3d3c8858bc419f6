//! What a driver call log says beside the calls.

use crate::calls::{Kind, Record};
use poolsim_core::TraceHeader;
use std::collections::BTreeMap;

/// Longest text that is put together from records.
const LONGEST: usize = 1 << 16;

/// The bytes in use on a device, as its management library said.
#[derive(Clone, Copy, Debug)]
struct Used {
    first: u64,
    last: u64,
    peak: u64,
    total: u64,
    own_peak: u64,
}

/// The library names, the run's facts, the device's own account.
#[derive(Debug, Default)]
pub(super) struct Facts {
    /// Records that were neither whole nor empty.
    pub damaged: u64,
    start: Option<Record>,
    libraries: BTreeMap<u16, String>,
    run: BTreeMap<String, String>,
    used: BTreeMap<u8, Used>,
    text: Vec<u8>,
    open: Option<(Kind, u16)>,
}

impl Facts {
    /// A record that is no call. Records of a kind that is not known are of a later writer, and skipped.
    pub fn take(&mut self, record: &Record) {
        match record.kind {
            Kind::START => self.start = self.start.or(Some(*record)),
            Kind::LIBRARY | Kind::FACT => {
                if record.thread == 0 {
                    self.finish_texts();
                }
                self.open = Some((record.kind, record.library));
                if self.text.len() < LONGEST {
                    self.text.extend_from_slice(&record.text_part());
                }
                if record.thread + 1 >= record.result {
                    self.finish_texts();
                }
            }
            Kind::USED => {
                let &Record { a: now, b: total, c: own, .. } = record;
                let used = self.used.entry(record.device).or_insert(Used {
                    first: now,
                    last: now,
                    peak: now,
                    total,
                    own_peak: own,
                });
                used.last = now;
                used.peak = used.peak.max(now);
                used.own_peak = used.own_peak.max(own);
            }
            _ => {}
        }
    }

    /// The text that the records so far held.
    pub fn finish_texts(&mut self) {
        let Some((kind, number)) = self.open.take() else { return };
        let end = self.text.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        let text = String::from_utf8_lossy(&self.text[..end]).into_owned();
        self.text.clear();
        if kind == Kind::LIBRARY {
            self.libraries.insert(number, text);
        } else if let Some((key, value)) = text.split_once('=') {
            self.run.insert(key.to_string(), value.to_string());
        }
    }

    /// The name of a library, without its folder.
    pub fn library(&self, number: u16) -> &str {
        let path = self.libraries.get(&number).map_or("", String::as_str);
        let name = path.rsplit('/').next().unwrap_or(path);
        if name.is_empty() { "unknown" } else { name }
    }

    /// Puts into the header what is not of the calls.
    pub fn describe(&self, header: &mut TraceHeader, device: u32) {
        header.device = device;
        let attributes = &mut header.attributes;
        if let Some(start) = &self.start {
            header.start_unix_us = Some(start.e);
            attributes.insert("process".into(), start.c.to_string());
            attributes.insert("parent process".into(), start.d.to_string());
        }
        attributes.extend(self.run.clone());
        if let Some(used) = u8::try_from(device).ok().and_then(|device| self.used.get(&device)) {
            header.device_memory = Some(used.total);
            attributes.insert("device used first".into(), used.first.to_string());
            attributes.insert("device used last".into(), used.last.to_string());
            attributes.insert("device used peak".into(), used.peak.to_string());
            if used.own_peak > 0 {
                attributes.insert("process used peak".into(), used.own_peak.to_string());
            }
        }
        if self.damaged > 0 {
            header.notes.push(format!(
                "{} records were not whole, as after a crash while they were written; they are left out",
                self.damaged
            ));
        }
    }
}

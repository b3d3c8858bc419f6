//! What a `.pst` reader must know before the first event, from a whole file or from what is left of one.

use crate::format::{
    EVTS, FrameIndex, HEAD, MAGIC, PREFIX_LEN, TAIL, TableSection, Trailer, VERSION, malformed,
};
use crate::frame::FrameDecoder;
use crate::section::{SectionHead, SectionReader, find_tail};
use crate::storage::Storage;
use crate::tables::rows;
use crate::tally::Tally;
use crate::writer::check_promises;
use poolsim_core::error::{Place, TraceErrorKind};
use poolsim_core::{Batch, TraceError, TraceHeader};
use serde::de::IgnoredAny;

/// The header and the trailer of a whole file.
pub(crate) fn load(storage: &Storage) -> Result<(TraceHeader, Trailer), TraceError> {
    let mut sections = SectionReader::new();
    let (mut header, _) = read_head(storage, &mut sections)?;
    let trailer = read_trailer(storage, &mut sections)?;
    check_promises((header.events, header.slots), &trailer)?;
    header.events = Some(trailer.events);
    header.slots = Some(trailer.slots);
    Ok((header, trailer))
}

/// The header of a file and a trailer of its sections up to the first one that is not complete.
pub(crate) fn recover(storage: &Storage) -> Result<(TraceHeader, Trailer), TraceError> {
    let mut sections = SectionReader::new();
    let (mut header, mut at) = read_head(storage, &mut sections)?;
    let mut scan = Scan::default();
    let stopped = loop {
        let step = sections.head(storage, at).and_then(|head| {
            scan.section(storage, &mut sections, at, &head).map(|more| (head.end(at), more))
        });
        match step {
            Ok((end, true)) => at = end,
            Ok((_, false)) => break None,
            Err(e) => break Some(e),
        }
    };
    let trailer = scan.tally.finish();
    if trailer.events == 0 {
        let what = "not one complete frame of events is left of this file";
        return Err(stopped.unwrap_or_else(|| malformed(at, what)));
    }
    if let Some(error) = stopped {
        header.notes.push(format!(
            "recovered: {} events in {} complete frames, up to byte {at} of {}; there: {}",
            trailer.events,
            trailer.frames.len(),
            storage.len(),
            error.what
        ));
    }
    header.events = Some(trailer.events);
    header.slots = Some(trailer.slots);
    Ok((header, trailer))
}

/// Walks a file section by section.
#[derive(Default)]
struct Scan {
    tally: Tally,
    decoder: FrameDecoder,
    batch: Batch,
    raw: Vec<u8>,
}

impl Scan {
    /// Takes the section at `at`; `false` at the trailer.
    fn section(
        &mut self,
        storage: &Storage,
        sections: &mut SectionReader,
        at: u64,
        head: &SectionHead,
    ) -> Result<bool, TraceError> {
        match head.tag {
            TAIL => {
                sections.payload(storage, at, head)?;
                return match find_tail(storage)? {
                    Some(tail) if tail == at => Ok(false),
                    _ => Err(malformed(storage.len(), "the file does not end with its footer")),
                };
            }
            EVTS => self.frame(storage, sections, at)?,
            tag if tag[0].is_ascii_lowercase() => {
                sections.read(storage, at, tag, &mut self.raw)?;
                let rows = rows::<IgnoredAny>(at, &self.raw)?.len() as u64;
                self.tally.trailer.tables.push(TableSection { tag, offset: at, rows });
            }
            _ => return Err(malformed(at, "no known section starts here")),
        }
        Ok(true)
    }

    fn frame(
        &mut self,
        storage: &Storage,
        sections: &mut SectionReader,
        at: u64,
    ) -> Result<(), TraceError> {
        sections.read(storage, at, EVTS, self.decoder.raw())?;
        self.decoder.start().map_err(|what| malformed(at, what))?;
        let index = FrameIndex {
            offset: at,
            first_event: self.tally.trailer.events,
            events: self.decoder.count() as u32,
            first_time: self.decoder.base(),
        };
        self.batch.clear();
        self.decoder.decode(usize::MAX, &mut self.batch).map_err(|what| malformed(at, what))?;
        self.tally.add(&self.batch.events)?;
        self.tally.trailer.frames.push(index);
        Ok(())
    }
}

/// Checks the prefix and reads the `HEAD` section; also says where the next section starts.
fn read_head(
    storage: &Storage,
    sections: &mut SectionReader,
) -> Result<(TraceHeader, u64), TraceError> {
    let mut prefix = Vec::new();
    storage.read(0, storage.len().min(PREFIX_LEN) as usize, &mut prefix)?;
    let magic = &prefix[..prefix.len().min(MAGIC.len())];
    if magic != MAGIC {
        let what = match MAGIC.starts_with(magic) {
            true => "the file is cut short within its first 8 bytes",
            false if magic.starts_with(&MAGIC[..4]) => {
                "the line ends in the first 8 bytes were changed: copy the file again in binary mode"
            }
            false => "this is not a .pst: it does not start with \\x89PST",
        };
        return Err(malformed(0, what));
    }
    let Some(version) = prefix.get(8..10) else {
        return Err(malformed(8, "the file is cut short before its version"));
    };
    let version = u16::from_le_bytes(version.try_into().expect("two bytes"));
    if version == 0 || version > VERSION {
        let what = format!(
            "the file has .pst version {version}; this poolsim reads versions 1 to {VERSION}. Use a \
             newer poolsim, or write the file again with an older one"
        );
        return Err(TraceError::new(TraceErrorKind::Refused, Place::Byte(8), what));
    }
    let mut raw = Vec::new();
    let head = sections.read(storage, PREFIX_LEN, HEAD, &mut raw)?;
    let header = serde_json::from_slice(&raw)
        .map_err(|e| malformed(PREFIX_LEN, format!("the header cannot be read: {e}")))?;
    Ok((header, head.end(PREFIX_LEN)))
}

fn read_trailer(storage: &Storage, sections: &mut SectionReader) -> Result<Trailer, TraceError> {
    let Some(at) = find_tail(storage)? else {
        let what = "the file does not end with a trailer: it is cut short, or its writer has not \
                    finished. Recovery (--recover) reads it up to the last complete frame";
        return Err(malformed(storage.len(), what));
    };
    let head = sections.head(storage, at)?;
    if head.tag != TAIL || head.end(at) + crate::format::FOOTER_LEN != storage.len() {
        return Err(malformed(at, "the footer names this place as the trailer, and it is none"));
    }
    let payload = sections.payload(storage, at, &head)?;
    let trailer =
        Trailer::decode(payload).ok_or_else(|| malformed(at, "the trailer cannot be read"))?;
    let indexed: u64 = trailer.frames.last().map_or(0, |f| f.first_event + u64::from(f.events));
    let kinds = trailer.kinds.iter().fold(0u64, |sum, &n| sum.saturating_add(n));
    for (what, found) in [("its index", indexed), ("its kinds", kinds)] {
        if found != trailer.events {
            let what = format!("the trailer counts {} events, {what} {found}", trailer.events);
            return Err(malformed(at, what));
        }
    }
    if u64::from(trailer.slots) > trailer.events {
        let what = format!(
            "the trailer counts {} slots for {} events; slots must be dense",
            trailer.slots, trailer.events
        );
        return Err(malformed(at, what));
    }
    Ok(trailer)
}

//! Reading `.pst`: streaming, seekable by frame, and shared between threads.

use crate::digest::Digest;
use crate::format::{EVTS, FRAM, FrameIndex, STAC, Tag, Trailer, malformed};
use crate::frame::FrameDecoder;
use crate::load;
use crate::section::SectionReader;
use crate::storage::Storage;
use crate::tables::{OwnedTables, rows};
use poolsim_core::error::{Place, TraceErrorKind};
use poolsim_core::stack::{Frame, StackId};
use poolsim_core::trace::BATCH;
use poolsim_core::{Batch, EventSource, Nanos, Trace, TraceError, TraceHeader};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Streams the events of a `.pst`. Holds one decompressed frame, at most a mebibyte. A clone starts at the
/// first event and shares the open file.
pub struct PstReader {
    shared: Arc<Shared>,
    sections: SectionReader,
    decoder: Box<FrameDecoder>,
    next_frame: usize,
    /// Time of the last event that was handed out, for frames that follow it.
    last: Nanos,
}

struct Shared {
    path: Option<PathBuf>,
    storage: Storage,
    header: TraceHeader,
    trailer: Trailer,
}

impl std::fmt::Debug for PstReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PstReader")
            .field("path", &self.shared.path)
            .field("events", &self.shared.trailer.events)
            .finish_non_exhaustive()
    }
}

impl Clone for PstReader {
    fn clone(&self) -> Self {
        PstReader::at_start(self.shared.clone())
    }
}

impl PstReader {
    /// Opens a file.
    ///
    /// # Errors
    /// Damaged, cut short, of a newer version, or not a `.pst` at all.
    pub fn open(path: &Path) -> Result<PstReader, TraceError> {
        PstReader::from_storage(open_file(path)?, Some(path.into()))
    }

    /// Opens a file that is held in memory.
    ///
    /// # Errors
    /// As [`PstReader::open`].
    pub fn from_bytes(bytes: Vec<u8>) -> Result<PstReader, TraceError> {
        PstReader::from_storage(Storage::Bytes(bytes), None)
    }

    /// Opens what is left of a file whose writer did not finish: every frame up to the first one that is
    /// not complete. What was lost is a note in the header; side tables may be missing.
    ///
    /// # Errors
    /// The header is not complete, or not even one frame is.
    pub fn recover(path: &Path) -> Result<PstReader, TraceError> {
        PstReader::recover_storage(open_file(path)?, Some(path.into()))
    }

    /// As [`PstReader::recover`], of bytes in memory.
    ///
    /// # Errors
    /// As [`PstReader::recover`].
    pub fn recover_bytes(bytes: Vec<u8>) -> Result<PstReader, TraceError> {
        PstReader::recover_storage(Storage::Bytes(bytes), None)
    }

    pub(crate) fn from_storage(
        storage: Storage,
        path: Option<PathBuf>,
    ) -> Result<PstReader, TraceError> {
        let (header, trailer) = load::load(&storage).map_err(|e| named(e, path.as_deref()))?;
        Ok(PstReader::at_start(Arc::new(Shared { path, storage, header, trailer })))
    }

    pub(crate) fn recover_storage(
        storage: Storage,
        path: Option<PathBuf>,
    ) -> Result<PstReader, TraceError> {
        let (header, trailer) = load::recover(&storage).map_err(|e| named(e, path.as_deref()))?;
        Ok(PstReader::at_start(Arc::new(Shared { path, storage, header, trailer })))
    }

    fn at_start(shared: Arc<Shared>) -> PstReader {
        PstReader {
            shared,
            sections: SectionReader::new(),
            decoder: Box::default(),
            next_frame: 0,
            last: 0,
        }
    }

    /// A second reader at the first event.
    pub fn reopen(&self) -> PstReader {
        self.clone()
    }

    /// What the trailer says.
    pub fn trailer(&self) -> &Trailer {
        &self.shared.trailer
    }

    /// The digest of the events, as written; not recomputed.
    pub fn digest(&self) -> Digest {
        self.shared.trailer.digest
    }

    /// Goes to the event with this index; the next [`EventSource::fill`] starts there. At or past the end
    /// nothing follows.
    ///
    /// # Errors
    /// The frame that holds the event is damaged.
    pub fn seek(&mut self, event: u64) -> Result<(), TraceError> {
        let frames = &self.shared.trailer.frames;
        let frame = frames.partition_point(|f| f.first_event + u64::from(f.events) <= event);
        self.next_frame = frame;
        self.last = 0;
        self.decoder.raw();
        let Some(index) = frames.get(frame) else { return Ok(()) };
        let skip = (event - index.first_event) as usize;
        self.load_frame()?;
        let mut batch = Batch::default();
        self.decode(skip, &mut batch)
    }

    /// The side tables: stacks, annotations, the initial heap.
    ///
    /// # Errors
    /// A damaged section.
    pub fn tables(&self) -> Result<OwnedTables, TraceError> {
        let mut tables = OwnedTables::default();
        for section in &self.shared.trailer.tables {
            if !section.tag[0].is_ascii_lowercase() {
                let what = format!(
                    "the section `{}` is needed to read this file, and this version of poolsim does \
                     not know it; use a newer one",
                    crate::format::show_tag(section.tag)
                );
                return Err(self.in_file(malformed(section.offset, what)));
            }
            let raw = self.table(section.tag, section.offset)?;
            tables.add(section.tag, section.offset, &raw).map_err(|e| self.in_file(e))?;
        }
        Ok(tables)
    }

    /// One stack, innermost call first, read without the rest of the table; empty for an unknown id.
    ///
    /// # Errors
    /// A damaged section.
    pub fn stack(&self, id: StackId) -> Result<Vec<Frame>, TraceError> {
        let Some(row) = u64::from(id.0).checked_sub(1) else { return Ok(Vec::new()) };
        let Some(numbers) = self.row::<Vec<u32>>(STAC, row)? else { return Ok(Vec::new()) };
        let mut frames = Vec::with_capacity(numbers.len());
        for number in numbers {
            let frame = self.row::<(String, String, u32)>(FRAM, u64::from(number))?;
            frames.extend(frame.map(|(name, file, line)| Frame { name, file, line }));
        }
        Ok(frames)
    }

    fn row<T: serde::de::DeserializeOwned>(
        &self,
        tag: Tag,
        mut row: u64,
    ) -> Result<Option<T>, TraceError> {
        for section in self.shared.trailer.tables.iter().filter(|s| s.tag == tag) {
            if row < section.rows {
                let raw = self.table(tag, section.offset)?;
                let rows = rows::<T>(section.offset, &raw).map_err(|e| self.in_file(e))?;
                return Ok(rows.into_iter().nth(row as usize));
            }
            row -= section.rows;
        }
        Ok(None)
    }

    fn table(&self, tag: Tag, offset: u64) -> Result<Vec<u8>, TraceError> {
        let mut raw = Vec::new();
        SectionReader::new()
            .read(&self.shared.storage, offset, tag, &mut raw)
            .map_err(|e| self.in_file(e))?;
        Ok(raw)
    }

    fn load_frame(&mut self) -> Result<(), TraceError> {
        let index = self.shared.trailer.frames[self.next_frame];
        let loaded = self
            .sections
            .read(&self.shared.storage, index.offset, EVTS, self.decoder.raw())
            .and_then(|_| self.decoder.start().map_err(|what| frame_error(&index, what)));
        loaded.map_err(|e| self.in_file(e))?;
        let (count, base, slots) =
            (self.decoder.count() as u64, self.decoder.base(), self.decoder.slot_bound());
        let bound = u64::from(self.shared.trailer.slots).min(index.first_event + count);
        let what = if count != u64::from(index.events) {
            format!("the frame holds {count} events, the trailer says {}", index.events)
        } else if base != index.first_time {
            format!("the frame starts at {base} ns, the trailer says {} ns", index.first_time)
        } else if base < self.last {
            format!("time runs backwards, from {} to {base} ns", self.last)
        } else if slots > bound {
            format!("the frame has slot {}; at most {bound} slots can be in use here", slots - 1)
        } else {
            self.next_frame += 1;
            return Ok(());
        };
        self.decoder.raw();
        Err(self.in_file(frame_error(&index, what)))
    }

    fn decode(&mut self, most: usize, batch: &mut Batch) -> Result<(), TraceError> {
        let frame = self.next_frame - 1;
        let decoded = self.decoder.decode(most, batch);
        if let Some(event) = batch.events.last() {
            self.last = event.at;
        }
        decoded.map_err(|what| {
            self.decoder.raw();
            self.in_file(frame_error(&self.shared.trailer.frames[frame], what))
        })
    }

    fn in_file(&self, error: TraceError) -> TraceError {
        named(error, self.shared.path.as_deref())
    }
}

impl EventSource for PstReader {
    fn header(&self) -> &TraceHeader {
        &self.shared.header
    }

    fn fill(&mut self, batch: &mut Batch) -> Result<bool, TraceError> {
        batch.clear();
        if self.decoder.left() == 0 {
            if self.next_frame == self.shared.trailer.frames.len() {
                return Ok(false);
            }
            self.load_frame()?;
        }
        self.decode(BATCH, batch)?;
        Ok(true)
    }
}

/// Reads the whole trace into memory.
///
/// # Errors
/// Those of the reader.
pub fn read_all(mut reader: PstReader) -> Result<Trace, TraceError> {
    let tables = reader.tables()?;
    reader.seek(0)?;
    let mut trace = Trace {
        header: reader.header().clone(),
        stacks: tables.stacks,
        annotations: tables.annotations,
        initial_heap: tables.initial_heap,
        ..Trace::default()
    };
    let mut batch = Batch::default();
    while reader.fill(&mut batch)? {
        if !batch.stacks.is_empty() {
            trace.event_stacks.resize(trace.events.len(), StackId::NONE);
            trace.event_stacks.extend_from_slice(&batch.stacks);
        }
        trace.events.extend_from_slice(&batch.events);
    }
    if !trace.event_stacks.is_empty() {
        trace.event_stacks.resize(trace.events.len(), StackId::NONE);
    }
    Ok(trace)
}

fn open_file(path: &Path) -> Result<Storage, TraceError> {
    let opened = File::open(path).and_then(Storage::of_file);
    opened.map_err(|e| {
        let what = format!("cannot be opened: {e}");
        TraceError::new(TraceErrorKind::Io, Place::Whole, what).in_file(path)
    })
}

fn named(error: TraceError, path: Option<&Path>) -> TraceError {
    match path {
        Some(path) => error.in_file(path),
        None => error,
    }
}

fn frame_error(index: &FrameIndex, what: impl Into<String>) -> TraceError {
    let last = index.first_event + u64::from(index.events).saturating_sub(1);
    let what = format!("{} (frame of events {} to {last})", what.into(), index.first_event);
    malformed(index.offset, what)
}

//! Side tables of a `.pst`: JSON arrays in sections of about a mebibyte, so that each can be read alone.

use crate::format::{ANNO, FRAM, HEAP, STAC, Tag, malformed};
use poolsim_core::event::Annotation;
use poolsim_core::heap::{BlockView, HeapImage, RangeView};
use poolsim_core::stack::{Frame, StackId, StackTable};
use poolsim_core::{Nanos, Trace, TraceError};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Uncompressed bytes after which a section ends.
const CHUNK: usize = 1 << 20;

/// What goes along with events: everything of a trace that has no place in an event.
#[derive(Clone, Copy, Default)]
pub struct Tables<'a> {
    /// All stacks; `None` for none.
    pub stacks: Option<&'a StackTable>,
    /// Named spans.
    pub annotations: &'a [Annotation],
    /// The heap before the first event.
    pub initial_heap: Option<&'a HeapImage>,
}

impl<'a> Tables<'a> {
    /// The tables of a trace in memory.
    pub fn of(trace: &'a Trace) -> Self {
        Tables {
            stacks: Some(&trace.stacks),
            annotations: &trace.annotations,
            initial_heap: trace.initial_heap.as_ref(),
        }
    }

    /// Hands out the uncompressed sections in file order: tag, number of rows, payload.
    pub(crate) fn write<E>(
        &self,
        mut section: impl FnMut(Tag, u64, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        if let Some(stacks) = self.stacks {
            let frames = stacks.frames().iter().map(|f| (&f.name, &f.file, f.line));
            write_rows(FRAM, frames, &mut section)?;
            let count = u32::try_from(stacks.stack_count()).expect("stack ids are 32 bits wide");
            let rows = (1..count).map(|id| stacks.frame_numbers(StackId(id)));
            write_rows(STAC, rows, &mut section)?;
        }
        let annotations = self.annotations.iter().map(|a| (&a.name, a.start, a.end));
        write_rows(ANNO, annotations, &mut section)?;
        if let Some(heap) = self.initial_heap {
            if heap.ranges.is_empty() {
                section(HEAP, 0, b"[]")?;
            }
            write_rows(HEAP, heap.ranges.iter(), &mut section)?;
        }
        Ok(())
    }
}

fn write_rows<T: Serialize, E>(
    tag: Tag,
    rows: impl Iterator<Item = T>,
    section: &mut impl FnMut(Tag, u64, &[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let mut raw = Vec::new();
    let mut count = 0;
    for row in rows {
        raw.push(if raw.is_empty() { b'[' } else { b',' });
        serde_json::to_writer(&mut raw, &row).expect("side tables have string keys only");
        count += 1;
        if raw.len() >= CHUNK {
            raw.push(b']');
            section(tag, count, &raw)?;
            raw.clear();
            count = 0;
        }
    }
    if count > 0 {
        raw.push(b']');
        section(tag, count, &raw)?;
    }
    Ok(())
}

/// The tables of a file, read.
#[derive(Clone, Debug, Default)]
pub struct OwnedTables {
    /// All stacks.
    pub stacks: StackTable,
    /// Named spans.
    pub annotations: Vec<Annotation>,
    /// The heap before the first event.
    pub initial_heap: Option<HeapImage>,
    frame_numbers: Vec<u32>,
}

impl OwnedTables {
    /// The same, to be written.
    pub fn borrow(&self) -> Tables<'_> {
        Tables {
            stacks: Some(&self.stacks),
            annotations: &self.annotations,
            initial_heap: self.initial_heap.as_ref(),
        }
    }

    /// Adds the rows of one section, which starts at `at` in the file. Unknown tags are left out.
    pub(crate) fn add(&mut self, tag: Tag, at: u64, raw: &[u8]) -> Result<(), TraceError> {
        match tag {
            FRAM => {
                for (name, file, line) in rows::<(String, String, u32)>(at, raw)? {
                    self.frame_numbers.push(self.stacks.intern_frame(Frame { name, file, line }));
                }
            }
            STAC => {
                for row in rows::<Vec<u32>>(at, raw)? {
                    self.add_stack(at, &row)?;
                }
            }
            ANNO => {
                let rows = rows::<(String, Nanos, Option<Nanos>)>(at, raw)?;
                let rows =
                    rows.into_iter().map(|(name, start, end)| Annotation { name, start, end });
                self.annotations.extend(rows);
            }
            HEAP => {
                let heap = self.initial_heap.get_or_insert_default();
                heap.ranges.extend(rows::<(RangeView, Vec<BlockView>)>(at, raw)?);
            }
            _ => {}
        }
        Ok(())
    }

    fn add_stack(&mut self, at: u64, row: &[u32]) -> Result<(), TraceError> {
        let numbers: Option<Vec<u32>> =
            row.iter().map(|&f| self.frame_numbers.get(f as usize).copied()).collect();
        let numbers = numbers
            .ok_or_else(|| malformed(at, "a stack names a call that no fram section has"))?;
        let expected = self.stacks.stack_count();
        if self.stacks.intern_stack(&numbers).0 as usize != expected {
            return Err(malformed(at, format!("stack {expected} is the same as an earlier one")));
        }
        Ok(())
    }
}

/// The rows of a section's array.
pub(crate) fn rows<T: DeserializeOwned>(at: u64, raw: &[u8]) -> Result<Vec<T>, TraceError> {
    serde_json::from_slice(raw)
        .map_err(|e| malformed(at, format!("the rows of this section cannot be read: {e}")))
}

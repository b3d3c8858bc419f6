//! Reading one section of a `.pst`, with every claim checked before memory is taken for it.

use crate::format::{
    EVTS, FOOTER_LEN, HEAD, HEADER_DICTIONARY, MAX_FRAME_RAW, MAX_TABLE_RAW, PREFIX_LEN,
    SECTION_HEAD, TAIL, Tag, checksum, malformed, show_tag,
};
use crate::storage::Storage;
use crate::varint;
use poolsim_core::TraceError;

/// Most bytes of a `TAIL` payload: an index of three million frames, or 50 billion events.
const MAX_TAIL: u64 = 64 << 20;

/// The head of a section.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SectionHead {
    pub tag: Tag,
    pub length: u32,
    pub crc: u32,
}

impl SectionHead {
    /// Where the section after this one starts.
    pub fn end(&self, at: u64) -> u64 {
        at + SECTION_HEAD + u64::from(self.length)
    }
}

/// Reads sections, reusing its memory.
pub(crate) struct SectionReader {
    payload: Vec<u8>,
    decompressor: zstd::bulk::Decompressor<'static>,
}

impl SectionReader {
    pub fn new() -> Self {
        let decompressor = zstd::bulk::Decompressor::new();
        SectionReader {
            payload: Vec::new(),
            decompressor: decompressor.expect("a decompressor without dictionary can be made"),
        }
    }

    /// The head of the section at `at`.
    pub fn head(&mut self, storage: &Storage, at: u64) -> Result<SectionHead, TraceError> {
        let end = at.checked_add(SECTION_HEAD);
        if at < PREFIX_LEN || end.is_none_or(|end| end > storage.len()) {
            return Err(malformed(at, "a section is said to start here, outside of the file"));
        }
        storage.read(at, SECTION_HEAD as usize, &mut self.payload)?;
        let word =
            |i: usize| u32::from_le_bytes(self.payload[i..i + 4].try_into().expect("four bytes"));
        let tag = self.payload[..4].try_into().expect("four bytes");
        Ok(SectionHead { tag, length: word(4), crc: word(8) })
    }

    /// The checked, still compressed payload.
    pub fn payload(
        &mut self,
        storage: &Storage,
        at: u64,
        head: &SectionHead,
    ) -> Result<&[u8], TraceError> {
        let name = show_tag(head.tag);
        let limit = if head.tag == TAIL { MAX_TAIL } else { MAX_TABLE_RAW + (1 << 20) };
        if u64::from(head.length) > limit {
            let what = format!(
                "the {name} section claims {} bytes; at most {limit} are read",
                head.length
            );
            return Err(malformed(at, what));
        }
        if head.end(at) > storage.len() {
            let have = storage.len() - (at + SECTION_HEAD);
            let what = format!("the {name} section claims {} bytes, {have} are left", head.length);
            return Err(malformed(at, what));
        }
        storage.read(at + SECTION_HEAD, head.length as usize, &mut self.payload)?;
        let crc = checksum(head.tag, head.length.to_le_bytes(), &self.payload);
        if crc != head.crc {
            let what = format!(
                "the {name} section is damaged: its checksum is {crc:08x}, {:08x} was written; \
                 fetch the file again",
                head.crc
            );
            return Err(malformed(at, what));
        }
        Ok(&self.payload)
    }

    /// Replaces `raw` by the decompressed payload of the section at `at`, which must have `tag`.
    pub fn read(
        &mut self,
        storage: &Storage,
        at: u64,
        tag: Tag,
        raw: &mut Vec<u8>,
    ) -> Result<SectionHead, TraceError> {
        let head = self.head(storage, at)?;
        if head.tag != tag {
            let (found, wanted) = (show_tag(head.tag), show_tag(tag));
            return Err(malformed(at, format!("a {wanted} section should be here, not `{found}`")));
        }
        self.payload(storage, at, &head)?;
        self.decompress(at, tag, raw)?;
        Ok(head)
    }

    fn decompress(&mut self, at: u64, tag: Tag, raw: &mut Vec<u8>) -> Result<(), TraceError> {
        let name = show_tag(tag);
        let limit = if tag == EVTS { MAX_FRAME_RAW } else { MAX_TABLE_RAW };
        let mut compressed = self.payload.as_slice();
        let length = varint::take(&mut compressed).filter(|&length| length <= limit);
        let length = length.ok_or_else(|| {
            malformed(
                at,
                format!("the {name} section does not say its length, or one above {limit} bytes"),
            )
        })?;
        raw.clear();
        // A decoder may want to pad what it gets.
        raw.reserve_exact(length as usize + 8);
        let found = if tag == HEAD {
            zstd::bulk::Decompressor::with_dictionary(HEADER_DICTIONARY)
                .and_then(|mut decompressor| decompressor.decompress_to_buffer(compressed, raw))
        } else {
            self.decompressor.decompress_to_buffer(compressed, raw)
        };
        match found {
            Ok(found) if found as u64 == length => Ok(()),
            Ok(found) => {
                Err(malformed(at, format!("the {name} section holds {found} bytes, not {length}")))
            }
            Err(e) => Err(malformed(at, format!("the {name} section cannot be decompressed: {e}"))),
        }
    }
}

/// Where the `TAIL` section starts according to the footer; `None` if the file does not end with one.
pub(crate) fn find_tail(storage: &Storage) -> Result<Option<u64>, TraceError> {
    let Some(at) = storage.len().checked_sub(FOOTER_LEN).filter(|&at| at >= PREFIX_LEN) else {
        return Ok(None);
    };
    let mut footer = Vec::new();
    storage.read(at, FOOTER_LEN as usize, &mut footer)?;
    let (length, end) = footer.split_at(4);
    let length = u32::from_le_bytes(length.try_into().expect("four bytes"));
    let found = end == crate::format::END;
    Ok(at.checked_sub(u64::from(length)).filter(|&tail| found && tail >= PREFIX_LEN))
}

//! Reads whole tables of an SQLite file: no queries, no indices, nothing written.
//!
//! A profiler's export is scanned once, front to back. That takes a small part of the file format
//! (<https://sqlite.org/fileformat2.html>), and this part never builds C, never runs SQL from the file, and can
//! say at which byte a damaged file goes wrong.

mod record;
mod schema;

pub(super) use record::{Row, Value};
pub(super) use schema::{Column, Table};

use crate::storage::Storage;
use poolsim_core::TraceError;
use poolsim_core::error::{Place, TraceErrorKind};
use record::varint;

/// The first bytes of every SQLite file.
pub(super) const MAGIC: &[u8; 16] = b"SQLite format 3\0";

/// Levels of a tree; with pages of 512 bytes, twenty hold more rows than there are row numbers.
const MAX_DEPTH: usize = 20;

const WRONG_CELL: &str = "a page of a table has a wrong cell";

/// A database file.
pub(super) struct Database {
    storage: Storage,
    page_size: u64,
    /// Bytes of a page that hold content.
    usable: usize,
    pages: u64,
}

/// An error of a file that does not follow the format.
fn damaged(at: u64, what: &str) -> TraceError {
    let what = format!("the SQLite file is damaged here ({what}); export it again");
    TraceError::new(TraceErrorKind::Malformed, Place::Byte(at), what)
}

impl Database {
    /// Opens a file.
    ///
    /// # Errors
    /// Not SQLite, cut short, or in an encoding other than UTF-8.
    pub fn open(storage: Storage) -> Result<Database, TraceError> {
        let mut head = Vec::new();
        if storage.len() < 512 {
            return Err(damaged(storage.len(), "it is cut short"));
        }
        storage.read(0, 100, &mut head)?;
        let page_size = match u16::from_be_bytes([head[16], head[17]]) {
            1 => 65536,
            size if size >= 512 && size.is_power_of_two() => u64::from(size),
            _ => return Err(damaged(16, "its page size is none")),
        };
        let usable = page_size as usize - usize::from(head[20]);
        if &head[..16] != MAGIC || usable < 480 {
            return Err(damaged(20, "its header is none"));
        }
        if !matches!(u32::from_be_bytes([head[56], head[57], head[58], head[59]]), 0 | 1) {
            let what = "its texts are in UTF-16, which no known exporter writes";
            return Err(TraceError::new(TraceErrorKind::Refused, Place::Byte(56), what));
        }
        let pages = storage.len() / page_size;
        let promised = u64::from(u32::from_be_bytes([head[28], head[29], head[30], head[31]]));
        if promised > pages {
            let what =
                format!("it is cut short: {promised} pages are promised and {pages} are there");
            return Err(damaged(storage.len(), &what));
        }
        Ok(Database { storage, page_size, usable, pages })
    }

    /// The tables.
    ///
    /// # Errors
    /// A damaged file.
    pub fn tables(&self) -> Result<Vec<Table>, TraceError> {
        let mut tables = Vec::new();
        self.scan(1, &mut |row| {
            tables.extend(Table::of(&row));
            Ok(())
        })?;
        Ok(tables)
    }

    /// Hands every row of a table to `take`, in the order of the row numbers.
    ///
    /// # Errors
    /// A damaged file, and those of `take`.
    pub fn rows(
        &self,
        table: &Table,
        take: &mut dyn FnMut(Row<'_>) -> Result<(), TraceError>,
    ) -> Result<(), TraceError> {
        self.scan(table.root, take)
    }

    fn scan(
        &self,
        root: u64,
        take: &mut dyn FnMut(Row<'_>) -> Result<(), TraceError>,
    ) -> Result<(), TraceError> {
        // Pages that are still to be visited, the next one last, with their depth.
        let mut stack = vec![(root, 0)];
        let mut visited = 0;
        let (mut page, mut payload) = (Vec::new(), Vec::new());
        while let Some((number, depth)) = stack.pop() {
            let at = self.read_page(number, &mut page)?;
            visited += 1;
            if visited > self.pages || depth > MAX_DEPTH {
                return Err(damaged(at, "its pages form a circle"));
            }
            let tree = Tree::of(&page, if number == 1 { 100 } else { 0 })
                .ok_or_else(|| damaged(at, "a page of a table is none"))?;
            if !tree.leaf {
                // The last child holds the largest row numbers, so it is visited last.
                stack.push((tree.right, depth + 1));
                for cell in tree.cells(&page).rev() {
                    let child = cell.and_then(|cell| be32(&page, cell));
                    let child = child.ok_or_else(|| damaged(at, WRONG_CELL))?;
                    stack.push((u64::from(child), depth + 1));
                }
                continue;
            }
            for cell in tree.cells(&page) {
                let cell = cell.ok_or_else(|| damaged(at, WRONG_CELL))?;
                let id = self
                    .payload(&page, cell, &mut payload)?
                    .ok_or_else(|| damaged(at + cell as u64, "a row is cut"))?;
                let row = Row::parse(id, &payload)
                    .ok_or_else(|| damaged(at + cell as u64, "a row's columns are none"))?;
                take(row)?;
            }
        }
        Ok(())
    }

    /// Reads a page, and says where it starts.
    fn read_page(&self, number: u64, page: &mut Vec<u8>) -> Result<u64, TraceError> {
        if number == 0 || number > self.pages {
            let what = format!("page {number} is named, and there are {}", self.pages);
            return Err(damaged(self.storage.len(), &what));
        }
        let at = (number - 1) * self.page_size;
        self.storage.read(at, self.page_size as usize, page)?;
        page.truncate(self.usable);
        Ok(at)
    }

    /// Gathers the row at `cell` of a leaf into `payload` and gives its number.
    fn payload(
        &self,
        page: &[u8],
        mut cell: usize,
        payload: &mut Vec<u8>,
    ) -> Result<Option<i64>, TraceError> {
        payload.clear();
        let (Some(length), Some(id)) = (varint(page, &mut cell), varint(page, &mut cell)) else {
            return Ok(None);
        };
        let Ok(length) = usize::try_from(length) else { return Ok(None) };
        if length as u64 > self.pages * self.page_size {
            return Ok(None);
        }
        let local = self.local(length);
        let Some(bytes) = page.get(cell..cell + local) else { return Ok(None) };
        payload.extend_from_slice(bytes);
        if local == length {
            return Ok(Some(id as i64));
        }
        let Some(mut next) = be32(page, cell + local) else { return Ok(None) };
        let mut overflow = Vec::new();
        while payload.len() < length {
            self.read_page(u64::from(next), &mut overflow)?;
            next = be32(&overflow, 0).expect("a page has more than four bytes");
            let rest = (length - payload.len()).min(self.usable - 4);
            payload.extend_from_slice(&overflow[4..4 + rest]);
        }
        Ok(Some(id as i64))
    }

    /// How much of a row of `length` bytes stands in the leaf itself; the formula is the format's.
    fn local(&self, length: usize) -> usize {
        let most = self.usable - 35;
        if length <= most {
            return length;
        }
        let least = (self.usable - 12) * 32 / 255 - 23;
        let local = least + (length - least) % (self.usable - 4);
        if local <= most { local } else { least }
    }
}

/// The head of a page of a table.
struct Tree {
    leaf: bool,
    count: usize,
    /// Where the cells' places stand.
    pointers: usize,
    right: u64,
}

impl Tree {
    fn of(page: &[u8], base: usize) -> Option<Tree> {
        let leaf = match page[base] {
            0x0d => true,
            0x05 => false,
            _ => return None,
        };
        let count = usize::from(be16(page, base + 3)?);
        let pointers = base + if leaf { 8 } else { 12 };
        let right = if leaf { 0 } else { u64::from(be32(page, base + 8)?) };
        (pointers + 2 * count <= page.len()).then_some(Tree { leaf, count, pointers, right })
    }

    /// Where each cell starts; `None` for one outside the page.
    fn cells<'p>(
        &self,
        page: &'p [u8],
    ) -> impl DoubleEndedIterator<Item = Option<usize>> + use<'p> {
        let pointers = self.pointers;
        (0..self.count).map(move |n| {
            let at = usize::from(be16(page, pointers + 2 * n)?);
            (at < page.len()).then_some(at)
        })
    }
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

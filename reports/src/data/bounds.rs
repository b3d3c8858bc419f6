//! What a Parquet file says of itself, checked before anything is allocated for it: the library reserves memory for as many
//! values as the file claims, and a failed reservation ends the program.

use polars_parquet::read::{ColumnChunkMetadata, ParquetType, PhysicalType, read_metadata};
use polars_parquet_format::PageHeader;
use polars_parquet_format::thrift::protocol::TCompactInputProtocol;
use std::io::Cursor;

/// Rows from which on a table is none of ours: the largest that a run writes has a few millions.
const MAX_ROWS: usize = 1 << 28;

/// Cells from which on reading would take more memory than a report may.
const MAX_CELLS: usize = 1 << 29;

/// Bytes of all pages together, unpacked.
const MAX_BYTES: u64 = 4 << 30;

/// Bytes of one page's header.
const MAX_HEADER: usize = 1 << 20;

/// Checks that a file holds what it claims, in claims that are worth reserving memory for.
///
/// # Errors
/// What is wrong, in words.
pub(super) fn check(bytes: &[u8]) -> Result<(), String> {
    let metadata = read_metadata(&mut Cursor::new(bytes)).map_err(|e| e.to_string())?;
    let nested = metadata
        .schema()
        .fields()
        .iter()
        .any(|field| matches!(field, ParquetType::GroupType { .. }));
    if nested {
        return Err("a column is nested, and no table of a run has such".into());
    }
    let (rows, width) = (metadata.num_rows, metadata.schema().fields().len());
    if rows > MAX_ROWS || rows.saturating_mul(width) > MAX_CELLS {
        return Err(format!("says it has {rows} rows, more than a run ever has"));
    }
    let (mut seen, mut unpacked) = (0usize, 0u64);
    for group in &metadata.row_groups {
        seen = seen.saturating_add(group.num_rows());
        if group.parquet_columns().len() != width {
            return Err("a row group has another number of columns than the table".into());
        }
        for column in group.parquet_columns() {
            unpacked = unpacked.saturating_add(chunk(bytes, column, group.num_rows())?);
        }
    }
    if seen != rows {
        return Err(format!("says it has {rows} rows, and its row groups have {seen}"));
    }
    if unpacked > MAX_BYTES {
        return Err(format!("would unpack to {unpacked} bytes, more than a run ever has"));
    }
    Ok(())
}

/// Checks one column of a row group, page by page; the bytes of its pages, unpacked.
fn chunk(bytes: &[u8], column: &ColumnChunkMetadata, rows: usize) -> Result<u64, String> {
    use PhysicalType::{ByteArray, Double, Int64};
    if !matches!(column.physical_type(), Int64 | Double | ByteArray) {
        return Err("a column is of a type that no table of a run has".into());
    }
    let outside = || "a column lies outside the file".to_string();
    let start = column.dictionary_page_offset().unwrap_or(column.data_page_offset());
    let start = usize::try_from(start).map_err(|_| outside())?;
    let length = usize::try_from(column.compressed_size()).map_err(|_| outside())?;
    let end = start.checked_add(length).filter(|end| *end <= bytes.len()).ok_or_else(outside)?;
    if usize::try_from(column.num_values()) != Ok(rows) {
        return Err("a column has another number of values than its row group rows".into());
    }
    let mut pages = Cursor::new(&bytes[start..end]);
    let (mut values, mut unpacked) = (0usize, 0u64);
    while (pages.position() as usize) < length {
        let mut protocol = TCompactInputProtocol::new(&mut pages, MAX_HEADER);
        let header = PageHeader::read_from_in_protocol(&mut protocol).map_err(|e| e.to_string())?;
        let size = |n: i32| u64::try_from(n).map_err(|_| "a page has a negative size".to_string());
        let (packed, whole) =
            (size(header.compressed_page_size)?, size(header.uncompressed_page_size)?);
        unpacked = unpacked.saturating_add(whole);
        let data = header.data_page_header.as_ref().map(|h| h.num_values);
        let data = data.or(header.data_page_header_v2.as_ref().map(|h| h.num_values));
        values = values.saturating_add(size(data.unwrap_or(0))? as usize);
        let words = header.dictionary_page_header.as_ref().map_or(0, |h| h.num_values);
        // A word takes four bytes at least: its length, or its number.
        if size(words)? > whole / 4 {
            return Err("a dictionary says it has more words than fit it".into());
        }
        let next = pages.position().saturating_add(packed);
        if next > length as u64 {
            return Err("a page is longer than its column".into());
        }
        pages.set_position(next);
    }
    if values != rows {
        return Err(format!("a column's pages hold {values} values for {rows} rows"));
    }
    Ok(unpacked)
}

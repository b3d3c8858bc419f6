//! Tables to and from Parquet, by polars.

use super::DataError;
use polars_core::prelude::*;
use polars_io::prelude::*;
use std::io::Cursor;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

/// Rows from which on a table is none of ours: the largest that a run writes has a few millions.
const MAX_ROWS: usize = 1 << 28;

/// Cells from which on reading would take more memory than a report may.
const MAX_CELLS: usize = 1 << 30;

/// A column of whole numbers.
pub(super) fn numbers(name: &str, values: Vec<u64>) -> Column {
    Column::new(name.into(), values)
}

/// A column of whole numbers, some of which are not known.
pub(super) fn some_numbers(name: &str, values: Vec<Option<u64>>) -> Column {
    Column::new(name.into(), values)
}

/// A column of whole numbers with a sign, some of which are not known.
pub(super) fn signed(name: &str, values: Vec<Option<i64>>) -> Column {
    Column::new(name.into(), values)
}

/// A column of text.
pub(super) fn texts<'a>(name: &str, values: impl IntoIterator<Item = &'a str>) -> Column {
    Column::new(name.into(), values.into_iter().collect::<Vec<&str>>())
}

/// A table as the bytes of a file.
pub(super) fn bytes(path: &Path, columns: Vec<Column>) -> Result<Vec<u8>, DataError> {
    let table = |e: PolarsError| DataError::Table { path: path.into(), what: e.to_string() };
    let mut frame = DataFrame::new_infer_height(columns).map_err(table)?;
    let mut bytes = Vec::new();
    ParquetWriter::new(&mut bytes).set_parallel(false).finish(&mut frame).map_err(table)?;
    Ok(bytes)
}

/// A table that was read.
pub(super) struct Table {
    path: PathBuf,
    frame: DataFrame,
}

impl Table {
    /// Reads a table that came from `path`. Its bytes are known to be those that were written: of damaged ones the
    /// library may abort the program.
    pub(super) fn read(path: &Path, bytes: Vec<u8>) -> Result<Table, DataError> {
        let wrong = |what: String| DataError::Table { path: path.into(), what };
        let file = Cursor::new(bytes);
        let read = catch_unwind(AssertUnwindSafe(|| -> Result<DataFrame, String> {
            let mut reader = ParquetReader::new(file).read_parallel(ParallelStrategy::None);
            let rows = reader.num_rows().map_err(|e| e.to_string())?;
            let width = reader.schema().map_err(|e| e.to_string())?.len();
            if rows > MAX_ROWS || rows.saturating_mul(width) > MAX_CELLS {
                return Err(format!("says it has {rows} rows, more than a run ever has"));
            }
            reader.finish().map_err(|e| e.to_string())
        }));
        let frame =
            read.unwrap_or_else(|_| Err("the Parquet reader gave up".into())).map_err(|e| {
                wrong(format!("not a readable Parquet table ({e}); write the run again"))
            })?;
        Ok(Table { path: path.into(), frame })
    }

    /// Number of rows.
    pub(super) fn len(&self) -> usize {
        self.frame.height()
    }

    fn wrong(&self, name: &str, what: impl std::fmt::Display) -> DataError {
        let what = format!("column `{name}`: {what}; docs/runs.md says what a run's tables hold");
        DataError::Table { path: self.path.clone(), what }
    }

    /// A column of numbers without gaps.
    pub(super) fn numbers(&self, name: &str) -> Result<Vec<u64>, DataError> {
        let values = self.some_numbers(name)?;
        values
            .into_iter()
            .collect::<Option<Vec<u64>>>()
            .ok_or_else(|| self.wrong(name, "a value is missing"))
    }

    /// A column of numbers.
    pub(super) fn some_numbers(&self, name: &str) -> Result<Vec<Option<u64>>, DataError> {
        let column = self.frame.column(name).map_err(|e| self.wrong(name, e))?;
        let values = column.u64().map_err(|e| self.wrong(name, e))?;
        Ok(values.iter().collect())
    }

    /// A column of numbers with a sign.
    pub(super) fn signed(&self, name: &str) -> Result<Vec<Option<i64>>, DataError> {
        let column = self.frame.column(name).map_err(|e| self.wrong(name, e))?;
        let values = column.i64().map_err(|e| self.wrong(name, e))?;
        Ok(values.iter().collect())
    }

    /// A column of text without gaps.
    pub(super) fn texts(&self, name: &str) -> Result<Vec<String>, DataError> {
        let column = self.frame.column(name).map_err(|e| self.wrong(name, e))?;
        let values = column.str().map_err(|e| self.wrong(name, e))?;
        values
            .iter()
            .map(|text| {
                text.map(String::from).ok_or_else(|| self.wrong(name, "a value is missing"))
            })
            .collect()
    }

    /// A column whose every value is turned into something by `read`.
    pub(super) fn map<T>(
        &self,
        name: &str,
        read: impl Fn(&str) -> Option<T>,
    ) -> Result<Vec<T>, DataError> {
        let texts = self.texts(name)?;
        let unknown = |text: &str| self.wrong(name, format!("{text:?} is not known"));
        texts.iter().map(|text| read(text).ok_or_else(|| unknown(text))).collect()
    }

    /// The run of each row, checked against the number of runs.
    pub(super) fn runs(&self, count: usize) -> Result<Vec<usize>, DataError> {
        let runs = self.numbers("run")?;
        match runs.iter().find(|run| **run >= count as u64) {
            Some(run) => Err(self.wrong("run", format!("there is no run {run}"))),
            None => Ok(runs.into_iter().map(|run| run as usize).collect()),
        }
    }
}

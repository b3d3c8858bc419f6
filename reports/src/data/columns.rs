//! Tables to and from Parquet, by polars.

use super::{DataError, bounds};
use polars_core::prelude::*;
use polars_io::prelude::*;
use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::sync::Once;

/// Bytes of text in a column from which on a table is none of ours: a dictionary can repeat a long text many times.
const MAX_TEXT: usize = 1 << 30;

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

/// Name of the thread that runs the library, whose panics are errors of the file and not of the program.
const READER: &str = "parquet reader";

/// What `read` returns; a panic of it is an error in words, without a word on standard error.
fn quietly<T: Send + 'static>(
    read: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if std::thread::current().name() != Some(READER) {
                before(info);
            }
        }));
    });
    let thread = std::thread::Builder::new().name(READER.into()).spawn(read);
    let thread = thread.map_err(|e| e.to_string())?;
    thread.join().unwrap_or_else(|_| Err("the Parquet reader gave up".into()))
}

/// A table that was read.
pub(super) struct Table {
    path: PathBuf,
    frame: DataFrame,
}

impl Table {
    /// Reads a table that came from `path`.
    ///
    /// # Errors
    /// It is no Parquet table, or none that a run can have. Memory is taken for what the file holds, not for what it claims.
    pub(super) fn read(path: &Path, bytes: Vec<u8>) -> Result<Table, DataError> {
        let frame = quietly(move || {
            bounds::check(&bytes)?;
            let mut reader =
                ParquetReader::new(Cursor::new(bytes)).read_parallel(ParallelStrategy::None);
            let schema = reader.schema().map_err(|e| e.to_string())?;
            let ours = |kind: &ArrowDataType| {
                use ArrowDataType::{Float64, Int64, LargeUtf8, UInt64, Utf8View};
                matches!(kind, UInt64 | Int64 | Float64 | Utf8View | LargeUtf8)
            };
            if !schema.iter_values().all(|field| ours(&field.dtype)) {
                return Err("a column is of a type that no table of a run has".into());
            }
            reader.finish().map_err(|e| e.to_string())
        });
        let frame = frame.map_err(|e| DataError::Table {
            path: path.into(),
            what: format!("not a readable Parquet table ({e}); write the run again"),
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
        let bytes = values.iter().flatten().try_fold(0usize, |sum, text| {
            sum.checked_add(text.len()).filter(|sum| *sum <= MAX_TEXT)
        });
        if bytes.is_none() {
            return Err(self.wrong(name, "holds more text than a run ever has"));
        }
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

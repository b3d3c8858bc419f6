//! Can a crafted table, whose checksum is right, do more than be refused?

use polars_core::prelude::*;
use polars_io::prelude::*;
use poolsim_core::metric::name;
use poolsim_core::record::Value;
use poolsim_core::*;
use poolsim_reports::data::*;
use proptest::prelude::*;
use sha2::{Digest, Sha256};
use std::sync::LazyLock;
use tempfile::TempDir;

/// The tables of a small run, written once.
static GOOD: LazyLock<Vec<(String, Vec<u8>)>> = LazyLock::new(|| {
    let mut run = Run { label: "a".into(), verdict: "fits".into(), ..Run::default() };
    run.record.set(name::peak_reserved_bytes, Value::Int(7));
    run.series = (0..200u64)
        .map(|n| {
            let at = |n| Levels { requested: n, allocated: n, active: n, reserved: 2 * n };
            let (low, high, last) = (at(n), at(n + 3), at(n % 7));
            Point { first_event: n, last_event: n, first_at: n, last_at: n, low, high, last }
        })
        .collect();
    run.distributions.push(Distribution {
        call: "cuda_malloc".into(),
        source: Source::Modelled,
        steps: (1..90).map(|ns| (ns * ns, ns % 5 + 1)).collect(),
    });
    let tried = (0..60u64).map(|n| (n << 21, n > 9)).collect();
    run.frontier = Some(Frontier { tried, ..Frontier::default() });
    let folder = TempDir::new().unwrap();
    RunSet { runs: vec![run], ..RunSet::default() }.write(folder.path()).unwrap();
    let names = ["results", "series", "latencies", "frontiers"].map(|n| format!("{n}.parquet"));
    names.map(|n| (n.clone(), std::fs::read(folder.path().join(n)).unwrap())).into()
});

/// A folder of good tables but for one, with the checksums of what is in it.
fn read_with(table: usize, bytes: &[u8]) -> Result<RunSet, DataError> {
    let folder = TempDir::new().unwrap();
    let mut sums = String::new();
    for (i, (name, good)) in GOOD.iter().enumerate() {
        let bytes = if i == table { bytes } else { good };
        std::fs::write(folder.path().join(name), bytes).unwrap();
        let sum: String = Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect();
        sums += &format!("{sum}  {name}\n");
    }
    std::fs::write(folder.path().join("SHA256SUMS"), sums).unwrap();
    RunSet::read(folder.path())
}

fn footer(bytes: &[u8]) -> usize {
    let length: [u8; 4] = bytes[bytes.len() - 8..bytes.len() - 4].try_into().unwrap();
    bytes.len() - 8 - u32::from_le_bytes(length) as usize
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    /// Whatever bytes are changed, the answer is runs or an error that names the table: no panic, no abort, no word on
    /// standard error. Large numbers are what claims memory, so they are tried often, in the footer most of all.
    #[test]
    fn changed_tables_are_read_or_refused(
        table in 0usize..4,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<bool>(), any::<u8>(), 0usize..10), 1..4),
    ) {
        let (name, good) = &GOOD[table];
        let mut bytes = good.clone();
        let start = footer(&bytes);
        for (at, in_footer, value, long) in changes {
            let first = if in_footer { start } else { 0 };
            let at = first + at.index(bytes.len() - first);
            // A number of many digits, as Thrift writes it, or a byte.
            for i in at..(at + long).min(bytes.len()) {
                bytes[i] = 0xff;
            }
            let last = (at + long).min(bytes.len() - 1);
            bytes[last] = value & 0x7f;
        }
        if let Err(error) = read_with(table, &bytes) {
            prop_assert!(error.to_string().contains(name.as_str()), "{}", error);
        }
    }
}

/// A table as polars writes it.
fn written(columns: Vec<Column>) -> Vec<u8> {
    let mut frame = DataFrame::new_infer_height(columns).unwrap();
    let mut bytes = Vec::new();
    ParquetWriter::new(&mut bytes).finish(&mut frame).unwrap();
    bytes
}

#[test]
fn a_text_that_is_repeated_without_end_is_refused() {
    let text = "x".repeat(1 << 16);
    let texts = Column::new("call".into(), vec![text.as_str(); 1 << 15]);
    let numbers = |name: &str| Column::new(name.into(), vec![0u64; 1 << 15]);
    let bytes = written(vec![numbers("run"), texts, numbers("time_ns"), numbers("calls")]);
    assert!(bytes.len() < 1 << 20, "the point is that it is small: {}", bytes.len());
    let error = read_with(2, &bytes).unwrap_err().to_string();
    assert!(error.contains("more text than a run ever has"), "{error}");
}

#[test]
fn columns_of_other_types_are_refused() {
    let lists = Series::new("run".into(), [Series::new("a".into(), [1u64, 2])]).into_column();
    let flags = Column::new("run".into(), vec![true, false]);
    for column in [lists, flags] {
        let error = read_with(2, &written(vec![column])).unwrap_err().to_string();
        assert!(error.contains("no table of a run has"), "{error}");
    }
}

/// Wherever a file says how many rows it has, another number is found out.
#[test]
fn false_numbers_of_rows_are_refused() {
    let good = written(vec![Column::new("run".into(), vec![0u64; 1000])]);
    let start = footer(&good);
    // The footer's third field is the number of rows: 1000 as Thrift writes it, in the row group too.
    let rows = [0xd0, 0x0f];
    let places: Vec<usize> = (start..good.len() - 1).filter(|&i| good[i..i + 2] == rows).collect();
    assert!(!places.is_empty());
    for at in places {
        let mut bytes = good.clone();
        bytes[at] = 0xd2;
        let error = read_with(2, &bytes).unwrap_err().to_string();
        assert!(error.contains("latencies.parquet: not a readable"), "{error}");
    }
}

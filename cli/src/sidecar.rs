//! The JSON file that may lie beside a recording and say what recordings do not hold.

use anyhow::Context;
use poolsim_core::Bytes;
use serde_json::{Map, Value};
use std::fs;
use std::path::{Path, PathBuf};

/// Larger files beside a trace are not looked into: a sidecar is small, a dumped trace may not be.
const MAX_LEN: u64 = 64 << 20;

/// Keys that only a sidecar has.
const KEYS: &[&str] =
    &["memory_fraction", "limit_gib", "total_memory", "device_memory", "torch", "conf", "stats"];

/// Keys that only a trace has.
const TRACE_KEYS: &[&str] = &["segments", "device_traces", "poolsim_trace", "traceEvents"];

/// What a sidecar says. Keys that poolsim does not know are left alone.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sidecar {
    /// The file.
    pub path: PathBuf,
    /// `memory_fraction`; or `limit_gib` as a share of `total_memory`.
    pub memory_fraction: Option<f64>,
    /// `total_memory` or `device_memory`, in bytes.
    pub device_memory: Option<Bytes>,
    /// `device`: the GPU's name.
    pub device_name: Option<String>,
    /// `torch`: the version.
    pub torch: Option<String>,
    /// `conf`: the value of `PYTORCH_CUDA_ALLOC_CONF`.
    pub conf: Option<String>,
    /// `stats`: what `torch.cuda.memory_stats()` returned when the recording was written.
    pub stats: Vec<(String, i64)>,
}

impl Sidecar {
    /// The sidecar of a trace: the same name with `.json` in place of its ending (`run.pickle.zst`:
    /// `run.json`). `None` if there is no such file, or if it is something else.
    ///
    /// # Errors
    /// If it is a sidecar whose values cannot be used.
    pub fn beside(trace: &Path) -> anyhow::Result<Option<Sidecar>> {
        let Some(path) = path_beside(trace) else { return Ok(None) };
        let Ok(meta) = fs::metadata(&path) else { return Ok(None) };
        if !meta.is_file() || meta.len() > MAX_LEN {
            return Ok(None);
        }
        let text = fs::read(&path).with_context(|| path.display().to_string())?;
        let Ok(Value::Object(values)) = serde_json::from_slice(&text) else { return Ok(None) };
        let has = |keys: &[&str]| keys.iter().any(|key| values.contains_key(*key));
        if has(TRACE_KEYS) || !has(KEYS) {
            return Ok(None);
        }
        read(&path, &values).map(Some)
    }
}

/// Where the sidecar of a trace would be.
pub fn path_beside(trace: &Path) -> Option<PathBuf> {
    let name = trace.file_name()?.to_str()?;
    let plain =
        [".zst", ".gz", ".xz"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
    let stem = plain.rsplit_once('.').map_or(plain, |(stem, _)| stem);
    let path = trace.with_file_name(format!("{stem}.json"));
    (path != trace && !stem.is_empty()).then_some(path)
}

fn read(path: &Path, values: &Map<String, Value>) -> anyhow::Result<Sidecar> {
    let wrong = |key: &str, wanted: &str| {
        anyhow::anyhow!("{}: `{key}` must be {wanted}; correct or remove it", path.display())
    };
    let number = |key: &str| match values.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(v) => match v.as_f64() {
            Some(x) if x >= 0.0 && x.is_finite() => Ok(Some(x)),
            _ => Err(wrong(key, "a number that is not negative")),
        },
    };
    let bytes = |key: &str| match values.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(v) => v.as_u64().filter(|n| *n > 0).map(Some).ok_or_else(|| wrong(key, "bytes")),
    };
    // The GPU's name; other tools write its number there.
    let text = |key: &str| values.get(key).and_then(Value::as_str).map(String::from);
    let device_memory = bytes("total_memory")?.or(bytes("device_memory")?);
    let memory_fraction = match (number("memory_fraction")?, number("limit_gib")?, device_memory) {
        (Some(fraction), ..) => Some(fraction),
        // In floating point as the recording program computes it: the limit is cut to whole bytes later.
        (None, Some(gib), Some(total)) => Some(gib * (1u64 << 30) as f64 / total as f64),
        (None, Some(_), None) => {
            return Err(wrong(
                "limit_gib",
                "accompanied by `total_memory`, which it is a share of",
            ));
        }
        (None, None, _) => None,
    };
    if memory_fraction.is_some_and(|fraction| fraction > 1.0) {
        return Err(wrong("memory_fraction", "at most 1 (`limit_gib` at most `total_memory`)"));
    }
    let stats = match values.get("stats") {
        Some(Value::Object(stats)) => {
            stats.iter().filter_map(|(k, v)| Some((k.clone(), v.as_i64()?))).collect()
        }
        _ => Vec::new(),
    };
    Ok(Sidecar {
        path: path.into(),
        memory_fraction,
        device_memory,
        device_name: text("device"),
        torch: text("torch"),
        conf: text("conf"),
        stats,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn beside(name: &str, sidecar: &str) -> anyhow::Result<Option<Sidecar>> {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("run.json"), sidecar).unwrap();
        Sidecar::beside(&folder.path().join(name))
    }

    #[test]
    fn it_is_found_under_the_traces_name() {
        for name in ["run.pickle.zst", "run.pickle", "run.pkl.gz", "run.pst", "run"] {
            let found = beside(name, r#"{"total_memory": 1024, "limit_gib": null}"#).unwrap();
            assert_eq!(found.map(|s| s.device_memory), Some(Some(1024)), "{name}");
        }
        for name in ["run.json", "other.pickle", "run.x.pickle"] {
            assert_eq!(beside(name, r#"{"total_memory": 1024}"#).unwrap(), None, "{name}");
        }
    }

    #[test]
    fn a_trace_is_no_sidecar() {
        for text in [
            r#"{"segments": [], "device_traces": [], "total_memory": 5}"#,
            r#"{"poolsim_trace": 1, "device_memory": 5, "events": []}"#,
            r#"{"anything": 1}"#,
            "[1, 2]",
            "not JSON",
            "",
        ] {
            assert_eq!(beside("run.pickle", text).unwrap(), None, "{text}");
        }
    }

    #[test]
    fn a_limit_is_a_share_of_the_total_as_the_program_computed_it() {
        let text =
            r#"{"limit_gib": 12.5, "total_memory": 150109880320, "stats": {"a": 1, "b": "x"}}"#;
        let sidecar = beside("run.pickle", text).unwrap().unwrap();
        assert_eq!(sidecar.memory_fraction, Some(12.5 * 1_073_741_824.0 / 150_109_880_320.0));
        assert_eq!(sidecar.stats, [("a".to_string(), 1)]);
    }

    #[test]
    fn values_that_cannot_be_used_are_errors_that_name_file_and_key() {
        for text in [
            r#"{"memory_fraction": "half"}"#,
            r#"{"memory_fraction": 1.5}"#,
            r#"{"limit_gib": 4}"#,
            r#"{"total_memory": -1}"#,
        ] {
            let error = beside("run.pickle", text).unwrap_err().to_string();
            assert!(error.contains("run.json") && error.contains('`'), "{error}");
        }
    }
}

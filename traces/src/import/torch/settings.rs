//! Allocator settings of a snapshot: the settings string, and the parsed fields beside it.
//!
//! The fields are what the allocator went by; the string can be empty or stale (settings changed at run
//! time, a build that ignores an option). Where they disagree, the string is made to say what the fields say.

use super::assemble::text_of;
use super::words as w;
use crate::pickle::{Objects, Value};
use std::collections::BTreeMap;

const MIB: i64 = 1 << 20;
/// Buckets of `roundup_power2_divisions`: 1 MiB to 32 GiB.
const BUCKETS: usize = 16;

/// What `allocator_settings` says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// `PYTORCH_CUDA_ALLOC_CONF` as it was last set.
    pub conf: Option<String>,
    /// In bytes, -1 for no limit.
    pub max_split_size: Option<i64>,
    /// 0 for off.
    pub gc_threshold: Option<f64>,
    /// Whether expandable segments are on.
    pub expandable: Option<bool>,
    /// Divisions by bucket, 0 for none.
    pub roundup: Option<[u64; BUCKETS]>,
    /// Recorded by torch_npu, for Ascend devices.
    pub npu: bool,
    extra: BTreeMap<String, String>,
}

impl Settings {
    /// What the names of attributes that hold further settings start with.
    pub const ATTRIBUTE: &str = "allocator_settings.";

    /// The settings that follow from a settings string alone.
    pub fn of_conf(conf: &str) -> Settings {
        let options = options(conf);
        let get = |key| options.iter().rev().find(|(k, _)| k == key).map(|(_, v)| v.as_str());
        Settings {
            conf: Some(conf.into()),
            max_split_size: Some(get(SPLIT).and_then(leading).map_or(-1, |mib| mib * MIB)),
            gc_threshold: Some(get(GC).and_then(|v| v.parse().ok()).unwrap_or(0.0)),
            expandable: Some(get(EXPANDABLE) == Some("True")),
            roundup: Some(get(ROUNDUP).map_or([0; BUCKETS], buckets)),
            npu: false,
            extra: BTreeMap::new(),
        }
    }

    /// Reads the settings dict; all unknown if there is none.
    pub fn read(value: Value, objects: &Objects) -> Settings {
        let mut settings = Settings::default();
        for pair in objects.pairs(value).unwrap_or(&[]).chunks_exact(2) {
            let (Value::Text(key), value) = (pair[0], pair[1]) else { continue };
            match (key, value) {
                (w::CONF, Value::Text(text)) => {
                    settings.conf = Some(objects.texts.get(text).to_owned());
                }
                (w::NPU_CONF, Value::Text(text)) => {
                    settings.npu = true;
                    settings.conf = Some(settings.npu_conf(objects.texts.get(text)));
                }
                (w::MAX_SPLIT_SIZE, Value::Int(n)) => {
                    settings.max_split_size = Some(if n < 0 || n == i64::MAX { -1 } else { n });
                }
                (w::MAX_SPLIT_SIZE, Value::Big(_)) => settings.max_split_size = Some(-1),
                (w::GC_THRESHOLD, Value::Float(f)) => settings.gc_threshold = Some(f),
                (w::GC_THRESHOLD, Value::Int(n)) => settings.gc_threshold = Some(n as f64),
                (w::EXPANDABLE_SEGMENTS, Value::Bool(b)) => settings.expandable = Some(b),
                (w::ROUNDUP, value) => settings.roundup = read_buckets(value, objects),
                (_, value) => {
                    let name = objects.texts.get(key);
                    if let Some(text) = shown(name, value, objects) {
                        settings.extra.insert(format!("{}{name}", Settings::ATTRIBUTE), text);
                    }
                }
            }
        }
        settings
    }

    /// The settings in force, in the syntax of `PYTORCH_CUDA_ALLOC_CONF`; `None` if nothing is known.
    pub fn in_force(&self, notes: &mut Vec<String>) -> Option<String> {
        let conf = self.conf.as_deref().unwrap_or("");
        let says = Settings::of_conf(conf);
        let mut options = options(conf);
        let mut changed = Vec::new();
        let mut put = |key: &str, value: Option<String>| {
            options.retain(|(k, _)| k != key);
            changed.push(match &value {
                Some(value) => format!("{key}:{value}"),
                None => format!("no {key}"),
            });
            options.extend(value.map(|v| (key.to_owned(), v)));
        };
        if self.max_split_size.is_some_and(|n| says.max_split_size != Some(n)) {
            let n = self.max_split_size.unwrap_or(-1);
            put(SPLIT, (n >= 0).then(|| (n / MIB).to_string()));
        }
        if self.gc_threshold.is_some_and(|t| says.gc_threshold != Some(t)) {
            put(GC, self.gc_threshold.filter(|&t| t > 0.0).map(|t| t.to_string()));
        }
        if self.expandable.is_some_and(|b| says.expandable != Some(b)) {
            put(EXPANDABLE, (self.expandable == Some(true)).then(|| "True".into()));
        }
        if let Some(divisions) = self.roundup.filter(|d| says.roundup != Some(*d)) {
            put(ROUNDUP, write_buckets(&divisions));
        }
        if changed.is_empty() {
            return self.conf.clone().or_else(|| self.any_field().then(String::new));
        }
        notes.push(format!(
            "the settings string `{}` does not say what was in force; by the fields beside it: {}",
            conf.escape_debug(),
            changed.join(", ")
        ));
        let joined: Vec<String> = options.iter().map(|(k, v)| format!("{k}:{v}")).collect();
        Some(joined.join(","))
    }

    /// The options of torch_npu that are PyTorch's too; its own ones are kept as attributes.
    fn npu_conf(&mut self, conf: &str) -> String {
        let (shared, own): (Vec<_>, Vec<_>) = options(conf)
            .into_iter()
            .partition(|(key, _)| [SPLIT, GC, EXPANDABLE, ROUNDUP].contains(&key.as_str()));
        let own = own.into_iter().map(|(key, value)| (format!("torch_npu.{key}"), value));
        self.extra.extend(own);
        let shared: Vec<String> = shared.iter().map(|(k, v)| format!("{k}:{v}")).collect();
        shared.join(",")
    }

    /// Further settings, for the trace's attributes.
    pub fn attributes(&self) -> BTreeMap<String, String> {
        self.extra.clone()
    }

    fn any_field(&self) -> bool {
        self.max_split_size.is_some() || self.gc_threshold.is_some() || self.expandable.is_some()
    }
}

const SPLIT: &str = "max_split_size_mb";
const GC: &str = "garbage_collection_threshold";
const EXPANDABLE: &str = "expandable_segments";
const ROUNDUP: &str = "roundup_power2_divisions";

/// `key:value` options; commas inside brackets do not part them, and white space does not count.
fn options(conf: &str) -> Vec<(String, String)> {
    let conf: String = conf.chars().filter(|c| !c.is_whitespace()).collect();
    let mut depth = 0u32;
    let parts = conf.split(|c| {
        match c {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    });
    parts
        .filter(|part| !part.is_empty())
        .map(|part| match part.split_once(':') {
            Some((key, value)) => (key.to_owned(), value.to_owned()),
            None => (part.to_owned(), String::new()),
        })
        .collect()
}

/// The number that a text starts with, as C++'s `stoull` reads it.
fn leading(text: &str) -> Option<i64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    text[..digits].parse().ok().filter(|&n| n < i64::MAX / MIB)
}

/// The 16 divisions that a `roundup_power2_divisions` value means (pytorch 2.10 and newer).
fn buckets(value: &str) -> [u64; BUCKETS] {
    let mut out = [0; BUCKETS];
    let Some(list) = value.strip_prefix('[').and_then(|v| v.strip_suffix(']')) else {
        return [leading(value).unwrap_or(0) as u64; BUCKETS];
    };
    let mut last = None;
    for item in list.split(',') {
        let Some((bound, divisions)) = item.split_once(':') else { continue };
        let divisions = leading(divisions).unwrap_or(0) as u64;
        if bound == ">" {
            let from = last.map_or(1, |n: usize| n + 1).min(BUCKETS);
            out[from..].fill(divisions);
        } else if let Some(mib) = leading(bound).filter(|&n| n > 0) {
            let bucket = (mib.ilog2() as usize).min(BUCKETS - 1);
            let from = if last.is_none() { 0 } else { bucket };
            out[from..=bucket].fill(divisions);
            last = Some(bucket);
        }
    }
    out
}

fn write_buckets(divisions: &[u64; BUCKETS]) -> Option<String> {
    if divisions.iter().all(|&d| d == 0) {
        return None;
    }
    if divisions.iter().all(|&d| d == divisions[0]) {
        return Some(divisions[0].to_string());
    }
    let items: Vec<String> =
        divisions.iter().enumerate().map(|(n, d)| format!("{}:{d}", 1u64 << n)).collect();
    Some(format!("[{}]", items.join(",")))
}

fn read_buckets(value: Value, objects: &Objects) -> Option<[u64; BUCKETS]> {
    let mut out = [0; BUCKETS];
    for pair in objects.pairs(value)?.chunks_exact(2) {
        let Value::Int(divisions) = pair[1] else { continue };
        let mib: u64 = text_of(pair[0], objects)?.parse().ok()?;
        let bucket = mib.checked_ilog2()? as usize;
        *out.get_mut(bucket)? = u64::try_from(divisions).ok()?;
    }
    Some(out)
}

/// A further setting, if it says something: what is off or at its default is left out.
fn shown(name: &str, value: Value, objects: &Objects) -> Option<String> {
    match value {
        Value::Bool(true) => Some("true".into()),
        Value::Int(n) if n != 0 && (name, n) != ("pinned_num_register_threads", 1) => {
            Some(n.to_string())
        }
        Value::Big(n) => Some(n.to_string()),
        Value::Float(f) if f != 0.0 => Some(f.to_string()),
        Value::Text(text) if text != w::EMPTY => {
            Some(objects.texts.get(text).chars().take(1000).collect())
        }
        // trace_alloc_overflowed and kin come one per device in some versions.
        Value::List(_) => objects.items(value).map(|items| {
            let all: Vec<String> =
                (0..items.len().min(64)).filter_map(|n| shown("", items.get(n), objects)).collect();
            all.join(",")
        }),
        _ => None,
    }
    .filter(|text| !text.is_empty())
}

/// Whether the recorder says that its ring buffer ran over.
pub fn says_overflowed(attributes: &BTreeMap<String, String>) -> bool {
    attributes
        .get("allocator_settings.trace_alloc_overflowed")
        .is_some_and(|text| text.contains("true") || text.contains('1'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(conf: &str) -> Settings {
        Settings::of_conf(conf)
    }

    #[test]
    fn a_string_that_says_what_is_in_force_stays_as_it_is() {
        for conf in [
            "",
            "expandable_segments:True",
            " max_split_size_mb: 128 , garbage_collection_threshold:0.8",
            "roundup_power2_divisions:[256:1,512:2,1024:4,>:8]",
            "backend:native,large_segment_size_mb:64,roundup_power2_divisions:4",
        ] {
            let mut notes = Vec::new();
            assert_eq!(fields(conf).in_force(&mut notes).as_deref(), Some(conf));
            assert_eq!(notes, Vec::<String>::new());
        }
    }

    #[test]
    fn fields_win_over_an_empty_or_stale_string() {
        let stale = |conf: &str, of: &str| {
            let mut notes = Vec::new();
            let settings = Settings { conf: Some(conf.into()), ..fields(of) };
            let text = settings.in_force(&mut notes).expect("settings are known");
            assert_eq!(notes.len(), 1, "{conf} {of}");
            assert_eq!(
                Settings { conf: None, ..fields(&text) },
                Settings { conf: None, ..fields(of) },
                "{text}"
            );
            text
        };
        assert_eq!(stale("", "max_split_size_mb:64"), "max_split_size_mb:64");
        assert_eq!(stale("expandable_segments:True", ""), "");
        assert_eq!(
            stale(
                "large_segment_size_mb:64,max_split_size_mb:32",
                "garbage_collection_threshold:0.7"
            ),
            "large_segment_size_mb:64,garbage_collection_threshold:0.7"
        );
        stale("", "roundup_power2_divisions:[64:8,256:4,1024:4,>:1]");
        stale("roundup_power2_divisions:4", "roundup_power2_divisions:8,expandable_segments:True");
    }

    #[test]
    fn lists_fill_the_buckets_that_the_rules_say() {
        let of = |text| buckets(text);
        assert_eq!(
            of("[256:1,512:2,1024:4,>:8]"),
            [1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 4, 8, 8, 8, 8, 8]
        );
        assert_eq!(of("[64:8,256:4,>:1]"), [8, 8, 8, 8, 8, 8, 8, 0, 4, 1, 1, 1, 1, 1, 1, 1]);
        assert_eq!(of("4"), [4; 16]);
        assert_eq!(of("[>:2]")[0..2], [0, 2]);
    }
}

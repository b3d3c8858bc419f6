//! Parameters, declared once: a [`ParamDef`] drives parsing, help, documentation and the echo in results.

use crate::divisions::Divisions;
use crate::nearest::hint;
use crate::spec::{PolicySpec, SpecValue};
use poolsim_core::units::{GIB, KIB, MIB};
use poolsim_core::{Bytes, ConfigError};
use std::fmt;
use std::ops::Bound;

/// One parameter of a policy or a stage.
#[derive(Clone, Copy, Debug)]
pub struct ParamDef {
    /// Its key in specs.
    pub key: &'static str,
    /// What values it takes.
    pub kind: ParamKind,
    /// What holds if it is not given.
    pub default: ParamDefault,
    /// Unit of the value as written in a spec; empty if it has none.
    pub unit: &'static str,
    /// What it does, in a sentence.
    pub doc: &'static str,
    /// Whether a simulation can tell.
    pub effect: Effect,
}

/// The values that a parameter takes.
#[derive(Clone, Copy, Debug)]
pub enum ParamKind {
    /// `True` or `False`, written exactly so.
    Bool,
    /// A whole number within bounds, both included.
    UInt {
        /// Smallest value.
        min: u64,
        /// Largest value.
        max: u64,
    },
    /// A number within bounds.
    Float {
        /// Lower bound.
        min: Bound<f64>,
        /// Upper bound.
        max: Bound<f64>,
    },
    /// A whole number of MiB, written without a unit; the value is in bytes.
    MiB {
        /// Smallest number of MiB.
        min: u64,
    },
    /// Bytes, with or without a unit: `512`, `64KiB`, `2MiB`, `1GiB`.
    Bytes {
        /// Smallest value.
        min: Bytes,
        /// What every value is a multiple of.
        multiple_of: Bytes,
    },
    /// One of these words.
    Choice(&'static [&'static str]),
    /// [`Divisions`].
    Divisions,
}

/// What holds for a parameter that is not given.
#[derive(Clone, Copy, Debug)]
pub enum ParamDefault {
    /// This value, as a spec would write it.
    Is(&'static str),
    /// No value; the text says what that means (`unlimited`).
    Unset(&'static str),
}

/// What giving a parameter does.
#[derive(Clone, Copy, Debug)]
pub enum Effect {
    /// It is simulated.
    Simulated,
    /// It is accepted, and cannot matter to a simulation for this reason.
    NoEffect(&'static str),
    /// A value (first) means another policy (second); other values mean this one.
    Selects(&'static [(&'static str, &'static str)]),
}

/// A parameter's value.
#[derive(Clone, Debug, PartialEq)]
pub enum ParamValue {
    /// Of [`ParamKind::Bool`].
    Bool(bool),
    /// Of [`ParamKind::UInt`].
    UInt(u64),
    /// Of [`ParamKind::Float`].
    Float(f64),
    /// Of [`ParamKind::MiB`] and [`ParamKind::Bytes`].
    Bytes(Bytes),
    /// Of [`ParamKind::Choice`].
    Choice(&'static str),
    /// Of [`ParamKind::Divisions`].
    Divisions(Divisions),
}

impl ParamKind {
    /// What is allowed, in words.
    pub fn allowed(&self) -> String {
        match *self {
            ParamKind::Bool => "True or False, written exactly so".into(),
            ParamKind::UInt { min, max: u64::MAX } => format!("a whole number, at least {min}"),
            ParamKind::UInt { min, max } => format!("a whole number from {min} to {max}"),
            ParamKind::Float { min, max } => {
                let low = match min {
                    Bound::Included(x) => format!(", at least {x}"),
                    Bound::Excluded(x) => format!(", above {x}"),
                    Bound::Unbounded => String::new(),
                };
                let high = match max {
                    Bound::Included(x) => format!(", at most {x}"),
                    Bound::Excluded(x) => format!(", below {x}"),
                    Bound::Unbounded => String::new(),
                };
                format!("a number{low}{high}")
            }
            ParamKind::MiB { min } => {
                format!("a whole number of MiB without a unit, at least {min}")
            }
            ParamKind::Bytes { min, multiple_of } => {
                let step = match multiple_of {
                    0 | 1 => String::new(),
                    n => format!(", a multiple of {}", bytes_text(n)),
                };
                format!(
                    "bytes such as 512, 64KiB, 2MiB or 1GiB, at least {}{step}",
                    bytes_text(min)
                )
            }
            ParamKind::Choice(words) => format!("one of {}", words.join(", ")),
            ParamKind::Divisions => Divisions::ALLOWED.into(),
        }
    }

    /// Reads a value; `None` if it is not allowed.
    pub fn parse(&self, value: &SpecValue) -> Option<ParamValue> {
        if let ParamKind::Divisions = self {
            return Divisions::parse(value).map(ParamValue::Divisions);
        }
        let SpecValue::Atom(text) = value else { return None };
        match *self {
            ParamKind::Bool => match text.as_str() {
                "True" => Some(ParamValue::Bool(true)),
                "False" => Some(ParamValue::Bool(false)),
                _ => None,
            },
            ParamKind::UInt { min, max } => {
                whole(text).filter(|n| (min..=max).contains(n)).map(ParamValue::UInt)
            }
            ParamKind::Float { min, max } => {
                let starts_well = text.starts_with(|c: char| c.is_ascii_digit() || c == '.');
                let x: f64 = starts_well.then(|| text.parse().ok())??;
                use std::ops::RangeBounds;
                (x.is_finite() && (min, max).contains(&x)).then_some(ParamValue::Float(x))
            }
            ParamKind::MiB { min } => {
                let n = whole(text).filter(|&n| n >= min)?;
                n.checked_mul(MIB).map(ParamValue::Bytes)
            }
            ParamKind::Bytes { min, multiple_of } => parse_bytes(text)
                .filter(|&n| n >= min && n.is_multiple_of(multiple_of.max(1)))
                .map(ParamValue::Bytes),
            ParamKind::Choice(words) => {
                words.iter().find(|w| *w == text).map(|w| ParamValue::Choice(w))
            }
            ParamKind::Divisions => None,
        }
    }

    fn print(&self, value: &ParamValue) -> SpecValue {
        SpecValue::Atom(match value {
            ParamValue::Bool(true) => "True".into(),
            ParamValue::Bool(false) => "False".into(),
            ParamValue::UInt(n) => n.to_string(),
            ParamValue::Float(x) => x.to_string(),
            ParamValue::Bytes(n) => match self {
                ParamKind::MiB { .. } => (n / MIB).to_string(),
                _ => bytes_text(*n),
            },
            ParamValue::Choice(word) => (*word).into(),
            ParamValue::Divisions(divisions) => return divisions.into(),
        })
    }
}

/// Bytes from text such as `512`, `64KiB`, `2MiB`, `1GiB`: a whole number and a binary unit.
pub fn parse_bytes(text: &str) -> Option<Bytes> {
    for (unit, factor) in [("KiB", KIB), ("MiB", MIB), ("GiB", GIB), ("B", 1)] {
        if let Some(number) = text.strip_suffix(unit) {
            return whole(number)?.checked_mul(factor);
        }
    }
    whole(text)
}

/// The shortest exact text that [`parse_bytes`] reads.
fn bytes_text(n: Bytes) -> String {
    for (unit, factor) in [("GiB", GIB), ("MiB", MIB), ("KiB", KIB)] {
        if n > 0 && n.is_multiple_of(factor) {
            return format!("{}{unit}", n / factor);
        }
    }
    n.to_string()
}

fn whole(text: &str) -> Option<u64> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok())?
}

/// The values of a policy's parameters: given ones and defaults.
#[derive(Clone, Debug)]
pub struct Params {
    defs: &'static [ParamDef],
    values: Vec<Option<ParamValue>>,
    given: Vec<bool>,
}

impl Params {
    /// The parameters of `owner` as the spec's items set them. Errors name the key, the value, what is
    /// allowed and the nearest keys.
    pub fn resolve(
        owner: &str,
        defs: &'static [ParamDef],
        spec: &PolicySpec,
    ) -> Result<Params, ConfigError> {
        let mut params = Params::defaults(defs);
        for (key, value) in &spec.items {
            let Some(i) = defs.iter().position(|d| d.key == key) else {
                let keys = || defs.iter().map(|d| d.key);
                return Err(ConfigError(match defs {
                    [] => format!("`{owner}` has no parameters, so it has no `{key}`"),
                    _ => format!("`{owner}` has no parameter `{key}`{}", hint(key, keys())),
                }));
            };
            let Some(value) = defs[i].kind.parse(value) else {
                return Err(ConfigError(format!(
                    "`{owner}`: `{key}:{value}` is not possible; allowed is {}",
                    defs[i].kind.allowed()
                )));
            };
            params.values[i] = Some(value);
            params.given[i] = true;
        }
        Ok(params)
    }

    /// Every parameter at its default.
    ///
    /// # Panics
    /// If a default is not a value of its own kind: a mistake in the table.
    pub fn defaults(defs: &'static [ParamDef]) -> Params {
        let default = |def: &ParamDef| match def.default {
            ParamDefault::Unset(_) => None,
            ParamDefault::Is(text) => Some(default_value(def, text)),
        };
        Params { defs, values: defs.iter().map(default).collect(), given: vec![false; defs.len()] }
    }

    /// Each parameter with its value (`None`: unset) and whether the spec gave it.
    pub fn iter(&self) -> impl Iterator<Item = (&'static ParamDef, Option<&ParamValue>, bool)> {
        let rest = self.values.iter().zip(&self.given);
        self.defs.iter().zip(rest).map(|(def, (value, &given))| (def, value.as_ref(), given))
    }

    /// The items of the canonical spec: declared order, without what equals its default.
    pub fn items(&self) -> Vec<(String, SpecValue)> {
        let defaults = Params::defaults(self.defs);
        let changed = self.iter().zip(defaults.values).filter_map(|((def, value, _), default)| {
            let value = value.filter(|v| Some(*v) != default.as_ref())?;
            Some((def.key.to_string(), def.kind.print(value)))
        });
        changed.collect()
    }

    /// Whether the spec gave the parameter.
    pub fn given(&self, key: &str) -> bool {
        self.given[self.index(key)]
    }

    /// The value, or `None` if unset.
    ///
    /// # Panics
    /// If the table has no such key. So do the typed accessors, and if the kind is another.
    pub fn get(&self, key: &str) -> Option<&ParamValue> {
        self.values[self.index(key)].as_ref()
    }

    fn index(&self, key: &str) -> usize {
        self.defs
            .iter()
            .position(|d| d.key == key)
            .unwrap_or_else(|| panic!("no parameter `{key}` is declared"))
    }

    /// The value of a [`ParamKind::Bool`].
    pub fn bool(&self, key: &str) -> bool {
        self.typed(key, |v| if let ParamValue::Bool(x) = v { Some(*x) } else { None })
    }

    /// The value of a [`ParamKind::UInt`].
    pub fn uint(&self, key: &str) -> u64 {
        self.typed(key, |v| if let ParamValue::UInt(x) = v { Some(*x) } else { None })
    }

    /// The value of a [`ParamKind::Float`].
    pub fn float(&self, key: &str) -> f64 {
        self.typed(key, |v| if let ParamValue::Float(x) = v { Some(*x) } else { None })
    }

    /// The value of a [`ParamKind::MiB`] or [`ParamKind::Bytes`], in bytes.
    pub fn bytes(&self, key: &str) -> Bytes {
        self.typed(key, |v| if let ParamValue::Bytes(x) = v { Some(*x) } else { None })
    }

    /// The value of a [`ParamKind::Choice`].
    pub fn choice(&self, key: &str) -> &'static str {
        self.typed(key, |v| if let ParamValue::Choice(x) = v { Some(*x) } else { None })
    }

    /// The value of a [`ParamKind::Divisions`].
    pub fn divisions(&self, key: &str) -> Divisions {
        self.typed(key, |v| if let ParamValue::Divisions(x) = v { Some(x.clone()) } else { None })
    }

    /// The bytes of a parameter that may be unset.
    pub fn bytes_if_set(&self, key: &str) -> Option<Bytes> {
        self.get(key).map(|_| self.bytes(key))
    }

    /// The number of a [`ParamKind::Float`] that may be unset.
    pub fn float_if_set(&self, key: &str) -> Option<f64> {
        self.get(key).map(|_| self.float(key))
    }

    fn typed<T>(&self, key: &str, pick: impl Fn(&ParamValue) -> Option<T>) -> T {
        let value = self.get(key).unwrap_or_else(|| panic!("`{key}` is unset and has no default"));
        pick(value).unwrap_or_else(|| panic!("`{key}` is of another kind: {value:?}"))
    }
}

fn default_value(def: &ParamDef, text: &str) -> ParamValue {
    let spec: PolicySpec = format!("{}:{text}", def.key).parse().expect("a default is a value");
    let value = spec.get(def.key).and_then(|v| def.kind.parse(v));
    value.unwrap_or_else(|| panic!("the default of `{}` is not allowed: {text}", def.key))
}

impl fmt::Display for ParamDefault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ParamDefault::Is(text) | ParamDefault::Unset(text) => text,
        })
    }
}

#[cfg(test)]
#[path = "params_tests.rs"]
mod tests;

//! The profile of `profile.proto`: samples, where they were taken, and their labels.

use super::protobuf::{Field, Fields, numbers};
use poolsim_core::TraceError;
use poolsim_core::error::{Place, TraceErrorKind};
use std::collections::HashMap;

/// A profile, as far as a memory profile needs it.
#[derive(Debug, Default)]
pub(super) struct Profile {
    /// Numbers of strings: what each value of a sample is.
    pub sample_types: Vec<u64>,
    pub samples: Vec<Sample>,
    /// Function and line of each call that a location stands for, innermost first.
    locations: HashMap<u64, Vec<(u64, u64)>>,
    /// Numbers of strings: name and file.
    functions: HashMap<u64, (u64, u64)>,
    strings: Vec<String>,
}

/// A sample.
#[derive(Debug, Default)]
pub(super) struct Sample {
    /// Innermost first.
    pub locations: Vec<u64>,
    values: Vec<u64>,
    /// Numbers of strings: key and text.
    labels: Vec<(u64, u64)>,
}

impl Sample {
    pub fn value(&self, column: usize) -> u64 {
        self.values.get(column).copied().unwrap_or(0)
    }

    pub fn label<'p>(&self, key: &str, profile: &'p Profile) -> Option<&'p str> {
        let found = self.labels.iter().find(|(k, _)| profile.text(*k) == key);
        found.map(|(_, text)| profile.text(*text))
    }
}

impl Profile {
    /// Reads a profile.
    ///
    /// # Errors
    /// The byte from which on it is damaged or cut.
    pub fn parse(bytes: &[u8]) -> Result<Profile, TraceError> {
        let mut profile = Profile::default();
        profile.read(bytes).map_err(|at| {
            let what = "the profile is damaged or cut short here; write it again";
            TraceError::new(TraceErrorKind::Malformed, Place::Byte(at as u64), what)
        })?;
        profile.check_strings()?;
        Ok(profile)
    }

    /// The strings come last, so a profile that was cut between two fields lacks some that are named.
    fn check_strings(&self) -> Result<(), TraceError> {
        let labels = self.samples.iter().flat_map(|s| &s.labels).flat_map(|&(k, text)| [k, text]);
        let functions = self.functions.values().flat_map(|&(name, file)| [name, file]);
        let named = self.sample_types.iter().copied().chain(labels).chain(functions).max();
        let there = self.strings.len() as u64;
        match named {
            Some(last) if last >= there => Err(TraceError::new(
                TraceErrorKind::Malformed,
                Place::Whole,
                format!(
                    "the profile names string {last} and holds {there}: it is cut short or damaged; write it again"
                ),
            )),
            _ => Ok(()),
        }
    }

    /// A string; empty if there is no such one.
    pub fn text(&self, number: u64) -> &str {
        usize::try_from(number).ok().and_then(|n| self.strings.get(n)).map_or("", String::as_str)
    }

    /// Function and line of the calls at a location.
    pub fn lines(&self, location: u64) -> &[(u64, u64)] {
        self.locations.get(&location).map_or(&[], Vec::as_slice)
    }

    /// Name and file of a function.
    pub fn function(&self, id: u64) -> (&str, &str) {
        let (name, file) = self.functions.get(&id).copied().unwrap_or_default();
        (self.text(name), self.text(file))
    }

    fn read(&mut self, bytes: &[u8]) -> Result<(), usize> {
        let mut fields = Fields::new(bytes, 0);
        while let Some((number, field)) = fields.next()? {
            let Field::Bytes(content, base) = field else { continue };
            match number {
                1 => self.sample_types.push(scalars(content, base)?[1]),
                2 => self.samples.push(sample(content, base)?),
                4 => {
                    let (id, lines) = location(content, base)?;
                    self.locations.insert(id, lines);
                }
                5 => {
                    let [_, id, name, _, file, ..] = scalars(content, base)?;
                    self.functions.insert(id, (name, file));
                }
                6 => self.strings.push(String::from_utf8_lossy(content).into_owned()),
                _ => {}
            }
        }
        Ok(())
    }
}

/// The numbers of a flat message, by field.
fn scalars(bytes: &[u8], base: usize) -> Result<[u64; 8], usize> {
    let mut values = [0; 8];
    let mut fields = Fields::new(bytes, base);
    while let Some((number, field)) = fields.next()? {
        if let (Field::Varint(n), Some(value)) = (field, values.get_mut(number as usize)) {
            *value = n;
        }
    }
    Ok(values)
}

fn sample(bytes: &[u8], base: usize) -> Result<Sample, usize> {
    let mut sample = Sample::default();
    let mut fields = Fields::new(bytes, base);
    while let Some((number, field)) = fields.next()? {
        match (number, field) {
            (1, field) => numbers(field, &mut sample.locations).ok_or(base)?,
            (2, field) => numbers(field, &mut sample.values).ok_or(base)?,
            (3, Field::Bytes(label, at)) => {
                let [_, key, text, ..] = scalars(label, at)?;
                sample.labels.push((key, text));
            }
            _ => {}
        }
    }
    Ok(sample)
}

fn location(bytes: &[u8], base: usize) -> Result<(u64, Vec<(u64, u64)>), usize> {
    let (mut id, mut lines) = (0, Vec::new());
    let mut fields = Fields::new(bytes, base);
    while let Some((number, field)) = fields.next()? {
        match (number, field) {
            (1, Field::Varint(n)) => id = n,
            (4, Field::Bytes(line, at)) => {
                let [_, function, line, ..] = scalars(line, at)?;
                lines.push((function, line));
            }
            _ => {}
        }
    }
    Ok((id, lines))
}

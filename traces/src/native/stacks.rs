//! Stacks in JSON: numbers into tables, or calls written out.

use poolsim_core::stack::{Frame, StackId, StackTable};
use serde::Deserialize;

/// The stack of an event.
#[derive(Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "a number into `stacks`, or a list of calls such as \"f (file.py:12)\""
)]
pub(crate) enum StackRow {
    Number(u32),
    Calls(Vec<Call>),
}

/// One call.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "a call such as \"f (file.py:12)\"")]
pub(crate) enum Call {
    Text(String),
    Row(String, String, u32),
    Fields(CallFields),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CallFields {
    name: String,
    #[serde(default)]
    file: String,
    #[serde(default)]
    line: u32,
}

impl From<Call> for Frame {
    fn from(call: Call) -> Frame {
        match call {
            Call::Row(name, file, line) => Frame { name, file, line },
            Call::Fields(CallFields { name, file, line }) => Frame { name, file, line },
            Call::Text(text) => parse_call(&text),
        }
    }
}

/// `name (file:line)`; a text of another form is a name.
fn parse_call(text: &str) -> Frame {
    let parts = || {
        let (name, place) = text.strip_suffix(')')?.split_once(" (")?;
        let (file, line) = place.rsplit_once(':')?;
        Some(Frame { name: name.into(), file: file.into(), line: line.parse().ok()? })
    };
    parts().unwrap_or_else(|| Frame { name: text.into(), ..Frame::default() })
}

/// The tables as far as they were read, and what refers to them before they were.
#[derive(Default)]
pub(crate) struct StackTables {
    frames: Vec<Frame>,
    stacks: Vec<Vec<u32>>,
    written_out: StackTable,
    /// For each event: nothing, a row of `stacks` counted from 1, or a stack of `written_out`.
    refs: Vec<StackRef>,
    any: bool,
}

#[derive(Clone, Copy)]
enum StackRef {
    None,
    Row(u32),
    WrittenOut(StackId),
}

impl StackTables {
    pub fn add_frames(&mut self, calls: Vec<Call>) {
        self.frames.extend(calls.into_iter().map(Frame::from));
    }

    pub fn add_stacks(&mut self, rows: Vec<Vec<u32>>) {
        self.stacks.extend(rows);
    }

    /// The stack of the next event.
    pub fn push(&mut self, row: Option<StackRow>) {
        let stack = match row {
            None => StackRef::None,
            Some(StackRow::Number(row)) => StackRef::Row(row),
            Some(StackRow::Calls(calls)) => {
                let numbers: Vec<u32> = calls
                    .into_iter()
                    .map(|call| self.written_out.intern_frame(call.into()))
                    .collect();
                StackRef::WrittenOut(self.written_out.intern_stack(&numbers))
            }
        };
        self.any |= !matches!(stack, StackRef::None);
        self.refs.push(stack);
    }

    /// Whether an event has a stack.
    pub fn any(&self) -> bool {
        self.any
    }

    /// One table of all stacks, and each event's place in it (empty if no event has one). Rows of `stacks`
    /// keep their numbers as long as they are distinct.
    pub fn finish(self) -> Result<(StackTable, Vec<StackId>), String> {
        let mut table = StackTable::default();
        let frames: Vec<u32> = self.frames.into_iter().map(|f| table.intern_frame(f)).collect();
        let mut rows = vec![StackId::NONE];
        for (row, numbers) in self.stacks.iter().enumerate() {
            let numbers: Option<Vec<u32>> =
                numbers.iter().map(|&n| frames.get(n as usize).copied()).collect();
            let numbers = numbers.ok_or_else(|| {
                format!(
                    "row {row} of `stacks` names a call that `frames` does not have ({} rows)",
                    frames.len()
                )
            })?;
            rows.push(table.intern_stack(&numbers));
        }
        let mut stacks = Vec::new();
        if self.any {
            stacks.reserve(self.refs.len());
        }
        for (event, stack) in
            self.refs.iter().enumerate().take(if self.any { usize::MAX } else { 0 })
        {
            stacks.push(match *stack {
                StackRef::None => StackId::NONE,
                StackRef::Row(row) => *rows.get(row as usize).ok_or_else(|| {
                    format!(
                        "event {event} has stack {row}; `stacks` has {} rows, counted from 1",
                        rows.len() - 1
                    )
                })?,
                StackRef::WrittenOut(id) => {
                    let frames: Vec<u32> = self
                        .written_out
                        .stack(id)
                        .map(|frame| table.intern_frame(frame.clone()))
                        .collect();
                    table.intern_stack(&frames)
                }
            });
        }
        Ok((table, stacks))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_as_people_write_them() {
        let frame =
            |name: &str, file: &str, line| Frame { name: name.into(), file: file.into(), line };
        assert_eq!(parse_call("f (a.py:12)"), frame("f", "a.py", 12));
        assert_eq!(parse_call("f (C:\\a.py:12)"), frame("f", "C:\\a.py", 12));
        assert_eq!(parse_call("operator() [x]"), frame("operator() [x]", "", 0));
        assert_eq!(parse_call("f (a.py:x)"), frame("f (a.py:x)", "", 0));
    }
}

//! Rows and their columns.

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::import) enum Value<'a> {
    Null,
    Int(i64),
    Real(f64),
    /// Text or bytes; which of them does not matter here.
    Bytes(&'a [u8]),
}

impl<'a> Value<'a> {
    /// A number that is not negative. Real numbers are none.
    pub fn unsigned(self) -> Option<u64> {
        match self {
            Value::Int(n) => u64::try_from(n).ok(),
            _ => None,
        }
    }

    /// A number as it is stored. Addresses are, and wrap.
    pub fn int(self) -> Option<i64> {
        match self {
            Value::Int(n) => Some(n),
            _ => None,
        }
    }

    /// Text.
    pub fn text(self) -> Option<&'a str> {
        match self {
            Value::Bytes(bytes) => std::str::from_utf8(bytes).ok(),
            _ => None,
        }
    }
}

/// A row of a table.
#[derive(Clone, Copy, Debug)]
pub(in crate::import) struct Row<'a> {
    /// Its number.
    pub id: i64,
    /// The types of the columns, and their content.
    types: &'a [u8],
    content: &'a [u8],
}

impl<'a> Row<'a> {
    /// A row of these bytes; `None` if its columns go past its end.
    pub fn parse(id: i64, bytes: &'a [u8]) -> Option<Row<'a>> {
        let mut at = 0;
        let head = usize::try_from(varint(bytes, &mut at)?).ok()?;
        let types = bytes.get(at..head)?;
        let content = &bytes[head..];
        let row = Row { id, types, content };
        let (mut at, mut used) = (0, 0usize);
        while at < types.len() {
            used = used.checked_add(width(varint(types, &mut at)?)?)?;
        }
        (used <= content.len()).then_some(row)
    }

    /// A column, counted from 0. Columns that were added to the table later are missing in old rows.
    pub fn column(&self, index: usize) -> Value<'a> {
        let (mut at, mut from) = (0, 0);
        for n in 0.. {
            let Some(kind) = varint(self.types, &mut at) else { break };
            let width = width(kind).unwrap_or(0);
            if n == index {
                return value(kind, &self.content[from..from + width]);
            }
            from += width;
        }
        Value::Null
    }
}

/// Bytes of a column of this type.
fn width(kind: u64) -> Option<usize> {
    match kind {
        0 | 8 | 9 => Some(0),
        1..=4 => Some(kind as usize),
        5 => Some(6),
        6 | 7 => Some(8),
        10 | 11 => None,
        _ => usize::try_from((kind - 12) / 2).ok(),
    }
}

fn value(kind: u64, bytes: &[u8]) -> Value<'_> {
    match kind {
        1..=6 => {
            let sign = if bytes[0] & 0x80 == 0 { 0 } else { -1 };
            Value::Int(bytes.iter().fold(sign, |n, &b| n << 8 | i64::from(b)))
        }
        7 => Value::Real(f64::from_be_bytes(bytes.try_into().expect("its width is 8"))),
        8 | 9 => Value::Int(kind as i64 - 8),
        12.. => Value::Bytes(bytes),
        _ => Value::Null,
    }
}

/// SQLite's numbers: up to nine bytes, most significant first, the ninth with all its bits.
pub(super) fn varint(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let mut value = 0u64;
    for n in 0..9 {
        let byte = *bytes.get(*at)?;
        *at += 1;
        if n == 8 {
            return Some(value << 8 | u64::from(byte));
        }
        value = value << 7 | u64::from(byte & 0x7f);
        if byte < 0x80 {
            break;
        }
    }
    Some(value)
}

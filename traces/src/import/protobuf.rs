//! The wire format of protocol buffers, as far as profiles need it.

/// A field of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field<'a> {
    /// A number.
    Varint(u64),
    /// A message, a string, or packed numbers; and where its bytes start in the outermost message.
    Bytes(&'a [u8], usize),
    /// A fixed-width number, which no field that matters here is.
    Fixed,
}

/// The fields of a message that starts at `base` in the outermost one. Ends with the offset of what is no field.
pub(super) struct Fields<'a> {
    bytes: &'a [u8],
    at: usize,
    base: usize,
}

impl<'a> Fields<'a> {
    pub fn new(bytes: &'a [u8], base: usize) -> Self {
        Fields { bytes, at: 0, base }
    }

    /// The next field's number and content; `Err` with the offset where the message is damaged.
    pub fn next(&mut self) -> Result<Option<(u64, Field<'a>)>, usize> {
        if self.at == self.bytes.len() {
            return Ok(None);
        }
        let start = self.base + self.at;
        let field = self.field().ok_or(start)?;
        Ok(Some(field))
    }

    fn field(&mut self) -> Option<(u64, Field<'a>)> {
        let key = varint(self.bytes, &mut self.at)?;
        let field = match key & 7 {
            0 => Field::Varint(varint(self.bytes, &mut self.at)?),
            1 => self.skip(8)?,
            2 => {
                let length = usize::try_from(varint(self.bytes, &mut self.at)?).ok()?;
                let end = self.at.checked_add(length)?;
                let content = self.bytes.get(self.at..end)?;
                let base = self.base + self.at;
                self.at = end;
                Field::Bytes(content, base)
            }
            5 => self.skip(4)?,
            _ => return None,
        };
        Some((key >> 3, field)).filter(|(number, _)| *number > 0)
    }

    fn skip(&mut self, length: usize) -> Option<Field<'a>> {
        self.at = self.at.checked_add(length).filter(|end| *end <= self.bytes.len())?;
        Some(Field::Fixed)
    }
}

/// A number at `at`, which moves past it.
pub(super) fn varint(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.get(*at)?;
        *at += 1;
        value |= u64::from(byte & 0x7f).checked_shl(shift)?;
        if byte < 0x80 {
            return (shift < 63 || byte < 2).then_some(value);
        }
    }
    None
}

/// A repeated number: one, or packed ones.
pub(super) fn numbers(field: Field<'_>, into: &mut Vec<u64>) -> Option<()> {
    match field {
        Field::Varint(n) => into.push(n),
        Field::Bytes(bytes, _) => {
            let mut at = 0;
            while at < bytes.len() {
                into.push(varint(bytes, &mut at)?);
            }
        }
        Field::Fixed => return None,
    }
    Some(())
}

//! Numbers and strings as the text opcodes of protocols 0 and 1 write them.

use super::value::Value;

/// An integer in two's complement, little-endian, of any length (`LONG1`, `LONG4`).
#[inline]
pub fn long(bytes: &[u8]) -> Value {
    let Some(&last) = bytes.last() else { return Value::Int(0) };
    let fill = if last >= 0x80 { 0xff } else { 0 };
    if bytes.len() <= 8 {
        let mut word = [fill; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        return Value::Int(i64::from_le_bytes(word));
    }
    let (low, high) = bytes.split_at(8);
    let word: [u8; 8] = low.try_into().expect("split at 8");
    if high.iter().any(|&b| b != fill) {
        return Value::Huge;
    }
    match (i64::from_le_bytes(word), fill) {
        (n, 0) if n >= 0 => Value::Int(n),
        (n, 0) => Value::Big(n as u64),
        (n, _) if n < 0 => Value::Int(n),
        _ => Value::Huge,
    }
}

/// An integer in decimal, as `INT` and `LONG` write it; `None` if it is none.
pub fn decimal(text: &[u8]) -> Option<Value> {
    let text = std::str::from_utf8(text).ok()?.trim_ascii();
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    Some(match (text.parse::<i64>(), text.parse::<u64>()) {
        (Ok(n), _) => Value::Int(n),
        (_, Ok(n)) => Value::Big(n),
        _ => Value::Huge,
    })
}

/// A quoted Python 2 string with backslash escapes (`STRING`); `None` if the quotes are not right.
pub fn quoted(text: &[u8]) -> Option<String> {
    let text = text.trim_ascii();
    let (&quote, rest) = text.split_first()?;
    let (&end, inner) = rest.split_last()?;
    if quote != end || !matches!(quote, b'\'' | b'"') {
        return None;
    }
    let mut out = Vec::with_capacity(inner.len());
    let mut bytes = inner;
    while let Some((&b, rest)) = bytes.split_first() {
        bytes = rest;
        if b == b'\\' {
            bytes = escape(bytes, &mut out)?;
        } else {
            out.push(b);
        }
    }
    Some(String::from_utf8_lossy(&out).into_owned())
}

/// Decodes what follows a backslash and gives back the rest.
fn escape<'a>(bytes: &'a [u8], out: &mut Vec<u8>) -> Option<&'a [u8]> {
    let (&b, rest) = bytes.split_first()?;
    let plain = match b {
        b'\\' | b'\'' | b'"' => b,
        b'n' => b'\n',
        b't' => b'\t',
        b'r' => b'\r',
        b'a' => 7,
        b'b' => 8,
        b'v' => 11,
        b'f' => 12,
        b'x' => {
            let hex = std::str::from_utf8(rest.get(..2)?).ok()?;
            out.push(u8::from_str_radix(hex, 16).ok()?);
            return Some(&rest[2..]);
        }
        b'0'..=b'7' => {
            let len = bytes.iter().take(3).take_while(|b| (b'0'..=b'7').contains(b)).count();
            let value = bytes[..len].iter().fold(0u32, |n, b| n * 8 + u32::from(b - b'0'));
            out.push(value as u8);
            return Some(&bytes[len..]);
        }
        other => {
            out.extend([b'\\', other]);
            return Some(rest);
        }
    };
    out.push(plain);
    Some(rest)
}

/// A `UNICODE` line: Latin-1 with `\uXXXX` and `\UXXXXXXXX`, in which a backslash is always escaped.
pub fn raw_unicode(text: &[u8]) -> String {
    let mut units: Vec<u16> = Vec::with_capacity(text.len());
    let mut bytes = text;
    while let Some((&b, rest)) = bytes.split_first() {
        let digits = match (b, rest.first()) {
            (b'\\', Some(b'u')) => 4,
            (b'\\', Some(b'U')) => 8,
            _ => 0,
        };
        let code = rest
            .get(1..=digits)
            .filter(|d| !d.is_empty())
            .and_then(|d| u32::from_str_radix(std::str::from_utf8(d).ok()?, 16).ok());
        match code {
            Some(code) => {
                let mut pair = [0; 2];
                match char::from_u32(code) {
                    Some(c) => units.extend_from_slice(c.encode_utf16(&mut pair)),
                    // One half of a surrogate pair; the other one may follow.
                    None => units.push(code as u16),
                }
                bytes = &rest[1 + digits..];
            }
            None => {
                units.push(u16::from(b));
                bytes = rest;
            }
        }
    }
    String::from_utf16_lossy(&units)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_of_every_length() {
        assert_eq!(long(&[]), Value::Int(0));
        assert_eq!(long(&[0xff]), Value::Int(-1));
        assert_eq!(long(&[0xff, 0]), Value::Int(255));
        assert_eq!(long(&[0, 0, 0, 0, 0, 0, 0, 0x80, 0]), Value::Big(1 << 63));
        assert_eq!(long(&[0xff; 20]), Value::Int(-1));
        assert_eq!(long(&[0, 0, 0, 0, 0, 0, 0, 0, 1]), Value::Huge);
        assert_eq!(long(&[0, 0, 0, 0, 0, 0, 0, 0, 0xff]), Value::Huge);
        assert_eq!(decimal(b"18446744073709551615"), Some(Value::Big(u64::MAX)));
        assert_eq!(decimal(b"-9223372036854775808"), Some(Value::Int(i64::MIN)));
        assert_eq!(decimal(b"99999999999999999999999"), Some(Value::Huge));
        assert_eq!(decimal(b"1e5"), None);
        assert_eq!(decimal(b"-"), None);
    }

    #[test]
    fn strings_of_old_protocols() {
        assert_eq!(quoted(br"'a\'b\x41\n\101\q'").as_deref(), Some("a'bA\nA\\q"));
        assert_eq!(quoted(b"'open"), None);
        assert_eq!(quoted(br"'\x4'"), None);
        assert_eq!(quoted(b"'"), None);
        assert_eq!(raw_unicode(b"a\\u005cb\\u20ac\xe9"), "a\\b\u{20ac}\u{e9}");
        assert_eq!(raw_unicode(b"\\U0001f600\\u12"), "\u{1f600}\\u12");
    }
}

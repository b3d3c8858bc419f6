//! A look at a JSON object that may be cut off anywhere.

/// The keys of the outermost object in `head`, as far as it goes, in order; `None` if `head` does not
/// start with an object. Keys with escapes are given as they are written.
pub fn top_level_keys(head: &[u8]) -> Option<Vec<String>> {
    let mut rest = head.trim_ascii_start().strip_prefix(b"{")?;
    let mut keys = Vec::new();
    let mut depth = 1u64;
    let mut key_next = true;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        match byte {
            b'"' => {
                let Some(end) = string_end(rest) else { break };
                if depth == 1 && key_next {
                    keys.push(String::from_utf8_lossy(&rest[..end]).into_owned());
                    key_next = false;
                }
                rest = &rest[end + 1..];
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' => {
                depth -= 1;
                if depth == 0 {
                    break;
                }
            }
            b',' if depth == 1 => key_next = true,
            _ => {}
        }
    }
    Some(keys)
}

/// Where the closing quote of a string is.
fn string_end(text: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        at += memchr::memchr2(b'"', b'\\', &text[at..])?;
        if text[at] == b'"' {
            return Some(at);
        }
        at += 2;
        if at >= text.len() {
            return None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_whole_and_cut_objects() {
        let text = br#" {"a": {"x": [1, "y"]}, "b\"c" : "}", "d": [{"e": 1}], "f"#;
        for (end, count) in
            [(0, None), (1, None), (2, Some(0)), (5, Some(1)), (text.len(), Some(3))]
        {
            assert_eq!(top_level_keys(&text[..end]).map(|keys| keys.len()), count, "{end}");
        }
        assert_eq!(top_level_keys(br#"{"a":1}{"b":2}"#).unwrap(), ["a"]);
        assert_eq!(top_level_keys(br#"{"a\"#).unwrap(), Vec::<String>::new());
        assert_eq!(top_level_keys(b"[1]"), None);
        assert_eq!(top_level_keys(&[b'{'; 100_000]).unwrap(), Vec::<String>::new());
    }
}

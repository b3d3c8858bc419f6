//! "Did you mean" for names that people type.

use std::fmt::Write;

/// The known name that is nearest to `name`, if one is near enough to be meant.
pub(crate) fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let name = name.to_ascii_lowercase();
    known
        .iter()
        .map(|&candidate| (strsim::damerau_levenshtein(&name, candidate), candidate))
        .filter(|&(distance, candidate)| distance <= 2.min(candidate.len() / 2))
        .min()
        .map(|(_, candidate)| candidate)
}

/// ``unknown field `sise`; did you mean `size`?``, or the known names if none is near.
pub(crate) fn unknown(what: &str, name: &str, known: &[&str]) -> String {
    let shown: String = name.chars().take(40).collect();
    let mut text = format!("unknown {what} `{shown}`; ");
    match nearest(name, known) {
        Some(near) => write!(text, "did you mean `{near}`?"),
        None => write!(text, "known are {}", known.join(", ")),
    }
    .expect("writing to a string");
    text
}

//! The names that someone may have meant.

/// The (at most) three candidates most like `name`, best first; ties keep the candidates' order.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let mut scored: Vec<(f64, &str)> =
        candidates.into_iter().map(|c| (strsim::jaro_winkler(name, c), c)).collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0));
    scored.truncate(3);
    scored.into_iter().map(|(_, c)| c).collect()
}

/// The nearest names as the end of a sentence: `; nearest: a, b, c`, or nothing.
pub(crate) fn hint<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    match nearest(name, candidates).as_slice() {
        [] => String::new(),
        names => format!("; nearest: {}", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_likeliest_names_come_first() {
        let keys =
            ["expandable_segments", "max_split_size_mb", "backend", "roundup_power2_divisions"];
        assert_eq!(nearest("max_split_size", keys)[0], "max_split_size_mb");
        assert_eq!(nearest("expandable_segment", keys)[0], "expandable_segments");
        assert_eq!(nearest("x", ["b", "a"]), ["b", "a"]);
        assert_eq!(hint("x", []), "");
    }
}

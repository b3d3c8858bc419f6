//! The file that a new policy starts from: the example of `docs/adding-a-policy.md` under another name, so that what
//! is written compiles, works and is tested.

use crate::registry::Registry;
use poolsim_core::ConfigError;

const EXAMPLE: &str = include_str!("../examples/powers.rs");
const EXAMPLE_NAME: &str = "powers";
const MARKER: &str = "// The file ends here";

/// Words that cannot name a module.
const KEYWORDS: &[&str] = &[
    "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "crate",
    "do", "dyn", "else", "enum", "extern", "false", "final", "fn", "for", "gen", "if", "impl",
    "in", "let", "loop", "macro", "match", "mod", "move", "mut", "override", "priv", "pub", "ref",
    "return", "self", "static", "struct", "super", "trait", "true", "try", "type", "typeof",
    "unsafe", "unsized", "use", "virtual", "where", "while", "yield",
];

/// Where the file of a new policy is to be compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home {
    /// In this crate, as a module beside the others.
    Inside,
    /// In another crate that depends on this one and registers it with [`Registry::with`].
    Outside,
}

/// A new policy's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scaffold {
    /// The module that it makes; the file is `MODULE.rs`.
    pub module: String,
    /// Its text.
    pub text: String,
}

/// The file for a policy of this name. An error says why there can be no such policy: the name is taken, or is not
/// made of lower-case letters, digits and `-`, or would be a Rust keyword.
pub fn scaffold(name: &str, home: Home) -> Result<Scaffold, ConfigError> {
    let refuse = |why: String| Err(ConfigError(format!("`{name}` cannot name a policy: {why}")));
    let letter = |c: char| c.is_ascii_lowercase();
    let legal = |c: char| letter(c) || c.is_ascii_digit() || c == '-';
    if !name.starts_with(letter) || !name.chars().all(legal) || name.ends_with('-') {
        return refuse(
            "write lower-case letters, digits and `-`, a letter first, as in `my-pool`".into(),
        );
    }
    if let Some(def) = Registry::builtin().find(name) {
        return refuse(format!("it is `{}` already", def.name));
    }
    let module = name.replace('-', "_");
    if KEYWORDS.contains(&module.as_str()) {
        return refuse("it is a Rust keyword, and the policy's module bears its name".into());
    }
    let (example, _) = EXAMPLE.split_once(MARKER).expect("the example marks its end");
    let mut text = example
        .replace(&format!("\"{EXAMPLE_NAME}\""), &format!("\"{name}\""))
        .replace(&format!("`{EXAMPLE_NAME}`"), &format!("`{name}`"));
    if home == Home::Inside {
        text = text.replace("poolsim_policies::", "crate::");
    }
    Ok(Scaffold { module, text })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nothing but the name differs from the example, which is compiled and put through the conformance battery.
    #[test]
    fn the_file_is_the_tested_example_under_another_name() {
        let made = scaffold("my-pool", Home::Outside).expect("a good name");
        assert_eq!(made.module, "my_pool");
        let changed: Vec<_> =
            made.text.lines().zip(EXAMPLE.lines()).filter(|(a, b)| a != b).collect();
        let names = [
            ("/// `my-pool`.", "/// `powers`."),
            ("    name: \"my-pool\",", "    name: \"powers\","),
        ];
        assert_eq!(changed, names);
        let inside = scaffold("my-pool", Home::Inside).expect("a good name").text;
        assert_eq!(inside.replace("crate::", "poolsim_policies::"), made.text);
    }

    #[test]
    fn bad_names_are_refused() {
        for bad in [
            "",
            "My",
            "1st",
            "a_b",
            "a-",
            "-a",
            "a b",
            "../x",
            "match",
            "best-fit",
            "expandable",
            "self",
        ] {
            assert!(scaffold(bad, Home::Inside).is_err(), "{bad}");
        }
    }
}

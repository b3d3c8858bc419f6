//! The syntax of policy specs. What names and values mean is the registry's business.
//!
//! ```text
//! spec  := [name] (',' key ':' value)*
//! value := atom | '[' key ':' atom (',' key ':' atom)* ']'
//! ```
//!
//! White space is dropped, one trailing comma is allowed, and a spec whose first item contains `:` (or an
//! empty one) names `pytorch`. So the value of `PYTORCH_CUDA_ALLOC_CONF` is a spec as it stands.

use poolsim_core::ConfigError;
use std::fmt;
use std::str::FromStr;

/// The policy that a spec without a name means.
pub const IMPLIED_NAME: &str = "pytorch";

/// A spec, parsed but not yet understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicySpec {
    /// Name of a policy, an alias or a preset.
    pub name: String,
    /// Keys with their values, in the order written; no key occurs twice.
    pub items: Vec<(String, SpecValue)>,
}

/// The value of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpecValue {
    /// One word.
    Atom(String),
    /// `[a:b,c:d]`; no key occurs twice.
    List(Vec<(String, String)>),
}

impl PolicySpec {
    /// A spec without items.
    pub fn named(name: impl Into<String>) -> Self {
        PolicySpec { name: name.into(), items: Vec::new() }
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&SpecValue> {
        self.items.iter().find(|(k, _)| k == key).map(|(_, v)| v)
    }

    /// Sets a key, in place if it is there.
    pub fn set(&mut self, key: &str, value: SpecValue) {
        match self.items.iter_mut().find(|(k, _)| k == key) {
            Some((_, v)) => *v = value,
            None => self.items.push((key.into(), value)),
        }
    }
}

impl fmt::Display for PolicySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        self.items.iter().try_for_each(|(key, value)| write!(f, ",{key}:{value}"))
    }
}

impl fmt::Display for SpecValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SpecValue::Atom(text) => f.write_str(text),
            SpecValue::List(pairs) => {
                let pairs: Vec<String> = pairs.iter().map(|(k, v)| format!("{k}:{v}")).collect();
                write!(f, "[{}]", pairs.join(","))
            }
        }
    }
}

impl FromStr for PolicySpec {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        Parser { text, tokens: tokens(text), next: 0 }.spec()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Comma,
    Colon,
    Open,
    Close,
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Token::Word(word) => write!(f, "`{word}`"),
            Token::Comma => f.write_str("`,`"),
            Token::Colon => f.write_str("`:`"),
            Token::Open => f.write_str("`[`"),
            Token::Close => f.write_str("`]`"),
        }
    }
}

fn tokens(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    for c in text.chars().filter(|c| !c.is_whitespace()) {
        match c {
            ',' => tokens.push(Token::Comma),
            ':' => tokens.push(Token::Colon),
            '[' => tokens.push(Token::Open),
            ']' => tokens.push(Token::Close),
            c => match tokens.last_mut() {
                Some(Token::Word(word)) => word.push(c),
                _ => tokens.push(Token::Word(c.into())),
            },
        }
    }
    tokens
}

struct Parser<'a> {
    text: &'a str,
    tokens: Vec<Token>,
    next: usize,
}

impl Parser<'_> {
    fn spec(mut self) -> Result<PolicySpec, ConfigError> {
        let has_name = self.tokens.get(1) != Some(&Token::Colon) && !self.tokens.is_empty();
        let mut spec = PolicySpec::named(IMPLIED_NAME);
        if has_name {
            spec.name = self.word("a policy name or a key")?;
            if self.next < self.tokens.len() {
                self.expect(Token::Comma, "the policy name")?;
            }
        }
        while self.next < self.tokens.len() {
            let key = self.word("a key")?;
            self.expect(Token::Colon, &format!("the key `{key}`"))?;
            let value = self.value(&key)?;
            if spec.get(&key).is_some() {
                return self.fail(format!("`{key}` is given twice; give it once"));
            }
            spec.items.push((key.clone(), value));
            if self.next < self.tokens.len() {
                self.expect(Token::Comma, &format!("the value of `{key}`"))?;
            }
        }
        Ok(spec)
    }

    fn value(&mut self, key: &str) -> Result<SpecValue, ConfigError> {
        if self.tokens.get(self.next) != Some(&Token::Open) {
            return Ok(SpecValue::Atom(self.word(&format!("the value of `{key}`"))?));
        }
        let mut pairs: Vec<(String, String)> = Vec::new();
        loop {
            self.next += 1;
            let item = self.word(&format!("a key in the list of `{key}`"))?;
            self.expect(Token::Colon, &format!("`{item}` in the list of `{key}`"))?;
            let value = self.word(&format!("the value of `{item}` in the list of `{key}`"))?;
            if pairs.iter().any(|(k, _)| *k == item) {
                return self.fail(format!("`{item}` is given twice in the list of `{key}`"));
            }
            pairs.push((item, value));
            match self.tokens.get(self.next) {
                Some(Token::Comma) => {}
                Some(Token::Close) => break,
                other => {
                    let found = found(other);
                    return self
                        .fail(format!("`,` or `]` was expected in the list of `{key}`, {found}"));
                }
            }
        }
        self.next += 1;
        Ok(SpecValue::List(pairs))
    }

    fn word(&mut self, what: &str) -> Result<String, ConfigError> {
        match self.tokens.get(self.next) {
            Some(Token::Word(word)) => {
                self.next += 1;
                Ok(word.clone())
            }
            other => self.fail(format!("{what} was expected, {}", found(other))),
        }
    }

    fn expect(&mut self, token: Token, after: &str) -> Result<(), ConfigError> {
        let other = self.tokens.get(self.next);
        if other == Some(&token) {
            self.next += 1;
            return Ok(());
        }
        self.fail(format!("{token} was expected after {after}, {}", found(other)))
    }

    fn fail<T>(&self, what: String) -> Result<T, ConfigError> {
        Err(ConfigError(format!(
            "policy spec `{}`: {what}. The form is name,key:value,key:value",
            self.text.trim()
        )))
    }
}

fn found(token: Option<&Token>) -> String {
    token.map_or("but the text ends".into(), |t| format!("but {t} follows"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shown(text: &str) -> String {
        text.parse::<PolicySpec>().map_or_else(|e| e.to_string(), |s| s.to_string())
    }

    #[test]
    fn pytorch_settings_are_specs_as_they_stand() {
        for (text, want) in [
            ("", "pytorch"),
            ("expandable", "expandable"),
            ("expandable_segments:True", "pytorch,expandable_segments:True"),
            (
                " max_split_size_mb : 128 ,garbage_collection_threshold:0.8,",
                "pytorch,max_split_size_mb:128,garbage_collection_threshold:0.8",
            ),
            (
                "roundup_power2_divisions:[256:1,512:2, 1024:4,>:8]",
                "pytorch,roundup_power2_divisions:[256:1,512:2,1024:4,>:8]",
            ),
            ("compose,round:pow2,grow.factor:2.5", "compose,round:pow2,grow.factor:2.5"),
        ] {
            assert_eq!(shown(text), want);
        }
    }

    #[test]
    fn what_does_not_follow_the_grammar_is_refused_in_words() {
        for (text, words) in [
            (",", "a policy name or a key was expected, but `,` follows"),
            ("a,b", "`:` was expected after the key `b`, but the text ends"),
            ("a:1,a:2", "`a` is given twice"),
            ("a:[1:2,1:3]", "`1` is given twice in the list of `a`"),
            ("a:[1:2", "`,` or `]` was expected in the list of `a`, but the text ends"),
            ("a:[]", "a key in the list of `a` was expected, but `]` follows"),
            ("a:[[1:2]]", "a key in the list of `a` was expected, but `[` follows"),
            ("a:1:2", "`,` was expected after the value of `a`, but `:` follows"),
            ("a:", "the value of `a` was expected, but the text ends"),
            ("a,,b:1", "a key was expected, but `,` follows"),
            ("a]", "`,` was expected after the policy name, but `]` follows"),
        ] {
            assert!(shown(text).contains(words), "{text}: {}", shown(text));
        }
    }

    proptest! {
        #[test]
        fn printing_and_parsing_are_inverse(
            name in "[a-z][a-z0-9-]{0,8}",
            atoms in prop::collection::btree_map("[a-z_.]{1,8}", "[A-Za-z0-9.+-]{1,6}", 0..5),
            lists in prop::collection::btree_map(
                "[A-Z]{1,4}",
                prop::collection::btree_map("[0-9]{1,4}|>", "[0-9]{1,4}", 1..4), 0..3),
        ) {
            let mut spec = PolicySpec::named(name);
            spec.items.extend(atoms.into_iter().map(|(k, v)| (k, SpecValue::Atom(v))));
            spec.items.extend(lists.into_iter().map(|(k, v)| (k, SpecValue::List(v.into_iter().collect()))));
            prop_assert_eq!(&spec.to_string().parse::<PolicySpec>().unwrap(), &spec);
        }

        #[test]
        fn no_text_makes_the_parser_panic(text in "[a:,\\[\\]> ]{0,20}|.{0,40}") {
            if let Ok(spec) = text.parse::<PolicySpec>() {
                prop_assert_eq!(&spec.to_string().parse::<PolicySpec>().unwrap(), &spec);
            }
        }
    }
}

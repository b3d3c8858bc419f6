//! Runs the program as a user would.
#![allow(dead_code, reason = "each test file uses its part")]

use assert_cmd::Command;
use serde_json::Value;
use std::path::PathBuf;

/// A command with these arguments.
pub fn poolsim(args: &[&str]) -> Command {
    let mut command = Command::cargo_bin("poolsim").expect("the program was built for this test");
    command.args(args);
    command
}

/// A file of the corpus.
pub fn corpus(name: &str) -> String {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../traces/corpus");
    folder.join(name).to_str().expect("the path is UTF-8").into()
}

/// What a run left.
pub struct Left {
    pub code: i32,
    pub out: String,
    pub err: String,
}

/// Runs with these arguments.
pub fn run(args: &[&str]) -> Left {
    let output = poolsim(args).output().expect("the program starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("the output is UTF-8");
    Left {
        code: output.status.code().expect("the program ended by itself"),
        out: text(output.stdout),
        err: text(output.stderr),
    }
}

/// Runs and reads exactly one JSON document from standard output.
pub fn json(args: &[&str], code: i32) -> Value {
    let left = run(args);
    assert_eq!(left.code, code, "{args:?}: {}{}", left.out, left.err);
    serde_json::from_str(&left.out).unwrap_or_else(|e| panic!("{args:?}: {e}: {}", left.out))
}

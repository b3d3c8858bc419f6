//! The outputs in README.md and GUIDE.md are what the program prints. `UPDATE_DOCS=1` writes them anew.
//!
//! In a ```` ```console ```` block each `$ poolsim …` line is run in the repository's root, and what follows it must be its
//! output; `| head -N` and `| tail -N` are understood. A ```` ```text ```` block after a ```` ```sh ```` block that runs
//! `cargo run … -- …` must be that command's output.

mod common;

use common::poolsim;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Splits a command line at blanks outside of double quotes.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    for c in line.chars() {
        match c {
            '"' => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            c => words.last_mut().unwrap().push(c),
        }
    }
    words.retain(|w| !w.is_empty());
    words
}

/// What a command prints to standard output, warnings and errors first, as a terminal shows them.
fn output_of(command: &str) -> Vec<String> {
    let (command, cut) = command.split_once(" | ").unwrap_or((command, ""));
    let args = words(command);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let output = poolsim(&args).current_dir(root()).output().unwrap();
    let text = [output.stderr, output.stdout].concat();
    let mut lines: Vec<String> =
        String::from_utf8(text).unwrap().lines().map(String::from).collect();
    match cut.split_once(" -") {
        Some(("head", n)) => lines.truncate(n.parse().unwrap()),
        Some(("tail", n)) => drop(lines.drain(..lines.len() - n.parse::<usize>().unwrap())),
        _ => assert!(cut.is_empty(), "unknown pipe: {cut}"),
    }
    lines
}

/// The page with every output as it is now.
fn renewed(page: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    let mut block = "";
    let mut pending: Option<String> = None;
    for line in page.lines() {
        if let Some(kind) = line.strip_prefix("```") {
            if block.is_empty() {
                block = kind;
                lines.push(line.into());
                if block == "text"
                    && let Some(command) = pending.take()
                {
                    lines.extend(output_of(&command));
                    block = "shown";
                }
            } else {
                block = "";
                lines.push(line.into());
            }
            continue;
        }
        match block {
            "sh" => {
                pending =
                    line.split_once("cargo run --release --locked -- ").map(|(_, c)| c.into());
                lines.push(line.into());
            }
            "console" => {
                if let Some(command) = line.strip_prefix("$ poolsim ") {
                    lines.push(line.into());
                    lines.extend(output_of(command));
                }
            }
            "shown" => {}
            _ => lines.push(line.into()),
        }
    }
    lines.join("\n") + "\n"
}

#[test]
fn the_pages_show_what_the_program_prints() {
    for page in ["README.md", "GUIDE.md"] {
        let path = root().join(page);
        let old = fs::read_to_string(&path).unwrap();
        let new = renewed(&old);
        if std::env::var_os("UPDATE_DOCS").is_some_and(|v| !v.is_empty()) {
            fs::write(&path, new).unwrap();
            continue;
        }
        for (n, (old, new)) in old.lines().zip(new.lines()).enumerate() {
            assert_eq!(old, new, "{page}, line {}: UPDATE_DOCS=1 writes it anew", n + 1);
        }
        assert_eq!(old.lines().count(), new.lines().count(), "{page}");
    }
}

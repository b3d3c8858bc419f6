//! What a terminal gets, and what a pipe gets: no control codes where nobody asked for them.

mod common;

use common::{corpus, run};
use std::process::Command;

/// Commands that print much, on a small trace.
fn commands(trace: &str) -> Vec<Vec<&str>> {
    let mut commands = vec![
        vec!["--help"],
        vec!["policies"],
        vec!["policies", "pytorch"],
        vec!["nonsense"],
        vec!["replay", "--help"],
    ];
    for command in ["info", "verify", "bound", "waterfall", "frontier", "compare", "replay"] {
        commands.push(vec![command, trace]);
    }
    commands.push(vec!["replay", trace, "-p", "recorded", "-p", "expandable", "--json"]);
    commands
}

#[test]
fn a_pipe_gets_no_control_codes() {
    for args in commands(&corpus("default/compiled.pickle.zst")) {
        let left = run(&args);
        for text in [&left.out, &left.err] {
            let code = text.chars().find(|c| c.is_control() && *c != '\n');
            assert_eq!(code, None, "{args:?}: {text}");
        }
    }
}

/// In a terminal that `script` (util-linux) makes.
fn in_terminal(args: &[&str], variables: &[(&str, &str)]) -> Option<String> {
    let program = env!("CARGO_BIN_EXE_poolsim");
    let line =
        format!("'{program}' {}", args.iter().map(|a| format!("'{a}' ")).collect::<String>());
    let mut script = Command::new("script");
    script.args(["-qec", &line, "/dev/null"]).env("TERM", "xterm-256color").env_remove("NO_COLOR");
    script.envs(variables.iter().copied());
    match script.output() {
        Ok(output) => Some(String::from_utf8(output.stdout).unwrap()),
        Err(error) => {
            eprintln!("SKIPPED: no terminal can be made ({error}): install util-linux's script");
            None
        }
    }
}

#[test]
fn a_terminal_gets_colours_unless_no_color_is_set() {
    let Some(coloured) = in_terminal(&["--help"], &[]) else { return };
    assert!(coloured.contains("\u{1b}["), "the test can see colours: {coloured}");
    for args in commands(&corpus("default/compiled.pickle.zst")) {
        let plain = in_terminal(&args, &[("NO_COLOR", "1")]).unwrap();
        assert!(!plain.contains("\u{1b}["), "{args:?}: {plain}");
    }
}

#[test]
fn lines_of_bars_show_the_peak_at_full_height() {
    let trace = corpus("default/gpt2_varlen.pickle.zst");
    let left = run(&["replay", &trace, "-p", "recorded", "-p", "max_split_size_mb:128"]);
    let (_, bars) = left.out.split_once("Reserved over the run (full height: 48.52 GiB)").unwrap();
    let rows: Vec<&str> = bars.lines().skip(3).take(2).collect();
    assert!(rows[0].contains("recorded") && !rows[0].contains('█'), "{bars}");
    assert!(rows[1].ends_with('█'), "{bars}");
    let info = run(&["info", &trace]).out;
    let live = info.lines().find(|line| line.contains("live over time")).unwrap();
    assert_eq!(live.matches('█').count().min(1), 1, "{live}");
}

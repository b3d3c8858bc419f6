//! `report`: runs that were kept, and reports that replay and compare make at once.

mod common;

use common::{corpus, run};

#[test]
fn kept_runs_report_without_the_trace_what_the_replay_reported() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_string();
    let trace = corpus("default/multistream.pickle.zst");
    let (kept, direct, later) = (at("runs"), at("direct.csv"), at("later.csv"));
    let replay =
        ["replay", &trace, "-p", "recorded", "-p", "best-fit", "--out", &kept, "-o", &direct];
    assert_eq!(run(&replay).code, 0);
    let left = run(&["report", &kept, "-o", &later, "-o", &at("figs/*.svg")]);
    assert_eq!(left.code, 0, "{}", left.err);
    assert_eq!(std::fs::read_to_string(direct).unwrap(), std::fs::read_to_string(&later).unwrap());
    assert!(folder.path().join("figs/memory.svg").exists());
    let wrong = run(&["report", &kept, "-o", &at("figs/clouds.svg")]);
    assert_eq!(wrong.code, 2);
    assert!(
        wrong.err.contains("no figure `clouds`") && wrong.err.contains("memory"),
        "{}",
        wrong.err
    );
    let nothing = run(&["report", &at("nowhere"), "-o", &later]);
    assert_eq!(nothing.code, 1);
    assert!(nothing.err.contains("poolsim replay TRACE --out FOLDER"), "{}", nothing.err);
}

#[test]
fn a_comparison_in_simulation_makes_a_page() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("report.html");
    let trace = corpus("default/multistream.pickle.zst");
    let page_text = page.to_str().unwrap();
    let args =
        ["compare", &trace, "--policies", "recorded,best-fit", "--on", "sim", "-o", page_text];
    let left = run(&args);
    assert_eq!(left.code, 0, "{}", left.err);
    let text = std::fs::read_to_string(page).unwrap();
    assert!(text.contains("best-fit") && text.contains("id=\"payload\""));
}

#[test]
fn shells_and_man_know_every_command() {
    let (bash, man) = (run(&["completions", "bash"]), run(&["man"]));
    for command in ["replay", "report", "compare", "verify"] {
        assert!(bash.out.contains(command) && man.out.contains(command), "{command}");
    }
}

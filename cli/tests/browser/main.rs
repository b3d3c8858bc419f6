//! Is the page right where people look at it? Opened in a headless Chromium: read, sorted, zoomed, recoloured.
//!
//! `POOLSIM_PICTURES=FOLDER` keeps pictures of every page that is opened.

mod chromium;
#[path = "../common/mod.rs"]
mod common;

use chromium::Chromium;
use serde_json::json;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A browser, or a loud word that this was not tested.
fn browser(width: u32) -> Option<Chromium> {
    let Some(program) = chromium::find() else {
        eprintln!(
            "SKIPPED: no chromium in PATH, so no page was looked at (apt-get install chromium)"
        );
        return None;
    };
    Some(Chromium::start(&program, width, 1000))
}

/// A page of a trace of the corpus under some policies.
fn page(folder: &TempDir, trace: &str, policies: &[&str]) -> PathBuf {
    let path = folder.path().join("report.html");
    let mut command = assert_cmd::Command::cargo_bin("poolsim").unwrap();
    command.arg("replay").arg(common::corpus(trace));
    for policy in policies {
        command.args(["--policy", policy]);
    }
    let output = command.arg("-o").arg(&path).output().unwrap();
    assert!(matches!(output.status.code(), Some(0 | 3)), "{output:?}");
    path
}

fn keep_picture(browser: &mut Chromium, name: &str) {
    if let Some(folder) = std::env::var_os("POOLSIM_PICTURES") {
        use base64::Engine;
        let picture = base64::engine::general_purpose::STANDARD.decode(browser.picture()).unwrap();
        std::fs::write(Path::new(&folder).join(format!("{name}.png")), picture).unwrap();
    }
}

/// Neither an error nor a request but for the page itself.
fn nothing_went_wrong(browser: &Chromium) {
    assert_eq!(browser.complaints, [] as [String; 0]);
    let outside: Vec<_> = browser
        .requests
        .iter()
        .filter(|url| {
            !url.starts_with("file:") && !url.starts_with("data:") && !url.starts_with("blob:")
        })
        .collect();
    assert!(outside.is_empty(), "{outside:?}");
}

#[test]
fn a_page_is_read_sorted_zoomed_and_recoloured() {
    let Some(mut browser) = browser(1280) else { return };
    let folder = TempDir::new().unwrap();
    let path = page(
        &folder,
        "default/gpt2_varlen.pickle.zst",
        &["recorded", "expandable", "max_split_size_mb:128"],
    );
    browser.open(&path);
    keep_picture(&mut browser, "wide");

    // The figures are those of the recordings: README.md shows them.
    let verdict = browser.evaluate("document.querySelector('.verdict').textContent");
    assert!(
        verdict.as_str().unwrap().starts_with("expandable reserved least at its peak, 11.86 GiB"),
        "{verdict}"
    );
    let firsts = "[...document.querySelectorAll('#comparison table')[0].tBodies[0].rows].map(r => r.cells[0].innerText.trim())";
    assert_eq!(
        browser.evaluate(firsts),
        json!(["recorded", "expandable", "max_split_size_mb:128"])
    );
    browser.evaluate("document.querySelectorAll('#comparison thead button')[1].click()");
    assert_eq!(
        browser.evaluate(firsts),
        json!(["expandable", "recorded", "max_split_size_mb:128"])
    );
    browser.evaluate("document.querySelectorAll('#comparison thead button')[1].click()");
    assert_eq!(
        browser.evaluate(firsts),
        json!(["max_split_size_mb:128", "recorded", "expandable"])
    );

    // The drawn curve reaches the very peak, however far out.
    let drawn =
        "charts.slice(0, 4).map(c => c.data.slice(1).flat().reduce((a, b) => Math.max(a, b)))";
    let peak = "Number(document.querySelector('#comparison tbody .worst').dataset.value)";
    assert_eq!(browser.evaluate(&format!("{drawn}[0] === {peak}")), json!(true));

    let everything = browser.evaluate("poolsimWindow()");
    browser.evaluate("document.querySelector('#charts').scrollIntoView()");
    let corner = browser.evaluate(
        "(b => [b.left, b.top, b.width, b.height])(charts[0].over.getBoundingClientRect())",
    );
    let [left, top, width, height] = [0, 1, 2, 3].map(|i| corner[i].as_f64().unwrap());
    let y = top + height / 2.0;
    browser.drag((left + width * 0.25, y), (left + width * 0.5, y));
    browser.wait_for("poolsimWindow()[0] > 0");
    let windows =
        browser.evaluate("charts.filter(c => c.scales).map(c => [c.scales.x.min, c.scales.x.max])");
    assert!(
        windows.as_array().unwrap().iter().all(|w| *w == windows[0]),
        "all curves move together: {windows}"
    );
    let share = "(w => (w[1] - w[0]) / poolsimFull)(poolsimWindow())";
    browser.evaluate(&format!("globalThis.poolsimFull = {} - {}", everything[1], everything[0]));
    let share = browser.evaluate(share).as_f64().unwrap();
    assert!((share - 0.25).abs() < 0.02, "a quarter was dragged over, {share} is shown");
    browser.evaluate("document.querySelector('#charts').focus()");
    browser.press("0");
    assert_eq!(browser.evaluate("poolsimWindow()"), everything);

    let paper = "getComputedStyle(document.body).backgroundColor";
    let before = browser.evaluate(paper);
    browser.evaluate("document.querySelector('#theme').click()");
    assert_ne!(browser.evaluate(paper), before);
    keep_picture(&mut browser, "dark");

    // Waterfall and frontier are those of their commands; modelled times are called so.
    let text = |browser: &mut Chromium, place: &str| {
        let text = browser.evaluate(&format!("document.querySelector('{place}').textContent"));
        text.as_str().unwrap_or_default().to_string()
    };
    let waterfall = text(&mut browser, "#waterfall .bars");
    let trace = common::corpus("default/gpt2_varlen.pickle.zst");
    let found = common::json(&["waterfall", &trace, "--json"], 0);
    let order = found["causes"].as_array().unwrap().iter().find(|c| c["cause"] == "order").unwrap();
    let order = poolsim_core::units::ShowBytes(order["bytes"].as_u64().unwrap()).to_string();
    assert!(waterfall.contains(&format!("order of arrival+{order}")), "{waterfall}");
    let found = common::json(&["frontier", &trace, "-p", "expandable", "--json"], 0);
    let least = browser.evaluate(
        "Number(document.querySelectorAll('#frontier tbody tr')[1].cells[1].dataset.value)",
    );
    assert_eq!(least.as_f64(), found["frontiers"][0]["smallest_bytes"].as_f64());
    assert!(text(&mut browser, "#latency").contains("nobody measured them in this run"));
    let legend = text(&mut browser, "#latency .u-legend");
    assert!(legend.contains("recorded (modelled)"), "{legend}");

    // The heap's numbers agree with the table's.
    let title = browser.evaluate("document.querySelector('#heap-title').textContent");
    assert!(title.as_str().unwrap().contains("13.54 GiB reserved"), "{title}");
    browser.evaluate("document.querySelector('#heap-map').focus()");
    browser.press("ArrowRight");
    let details = browser.evaluate("document.querySelector('#heap-details').textContent");
    assert!(details.as_str().unwrap().contains(" at 0x"), "{details}");
    nothing_went_wrong(&browser);
}

#[test]
fn a_narrow_page_does_not_scroll_sideways_and_says_why_a_request_was_refused() {
    let Some(mut browser) = browser(400) else { return };
    let folder = TempDir::new().unwrap();
    let path =
        page(&folder, "default/unet_multires-lim12.5.pickle.zst", &["recorded", "expandable"]);
    browser.open(&path);
    keep_picture(&mut browser, "narrow");
    assert_eq!(browser.evaluate("document.documentElement.scrollWidth <= innerWidth"), json!(true));
    let text = browser.evaluate("document.querySelector('#h-oom').parentElement.textContent");
    let text = text.as_str().unwrap();
    assert!(
        text.contains("out of memory at event") && text.contains("Free memory by segment"),
        "{text}"
    );
    nothing_went_wrong(&browser);
}

#[test]
fn the_peak_is_put_down_to_stacks_as_wide_as_their_bytes() {
    let Some(mut browser) = browser(1280) else { return };
    let folder = TempDir::new().unwrap();
    let path = page(&folder, "frames/resnet50_amp.pickle.zst", &["recorded"]);
    browser.open(&path);
    keep_picture(&mut browser, "stacks");
    let first =
        browser.evaluate("document.querySelector('.icicle button').getAttribute('aria-label')");
    assert!(first.as_str().unwrap().contains("100.0 % of the peak"), "{first}");
    let wide = "[...document.querySelectorAll('.icicle button')].filter(b => b.style.top === '22px').reduce((sum, b) => sum + parseFloat(b.style.width), 0)";
    let wide = browser.evaluate(wide).as_f64().unwrap();
    assert!((95.0..100.01).contains(&wide), "the calls below the first fill {wide} % of it");
    browser.evaluate("document.querySelectorAll('.icicle button')[1].click()");
    let zoomed = browser.evaluate("document.querySelector('.icicle button').style.width");
    assert_eq!(zoomed, json!("100%"));
    nothing_went_wrong(&browser);
}

#[test]
fn a_million_events_under_five_policies_make_a_page_that_is_small_enough_and_draws() {
    let Some(mut browser) = browser(1280) else { return };
    let folder = TempDir::new().unwrap();
    let (trace, path) = (folder.path().join("long.pst"), folder.path().join("report.html"));
    let settings = ["--set", "steps=540", "--set", "layers=24"];
    let synth = ["synth", "train-varlen", "-o", trace.to_str().unwrap()];
    let made = common::run(&[&synth[..], &settings[..]].concat());
    assert_eq!(made.code, 0, "{}", made.err);
    let mut args = vec!["replay", trace.to_str().unwrap(), "--device-memory", "1TiB"];
    for policy in ["pytorch", "expandable", "best-fit", "pow2", "cuda-async"] {
        args.extend(["-p", policy]);
    }
    let left = common::run(&[&args[..], &["-o", path.to_str().unwrap()]].concat());
    assert_eq!(left.code, 0, "{}", left.err);
    assert!(path.metadata().unwrap().len() < 8_000_000);
    browser.open(&path);
    keep_picture(&mut browser, "million");
    let told = browser.evaluate("document.querySelector('details').textContent");
    let told = told.as_str().unwrap();
    assert!(told.contains("`poolsim frontier TRACE --policy …` does"), "{told}");
    assert_eq!(
        browser.evaluate("document.querySelectorAll('#charts canvas').length >= 6"),
        json!(true)
    );
    nothing_went_wrong(&browser);
}

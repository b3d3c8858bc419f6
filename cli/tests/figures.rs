//! Do the figures show the numbers? Each is read as somebody with a ruler would: off the drawing, through its own axes.

mod common;

use common::{corpus, json, run};
use roxmltree::{Document, Node};
use serde_json::Value;
use std::collections::BTreeMap;
use tempfile::TempDir;

const POLICIES: [&str; 3] = ["recorded", "expandable", "max_split_size_mb:128"];

/// The colours of the first three policies.
const COLOURS: [&str; 3] = ["#0072B2", "#D55E00", "#009E73"];

/// Every figure of a trace under the policies, and what the runs measured.
fn figures() -> (BTreeMap<String, String>, Vec<Value>) {
    let folder = TempDir::new().unwrap();
    let trace = corpus("default/gpt2_varlen.pickle.zst");
    let all = folder.path().join("*.svg");
    let mut args = vec!["replay", &trace];
    POLICIES.iter().for_each(|policy| args.extend(["-p", policy]));
    let drawn = run(&[&args[..], &["-o", all.to_str().unwrap()]].concat());
    assert_eq!(drawn.code, 0, "{}", drawn.err);
    let files = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap());
    let text = |path: std::path::PathBuf| std::fs::read_to_string(path).unwrap();
    let name = |file: &std::fs::DirEntry| file.file_name().into_string().unwrap();
    let figures = files.map(|file| (name(&file), text(file.path()))).collect();
    let runs = json(&[&args[..], &["--json"]].concat(), 0)["runs"].as_array().unwrap().clone();
    (figures, runs)
}

fn number(node: Node<'_, '_>, name: &str) -> f64 {
    node.attribute(name).unwrap().parse().unwrap()
}

fn metric(run: &Value, name: &str) -> f64 {
    run["metrics"][name].as_f64().unwrap_or_else(|| panic!("{name} of {run}"))
}

/// Pixels to values, by the labels along an axis.
struct Axis {
    zero: f64,
    per_pixel: f64,
}

impl Axis {
    /// The axis whose labels are anchored so and lie along this coordinate.
    fn new(document: &Document<'_>, anchor: &str, along: &str) -> Axis {
        let labels: Vec<(f64, f64)> = document
            .descendants()
            .filter(|n| n.has_tag_name("text") && n.attribute("text-anchor") == Some(anchor))
            .filter_map(|n| {
                Some((number(n, along), n.text()?.trim().replace(',', "").parse().ok()?))
            })
            .collect();
        let by_value = |a: &&(f64, f64), b: &&(f64, f64)| a.1.total_cmp(&b.1);
        let (least, most) =
            (labels.iter().min_by(by_value).unwrap(), labels.iter().max_by(by_value).unwrap());
        let per_pixel = (most.1 - least.1) / (most.0 - least.0);
        Axis { zero: least.0 - least.1 / per_pixel, per_pixel }
    }

    fn value(&self, pixel: f64) -> f64 {
        (pixel - self.zero) * self.per_pixel
    }

    /// Whether a pixel shows a value, as well as pixels can.
    #[track_caller]
    fn shows(&self, pixel: f64, value: f64, what: &str) {
        let off = ((self.value(pixel) - value) / self.per_pixel).abs();
        assert!(off <= 2.0, "{what}: {value} is drawn as {}", self.value(pixel));
    }
}

/// The points of the longest line of a colour.
fn line(document: &Document<'_>, colour: &str) -> Vec<(f64, f64)> {
    let lines = document.descendants().filter(|n| n.has_tag_name("polyline"));
    let points = lines.filter(|n| n.attribute("stroke") == Some(colour)).map(|n| {
        let pairs = n.attribute("points").unwrap().split_whitespace();
        let pair = |pair: &str| {
            let (x, y) = pair.split_once(',').unwrap();
            (x.parse().unwrap(), y.parse().unwrap())
        };
        pairs.map(pair).collect::<Vec<(f64, f64)>>()
    });
    points.max_by_key(Vec::len).unwrap()
}

#[test]
fn figures_show_the_numbers_of_the_runs() {
    const GIB: f64 = (1u64 << 30) as f64;
    let (figures, runs) = figures();
    let document = |name: &str| Document::parse(&figures[name]).unwrap();

    let memory = document("memory.svg");
    let gib = Axis::new(&memory, "end", "y");
    for (colour, run) in COLOURS.iter().zip(&runs) {
        let highest = line(&memory, colour).iter().fold(f64::MAX, |top, p| top.min(p.1));
        gib.shows(highest, metric(run, "peak_reserved_bytes") / GIB, "peak of the curve");
        let last = line(&memory, colour).last().unwrap().1;
        gib.shows(last, metric(run, "final_reserved_bytes") / GIB, "end of the curve");
    }

    let calls = document("calls.svg");
    let count = Axis::new(&calls, "end", "y");
    for (colour, run) in COLOURS.iter().zip(&runs) {
        let last = line(&calls, colour).last().unwrap().1;
        count.shows(last, metric(run, "device_calls"), "calls at the end");
    }

    let scatter = document("scatter.svg");
    let (time, share) = (Axis::new(&scatter, "middle", "x"), Axis::new(&scatter, "end", "y"));
    let dots: Vec<_> = scatter.descendants().filter(|n| n.has_tag_name("circle")).collect();
    assert_eq!(dots.len(), runs.len());
    for (dot, run) in dots.into_iter().zip(&runs) {
        time.shows(number(dot, "cx"), metric(run, "device_time_ns") / 1e6, "time of a dot");
        share.shows(number(dot, "cy"), metric(run, "fragmentation") * 100.0, "height of a dot");
    }

    let peaks = document("peaks.svg");
    for (fill, name) in [
        (COLOURS[0], "peak_reserved_bytes"),
        ("#56B4E9", "peak_active_bytes"),
        ("#E69F00", "peak_requested_bytes"),
    ] {
        let bars = peaks.descendants().filter(|n| n.attribute("fill") == Some(fill)).skip(1);
        let widths: Vec<f64> = bars.map(|bar| number(bar, "width")).collect();
        assert_eq!(widths.len(), runs.len(), "{name}");
        // All bars are on one scale: that of the longest.
        let longest = metric(&runs[2], "peak_reserved_bytes") / 550.0;
        for (width, run) in widths.iter().zip(&runs) {
            let drawn = metric(run, name) / longest;
            assert!((width - drawn).abs() <= 1.5, "{name}: {width} pixels for {drawn}");
        }
    }
    let waterfall = document("waterfall.svg");
    let trace = corpus("default/gpt2_varlen.pickle.zst");
    for (policy, run) in POLICIES.iter().zip(&runs) {
        let found = json(&["waterfall", &trace, "-p", policy, "--json"], 0);
        assert_eq!(found["peak_reserved_bytes"], run["metrics"]["peak_reserved_bytes"]);
        let order = found["causes"].as_array().unwrap().iter().find(|c| c["cause"] == "order");
        let bytes = order.unwrap()["bytes"].as_u64().unwrap();
        let text = format!("+{}", poolsim_core::units::ShowBytes(bytes));
        let words = waterfall.descendants().filter_map(|n| n.text());
        assert!(words.map(str::trim).any(|word| word == text), "{policy}: {text}");
    }

    let frontier = document("frontier.svg");
    let found = json(&["frontier", &trace, "-p", "expandable", "--json"], 0);
    let memory = Axis::new(&frontier, "middle", "x");
    let dots = frontier.descendants().filter(|n| n.has_tag_name("circle"));
    let rows: BTreeMap<u64, f64> = dots.fold(BTreeMap::new(), |mut rows, dot| {
        let least = rows.entry(number(dot, "cy") as u64).or_insert(f64::MAX);
        *least = least.min(number(dot, "cx"));
        rows
    });
    let second = *rows.values().nth(1).unwrap();
    let smallest = found["frontiers"][0]["smallest_bytes"].as_f64().unwrap() / GIB;
    memory.shows(second, smallest, "smallest memory of the second policy");

    let words = peaks.descendants().filter_map(|n| n.text()).collect::<String>();
    assert!(words.contains("48.52 GiB") && words.contains("13.54 GiB"), "{words}");
}

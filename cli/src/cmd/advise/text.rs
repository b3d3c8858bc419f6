//! The answer for people: the finding first, the line to run last.

use super::Answer;
use super::cards::{self, BESIDE};
use crate::output::{Out, paragraph};
use poolsim_advice::advise::{Doubt, EFFECT, Finalist};
use poolsim_advice::confidence::{Confidence, Row};
use poolsim_advice::search::{Trial, best};
use poolsim_advice::torch::SIMULATED;
use poolsim_advice::{Measured, Verdict};
use poolsim_core::Bytes;
use poolsim_core::units::ShowBytes;
use poolsim_reports::quantity::{show_count, show_nanos, show_plural};
use poolsim_reports::table::{finish, numbers_right, plain_table, words_left};
use std::io::{self, Write};

pub(super) fn write(answer: &Answer, out: &mut Out) -> anyhow::Result<()> {
    head(answer, out)?;
    para(&finding(answer), out)?;
    let advice = &answer.advice;
    if advice.verdict == Verdict::Impossible && advice.found.trials.is_empty() {
        return Ok(());
    }
    writeln!(out)?;
    before_and_after(answer, out)?;
    if let Some(confidence) = &advice.confidence {
        writeln!(out, "\nHow sure")?;
        sure(confidence, out)?;
    }
    if !answer.ranks.is_empty() {
        writeln!(out, "\nRanks")?;
        ranks(answer, out)?;
    }
    writeln!(out, "\nTried")?;
    tried(answer, out)?;
    writeln!(out)?;
    for words in last_words(answer) {
        para(&words, out)?;
    }
    if matches!(advice.verdict, Verdict::Set) {
        writeln!(out, "\n{}", answer.line())?;
    }
    Ok(())
}

fn para(text: &str, out: &mut Out) -> io::Result<()> {
    out.write_all(paragraph(text, 0).as_bytes())
}

fn head(answer: &Answer, out: &mut Out) -> io::Result<()> {
    let first = &answer.asked[0];
    let more = match answer.asked.len() {
        1 => String::new(),
        n => format!(" and {} of the same program", show_plural(n as u64 - 1, "further rank")),
    };
    let events = show_plural(first.job.trace.events.len() as u64, "event");
    let digest = first.digest.get(..12).unwrap_or(&first.digest);
    writeln!(out, "trace      {}, {events} (digest {digest}){more}", first.path.display())?;
    writeln!(out, "machine    {}", first.machine)?;
    if let Some(capacity) = first.job.capacity {
        writeln!(out, "capacity   {} of it are there for this job", ShowBytes(capacity))?;
    }
    let assumed = if answer.torch_assumed { " (assumed: nothing says it)" } else { "" };
    let rules = match answer.torch {
        SIMULATED => String::new(),
        _ => format!("; the rules simulated are those of {SIMULATED}"),
    };
    writeln!(out, "for        PyTorch {}{assumed}{rules}", answer.torch)?;
    let found = &answer.advice.found;
    if !found.trials.is_empty() {
        let how = if found.is_exhaustive() { "all" } else { "searched" };
        let (n, of) = (found.trials.len() as u64, found.possible as u64);
        writeln!(
            out,
            "tried      {} of {} settings ({how}), each by a replay",
            show_count(n),
            show_count(of)
        )?;
    }
    writeln!(out)
}

/// `12.5 %` less than before.
fn less(now: Bytes, then: Bytes) -> String {
    format!("{:.1} %", (now as f64 - then as f64) * 100.0 / now.max(1) as f64)
}

/// What was found, in a sentence or two.
fn finding(answer: &Answer) -> String {
    let advice = &answer.advice;
    let (now, then) = (&advice.now.measured, &advice.setting.measured);
    let (before, after) = (now.peak_reserved_bytes, then.peak_reserved_bytes);
    let limit = ShowBytes(advice.needs.limit_bytes);
    let title = advice.setting.setting.title();
    match advice.verdict {
        Verdict::Impossible => impossible(answer),
        Verdict::NotFound => format!(
            "None of the settings that were tried carries the job in {limit}, though what is live at once, {}, would fit. Under the \
             best of them {} refused.",
            ShowBytes(advice.needs.live_waiting_bytes),
            refused(then.ooms),
        ),
        Verdict::Keep if advice.setting.setting.conf().is_empty() => format!(
            "PyTorch's defaults are best. Nothing that was tried reserves at least {:.0} % less and does so on changed recordings too.",
            EFFECT * 100.0
        ),
        Verdict::Keep => format!(
            "The settings in force, {title}, are best. Nothing that was tried reserves at least {:.0} % less and does so on changed \
             recordings too.",
            EFFECT * 100.0
        ),
        Verdict::Set if now.ooms > 0 => format!(
            "With {title} the job lives in {limit}. As it is, {} refused.",
            refused(now.ooms)
        ),
        Verdict::Set => format!(
            "With {title} the job reserves {} at its peak instead of {}: {} ({}) less.",
            ShowBytes(after),
            ShowBytes(before),
            ShowBytes(before.saturating_sub(after)),
            less(before, after),
        ),
    }
}

/// `1 request is`, `3 requests are`.
fn refused(n: u64) -> String {
    let verb = if n == 1 { "is" } else { "are" };
    format!("{} {verb}", show_plural(n, "request"))
}

fn impossible(answer: &Answer) -> String {
    let needs = &answer.advice.needs;
    let least = needs.packing_least_bytes.unwrap_or(0).max(needs.live_bytes);
    format!(
        "No setting can carry this job: it needs {} at once ({} bytes), and has {} ({} bytes). {} ({} bytes) have to go, whatever \
         the allocator does. `poolsim explain` says who holds them.",
        ShowBytes(least),
        show_count(least),
        ShowBytes(needs.limit_bytes),
        show_count(needs.limit_bytes),
        ShowBytes(least.saturating_sub(needs.limit_bytes)),
        show_count(least.saturating_sub(needs.limit_bytes)),
    )
}

fn before_and_after(answer: &Answer, out: &mut Out) -> io::Result<()> {
    let advice = &answer.advice;
    let mut table = plain_table();
    let changes = advice.verdict == Verdict::Set;
    let mut header = vec!["".to_string(), format!("now\n({})", short(advice.now.setting.title()))];
    if changes {
        header.push(format!("then\n({})", short(advice.setting.setting.title())));
    }
    table.set_header(header);
    let [before, after] = advice.smallest;
    let whole = answer.asked.iter().map(|asked| asked.job.caps.total).min().unwrap_or(0);
    let none = || format!("above {}", ShowBytes(whole));
    let size = |size: Option<Bytes>| size.map_or_else(none, |n| ShowBytes(n).to_string());
    let mut row = |name: &str, now: String, then: String| {
        let mut cells = vec![name.to_string(), now];
        cells.extend(changes.then_some(then));
        table.add_row(cells);
    };
    for (title, now, then) in both(&advice.now.measured, &advice.setting.measured) {
        row(title, now, then);
    }
    row("smallest memory that carries it", size(before), size(after));
    row("smallest card", cards::words(before), cards::words(after));
    numbers_right(&mut table);
    write!(out, "{}", finish(&table))?;
    let note = format!(
        "The smallest memory is the allocator's. A card also holds the CUDA context and libraries, about {} on the GPU that this was \
         measured on.",
        ShowBytes(BESIDE)
    );
    para(&note, out)
}

/// What two runs came to, row by row.
fn both(now: &Measured, then: &Measured) -> [(&'static str, String, String); 5] {
    let of = |m: &Measured| {
        [
            show_count(m.ooms),
            ShowBytes(m.peak_reserved_bytes).to_string(),
            show_plural(m.retries, "time"),
            show_count(m.device_calls),
            show_nanos(m.device_time_ns),
        ]
    };
    let [a, b, c, d, e] = of(now);
    let [p, q, r, s, t] = of(then);
    [
        ("requests refused", a, p),
        ("peak reserved", b, q),
        ("cache given back under pressure", c, r),
        ("device calls", d, s),
        ("predicted time in them", e, t),
    ]
}

/// A setting with a line for each option.
fn short(title: &str) -> String {
    title
        .replace(",garb", ",\ngarb")
        .replace(",max", ",\nmax")
        .replace(",round", ",\nround")
        .replace(",large", ",\nlarge")
}

fn sure(confidence: &Confidence, out: &mut Out) -> io::Result<()> {
    let sum = |of: fn(&Row) -> usize| confidence.rows.iter().map(of).sum::<usize>();
    let (lives, lived) = (sum(|row| row.lives), sum(|row| row.lived_before));
    let jobs = confidence.jobs();
    let all_live = lives == jobs && lived == jobs;
    let mut table = plain_table();
    let last = if all_live {
        ["better", "worse", "median\npeak"]
    } else {
        ["lives\nnow", "lives\nthen", "worse"]
    };
    table.set_header(["changed recordings"].into_iter().chain(last));
    for row in &confidence.rows {
        let of = |n: usize| format!("{n} of {}", row.jobs);
        let cells = if all_live {
            let median = format!("{:+.1} %", (row.median_ratio - 1.0) * 100.0);
            [of(row.better), row.worse.to_string(), median]
        } else {
            [of(row.lived_before), of(row.lives), row.worse.to_string()]
        };
        table.add_row([row.kind.title().to_string()].into_iter().chain(cells));
    }
    numbers_right(&mut table);
    write!(out, "{}", finish(&table))?;
    let (better, worse) = (confidence.better(), confidence.worse());
    let mut text = format!("Better on {better} of {jobs} changed recordings, worse on {worse}.");
    if !all_live {
        text += " A changed recording may need more than there is.";
    }
    if !confidence.holds() {
        text += " That is less than a job that lives would have to be sure of; this one fails as it is.";
    }
    para(&text, out)
}

fn ranks(answer: &Answer, out: &mut Out) -> io::Result<()> {
    let mut table = plain_table();
    table.set_header([
        "rank",
        "refused\nnow",
        "peak reserved\nnow",
        "refused\nthen",
        "peak reserved\nthen",
    ]);
    for (asked, [now, then]) in answer.asked.iter().zip(&answer.ranks) {
        let name = asked.path.file_name().map_or_else(String::new, |n| n.to_string_lossy().into());
        table.add_row([
            name,
            show_count(now.ooms),
            ShowBytes(now.peak_reserved_bytes).to_string(),
            show_count(then.ooms),
            ShowBytes(then.peak_reserved_bytes).to_string(),
        ]);
    }
    numbers_right(&mut table);
    write!(out, "{}", finish(&table))?;
    let words = |which: usize| {
        let peaks = answer.ranks.iter().map(|rank| rank[which].peak_reserved_bytes);
        let (least, most) = (peaks.clone().min().unwrap_or(0), peaks.clone().max().unwrap_or(0));
        let worst = peaks.into_iter().position(|peak| peak == most).unwrap_or(0);
        (answer.asked[worst].path.display().to_string(), least, most)
    };
    let (worst, least, most) = words(0);
    let (_, least_then, most_then) = words(1);
    para(
        &format!(
            "Worst rank: {worst}. The ranks are {} apart now and {} then; the advice is one setting for all, chosen by the worst.",
            ShowBytes(most - least),
            ShowBytes(most_then - least_then)
        ),
        out,
    )
}

/// Rows that are shown of what was tried.
const SHOWN: usize = 14;

fn tried(answer: &Answer, out: &mut Out) -> io::Result<()> {
    let advice = &answer.advice;
    let trials = &advice.found.trials;
    let mut shown: Vec<&Trial> = vec![&advice.now];
    let mut add = |trial: Option<&'_ Trial>| {
        if let Some(trial) = trial
            && !shown.iter().any(|s| s.setting.conf() == trial.setting.conf())
        {
            shown.push(
                trials
                    .iter()
                    .find(|t| t.setting.conf() == trial.setting.conf())
                    .unwrap_or(&advice.standard),
            );
        }
    };
    add(Some(&advice.standard));
    add(Some(&advice.setting));
    advice.finalists.iter().for_each(|finalist| add(Some(&finalist.trial)));
    for key in [
        "expandable_segments",
        "max_split_size_mb",
        "roundup_power2_divisions",
        "large_segment_size_mb",
        "garbage_collection_threshold",
    ] {
        let alone =
            trials.iter().filter(|t| t.setting.keys() == 1 && t.setting.conf().starts_with(key));
        add(best(alone));
    }
    let worst = trials.iter().max_by_key(|t| (t.measured.ooms, t.measured.peak_reserved_bytes));
    add(worst);
    let mut table = plain_table();
    table.set_header(["setting", "refused", "peak\nreserved", "against\nnow", "device\ntime", ""]);
    let now = advice.now.measured.peak_reserved_bytes;
    for trial in shown.into_iter().take(SHOWN) {
        let m = &trial.measured;
        table.add_row([
            short(trial.setting.title()),
            show_count(m.ooms),
            ShowBytes(m.peak_reserved_bytes).to_string(),
            format!("{:+.1} %", (m.peak_reserved_bytes as f64 / now.max(1) as f64 - 1.0) * 100.0),
            show_nanos(m.device_time_ns),
            remark(answer, trial),
        ]);
    }
    numbers_right(&mut table);
    words_left(&mut table, 5);
    write!(out, "{}", finish(&table))
}

fn remark(answer: &Answer, trial: &Trial) -> String {
    let advice = &answer.advice;
    let conf = trial.setting.conf();
    let of = |finalist: &&Finalist| finalist.trial.setting.conf() == conf;
    if conf == advice.setting.setting.conf() && advice.verdict == Verdict::Set {
        return "advised".into();
    }
    if conf == advice.now.setting.conf() {
        return "now".into();
    }
    match advice.finalists.iter().find(of) {
        Some(Finalist { doubt: Some(Doubt::Luck), confidence, .. }) => {
            let (better, worse) = (confidence.better(), confidence.worse());
            format!("luck: {better} better, {worse} worse of {}", confidence.jobs())
        }
        Some(Finalist { doubt: Some(Doubt::Slow), .. }) => "too many device calls".into(),
        Some(_) => "holds".into(),
        None => String::new(),
    }
}

/// What was left out, what to mind, and what to do.
fn last_words(answer: &Answer) -> Vec<String> {
    let advice = &answer.advice;
    let left_out = advice.left_out.iter().map(|(key, why)| format!("{key} was not tried: {why}."));
    let mut words: Vec<String> = left_out.collect();
    if advice.verdict == Verdict::Set && advice.setting.setting.conf().contains("expandable") {
        words.push(
            "Expandable segments do not suit every program that shares GPU memory with other processes or devices (CUDA IPC, RDMA): \
             try it once before a long run."
                .into(),
        );
    }
    words.push(match advice.verdict {
        Verdict::Set => "Put this line before the program's start:".into(),
        Verdict::Keep => "There is nothing to set.".into(),
        Verdict::NotFound | Verdict::Impossible => {
            "`poolsim explain` says who holds the memory.".into()
        }
    });
    words
}

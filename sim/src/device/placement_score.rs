//! How well the model of the driver predicts where recorded segments really went.
//!
//! Each recorded `cudaMalloc` is predicted from the recorded past: after a wrong prediction the model's state is
//! corrected to what happened, so that one unseen host mapping is counted once.

use super::chunk::longest;
use super::placement::{CHUNK, Driver};
use poolsim_core::units::MIB;
use poolsim_core::{Action, Bytes, DevAddr, Recording};
use poolsim_traces::{OpenOptions, Source, open};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Exact predictions and all of them, by what was predicted.
#[derive(Clone, Copy, Debug, Default)]
struct Score {
    inside: (u64, u64),
    gap: (u64, u64),
    lowest: (u64, u64),
}

impl Score {
    fn add(&mut self, other: Score) {
        for (a, b) in [
            (&mut self.inside, other.inside),
            (&mut self.gap, other.gap),
            (&mut self.lowest, other.lowest),
        ] {
            a.0 += b.0;
            a.1 += b.1;
        }
    }
}

fn percent((exact, all): (u64, u64)) -> f64 {
    100.0 * exact as f64 / all as f64
}

/// The newer of the two chunks that were there before, if the first segments in them show where.
fn newer_chunk(recording: &Recording) -> Option<DevAddr> {
    let in_chunk = |addr: DevAddr, offset: Bytes| addr % CHUNK == offset * MIB;
    let segments = || recording.entries.iter().filter(|e| e.action == Action::SegmentAlloc);
    let newer = segments().find(|e| e.size == 2 * MIB).filter(|e| in_chunk(e.addr, 30));
    let older = segments()
        .find(|e| e.size == 16 * MIB || e.size == 20 * MIB)
        .filter(|e| in_chunk(e.addr, 8));
    newer
        .map(|e| e.addr - 30 * MIB)
        .or(older.and_then(|e| (e.addr - 8 * MIB).checked_sub(96 * MIB)))
}

/// Makes the model hold a range where it really is.
fn force(driver: &mut Driver, addr: DevAddr, size: Bytes, predicted: Option<DevAddr>) -> u64 {
    let end = addr + size;
    let home = driver
        .chunks
        .iter()
        .position(|c| c.free.iter().any(|&(start, len)| start <= addr && end <= start + len));
    if let Some(i) = home {
        let chunk = &mut driver.chunks[i];
        let at = chunk.free.iter().position(|&(s, len)| s <= addr && end <= s + len).unwrap();
        let (start, len) = chunk.free.remove(at);
        if end < start + len {
            chunk.free.insert(at, (end, start + len - end));
        }
        if start < addr {
            chunk.free.insert(at, (start, addr - start));
        }
        driver.longest[i] = longest(&chunk.free);
        return driver.chunks[i].number;
    }
    let base = addr - addr % CHUNK;
    let len = (end - base).next_multiple_of(CHUNK);
    if let Some(predicted) = predicted.filter(|&p| p > base) {
        // What was passed over is taken by something that the recording does not show.
        driver.whole.carve(base.max(predicted), predicted + len - base.max(predicted));
        driver.whole.carve_above(base + len);
    }
    driver.whole.carve(base, len);
    let mut free = Vec::new();
    if base < addr {
        free.push((base, addr - base));
    }
    if end < base + len {
        free.push((end, base + len - end));
    }
    driver.push_chunk(base, len, free)
}

fn score(recording: &Recording) -> Option<Score> {
    let mut driver = match newer_chunk(recording) {
        Some(newer) => Driver::started_at(newer),
        None => {
            // Another start state: nothing is known but what lies below the first segment.
            let first = recording.entries.iter().find(|e| e.action == Action::SegmentAlloc)?;
            let mut driver = Driver::started_at(first.addr + 512 * MIB);
            (driver.chunks, driver.longest) = (Vec::new(), Vec::new());
            driver
        }
    };
    let mut homes: BTreeMap<DevAddr, u64> = BTreeMap::new();
    let mut score = Score::default();
    for e in &recording.entries {
        match e.action {
            Action::SegmentAlloc => {
                let inside = driver.longest.iter().any(|&room| room >= e.size);
                let mut next = driver.clone();
                let (predicted, mut home) = next.take_whole(e.size)?;
                let exact = predicted == e.addr;
                let kind = if inside {
                    &mut score.inside
                } else if driver.chunks.iter().any(|c| c.base < predicted) {
                    &mut score.gap
                } else {
                    &mut score.lowest
                };
                kind.0 += u64::from(exact);
                kind.1 += 1;
                if exact {
                    driver = next;
                } else {
                    home = force(&mut driver, e.addr, e.size, (!inside).then_some(predicted));
                }
                homes.insert(e.addr, home);
            }
            Action::SegmentFree => {
                driver.give_whole(homes.remove(&e.addr)?, e.addr, e.size);
            }
            _ => {}
        }
    }
    Some(score)
}

fn shared() -> Option<PathBuf> {
    let path = std::env::var_os("POOLSIM_SHARED")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared"), PathBuf::from);
    path.join("traces").is_dir().then_some(path)
}

fn score_all(root: &Path, wanted: impl Fn(&str) -> bool) -> Score {
    let mut total = Score::default();
    for settings in ["default", "gc70", "gc80", "pow2d4", "seg64", "split128"] {
        let folder = root.join("traces").join(settings);
        let mut files: Vec<PathBuf> =
            folder.read_dir().into_iter().flatten().map(|f| f.unwrap().path()).collect();
        files.sort();
        for file in files {
            let name = file.file_name().unwrap().to_string_lossy().into_owned();
            if !name.ends_with(".pickle.zst") || !wanted(&name) {
                continue;
            }
            let opened = open(&file, &OpenOptions::default()).unwrap();
            let Source::Recording(recording) = opened.source else {
                panic!("{name}: no recording")
            };
            match score(&recording) {
                Some(s) => {
                    println!("{settings}/{name}: {s:?}");
                    total.add(s);
                }
                None => {
                    println!("{settings}/{name}: the first segments do not show the start state")
                }
            }
        }
    }
    total
}

#[test]
fn programs_with_libraries_are_mostly_predicted() {
    let Some(root) = shared() else {
        println!(
            "SKIPPED: no shared recordings (set POOLSIM_SHARED) to score the placement model on"
        );
        return;
    };
    let alone = |name: &str| name.starts_with("fuzz") || name.starts_with("mid");
    let total = score_all(&root, |name| !alone(name));
    println!("{total:?}");
    let (exact, all) = [total.inside, total.gap, total.lowest]
        .iter()
        .fold((0, 0), |sum, part| (sum.0 + part.0, sum.1 + part.1));
    assert!(percent((exact, all)) > 70.0, "{exact} of {all}");
}

#[test]
fn programs_without_libraries_are_predicted() {
    let Some(root) = shared() else {
        println!(
            "SKIPPED: no shared recordings (set POOLSIM_SHARED) to score the placement model on"
        );
        return;
    };
    let alone = |name: &str| name.starts_with("fuzz") || name.starts_with("mid");
    let total = score_all(&root, alone);
    println!("{total:?}");
    assert!(percent(total.inside) > 99.0, "{total:?}");
    assert!(percent(total.gap) > 80.0, "{total:?}");
    assert!(percent(total.lowest) > 70.0, "{total:?}");
}

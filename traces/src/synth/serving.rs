//! Serving a language model: requests come and go, and the cache of each grows with its answer.

use super::generator::{Draft, Generator, Knob};
use super::program::Held;
use statrs::distribution::{ContinuousCDF, Exp, LogNormal};

/// Growing caches.
pub(super) static DEF: Generator = Generator {
    name: "serve",
    summary: "serves a language model: texts of any length come and go, and each one's cache grows by moving to a larger block",
    hurts: "",
    knobs: &[
        Knob { key: "requests", default: 400, bounds: (1, 10_000_000), doc: "texts served in all" },
        Knob {
            key: "slots",
            default: 32,
            bounds: (1, 4096),
            doc: "texts served at a time, at most",
        },
        Knob {
            key: "layers",
            default: 16,
            bounds: (1, 256),
            doc: "transformer blocks, each with a cache",
        },
        Knob {
            key: "hidden",
            default: 2048,
            bounds: (1, 65_536),
            doc: "width of keys and of values",
        },
        Knob {
            key: "prompt",
            default: 400,
            bounds: (1, 1 << 20),
            doc: "median tokens of a prompt",
        },
        Knob { key: "answer", default: 200, bounds: (1, 1 << 20), doc: "mean tokens of an answer" },
        Knob {
            key: "chunk",
            default: 64,
            bounds: (1, 1 << 16),
            doc: "tokens by which a cache grows",
        },
    ],
    make: serve,
};

struct Text {
    caches: Vec<Held>,
    tokens: u64,
    room: u64,
    left: u64,
}

fn serve(draft: &mut Draft) {
    let (layers, hidden) = (draft.get("layers"), draft.get("hidden"));
    let weights: Vec<Held> =
        (0..4 * layers).map(|_| draft.program.alloc(6 * hidden * hidden, 0)).collect();
    let (mut texts, mut to_come): (Vec<Text>, u64) = (Vec::new(), draft.get("requests"));
    while (to_come > 0 || !texts.is_empty()) && draft.has_room() {
        // One comes about as often as one ends.
        let comes = texts.is_empty() || draft.uniform() < 0.02 * draft.get("slots") as f64 / 4.0;
        if to_come > 0 && comes && (texts.len() as u64) < draft.get("slots") {
            to_come -= 1;
            let text = prefill(draft);
            texts.push(text);
        }
        step(draft, &mut texts);
    }
    weights.into_iter().for_each(|weight| draft.program.free(weight));
}

fn cache_size(draft: &Draft, tokens: u64) -> u64 {
    2 * 2 * tokens * draft.get("hidden")
}

fn prefill(draft: &mut Draft) -> Text {
    let prompts =
        LogNormal::new((draft.get("prompt") as f64).ln(), 0.8).expect("a positive median");
    let answers = Exp::new(1.0 / draft.get("answer") as f64).expect("a positive rate");
    let most = 64 * draft.get("prompt").max(draft.get("answer"));
    let tokens = (prompts.inverse_cdf(draft.uniform()) as u64).clamp(1, most);
    let left = (answers.inverse_cdf(draft.uniform()) as u64).clamp(1, most);
    let room = tokens.next_multiple_of(draft.get("chunk"));
    let mut caches = Vec::new();
    let mut flowing = draft.program.alloc(2 * tokens * draft.get("hidden"), 0);
    for _ in 0..draft.get("layers") {
        let size = cache_size(draft, room);
        caches.push(draft.program.alloc(size, 0));
        let inner = draft.program.alloc(8 * tokens * draft.get("hidden"), 0);
        draft.program.pass(100_000);
        let next = draft.program.alloc(2 * tokens * draft.get("hidden"), 0);
        draft.program.free(inner);
        draft.program.free(std::mem::replace(&mut flowing, next));
    }
    draft.program.free(flowing);
    Text { caches, tokens, room, left }
}

/// One token for every text.
fn step(draft: &mut Draft, texts: &mut Vec<Text>) {
    let batch = texts.len().max(1) as u64;
    let flowing = draft.program.alloc(8 * batch * draft.get("hidden"), 0);
    let chunk = draft.get("chunk");
    for text in texts.iter_mut() {
        text.tokens += 1;
        text.left -= 1;
        if text.tokens > text.room {
            text.room += chunk;
            for i in 0..text.caches.len() {
                let size = cache_size(draft, text.room);
                let grown = draft.program.alloc(size, 0);
                draft.program.pass(2_000);
                draft.program.free(std::mem::replace(&mut text.caches[i], grown));
            }
        }
    }
    draft.program.pass(20_000);
    draft.program.free(flowing);
    for text in texts.extract_if(.., |text| text.left == 0) {
        text.caches.into_iter().for_each(|cache| draft.program.free(cache));
    }
}

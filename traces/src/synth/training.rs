//! Training a transformer with Adam in mixed precision: dense, with activation checkpoints, on texts of any length, and
//! with experts.

use super::generator::{Draft, Generator, Knob};
use super::program::Held;
use poolsim_core::Bytes;
use statrs::distribution::{ContinuousCDF, Exp, LogNormal};

const fn knob(key: &'static str, default: u64, max: u64, doc: &'static str) -> Knob {
    Knob { key, default, bounds: (1, max), doc }
}

const STEPS: Knob = knob("steps", 10, 1_000_000, "optimizer steps");
const LAYERS: Knob = knob("layers", 12, 256, "transformer blocks");
const HIDDEN: Knob = knob("hidden", 1024, 65_536, "width of the model");
const BATCH: Knob = knob("batch", 8, 4096, "texts in a step");
const LENGTH: Knob = knob("length", 1024, 1 << 20, "tokens of a text; the median where it varies");
const VOCAB: Knob = knob("vocab", 50_257, 1 << 20, "words that the model knows");
const SPREAD: Knob =
    knob("spread", 60, 300, "percent: the standard deviation of the logarithm of a step's length");
const EXPERTS: Knob = knob("experts", 8, 256, "experts of a block, each token going to two");

const BASE: &[Knob] = &[STEPS, LAYERS, HIDDEN, BATCH, LENGTH, VOCAB];

/// Every step the same.
pub(super) static DENSE: Generator = Generator {
    name: "train",
    summary: "trains a transformer: every step asks for the same",
    hurts: "",
    knobs: BASE,
    make: |draft| train(draft, Kind::default()),
};

/// Activations are thrown away and computed again.
pub(super) static CHECKPOINTED: Generator = Generator {
    name: "train-checkpointed",
    summary: "trains a transformer with activation checkpoints: each block's forward runs again before its backward",
    hurts: "",
    knobs: BASE,
    make: |draft| train(draft, Kind { checkpointed: true, ..Kind::default() }),
};

/// Steps of different length.
pub(super) static VARIABLE: Generator = Generator {
    name: "train-varlen",
    summary: "trains a transformer on texts whose length differs from step to step (log-normal)",
    hurts: "",
    knobs: &[STEPS, LAYERS, HIDDEN, BATCH, LENGTH, VOCAB, SPREAD],
    make: |draft| train(draft, Kind { variable: true, ..Kind::default() }),
};

/// Experts whose share of the tokens differs from step to step.
pub(super) static MOE: Generator = Generator {
    name: "train-moe",
    summary: "trains a transformer whose experts get a different share of the tokens in each block and step",
    hurts: "",
    knobs: &[STEPS, LAYERS, HIDDEN, BATCH, LENGTH, VOCAB, EXPERTS],
    make: |draft| train(draft, Kind { experts: true, ..Kind::default() }),
};

#[derive(Clone, Copy, Default)]
struct Kind {
    checkpointed: bool,
    variable: bool,
    experts: bool,
}

/// Bytes of an element of half precision.
const HALF: Bytes = 2;
const FULL: Bytes = 4;

fn train(draft: &mut Draft, kind: Kind) {
    let weights = weights(draft, kind);
    let held: Vec<Held> = weights.iter().map(|&size| draft.program.alloc(size * HALF, 0)).collect();
    draft.program.pass(1_000_000);
    for step in 0..draft.get("steps") {
        if !draft.has_room() {
            break;
        }
        draft.program.start_span("step");
        let tokens = draft.get("batch") * length(draft, kind);
        let layers = draft.get("layers") as usize;
        let mut saved: Vec<Layer> = Vec::with_capacity(layers);
        for _ in 0..layers {
            let layer = forward(draft, kind, tokens, None);
            saved.push(if kind.checkpointed { layer.only_input(draft) } else { layer });
        }
        let grads = backward(draft, kind, tokens, saved, &weights);
        optimizer(draft, &weights, step == 0);
        grads.into_iter().for_each(|grad| draft.program.free(grad));
        draft.program.pass(5_000_000);
        draft.program.end_span();
    }
    held.into_iter().for_each(|weight| draft.program.free(weight));
}

/// Numbers of parameters: an embedding, then each block's matrices and vectors.
fn weights(draft: &Draft, kind: Kind) -> Vec<u64> {
    let h = draft.get("hidden");
    let mut all = vec![draft.get("vocab") * h];
    for _ in 0..draft.get("layers") {
        all.extend([3 * h * h, 3 * h, h * h, h, h, h]);
        let mlps = if kind.experts { draft.get("experts") } else { 1 };
        (0..mlps).for_each(|_| all.extend([4 * h * h, 4 * h, 4 * h * h, h]));
    }
    all
}

fn length(draft: &mut Draft, kind: Kind) -> u64 {
    let median = draft.get("length");
    if !kind.variable {
        return median;
    }
    let spread = draft.get("spread") as f64 / 100.0;
    let lengths =
        LogNormal::new((median as f64).ln(), spread).expect("a median and a positive spread");
    // Loaders pad to 8 and cut what is far too long.
    let length = lengths.inverse_cdf(draft.uniform()).clamp(8.0, 16.0 * median as f64);
    (length as u64).next_multiple_of(8)
}

/// What a block keeps for its backward pass.
struct Layer {
    input: Held,
    kept: Vec<Held>,
}

impl Layer {
    fn only_input(mut self, draft: &mut Draft) -> Layer {
        self.kept.drain(..).for_each(|held| draft.program.free(held));
        self
    }
}

/// A block's forward pass; `again` is the input that a checkpoint kept.
fn forward(draft: &mut Draft, kind: Kind, tokens: u64, again: Option<Held>) -> Layer {
    let width = tokens * draft.get("hidden") * HALF;
    let input = again.unwrap_or_else(|| draft.program.alloc(width, 0));
    let mut kept = Vec::new();
    // Normed input, queries with keys and values, attention with its log-sums, the projection.
    for (size, stays) in [
        (width, true),
        (3 * width, true),
        (width, true),
        (tokens * FULL * 16, true),
        (width, false),
    ] {
        let held = draft.program.alloc(size, 0);
        draft.program.pass(20_000);
        if stays { kept.push(held) } else { draft.program.free(held) }
    }
    let routed = if kind.experts { route(draft, 2 * tokens) } else { vec![tokens] };
    for &share in routed.iter().filter(|&&share| share > 0) {
        let width = share * draft.get("hidden") * HALF;
        let temporary = draft.program.alloc(width, 0);
        kept.extend([4 * width, 4 * width].map(|size| draft.program.alloc(size, 0)));
        draft.program.pass(50_000);
        draft.program.free(temporary);
    }
    Layer { input, kept }
}

/// Shares of the tokens, as different as exponential weights make them.
fn route(draft: &mut Draft, tokens: u64) -> Vec<u64> {
    let law = Exp::new(1.0).expect("a positive rate");
    let weights: Vec<f64> =
        (0..draft.get("experts")).map(|_| law.inverse_cdf(draft.uniform())).collect();
    let sum: f64 = weights.iter().sum();
    weights.iter().map(|w| (w / sum * tokens as f64) as u64).collect()
}

fn backward(
    draft: &mut Draft,
    kind: Kind,
    tokens: u64,
    saved: Vec<Layer>,
    weights: &[u64],
) -> Vec<Held> {
    let width = tokens * draft.get("hidden") * HALF;
    let logits = draft.program.alloc(tokens * draft.get("vocab") * FULL, 0);
    draft.program.pass(200_000);
    let logits_grad = draft.program.alloc(tokens * draft.get("vocab") * HALF, 0);
    draft.program.free(logits);
    let mut grads = vec![draft.program.alloc(weights[0] * HALF, 0)];
    let mut out_grad = draft.program.alloc(width, 0);
    draft.program.free(logits_grad);
    let per_layer = (weights.len() - 1) / saved.len();
    for (i, mut layer) in saved.into_iter().enumerate().rev() {
        if kind.checkpointed {
            layer = forward(draft, kind, tokens, Some(layer.input));
        }
        for weight in &weights[1 + i * per_layer..][..per_layer] {
            let temporary = draft.program.alloc(width, 0);
            grads.push(draft.program.alloc(weight * HALF, 0));
            draft.program.pass(30_000);
            if let Some(kept) = layer.kept.pop() {
                draft.program.free(kept);
            }
            draft.program.free(temporary);
        }
        layer.kept.into_iter().rev().for_each(|held| draft.program.free(held));
        let grad = draft.program.alloc(width, 0);
        draft.program.free(std::mem::replace(&mut out_grad, grad));
        draft.program.free(layer.input);
    }
    draft.program.free(out_grad);
    grads
}

/// Adam; its master weights and moments come with the first step and stay.
fn optimizer(draft: &mut Draft, weights: &[u64], first: bool) {
    draft.program.start_span("Optimizer.step#Adam.step");
    for &weight in weights {
        if first {
            for _ in 0..3 {
                draft.program.alloc(weight * FULL, 0);
            }
        }
        let temporary = draft.program.alloc(weight * FULL, 0);
        draft.program.pass(5_000);
        draft.program.free(temporary);
    }
    draft.program.end_span();
}

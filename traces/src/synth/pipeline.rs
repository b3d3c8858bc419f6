//! A stage of a training pipeline: batches come over a copy stream, neighbours are reached over a communication stream.

use super::generator::{Draft, Generator, Knob};
use super::program::Held;
use std::collections::VecDeque;

/// Side streams.
pub(super) static DEF: Generator = Generator {
    name: "pipeline",
    summary: "a stage of a training pipeline, with side streams that copy batches in and send results on, and use what others made",
    hurts: "",
    knobs: &[
        Knob { key: "steps", default: 20, bounds: (1, 1_000_000), doc: "optimizer steps" },
        Knob { key: "microbatches", default: 8, bounds: (1, 1024), doc: "batches of a step" },
        Knob { key: "depth", default: 4, bounds: (1, 64), doc: "batches in flight at a time" },
        Knob { key: "layers", default: 6, bounds: (1, 256), doc: "blocks of this stage" },
        Knob {
            key: "width",
            default: 24,
            bounds: (1, 4096),
            doc: "MiB that pass from block to block",
        },
    ],
    make: run,
};

const COMPUTE: u16 = 0;
const COPY: u16 = 1;
const SEND: u16 = 2;

struct Flight {
    batch: Held,
    kept: Vec<Held>,
}

fn run(draft: &mut Draft) {
    let width = draft.get("width") << 20;
    let weights: Vec<Held> =
        (0..draft.get("layers")).map(|_| draft.program.alloc(width * 3 / 2, COMPUTE)).collect();
    // Sent buffers, until the other side has them.
    let mut sent: VecDeque<Held> = VecDeque::new();
    for _ in 0..draft.get("steps") {
        if !draft.has_room() {
            break;
        }
        draft.program.start_span("step");
        let mut flights: VecDeque<Flight> = VecDeque::new();
        for _ in 0..draft.get("microbatches") {
            if flights.len() as u64 == draft.get("depth") {
                let flight = flights.pop_front().expect("the depth is at least 1");
                backward(draft, flight, width);
            }
            let flight = forward(draft, width, &mut sent);
            flights.push_back(flight);
        }
        for flight in flights {
            backward(draft, flight, width);
        }
        sent.drain(..).for_each(|held| draft.program.free_done(held));
        draft.program.wait_for(SEND);
        draft.program.end_span();
    }
    weights.into_iter().for_each(|weight| draft.program.free(weight));
}

fn forward(draft: &mut Draft, width: u64, sent: &mut VecDeque<Held>) -> Flight {
    // Some batches are shorter.
    let size = (width as f64 * (0.5 + 0.5 * draft.uniform())) as u64;
    let batch = draft.program.alloc(size, COPY);
    draft.program.used_on(batch, COMPUTE);
    let mut kept = Vec::new();
    for _ in 0..draft.get("layers") {
        let inner = draft.program.alloc(2 * size, COMPUTE);
        kept.push(draft.program.alloc(size, COMPUTE));
        draft.program.pass(80_000);
        draft.program.free(inner);
    }
    let out = draft.program.alloc(size, COMPUTE);
    draft.program.used_on(out, SEND);
    draft.program.free_later(out);
    sent.push_back(out);
    if sent.len() > 2 {
        let arrived = sent.pop_front().expect("there are three");
        draft.program.free_done(arrived);
    }
    Flight { batch, kept }
}

fn backward(draft: &mut Draft, flight: Flight, width: u64) {
    let grad = draft.program.alloc(width, SEND);
    draft.program.used_on(grad, COMPUTE);
    for held in flight.kept.into_iter().rev() {
        let temporary = draft.program.alloc(width, COMPUTE);
        draft.program.pass(120_000);
        draft.program.free(held);
        draft.program.free(temporary);
    }
    draft.program.free_later(grad);
    draft.program.free_later(flight.batch);
    draft.program.pass(50_000);
    draft.program.free_done(flight.batch);
    draft.program.free_done(grad);
}

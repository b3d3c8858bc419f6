//! How fast recordings are read, decompression included: bytes of the file per second.
//!
//! `cargo bench -p poolsim-traces`. `POOLSIM_BENCH_SNAPSHOT=FILE` adds a snapshot of your own.

use divan::counter::BytesCount;
use poolsim_traces::{OpenOptions, open};
use std::path::Path;

fn main() {
    divan::main();
}

fn files() -> Vec<String> {
    let corpus = ["default/gpt2_varlen", "frames/resnet50_amp", "default/fuzz_streams"];
    let corpus = corpus.map(|name| format!("{name}.pickle.zst"));
    corpus.into_iter().chain(std::env::var("POOLSIM_BENCH_SNAPSHOT")).collect()
}

#[divan::bench(args = files())]
fn snapshot(bencher: divan::Bencher<'_, '_>, file: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(file);
    let bytes = std::fs::metadata(&path).expect("the file is there").len();
    let options = OpenOptions::default();
    bencher
        .counter(BytesCount::new(bytes))
        .bench_local(|| open(&path, &options).expect("it can be read"));
}

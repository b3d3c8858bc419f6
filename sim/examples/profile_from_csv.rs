//! Turns a table of measured call latencies into a device profile.
//!
//! `cargo run -p poolsim-sim --example profile_from_csv -- api_latency.csv sim/profiles/h200_fences.csv > sim/profiles/h200.toml`
//!
//! Each table has the columns `call,bytes,n,min_us,p50_us,p99_us,max_us`. Rows named `expand.*` were measured in the
//! order in which an expandable segment grows and shrinks; they replace the single-call rows of the same size.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write;

const HEADER: &str = r#"# Made by `cargo run -p poolsim-sim --example profile_from_csv -- api_latency.csv sim/profiles/h200_fences.csv`;
# do not edit by hand.
name = "h200"

[provenance]
gpu = "NVIDIA H200"
driver = "580.159.04"
cuda = "13.0"
date = "2026-11"
method = "latency of each call by size on an idle device, one host thread; median of `samples` calls"
notes = [
    "between measured sizes: interpolated on log-log scales",
    "large sizes rest on 12 calls each, and medians of allocations above 16 GiB scatter by a factor of 100",
    "pool pages: one 32 MiB page of the driver's memory pool, from probe programs; the number of calls was not noted",
    "fences and host waits: the call itself on an idle stream; the time that a host waits for work is not in it",
]

[device]
name = "NVIDIA H200"
total = 150109880320
granule = 2097152
range_align = 33554432
paged = true

[operations]
cuda_malloc = ["cudaMalloc"]
cuda_free = ["cudaFree"]
mem_address_reserve = ["cuMemAddressReserve"]
mem_address_free = ["cuMemAddressFree"]
mem_create = ["cuMemCreate"]
mem_release = ["cuMemRelease"]
mem_map = ["cuMemMap"]
mem_set_access = ["cuMemSetAccess"]
mem_unmap = ["cuMemUnmap"]
event_record = ["cuEventRecord"]
event_query = ["cuEventQuery"]
stream_wait_event = ["cuStreamWaitEvent"]
synchronize = ["cuCtxSynchronize"]
malloc_async = ["cudaMallocAsync.warm"]
free_async = ["cudaFreeAsync.warm"]
pool_page_new = ["pool page, new"]
pool_page_move = ["pool page, moved"]
pool_page_release = ["pool page, released"]
"#;

/// Calls that the profile uses, and the growth rows that replace a size of theirs.
const CALLS: [(&str, &str); 15] = [
    ("cudaMalloc", ""),
    ("cudaFree", ""),
    ("cuMemAddressReserve", ""),
    ("cuMemAddressFree", ""),
    ("cuMemCreate", "expand.create"),
    ("cuMemRelease", "expand.release"),
    ("cuMemMap", "expand.map"),
    ("cuMemSetAccess", "expand.access"),
    ("cuMemUnmap", "expand.unmap"),
    ("cudaMallocAsync.warm", ""),
    ("cudaFreeAsync.warm", ""),
    ("cuEventRecord", ""),
    ("cuEventQuery", ""),
    ("cuStreamWaitEvent", ""),
    ("cuCtxSynchronize", ""),
];

/// Microseconds per 32 MiB page, from the probe programs that `cudaMallocAsync` was studied with.
const POOL_PAGES: [(&str, u64); 3] =
    [("pool page, new", 40), ("pool page, moved", 44), ("pool page, released", 55)];

type Rows = BTreeMap<String, BTreeMap<u64, (u64, u64)>>;

fn read(rows: &mut Rows, text: &str) -> Result<(), Box<dyn Error>> {
    for (number, line) in text.lines().enumerate().skip(1) {
        let columns: Vec<&str> = line.split(',').collect();
        let [call, bytes, n, _, p50, ..] = columns[..] else {
            return Err(format!("line {}: too few columns", number + 1).into());
        };
        let ns = (p50.parse::<f64>()? * 1000.0).round() as u64;
        rows.entry(call.into()).or_default().insert(bytes.parse()?, (n.parse()?, ns));
    }
    Ok(())
}

fn table(out: &mut String, name: &str, points: &BTreeMap<u64, (u64, u64)>) -> std::fmt::Result {
    let list = |f: &dyn Fn(&u64, &(u64, u64)) -> u64| {
        points.iter().map(|(b, p)| f(b, p).to_string()).collect::<Vec<_>>().join(", ")
    };
    writeln!(out, "\n[[call]]\nname = \"{name}\"")?;
    writeln!(out, "bytes = [{}]", list(&|&b, _| b))?;
    writeln!(out, "samples = [{}]", list(&|_, p| p.0))?;
    writeln!(out, "p50_ns = [{}]", list(&|_, p| p.1))
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut rows = Rows::new();
    for path in std::env::args().skip(1) {
        read(&mut rows, &std::fs::read_to_string(path)?)?;
    }
    let mut out = String::from(HEADER);
    for (call, growth) in CALLS {
        let mut points = rows.get(call).ok_or_else(|| format!("no rows for {call}"))?.clone();
        points.extend(rows.get(growth).into_iter().flatten().map(|(&b, &p)| (b, p)));
        table(&mut out, call, &points)?;
    }
    for (name, us) in POOL_PAGES {
        table(&mut out, name, &BTreeMap::from([(32 << 20, (1, us * 1000))]))?;
    }
    print!("{out}");
    Ok(())
}

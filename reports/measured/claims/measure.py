#!/usr/bin/env python3
"""Everything that the claims report is made of and that needs the recordings of ../shared: measured anew into this folder.

usage: reports/measured/claims/measure.py POOLSIM [SHARED]    (SHARED: the folder `shared` beside the clone)
"""

import csv
import hashlib
import json
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
POOLSIM = str(pathlib.Path(sys.argv[1]).resolve())
SHARED = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else ROOT.parent / "shared")


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def poolsim(*args):
    done = subprocess.run([POOLSIM, *map(str, args)], capture_output=True, text=True)
    if done.returncode not in (0, 3):
        sys.exit(f"poolsim {' '.join(map(str, args))}: {done.stderr}")
    return done.stdout


def write(name, rows):
    with open(HERE / name, "w", newline="") as file:
        out = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
        out.writeheader()
        out.writerows(rows)


def rows_of(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def recorded():
    """What PyTorch said of its memory at the end of each recorded run: no simulation."""
    rows = []
    for path in sorted(SHARED.glob("traces/*/*.json")):
        said = json.loads(path.read_text())
        stats, actions = said["stats"], said["actions"]
        rows.append(
            {
                "setting": path.parent.name,
                "job": path.stem,
                "conf": said["conf"],
                "limit_gib": said["limit_gib"],
                "ended": said["outcome"].split(":")[0],
                "peak_allocated_bytes": said["peak_allocated"],
                "peak_reserved_bytes": said["peak_reserved"],
                "ooms": stats["num_ooms"],
                "retries": stats["num_alloc_retries"],
                "segments_taken": actions.get("segment_alloc", 0) + actions.get("segment_map", 0),
                "segments_returned": actions.get("segment_free", 0) + actions.get("segment_unmap", 0),
                "wall_s": said["wall_s"],
                "recording_sha256": digest(path.with_suffix(".pickle.zst")),
            }
        )
    write("recorded.csv", rows)


def settings():
    """Every recording under every setting, in simulation."""
    with tempfile.TemporaryDirectory() as folder:
        experiment = (HERE / "settings.toml").read_text().replace("../../../../shared", str(SHARED))
        toml = pathlib.Path(folder, "settings.toml")
        toml.write_text(experiment)
        poolsim("sweep", toml, "--out", pathlib.Path(folder, "out"))
        rows = rows_of(pathlib.Path(folder, "out", "results.csv"))
    keep = [
        "trace_digest", "label", "policy", "verdict", "events", "allocs", "peak_active_bytes", "peak_reserved_bytes",
        "mean_reserved_bytes", "fragmentation", "ooms", "rescued", "retries", "device_calls", "device_time_ns",
        "cuda_malloc_calls", "cuda_free_calls",
    ]
    job = lambda row: {"job": pathlib.Path(row["trace"]).name.split(".pickle")[0]}
    rows = [row for row in rows if not row["error"]]
    write("settings.csv", [job(row) | {name: row[name] for name in keep} for row in rows])


def traces():
    return sorted([*SHARED.glob("traces/default/*.pickle.zst"), *SHARED.glob("traces/frames/*.pickle.zst")])


def at_first():
    """What is reserved after a job's first request."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for trace in traces():
            series = pathlib.Path(folder, "series.csv")
            poolsim("replay", trace, "-p", "pytorch", "-p", "expandable", "-p", "cuda-async", "--series", series)
            seen = set()
            for row in rows_of(series):
                if row["policy"] not in seen:
                    seen.add(row["policy"])
                    first = {"requested_bytes": row["requested"], "reserved_bytes": row["reserved"]}
                    rows.append({"job": trace.name.split(".pickle")[0], "policy": row["policy"]} | first)
    write("first-request.csv", rows)


def steps():
    """When cudaMalloc is called: the segments that PyTorch took in each step, a step ending where zero_grad ends."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for trace in traces():
            lines = native(trace, folder)
            ends = step_ends(lines)
            if not ends:
                continue
            taken = pathlib.Path(folder, "decisions.csv")
            poolsim("replay", trace, "-p", "recorded", "--decisions", taken)
            times = [int(line["t"]) for line in lines if "t" in line]
            by_step = [0] * (len(ends) + 1)
            for row in rows_of(taken):
                if row["action"] == "segment_alloc":
                    at = times[int(row["event"])]
                    by_step[sum(end < at for end in ends)] += 1
            job = trace.name.split(".pickle")[0]
            rows += [{"job": job, "step": step, "segments_taken": n} for step, n in enumerate(by_step)]
    write("steps.csv", rows)


def native(trace, folder):
    path = pathlib.Path(folder, "trace.jsonl")
    poolsim("convert", trace, path)
    return [json.loads(line) for line in path.read_text().splitlines()]


def step_ends(lines):
    spans = [span for line in lines for span in line.get("annotations", [])]
    return sorted(span["end"] for span in spans if span["name"].startswith("Optimizer.zero_grad") and span.get("end"))


def empty_cache():
    """The same job, and with an empty_cache at the end of each step."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for trace in traces():
            lines = native(trace, folder)
            ends = step_ends(lines)
            if not ends:
                continue
            changed, left = [], list(ends)
            for line in lines:
                while "t" in line and left and left[0] <= int(line["t"]):
                    changed.append({"empty_cache": True, "t": left.pop(0)})
                changed.append(line)
            path = pathlib.Path(folder, "emptied.jsonl")
            path.write_text("".join(json.dumps(line) + "\n" for line in changed))
            for what, file in [("as recorded", trace), ("empty_cache each step", path)]:
                run = json.loads(poolsim("replay", file, "-p", "pytorch", "--json"))["runs"][0]
                names = ["device_time_ns", "device_calls", "peak_reserved_bytes", "mean_reserved_bytes", "ooms"]
                values = {name: run["metrics"][name] for name in names}
                row = {"job": trace.name.split(".pickle")[0], "run": what, "empty_caches": len(ends) - len(left)}
                rows.append(row | {"last_event_ns": int(lines[-1]["t"])} | values)
    write("empty-cache.csv", rows)


def collected():
    """Garbage collection where it has something to do: under a limit a tenth above the peak that a job has by default."""
    rows = []
    for trace in sorted(SHARED.glob("traces/default/*.pickle.zst")) + sorted(SHARED.glob("traces/frames/*.pickle.zst")):
        said = json.loads(trace.with_suffix("").with_suffix(".json").read_text())
        if said["limit_gib"]:
            continue
        limit = 1.1 * said["peak_reserved"] / said["total_memory"]
        settings = ["pytorch", "pytorch,garbage_collection_threshold:0.8"]
        runs = poolsim("replay", trace, "--memory-fraction", limit, "-p", settings[0], "-p", settings[1], "--json")
        for run in json.loads(runs)["runs"]:
            names = ["peak_reserved_bytes", "mean_reserved_bytes", "device_time_ns", "cuda_free_calls", "ooms"]
            values = {name: run["metrics"][name] for name in names}
            rows.append({"job": said["job"], "memory_fraction": limit, "policy": run["label"]} | values)
    write("collected.csv", rows)


def pools():
    """What keeping the private pools of CUDA graphs apart costs."""
    rows = []
    for trace in [path for path in traces() if path.name.startswith(("compiled", "mid_pools"))]:
        for policy in ["pytorch", "expandable"]:
            found = json.loads(poolsim("waterfall", trace, "-p", policy, "--json"))
            rows.append(
                {
                    "job": trace.name.split(".pickle")[0],
                    "policy": policy,
                    "live_bytes": found["live_bytes"],
                    "peak_reserved_bytes": found["peak_reserved_bytes"],
                    "pools_bytes": next(c["bytes"] for c in found["causes"] if c["cause"] == "pools"),
                    "ooms": found["ooms"],
                }
            )
    write("private-pools.csv", rows)


def latency():
    """Medians of single calls on an idle H200, of the calls that the claims name."""
    source = SHARED / "h200" / "api_latency.csv"
    calls = ("cudaMalloc", "cudaFree", "cudaMallocAsync.warm", "cudaMallocAsync.cold")
    rows = [row for row in rows_of(source) if row["call"] in calls]
    write("latency.csv", rows)
    return source


def provenance(source):
    trained = ("memory.csv", "graphs.csv", "emptied.csv", "epochs.csv")  # measure-training.py writes these
    files = sorted(path for path in HERE.glob("*.csv") if path.name not in trained)
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    lines = [
        "command  reports/measured/claims/measure.py target/release/poolsim",
        f"commit   {commit}",
        f"poolsim  {poolsim('--version').strip()}",
        "machine  recordings and latencies: NVIDIA H200, driver 580.159.04, CUDA 13.0, torch 2.11.0+cu130, November 2026;",
        "         simulations: any machine, the same bytes",
        f"input    {digest(source)}  h200/api_latency.csv",
        *(f"output   {digest(path)}  {path.name}" for path in files),
    ]
    (HERE / "provenance.txt").write_text("\n".join(lines) + "\n")


for measure in (recorded, settings, at_first, steps, empty_cache, collected, pools):
    measure()
provenance(latency())

"""Makes the table of a run of run.sh: table.py FOLDER COMMIT MACHINE. Counts by the programs beside those of the traces."""

import json
import sys
from pathlib import Path

folder, commit, machine = Path(sys.argv[1]), sys.argv[2], sys.argv[3]


def last_json(name):
    try:
        lines = (folder / f"{name}.out").read_text().splitlines()
        return json.loads([line for line in lines if line.startswith("{")][-1])
    except (OSError, IndexError, ValueError):
        return None


def info(name):
    try:
        return json.loads((folder / f"{name}.info.json").read_text())
    except (OSError, ValueError):
        return None


def layer(facts, part):
    rows = [row for row in facts["layers"] if part in row["library"]]
    return {
        "granted": sum(row["requests"] for row in rows),
        "bytes": sum(row["requested_bytes"] for row in rows),
        "peak": sum(row["peak_bytes"] for row in rows),
        "frees": sum(row["frees"] for row in rows),
    }


def counted(name, part):
    own, facts = last_json(name), info(name)
    if own is None or facts is None:
        print(f"| {name} | no result | | | | |")
        return
    seen = layer(facts, part)
    same = all(seen[key] == own[key] for key in own if key in seen)
    via = facts["attributes"].get("captured through")
    for key in ("granted", "frees", "bytes", "peak"):
        if key in own:
            print(f"| {name} | {via} | {key} | {own[key]} | {seen[key]} | {own[key] == seen[key]} |")
    print(f"| {name} | {via} | **all** | | | **{'equal' if same else 'DIFFERENT'}** |")


print(f"# The driver capture on a GPU\n\nMachine: {machine}; commit {commit}.\n")
print("| program | captured through | what | by the program | in the trace | equal |\n|---|---|---|---:|---:|---|")
for name in sorted(path.name.removesuffix(".info.json") for path in folder.glob("*.info.json")):
    if name.startswith("count"):
        counted(name, "count-")
    elif name.startswith("torch-count"):
        counted(name, "libc10_cuda")

print("\n| JAX | pool by JAX | peak by JAX | held by XLA in the trace at the end | at most |\n|---|---:|---:|---:|---:|")
own, facts = last_json("jax"), info("jax")
if own and facts:
    rows = facts["layers"]
    biggest = rows[0] if rows else {}
    print(f"| {biggest.get('library')} | {own['pool_bytes']} | {own['peak_pool_bytes']} | {biggest.get('final_bytes')} | {biggest.get('peak_bytes')} |")

print("\n| what a call costs (ns, malloc and free together) | plain | CUPTI | interposed | added a call, CUPTI | added a call, interposed |\n|---|---:|---:|---:|---:|---:|")
ways = [last_json(f"time-{way}") for way in ("plain", "cupti", "preload")]
for key in ("async_pair_ns", "malloc_pair_ns"):
    values = [way and way[key] for way in ways]
    if all(values):
        added = [(value - values[0]) / 2 for value in values[1:]]
        print(f"| {key} | " + " | ".join(f"{value:.0f}" for value in values + added) + " |")

print("\n| a training step (ms, median of all runs' medians; least) | plain | captured | change |\n|---|---:|---:|---:|")
for allocator in ("native", "async"):
    means = {}
    for way in ("plain", "cupti"):
        runs = [last_json(f"steps-{allocator}-{way}-{n}") for n in (1, 2)]
        runs = [run for run in runs if run]
        if runs:
            medians = sorted(run["median_ms"] for run in runs)
            means[way] = (sum(medians) / len(medians), min(run["least_ms"] for run in runs))
    if len(means) == 2:
        change = means["cupti"][0] / means["plain"][0] - 1
        print(f"| {allocator} | {means['plain'][0]:.3f}; {means['plain'][1]:.3f} | {means['cupti'][0]:.3f}; {means['cupti'][1]:.3f} | {change:+.2%} |")

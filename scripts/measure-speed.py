#!/usr/bin/env python3
"""Measures how fast poolsim replays and reads, and writes the figures as Markdown.

    scripts/measure-speed.py [FOLDER...] [--snapshot BIG.pickle] [--sweep TRACE] [--out FILE.md]

Every recording in the folders is replayed under its own settings with all metrics on (`poolsim bench`, one core, best of
20 rounds); on the first folder's gpt2_varlen and fuzz_small all policies are. --snapshot compares reading a file
(scripts/make-big-snapshot.py makes one) with pickle.load of this Python, each in a process of its own. --sweep compares a
sweep of 64 configurations of one recording with 64 single replays of them. Run it on a machine that does nothing else: the
load average at the start is part of the output.
"""

import argparse
import datetime
import itertools
import json
import os
import pathlib
import platform
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
POOLSIM = ROOT / "target/release/poolsim"
PICKLE_LOAD = "import pickle, sys; pickle.load(open(sys.argv[1], 'rb'))"


def bench(trace, policies):
    command = [POOLSIM, "bench", trace, "--json"] + [a for p in policies for a in ("--policy", p)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        print(f"{trace} is left out: {done.stderr.strip().splitlines()[-1]}", file=sys.stderr)
        return []
    return json.loads(done.stdout)["results"]


def timed(command):
    """Seconds and peak memory of a process, which must succeed."""
    started = time.monotonic()
    pid = os.posix_spawn(command[0], command, os.environ, file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)])
    _, status, usage = os.wait4(pid, 0)
    if status != 0:
        sys.exit(f"{command} ended with status {status}")
    return time.monotonic() - started, usage.ru_maxrss << 10


def cpu():
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else platform.processor()}, {len(names)} cores"


def output(*command):
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def provenance():
    version = output(POOLSIM, "--version")
    commit = output("git", "rev-parse", "--short", "HEAD")
    today = datetime.date.today().isoformat()
    load = os.getloadavg()[0]
    return f"{version}, commit {commit}, {today}, {cpu()}, load average {load:.2f} at the start."


def recordings(folders):
    found = [f for folder in folders for f in sorted(pathlib.Path(folder).rglob("*.pickle.zst"))]
    yield "| recording | events | ns per event | million events per second |"
    yield "|---|---:|---:|---:|"
    for file in found:
        for r in bench(file, ["recorded"]):
            name = f"{file.parent.name}/{file.name.removesuffix('.pickle.zst')}"
            yield f"| {name} | {r['events']:,} | {r['ns_per_event']:.1f} | {r['events_per_second'] / 1e6:.1f} |"


def policies(folder):
    listed = json.loads(output(POOLSIM, "policies", "--json"))
    names = [p["name"] for p in listed["policies"]]
    files = [next(pathlib.Path(folder).rglob(f"{name}.pickle.zst")) for name in ("gpt2_varlen", "fuzz_small")]
    yield "| policy | " + " | ".join(f.name.removesuffix(".pickle.zst") for f in files) + " |"
    yield "|---|" + "---:|" * len(files)
    for name in names:
        cells = []
        for file in files:
            results = bench(file, [name])
            cells.append(f"{results[0]['ns_per_event']:.1f}" if results else "refused")
        yield f"| {name} | " + " | ".join(cells) + " |"


def reading(snapshot):
    ours = min(timed([str(POOLSIM), "info", snapshot]) for _ in range(3))
    theirs = min(timed([sys.executable, "-c", PICKLE_LOAD, snapshot]) for _ in range(3))
    size = os.path.getsize(snapshot) / 1e6
    yield f"A snapshot of {size:,.0f} MB, frames included, best of 3:"
    yield ""
    yield "| reader | seconds | peak memory |"
    yield "|---|---:|---:|"
    for name, (seconds, peak) in (("`poolsim info`, requests inferred", ours), (f"CPython {platform.python_version()} pickle.load", theirs)):
        yield f"| {name} | {seconds:.1f} | {peak >> 20:,} MiB |"


GRID = {
    "max_split_size_mb": [32, 48, 64, 96, 128, 192, 256, 512],
    "roundup_power2_divisions": [1, 2, 4, 8],
    "garbage_collection_threshold": [0.6, 0.8],
}
ROUNDS = 3


def sweep(trace):
    """Seconds of 64 `replay` commands one after the other, of their replays alone, and of one sweep."""
    keys = list(GRID)
    specs = [",".join(["pytorch", *map("{}:{}".format, keys, v)]) for v in itertools.product(*GRID.values())]
    cores = os.cpu_count()
    with tempfile.TemporaryDirectory() as folder:
        experiment = pathlib.Path(folder, "experiment.toml")
        params = "\n".join(f"params.{key} = {values}" for key, values in GRID.items())
        experiment.write_text(
            f"traces = [{json.dumps(str(pathlib.Path(trace).resolve()))}]\nbound = false\n"
            f'[[grid]]\npolicy = "pytorch"\n{params}\n'
        )
        out = itertools.count()

        def swept(jobs):
            to = f"{folder}/{next(out)}"
            seconds, _ = timed([str(POOLSIM), "sweep", str(experiment), "--out", to, "--jobs", str(jobs)])
            rows = pathlib.Path(to, "results.jsonl").read_text().splitlines()
            assert len(rows) == len(specs), f"the sweep has {len(rows)} results"
            return seconds

        def replayed():
            return sum(timed([str(POOLSIM), "replay", trace, "--policy", spec])[0] for spec in specs)

        # Taken in turns, so that a change of the machine's speed does not favour one of them.
        rounds = [(replayed(), swept(cores), swept(1)) for _ in range(ROUNDS)]
    single, on_all, on_one = map(min, zip(*rounds))
    alone = sum(r["ns_per_event"] * r["events"] for r in bench(trace, specs)) / 1e9
    yield f"{len(specs)} configurations of {pathlib.Path(trace).name}, {cores} cores, best of {ROUNDS}:"
    yield ""
    yield "| | seconds |"
    yield "|---|---:|"
    yield f"| {len(specs)} `poolsim replay` commands, one after the other | {single:.3f} |"
    yield f"| divided by cores, plus 20 %: what a sweep may take | {single / cores * 1.2:.3f} |"
    yield f"| `poolsim sweep` on {cores} cores | {on_all:.3f} |"
    yield f"| `poolsim sweep --jobs 1` | {on_one:.3f} |"
    yield f"| the {len(specs)} replays alone by `poolsim bench`: no reading of the trace, no second replay up to the peak | {alone:.3f} |"
    yield ""
    held = "holds" if on_all <= single / cores * 1.2 else "does not hold"
    yield f"The bound {held}: the sweep took {on_all / (single / cores):.2f} of the commands' time divided by cores."


def page(args):
    yield "# How fast"
    yield ""
    yield provenance()
    yield "Made by `scripts/measure-speed.py`."
    if args.folders:
        yield from speeds(args)
    if args.snapshot:
        yield ""
        yield "## Reading"
        yield ""
        yield from reading(args.snapshot)
    if args.sweep:
        yield ""
        yield "## A sweep against single replays"
        yield ""
        yield from sweep(args.sweep)


def speeds(args):
    yield "Times of replays are the best of 20 rounds on one core, metrics on."
    yield ""
    yield "## Replay of recordings under their own settings"
    yield ""
    yield from recordings(args.folders)
    yield ""
    yield "## Policies, in ns per event"
    yield ""
    yield from policies(args.folders[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*")
    parser.add_argument("--snapshot")
    parser.add_argument("--sweep", metavar="TRACE")
    parser.add_argument("--out", type=pathlib.Path)
    args = parser.parse_args()
    if not (args.folders or args.snapshot or args.sweep):
        parser.error("there is nothing to measure; name a folder, --snapshot or --sweep")
    subprocess.run(["cargo", "build", "--release", "--locked"], cwd=ROOT, check=True)
    text = "\n".join(page(args)) + "\n"
    if args.out:
        args.out.write_text(text)
    else:
        print(text, end="")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Holds simulated peaks against recorded ones and writes the figures as Markdown.

    scripts/measure-accuracy.py FOLDER [--out FILE.md]

FOLDER holds recordings as SETTING/JOB.pickle.zst, each with a JSON sidecar of what PyTorch reported; ../shared/traces or
traces/corpus. First `poolsim verify` runs over all. Then the requests that each job made under `default` are replayed under
every other recorded setting, with addresses by the model, and the peak of reserved bytes is compared with the one that was
really recorded there. Pairs whose requests (sizes, streams, frees, and their order but for frees in a row) differ are counted, not compared: their what-if
answers another question. Of those compared, the table says what else differed between the two recordings.
"""

import argparse
import datetime
import itertools
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
POOLSIM = ROOT / "target/release/poolsim"
MIB = 1 << 20
# What a request is, and what else an allocator reacts to.
REQUESTS = {"alloc", "alloc_refused", "free", "free_later", "preexisting"}


def poolsim(*args, fine=(0,)):
    done = subprocess.run([POOLSIM, *args], capture_output=True, text=True)
    if done.returncode not in fine:
        sys.exit(f"poolsim {' '.join(map(str, args))}: {done.stderr.strip()}")
    return done.stdout


def sidecar(trace):
    return json.loads(trace.with_name(trace.name.split(".pickle")[0] + ".json").read_text())


def events(trace):
    """The events without their times: (kind, fields), in order."""
    lines = [json.loads(line) for line in poolsim("convert", trace, "-", "--to", "native-jsonl").splitlines()]
    kinds = [next(iter(e)) for e in lines[1:]]
    return [(k, {f: v for f, v in e.items() if f != "t"}) for k, e in zip(kinds, lines[1:])]


def requests(of):
    """Requests in order. A free says which request it ends, since numbers of slots may differ, and no more: whether it
    had to wait for other streams is the recording's timing."""
    live, asked, out = {}, 0, []
    for kind, e in of:
        if kind not in REQUESTS:
            continue
        if kind.startswith("free"):
            out.append(("free", live.pop(e[kind], None)))
        else:
            live[e[kind]] = asked
            asked += 1
            out.append(("alloc", e["size"], e.get("stream", 0), e.get("pool", 0)))
    return out


def up_to_order_of_frees(asked):
    """Requests, with each run of frees that no request interrupts in one order."""
    runs = itertools.groupby(asked, lambda request: request[0])
    return [r for kind, run in runs for r in (sorted(run, key=str) if kind == "free" else run)]


def differs(one, other):
    """What differs between two recordings with the same requests."""
    places = lambda of, kinds: [i for i, (k, _) in enumerate(of) if k in kinds]
    found = []
    if requests(one) != requests(other):
        found.append("the order of frees in a row")
    if places(one, {"empty_cache"}) != places(other, {"empty_cache"}):
        found.append("calls of empty_cache() that are seen")
    if [places(one, {k}) for k in ("free_later", "free_done")] != [places(other, {k}) for k in ("free_later", "free_done")]:
        found.append("when frees that wait for other streams complete")
    return found


def peak(trace, policy):
    args = ["replay", trace, "--policy", policy, "--json", *machine(sidecar(trace))]
    metrics = json.loads(poolsim(*args, fine=(0, 3)))["runs"][0]["metrics"]
    return metrics["peak_reserved_bytes"]


def machine(side):
    args = ["--device-memory", str(side["total_memory"])]
    if side.get("limit_gib"):
        args += ["--memory-fraction", str(side["limit_gib"] * (1 << 30) / side["total_memory"])]
    return args


def settings(trace):
    text = sidecar(trace).get("conf") or ""
    return text or json.loads(poolsim("info", trace, "--json"))["settings"] or "pytorch"


def what_if(folder):
    rows, skipped = [], 0
    for base in sorted((folder / "default").glob("*.pickle.zst")):
        asked = None
        for real in sorted(folder.glob(f"*/{base.name}")):
            if real == base:
                continue
            asked = asked or events(base)
            there = events(real)
            if up_to_order_of_frees(requests(asked)) != up_to_order_of_frees(requests(there)):
                skipped += 1
                continue
            recorded = sidecar(real)["stats"]["reserved_bytes.all.peak"]
            spec = settings(real)
            simulated = peak(base, spec)
            rows.append({
                "setting": spec, "job": base.name.split(".pickle")[0], "recorded": recorded, "simulated": simulated,
                "error": (simulated - recorded) / recorded * 100, "differs": differs(asked, there),
                "own": peak(real, spec), "back": (peak(real, "pytorch"), sidecar(base)["stats"]["reserved_bytes.all.peak"]),
            })
    return rows, skipped


def mean(values):
    return sum(values) / len(values) if values else 0.0


def table(rows, skipped):
    yield "## What if\n"
    yield "The peak of reserved bytes of the requests recorded under the defaults, simulated under another setting, against the"
    yield "peak recorded under it. *Own inputs*: the same, driven by what the other recording itself holds.\n"
    yield "| setting | job | recorded MiB | simulated MiB | error | own inputs | what differs between the recordings |"
    yield "|---|---|---:|---:|---:|---:|---|"
    for r in rows:
        own = (r["own"] - r["recorded"]) / r["recorded"] * 100
        yield (f"| `{r['setting']}` | {r['job']} | {r['recorded'] / MIB:,.0f} | {r['simulated'] / MIB:,.0f} | {r['error']:+.3f} % "
               f"| {own:+.3f} % | {'; '.join(r['differs']) or 'nothing'} |")
    yield ""
    moved = lambda r: any("when frees" in d for d in r["differs"])
    for name, of in [
        ("All", rows),
        ("Without those whose recordings differ in when frees complete, which no setting decides,", [r for r in rows if not moved(r)]),
        ("Those whose recordings differ in nothing,", [r for r in rows if not r["differs"]]),
    ]:
        errors = [abs(r["error"]) for r in of]
        yield f"- {name} {len(of)}: mean error {mean(errors):.3f} %, worst {max(errors, default=0):.3f} %, {errors.count(0)} exact."
    yield ""
    yield f"{skipped} more pairs asked for other things under the other setting and are not compared."
    for r in rows:
        if moved(r) and r["error"]:
            back, recorded = r["back"]
            yield (f"\nHow much the differing completions alone do, on {r['job']}: the other recording's inputs give the *default* "
                   f"setting a peak of {back / MIB:,.0f} MiB where {recorded / MIB:,.0f} MiB were recorded "
                   f"({(back - recorded) / recorded * 100:+.2f} %).")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--out", type=argparse.FileType("w"), default=sys.stdout)
    args = parser.parse_args()
    files = json.loads(poolsim("verify", *sorted(args.folder.glob("*/*.pickle.zst")), "--json", fine=(0, 1)))["files"]
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    write = lambda line="": print(line, file=args.out)
    write("# How true\n")
    write(f"{poolsim('--version').strip()}, commit {commit}, {datetime.date.today().isoformat()}, by `scripts/measure-accuracy.py`.\n")
    write("## The same decisions\n")
    entries, wrong = (sum(f[k] for f in files) for k in ("entries_compared", "mismatches"))
    write(f"{len(files)} recordings, {entries:,} entries compared, {wrong:,} mismatches.\n")
    for line in table(*what_if(args.folder)):
        write(line)


if __name__ == "__main__":
    main()

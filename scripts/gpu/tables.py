"""Makes one page of tables from the results of scripts/gpu-check: tables.py FOLDER"""

import json
import pathlib
import random
import statistics
import sys

folder = pathlib.Path(sys.argv[1])
MIB = 1 << 20


def load(pattern):
    for path in sorted(folder.glob(pattern)):
        text = path.read_text()
        if text.startswith("{"):
            yield path.stem, json.loads(text)


def row(*cells):
    print("| " + " | ".join(str(c) for c in cells) + " |")


def head(*cells):
    row(*cells)
    row(*["---"] + ["---:"] * (len(cells) - 1))


def us(ns):
    return f"{ns / 1e3:.2f}"


def percent(simulated, measured):
    return f"{100 * (simulated / measured - 1):+.1f} %" if measured else "-"


def decisions(parity):
    if parity is None:
        return "-"
    if parity["result"] == "same":
        return f"all {parity['lines']:,} the same"
    return "not compared" if parity["result"] == "not_compared" else f"part after {parity['lines']:,}"


def recordings():
    print("## Recordings: every policy on the GPU and in simulation\n")
    print("Peaks in MiB. Latencies of the allocator's own calls in us, times of a whole run in ms, means of the repeats with the")
    print("half width of the 95 % interval. Device time: all driver calls, measured and as the calibrated profile predicts it.\n")
    for stem, document in load("compare-*.json"):
        runs = {(r["label"], r["target"]): r for r in document["runs"]}
        parities = {c["label"]: c["decisions"] for c in document["comparisons"]}
        first = document["runs"][0]
        print(f"### {pathlib.Path(first['trace']).name}: {first['metrics']['events']:,} events\n")
        head(
            "policy", "peak reserved, GPU", "simulated", "utilisation", "alloc p50", "alloc p99", "free p50", "free p99",
            "allocator time", "device time", "predicted", "error", "decisions",
        )
        for label in dict.fromkeys(r["label"] for r in document["runs"]):
            sim, gpu = runs.get((label, "sim")), runs.get((label, "gpu"))
            if sim is None or gpu is None:
                continue
            m, latency, between = gpu["metrics"], gpu["measured"]["latency"], gpu["measured"]["intervals"]

            def mean(name):
                i = between[name]
                return f"{i['mean'] / 1e6:.2f} ± {(i['high'] - i['mean']) / 1e6:.2f}"

            row(
                label,
                f"{m['peak_reserved_bytes'] / MIB:,.0f}",
                f"{sim['metrics']['peak_reserved_bytes'] / MIB:,.0f}",
                f"{100 * m['utilisation']:.1f} %",
                us(latency["alloc"]["p50_ns"]),
                us(latency["alloc"]["p99_ns"]),
                us(latency["free"]["p50_ns"]),
                us(latency["free"]["p99_ns"]),
                mean("allocator_time_ns"),
                mean("device_time_ns"),
                f"{sim['metrics']['device_time_ns'] / 1e6:.2f}",
                percent(sim["metrics"]["device_time_ns"], m["device_time_ns"]),
                decisions(parities.get(label)),
            )
        print()


def predictions():
    errors = {}
    for _, document in load("compare-*.json"):
        runs = {(r["label"], r["target"]): r["metrics"]["device_time_ns"] for r in document["runs"]}
        for label in dict.fromkeys(r["label"] for r in document["runs"]):
            if (label, "sim") in runs and runs.get((label, "gpu")):
                errors.setdefault(label, []).append(100 * (runs[label, "sim"] / runs[label, "gpu"] - 1))
    print("## How far predicted device time is from measured\n")
    print("Over the recordings above: how many are within 15 %, and the middle and outermost errors.\n")
    head("policy", "recordings", "within 15 %", "lowest", "median", "highest")
    for label, found in errors.items():
        near = sum(abs(e) <= 15 for e in found)
        row(label, len(found), near, *(f"{e:+.0f} %" for e in (min(found), statistics.median(found), max(found))))
    print()


def against(run, native):
    """How much longer a step takes than the same step under native: median of the ratios of all timed steps, with a 95 %
    bootstrap interval. The same step has the same data, so most of what differs between steps falls out."""
    ratios = [100 * (a / b - 1) for a, b in zip(run["step_ms"], native["step_ms"], strict=True)]
    draw = random.Random(1)
    medians = sorted(statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(2000))
    return f"{statistics.median(ratios):+.1f} % ({medians[50]:+.1f} to {medians[1949]:+.1f})"


def training():
    path = folder / "training.jsonl"
    if not path.exists():
        return
    runs = [json.loads(line) for line in path.read_text().splitlines()]
    print("## Training inside PyTorch\n")
    print("Losses and weights are compared bit for bit with PyTorch's own allocator. Against native: step by step, each with the")
    print("same data, median and 95 % interval; native-again is a second run of native, so it shows what differs by chance.")
    print("Predicted: the peak that a simulation of the trace gives which the plug-in wrote.\n")
    head("job", "allocator", "losses and weights", "step, median ms", "against native", "peak reserved, MiB", "predicted, MiB")
    for job in dict.fromkeys(r["job"] for r in runs):
        native = next((r for r in runs if (r["job"], r["allocator"]) == (job, "native")), None)
        for r in (r for r in runs if r["job"] == job):
            same = "-"
            if native:
                equal = (r["losses"], r["weights_sha256"]) == (native["losses"], native["weights_sha256"])
                same = "equal" if equal else "DIFFERENT"
            predicted = folder / f"predicted-{r['name']}.json"
            peak = "-"
            if predicted.exists():
                record = json.loads(predicted.read_text())["runs"][0]
                peak = f"{record['metrics']['peak_reserved_bytes'] / MIB:,.0f}"
            row(
                job,
                r["allocator"],
                same,
                f"{r['step_ms_median']:.2f}",
                against(r, native) if native and r is not native else "-",
                f"{r['peak_reserved_bytes'] / MIB:,.0f}",
                peak,
            )
    print()


print("# Measured on a GPU\n")
print("```text")
print((folder / "provenance.txt").read_text().strip())
print("```\n")
recordings()
predictions()
training()

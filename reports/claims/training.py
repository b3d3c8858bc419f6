"""Claims about training, from jobs that were run on a GPU for them (reports/measured/claims/measure-training.py)."""

import random
import statistics

from measured import rows, share, size, table

AGAIN = "reports/measured/claims/measure-training.py OUT_FOLDER` on a GPU with PyTorch, whose output goes to `reports/measured/claims"


def change(after, before, name):
    return int(after[name]) / int(before[name]) - 1


def middle(times):
    """Median and its 95 % interval by bootstrap."""
    draw = random.Random(1)
    medians = sorted(statistics.median(draw.choices(times, k=len(times))) for _ in range(2000))
    return statistics.median(times), medians[50], medians[1949]


def mixed_precision():
    by = {(row["job"], row["precision"]): row for row in rows("memory.csv") if row["checkpoints"] == "0"}
    lines, peaks, kept = [], [], []
    for (job, precision), row in by.items():
        base = by[job, "float32"]
        sizes = [size(int(row[f"{kind}_bytes"])) for kind in ("weights", "gradients", "optimizer", "activations")]
        if row is base:
            lines.append((job, precision, *sizes, size(int(row["peak_allocated_bytes"])), "", size(int(row["peak_reserved_bytes"])), row["step_ms"]))
            continue
        peaks.append(change(row, base, "peak_allocated_bytes"))
        kept.append(change(row, base, "activations_bytes"))
        lines.append((job, precision, *sizes, size(int(row["peak_allocated_bytes"])), share(peaks[-1]), size(int(row["peak_reserved_bytes"])),
                      row["step_ms"]))
    word = "confirmed" if max(peaks) <= -0.5 else "depends" if min(peaks) <= -0.4 else "refuted"
    text = (
        f"The peak of allocated memory changed by {share(max(peaks))} to {share(min(peaks))}, activations kept for the backward pass by "
        f"{share(max(kept))} to {share(min(kept))}. Autocast leaves weights, gradients and optimizer state in float32 and keeps copies of the weights "
        "beside them: where activations are most of the memory (ResNet-50) it nearly halves, where weights and their states weigh as much (GPT-2) it "
        "does not. Weights in bfloat16 halve those too."
    )
    head = ["job", "precision", "weights", "gradients", "optimizer", "activations", "peak allocated", "change", "peak reserved", "step, ms"]
    return word, text, table(head, lines), AGAIN


def checkpoints():
    by = {(row["job"], row["precision"], row["checkpoints"]): row for row in rows("memory.csv")}
    lines, saved, slower = [], [], []
    for (job, precision, on), row in by.items():
        if on == "0":
            continue
        base = by[job, precision, "0"]
        saved.append(-change(row, base, "activations_bytes"))
        slower.append(float(row["step_ms"]) / float(base["step_ms"]) - 1)
        lines.append((job, precision, size(int(base["activations_bytes"])), size(int(row["activations_bytes"])), share(-saved[-1]),
                      share(change(row, base, "peak_allocated_bytes")), share(slower[-1])))
    word = "confirmed" if min(saved) >= 0.6 else "refuted" if max(saved) < 0.6 else "depends"
    text = (
        f"With a checkpoint at each layer or block {min(saved):.0%} to {max(saved):.0%} of what is kept for the backward pass is saved, which is less of "
        f"the whole peak, as weights and their states stay and one block's activations come back. Steps take {min(slower):.0%} to {max(slower):.0%} "
        "longer."
    )
    head = ["job", "precision", "activations", "with checkpoints", "change", "of the whole peak", "step time"]
    return word, text, table(head, lines), AGAIN


def graphs():
    found = {row["run"]: row for row in rows("graphs.csv")}
    eager = found["eager"]
    unused = {run: 1 - int(row["peak_allocated_bytes"]) / int(row["peak_reserved_bytes"]) for run, row in found.items()}
    more = [change(row, eager, "peak_reserved_bytes") for row in found.values() if row is not eager]
    lines = [
        (run, size(int(row["peak_allocated_bytes"])), size(int(row["peak_reserved_bytes"])), f"{unused[run]:.1%}",
         "" if row is eager else share(change(row, eager, "peak_reserved_bytes")), row["round_ms"])
        for run, row in found.items()
    ]
    word = "confirmed" if max(more) < -0.01 else "refuted (one job)" if min(more) > 0.01 else "depends"
    text = (
        f"One model called with three lengths reserves {share(min(more))} to {share(max(more))} with a graph for each length than without: what a graph "
        "allocates stays its own between replays. The share of the reservation that is not allocated falls, since allocations that "
        "nobody may use any more count as used. Fragmentation by its name, memory that cannot be had, does not get less."
    )
    head = ["run", "peak allocated", "peak reserved", "reserved, not allocated", "change of the reservation", "three calls, ms"]
    return word, text, table(head, lines)


def locality():
    times = {}
    for row in rows("emptied.csv"):
        times.setdefault((row["run"], row["after_emptying"]), []).append(float(row["ms"]))
    names = {("kept", ""): "cache kept", ("emptied", "0"): "the step that empties it first", ("emptied", "1"): "the next step",
             ("emptied", "2"): "the one after"}
    lines = [(name, len(times[key]), *(f"{t:.2f}" for t in middle(times[key]))) for key, name in names.items()]
    kept = statistics.median(times["kept", ""])
    first = statistics.median(times["emptied", "0"]) - kept
    later = [statistics.median(times["emptied", n]) - kept for n in "12"]
    text = (
        f"On a GPU (GPT-2 small, same length each step), the step that begins with an empty cache takes {first:.1f} ms longer, {first / kept:.0%}. The two "
        f"steps after it, which find their memory taken anew, take {min(later):.1f} to {max(later):.1f} ms longer: that is the most that "
        "lost locality can cost here, and less than what the host's speed changes by between runs."
    )
    return text, table(["step", "steps", "median, ms", "from", "to"], lines)


def epochs():
    runs = {}
    for row in rows("epochs.csv"):
        runs.setdefault((row["allocator"], row["emptied"]), {}).setdefault(int(row["epoch"]), []).append(float(row["ms"]))
    lines, stalls, totals = [], {}, {}
    for (allocator, emptied), by in runs.items():
        later = [by[n] for n in sorted(by) if n > 0]
        first = statistics.median(steps[0] for steps in later)
        # The same steps of all epochs have the same lengths, so the first one's own length falls out against the kept cache.
        rest = statistics.median(t for steps in later for t in steps[1:])
        stalls[allocator, emptied] = first - rest
        totals[allocator, emptied] = statistics.median(sum(steps) for steps in later)
        lines.append((allocator, "emptied" if emptied == "1" else "kept", f"{first:.1f}", f"{rest:.1f}", f"{first - rest:+.1f}",
                      f"{totals[allocator, emptied]:.0f}"))
    slow = totals["no caching", "0"] / totals["default", "0"]
    text = (
        f"GPT-2 small, epochs of twelve steps of varying length on an H200: the first step of the second and later epochs takes {stalls['default', '0']:+.1f} ms "
        f"against the others if the cache is kept, and {stalls['default', '1']:+.1f} ms if the program empties it at the epoch's end. A pool does make epochs "
        f"{slow:.1f} times as fast as no pool at all ({totals['no caching', '0']:.0f} against {totals['default', '0']:.0f} ms), but what it saves lies in "
        "every step, not at the start of the epoch. (The very first step of each process takes half a second to two, under every allocator: "
        "CUDA and its libraries start.)"
    )
    head = ["allocator", "cache between epochs", "first step, ms", "other steps, ms", "difference", "epoch, ms"]
    word = "refuted (one job)" if stalls["default", "0"] < 0.1 * totals["default", "0"] else "confirmed"
    return word, text, table(head, lines)

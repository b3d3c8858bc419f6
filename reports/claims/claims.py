#!/usr/bin/env python3
"""Widely repeated advice beside what was measured: writes claims.md beside this file from the measurements of this repository.

usage: reports/claims/claims.py            write it
       reports/claims/claims.py --check    fail if it is not what the measurements say
"""

import pathlib
import statistics
import sys

import training
from measured import h200, number, rows, share, size, table

PAGE = pathlib.Path(__file__).resolve().parent / "claims.md"
GPU = "scripts/gpu-check"
AGAIN = "reports/measured/claims/measure.py target/release/poolsim"
RECORDED, SETTINGS = rows("recorded.csv"), rows("settings.csv")
# A change that is smaller than this says nothing to anybody.
NOTHING = 0.01


def verdict(changes):
    """By how many of the recordings get better; a change is a share, below 0 is better."""
    better = sum(change < -NOTHING for change in changes)
    if better == len(changes):
        return "confirmed"
    return "depends" if better else "refuted"


def counted(changes):
    better = sum(change < -NOTHING for change in changes)
    worse = sum(change > NOTHING for change in changes)
    return f"{better} of {len(changes)} better, {worse} worse, the rest within {NOTHING:.0%}"


def bounds(changes):
    return f"from {share(min(changes))} to {share(max(changes))}"


def recorded(setting):
    """Jobs that PyTorch really ran under a setting and under its defaults: both rows, and the change of the peak reservation."""
    default = {row["job"]: row for row in RECORDED if row["setting"] in ("default", "frames")}
    pairs = [(default[row["job"]], row) for row in RECORDED if row["setting"] == setting and row["job"] in default]
    return [(a, b, int(b["peak_reserved_bytes"]) / int(a["peak_reserved_bytes"]) - 1) for a, b in pairs]


def finished(pair):
    """Neither run was refused memory: the peaks are of the same work."""
    return all(row["ooms"] == "0" for row in pair[:2])


def recorded_table(setting):
    lines = [
        (a["job"], size(int(a["peak_reserved_bytes"])), size(int(b["peak_reserved_bytes"])), share(change), a["ooms"], b["ooms"],
         a["segments_taken"], b["segments_taken"])
        for a, b, change in recorded(setting)
    ]
    head = ["recorded job", "reserved, default", f"reserved, {setting}", "change", "OOMs, default", "OOMs", "segments, default",
            "segments"]
    return table(head, lines)


def simulated(label):
    """The same in simulation, of every recording that neither setting refuses memory."""
    base = {row["job"]: row for row in SETTINGS if row["label"] == "pytorch"}
    pairs = [(base[row["job"]], row) for row in SETTINGS if row["label"] == label]
    pairs = [(a, b) for a, b in pairs if a["ooms"] == b["ooms"] == "0"]
    return [(a, b, int(b["peak_reserved_bytes"]) / int(a["peak_reserved_bytes"]) - 1) for a, b in pairs]


def changes(pairs):
    return [change for _, _, change in pairs]


def setting_claim(setting, label):
    real, model = recorded(setting), simulated(label)
    same = [pair for pair in real if finished(pair)]
    text = f"Really run under both settings, without a refused request: {counted(changes(same))} (the peak reservation changes "
    text += f"{bounds(changes(same))}). In simulation on all recordings: {counted(changes(model))} ({bounds(changes(model))})."
    limited = [(a, b) for a, b, _ in real if a["limit_gib"]]
    if limited:
        words = (f"{a['job']}: {a['ooms']} requests refused by default, {b['ooms']} with it" for a, b in limited)
        text += f" Under a memory limit: {'; '.join(words)}."
    word = verdict(changes(same))
    # A setting that lets a job live is not refuted by reserving more where there is room.
    saves = any(a["ooms"] != "0" and b["ooms"] == "0" for a, b in limited)
    return ("depends" if saves and word == "refuted" else word), text, recorded_table(setting), AGAIN


def cuda_malloc():
    calls = {(row["call"], int(row["bytes"])): row for row in rows("latency.csv")}
    sizes = [s for c, s in calls if c == "cudaMalloc" and 512 <= s <= 1 << 30]
    lines = [
        (size(s), f"{float(calls['cudaMalloc', s]['p50_us']):.1f} us", f"{float(calls['cudaFree', s]['p50_us']):.1f} us",
         f"{float(calls['cudaMallocAsync.warm', s]['p50_us']):.2f} us", f"{float(calls['cudaMallocAsync.cold', s]['p50_us']):.1f} us")
        for s in sorted(sizes)
    ]
    pools = h200("second-session.md")
    hits = [number(by["pytorch"]["alloc p50"]) * 1000 for by in pools.values()]
    misses = [number(by["pytorch"]["alloc p99"]) for by in pools.values()]
    text = (
        f"One cudaMalloc takes {lines[0][1]} to {lines[-1][1]} (medians, idle H200). A request of PyTorch's policy on the same GPU has a "
        f"median of {min(hits):.0f} to {max(hits):.0f} ns over {len(hits)} recordings, the clock's own cost included; its 99th percentile "
        f"is {min(misses):.2f} to {max(misses):.0f} us: the requests that find nothing cached pay the driver's price."
    )
    head = ["size", "cudaMalloc", "cudaFree", "pool of the driver, cached", "pool of the driver, growing"]
    return "confirmed", text, table(head, lines), GPU


def ninety_per_cent():
    plain = h200("first-session.md")["unet_multires"]["cuda-malloc"]
    pools = h200("second-session.md")["unet_multires"]
    base = number(plain["allocator time"])
    lines = [("cudaMalloc and cudaFree", plain["allocator time"], "")]
    savings = []
    for policy in ("pytorch", "expandable", "best-fit", "cuda-async"):
        less = number(pools[policy]["allocator time"]) / base - 1
        savings.append(less)
        lines.append((policy, pools[policy]["allocator time"], share(less)))
    claimed = -0.9
    word = "confirmed" if all(less <= claimed for less in savings) else "depends"
    text = (
        f"On unet_multires, the one recording that ran on bare cudaMalloc on a GPU, the time of all requests and frees changes "
        f"{bounds(savings)} with a pool. How much depends on how often the pool must grow: expandable segments grow by "
        "many small pieces. Bare cudaMalloc and the pools ran in two sessions an hour apart, on the same kind of GPU."
    )
    return word, text, table(["allocator", "all requests and frees, ms", "change"], lines), GPU


def epochs():
    jobs, lines = {}, []
    for row in rows("steps.csv"):
        jobs.setdefault(row["job"], []).append(int(row["segments_taken"]))
    emptied = {row["job"]: row for row in rows("empty-cache.csv") if row["run"] == "as recorded"}
    for job, taken in jobs.items():
        time, span = (int(emptied[job][name]) for name in ("device_time_ns", "last_event_ns"))
        lines.append((job, sum(taken), taken[0], sum(taken[1:3]), sum(taken[3:]), f"{time / 1e6:.1f} ms", f"{time / span:.2%}"))
    most = max(int(row["device_time_ns"]) for row in emptied.values()) / 1e6
    measured = h200("second-session.md")["resnet50_amp"]["pytorch"]["device time"]
    bare = h200("first-session.md")["unet_multires"]["cuda-malloc"]["allocator time"]
    word, told, epochs_table = training.epochs()
    text = (
        f"{told} In the recordings: PyTorch takes its segments in the first steps and reuses them; a stall that comes back with each epoch needs "
        "something that gives memory back (resnet50_amp: cuDNN's benchmark empties the cache whenever a new shape comes, here with the "
        f"smaller last batch). All device calls of a job together are predicted to take at most {most:.0f} ms, and took {measured} ms when "
        "resnet50_amp was replayed on an H200. Without any pool, the whole of unet_multires spent "
        f"{bare} ms in cudaMalloc and cudaFree. Seconds would need a job that asks far more often, or have another cause."
    )
    head = ["recorded job", "segments taken", "before the first step's end", "in the next two steps", "later",
            "device calls, predicted", "share of the job's time"]
    return word, text, f"{epochs_table}\n{table(head, lines)}", f"{training.AGAIN}` and `{AGAIN}"


def split():
    word, text, shown, again = setting_claim("split128", "pytorch,max_split_size_mb:128")
    small = simulated("pytorch,max_split_size_mb:64")
    text += f" With 64 instead of 128, in simulation: {counted(changes(small))} ({bounds(changes(small))})."
    text += " Blocks above the limit are never split, so on a card with room each new large size takes a segment of its own; only when "
    text += "memory runs out are they given back. Near a limit that can save a job, and on a card with room it multiplies what is reserved."
    return word, text, shown, again


def cuda_async():
    model = simulated("cuda-async")
    pools = h200("second-session.md")
    real = [(job, by["pytorch"], by["cuda-async"]) for job, by in pools.items()]
    lines = [
        (job, f"{a['peak reserved, GPU']} MiB", f"{b['peak reserved, GPU']} MiB",
         share(number(b["peak reserved, GPU"]) / number(a["peak reserved, GPU"]) - 1), a["allocator time"], b["allocator time"])
        for job, a, b in real
    ]
    measured = [number(b["peak reserved, GPU"]) / number(a["peak reserved, GPU"]) - 1 for _, a, b in real]
    text = (
        f"The real pool against PyTorch's policy on the same GPU: {counted(measured)} ({bounds(measured)} of the peak reservation). In "
        f"simulation on all recordings: {counted(changes(model))} ({bounds(changes(model))}). It costs more time in each request."
    )
    head = ["recording, on an H200", "pytorch", "cuda-async", "change", "pytorch, ms", "cuda-async, ms"]
    return verdict(measured), text, table(head, lines), f"{AGAIN}` and `{GPU}"


def garbage():
    _, text, shown, again = setting_claim("gc80", "pytorch,garbage_collection_threshold:0.8")
    runs = {}
    for row in rows("collected.csv"):
        runs.setdefault(row["job"], []).append(row)
    lines, peaks = [], []
    for job, (a, b) in runs.items():
        peak, mean, time = (float(b[name]) / float(a[name]) - 1 for name in ("peak_reserved_bytes", "mean_reserved_bytes", "device_time_ns"))
        peaks.append(peak)
        lines.append((job, f"{float(a['memory_fraction']):.2%}", size(int(a["peak_reserved_bytes"])), share(peak), share(mean), share(time),
                      a["ooms"], b["ooms"]))
    text += " The threshold is a share of the memory limit: without one PyTorch collects nothing, and the runs are the same. In simulation "
    text += f"under a limit a tenth above each job's own peak: {counted(peaks)} ({bounds(peaks)} at the peak)."
    head = ["job, simulated", "limit, share of the card", "reserved, default", "peak", "mean reserved", "device time", "OOMs, default", "OOMs"]
    return verdict(peaks), text, shown + "\n" + table(head, lines), again


def empty_cache():
    pairs = {}
    for row in rows("empty-cache.csv"):
        pairs.setdefault(row["job"], []).append(row)
    lines, slower = [], []
    for job, (a, b) in pairs.items():
        times = [int(row["device_time_ns"]) / 1e6 for row in (a, b)]
        slower.append(times[1] / times[0])
        mean = int(float(b["mean_reserved_bytes"])) / int(float(a["mean_reserved_bytes"])) - 1
        peak = int(b["peak_reserved_bytes"]) / int(a["peak_reserved_bytes"]) - 1
        lines.append((job, b["empty_caches"], f"{times[0]:.1f} ms", f"{times[1]:.1f} ms", f"{slower[-1]:.1f} x", share(peak), share(mean),
                      a["ooms"], b["ooms"]))
    text = (
        f"With an empty_cache at the end of each step, device calls take {min(slower):.1f} to {max(slower):.1f} times as long as "
        "without (predicted). What it buys: less reserved on average, and on a job near its limit fewer refused requests. "
    )
    told, locality = training.locality()
    word = "confirmed" if min(slower) > 1 + NOTHING else "depends"
    head = ["recorded job", "empty_cache calls", "device calls", "with it", "factor", "peak reserved", "mean reserved", "OOMs", "OOMs with it"]
    return f"{word} (time); not shown (locality)", text + told, f"{locality}\n{table(head, lines)}", f"{training.AGAIN}` and `{AGAIN}"


def first_request():
    by_policy = {}
    for row in rows("first-request.csv"):
        by_policy.setdefault(row["policy"], []).append(row)
    lines = [
        (policy, len(found), *(size(f(int(row["reserved_bytes"]) - int(row["requested_bytes"]) for row in found)) for f in (min, max)),
         size(min(int(row["reserved_bytes"]) for row in found)))
        for policy, found in by_policy.items()
    ]
    least = min(int(row["reserved_bytes"]) for row in rows("first-request.csv"))
    text = (
        f"After its first request a job holds what that request needs and at most the rest of a segment, page or chunk more; the least "
        f"is {size(least)}. Nothing is taken in advance. (RMM's pools take what they are told to when they are made; JAX takes a share of the "
        "card unless told not to.)"
    )
    head = ["policy", "recordings", "reserved beyond the first request, least", "most", "reserved, least"]
    return "refuted", text, table(head, lines), AGAIN


def graphs():
    lines = [
        (row["job"], row["policy"], size(int(row["live_bytes"])), size(int(row["peak_reserved_bytes"])), size(int(row["pools_bytes"])),
         share(int(row["pools_bytes"]) / int(row["peak_reserved_bytes"])))
        for row in rows("private-pools.csv") if row["ooms"] == "0"
    ]
    word, told, shown = training.graphs()
    text = (
        f"{told} In recordings with private pools (compiled: torch.compile, reduce-overhead) keeping pools apart makes "
        "the reservation larger, not smaller, by what the last columns say (a replay in which every request goes to the default pool)."
    )
    head = ["recorded job", "policy", "live at once", "reserved", "through private pools", "share of the reservation"]
    return word, text, f"{shown}\n{table(head, lines)}", f"{training.AGAIN}` and `{AGAIN}"


def small_and_large():
    pools = h200("second-session.md")
    lines, found = [], []
    for job, by in sorted(pools.items(), key=lambda item: number(item[1]["pytorch"]["peak reserved, GPU"])):
        fast = min(by, key=lambda policy: number(by[policy]["allocator time"]))
        tight = min(by, key=lambda policy: number(by[policy]["peak reserved, GPU"]))
        more = number(by[tight]["allocator time"]) - number(by[fast]["allocator time"])
        saved = 1 - number(by[tight]["peak reserved, GPU"]) / number(by[fast]["peak reserved, GPU"])
        found.append((saved, more))
        lines.append((job, f"{by['pytorch']['peak reserved, GPU']} MiB", fast, tight, f"{saved:.1%}", f"{more:.1f} ms"))
    saved = [x for x, _ in found]
    # Lines are in the order of size already.
    even = statistics.correlation(range(len(saved)), [sorted(saved).index(x) for x in saved])
    text = (
        f"On {len(lines)} recordings on an H200 the tightest of four policies saves {min(saved):.1%} to {max(saved):.1%} over the fastest, and "
        f"costs {min(m for _, m in found):.0f} to {max(m for _, m in found):.0f} ms more in a whole job. What is saved goes with the job's "
        f"size by a rank correlation of {even:+.2f}: how sizes vary from step to step matters, too few and too different jobs to say more."
    )
    head = ["recording, by size", "reserved by pytorch", "fastest", "tightest", "reserved less", "time more"]
    return "depends", text, table(head, lines), GPU


CLAIMS = [
    ("cudaMalloc costs microseconds, a pool nanoseconds", cuda_malloc),
    ("A memory pool cuts allocation latency by 90 %", ninety_per_cent),
    ("Training stalls at the start of each epoch because of cudaMalloc (one report: 6.2 s fell to 0.9 s with a pool)", epochs),
    ("max_split_size_mb:128 (or 64 for variable lengths) prevents fragmentation", split),
    ("cudaMallocAsync reduces fragmentation", cuda_async),
    ("Expandable segments reduce fragmentation", lambda: setting_claim("expand", "expandable")),
    ("roundup_power2_divisions reduces fragmentation", lambda: setting_claim("pow2d4", "pytorch,roundup_power2_divisions:4")),
    ("garbage_collection_threshold keeps the reservation down", garbage),
    ("empty_cache each step costs time and locality", empty_cache),
    ("Mixed precision halves memory", training.mixed_precision),
    ("Gradient checkpointing saves 60 % of activations", training.checkpoints),
    ("The pool holds 512 MB at the start", first_request),
    ("CUDA graphs reduce fragmentation", graphs),
    ("Small model: favour latency; large model: favour utilisation", small_and_large),
]

INTRO = """# Claims, measured

Advice that is given again and again, beside what recordings of real jobs show. Written by `reports/claims/claims.py` from the
files under [reports/measured](../measured); no number is typed in. Recordings and times: NVIDIA H200, torch 2.11, CUDA 13.0. "Recorded"
and "on an H200" are real runs; "in simulation" and "predicted" are not, and say so.

A verdict about memory follows one rule: *confirmed* if the peak reservation falls on every recording by more than {nothing:.0%}, *refuted* if
on none, else *depends*. The jobs fuzz_\\* and mid\\* are random requests made to hurt allocators, not training.
"""


def page():
    results = [(title, measure()) for title, measure in CLAIMS]
    text = INTRO.format(nothing=NOTHING) + "\n"
    text += table(["claim", "verdict"], [(f"[{n}. {title}](#claim-{n})", result[0]) for n, (title, result) in enumerate(results, 1)], "---|")
    for n, (title, (word, words, shown, again)) in enumerate(results, 1):
        text += f'\n<a id="claim-{n}"></a>\n\n## {n}. {title}\n\n**{word}.** {words}\n'
        text += f"\n{shown}" if shown else ""
        text += f"\nMeasured by `{again}`.\n" if again else ""
    return text


if sys.argv[1:] == ["--check"]:
    if PAGE.read_text() != page():
        sys.exit(f"{PAGE} is not what the measurements say; run reports/claims/claims.py and look at the difference")
else:
    PAGE.write_text(page())

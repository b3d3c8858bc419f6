#!/usr/bin/env python3
"""Prints the facts that traces/tests/torch_golden.tsv holds, one line a snapshot, with Python's own pickle.

    scripts/torch-golden.py SHARED > traces/tests/torch_golden.tsv

SHARED is the folder with `traces/*/*.pickle.zst` and `public/*.pickle.zst`. Needs the package zstandard. Columns:
file, entries, entries by action (order of ACTIONS), hash of the entries, distinct stacks, hash of the stacks
by first occurrence, segments, reserved bytes, blocks, hash of the heap, streams, pools, annotation starts.
The hash takes in 64-bit words w one after the other: h = (h ^ w) * 0x100000001b3 mod 2^64.
"""

import collections
import glob
import os
import pickle
import sys

import zstandard

ACTIONS = ["alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "segment_map", "segment_unmap", "oom", "snapshot"]
STATES = ["active_allocated", "active_pending_free", "inactive"]
MASK = 2**64 - 1


class Hash:
    def __init__(self):
        self.value = 0xCBF29CE484222325

    def add(self, *words):
        for word in words:
            self.value = ((self.value ^ (word & MASK)) * 0x100000001B3) & MASK


def facts(path, shared):
    with open(path, "rb") as file:
        data = pickle.loads(zstandard.ZstdDecompressor().stream_reader(file).read())
    traces = data["device_traces"]
    device = max(range(len(traces)), key=lambda d: (len(traces[d]), -d)) if traces else 0
    trace = traces[device] if traces else []
    segments = sorted((s for s in data["segments"] if s.get("device", 0) == device), key=lambda s: s["address"])
    counts = collections.Counter(e["action"] for e in trace)
    start = trace[0].get("time_us", 0) if trace else 0
    entries, stacks, heap, known = Hash(), Hash(), Hash(), {(): 0}

    def stack(frames):
        key = tuple((f["name"], f["filename"], f["line"]) for f in frames or [])
        stacks.add(known.setdefault(key, len(known)))

    for e in trace:
        addr = e["device_free"] if e["action"] == "oom" else e["addr"]
        entries.add(ACTIONS.index(e["action"]), addr, e["size"], e["stream"], e.get("time_us", start) - start)
        stack(e.get("frames"))
    blocks = 0
    for s in segments:
        heap.add(s["address"], s["total_size"], s["stream"], int(s["segment_type"] == "small"), int(s.get("is_expandable", False)))
        heap.add(*s.get("segment_pool_id", (0, 0)))
        at = s["address"]
        for b in s["blocks"]:
            at = b.get("address", at)
            active = b["state"] != "inactive"
            heap.add(at, b["size"], b.get("requested_size", b["size"] if active else 0), STATES.index(b["state"]))
            at += b["size"]
            blocks += 1
    streams = {e["stream"] & MASK for e in trace} | {s["stream"] & MASK for s in segments}
    pools = {tuple(s.get("segment_pool_id", (0, 0))) for s in segments} | {(0, 0)}
    starts = sum(a["stage"] == "START" and a["device"] == device for a in data.get("external_annotations", []))
    return [
        os.path.relpath(path, shared),
        len(trace),
        ",".join(str(counts[a]) for a in ACTIONS),
        f"{entries.value:016x}",
        len(known) - 1,
        f"{stacks.value:016x}",
        len(segments),
        sum(s["total_size"] for s in segments),
        blocks,
        f"{heap.value:016x}",
        len(streams),
        len(pools),
        starts,
    ]


def main():
    shared = sys.argv[1]
    for path in sorted(glob.glob(f"{shared}/traces/*/*.pickle.zst") + glob.glob(f"{shared}/public/*.pickle.zst")):
        print(*facts(path, shared), sep="\t")


if __name__ == "__main__":
    main()

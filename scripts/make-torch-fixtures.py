#!/usr/bin/env python3
"""Writes the small snapshots that traces/tests/torch reads: scripts/make-torch-fixtures.py traces/tests/torch/data"""

import base64
import copy
import io
import json
import pickle
import pickletools
import sys

OUT = sys.argv[1]
T0 = 1_790_000_000_000_000
PAGE = """
<!DOCTYPE html>
<html>
<head>
</head>
<body>
<script type="module">
import {add_local_files} from "https://cdn.jsdelivr.net/gh/pytorch/pytorch@main/torch/utils/viz/MemoryViz.js"
const local_files = $SNAPSHOT
add_local_files(local_files, $VIZ_KIND)
</script>
</body>
"""


def write(name, data):
    with open(f"{OUT}/{name}", "wb") as file:
        file.write(data)


def frame(name, line):
    return {"name": name, "filename": "/srv/\u00e9t\u00e9\\train.py", "line": line}


def full():
    """Two devices; every kind of entry, state and annotation; shared and equal stacks; odd numbers."""
    a, b, c = frame("step", 10), frame("f\n\u20ac", 2**31 + 5), frame("main", 1)
    inner = [a, c]
    high = 0xFFFF_8000_0000_0000

    def entry(action, addr, size, stream, dt, **more):
        key = "device_free" if action == "oom" else "addr"
        return {"action": action, key: addr, "size": size, "stream": stream, "time_us": T0 + dt, "compile_context": "N/A", "user_metadata": "", **more}

    one = [
        entry("segment_alloc", high, 2 << 20, -16, 0, frames=inner),
        entry("alloc", high, 500, -16, 1, frames=inner, user_metadata="warm-up"),
        entry("alloc", high + 512, 70, -16, 1, frames=[b, a, c], user_metadata="warm-up"),
        entry("free_requested", high, 500, -16, 7, frames=list(inner)),
        entry("segment_map", 0x3_0200_0000, 20 << 20, 0, 8, compile_context="Torch-Compiled Region: 0/0"),
        entry("alloc", 0x3_0200_0000, 19 << 20, 0, 9),
        entry("oom", 12345, 1 << 33, 0, 10, frames=[c]),
        entry("free_completed", high, 500, -16, 11),
        entry("segment_unmap", 0x3_0000_0000, 20 << 20, 0, 12),
        entry("segment_free", 0x7F00_0000_0000, 2 << 20, 5_000_000_000, 13),
        entry("snapshot", 0, 999, 0, 14),
    ]
    segments = [
        {
            "device": 1, "address": 0x3_0200_0000, "total_size": 20 << 20, "allocated_size": 19 << 20, "active_size": 19 << 20,
            "requested_size": 19 << 20, "stream": 0, "segment_type": "large", "segment_pool_id": (0, 3), "is_expandable": True, "frames": [c],
            "blocks": [
                {"address": 0x3_0200_0000, "size": 19 << 20, "requested_size": 19 << 20, "state": "active_allocated", "frames": inner},
                {"address": 0x3_0200_0000 + (19 << 20), "size": 1 << 20, "requested_size": 0, "state": "inactive", "frames": []},
            ],
        },
        {
            "device": 1, "address": high, "total_size": 2 << 20, "allocated_size": 512, "active_size": 512,
            "requested_size": 70, "stream": -16, "segment_type": "small", "segment_pool_id": (0, 0), "is_expandable": False, "frames": [],
            "blocks": [
                {"address": high, "size": 512, "requested_size": 500, "state": "inactive", "frames": []},
                {"address": high + 512, "size": 512, "requested_size": 70, "state": "active_pending_free", "frames": [b, a, c]},
                {"address": high + 1024, "size": (2 << 20) - 1024, "requested_size": 0, "state": "inactive", "frames": []},
            ],
        },
    ]
    marks = [
        ("START", "outer", 0, -5), ("START", "step", 1, -5), ("END", "step", 1, -2), ("START", "epoch", 1, -1), ("START", "step", 1, 1), ("START", "step", 1, 2),
        ("END", "step", 1, 4), ("END", "step", 1, 6), ("END", "early", 1, 8), ("START", "open", 1, 9),
    ]
    return {
        "segments": segments,
        "device_traces": [[entry("alloc", 512, 512, 0, 3)], one],
        "allocator_settings": {
            "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True,max_split_size_mb:128", "max_split_size": 128 << 20, "garbage_collection_threshold": 0.0,
            "expandable_segments": True, "pinned_num_register_threads": 1, "release_lock_on_cudamalloc": False, "pinned_use_cuda_host_register": False,
            "graph_capture_record_stream_reuse": False, "roundup_power2_divisions": {str(1 << n): 0 for n in range(16)},
        },
        "external_annotations": [{"stage": s, "name": n, "device": d, "time_us": T0 + t} for s, n, d, t in marks],
    }


def relist(value):
    """A copy in which nothing is shared."""
    return copy.deepcopy(json.loads(json.dumps(value)))


def pure_python(data, protocol):
    """What Python's own pickler class writes, which batches as the C one does but memoises more."""
    out = io.BytesIO()
    pickle._Pickler(out, protocol).dump(data)
    return out.getvalue()


def reversed_keys(value):
    if isinstance(value, dict):
        return {k: reversed_keys(v) for k, v in reversed(value.items())}
    if isinstance(value, list):
        return [reversed_keys(v) for v in value]
    return value


def main():
    data = full()
    for protocol in range(6):
        write(f"full.p{protocol}.pickle", pickle.dumps(data, protocol))
    write("full.pure.pickle", pure_python(data, 3))
    write("full.optimized.pickle", pickletools.optimize(pickle.dumps(data, 4)))
    write("full.p0.optimized.pickle", pickletools.optimize(pickle.dumps(data, 0)))
    write("full.unshared.pickle", pickle.dumps(relist(data), 2))
    write("full.reversed.pickle", pickle.dumps(reversed_keys(data), 4))
    write("full.json", json.dumps(data).encode())
    write("full.indented.json", json.dumps(data, indent=1, ensure_ascii=False).encode())
    buffer = pickle.dumps(data)
    buffer += b"\x00" * (3 - len(buffer) % 3)
    page = json.dumps([{"name": "snapshot.pickle", "base64": base64.b64encode(buffer).decode()}])
    write("full.html", PAGE.replace("$VIZ_KIND", repr("Active Memory Timeline")).replace("$SNAPSHOT", page).encode())
    write("plot.html", b"<!DOCTYPE html><html><script>var plot = {\"elements_info\": [1], \"actions\": [0]}</script></html>")

    old_block = {"size": 512, "state": "active_allocated", "history": [{"addr": 4096, "real_size": 300, "frames": [frame("old", 3)]}, {"addr": 4096, "real_size": 200, "frames": []}]}
    old = [
        {"device": 0, "address": 4096, "total_size": 2048, "allocated_size": 512, "active_size": 512, "stream": 0, "segment_type": "small",
         "blocks": [old_block, {"size": 1024, "state": "inactive"}, {"size": 512, "state": "active_awaiting_free", "history": []}]},
    ]
    write("list.pickle", pickle.dumps(old, 2))
    write("list.json", json.dumps(old).encode())
    free = [
        {"action": "alloc", "addr": 4096, "size": 300, "stream": 0, "frames": []},
        {"action": "user_defined", "addr": 0, "size": 0, "stream": 0},
        {"action": "free", "addr": 4096, "size": 300, "stream": 0},
        {"action": "alloc", "addr": 8192, "size": 1, "stream": 0},
    ]
    write("legacy.pickle", pickle.dumps({"segments": [], "device_traces": [free]}, 2))
    write("empty.pickle", pickle.dumps({"segments": [], "device_traces": [], "allocator_settings": {}, "external_annotations": []}))
    pools = [{"action": "alloc", "addr": 512 * n, "size": 10, "stream": 0, "time_us": T0 + n / 2, "pool_id": (0, n % 3)} for n in range(1, 7)]
    del pools[2]["pool_id"]
    write("pools.pickle", pickle.dumps({"segments": [], "device_traces": [pools]}))
    write("pools.json", json.dumps({"device_traces": [pools], "segments": []}).encode())
    stale = {"segments": [], "device_traces": [[]], "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": 64 << 20, "garbage_collection_threshold": 0.75,
             "expandable_segments": False, "roundup_power2_divisions": {str(1 << n): 4 for n in range(16)}, "trace_alloc_overflowed": True, "trace_alloc_max_entries": 1000}}
    write("stale.pickle", pickle.dumps(stale))


main()

#!/usr/bin/env python3
"""Records what ONNX Runtime's arena answers to made-up requests, for policies/tests/ort_recorded.rs.

    python3 -m venv venv && venv/bin/pip install onnxruntime==1.32.0 onnx
    venv/bin/python scripts/record-ort-arena.py traces/corpus/ort

The arena is the one that serves the host (BFCArena, the class that also serves CUDA), over malloc, so that no GPU is needed.
It is reached through the C API of the library in the wheel. A run of a session shrinks it.

Each NAME.csv.gz: a comment with the release and the settings, then `op,id,bytes,pointer,held`. Operations: `alloc`, `free`, `shrink`
(a run's end with memory.enable_memory_arena_shrinkage), `limit` and `full` (a request refused for max_mem, or because malloc
gave nothing). `held` is TotalAllocated after the operation. A comment at the end has the arena's own statistics.
"""
import ctypes
import glob
import gzip
import os
import random
import re
import resource
import subprocess
import sys

import onnx
import onnxruntime
from onnx import TensorProto, helper

KIB, MIB = 1 << 10, 1 << 20
POW2, EXACT = 0, 1
STRATEGIES = {POW2: "kNextPowerOfTwo", EXACT: "kSameAsRequested"}

# Name: settings of the arena, MiB of addresses that the process may take from then on.
SCENARIOS = {
    "defaults": ({}, None),
    "same": ({"arena_extend_strategy": EXACT}, None),
    "small": (
        {
            "initial_chunk_size_bytes": 256 * KIB,
            "max_dead_bytes_per_chunk": 64 * KIB,
            "initial_growth_chunk_size_bytes": 512 * KIB,
            "max_power_of_two_extend_bytes": 8 * MIB,
        },
        None,
    ),
    "limited": ({"max_mem": 200 * MIB}, None),
    "same-limited": ({"arena_extend_strategy": EXACT, "max_mem": 100 * MIB + 12_345}, None),
    "full": ({}, 300),
    "same-full": ({"arena_extend_strategy": EXACT}, 150),
}

Pointer = ctypes.c_void_p
Size = ctypes.c_size_t
Text = ctypes.c_char_p


class Base(ctypes.Structure):
    """OrtApiBase"""

    _fields_ = [("GetApi", ctypes.CFUNCTYPE(Pointer, ctypes.c_uint32)), ("GetVersionString", ctypes.CFUNCTYPE(Text))]


# Places of functions in OrtApi, which never change once released, and the types of their arguments.
FUNCTIONS = {
    "GetErrorMessage": (2, Text, [Pointer]),
    "CreateEnv": (3, Pointer, [ctypes.c_int, Text, Pointer]),
    "CreateSessionFromArray": (8, Pointer, [Pointer, Text, Size, Pointer, Pointer]),
    "Run": (9, Pointer, [Pointer, Pointer, Pointer, Pointer, Size, Pointer, Size, Pointer]),
    "CreateSessionOptions": (10, Pointer, [Pointer]),
    "CreateRunOptions": (39, Pointer, [Pointer]),
    "CreateTensorWithDataAsOrtValue": (49, Pointer, [Pointer, Pointer, Size, Pointer, Size, ctypes.c_int, Pointer]),
    "CreateMemoryInfo": (68, Pointer, [Text, ctypes.c_int, ctypes.c_int, ctypes.c_int, Pointer]),
    "AllocatorAlloc": (75, Pointer, [Pointer, Size, Pointer]),
    "AllocatorFree": (76, Pointer, [Pointer, Pointer]),
    "ReleaseStatus": (93, None, [Pointer]),
    "AddSessionConfigEntry": (130, Pointer, [Pointer, Text, Text]),
    "CreateAllocator": (131, Pointer, [Pointer, Pointer, Pointer]),
    "CreateArenaCfgV2": (164, Pointer, [Pointer, Pointer, Size, Pointer]),
    "AddRunConfigEntry": (165, Pointer, [Pointer, Text, Text]),
    "CreateAndRegisterAllocatorV2": (259, Pointer, [Pointer, Text, Pointer, Pointer, Pointer, Pointer, Size]),
    "GetKeyValuePairs": (298, None, [Pointer, Pointer, Pointer, Pointer]),
    "ReleaseKeyValuePairs": (300, None, [Pointer]),
    "AllocatorGetStats": (319, Pointer, [Pointer, Pointer]),
}


class Ort:
    """The C API; calls that fail raise."""

    def __init__(self):
        path = glob.glob(os.path.dirname(onnxruntime.__file__) + "/capi/libonnxruntime.so.*")[0]
        get = ctypes.CDLL(path).OrtGetApiBase
        get.restype = ctypes.POINTER(Base)
        base = get().contents
        self.version = base.GetVersionString().decode()
        table = ctypes.cast(base.GetApi(25), ctypes.POINTER(Pointer))
        self.functions = {
            name: ctypes.CFUNCTYPE(result, *args)(table[place]) for name, (place, result, args) in FUNCTIONS.items()
        }

    def call(self, name, *args):
        status = self.functions[name](*args)
        if FUNCTIONS[name][1] is Pointer and status:
            message = self.functions["GetErrorMessage"](status).decode()
            self.functions["ReleaseStatus"](status)
            raise RuntimeError(message)

    def make(self, name, *args):
        made = Pointer()
        self.call(name, *args, ctypes.byref(made))
        return made


def model():
    """A model that copies one number, into memory that the caller gives."""
    of = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "copy", of[:1], of[1:])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.checker.check_model(made)
    return made.SerializeToString()


class Arena:
    """One arena, by its settings."""

    def __init__(self, settings):
        self.ort = ort = Ort()
        env = ort.make("CreateEnv", 3, b"record")
        info = ort.make("CreateMemoryInfo", b"Cpu", 1, 0, 0)
        settings = {"max_mem": 0, **settings}
        keys = (Text * len(settings))(*(key.encode() for key in settings))
        values = (Size * len(settings))(*settings.values())
        config = ort.make("CreateArenaCfgV2", keys, values, len(settings))
        ort.call("CreateAndRegisterAllocatorV2", env, b"CPUExecutionProvider", info, config, None, None, 0)
        options = ort.make("CreateSessionOptions")
        ort.call("AddSessionConfigEntry", options, b"session.use_env_allocators", b"1")
        code = model()
        self.session = ort.make("CreateSessionFromArray", env, code, len(code), options)
        self.allocator = ort.make("CreateAllocator", self.session, info)
        self.options = ort.make("CreateRunOptions")
        ort.call("AddRunConfigEntry", self.options, b"memory.enable_memory_arena_shrinkage", b"cpu:0")
        self.numbers = [(ctypes.c_float * 1)(), (ctypes.c_float * 1)()]
        shape = (ctypes.c_int64 * 1)(1)
        own = ort.make("CreateMemoryInfo", b"Cpu", 0, 0, 0)
        self.tensors = [
            (Pointer * 1)(ort.make("CreateTensorWithDataAsOrtValue", own, number, 4, shape, 1, 1))
            for number in self.numbers
        ]

    def alloc(self, size):
        return self.ort.make("AllocatorAlloc", self.allocator, size).value

    def free(self, pointer):
        self.ort.call("AllocatorFree", self.allocator, pointer)

    def shrink(self):
        before = self.stats()["NumAllocs"]
        x, y = (Text * 1)(b"x"), (Text * 1)(b"y")
        self.ort.call("Run", self.session, self.options, x, self.tensors[0], 1, y, 1, self.tensors[1])
        assert self.stats()["NumAllocs"] == before, "the run itself asked the arena for memory"

    def stats(self):
        pairs = self.ort.make("AllocatorGetStats", self.allocator)
        keys, values, count = ctypes.POINTER(Text)(), ctypes.POINTER(Text)(), Size()
        self.ort.call("GetKeyValuePairs", pairs, ctypes.byref(keys), ctypes.byref(values), ctypes.byref(count))
        stats = {keys[i].decode(): int(values[i]) for i in range(count.value)}
        self.ort.call("ReleaseKeyValuePairs", pairs)
        return stats


def size_of(rng):
    """Mostly small, and often a multiple of 256."""
    top = rng.choice([4 * KIB, 4 * KIB, 256 * KIB, 2 * MIB, 24 * MIB])
    size = rng.randint(1, top)
    return size if rng.random() < 0.5 else max(256, size // 256 * 256)


def record(name, rows):
    settings, megabytes = SCENARIOS[name]
    rng = random.Random(f"ort-arena {name}")
    plan = [(rng.random(), size_of(rng), rng.random()) for _ in range(rows)]
    arena = Arena(settings)
    if megabytes:
        status = open("/proc/self/status").read()
        now = int(re.search(r"VmSize:\s+(\d+)", status)[1]) * KIB
        resource.setrlimit(resource.RLIMIT_AS, (now + megabytes * MIB, resource.RLIM_INFINITY))
    live, lines = {}, []
    for at, (what, size, which) in enumerate(plan):
        # Grows for a while, then goes down, and so on.
        odds = 0.62 if at // 250 % 2 == 0 else 0.4
        if what < odds:
            try:
                pointer = arena.alloc(size)
                live[at] = pointer
                row = f"alloc,{at},{size},{pointer:#x}"
            except RuntimeError as error:
                refusals = {"Available memory of": "limit", "Failed to allocate memory": "full"}
                row = next((f"{op},{at},{size}," for text, op in refusals.items() if text in str(error)), None)
                if row is None:
                    raise
        elif what < 0.99 and live:
            slot = sorted(live)[int(which * len(live))]
            arena.free(live.pop(slot))
            row = f"free,{slot},,"
        else:
            arena.shrink()
            row = "shrink,,,"
        lines.append(f"{row},{arena.stats()['TotalAllocated']}")
    spec = ",".join(
        f"{key}:{STRATEGIES[value] if key == 'arena_extend_strategy' else value}" for key, value in settings.items()
    )
    stats = ",".join(f"{key}:{value}" for key, value in sorted(arena.stats().items()))
    head = [f"# ONNX Runtime {arena.ort.version}; {spec}", "op,id,bytes,pointer,held"]
    return "\n".join([*head, *lines, f"# {stats}"]) + "\n"


def main():
    if len(sys.argv) == 3:
        sys.stdout.write(record(sys.argv[2], 1500))
        return
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    os.makedirs(sys.argv[1], exist_ok=True)
    for name in SCENARIOS:
        # A process for each: limits of a process do not rise again.
        text = subprocess.run([sys.executable, __file__, sys.argv[1], name], check=True, capture_output=True).stdout
        path = os.path.join(sys.argv[1], f"{name}.csv.gz")
        with open(path, "wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as packed:
            packed.write(text)
        ops = [line.split(b",")[0].decode() for line in text.splitlines()[2:-1]]
        print(path, {op: ops.count(op) for op in dict.fromkeys(ops)}, os.path.getsize(path), "bytes")


if __name__ == "__main__":
    main()

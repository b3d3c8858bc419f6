#!/usr/bin/env python3
"""Writes a large PyTorch memory snapshot with frames, to measure snapshot readers on.

    scripts/make-big-snapshot.py OUT.pickle [--megabytes 1000] [--stacks 3000] [--depth 24] [--seed 1]

The pickle has the shape that torch 2.11 dumps (protocol 4, framed, batches of 1000) and is written as it
is made, so a gigabyte needs little memory. As in recorded snapshots: each allocation and each free has a
frames list of its own, free_requested and free_completed share one; frame dicts are shared by all lists;
keys are memoised, action strings are written out for every entry. Allocations are of random sizes and
lifetimes in one 64 GiB segment, whose blocks close the file. `--check` loads the result with Python's pickle
and prints entries, seconds and peak memory.
"""

import argparse
import random
import resource
import struct
import time


class Writer:
    """Pickle opcodes of protocol 4 in frames of 64 KiB, with a memo that counts."""

    def __init__(self, out):
        self.out, self.frame, self.size, self.memo, self.written = out, [], 0, 0, 2
        self.words = {}
        out.write(b"\x80\x04")

    def put(self, data):
        self.frame.append(data)
        self.size += len(data)
        if self.size >= 65536:
            self.flush()

    def flush(self):
        if self.size:
            data = b"".join(self.frame)
            self.out.write(b"\x95" + struct.pack("<Q", len(data)) + data)
            self.written += len(data) + 9
            self.frame, self.size = [], 0

    def made(self):
        """The memo number of what was just made, after a MEMOIZE."""
        self.memo += 1
        return self.memo - 1

    def text(self, text):
        data = text.encode()
        if len(data) < 256:
            self.put(b"\x8c" + bytes([len(data)]) + data + b"\x94")
        else:
            self.put(b"X" + struct.pack("<I", len(data)) + data + b"\x94")
        return self.made()

    def word(self, text):
        """A string that is one object: written once, then referred to."""
        if text in self.words:
            self.put(get(self.words[text]))
        else:
            self.words[text] = self.text(text)

    def list(self, items, write):
        """A list of what `write` writes for each item; a generator is fine."""
        self.put(b"]\x94")
        number = self.made()
        items = iter(items)
        while True:
            batch = [item for _, item in zip(range(1000), items)]
            if not batch:
                return number
            self.put(b"(")
            for item in batch:
                write(item)
            self.put(b"e")

    def dict(self, pairs):
        """A dict of key words and functions that write the value."""
        self.put(b"}\x94(")
        number = self.made()
        for key, write in pairs:
            self.word(key)
            write()
        self.put(b"u")
        return number


def get(number):
    return b"h" + bytes([number]) if number < 256 else b"j" + struct.pack("<I", number)


def integer(n):
    if 0 <= n < 256:
        return b"K" + bytes([n])
    if 0 <= n < 65536:
        return b"M" + struct.pack("<H", n)
    if -(2**31) <= n < 2**31:
        return b"J" + struct.pack("<i", n)
    data = n.to_bytes(n.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes([len(data)]) + data


BASE = 0x7F0000000000
SEGMENT = 64 << 30


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out")
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--stacks", type=int, default=3000, help="distinct stacks")
    parser.add_argument("--depth", type=int, default=24, help="frames of a stack, about")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--check", action="store_true", help="load OUT with pickle and say what it cost")
    args = parser.parse_args()
    if args.check:
        return check(args.out)
    rng = random.Random(args.seed)
    with open(args.out, "wb") as out:
        write_snapshot(Writer(out), rng, args)


def write_snapshot(w, rng, args):
    frames = [(f"function_{n % 700}", f"/opt/venv/lib/python3.12/site-packages/pkg_{n % 97}/module_{n % 401}.py", n % 2000) for n in range(3 * args.stacks)]
    trunk = [rng.randrange(len(frames)) for _ in range(args.depth)]
    stacks = []
    for _ in range(args.stacks):
        cut = rng.randrange(args.depth)
        stacks.append([rng.randrange(len(frames)) for _ in range(args.depth - cut)] + trunk[args.depth - cut:])
    known = {}

    def frame(n):
        if n in known:
            w.put(get(known[n]))
            return
        name, file, line = frames[n]
        known[n] = w.dict([("name", lambda: w.word(name)), ("filename", lambda: w.word(file)), ("line", lambda: w.put(integer(line)))])

    def entry(row):
        action, addr, size, time_us, stack = row
        shared = isinstance(stack, list)
        w.dict([
            ("action", lambda: w.text(action)),
            ("addr", lambda: w.put(integer(addr))),
            ("size", lambda: w.put(integer(size))),
            ("stream", lambda: w.put(integer(0))),
            ("time_us", lambda: w.put(integer(time_us))),
            ("compile_context", lambda: w.word("N/A")),
            ("user_metadata", lambda: w.word("")),
            ("frames", lambda: once(stack) if shared else w.list(stacks[stack], frame)),
        ])

    def once(stack):
        """The frames list that two entries share."""
        if len(stack) == 1:
            stack.append(w.list(stacks[stack[0]], frame))
        else:
            w.put(get(stack[1]))

    live = []

    def rows():
        now, free, limit = 1_790_000_000_000_000, [], args.megabytes * 1_000_000 - 200_000
        now += 1
        yield ("segment_alloc", BASE, SEGMENT, now, 0)
        top = 0
        while w.written < limit:
            now += rng.randrange(40)
            if len(live) < 2000 or rng.random() < 0.5:
                stack = rng.randrange(len(stacks))
                if free and rng.random() < 0.95:
                    addr, size = free.pop(rng.randrange(len(free)))
                else:
                    addr, size = BASE + top, 512 * rng.choice((1, 2, 8, 64, 4096))
                    top += size
                live.append((addr, size))
                yield ("alloc", addr, size - rng.randrange(512), now, stack)
            else:
                addr, size = live.pop(rng.randrange(len(live)))
                free.append((addr, size))
                stack = [rng.randrange(len(stacks))]
                yield ("free_requested", addr, size, now, stack)
                yield ("free_completed", addr, size, now, stack)
        free.append((BASE + top, SEGMENT - top))
        blocks.extend(sorted([(a, s, "active_allocated") for a, s in live] + [(a, s, "inactive") for a, s in free]))

    blocks = []

    def block(row):
        addr, size, state = row
        w.dict([
            ("address", lambda: w.put(integer(addr))),
            ("size", lambda: w.put(integer(size))),
            ("requested_size", lambda: w.put(integer(size))),
            ("state", lambda: w.word(state)),
            ("frames", lambda: w.put(b"]\x94") or w.made()),
        ])

    def segment(_):
        held = sum(s for _, s in live)
        w.dict([
            ("device", lambda: w.put(integer(0))),
            ("address", lambda: w.put(integer(BASE))),
            ("total_size", lambda: w.put(integer(SEGMENT))),
            ("allocated_size", lambda: w.put(integer(held))),
            ("active_size", lambda: w.put(integer(held))),
            ("requested_size", lambda: w.put(integer(held))),
            ("stream", lambda: w.put(integer(0))),
            ("segment_type", lambda: w.word("large")),
            ("segment_pool_id", lambda: w.put(b"K\x00K\x00\x86\x94") or w.made()),
            ("is_expandable", lambda: w.put(b"\x89")),
            ("frames", lambda: w.put(b"]\x94") or w.made()),
            ("blocks", lambda: w.list(blocks, block)),
        ])

    w.dict([
        ("device_traces", lambda: w.list([rows()], lambda trace: w.list(trace, entry))),
        ("segments", lambda: w.list([None], segment)),
        ("external_annotations", lambda: w.list([], None)),
    ])
    w.put(b".")
    w.flush()


def check(path):
    import pickle

    started = time.process_time()
    with open(path, "rb") as file:
        snapshot = pickle.load(file)
    seconds = time.process_time() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    entries = sum(map(len, snapshot["device_traces"]))
    print(f"{entries} entries, {len(snapshot['segments'])} segments: {seconds:.2f} s CPU, peak {peak / 1024:.0f} MiB")


if __name__ == "__main__":
    main()

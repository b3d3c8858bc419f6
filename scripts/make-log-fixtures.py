#!/usr/bin/env python3
"""Writes the binary files that traces/tests/logs reads: scripts/make-log-fixtures.py traces/tests/logs/data"""

import os
import sqlite3
import sys

OUT = sys.argv[1]
GIB = 1 << 30
PROCESS = 0x0001_0002_A100_0000
OTHER = 0x0001_0002_A200_0000


def nsys(name, with_events=True):
    """A small export with the columns of schema 3.16, in pages so small that tables are trees and rows overflow."""
    path = os.path.join(OUT, name)
    if os.path.exists(path):
        os.remove(path)
    db = sqlite3.connect(path)
    db.execute("PRAGMA page_size = 512")
    db.execute("CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, -- ID, of a value\n value TEXT NOT NULL)")
    db.execute("CREATE TABLE META_DATA_EXPORT (name TEXT NOT NULL, value TEXT)")
    db.execute("INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_SCHEMA_VERSION', '3.16.1')")
    db.execute("CREATE TABLE TARGET_INFO_GPU (id INTEGER NOT NULL, name TEXT, totalMemory INTEGER, cuDevice INTEGER)")
    db.execute("INSERT INTO TARGET_INFO_GPU VALUES (7, 'Test GPU', ?, 1)", (24 * GIB,))
    db.execute("CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, utcTime TEXT)")
    db.execute("INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (1790000000000000000, '2026')")
    db.execute(
        "CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, text TEXT,"
        " globalTid INTEGER, textId INTEGER)"
    )
    for n in range(300):
        db.execute("INSERT INTO StringIds VALUES (?, ?)", (n, f"string {n}" + " x" * (n % 7) * 100))
    rows = [
        (500, 900, 59, "too early", PROCESS + 5, None),
        (900, 2500, 59, "step 1", PROCESS + 5, None),
        (2000, None, 59, None, PROCESS + 6, 0),
        (2100, None, 34, "mark", PROCESS + 6, None),
        (2200, 2300, 60, None, PROCESS + 6, 280),
        (2200, 2300, 59, "of another process", OTHER + 5, None),
        (0, None, 75, "a domain", PROCESS + 5, None),
    ]
    db.executemany("INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, ?, ?, ?)", rows)
    if with_events:
        events(db)
    db.commit()
    db.execute("VACUUM")
    db.close()


def events(db):
    db.execute(
        "CREATE TABLE CUDA_GPU_MEMORY_USAGE_EVENTS (start INTEGER NOT NULL, globalPid INTEGER NOT NULL,"
        " deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, address INTEGER NOT NULL, pc INTEGER NOT NULL,"
        " bytes INTEGER NOT NULL, memKind INTEGER NOT NULL, memoryOperationType INTEGER NOT NULL, name TEXT,"
        " correlationId INTEGER, streamId INTEGER, localMemoryPoolAddress INTEGER)"
    )

    def put(start, operation, address, size, stream=None, process=PROCESS, device=1, kind=2, pool=None):
        row = (start, process, device, 1, address, 0, size, kind, operation, None, start, stream, pool)
        db.execute("INSERT INTO CUDA_GPU_MEMORY_USAGE_EVENTS VALUES (" + ",".join("?" * 13) + ")", row)

    # Not in order of time; an address that is negative as a signed number; a free of what was there before.
    put(1200, 1, 0x7F00_0000_0000, 2 << 20, stream=13)
    put(1000, 0, 0x7F00_0000_0000, 2 << 20, stream=7)
    put(1100, 0, 0x7F00_4000_0000, 20 << 20)
    put(1150, 0, 0x10000, 4096, kind=1)
    put(1300, 0, 0xF000_0000_0000_0000 - (1 << 64), 512, stream=13, pool=0x10)
    put(1400, 1, 0x7E00_0000_0000, 1 << 20)
    put(1500, 0, 0x7F00_0000_0000, 64, process=OTHER)
    put(1600, 0, 0x7F00_0000_0000, 64, device=0)
    for n in range(40):
        put(2000 + n, n % 2, 0x7F80_0000_0000, 4096, stream=7)


def varint(n):
    out = bytearray()
    while n >= 0x80:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def number(field, n):
    return varint(field << 3) + varint(n)


def block(field, content):
    return varint(field << 3 | 2) + varint(len(content)) + content


def jax():
    """A profile of two devices: three buffers of one site, one executable, one buffer on the second device."""
    strings = ["", "allocations", "count", "space", "bytes", "kind", "buffer", "executable", "device", "gpu:0", "gpu:1"]
    strings += ["init", "model.py", "<module>"]
    out = block(1, number(1, 1) + number(2, 2)) + block(1, number(1, 3) + number(2, 4))

    def sample(locations, count, size, kind, device):
        labels = block(3, number(1, 5) + number(2, kind)) + block(3, number(1, 8) + number(2, device))
        packed = b"".join(varint(n) for n in locations)
        return block(2, block(1, packed) + block(2, varint(count) + varint(size)) + labels)

    out += sample([1, 2], 3, 3001, 6, 9) + sample([2], 1, 77, 7, 9) + sample([2], 1, 500, 6, 10)
    out += block(4, number(1, 1) + block(4, number(1, 1) + number(2, 40)))
    out += block(4, number(1, 2) + block(4, number(1, 2) + number(2, 7)))
    out += block(5, number(1, 1) + number(2, 11) + number(4, 12)) + block(5, number(1, 2) + number(2, 13) + number(4, 12))
    for text in strings:
        out += block(6, text.encode())
    with open(os.path.join(OUT, "jax.prof"), "wb") as file:
        file.write(out)


nsys("nsys.sqlite")
nsys("nsys_without_events.sqlite", with_events=False)
jax()

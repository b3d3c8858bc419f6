#!/usr/bin/env python3
"""Compares what `poolsim advise` advises with what was really recorded under every setting that is there.

usage: scripts/measure-advice.py FOLDER [OUT.md]

FOLDER holds a folder for each setting with recordings JOB.pickle.zst and sidecars JOB.json (traces/corpus is one).
Prints two tables: the regret of the advice, and verdicts under recorded limits. Needs a release build of poolsim.
"""

import glob
import json
import os
import re
import subprocess
import sys

POOLSIM = os.path.join(os.path.dirname(__file__), "..", "target", "release", "poolsim")
GIB = 2**30


def poolsim(*args):
    done = subprocess.run([POOLSIM, *args, "--json"], capture_output=True, text=True)
    if done.returncode not in (0, 3):
        sys.exit(f"{args}: {done.stderr}")
    return json.loads(done.stdout)


def recordings(folder):
    """Job (with its limit) to settings to sidecar."""
    jobs = {}
    for path in sorted(glob.glob(os.path.join(folder, "*", "*.pickle.zst"))):
        sidecar = path[: -len(".pickle.zst")] + ".json"
        if not os.path.exists(sidecar):
            continue
        with open(sidecar) as file:
            said = json.load(file)
        name = os.path.basename(path)[: -len(".pickle.zst")]
        jobs.setdefault(name, {})[said["conf"]] = (path, said)
    return jobs


def title(conf):
    return f"`{conf}`" if conf else "default"


def gib(n):
    return f"{n / GIB:.2f}"


def peak(said):
    return said["stats"]["reserved_bytes.all.peak"]


def ooms(said):
    return said["stats"]["num_ooms"]


def regrets(jobs):
    rows = []
    for name, by_conf in jobs.items():
        if "" not in by_conf or len(by_conf) < 2 or "-lim" in name:
            continue
        advice = poolsim("advise", by_conf[""][0])
        best_conf, best = min(((c, peak(s)) for c, (_, s) in by_conf.items()), key=lambda x: x[1])
        conf = advice["conf"]
        simulated = advice["advised"]["measured"]["peak_reserved_bytes"]
        recorded = peak(by_conf[conf][1]) if conf in by_conf else None
        got = recorded if recorded is not None else simulated
        rows.append(
            (
                name,
                str(len(by_conf)),
                title(best_conf),
                gib(best),
                title(conf),
                gib(simulated),
                gib(recorded) if recorded is not None else "not recorded",
                f"{(got / best - 1) * 100:+.2f} %",
            )
        )
    return rows


def verdicts(jobs):
    """The job's unlimited default recording, replayed under each recorded limit and setting."""
    rows = []
    for name, by_conf in jobs.items():
        limit = re.fullmatch(r"(.*)-lim([0-9.]+)", name)
        if not limit:
            continue
        base = jobs.get(limit[1], {}).get("")
        for conf, (path, said) in by_conf.items():
            source, of = (base[0], "unlimited default") if base else (path, "the same")
            fraction = float(limit[2]) * GIB / said["total_memory"]
            policy = conf or "pytorch"
            run = poolsim("replay", source, "-p", policy, "--memory-fraction", repr(fraction))["runs"][0]
            simulated = run["metrics"]["ooms"]
            recorded = ooms(said)
            right = (simulated > 0) == (recorded > 0)
            rows.append(
                (name, title(conf), of, str(recorded), str(simulated), "right" if right else "wrong")
            )
    return rows


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def main():
    folder = sys.argv[1]
    jobs = recordings(folder)
    first = regrets(jobs)
    second = verdicts(jobs)
    page = "\n\n".join(
        [
            "## Regret",
            table(
                ["job", "settings recorded", "best recorded", "its peak, GiB", "advised", "simulated, GiB", "recorded, GiB", "regret"],
                first,
            ),
            "## Verdicts under recorded limits",
            table(["recording", "settings", "replayed from", "recorded OOMs", "simulated OOMs", "verdict"], second),
        ]
    )
    if len(sys.argv) > 2:
        with open(sys.argv[2]) as file:
            head = file.read().split("## Regret")[0]
        with open(sys.argv[2], "w") as file:
            file.write(head + page + "\n")
    else:
        print(page)


main()

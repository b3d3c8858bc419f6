"""Proves `poolsim capture` on a GPU: a training job, one that dies of a lack of memory, one that is killed in mid-run and one of two
processes are captured, read, replayed and verified; and the time of a step is measured with a capture and without.

    prove_capture.py POOLSIM OUT_FOLDER      runs everything, leaves OUT_FOLDER/capture.jsonl and capture.md (5 minutes of a GPU at most)
    prove_capture.py --table OUT_FOLDER      the results as Markdown
    prove_capture.py --job STEPS ENDING      one run, for the first form. ENDING: whole, refused, killed, pair
"""

import datetime
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import time

ROUNDS = 6  # the least and the greatest of six hold the median with 97 %: 1 - 2 / 2**6
WARM_UP = 10
LIMIT_S = 60
JOBS = {
    # name: options of capture, command after python, exit code, files
    "a training job": ([], ["{me}", "--job", "40", "whole"], 0, 1),
    "one that dies of a lack of memory": ([], ["{me}", "--job", "40", "refused"], 1, 1),
    "one killed by SIGKILL at step 13": (["--every", "5steps"], ["{me}", "--job", "40", "killed"], 128 + 9, 1),
    "two processes of torchrun on one GPU": (
        [],
        ["-m", "torch.distributed.run", "--nproc-per-node", "2", "{me}", "--job", "20", "pair"],
        0,
        2,
    ),
}
OVERHEAD = {"without": None, "captured": [], "captured with stacks": ["--stacks"]}


def job(steps, ending):
    """GPT-2 small with a new sequence length each step; prints the times of its steps."""
    import torch
    from torch import nn

    torch.manual_seed(1)
    draw = torch.Generator().manual_seed(2)
    width, layers, heads, vocabulary = 768, 12, 12, 50257
    layer = lambda: nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, batch_first=True, norm_first=True)
    model = nn.ModuleDict(
        {
            "tokens": nn.Embedding(vocabulary, width),
            "layers": nn.ModuleList(layer() for _ in range(layers)),
            "head": nn.Linear(width, vocabulary, bias=False),
        }
    ).cuda()
    if ending == "pair":
        torch.distributed.init_process_group("gloo")
    if ending == "refused":
        torch.cuda.set_per_process_memory_fraction(0.03)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    times = []
    for step in range(steps):
        if ending == "killed" and step == 13:
            os.kill(os.getpid(), signal.SIGKILL)
        length = int(torch.randint(64, 1025, (), generator=draw))
        tokens = torch.randint(0, vocabulary, (8, length + 1), generator=draw)
        torch.cuda.synchronize()
        start = time.perf_counter()
        tokens = tokens.cuda()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.nvtx.range_push("forward")
        with torch.autocast("cuda", dtype=torch.bfloat16):
            x = model["tokens"](tokens[:, :-1])
            mask = nn.Transformer.generate_square_subsequent_mask(length, device="cuda")
            for one in model["layers"]:
                x = one(x, src_mask=mask, is_causal=True)
            logits = model["head"](x)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())
        torch.cuda.nvtx.range_pop()
        loss.backward()
        if ending == "pair":
            # Gradients meet on the host: gloo, since two processes on one GPU cannot use NCCL.
            head = model["head"].weight.grad[:64].cpu()
            torch.distributed.all_reduce(head)
        optimizer.step()
        torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - start))
    if ending == "pair":
        torch.distributed.destroy_process_group()
    print(json.dumps({"step_ms": times}))


def run(command, **more):
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, **more)
    return done.returncode, done.stdout, done.stderr


def captured(poolsim, folder, name):
    """One capture, and what poolsim makes of each of its files."""
    options, command, code, files = JOBS[name]
    output = folder / f"{name.split()[-1]}-{name.split()[0]}.pickle"
    command = [part.format(me=__file__) for part in command]
    rc, out, err = run([poolsim, "capture", "-o", output, *options, "--", sys.executable, *command])
    made = sorted(folder.glob(f"{output.stem}*.pickle"))
    row = {"job": name, "exit_code": rc, "expected": code, "files": len(made), "said": err[-2000:], "verified": []}
    for file in made:
        beside = json.loads(file.with_suffix(".json").read_text())
        verify_rc, verified, why = run([poolsim, "verify", file, "--json"])
        result = json.loads(verified)["files"][0] if verified else {}
        reads = [run([poolsim, *words])[0] for words in (["info", file], ["replay", file, "-p", "recorded"])]
        row["verified"].append(
            {
                "written_at": beside["written_at"],
                "entries": result.get("entries_compared"),
                "mismatches": result.get("mismatches"),
                "verify": verify_rc,
                "info_and_replay": reads,
                "why": why[-500:],
            }
        )
    row["holds"] = (
        rc == code
        and len(made) == files
        and all(v["mismatches"] == 0 and v["verify"] == 0 and v["info_and_replay"] == [0, 0] for v in row["verified"])
    )
    return row


def overhead(poolsim, folder):
    """Step times in turns, so that a slower minute meets all of them."""
    for n in range(ROUNDS):
        order = list(OVERHEAD)
        for how in order[n % 3 :] + order[: n % 3]:
            output = folder / "timed.pickle"
            before = [] if OVERHEAD[how] is None else [poolsim, "capture", "-o", output, *OVERHEAD[how], "--"]
            try:
                rc, out, err = run([*before, sys.executable, __file__, "--job", str(WARM_UP + 40), "whole"])
            except subprocess.TimeoutExpired as error:
                rc, out, err = -1, "", str(error)
            if rc == 0:
                times = json.loads(out.splitlines()[-1])["step_ms"][WARM_UP:]
                yield {"round": n, "how": how, "step_ms": sum(times) / len(times)}
            else:
                yield {"round": n, "how": how, "failed": err[-1000:]}


def provenance(poolsim):
    import torch

    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"),
        "gpu": run(query)[1].splitlines()[0],
        "torch": torch.__version__,
        "python": sys.version.split()[0],
        "poolsim": run([poolsim, "--version"])[1].strip(),
    }


def table(folder):
    rows = [json.loads(line) for line in (folder / "capture.jsonl").read_text().splitlines()]
    made = next(row for row in rows if "gpu" in row)
    lines = [
        f"{made['gpu']}, PyTorch {made['torch']}, Python {made['python']}, {made['poolsim']}, {made['date']}; "
        "`scripts/gpu/prove_capture.py`.",
        "",
        "| Job | Exit code | Written at | Entries compared | Mismatches | All as it must be |",
        "|---|---|---|---|---|---|",
    ]
    for row in (row for row in rows if "job" in row):
        each = lambda key: ", ".join(str(v[key]) for v in row["verified"]) or "-"
        cells = [row["job"], row["exit_code"], each("written_at"), each("entries"), each("mismatches")]
        lines.append("| " + " | ".join(map(str, cells + ["yes" if row["holds"] else "no"])) + " |")
    timed = {(row["round"], row["how"]): row["step_ms"] for row in rows if "step_ms" in row}
    lines += ["", "| Run | Step, median of rounds | Against no capture, median (least to greatest) | Rounds |", "|---|---|---|---|"]
    for how in OVERHEAD:
        ratios = [ms / timed[n, "without"] - 1 for (n, h), ms in timed.items() if h == how and (n, "without") in timed]
        if ratios:
            ms = statistics.median(ms for (_, h), ms in timed.items() if h == how)
            spread = f"{100 * statistics.median(ratios):+.2f} % ({100 * min(ratios):+.2f} to {100 * max(ratios):+.2f})"
            lines.append(f"| {how} | {ms:.2f} ms | {'-' if how == 'without' else spread} | {len(ratios)} |")
    return "\n".join(lines) + "\n"


def prove(poolsim, folder):
    folder.mkdir(parents=True, exist_ok=True)
    failed = False
    with open(folder / "capture.jsonl", "w") as log:

        def keep(row):
            log.write(json.dumps(row) + "\n")
            log.flush()
            print(json.dumps(row)[:300], flush=True)

        keep(provenance(poolsim))
        for name in JOBS:
            try:
                row = captured(poolsim, folder, name)
            except Exception as error:
                row = {"job": name, "exit_code": None, "verified": [], "holds": False, "said": repr(error)}
            failed = failed or not row["holds"]
            keep(row)
        for row in overhead(poolsim, folder):
            keep(row)
    (folder / "capture.md").write_text(table(folder))
    return failed


if __name__ == "__main__":
    if sys.argv[1] == "--job":
        job(int(sys.argv[2]), sys.argv[3])
    elif sys.argv[1] == "--table":
        print(table(pathlib.Path(sys.argv[2])), end="")
    else:
        sys.exit(prove(os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2])))

"""Proves the advice on a GPU: four training and inference jobs of different habits, each on so little memory that PyTorch's
defaults fail; the failed run's snapshot is shown to `poolsim advise`, and the line that it prints is tried.

    prove_advice.py POOLSIM OUT_FOLDER        runs everything, leaves OUT_FOLDER/advice.jsonl (5 minutes of a GPU at most)
    prove_advice.py --table OUT_FOLDER        the results as Markdown
    prove_advice.py --job NAME ...            one run, for the first form

The memory that a job has is set by torch.cuda.set_per_process_memory_fraction: half a per cent more than the least on which a recording
with room would live under expandable segments, as `poolsim frontier` finds. Where the defaults need less than those, the job is run on each
of four shares of what the defaults need, whatever comes of the advice there.
"""

import concurrent.futures
import hashlib
import json
import os
import pathlib
import subprocess
import sys

JOBS = {
    "varlen": "GPT of 6 layers, sequences of a new length each step",
    "multires": "convolutional U-Net, images of a new size each step",
    "graph": "graph network, each batch another number of nodes and edges",
    "serve": "decoder in ten conversations by turns, whose key-value caches grow by concatenation",
}
REPEATS = 2
# Of the least memory of the defaults, for jobs that expandable segments do not suit.
SHARES = [0.99, 0.97, 0.95, 0.93]
GIB = 1 << 30


def varlen(torch, draw):
    from torch import nn

    width, layers, heads, vocabulary = 768, 6, 12, 32000
    layer = lambda: nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, batch_first=True, norm_first=True)
    model = nn.ModuleDict(
        {
            "tokens": nn.Embedding(vocabulary, width),
            "layers": nn.ModuleList(layer() for _ in range(layers)),
            "head": nn.Linear(width, vocabulary, bias=False),
        }
    ).cuda()

    def step():
        length = int(torch.randint(100, 1000, (), generator=draw))
        tokens = torch.randint(0, vocabulary, (8, length + 1), generator=draw).cuda()
        x = model["tokens"](tokens[:, :-1])
        mask = nn.Transformer.generate_square_subsequent_mask(length, device="cuda")
        for one in model["layers"]:
            x = one(x, src_mask=mask)
        return nn.functional.cross_entropy(model["head"](x).flatten(0, 1), tokens[:, 1:].flatten())

    return model, step, 30


def multires(torch, draw):
    from torch import nn

    def block(i, o):
        return nn.Sequential(
            nn.Conv2d(i, o, 3, padding=1), nn.GroupNorm(8, o), nn.SiLU(), nn.Conv2d(o, o, 3, padding=1), nn.SiLU()
        )

    widths = [32, 64, 128, 256]
    model = nn.ModuleDict(
        {
            "down": nn.ModuleList(block(a, b) for a, b in zip([3, *widths], widths)),
            "up": nn.ModuleList(block(a + b, b) for a, b in zip(widths[::-1], widths[-2::-1])),
            "out": nn.Conv2d(widths[0], 3, 1),
        }
    ).cuda()

    def step():
        edges = [16 * int(torch.randint(10, 33, (), generator=draw)) for _ in range(2)]
        image = torch.randn(12, 3, *edges, generator=draw).cuda()
        x, kept = image, []
        for one in model["down"]:
            x = one(x)
            kept.append(x)
            x = nn.functional.max_pool2d(x, 2)
        x = nn.functional.interpolate(x, scale_factor=2)
        for one, side in zip(model["up"], kept[-2::-1]):
            x = nn.functional.interpolate(x, size=side.shape[-2:])
            x = one(torch.cat([x, side], 1))
        return (model["out"](x) - image).square().mean()

    return model, step, 25


def graph(torch, draw):
    from torch import nn

    width = 128
    model = nn.ModuleList(nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(), nn.Linear(width, width)) for _ in range(4)).cuda()

    def step():
        nodes = int(torch.randint(20_000, 90_000, (), generator=draw))
        edges = nodes * int(torch.randint(4, 12, (), generator=draw))
        x = torch.randn(nodes, width, generator=draw).cuda()
        source = torch.randint(0, nodes, (edges,), generator=draw).cuda()
        target = torch.randint(0, nodes, (edges,), generator=draw).sort().values.cuda()
        for one in model:
            message = one(torch.cat([x[source], x[target]], 1))
            x = x + torch.zeros_like(x).index_add(0, target, message) / 8
        return x.square().mean()

    return model, step, 30


def serve(torch, draw):
    from torch import nn

    width, layers, heads, batch, held = 2048, 6, 16, 4, 10
    model = nn.ModuleList(
        nn.ModuleDict({"qkv": nn.Linear(width, 3 * width), "out": nn.Linear(width, width)}) for _ in range(layers)
    ).cuda().bfloat16()
    talks = [[None] * layers for _ in range(held)]

    def number(low, high):
        return int(torch.randint(low, high, (), generator=draw))

    def step():
        one = number(0, held)
        if talks[one][0] is not None and talks[one][0][0].shape[2] > number(1500, 5000):
            talks[one] = [None] * layers
        x = torch.randn(batch, number(40, 300), width, generator=draw).cuda().bfloat16()
        with torch.no_grad():
            for i, layer in enumerate(model):
                q, k, v = layer["qkv"](x).view(*x.shape[:2], 3, heads, -1).permute(2, 0, 3, 1, 4)
                if talks[one][i] is not None:
                    k, v = torch.cat([talks[one][i][0], k], 2), torch.cat([talks[one][i][1], v], 2)
                talks[one][i] = (k, v)
                a = nn.functional.scaled_dot_product_attention(q, k, v)
                x = x + layer["out"](a.transpose(1, 2).reshape(x.shape)) / 16
        return x.float().square().mean()

    return model, step, 300


def job(name, fraction, snapshot):
    """One run in this process; prints one JSON object."""
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    import torch

    torch.manual_seed(1)
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.benchmark = False
    total = torch.cuda.get_device_properties(0).total_memory
    if fraction < 1:
        torch.cuda.set_per_process_memory_fraction(fraction)
    if snapshot:
        torch.cuda.memory._record_memory_history(context=None, max_entries=5_000_000)
    model, step, steps = globals()[name](torch, torch.Generator().manual_seed(2))
    trains = name != "serve"
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4) if trains else None
    losses, refused = [], None
    try:
        for _ in range(steps):
            loss = step()
            if trains:
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                optimizer.step()
            losses.append(loss.item().hex())
    except torch.OutOfMemoryError as error:
        refused = str(error).split(". ")[0]
    if snapshot:
        torch.cuda.memory._dump_snapshot(snapshot)
    stats = torch.cuda.memory_stats()
    return {
        "finished": refused is None,
        "refused": refused,
        "steps": len(losses),
        "losses_sha256": hashlib.sha256(" ".join(losses).encode()).hexdigest(),
        "peak_reserved_bytes": stats["reserved_bytes.all.peak"],
        "peak_allocated_bytes": stats["allocated_bytes.all.peak"],
        "total_bytes": total,
        "torch": torch.__version__,
        "gpu": torch.cuda.get_device_name(0),
    }


def start(name, conf="", fraction=1.0, snapshot=""):
    """One run in a process of its own."""
    environment = {**os.environ, "PYTORCH_CUDA_ALLOC_CONF": conf}
    command = [sys.executable, __file__, "--job", name, str(fraction), str(snapshot)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=150)
    if done.returncode != 0:
        raise RuntimeError(f"{name} {conf}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def prove(name, poolsim, out):
    """All runs of one job, a result for each memory that it is given."""

    def ask(*arguments):
        done = subprocess.run([poolsim, *map(str, arguments), "--json"], capture_output=True, text=True, timeout=150)
        if done.returncode not in (0, 3):
            raise RuntimeError(f"{arguments}: {done.stderr[-2000:]}")
        return json.loads(done.stdout)

    def repeat(kind, **how):
        snapshots = [out / f"{name}-{kind}.pickle", *[""] * (REPEATS - 1)]
        with concurrent.futures.ThreadPoolExecutor(REPEATS) as pool:
            runs = [pool.submit(start, name, **how, snapshot=snapshot) for snapshot in snapshots]
            return [run.result() for run in runs]

    def follow(capacity):
        fraction, size = capacity / total, f"{capacity >> 20}MiB"
        limits = ["--device-memory", total, "--memory-fraction", fraction]
        fails = repeat(f"{size}-failed", fraction=fraction)
        advice = ask("advise", out / f"{name}-{size}-failed.pickle", *limits)
        conf = advice["conf"]
        advised = repeat(f"{size}-advised", conf=conf, fraction=fraction)
        replayed = ask("replay", room, "-p", conf or "pytorch", *limits)["runs"][0]["metrics"]
        return {
            "job": name,
            "least_bytes": least,
            "capacity_bytes": capacity,
            "with_room": with_room,
            "default": fails,
            "advice": {"verdict": advice["verdict"], "line": advice["line"], "conf": conf, "confidence": advice["confidence"]},
            "advised": advised,
            "predicted_peak_reserved_bytes": replayed["peak_reserved_bytes"],
            "predicted_ooms": replayed["ooms"],
        }

    room = out / f"{name}-room.pickle"
    with_room = start(name, snapshot=room)
    total = with_room["total_bytes"]
    frontiers = ask("frontier", room, "-p", "pytorch", "-p", "expandable", "--device-memory", total)["frontiers"]
    least = {f["label"]: f["smallest_bytes"] for f in frontiers}
    given = [least["expandable"] * 1.005]
    if given[0] >= least["pytorch"]:
        given = [least["pytorch"] * share for share in SHARES]
    capacities = [int(capacity) >> 21 << 21 for capacity in given]
    with concurrent.futures.ThreadPoolExecutor(len(capacities)) as pool:
        return list(pool.map(follow, capacities))


def prove_all(poolsim, out):
    out.mkdir(parents=True, exist_ok=True)
    with concurrent.futures.ThreadPoolExecutor(len(JOBS)) as pool, open(out / "advice.jsonl", "w") as file:
        for name, run in [(name, pool.submit(prove, name, poolsim, out)) for name in JOBS]:
            try:
                results = run.result()
            except Exception as error:  # one job's trouble must not lose the others' results
                results = [{"job": name, "error": str(error)}]
            for result in results:
                print(json.dumps(result), file=file, flush=True)


def table(out):
    print("| job | least memory: default, expandable | memory given | default | advice | with it | peak: predicted, measured | losses |")
    print("|---|---|---:|---|---|---|---|---|")
    for line in (out / "advice.jsonl").read_text().splitlines():
        r = json.loads(line)
        if "error" in r:
            print(f"| {r['job']} | not measured: {r['error'].splitlines()[-1]} | | | | | | |")
            continue
        gib = lambda n: f"{n / GIB:.2f} GiB"
        ended = lambda runs: f"{sum(run['finished'] for run in runs)} of {len(runs)} finish"
        refused = f" ({r['predicted_ooms']} refused)" if r["predicted_ooms"] else ""
        peaks = sorted({run["peak_reserved_bytes"] for run in r["advised"]})
        digests = [{run["losses_sha256"] for run in runs} for runs in ([r["with_room"]], r["advised"])]
        same = "the same" if digests[0] == digests[1] else "differ, as those of two runs alike do" if len(digests[1]) > 1 else "differ"
        print(
            f"| {JOBS[r['job']]} | {gib(r['least_bytes']['pytorch'])}, {gib(r['least_bytes']['expandable'])} | "
            f"{gib(r['capacity_bytes'])} | {ended(r['default'])} (step {' '.join(str(run['steps']) for run in r['default'])}) | "
            f"`{r['advice']['line']}` | {ended(r['advised'])} | {gib(r['predicted_peak_reserved_bytes'])}{refused}, "
            f"{' or '.join(map(gib, peaks))} | {same} |"
        )


if __name__ == "__main__":
    if sys.argv[1] == "--job":
        print(json.dumps(job(sys.argv[2], float(sys.argv[3]), sys.argv[4])))
    elif sys.argv[1] == "--table":
        table(pathlib.Path(sys.argv[2]))
    else:
        prove_all(os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2]))

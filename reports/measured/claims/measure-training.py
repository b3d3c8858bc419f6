#!/usr/bin/env python3
"""Training on a GPU for the claims that need jobs of their own: one job in several precisions, with and without checkpoints and CUDA
graphs, with its cache emptied, and what the first step of an epoch costs. Needs PyTorch and a GPU; about two minutes.

usage: reports/measured/claims/measure-training.py OUT_FOLDER

Writes OUT_FOLDER/memory.csv, graphs.csv, emptied.csv, epochs.csv and training-provenance.txt, which belong into this folder.
"""

import csv
import datetime
import gc
import os
import pathlib
import statistics
import subprocess
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

WIDTH, LAYERS, HEADS, VOCABULARY = 768, 12, 12, 50257
EPOCHS = {"default": {}, "cudaMallocAsync": {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"},
          "no caching": {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}}


class Block(nn.Module):
    """One layer of a GPT-2."""

    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        batch, length, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(a.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    """GPT-2 small: 124 million weights."""

    def __init__(self, layers=LAYERS):
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(1024, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.checkpoints = False

    def forward(self, tokens):
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.checkpoints else block(x)
        return self.head(self.norm(x))


def gpt2():
    model = Gpt().cuda()
    tokens = torch.randint(0, VOCABULARY, (8, 513), device="cuda")
    return model, lambda: F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1).float(), tokens[:, 1:].flatten())


def resnet50():
    import torchvision

    model = torchvision.models.resnet50().cuda()
    images = torch.randn(64, 3, 224, 224, device="cuda")
    labels = torch.arange(64, device="cuda")

    def loss():
        x = images.to(next(model.parameters()).dtype)
        if not getattr(model, "checkpoints", False):
            return F.cross_entropy(model(x).float(), labels)
        x = model.maxpool(model.relu(model.bn1(model.conv1(x))))
        for layer in (model.layer1, model.layer2, model.layer3, model.layer4):
            for block in layer:
                x = checkpoint(block, x, use_reentrant=False)
        return F.cross_entropy(model.fc(torch.flatten(model.avgpool(x), 1)).float(), labels)

    return model, loss


def allocated():
    torch.cuda.synchronize()
    return torch.cuda.memory_allocated()


def fresh():
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()


def train(name, precision, checkpoints, steps=12):
    """One training job; what it holds by kind, and how long a step takes."""
    fresh()
    before = allocated()
    torch.manual_seed(1)
    model, loss_of = {"gpt2": gpt2, "resnet50": resnet50}[name]()
    model.checkpoints = checkpoints
    if precision == "bfloat16":
        model.bfloat16()
    fresh()
    weights = sum(t.nbytes for t in [*model.parameters(), *model.buffers()])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    times, activations = [], []
    for _ in range(steps):
        torch.cuda.synchronize()
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        held = torch.cuda.memory_allocated()
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=precision == "autocast"):
            loss = loss_of()
        activations.append(torch.cuda.memory_allocated() - held)
        loss.backward()
        gradients = sum(p.grad.nbytes for p in model.parameters())
        optimizer.step()
        torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - start))
    states = sum(t.nbytes for state in optimizer.state.values() for t in state.values() if torch.is_tensor(t) and t.is_cuda)
    return {
        "job": name,
        "precision": precision,
        "checkpoints": int(checkpoints),
        "weights_bytes": weights,
        "gradients_bytes": gradients,
        "optimizer_bytes": states,
        "activations_bytes": activations[-1],
        "peak_allocated_bytes": torch.cuda.max_memory_allocated() - before,
        "peak_reserved_bytes": torch.cuda.max_memory_reserved(),
        "step_ms": f"{statistics.median(times[4:]):.3f}",
        "steps": len(times) - 4,
    }


def graphs():
    """One model called with three lengths: eager, one graph for each length in a pool of its own, and in one pool."""
    rows = []
    for kind in ("eager", "graphs", "graphs, one pool"):
        fresh()
        torch.manual_seed(1)
        model = Gpt(6).cuda().eval()
        inputs = [torch.randint(0, VOCABULARY, (8, length), device="cuda") for length in (256, 512, 1000)]
        pool, kept, times = None, [], []
        with torch.no_grad():
            if kind != "eager":
                for tokens in inputs:
                    side = torch.cuda.Stream()
                    side.wait_stream(torch.cuda.current_stream())
                    with torch.cuda.stream(side):
                        model(tokens)
                    torch.cuda.current_stream().wait_stream(side)
                    graph = torch.cuda.CUDAGraph()
                    with torch.cuda.graph(graph, pool=pool if kind == "graphs, one pool" else None):
                        out = model(tokens)
                    pool = pool or graph.pool()
                    kept.append((graph, out))
            for _ in range(20):
                torch.cuda.synchronize()
                start = time.perf_counter()
                for i, tokens in enumerate(inputs):
                    model(tokens) if kind == "eager" else kept[i][0].replay()
                torch.cuda.synchronize()
                times.append(1e3 * (time.perf_counter() - start))
        rows.append(
            {
                "run": kind,
                "peak_allocated_bytes": torch.cuda.max_memory_allocated(),
                "peak_reserved_bytes": torch.cuda.max_memory_reserved(),
                "reserved_after_bytes": torch.cuda.memory_reserved(),
                "round_ms": f"{statistics.median(times[5:]):.3f}",
            }
        )
        del model, kept, inputs
    return rows


def steps_of(model, optimizer, lengths, empty_before):
    """Times of steps of these lengths, with the cache emptied before those whose numbers are given."""
    times = []
    for i, length in enumerate(lengths):
        tokens = torch.randint(0, VOCABULARY, (8, length + 1), device="cuda")
        torch.cuda.synchronize()
        start = time.perf_counter()
        if i in empty_before:
            torch.cuda.empty_cache()
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            logits = model(tokens[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())
        del logits
        loss.backward()
        optimizer.step()
        torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - start))
    return times


def emptied():
    """Every third step begins with an empty cache: what that step costs, and the two that find memory taken anew."""
    fresh()
    torch.manual_seed(1)
    model = Gpt().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    steps = 96
    steps_of(model, optimizer, [512] * 6, ())
    kept = steps_of(model, optimizer, [512] * steps, ())
    every_third = steps_of(model, optimizer, [512] * steps, set(range(0, steps, 3)))
    rows = [{"run": "kept", "after_emptying": "", "step": i, "ms": f"{t:.3f}"} for i, t in enumerate(kept)]
    return rows + [{"run": "emptied", "after_emptying": i % 3, "step": i, "ms": f"{t:.3f}"} for i, t in enumerate(every_third)]


def epochs(allocator):
    """Four epochs of twelve steps of varying length; at the end of an epoch nothing happens, or the cache is emptied."""
    rows = []
    for emptied in (False, True):
        torch.manual_seed(1)
        model = Gpt().cuda()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
        lengths = torch.randint(64, 1000, (12,), generator=torch.Generator().manual_seed(3)).tolist()
        for epoch in range(4):
            times = steps_of(model, optimizer, lengths, {0} if emptied and epoch else ())
            rows += [
                {"allocator": allocator, "emptied": int(emptied), "epoch": epoch, "step": i, "ms": f"{t:.3f}"}
                for i, t in enumerate(times)
            ]
        del model, optimizer
    return rows


def write(path, rows):
    with open(path, "w", newline="") as file:
        out = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
        out.writeheader()
        out.writerows(rows)


def main(out):
    out.mkdir(parents=True, exist_ok=True)
    smi = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], capture_output=True, text=True)
    (out / "training-provenance.txt").write_text(
        f"date     {datetime.datetime.now(datetime.timezone.utc):%Y-%m-%dT%H:%MZ}\ngpu      {smi.stdout.strip()}\n"
        f"torch    {torch.__version__}\ncommand  reports/measured/claims/measure-training.py\n"
    )
    parts = []
    for allocator, environment in EPOCHS.items():
        part = out / f"epochs-{len(parts)}.csv"
        subprocess.run([sys.executable, __file__, "--epochs", allocator, part], env={**os.environ, **environment}, check=False, timeout=90)
        parts.append(part)
    with open(out / "epochs.csv", "w") as file:
        head = False
        for part in (p for p in parts if p.exists()):
            lines = part.read_text().splitlines(keepends=True)
            file.writelines(lines if not head else lines[1:])
            head = True
            part.unlink()
    torch.cuda.init()
    torch.backends.cudnn.benchmark = False
    rows = []
    for name in ("gpt2", "resnet50"):
        for precision, checkpoints in (("float32", False), ("float32", True), ("autocast", False), ("autocast", True), ("bfloat16", False)):
            rows.append(train(name, precision, checkpoints))
            write(out / "memory.csv", rows)
    write(out / "emptied.csv", emptied())
    write(out / "graphs.csv", graphs())


if __name__ == "__main__":
    if sys.argv[1] == "--epochs":
        write(pathlib.Path(sys.argv[3]), epochs(sys.argv[2]))
    else:
        main(pathlib.Path(sys.argv[1]))

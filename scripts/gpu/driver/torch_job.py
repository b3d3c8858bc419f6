"""A PyTorch job: torch_job.py count|steps. It prints what it counted, or the time of its steps, as one line of JSON."""

import json
import os
import random
import sys
import time

import torch

ASYNC = "cudaMallocAsync" in os.environ.get("PYTORCH_ALLOC_CONF", "")


def count():
    """Tensors of known sizes, nothing else; then a matrix product, so that libraries ask for memory, too."""
    torch.cuda.init()
    rng = random.Random(3)
    tensors, granted, frees, total = [], 0, 0, 0
    for _ in range(4000):
        if tensors and rng.random() < 0.5:
            tensors.pop(rng.randrange(len(tensors)))
            frees += 1
        else:
            size = rng.randrange(1, 4 << 20)
            tensors.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
            granted += 1
            total += size
    frees += len(tensors)
    tensors.clear()
    if ASYNC:
        return {"granted": granted, "frees": frees, "bytes": total}
    a = torch.randn(2048, 2048, device="cuda", dtype=torch.bfloat16)
    (a @ a).sum().item()
    torch.cuda.empty_cache()
    stats = torch.cuda.memory_stats()
    return {
        "granted": stats["num_device_alloc"],
        "frees": stats["num_device_free"],
        "bytes": stats["reserved_bytes.all.allocated"],
        "peak": stats["reserved_bytes.all.peak"],
    }


def steps():
    """Training steps of a small transformer; the median and the least, in milliseconds."""
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True, dropout=0.0)
    model = torch.nn.TransformerEncoder(layer, 6, enable_nested_tensor=False).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    data = torch.randn(16, 256, 512, device="cuda")
    times = []
    for step in range(90):
        torch.cuda.synchronize()
        start = time.perf_counter()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(data).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        if step >= 30:
            times.append((time.perf_counter() - start) * 1e3)
    times.sort()
    return {"median_ms": times[len(times) // 2], "least_ms": times[0]}


print(json.dumps(count() if sys.argv[1] == "count" else steps()), flush=True)

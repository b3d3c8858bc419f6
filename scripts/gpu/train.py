"""Trains a small model for a few steps under one allocator and prints one JSON object: losses, a checksum of the weights,
step times, peak reserved memory. The same job under another allocator must give the same losses and weights, bit for bit.

    train.py JOB ALLOCATOR OUT_FOLDER     JOB: gpt2, cnn.  ALLOCATOR: native, native-again, expandable, async, or plugin=SPEC
"""

import hashlib
import json
import os
import statistics
import sys
import time

job, allocator, out = sys.argv[1:4]
CONF = {"expandable": "expandable_segments:True", "async": "backend:cudaMallocAsync"}
if allocator in CONF:
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = CONF[allocator]
os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"

import torch  # noqa: E402  (reads the variables)
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

name = f"{job}-{allocator.replace('plugin=', 'plugin-').replace(',', '_').replace(':', '-')}"
plugin = None
if allocator.startswith("plugin="):
    sys.path.insert(0, os.environ["POOLSIM_PYTHON"])
    import poolsim_torch

    plugin = poolsim_torch.install(
        os.environ["POOLSIM_PLUGIN"],
        policy=allocator.removeprefix("plugin="),
        trace=f"{out}/{name}.pst",
        stats=f"{out}/{name}.stats.json",
    )

torch.manual_seed(1)
torch.use_deterministic_algorithms(True)
torch.backends.cudnn.benchmark = False
side = torch.cuda.Stream()
sizes = torch.Generator().manual_seed(2)


class Block(nn.Module):
    """One layer of a GPT-2."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(a.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    """GPT-2 small: 124 million weights."""

    def __init__(self, vocabulary=50257, width=768, layers=12, heads=12, longest=1024):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(longest, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def gpt2():
    """GPT-2 small with a new sequence length each step."""
    model = Gpt().cuda()

    def batch():
        length = int(torch.randint(64, 1025, (), generator=sizes))
        return torch.randint(0, 50257, (8, length + 1), generator=sizes)

    def loss(tokens):
        logits = model(tokens[:, :-1])
        return F.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())

    return model, batch, loss, 45


def cnn():
    """ResNet-50 with a new resolution each step and a smaller last batch."""
    import torchvision

    model = torchvision.models.resnet50().cuda()

    def batch():
        edge = 32 * int(torch.randint(4, 9, (), generator=sizes))
        count = int(torch.randint(48, 65, (), generator=sizes))
        return torch.randn(count, 3, edge, edge, generator=sizes)

    def loss(images):
        labels = torch.arange(images.shape[0], device=images.device)
        return F.cross_entropy(model(images).float(), labels)

    return model, batch, loss, 30


def to_device(data):
    """Copies on a side stream, as loaders that prefetch do; the block is used on two streams."""
    with torch.cuda.stream(side):
        copy = data.pin_memory().to("cuda", non_blocking=True)
    torch.cuda.current_stream().wait_stream(side)
    copy.record_stream(torch.cuda.current_stream())
    return copy


model, batch, loss_of, steps = {"gpt2": gpt2, "cnn": cnn}[job]()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
losses, times = [], []
batches = [batch() for _ in range(steps)]
for data in batches:
    torch.cuda.synchronize()
    start = time.perf_counter()
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = loss_of(to_device(data))
    loss.backward()
    optimizer.step()
    torch.cuda.synchronize()
    times.append(time.perf_counter() - start)
    losses.append(loss.item().hex())
digest = hashlib.sha256()
for weights in model.state_dict().values():
    digest.update(weights.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes())
peak = plugin.reserved(peak=True) if plugin else torch.cuda.memory_stats()["reserved_bytes.all.peak"]
print(
    json.dumps(
        {
            "name": name,
            "job": job,
            "allocator": allocator,
            "losses": losses,
            "weights_sha256": digest.hexdigest(),
            "step_ms": [round(1e3 * t, 3) for t in times[5:]],
            "step_ms_median": 1e3 * statistics.median(times[5:]),
            "step_ms_total": 1e3 * sum(times[5:]),
            "steps_timed": len(times) - 5,
            "peak_reserved_bytes": peak,
        }
    )
)

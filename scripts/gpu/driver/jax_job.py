"""A JAX job with memory taken as it is needed; prints what JAX's own allocator says of it, as one line of JSON."""

import json

import jax
import jax.numpy as jnp

key = jax.random.PRNGKey(0)
kept = []
for n in range(20):
    a = jax.random.normal(key, (1024 + 256 * n, 1024))
    kept.append(jnp.dot(a, a.T))
jax.block_until_ready(kept)
stats = jax.local_devices()[0].memory_stats()
print(json.dumps({"pool_bytes": stats.get("pool_bytes"), "peak_pool_bytes": stats.get("peak_pool_bytes"), "all": stats}), flush=True)

# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Trains a small causal transformer on words with JAX and Optax, with a plain head or a fused one.

    pip install "jax>=0.5" optax
    python examples/python/jax_trainer.py --head fused --text examples/data/kjv.txt

The two heads see the same batches from the same weights, so their losses are the same.
"""

import argparse
import collections
import json
import re
import resource
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax

from logitless.jax import linear_cross_entropy


def word_ids(path, vocab):
    """Return the text as ids of its most frequent words; all other words share the last id."""
    with open(path, encoding="utf-8") as file:
        words = re.findall(r"\w+|[^\w ]", file.read())
    kept = [word for word, _ in collections.Counter(words).most_common(vocab - 1)]
    ids = {word: i for i, word in enumerate(kept)}
    return np.array([ids.get(word, len(kept)) for word in words], np.int32), len(kept) + 1


def init(key, vocab, size, length, layers):
    keys = iter(jax.random.split(key, 3 + 4 * layers))

    def matrix(rows, cols):
        return jax.random.normal(next(keys), (rows, cols)) * size**-0.5

    shapes = {"qkv": (size, 3 * size), "out": (size, size), "up": (size, 4 * size), "down": (4 * size, size)}
    return {
        "words": matrix(vocab, size),
        "positions": matrix(length, size),
        "head": matrix(size, vocab),
        "layers": [{name: matrix(*shape) for name, shape in shapes.items()} for _ in range(layers)],
    }


def hidden_states(params, ids, heads=4):
    """Return the head's input, [B, T, H]."""
    x = params["words"][ids] + params["positions"]
    for layer in params["layers"]:
        qkv = (jax.nn.standardize(x) @ layer["qkv"]).reshape(*ids.shape, 3, heads, -1)
        mixed = jax.nn.dot_product_attention(*jnp.moveaxis(qkv, 2, 0), is_causal=True)
        x += mixed.reshape(x.shape) @ layer["out"]
        x += jax.nn.gelu(jax.nn.standardize(x) @ layer["up"]) @ layer["down"]
    return jax.nn.standardize(x)


def loss_of(params, batch, head):
    hidden, targets = hidden_states(params, batch[:, :-1]), batch[:, 1:]
    if head == "fused":
        return linear_cross_entropy(hidden, params["head"], targets, layout="hidden_vocab")
    return optax.softmax_cross_entropy_with_integer_labels(hidden @ params["head"], targets).mean()


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--head", choices=["plain", "fused"], default="fused")
    parser.add_argument("--text", default="examples/data/kjv.txt")
    parser.add_argument("--vocab", type=int, default=8192, help="largest vocabulary of the model")
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("-o", "--output", help="writes losses, seconds and memory as JSON")
    options = parser.parse_args()

    ids, vocab = word_ids(options.text, options.vocab)
    params = init(jax.random.key(0), vocab, options.hidden, options.length, options.layers)
    optimizer = optax.adamw(1e-3)

    @jax.jit
    def step(params, state, batch):
        loss, grads = jax.value_and_grad(loss_of)(params, batch, options.head)
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state, loss

    state, random = optimizer.init(params), np.random.default_rng(0)
    record = {"head": options.head, "losses": [], "seconds": []}
    for number in range(1, options.steps + 1):
        starts = random.integers(0, len(ids) - options.length, options.batch)
        started = time.perf_counter()
        params, state, loss = step(params, state, ids[starts[:, None] + np.arange(options.length + 1)])
        record["losses"].append(float(loss))
        record["seconds"].append(time.perf_counter() - started)
        print(f"step {number:3}  loss {loss:.6f}  {record['seconds'][-1]:.2f} s", flush=True)
    record["peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    if options.output:
        with open(options.output, "w", encoding="utf-8") as file:
            json.dump(record, file)


if __name__ == "__main__":
    main()

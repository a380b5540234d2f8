# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Shards over four devices of this host, which must be asked for before JAX starts: test_jax.py runs this program."""

import os

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

from logitless.jax import linear_cross_entropy

N, H, V = 64, 16, 101
random = np.random.default_rng(0)
x = jnp.asarray(random.standard_normal((N, H)), jnp.float32)
w = jnp.asarray(random.standard_normal((V, H)), jnp.float32)
y = jnp.asarray(random.integers(0, V, N), jnp.int32).at[:20].set(-100)  # the first device has no token
mesh = jax.make_mesh((4,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
want, want_grads = jax.value_and_grad(lambda x, w: linear_cross_entropy(x, w, y), argnums=(0, 1))(x, w)


def mean(x, w, y):
    """The mean over the tokens of all devices."""
    total = linear_cross_entropy(x, w, y, reduction="sum")
    return jax.lax.psum(total, "data") / jax.lax.psum((y != -100).sum(), "data")


def check(loss, grads):
    np.testing.assert_allclose(loss, want, rtol=1e-5)
    for got, wanted in zip(grads, want_grads):
        np.testing.assert_allclose(got, wanted, atol=1e-6)


for check_vma in (True, False):
    sharded = jax.shard_map(
        mean, mesh=mesh, in_specs=(P("data"), P(), P("data")), out_specs=P(), check_vma=check_vma
    )
    check(*jax.jit(jax.value_and_grad(lambda x, w: sharded(x, w, y), argnums=(0, 1)))(x, w))


def gradients(x, w, y):
    return jax.value_and_grad(mean, argnums=(0, 1))(x, w, y)


inside = jax.shard_map(
    gradients, mesh=mesh, in_specs=(P("data"), P(), P("data")), out_specs=(P(), (P("data"), P()))
)
check(*jax.jit(inside)(x, w, y))

# Words are sharded, too: over four devices, and over two beside two halves of the batch. (What one half alone is
# wrong in, XLA ends by aborting: the others wait for it.)
V4 = 100
y4 = jnp.minimum(y, V4 - 1)


def vocabulary(x, w, y):
    return linear_cross_entropy(
        x, w, y, softcap=20.0, temperature=0.7, z_loss=0.01, label_smoothing=0.1, vocab_axis="vocab"
    )


def of_grid(x, w, y):
    total = linear_cross_entropy(
        x,
        w,
        y,
        softcap=20.0,
        temperature=0.7,
        z_loss=0.01,
        label_smoothing=0.1,
        vocab_axis="vocab",
        reduction="sum",
    )
    return jax.lax.psum(total, "data") / jax.lax.psum((y != -100).sum(), "data")


want, want_grads = jax.value_and_grad(
    lambda x, w: linear_cross_entropy(
        x, w, y4, softcap=20.0, temperature=0.7, z_loss=0.01, label_smoothing=0.1
    ),
    argnums=(0, 1),
)(x, w[:V4])
auto = jax.sharding.AxisType.Auto
for function, shape, names, specs in (
    (vocabulary, (4,), ("vocab",), (P(), P("vocab"), P())),
    (of_grid, (2, 2), ("data", "vocab"), (P("data"), P("vocab"), P("data"))),
):
    of_entries = jax.shard_map(
        function,
        mesh=jax.make_mesh(shape, names, axis_types=(auto,) * len(names)),
        in_specs=specs,
        out_specs=P(),
    )
    check(*jax.jit(jax.value_and_grad(lambda x, w: of_entries(x, w, y4), argnums=(0, 1)))(x, w[:V4]))
    if shape == (4,):
        try:
            jax.block_until_ready(of_entries(x, w[:V4], y4.at[30].set(V4)))
        except Exception as error:
            assert "outside" in str(error), error
        else:
            raise AssertionError("a target outside the vocabulary was taken")

# Twenty steps of gradient descent, on four devices and on one.
curves = []
for loss in (
    lambda w: of_entries(x, w, y4),
    lambda w: linear_cross_entropy(x, w, y4, softcap=20.0, temperature=0.7, z_loss=0.01, label_smoothing=0.1),
):
    step, head, curve = jax.jit(jax.value_and_grad(loss)), w[:V4], []
    for _ in range(20):
        value, gradient = step(head)
        head, curve = head - 0.5 * gradient, [*curve, float(value)]
    curves.append(curve)
np.testing.assert_allclose(curves[0], curves[1], rtol=1e-4)
assert curves[0][-1] < curves[0][0]

# A sum that was forgotten is refused, as everywhere in JAX.
forgotten = jax.shard_map(
    lambda x, w, y: linear_cross_entropy(x, w, y),
    mesh=mesh,
    in_specs=(P("data"), P(), P("data")),
    out_specs=P(),
)
try:
    forgotten(x, w, y)
except ValueError:
    print("shards agree")

# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Checks of shards over four host devices. test_jax.py runs this program, because the number of devices must
be set before JAX starts."""

import os

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

import logitless
from logitless.jax import linear_cross_entropy, token_logps
from logitless.lora import LoraWeight
from logitless.packed import PackedWeight

N, H, V = 64, 16, 100
random = np.random.default_rng(0)
x = jnp.asarray(random.standard_normal((N, H)), jnp.float32)
w = jnp.asarray(random.standard_normal((V, H)), jnp.float32)
y = jnp.asarray(random.integers(0, V, N), jnp.int32).at[:20].set(-100)  # the first device has no labelled token
auto = jax.sharding.AxisType.Auto
DATA = dict(mesh=jax.make_mesh((4,), ("data",), axis_types=(auto,)), in_specs=(P("data"), P(), P("data")))
VOCAB = dict(mesh=jax.make_mesh((4,), ("vocab",), axis_types=(auto,)), in_specs=(P(), P("vocab"), P()), out_specs=P())


def gradients_of(function):
    return jax.jit(jax.value_and_grad(function, argnums=(0, 1)))


def check(got, want, bound=1e-6):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=bound), got, want)


def mean(x, w, y, **more):
    """The mean over the tokens of all devices."""
    total = linear_cross_entropy(x, w, y, reduction="sum", **more)
    return jax.lax.psum(total, "data") / jax.lax.psum((y != -100).sum(), "data")


want = gradients_of(lambda x, w: linear_cross_entropy(x, w, y))(x, w)
for check_vma in (True, False):
    sharded = jax.shard_map(mean, **DATA, out_specs=P(), check_vma=check_vma)
    check(gradients_of(lambda x, w: sharded(x, w, y))(x, w), want)  # noqa: B023
inside = jax.shard_map(
    lambda *arrays: jax.value_and_grad(mean, argnums=(0, 1))(*arrays), **DATA, out_specs=(P(), (P("data"), P()))
)
check(jax.jit(inside)(x, w, y), want)

# The vocabulary is sharded, too: two shards of it, combined with two halves of the batch.
of_grid = jax.shard_map(
    lambda *arrays: mean(*arrays, softcap=20.0, label_smoothing=0.1, vocab_axis="vocab"),
    mesh=jax.make_mesh((2, 2), ("data", "vocab"), axis_types=(auto, auto)),
    in_specs=(P("data"), P("vocab"), P("data")),
    out_specs=P(),
)
want = gradients_of(lambda x, w: linear_cross_entropy(x, w, y, softcap=20.0, label_smoothing=0.1))(x, w)
check(gradients_of(lambda x, w: of_grid(x, w, y))(x, w), want)

# The library merges statistics: losses and d_weight are bit-identical to a single process whose vocabulary is
# cut at the same places.
one = logitless.Context(slices=[V // 4] * 4, plan="two_pass")
classes = np.linspace(0.5, 1.5, V, dtype=np.float32)
temperatures = np.linspace(0.5, 1.5, N, dtype=np.float32).astype(np.float64)  # as JAX rounds
for options in (
    {"z_loss": 0.01, "temperature": 0.7, "loss_scale": 3.0},
    {"class_weights": classes, "temperatures": temperatures, "label_smoothing": 0.1},
    {"shift": True, "num_items_in_batch": 17.0, "round_logits_to": "bfloat16"},
    {"reduction": "sum", "ignore_index": int(y[40])},
):
    of_slices = jax.shard_map(
        lambda x, w, y: linear_cross_entropy(
            x.reshape(4, N // 4, H), w, y.reshape(4, N // 4), vocab_axis="vocab", **options
        ),
        **VOCAB,
        check_vma="shift" not in options,
    )
    targets = jnp.where(y == -100, options.get("ignore_index", -100), y)
    loss, grads = gradients_of(lambda x, w: of_slices(x, w, targets))(x, w)  # noqa: B023
    d_hidden, d_weight = np.empty((4, N // 4, H), np.float32), np.empty((V, H), np.float32)
    given = np.asarray(x).reshape(4, N // 4, H), np.asarray(w), np.asarray(targets).reshape(4, N // 4)
    result = logitless.cross_entropy(*given, context=one, d_hidden=d_hidden, d_weight=d_weight, **options)
    assert float(loss) == np.float32(result.loss), options
    np.testing.assert_array_equal(grads[1], d_weight, err_msg=str(options))
    np.testing.assert_allclose(grads[0], d_hidden.reshape(N, H), rtol=1e-5, atol=1e-6)
try:  # the slices follow one another
    jax.block_until_ready(jax.shard_map(lambda *t: linear_cross_entropy(*t, vocab_axis="vocab"), **VOCAB)(x, w, y.at[30].set(V)))
except Exception as error:
    assert "outside" in str(error), error
else:
    raise AssertionError("a target outside the vocabulary was taken")

# Packed heads, and vocab_ids with an equal number of entries on each device.
V8 = V + 4  # rows of 16 numbers, 26 rows per device
numbers = random.integers(-127, 128, (V8, H)).astype(np.int8)
packed = PackedWeight(jnp.asarray(numbers), "int8", jnp.asarray(random.uniform(0.01, 0.02, (V8, 1)), jnp.float32))
chosen = jnp.asarray([(3 * k) % 26 for k in range(4 * 7)], jnp.int32)
all_chosen = chosen + jnp.arange(4, dtype=jnp.int32).repeat(7) * 26
y_chosen = jnp.where(y == -100, -100, y % 28)
for head, check_vma in ((packed, True), (jnp.asarray(packed.data * packed.scales), False)):
    of_entries = jax.shard_map(
        lambda x, w, y, ids: linear_cross_entropy(x, w, y, vocab_ids=ids, vocab_axis="vocab"),
        mesh=VOCAB["mesh"],
        in_specs=(P(), P("vocab"), P(), P("vocab")),
        out_specs=P(),
        check_vma=check_vma,
    )
    over = 0 if head is packed else (0, 1)
    got = jax.jit(jax.value_and_grad(of_entries, argnums=over))(x, head, y_chosen, chosen)
    whole = jax.value_and_grad(lambda x, w: linear_cross_entropy(x, w, y_chosen, vocab_ids=all_chosen), argnums=over)
    check(got, whole(x, head), 1e-5)

# A LoRA, and log-probabilities: with a sharded batch, and with a sharded vocabulary, which also shards the rows
# of b. The weight is frozen or trained.
a, b = (jnp.asarray(random.standard_normal(shape), jnp.float32) / 2 for shape in ((3, H), (V, 3)))


def of_lora(x, w, a, b, y, **more):
    logp, entropy, lse, squares = token_logps(x, LoraWeight(w, a, b, 1.5), y, lse=True, square_sum=True, **more)
    loss = linear_cross_entropy(x, LoraWeight(w, a, b, 1.5), y, reduction="sum", **more)
    return (loss + (logp * entropy + lse * squares).sum()) / N


for mesh_of, specs, run in (
    (DATA["mesh"], (P("data"), P(), P(), P(), P("data")), lambda *t: jax.lax.psum(of_lora(*t), "data")),
    (VOCAB["mesh"], (P(), P("vocab"), P(), P("vocab"), P()), lambda *t: of_lora(*t, vocab_axis="vocab")),
):
    for over, check_vma in (((1, 2), True), ((0, 2, 3), False)):
        sharded = jax.shard_map(run, mesh=mesh_of, in_specs=specs, out_specs=P(), check_vma=check_vma)
        got = jax.jit(jax.value_and_grad(sharded, argnums=over))(x, w, a, b, y)
        check(got, jax.value_and_grad(of_lora, argnums=over)(x, w, a, b, y), 2e-6)

# As everywhere in JAX, a result that is not summed over the devices is an error.
try:
    jax.shard_map(linear_cross_entropy, **DATA, out_specs=P())(x, w, y)
except ValueError:
    print("shards agree")

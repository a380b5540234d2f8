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

N, H, V = 64, 16, 101
random = np.random.default_rng(0)
x = jnp.asarray(random.standard_normal((N, H)), jnp.float32)
w = jnp.asarray(random.standard_normal((V, H)), jnp.float32)
y = jnp.asarray(random.integers(0, V, N), jnp.int32).at[:20].set(-100)  # the first device has no labelled token
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

# The vocabulary is sharded, too: over four devices, and over two combined with two halves of the batch. (An
# error on only one half makes XLA abort, because the other half waits for it.)
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

# The library merges statistics: for every option, losses and d_weight are bit-identical to a single process
# whose vocabulary is cut at the same places.
FOUR = dict(
    mesh=jax.make_mesh((4,), ("vocab",), axis_types=(auto,)), in_specs=(P(), P("vocab"), P()), out_specs=P()
)
one = logitless.Context(slices=[V4 // 4] * 4, plan="two_pass")
classes = np.linspace(0.5, 1.5, V4, dtype=np.float32)
temperatures = np.linspace(0.5, 1.5, N, dtype=np.float32).astype(np.float64)  # as JAX rounds
for options in (
    {},
    {"softcap": 20.0, "temperature": 0.7, "temperature_meaning": "scale_logp"},
    {"z_loss": 0.01, "label_smoothing": 0.1, "loss_scale": 3.0},
    {"class_weights": classes, "label_smoothing": 0.1},
    {"class_weights": classes, "temperatures": temperatures},
    {"shift": True, "num_items_in_batch": 17.0, "round_logits_to": "bfloat16"},
    {"reduction": "sum", "ignore_index": int(y4[40])},
):
    for check_vma in (True, False) if not options else (True,):
        of_slices = jax.shard_map(
            lambda x, w, y: linear_cross_entropy(
                x.reshape(4, N // 4, H), w, y.reshape(4, N // 4), vocab_axis="vocab", **options
            ),
            **FOUR,
            check_vma=check_vma,
        )
        targets = jnp.where(y4 == -100, options.get("ignore_index", -100), y4)
        loss, grads = jax.jit(
            jax.value_and_grad(lambda x, w: of_slices(x, w, targets), argnums=(0, 1))  # noqa: B023
        )(x, w[:V4])
        d_hidden, d_weight = np.empty((4, N // 4, H), np.float32), np.empty((V4, H), np.float32)
        result = logitless.cross_entropy(
            np.asarray(x).reshape(4, N // 4, H),
            np.asarray(w[:V4]),
            np.asarray(targets).reshape(4, N // 4),
            context=one,
            d_hidden=d_hidden,
            d_weight=d_weight,
            **options,
        )
        assert float(loss) == np.float32(result.loss), (options, check_vma)
        np.testing.assert_array_equal(grads[1], d_weight, err_msg=str(options))
        np.testing.assert_allclose(grads[0], d_hidden.reshape(N, H), rtol=1e-5, atol=1e-6)

# The same for log-probabilities, and for losses computed from them.
def mixed(x, w, y, **split):
    logp, entropy = token_logps(x, w, y, **split)
    return (jnp.exp(logp) * jnp.arange(N)).sum() + 0.1 * entropy.sum()


for check_vma in (True, False):
    of_slices = jax.shard_map(
        lambda x, w, y: mixed(x, w, y, vocab_axis="vocab"), **FOUR, check_vma=check_vma
    )
    got = jax.jit(jax.value_and_grad(lambda x, w: of_slices(x, w, y4), argnums=(0, 1)))(x, w[:V4])
    whole = jax.value_and_grad(lambda x, w: mixed(x, w, y4), argnums=(0, 1))(x, w[:V4])
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), got, whole)

# Packed heads, and vocab_ids with an equal number of entries on each device.
V8 = V4 + 4  # rows of 16 numbers, 26 rows per device
numbers = random.integers(-127, 128, (V8, H)).astype(np.int8)
packed = PackedWeight(jnp.asarray(numbers), "int8", jnp.asarray(random.uniform(0.01, 0.02, (V8, 1)), jnp.float32))
chosen = jnp.asarray([(3 * k) % 26 for k in range(4 * 7)], jnp.int32)
all_chosen = chosen + jnp.arange(4, dtype=jnp.int32).repeat(7) * 26
y_chosen = jnp.where(y4 == -100, -100, y4 % 28)
for head, check_vma in ((packed, True), (jnp.asarray(packed.data * packed.scales), False)):
    of_entries_of_slices = jax.shard_map(
        lambda x, w, y, ids: linear_cross_entropy(x, w, y, vocab_ids=ids, vocab_axis="vocab"),
        mesh=FOUR["mesh"],
        in_specs=(P(), P("vocab"), P(), P("vocab")),
        out_specs=P(),
        check_vma=check_vma,
    )
    over = 0 if head is packed else (0, 1)
    got = jax.jit(jax.value_and_grad(of_entries_of_slices, argnums=over))(x, head, y_chosen, chosen)
    whole = jax.value_and_grad(
        lambda x, w: linear_cross_entropy(x, w, y_chosen, vocab_ids=all_chosen), argnums=over
    )(x, head)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), got, whole)

# A LoRA: with a sharded batch, and with a sharded vocabulary, which also shards the rows of b. The weight is
# frozen or trained.
a, b = (jnp.asarray(random.standard_normal(shape), jnp.float32) / 2 for shape in ((3, H), (V4, 3)))


def of_lora(x, w, a, b, y, **more):
    logp, entropy = token_logps(x, LoraWeight(w, a, b, 1.5), y, **more)
    loss = linear_cross_entropy(x, LoraWeight(w, a, b, 1.5), y, reduction="sum", **more)
    return (loss + (logp * entropy).sum()) / N


for mesh_of, specs, run in (
    (mesh, (P("data"), P(), P(), P(), P("data")), lambda *t: jax.lax.psum(of_lora(*t), "data")),
    (FOUR["mesh"], (P(), P("vocab"), P(), P("vocab"), P()), lambda *t: of_lora(*t, vocab_axis="vocab")),
):
    for over, check_vma in (((1, 2), True), ((0, 2, 3), False)):
        sharded = jax.shard_map(run, mesh=mesh_of, in_specs=specs, out_specs=P(), check_vma=check_vma)
        got = jax.jit(jax.value_and_grad(sharded, argnums=over))(x, w[:V4], a, b, y4)
        whole = jax.value_and_grad(of_lora, argnums=over)(x, w[:V4], a, b, y4)
        jax.tree.map(lambda p, q: np.testing.assert_allclose(p, q, rtol=1e-5, atol=2e-6), got, whole)
    np.testing.assert_allclose(sharded(x, w[:V4], a, b, y4), whole[0], rtol=1e-5)  # eager

# As everywhere in JAX, a result that is not summed over the devices is an error.
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

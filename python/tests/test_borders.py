# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Arrays with unusual memory, memory that is shared with Python, and what is refused at the border of the
package."""

import subprocess
import sys
import threading

import numpy as np
import pytest

import logitless
from logitless import _core

N, H, V = 21, 9, 57


def problem():
    random = np.random.default_rng(0)
    hidden = random.standard_normal((N, H)).astype(np.float32)
    weight = random.standard_normal((V, H)).astype(np.float32)
    return hidden, weight, random.integers(0, V, N)


def batched():
    hidden, weight, targets = problem()
    return hidden.reshape(3, 7, H), weight, targets.reshape(3, 7)


class Dlpack:
    """An array that only supports DLPack."""

    def __init__(self, array):
        self._array = array

    def __dlpack__(self, **arguments):
        return self._array.__dlpack__(**arguments)

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()


def overlapping(shape):
    """A matrix whose rows each begin at the last element of the previous row."""
    memory = np.zeros(shape[0] * shape[1], np.float32)
    return np.lib.stride_tricks.as_strided(memory, shape, (4 * (shape[1] - 1), 4))


@pytest.mark.parametrize("through", [lambda array: array, Dlpack], ids=["NumPy", "DLPack"])
@pytest.mark.parametrize(
    "change, message",
    [
        (lambda x, w, y: dict(hidden=x[:, ::-1]), r"hidden.strides\[1\] = -9 is negative"),
        (lambda x, w, y: dict(weight=w[::-1]), r"weight.strides\[0\] = -9 is negative"),
        (lambda x, w, y: dict(targets=y[:, ::-1]), r"targets.strides\[1\] = -1 is negative"),
        (lambda x, w, y: dict(d_hidden=np.zeros_like(x)[:, ::-1]), r"d_hidden.strides\[1\] = -9 is negative"),
        (lambda x, w, y: dict(d_weight=np.zeros_like(w)[::-1]), r"d_weight.strides\[0\] = -9 is negative"),
        (lambda x, w, y: dict(hidden=np.broadcast_to(x[:, :1], x.shape)), "hidden.stride = 0"),
        (lambda x, w, y: dict(d_weight=overlapping(w.shape)), "d_weight.stride = 8"),
    ],
)
def test_rows_that_run_backwards_or_overlap_are_refused(change, message, through):
    hidden, weight, targets = batched()
    arguments = {"hidden": hidden, "weight": weight, "targets": targets, **change(hidden, weight, targets)}
    with pytest.raises(ValueError, match=message):
        logitless.cross_entropy(**{name: through(array) for name, array in arguments.items()})
    assert all((arguments[name] == 0).all() for name in ("d_hidden",) if name in arguments)


@pytest.mark.parametrize("stride", [-1, -5, 0, 4])
def test_finished_logits_that_run_backwards_or_overlap_are_refused(stride):
    memory, targets = np.zeros(200, np.float32)[100:], np.zeros((3, 2), np.int64)
    logits = np.lib.stride_tricks.as_strided(memory, (3, 2, 5), (4 * stride, 20, 4))
    said = rf"strides\[0\] = {stride} is negative" if stride < 0 else f"batch_stride = {stride} "
    with pytest.raises(ValueError, match=f"^logits.{said}"):
        logitless.cross_entropy(logits=logits, targets=targets)
    with pytest.raises(ValueError, match=said):
        logitless.cross_entropy(logits=np.zeros((3, 2, 5), np.float32), targets=targets, d_logits=logits)


def test_strides_without_a_step_are_not_looked_at():
    hidden, weight, targets = problem()
    want = logitless.cross_entropy(hidden[:1], weight, targets[:1]).loss
    assert logitless.cross_entropy(hidden[:1][::-1], weight, targets[:1][::-1]).loss == want
    one = np.lib.stride_tricks.as_strided(hidden, (1, 1, H), (-4, 0, 4))
    ids = np.lib.stride_tricks.as_strided(targets, (1, 1), (0, -8))
    assert logitless.cross_entropy(one, weight, ids).loss == want


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0)])
@pytest.mark.parametrize("strides", [(0, 0, 0), (-3, 1, 2), (1, -2, 0), (9, 3, -1)])
def test_strides_of_what_is_empty_are_not_looked_at(shape, strides):
    def empty(shape, dtype=np.float32):
        memory = np.zeros(200, dtype)[100:]
        steps = tuple(step * memory.itemsize for step in strides)
        return np.lib.stride_tricks.as_strided(memory, shape, steps[: len(shape)])

    hidden, ids, d_hidden = empty((*shape, 3)), empty(shape, np.int64), empty((*shape, 3))
    result = logitless.cross_entropy(hidden, np.ones((V, 3), np.float32), ids, d_hidden=d_hidden)
    assert result.loss == 0 and result.per_token_loss.shape == (0,)
    assert logitless.cross_entropy(logits=hidden, targets=ids).loss == 0


def test_a_head_of_one_row_has_its_gradient_either_way_round():
    hidden, weight, targets = problem()
    one, ids = weight[:1], np.zeros_like(targets)
    columns = np.zeros((H, 2), np.float32)[:, :1].T  # [1, H], with elements that are not adjacent
    columns[:] = one
    assert logitless.cross_entropy(hidden, columns, ids, d_weight=np.ones_like(one)).loss == 0
    with pytest.raises(ValueError, match="it must be stored as weight is"):
        logitless.cross_entropy(hidden, weight, targets, d_weight=np.empty((H, V), np.float32).T)


@pytest.mark.parametrize("name", ["targets", "temperatures", "class_weights", "bias", "hidden"])
def test_what_is_misaligned_is_refused(name):
    arrays = dict(zip(("hidden", "weight", "targets"), problem()))
    arrays |= {"temperatures": np.ones(N), "class_weights": np.ones(V, np.float32), "bias": np.ones(V, np.float32)}
    array = arrays[name]
    memory = np.frombuffer(b"x" + array.tobytes(), array.dtype, array.size, offset=1).reshape(array.shape)
    assert logitless.cross_entropy(**arrays).loss > 0
    with pytest.raises(ValueError, match=f"^{name}.* is not aligned"):
        logitless.cross_entropy(**{**arrays, name: memory})


def test_what_must_not_change_is_no_output():
    hidden, weight, targets = problem()
    frozen = np.zeros_like(hidden)
    frozen.flags.writeable = False
    for array in (frozen, Dlpack(frozen), memoryview(frozen)):
        with pytest.raises(TypeError, match="d_hidden is .*: it must be a writable array"):
            logitless.cross_entropy(hidden, weight, targets, d_hidden=array)
    assert (frozen == 0).all()
    out = pytest.importorskip("jax.numpy").zeros((N, H))
    with pytest.raises(ValueError, match="^d_hidden is an array of jaxlib.*, which must not change"):
        logitless.cross_entropy(out, weight, targets, d_hidden=out)
    assert (np.asarray(out) == 0).all()


def test_bits_of_pytorchs_that_dlpack_does_not_know():
    torch = pytest.importorskip("torch")
    hidden, weight, targets = problem()
    negative = torch._neg_view(torch.from_numpy(hidden))
    with pytest.raises(ValueError, match="^hidden has PyTorch's negative bit set.*hidden.resolve_neg()"):
        logitless.cross_entropy(negative, weight, targets)
    with pytest.raises(ValueError, match="^d_hidden has PyTorch's negative bit set"):
        logitless.cross_entropy(hidden, weight, targets, d_hidden=torch._neg_view(torch.zeros(N, H)))
    assert logitless.cross_entropy(torch.nn.Parameter(torch.from_numpy(hidden)), weight, targets).loss > 0
    with pytest.raises(TypeError, match=r"^hidden is a Tensor: .*\(Can't export tensors with layout other than"):
        logitless.cross_entropy(torch.from_numpy(hidden).to_mkldnn(), weight, targets)
    conjugate = torch.zeros(N, H, dtype=torch.complex64).conj()
    with pytest.raises(ValueError, match="^hidden is complex64"):
        logitless.cross_entropy(conjugate, weight, targets)


def test_autograd_knows_what_a_call_has_written():
    torch = pytest.importorskip("torch")
    hidden, weight, targets = (torch.from_numpy(array) for array in problem())
    d_hidden, d_weight = torch.zeros(N, H), torch.zeros(V, H)
    leaf = torch.ones(N, H, requires_grad=True)
    product = leaf * d_hidden  # autograd saves d_hidden
    with pytest.raises(ValueError, match="targets"):
        logitless.cross_entropy(hidden, weight, targets + V, d_hidden=d_hidden)
    assert d_hidden._version == 0  # not written
    logitless.cross_entropy(hidden, weight, targets, d_hidden=d_hidden, d_weight=d_weight)
    assert d_hidden._version == d_weight._version == 1 and hidden._version == 0
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()
    arguments = {"hidden": hidden, "weight": weight, "targets": targets, "d_hidden": d_hidden}
    context = logitless.Context()
    _, half = _core.cross_entropy_forward(context, {**arguments, "reduction": "none"})
    _core.cross_entropy_backward(context, {**arguments, "reduction": "none"}, half, [1.0] * N)
    assert d_hidden._version == 2
    logits = torch.zeros(N, V)
    logitless.cross_entropy(logits=logits, targets=targets, d_logits=logits)
    assert logits._version == 1


@pytest.mark.parametrize("wrong", [[], [1.0, 2.0]])
def test_an_upstream_gradient_of_another_size_is_named(wrong):
    arguments, context = dict(zip(("hidden", "weight", "targets"), batched())), logitless.Context()
    _, half = _core.cross_entropy_forward(context, arguments)
    with pytest.raises(ValueError, match=f"upstream has {len(wrong)} entries but must have 1"):
        _core.cross_entropy_backward(context, arguments, half, wrong)


@pytest.mark.parametrize("flipped", [False, True], ids=["rows", "transposed"])
def test_a_tile_has_the_shape_of_the_weight_and_its_own_memory(flipped):
    hidden, weight, targets = problem()
    given = np.ascontiguousarray(weight.T).T if flipped else weight
    want = np.empty_like(given)
    assert want.strides == given.strides
    arguments = dict(context=logitless.Context(vocab_tile=16))
    logitless.cross_entropy(hidden, given, targets, d_weight=want, **arguments)
    kept = []
    logitless.cross_entropy(hidden, given, targets, weight_sink=lambda *tile: kept.append(tile), **arguments)
    assert len(kept) > 1 and sum(count for _, count, _ in kept) == V
    for first, count, tile in kept:  # the tiles are still valid after the call
        own = np.s_[first : first + count]
        assert tile.flags.f_contiguous if flipped else tile.flags.c_contiguous
        np.testing.assert_array_equal(tile, want[own])
        tile[:] = 0  # the tile is a copy


class Threads:
    """A communicator between threads. It keeps all arrays that it gets."""

    def __init__(self, size):
        self.size = size
        self.barrier = threading.Barrier(size)
        self.given = [None] * size
        self.kept = []

    def run(self, work):
        results = [None] * self.size

        def of(rank):
            results[rank] = work(rank, _Rank(self, rank))

        threads = [threading.Thread(target=of, args=(rank,)) for rank in range(self.size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return results


class _Rank:
    def __init__(self, ranks, rank):
        self.ranks, self.rank, self.size = ranks, rank, ranks.size

    def _exchange(self, mine, out, part):
        ranks = self.ranks
        ranks.given[self.rank] = mine
        ranks.barrier.wait()
        out[:] = np.concatenate([part(given) for given in ranks.given])
        ranks.kept.append((mine, mine.copy(), out, out.copy()))
        ranks.barrier.wait()

    def all_gather(self, mine, all):
        self._exchange(mine, all, lambda given: given)

    def all_to_all(self, mine, theirs):
        self._exchange(mine, theirs, lambda given: np.split(given, self.size)[self.rank])


@pytest.mark.parametrize("size", [1, 9])
@pytest.mark.parametrize("flipped", [False, True], ids=["rows", "transposed"])
def test_a_rank_without_a_part_and_arrays_that_a_communicator_keeps(size, flipped):
    hidden, weight, targets = problem()
    hidden, weight = hidden[:, :size].copy(), weight[:, :size].copy()
    want = logitless.cross_entropy(hidden, weight, targets).loss
    parts = [weight[:0], weight[:40], weight[40:]]
    if flipped:
        parts = [np.ascontiguousarray(part.T).T for part in parts]
    ranks = Threads(3)

    def work(rank, communicator):
        context, given = logitless.Context(threads=1, vocab_ranks=communicator), (hidden, parts[rank], targets)
        outputs = dict(d_hidden=np.empty_like(hidden), d_weight=np.empty_like(parts[rank]))
        return logitless.cross_entropy(*given, context=context, **outputs).loss

    assert ranks.run(work) == pytest.approx([want] * 3) and ranks.kept
    for mine, mine_then, out, out_then in ranks.kept:
        np.testing.assert_array_equal(mine, mine_then)
        np.testing.assert_array_equal(out, out_then)


# With two threads, communicators are called from inside the library's parallel regions.
@pytest.mark.parametrize("threads", [1, 2])
def test_sums_over_a_batch_are_those_of_the_whole(threads):
    random = np.random.default_rng(5)
    hidden = random.standard_normal((100, 96), dtype=np.float32)
    weight = random.standard_normal((40_000, 96), dtype=np.float32) / 8  # large enough for several messages
    targets = random.integers(0, 40_000, 100)
    whole = np.empty_like(weight)
    loss = logitless.cross_entropy(hidden, weight, targets, d_weight=whole).loss
    sums = np.empty((2, *weight.shape), np.float32)

    def work(rank, communicator):
        context = logitless.Context(threads=threads, data_ranks=communicator, sum_d_weight=True)
        part = slice(50 * rank, 50 * rank + 50)
        return logitless.cross_entropy(hidden[part], weight, targets[part], context=context, d_weight=sums[rank]).loss

    assert Threads(2).run(work) == pytest.approx([loss] * 2)
    np.testing.assert_array_equal(sums[0], sums[1])
    np.testing.assert_allclose(sums[0], whole, atol=1e-6)


def test_a_communicator_has_numbers():
    class Wrong:
        rank, size = "first", 2

    with pytest.raises(TypeError, match="rank of a communicator is 'first': it must be an int"):
        logitless.Context(vocab_ranks=Wrong())


def test_an_interpreter_that_ends_with_live_graphs_is_silent():
    pytest.importorskip("torch")
    program = (
        "import torch\n"
        "from logitless.torch import linear_cross_entropy, token_logps\n"
        "x, w, y = torch.ones(5, 3, requires_grad=True), torch.ones(7, 3), torch.zeros(5, dtype=torch.long)\n"
        "losses = linear_cross_entropy(x, w, y), linear_cross_entropy(x, w, y, reduction='none'), token_logps(x, w, y)\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout == "" and "leak" not in ended.stderr


# The thread is inside a call when the interpreter ends.
def test_an_interpreter_that_ends_during_a_daemons_call_is_silent():
    program = (
        "import threading, time\n"
        "import logitless, numpy as np\n"
        "x, w, y = np.ones((200, 64), np.float32), np.ones((4000, 64), np.float32), np.zeros(200, int)\n"
        "def loop():\n"
        "    while True: logitless.cross_entropy(x, w, y)\n"
        "threading.Thread(target=loop, daemon=True).start()\n"
        "time.sleep(0.2)\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def flags_of(function):
    """A function that calls `function` with flags (a mask or labels)."""
    hidden, weight, targets = batched()
    call = {"hidden": hidden, "weight": weight}
    if function == "kto_loss":
        call.update(targets=targets, ref_logps=np.zeros(3))
        return np.array([1, 0, 1]), lambda labels: logitless.kto_loss(**call, labels=labels).loss
    if function == "policy_loss":
        call.update(chosen_ids=targets, advantages=np.arange(1.0, 4))
    else:
        call["probabilities"] = np.full((N, V), 0.5, np.float32)
    mask = np.arange(N).reshape(3, 7) % 3 > 0
    return mask.astype(int), lambda mask: getattr(logitless, function)(**call, mask=mask).loss


@pytest.mark.parametrize("function", ["policy_loss", "kto_loss", "soft_cross_entropy"])
@pytest.mark.parametrize("dtype", ["bool", "int8", "float32"])
def test_masks_and_labels_are_zeros_and_ones_of_any_type(function, dtype):
    flags, loss = flags_of(function)
    want = loss(flags.astype(np.uint8).ravel())
    assert want != loss(np.ones(flags.size, np.uint8))
    flags = flags.astype(dtype)
    for given in (flags, flags.ravel(), np.flip(np.flip(flags, 0).copy(), 0), np.asfortranarray(flags), Dlpack(flags)):
        assert loss(given) == want
    name = "labels" if function == "kto_loss" else "mask"
    if name == "mask":
        with pytest.raises(ValueError, match=r"^mask is \[7, 3\] but hidden is \[3, 7, 9\]"):
            loss(flags.reshape(7, 3))
    if dtype != "bool":
        flags.flat[0] = 2
        with pytest.raises(ValueError, match=f"^{name} has 2: each must be 0 or 1, or a bool"):
            loss(flags)
    with pytest.raises(ValueError, match=f"^{name} is float16: it must be bool, or integers, float32 or float64"):
        loss(flags.astype(np.float16))


def test_ids_are_integers_that_int64_holds():
    hidden, weight, targets = problem()
    for dtype in (np.uint8, np.uint64):
        assert logitless.cross_entropy(hidden, weight, targets.astype(dtype)).loss > 0
    with pytest.raises(ValueError, match="^targets has 18446744073709551516, which int64 does not hold"):
        logitless.cross_entropy(hidden, weight, np.full(N, 2**64 - 100, np.uint64))
    for wrong in ("bool", "float32"):
        with pytest.raises(ValueError, match=f"^targets is {wrong}: it must be integers"):
            logitless.cross_entropy(hidden, weight, targets.astype(wrong))


def test_what_is_no_array_has_a_type_too():
    hidden, weight, targets = problem()
    d_hidden = np.zeros_like(hidden)
    for wrong in (5, "sink", weight):
        with pytest.raises(TypeError, match="^weight_sink is an? .*: it must be a function"):
            logitless.cross_entropy(hidden, weight, targets, weight_sink=wrong, d_hidden=d_hidden)
    assert not d_hidden.any()
    ids = targets.reshape(N, 1)
    with pytest.raises(TypeError, match="^forward is a NoneType"):
        logitless.id_logps_backward(hidden, weight, ids, forward=None, upstream=np.ones((N, 1)))
    with pytest.raises(TypeError, match="^upstream is a NoneType"):
        forward = logitless.id_logps(hidden, weight, ids)
        logitless.id_logps_backward(hidden, weight, ids, forward=forward, upstream=None)


def test_rows_of_no_entries_take_no_part():
    hidden, weight, _ = problem()
    ids, numbers = np.empty((N, 0), np.int64), np.empty((N, 0), np.float32)
    assert logitless.id_logps(hidden, weight, ids).logps.shape == (N, 0)
    d_hidden = np.ones_like(hidden)
    result = logitless.soft_cross_entropy(hidden, weight, ids=ids, weights=numbers, reduction="sum", d_hidden=d_hidden)
    assert result.loss == 0 and not result.per_token_loss.any() and not d_hidden.any()
    assert logitless.set_distillation_loss(hidden, weight, ids, numbers).loss == 0
    for shape in ((N + 1, 0), (0,), (0, 0)):
        with pytest.raises(ValueError, match="^ids has no elements, and the call has 21 tokens"):
            logitless.id_logps(hidden, weight, np.empty(shape, np.int64))


def test_a_call_of_no_tokens_takes_empty_arrays():
    _, weight, _ = problem()
    hidden, ids, numbers = np.empty((0, H), np.float32), np.empty(0, np.int64), np.empty(0)
    d_weight = np.ones_like(weight)
    given = dict(temperatures=numbers, d_hidden=hidden.copy(), d_weight=d_weight)
    assert logitless.cross_entropy(hidden, weight, ids, **given).loss == 0 and not d_weight.any()
    policy = dict(advantages=np.ones(1), old_logps=numbers, mask=np.empty(0, bool))
    assert logitless.policy_loss(hidden, weight, ids, **policy).loss == 0
    sets = dict(ids=np.empty((0, 3), np.int64), id_counts=ids)
    assert logitless.id_logps(hidden, weight, **sets).logps.shape == (0, 3)
    assert logitless.soft_cross_entropy(hidden, weight, weights=np.empty((0, 3)), mask=numbers, **sets).loss == 0


@pytest.mark.parametrize("function", [logitless.topk_union, logitless.topk_overlap])
def test_lists_of_ids_hold_integers(function):
    with pytest.raises(ValueError, match="^b_ids is float64: it must be integers"):
        function([[1, 2]], [[1.7, 2.2]])
    for wrong in ("abc", None, {}, 1.5):
        with pytest.raises((TypeError, ValueError), match="^a_ids is a "):
            function(wrong, [[1, 2]])
    a, b = np.array([[1, 2]]), np.array([[2, 3]], np.uint8)
    for of in (lambda ids: ids, Dlpack, lambda ids: ids.tolist()):
        np.testing.assert_array_equal(np.concatenate(function(of(a), of(b)), axis=None), [[1, 2, 3, 0, 3], [1]][
            function is logitless.topk_overlap
        ])

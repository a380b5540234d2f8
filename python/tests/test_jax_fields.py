# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Every option of the library through logitless.jax, taken from the lists in fields.h: each value other than
the default changes the result, and gives the same bits as the NumPy function."""

import numpy as np
import pytest

pytest.importorskip("jax")
pytest.importorskip("logitless.jax", exc_type=ImportError)

import logitless  # noqa: E402
import logitless.jax as lj  # noqa: E402
from test_fields import HIDDEN, REFUSED, WEIGHT, B, N, T, batch_of, cases, text_of  # noqa: E402

FUNCTIONS = {
    "cross_entropy": (lj.linear_cross_entropy, logitless.cross_entropy),
    "token": (lj.token_logps, logitless.token_stats),
    **{
        task: (getattr(lj, task), getattr(logitless, task))
        for task in ("soft_cross_entropy", "id_logps", "distillation_loss", "set_distillation_loss")
    },
}
# Options that only logitless.jax refuses.
NOT_TAKEN = {"want_accuracy", "want_entropy", "want_agreement"}


def rounded(value):
    """Rounds to float32, because JAX keeps 32 bits."""
    return value.astype(np.float32).astype(value.dtype) if isinstance(value, np.ndarray) else value


def batch(structure, options):
    return {name: rounded(value) for name, value in batch_of(structure, options).items()}


def of_jax(structure, options):
    sets = {n: v.reshape(B, T, -1) for n, v in batch(structure, options).items() if v.ndim == 2 and len(v) == N}
    result = FUNCTIONS[structure][0](HIDDEN, WEIGHT, **{**batch(structure, options), **sets}, **options)
    return np.asarray(result[0] if structure == "token" else result).ravel()


def of_numpy(structure, options):
    result = FUNCTIONS[structure][1](HIDDEN, WEIGHT, **batch(structure, options), **options)
    if structure in ("token", "id_logps"):
        return np.float32(result.logp if structure == "token" else result.logps).ravel()
    return np.float32(result.per_token_loss if options.get("reduction") == "none" else result.loss).ravel()


@pytest.mark.parametrize("structure", FUNCTIONS)
def test_every_option_arrives_and_changes_the_result(structure):
    refused, results = set(), {}
    for name, base, value in cases(structure):
        value = rounded(value)
        if repr(base) not in results:
            results[repr(base)] = of_jax(structure, base)
            np.testing.assert_array_equal(results[repr(base)], of_numpy(structure, base))
        options = {**base, name: value}
        try:
            got = of_jax(structure, options)
        except Exception as error:
            assert name in str(error)
            if name not in NOT_TAKEN and (structure, value) != ("cross_entropy", "none"):
                refused.add((structure, name, text_of(value)))
            continue
        np.testing.assert_array_equal(got, of_numpy(structure, options), err_msg=f"{name} = {value}")
        if name != "hard_temperature" and name != "mean_over":
            assert not np.array_equal(got, results[repr(base)]), (name, value)
    assert refused == {one for one in REFUSED if one[0] == structure}
    with pytest.raises(TypeError, match="smoothing"):
        of_jax(structure, {"smoothing": 0.1})

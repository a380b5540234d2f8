# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""The Python blocks of the pages run. On the pages on losses, their reference code agrees with the library."""

import pathlib
import re
import sys
import types

import numpy as np
import pytest

import logitless

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"
N, H, V, R, DRAFT = 6, 8, 97, 2, 5


def drawn(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


# The arrays that the blocks use.
FLOATS = {
    "hidden": drawn(N, H),
    "weight": drawn(V, H),
    "a": drawn(R, H),
    "b": drawn(V, R),
    "teacher_hidden": drawn(N, H + 1),
    "teacher_weight": drawn(V, H + 1),
    "draft_states": drawn(N, H),
    "draft_head": drawn(DRAFT, H),
    "target_states": drawn(N, H),
    "target_head": drawn(V, H),
}
OUTPUTS = {"d_hidden": (N, H), "d_weight": (V, H), "d_a": (R, H), "d_b": (V, R), "d_states": (N, H)}


def of_numpy():
    outputs = {name: np.empty(shape, np.float32) for name, shape in OUTPUTS.items()}
    ids = {"targets": np.arange(N), "draft_ids": np.arange(DRAFT)}
    return {"logitless": logitless, "alpha": 4, "r": R, **ids, **FLOATS, **outputs}


def of_torch():
    torch = pytest.importorskip("torch")
    import logitless.torch as functions

    names = {name: torch.tensor(value) for name, value in FLOATS.items()}
    hidden, lm_head = names["hidden"].requires_grad_(), torch.nn.Linear(H, V)
    names |= {name: getattr(functions, name) for name in functions.__all__}
    names |= {"states": [hidden[None]] * 2, "ids": torch.arange(N)[None], "lambdas": [0.3, 0.1], "tokens": N}
    body = lambda ids, attention_mask: types.SimpleNamespace(last_hidden_state=hidden[None])  # noqa: E731
    names |= {"model": types.SimpleNamespace(model=body, lm_head=lm_head), "attention_mask": torch.ones(1, N)}
    names |= {"answer_mask": torch.arange(N)[None] > 1, "token_weights": torch.rand(N)}
    return {"torch": torch, "lm_head": lm_head, "targets": torch.arange(N), **names}


def of_trl(folder):
    trainers = pytest.importorskip("trl_trainers")
    model_of, trainer_of = trainers.model_of, trainers.trainer_of
    return {"make_trainer": lambda: trainer_of("dpo", model_of("llama"), folder)}


def of_sizes():
    pytest.importorskip("torch")
    return {"N": N, "H": H, "V": V}


def of_jax():
    jax = pytest.importorskip("jax")
    functions = pytest.importorskip("logitless.jax")
    from logitless.lora import LoraWeight

    names = {name: jax.numpy.asarray(value) for name, value in FLOATS.items()}
    names |= {"linear_cross_entropy": functions.linear_cross_entropy, "LoraWeight": LoraWeight, "scale": 2.0}
    return {"jax": jax, "targets": jax.numpy.arange(N), **names}


# For each block the function that creates its names; None if it needs a real model.
BLOCKS = {
    "getting-started": (of_torch, None, of_torch, None, of_torch),
    "faq": (of_sizes,),
    "pytorch": (of_torch, of_torch, of_torch, of_torch, of_torch),
    "transformers": (None, None, of_trl, of_trl, None),
    "numpy": (of_numpy,),
    "jax": (of_jax,),
    "heads": (of_numpy, of_jax, None, of_numpy, of_torch),
    "sampled-gradients": (of_torch,),
    "sampling": (of_torch,),
    "split-heads": (None, None, None, None),  # of several processes: split_heads.py runs the first two
}


@pytest.fixture(autouse=True)
def default_options():
    yield
    if "logitless.torch" in sys.modules:
        sys.modules["logitless.torch"].set_options()


def blocks_of(page):
    if not DOCS.exists():
        pytest.skip("the pages are not here")
    return re.findall(r"^```python\n(.*?)^```", (DOCS / page).read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def test_the_code_of_the_pages_on_losses_runs():
    torch = pytest.importorskip("torch")
    pages = sorted(page.name for page in DOCS.glob("losses*.md"))
    assert len(pages) == 4 or not DOCS.exists()
    for page in pages:
        torch.manual_seed(1)
        names, blocks = {}, blocks_of(page)
        assert blocks, page
        for block in blocks:
            exec(compile(block, page, "exec"), names)


@pytest.mark.parametrize("page", BLOCKS)
def test_the_code_of_a_page_runs(page, tmp_path):
    blocks = blocks_of(f"{page}.md")
    assert len(blocks) == len(BLOCKS[page])
    for block, names in zip(blocks, BLOCKS[page]):
        if names is not None:
            exec(compile(block, page, "exec"), names(tmp_path) if names is of_trl else names())

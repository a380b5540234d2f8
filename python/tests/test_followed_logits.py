# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""What models do to their logits before the loss: it is followed, with the loss, gradients and logits of computed
logits, or refused."""

import copy
import random

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from small_models import SMALL, batch, expect_close, loss_and_gradients, model_of, model_with  # noqa: E402

from logitless._absent_logits import AbsentLogits, UnfollowedLogits  # noqa: E402
from logitless.transformers import patch, unpatch  # noqa: E402


def masked(logits):
    logits[:, :, [1, 4]] = torch.finfo(logits.dtype).min
    return logits.masked_fill(torch.arange(11) == 7, torch.finfo(logits.dtype).min)


FOLLOWED = {
    "a number in a tensor": lambda z: torch.tensor(0.5) * z / torch.tensor([2.0]),
    "bfloat16": lambda z: z.bfloat16().float(),
    "to": lambda z: z.to(torch.bfloat16).to(dtype=torch.float32).type_as(torch.ones(1)),
    "prefix of a prefix": lambda z: z[:, :, 1:10][..., :-1].float(),
    "softcap of three signs": lambda z: -(-2 * torch.tanh(-z / -2)),
    "scale, softcap, scale, prefix": lambda z: (torch.tanh(z * 0.3 / 3.0) * 3.0)[..., :9] / 2,
    "mask with -inf": lambda z: z.masked_fill((torch.arange(11) % 5 == 1)[None, None], -torch.inf) / 2,
    "prefix and mask": lambda z: masked(z)[..., :9],
}


@pytest.mark.parametrize("name", FOLLOWED)
def test_what_models_do_to_their_logits_is_followed(name):
    """Loss, gradients, argmax and logits. The labels 0, 2, 3, 5 and 8 are in all slices of the vocabulary
    used here."""
    torch.manual_seed(0)
    head = torch.nn.Linear(8, 11)
    states = torch.randn(2, 5, 8, requires_grad=True)
    labels = torch.tensor([[0, 2, 3, -100, 5], [5, 3, 2, 0, 2]])
    plain, absent = FOLLOWED[name](head(states)), FOLLOWED[name](AbsentLogits(states, head))
    bound = dict(atol=1e-2, rtol=1e-2) if name in ("bfloat16", "to") else dict(atol=1e-5, rtol=1e-5)
    check_followed(states, head, plain, absent, labels, bound, bound, name)


def check_followed(states, head, plain, absent, labels, bound, of_gradients, what):
    assert absent.shape == plain.shape and absent.dtype == plain.dtype
    want = torch.nn.functional.cross_entropy(plain.flatten(0, 1).float(), labels.flatten())
    loss = absent.loss(labels, -100, False, None)
    torch.testing.assert_close(loss, want, **bound, msg=what)
    inputs = (states, *head.parameters())
    for got, expected in zip(torch.autograd.grad(loss, inputs), torch.autograd.grad(want, inputs), strict=True):
        torch.testing.assert_close(got, expected, **of_gradients, msg=what)
    torch.testing.assert_close(absent.materialise(), plain, **bound, msg=what)
    assert torch.equal(absent.argmax(-1), absent.materialise().argmax(-1))


def written(logits):
    logits = logits.clone()
    logits[..., [1]] = -1e30
    return logits


STEPS = [
    lambda z, n: z.mul(n),
    lambda z, n: n * z,
    lambda z, n: torch.div(z, n),
    lambda z, n: -z,
    lambda z, n: z.clone().mul_(n),
    lambda z, n: torch.nn.Tanh()(z),
    lambda z, n: torch.tanh(z),
    lambda z, n: n * torch.tanh(z / n),
    lambda z, n: z.float(),
    lambda z, n: z.double().contiguous(),
    lambda z, n: z[..., :-1],
    lambda z, n: z[..., 1:],
    lambda z, n: z[:, :-1],
    lambda z, n: z[..., 1:, :],
    lambda z, n: z.masked_fill(torch.arange(z.shape[-1]) == 0, -torch.inf),
    lambda z, n: written(z),
]


def test_chains_of_what_models_do_to_their_logits():
    """Each chain is either refused, or gives the loss, gradients and logits of computed logits."""
    followed = 0
    for seed in range(150):
        draw = random.Random(seed)
        torch.manual_seed(seed)
        head = torch.nn.Linear(6, 13, bias=draw.random() < 0.5)
        states = torch.randn(2, 6, 6, requires_grad=True)
        plain, absent = head(states), AbsentLogits(states, head)
        chain = [(draw.choice(STEPS), draw.choice([0.25, 2.0, -1.0, -0.5])) for _ in range(draw.randint(1, 5))]
        try:
            for step, number in chain:
                plain, absent = step(plain, number), step(absent, number)
            absent.check()
        except UnfollowedLogits:
            continue
        followed += 1
        labels = torch.randint(4, 8, plain.shape[:-1])
        bounds = dict(atol=1e-5, rtol=1e-5), dict(atol=2e-5, rtol=1e-4)
        check_followed(states, head, plain, absent, labels, *bounds, f"seed {seed}")
    assert followed > 50


NOT_FOLLOWED = {
    "read, by clamp": lambda z: torch.clamp(z, -30, 30),
    "read, by log_softmax": lambda z: torch.nn.functional.log_softmax(z, -1),
    "read, by where": lambda z: torch.where(torch.arange(97) < 3, -torch.inf, z),
    "scaled by a tensor": lambda z: z * torch.ones(97),
    "scaled by -0.5, which is not above 0": lambda z: -z / 2,
    "scaled by 0": lambda z: 2 * torch.tanh(0 * z),
    "capped twice": lambda z: torch.tanh(torch.tanh(z)),
    "masked before their softcap": lambda z: torch.tanh(z.masked_fill(torch.arange(97) < 3, -torch.inf)),
    "masked twice": lambda z: z.masked_fill(torch.arange(97) < 3, -1e9).masked_fill(torch.arange(97) > 90, -torch.inf),
    "masked token by token": lambda z: z.masked_fill(torch.zeros(z.shape) > 0, -torch.inf),
    "changed in place, in a slice": lambda z: z[..., :-1, :].mul_(2),
}


@pytest.mark.parametrize("what", NOT_FOLLOWED)
def test_what_is_not_followed_is_refused_by_patch(what):
    model = model_with(NOT_FOLLOWED[what])
    state = torch.get_rng_state()
    with pytest.raises(ValueError, match=f"^Changed does more to its logits than logitless supports: they are {what}"):
        patch(model)
    assert type(model).__name__ == "Changed" and type(model.lm_head) is torch.nn.Linear
    assert all(module.training for module in model.modules())
    assert torch.equal(torch.get_rng_state(), state)


def test_what_two_tokens_do_not_show_is_told_in_the_call_that_does_it():
    model = patch(model_with(lambda logits: logits if logits.shape[1] < 3 else logits.clamp(-30, 30))).eval()
    ids, labels = batch()
    with pytest.raises(RuntimeError, match="read, by .clamp: the model does this before its loss.*unpatch"):
        model(input_ids=ids, labels=labels)
    assert model(input_ids=ids).logits.shape == (3, 17, 97)  # as the message says
    assert unpatch(model)(input_ids=ids, labels=labels).loss > 0


def test_labels_beside_what_a_model_masks():
    model = patch(model_with(lambda logits: logits.masked_fill(torch.arange(97) < 5, -torch.inf)))
    ids, labels = batch()
    want = unpatch(copy.deepcopy(model))(input_ids=ids, labels=labels.clamp(min=5)).loss
    torch.testing.assert_close(model(input_ids=ids, labels=labels.clamp(min=5)).loss, want, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name, option", [("gemma2", "final_logit_softcapping"), ("granite", "logits_scaling")])
def test_a_scale_or_softcap_of_0_is_refused(name, option):
    model = model_of(name)
    setattr(model.config, option, 0.0)
    with pytest.raises(ValueError, match="divided by 0"):
        patch(model)


def test_a_vocabulary_that_is_cut_behind_a_softcap():
    """Inkling 2, whose head has padding rows."""
    if not hasattr(transformers, "Inkling2ForCausalLM"):
        pytest.skip("this transformers has no Inkling 2")
    torch.manual_seed(0)
    sizes = {name: SMALL[name] for name in ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers")}
    heads = dict(num_attention_heads=4, num_key_value_heads=2, head_dim=8)
    experts = dict(moe_intermediate_size=16, n_routed_experts=4, num_experts_per_tok=2, n_shared_experts=1)
    config = transformers.Inkling2TextConfig(
        **sizes, **heads, **experts, unpadded_vocab_size=90, final_logit_softcapping=2.0, pad_token_id=0
    )
    model = transformers.Inkling2ForCausalLM(config)
    ids, labels = batch()
    ids, labels = ids.clamp(max=89), labels.clamp(max=89)
    want = loss_and_gradients(model, input_ids=ids, labels=labels)
    got = loss_and_gradients(patch(model), input_ids=ids, labels=labels)
    expect_close(got, want)
    assert not got[1]["lm_head.weight"][90:].any()
    assert model.eval()(input_ids=ids, labels=labels).logits.shape == (3, 17, 90)
    with pytest.raises(IndexError, match="Target out of bounds"):
        model(input_ids=ids, labels=labels.fill_(93))

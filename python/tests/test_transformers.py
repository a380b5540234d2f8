# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Patched models compared with unpatched ones: loss, gradients of all parameters, logits, and what is
refused."""

import copy
import pathlib
import random
import warnings

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from small_models import CONFIGS, SMALL, batch, expect_close, loss_and_gradients, model_of  # noqa: E402

from logitless._absent_logits import AbsentLogits, UnfollowedLogits  # noqa: E402
from logitless.transformers import argmax, compute_loss_func, patch, unpatch  # noqa: E402


@pytest.mark.parametrize("name, items", [*((name, None) for name in CONFIGS), ("llama", 29), ("mixtral", 29)])
def test_loss_and_gradients_of_every_parameter(name, items):
    model = model_of(name)
    ids, labels = batch()
    inputs = dict(input_ids=ids, labels=labels)
    if items:
        inputs["num_items_in_batch"] = torch.tensor(items)
    want = loss_and_gradients(model, **inputs)
    expect_close(loss_and_gradients(patch(model), **inputs), want)
    assert unpatch(model)(**inputs).loss == want[0]


def test_shifted_labels_and_bfloat16():
    model = model_of("llama")
    ids, labels = batch()
    shifted = torch.nn.functional.pad(labels, (0, 1), value=-100)[:, 1:]
    want = model(input_ids=ids, labels=labels).loss
    patch(model)
    torch.testing.assert_close(model(input_ids=ids, labels=labels, shift_labels=shifted).loss, want)
    model.bfloat16()
    loss = model(input_ids=ids, labels=labels).loss
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, want, atol=5e-2, rtol=0)


def test_generation_and_logits_without_labels_are_unchanged():
    model = model_of("gemma2").eval()
    ids, labels = batch()
    want_logits = model(input_ids=ids).logits
    want = model.generate(ids, max_new_tokens=5, do_sample=False)
    patch(model)
    assert torch.equal(model(input_ids=ids).logits, want_logits)
    assert torch.equal(model.generate(ids, max_new_tokens=5, do_sample=False), want)
    last = model(input_ids=ids, logits_to_keep=1).logits
    assert last.shape == (3, 1, 97)


def test_logits_on_request():
    model = model_of("gemma2").eval()
    ids, labels = batch()
    want = model(input_ids=ids, labels=labels)
    patch(model, return_logits=True)
    got = model(input_ids=ids, labels=labels)
    torch.testing.assert_close(got.logits, want.logits)
    as_tuple = model(input_ids=ids, labels=labels, return_dict=False)
    torch.testing.assert_close(as_tuple[1], want.logits)


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


def model_with(change):
    """A small Llama that applies `change` to its logits."""

    class Changed(transformers.LlamaForCausalLM):
        def forward(self, input_ids, labels=None, **kwargs):
            logits = change(self.lm_head(self.model(input_ids, **kwargs).last_hidden_state))
            loss = None if labels is None else self.loss_function(logits, labels, vocab_size=logits.shape[-1])
            return transformers.modeling_outputs.CausalLMOutputWithPast(loss=loss, logits=logits)

    model = model_of("llama")
    model.__class__ = Changed
    return model


@pytest.mark.parametrize("what", NOT_FOLLOWED)
def test_what_is_not_followed_is_refused_by_patch(what):
    model = model_with(NOT_FOLLOWED[what])
    state = torch.get_rng_state()
    with pytest.raises(ValueError, match=f"^Changed does more to its logits than logitless supports: they are {what}"):
        patch(model)
    assert type(model).__name__ == "Changed" and type(model.lm_head) is torch.nn.Linear
    assert all(module.training for module in model.modules())
    assert torch.equal(torch.get_rng_state(), state)


def past_its_head():
    class Past(transformers.LlamaForCausalLM):
        def forward(self, input_ids, labels=None, **kwargs):
            states = self.model(input_ids, **kwargs).last_hidden_state
            logits = torch.nn.functional.linear(states, self.lm_head.weight)
            loss = None if labels is None else self.loss_function(logits, labels, vocab_size=97)
            return transformers.modeling_outputs.CausalLMOutputWithPast(loss=loss, logits=logits)

    model = model_of("llama")
    model.__class__ = Past
    return model


def test_what_two_tokens_do_not_show_is_told_in_the_call_that_does_it():
    model = patch(model_with(lambda logits: logits if logits.shape[1] < 3 else logits.clamp(-30, 30))).eval()
    ids, labels = batch()
    with pytest.raises(RuntimeError, match="read, by .clamp: the model does this before its loss.*unpatch"):
        model(input_ids=ids, labels=labels)
    assert model(input_ids=ids).logits.shape == (3, 17, 97)  # as the message says
    assert unpatch(model)(input_ids=ids, labels=labels).loss > 0


def test_a_model_that_takes_more_than_token_ids_is_not_tried():
    model = model_of("llama")

    class Wants(transformers.LlamaForCausalLM):
        def forward(self, input_ids, sound, labels=None, **kwargs):
            return super().forward(input_ids, labels=labels, **kwargs)

    model.__class__ = Wants
    ids, labels = batch()
    want = model(ids, None, labels=labels).loss
    torch.testing.assert_close(patch(model)(ids, None, labels=labels).loss, want, atol=1e-5, rtol=1e-5)


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


def test_what_is_no_model_is_a_type_error():
    pytest.importorskip("accelerate")
    given = {
        "a NoneType": None,
        "a Linear": torch.nn.Linear(2, 3),
        "the class LlamaForCausalLM": transformers.LlamaForCausalLM,
    }
    for what, value in given.items():
        for function in (patch, unpatch, compute_loss_func):
            with pytest.raises(TypeError, match=f"model must be a model of transformers.* not {what}$"):
                function(value)


@pytest.mark.parametrize("name", ["gemma2", "cohere2", "opt"])
def test_logits_of_a_model_in_eval_mode_are_computed_when_they_are_read(name):
    model = model_of(name).eval()
    ids, labels = batch()
    want = model(input_ids=ids, labels=labels)
    patch(model)
    for reading in (
        lambda logits: logits,
        lambda logits: logits.float().softmax(-1),
        lambda logits: logits[:, :-1].contiguous().view(-1, 97),
        lambda logits: logits.detach()[0, 3:].to(torch.float64),
        lambda logits: torch.from_numpy(logits.detach().cpu().numpy()),
        lambda logits: copy.deepcopy(logits.detach()),
        lambda logits: torch.cat([logits, logits]),
        lambda logits: logits.sum().backward(),
    ):
        got = model(input_ids=ids, labels=labels)
        assert isinstance(got.logits, torch.Tensor) and got.logits._computed is None
        for attribute in ("shape", "dtype", "device", "ndim"):
            assert getattr(got.logits, attribute) == getattr(want.logits, attribute)
        torch.testing.assert_close(got.loss, want.loss, atol=1e-5, rtol=1e-5)
        got, expected = reading(got.logits), reading(model_logits(model, ids))
        if got is not None:
            torch.testing.assert_close(got[...], expected)


def model_logits(model, ids):
    logits = model(input_ids=ids).logits
    assert type(logits) is torch.Tensor
    return logits


def test_logits_that_are_read_after_the_head_has_changed_are_refused():
    model = patch(model_of("llama")).eval()
    ids, labels = batch()
    logits = model(input_ids=ids, labels=labels).logits
    with torch.no_grad():
        model.lm_head.weight.mul_(2)
    for reading in (lambda: logits + 1, lambda: logits.argmax(-1), lambda: logits[:, :-1].float() + 1):
        with pytest.raises(RuntimeError, match="the head was changed"):
            reading()


def test_logits_have_the_history_that_they_would_have():
    model = patch(model_of("llama")).eval()
    ids, labels = batch()
    with torch.no_grad():
        without = model(input_ids=ids, labels=labels).logits
    assert not (without * 1).requires_grad
    logits = model(input_ids=ids, labels=labels).logits
    with torch.no_grad():
        assert not (logits * 1).requires_grad
    assert (logits * 1).requires_grad
    assert not (logits.detach() * 1).requires_grad
    with torch.inference_mode():
        logits = model(input_ids=ids, labels=labels).logits
    assert not (logits * 1).requires_grad


def test_slices_of_logits_are_those_of_the_computed_ones():
    model = patch(model_of("gemma2")).eval()
    ids, labels = batch()
    every, most, some = slice(None), slice(None, -1), slice(1, 3)
    mask = labels != -100
    deferred = [most, ..., (..., most, every), (some, most), (some, most, every), (every, ...), (..., every)]
    read = [0, mask, (..., 3), (..., None), (every, -1, every), [0, 2], (..., slice(5, 5))]
    deferred += [(every, every, every, ...), (every, ..., most, every)]
    deferred += [(..., some), (some, some, some), (every, every, some, ...), (..., slice(None, None, 3))]
    for key in deferred + read:
        logits = model(input_ids=ids, labels=labels).logits
        part = logits[key]
        assert (logits._computed is None) == any(key is d for d in deferred)
        torch.testing.assert_close(part[...] * 1, model(input_ids=ids).logits[key])


@pytest.mark.parametrize("name", ["gemma2", "gpt2"])
def test_argmax_needs_no_logits(name):
    ids, labels = batch()
    model = model_of(name).eval()
    want = model(input_ids=ids).logits.argmax(-1)
    patch(model)
    for mode in (model.eval, model.train):
        mode()
        logits = model(input_ids=ids, labels=labels).logits
        assert torch.equal(logits.argmax(dim=-1), want)
        assert torch.equal(torch.argmax(logits[..., :-1, :], 2), want[:, :-1])
        assert torch.equal(argmax((logits, None), labels), want)
        assert logits._computed is None


def test_heads_that_are_refused():
    class Adapter(torch.nn.Linear):
        pass

    model = model_of("llama")
    model.lm_head = Adapter(32, 97)
    with pytest.raises(ValueError, match="Adapter"):
        patch(model)
    with pytest.raises(ValueError, match="not patched"):
        unpatch(model)


def test_a_loss_that_is_not_a_causal_lms_is_refused():
    small = dict(d_model=32, vocab_size=97)
    t5 = transformers.T5Config(**small, num_layers=1, num_heads=4, d_kv=8)
    layers = {f"{part}coder_{what}": count for part in ("en", "de") for what, count in (("layers", 1), ("attention_heads", 4))}
    bart = transformers.BartForCausalLM(transformers.BartConfig(**small, **layers))
    for model in (transformers.T5ForConditionalGeneration(t5), bart):
        before = type(model)
        with pytest.raises(ValueError, match=f"loss of {before.__name__}.*not that of a causal LM"):
            patch(model)
        assert type(model) is before


def test_a_head_of_another_size_is_found():
    model = patch(model_of("llama"))
    model.resize_token_embeddings(101)
    ids, labels = batch()
    output = model(input_ids=ids, labels=labels)
    assert output.logits.shape == (3, 17, 101)
    torch.testing.assert_close(
        output.loss, unpatch(model)(input_ids=ids, labels=labels).loss, atol=1e-5, rtol=1e-5
    )


def test_labels_by_position_are_labels():
    model = patch(model_of("llama"))
    ids, labels = batch()
    want = model(input_ids=ids, labels=labels).loss
    assert torch.equal(model(ids, None, None, None, None, labels).loss, want)


def test_training_without_labels_is_told_once():
    model = patch(model_of("llama"))
    ids, _ = batch()
    with pytest.warns(UserWarning, match="trains in a call without labels.*compute_loss_func"):
        model(input_ids=ids).logits.sum().backward()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model(input_ids=ids)
        with torch.no_grad():
            patch(model_of("llama"))(input_ids=ids)
        patch(model_of("llama")).eval()(input_ids=ids)


def quoted_messages():
    """The messages of patch() and of patched models that docs/troubleshooting.md quotes."""
    page = (pathlib.Path(__file__).parents[2] / "docs" / "troubleshooting.md").read_text()
    section = page.split("## patch() refuses a model")[1].split("\n## ")[0]
    return [row[3 : row.index("`", 3)] for row in section.splitlines() if row.startswith("| `")]


def provoked_messages(recwarn):
    model = model_of("llama")

    def patching(change, call=None):
        other = copy.deepcopy(model)
        change(other)
        with pytest.raises((ValueError, RuntimeError)) as caught:
            patch(other)
            if call:
                call(other)
        return str(caught.value)

    ids, labels = batch()

    def set_loss(m):
        m.loss_function = print

    def replace_head(m):
        m.lm_head = torch.nn.Sequential(m.lm_head)

    def replace_forward(m):
        m.forward = m.forward

    def replace_forward_of_head(m):
        m.lm_head.forward = m.lm_head.forward

    def change_head(m):
        logits = m.eval()(input_ids=ids, labels=labels).logits
        m.lm_head.weight.data.mul_(2)
        torch.nn.init.zeros_(m.lm_head.weight)
        logits.softmax(-1)

    yield patching(patch)
    yield patching(set_loss)
    yield patching(lambda m: None, set_loss)
    yield patching(replace_head)
    yield patching(lambda m: m.lm_head.register_forward_hook(print))
    yield patching(lambda m: torch.nn.utils.parametrizations.weight_norm(m.lm_head))
    yield patching(replace_forward_of_head)
    yield patching(replace_forward)
    yield patching(lambda m: m.to("meta")).replace("meta", "cuda:0")
    yield patching(lambda m: None, lambda m: m(input_ids=ids, labels=labels).logits.softmax(-1))
    yield patching(lambda m: None, change_head)
    clamped = model_with(lambda logits: logits.clamp(-30, 30))
    late = model_with(lambda logits: logits if logits.shape[1] < 3 else logits.clamp(-30, 30))
    masked = model_with(lambda logits: logits.masked_fill(torch.arange(97) == 4, -torch.inf))
    ids[0, 6] = labels[0, 6] = 4
    for call in (
        lambda: patch(clamped),
        lambda: patch(late)(input_ids=ids, labels=labels),
        lambda: patch(masked)(input_ids=ids, labels=labels),
        lambda: patch(copy.deepcopy(model))(input_ids=ids, labels=labels, num_items_in_batch=0),
        lambda: patch(past_its_head()),
        lambda: patch(None),
    ):
        with pytest.raises((ValueError, RuntimeError, TypeError)) as caught:
            call()
        yield str(caught.value)
    small = dict(d_model=32, vocab_size=97, n_layer=1, n_head=4, d_inner=48)
    with pytest.raises(ValueError) as caught:
        patch(transformers.XLNetLMHeadModel(transformers.XLNetConfig(**small)))
    yield str(caught.value)
    recwarn.clear()
    patch(model)(input_ids=ids)
    yield str(recwarn.pop(UserWarning).message)
    utils = pytest.importorskip("trl.trainer.utils")
    utils.add_fused_lm_head(model)
    yield str(recwarn.pop(UserWarning).message)
    peft = pytest.importorskip("peft")
    adapter = peft.LoraConfig(task_type="CAUSAL_LM", target_modules=["lm_head"], use_dora=True)
    with pytest.raises(ValueError) as caught:
        patch(peft.get_peft_model(model_of("llama"), adapter))
    yield str(caught.value)
    tied = peft.LoraConfig(task_type="CAUSAL_LM", target_modules=["lm_head"])
    with pytest.raises(ValueError) as caught:
        patch(peft.get_peft_model(model_of("tied llama"), tied))
    yield str(caught.value)


def test_troubleshooting_quotes_the_messages(recwarn):
    quoted = quoted_messages()
    provoked = list(provoked_messages(recwarn))
    for message in provoked:
        assert any(
            message == q or (q.endswith("...") and message.startswith(q[:-3])) for q in quoted
        ), message
    assert len(set(provoked)) == len(quoted)


def test_gradients_of_a_sample():
    """The options of patch() arrive, and the loss stays exact."""
    model = model_of("llama")
    ids, labels = batch()
    want = model(input_ids=ids, labels=labels).loss
    patch(model, backward="sampled", theta=0.5)
    torch.testing.assert_close(model(input_ids=ids, labels=labels).loss, want)
    patch(unpatch(model), backward="sampled", noise=10.0)
    with pytest.raises(ValueError, match="^noise = 10 must be"):
        model(input_ids=ids, labels=labels)
    with pytest.raises(TypeError, match="noises"):
        patch(unpatch(model), backward="sampled", noises=0.1)

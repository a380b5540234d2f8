# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""LazyLogits: the operators by which the losses of TRL's experimental trainers read logits, against PyTorch."""

import copy
import math
import pickle
import warnings

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import torch.nn.functional as F  # noqa: E402
from small_models import batch, model_of  # noqa: E402

from logitless import _lazy_columns, _lazy_logits  # noqa: E402
from logitless import transformers as of_models  # noqa: E402
from logitless._lazy_logits import LazyLogits  # noqa: E402
from logitless._model_head import read_lazily, reads_lazily, unread_lazily  # noqa: E402


def selective(logits, ids):
    """TRL's selective_log_softmax()."""
    selected = torch.gather(logits, dim=-1, index=ids.unsqueeze(-1)).squeeze(-1)
    return selected - torch.stack([torch.logsumexp(row, dim=-1) for row in logits])


def entropies(logits):
    """TRL's entropy_from_logits()."""
    logps = [F.log_softmax(chunk, dim=-1) for chunk in logits.reshape(-1, logits.shape[-1]).split(7, dim=0)]
    return torch.cat([-(torch.exp(p) * p).sum(-1) for p in logps]).reshape(logits.shape[:-1])


def cross_entropy(logits, ids, labels):
    shifted = logits[..., :-1, :].contiguous()
    return torch.nn.CrossEntropyLoss()(shifted.view(-1, shifted.shape[-1]), labels[..., 1:].reshape(-1))


def preference(logits, ids, labels):
    """ORPO's: the labels of the cross-entropy and of the log-probabilities differ."""
    mask = labels[:, 1:] != -100
    logps = selective(logits[:, :-1, :], torch.where(mask, ids[:, 1:], 0)) * mask
    total = cross_entropy(logits[:2], ids[:2], ids[:2]) - F.logsigmoid(logps.sum(-1)).sum()
    return total + logits[:1].detach().mean() + logits[1:, :-1, :].detach().mean(-1).sum()


def top_k(logits, ids, labels):
    values, at = torch.topk(logits, k=5, dim=-1)
    return (values - torch.logsumexp(logits, dim=-1, keepdim=True)).exp().square().sum() + at.sum()


def masked(logits, ids, labels):
    mask = labels[:, 1:] != -100
    _, last = logits[..., :-1, :].chunk(2, dim=0)
    loss = F.cross_entropy(logits[:, :-1][mask], ids[:, 1:][mask], reduction="sum")
    return loss + selective(last, ids[2:, 1:]).sum() + (logits.detach().argmax(dim=-1) == ids).sum()


# A loss of logits [3, 17, 97], ids and labels [3, 17].
LOSSES = {
    "log-probabilities": lambda logits, ids, labels: selective(logits[:, :-1, :], ids[:, 1:]).square().sum(),
    "log-sum-exp first": lambda logits, ids, labels: (torch.logsumexp(logits, dim=-1) - logits.gather(-1, ids[..., None])[..., 0]).exp().sum(),
    "of tempered logits": lambda logits, ids, labels: selective(logits / 0.7, ids).square().sum(),
    "take_along_dim": lambda logits, ids, labels: torch.take_along_dim(
        logits[:, 3:-1].log_softmax(dim=-1), ids[:, 4:].unsqueeze(-1), dim=2
    ).exp().sum(),
    "several ids": lambda logits, ids, labels: F.log_softmax(logits[:, :-1] * 0.5, dim=-1)
    .gather(dim=-1, index=torch.stack([ids[:, 1:], ids[:, :-1]], -1))
    .exp()
    .sum(),
    "a shorter index": lambda logits, ids, labels: logits.log_softmax(-1).gather(-1, ids[:, :5, None]).exp().sum(),
    "cross-entropy": cross_entropy,
    "preference": preference,
    "masked": masked,
    "entropies": lambda logits, ids, labels: (entropies(logits) * selective(logits, ids)).sum(),
    "top k": top_k,
}


def kl(student, teacher, beta, temperature=1.0):
    """TRL's generalized_jsd_loss()."""
    student, teacher = F.log_softmax(student / temperature, dim=-1), F.log_softmax(teacher / temperature, dim=-1)
    if beta == 0:
        return F.kl_div(student, teacher, reduction="none", log_target=True)
    if beta == 1:
        return F.kl_div(teacher, student, reduction="none", log_target=True)
    beta = torch.tensor(beta, dtype=student.dtype)
    mixture = torch.logsumexp(torch.stack([student + torch.log1p(-beta), teacher + torch.log(beta)]), dim=0)
    of_teacher = F.kl_div(mixture, teacher, reduction="none", log_target=True)
    of_student = F.kl_div(mixture, student, reduction="none", log_target=True)
    return beta * of_teacher + (1 - beta) * of_student


# A divergence of the logits of a student and of a teacher.
DIVERGENCES = {
    "forward": lambda s, t, labels: kl(s, t, 0.0, 0.7)[labels != -100].sum() / 7,
    "reverse, per token": lambda s, t, labels: (kl(s, t, 1.0).sum(-1) * (labels != -100)).sum(-1).mean(),
    "jsd": lambda s, t, labels: kl(s[:, :-1], t[:, :-1], 0.3)[labels[:, 1:] != -100].sum(),
    "jsd, per token": lambda s, t, labels: (kl(s, t, 0.5).sum(-1) * (labels != -100)).square().sum(),
    "mean": lambda s, t, labels: kl(s, t, 0.9).mean(),
    "no row": lambda s, t, labels: kl(s, t, 0.5)[labels == -7].sum() + s.detach().mean(),
}


@pytest.fixture
def no_logits(monkeypatch):
    monkeypatch.setattr(_lazy_logits, "dense_rows", lambda *_: pytest.fail("logits were computed"))


def result_of(model, loss, *teacher):
    """The loss, and its gradients. The fused head computes the second call's columns at once."""
    ids, labels = batch()
    for _ in range(2):
        model.zero_grad()
        with torch.no_grad():
            others = [other(ids).logits for other in teacher]
        total = loss(model(ids).logits, *(others or [ids]), labels)
        total.backward()
    return total.detach(), {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def expect_same(got, want):
    assert got[0].dtype == want[0].dtype
    torch.testing.assert_close(got[0], want[0], atol=1e-5, rtol=1e-5)
    assert got[1].keys() == want[1].keys()
    for name, grad in got[1].items():
        size = want[1][name].abs().max().item()
        torch.testing.assert_close(grad, want[1][name], atol=3e-5 * max(1.0, size), rtol=1e-3, msg=name)


@pytest.mark.parametrize("name", ["gemma2", "tied llama"])
@pytest.mark.parametrize("loss", LOSSES)
def test_operators_of_losses(loss, name, no_logits):
    model = model_of(name).eval()
    want = result_of(model, LOSSES[loss])
    read_lazily(model)
    expect_same(result_of(model, LOSSES[loss]), want)
    with torch.no_grad():
        value = LOSSES[loss](model(batch()[0]).logits, *batch())
    torch.testing.assert_close(value, want[0], atol=1e-5, rtol=1e-5)
    assert not value.requires_grad


@pytest.mark.parametrize("name", ["granite", "gemma2"])
@pytest.mark.parametrize("loss", DIVERGENCES)
def test_operators_of_divergences(loss, name, no_logits):
    model, teacher = model_of(name).eval(), model_of("llama").eval()
    want = result_of(model, DIVERGENCES[loss], teacher)
    read_lazily(model)
    read_lazily(teacher)
    expect_same(result_of(model, DIVERGENCES[loss], teacher), want)
    with torch.no_grad():
        value = DIVERGENCES[loss](model(batch()[0]).logits, teacher(batch()[0]).logits, batch()[1])
    torch.testing.assert_close(value, want[0], atol=1e-5, rtol=1e-5)


def squares(logits, ids, labels):
    return logits.log_softmax(-1).square().mean()


def a_mean_with_a_gradient(logits, ids, labels):
    return logits.mean().square()


def smoothed(logits, ids, labels):
    return F.cross_entropy(logits.view(-1, 97), labels.view(-1), label_smoothing=0.1)


def another_mixture(logits, ids, labels):
    p, q = logits.log_softmax(-1), logits.detach().log_softmax(-1)
    mixture = torch.logsumexp(torch.stack([p, q]), dim=0)
    return F.kl_div(mixture, p, reduction="none", log_target=True).sum() + (torch.stack([p, q]) * 2).exp().sum()


def weighted(logits, ids, labels):
    parts = kl(logits, logits.detach() * 0.9, 0.5)
    return (parts * torch.linspace(0, 1, 97)).sum()


def swapped_weights(logits, ids, labels):
    """(1 - beta) KL(t || m) + beta KL(s || m), with m = beta t + (1 - beta) s."""
    p, q = logits.log_softmax(-1), (logits.detach() * 0.9).log_softmax(-1)
    mixture = torch.logsumexp(torch.stack([p + math.log(0.7), q + math.log(0.3)]), dim=0)
    of_p, of_q = (F.kl_div(mixture, x, reduction="none", log_target=True) for x in (p, q))
    return (0.3 * of_p + 0.7 * of_q).sum()


def an_entry(logits, ids, labels):
    return logits[:, 2, 5].sum() + logits[..., :10].sum() + logits[None].square().sum()


@pytest.mark.parametrize(
    "loss", [squares, a_mean_with_a_gradient, smoothed, another_mixture, weighted, swapped_weights, an_entry]
)
def test_other_operators_compute_the_logits_and_say_so_once(loss):
    model = model_of("llama").eval()
    want = result_of(model, loss)
    read_lazily(model)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        expect_same(result_of(model, loss), want)
    told = [str(warning.message) for warning in told if "logitless" in str(warning.message)]
    assert told and len(set(told)) == len(told)
    assert all("the loss reads all logits, by " in message for message in told)


def test_each_row_is_computed_once(monkeypatch):
    calls = []
    columns = _lazy_columns.token_columns

    def spy(head, targets, names, **more):
        calls.append((len(targets), set(names)))
        return columns(head, targets, names, **more)

    monkeypatch.setattr(_lazy_columns, "token_columns", spy)
    model = model_of("llama").eval()
    read_lazily(model)
    ids, _ = batch()
    for _ in range(2):
        calls.clear()
        logits = model(ids).logits
        logps, lse = selective(logits[:, :-1], ids[:, 1:]), torch.logsumexp(logits, dim=-1)
        entropy = entropies(logits.detach())
        assert logps.requires_grad and lse.requires_grad and not entropy.requires_grad
    # The second step knows that the entropies will be read.
    assert calls == [(3 * 16, {"lse", "entropy"}), (3, {"lse", "entropy"})]


def test_changing_them_in_place_is_an_error():
    model = model_of("llama")
    read_lazily(model)
    logits = model(batch()[0]).logits
    assert isinstance(logits, LazyLogits) and logits.shape == (3, 17, 97) and logits.requires_grad
    for change in (lambda: logits.mul_(2), lambda: logits.__setitem__((0, 0), 1.0), lambda: logits[0].div_(2)):
        with pytest.raises(RuntimeError, match="the loss changes logits in place, by .*unpatch"):
            change()


def test_generation_copies_and_other_patches():
    model = model_of("llama").eval()
    ids, labels = batch()
    want = model.generate(ids, max_new_tokens=4, do_sample=False)
    read_lazily(model)
    assert torch.equal(model.generate(ids, max_new_tokens=4, do_sample=False), want)
    for made in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert isinstance(made(ids).logits, LazyLogits)
    of_models.patch(model)
    assert model(ids, labels=labels).loss.requires_grad
    unread_lazily(model)
    assert not reads_lazily(model) and of_models.unpatch(model) is model
    read_lazily(model)
    unread_lazily(model)
    assert type(model.lm_head) is torch.nn.Linear and type(model(ids).logits) is torch.Tensor


def test_autocast_and_bfloat16(no_logits):
    """PyTorch rounds logits to bfloat16, and the fused head does not. The largest logits are about 12."""
    model = model_of("llama").eval()
    ids, labels = batch()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        want = selective(model(ids).logits.float(), ids)
        read_lazily(model)
        got = selective(model(ids).logits.float(), ids)
    assert (got - want).abs().max() <= 2 * 2**-9 * 12
    got = torch.gather(model.bfloat16()(ids).logits.log_softmax(-1), -1, ids.unsqueeze(-1)).squeeze(-1)
    assert got.dtype == torch.float32 and (got - want).abs().max() <= 8 * 2**-9 * 12


def test_data_parallel_models_find_the_parameters(tmp_path, no_logits):
    model = model_of("llama").eval()
    read_lazily(model)
    want = result_of(model, LOSSES["log-probabilities"])
    store = torch.distributed.FileStore(str(tmp_path / "store"), 1)
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        for static in (False, True):
            wrapped = torch.nn.parallel.DistributedDataParallel(
                model, find_unused_parameters=not static, static_graph=static
            )
            got = result_of(wrapped, LOSSES["log-probabilities"])
            expect_same((got[0], {name.removeprefix("module."): grad for name, grad in got[1].items()}), want)
    finally:
        torch.distributed.destroy_process_group()


@pytest.mark.parametrize(
    "name, options",
    [
        ("llama", dict(target_modules=["lm_head", "q_proj"])),
        ("llama", dict(target_modules=["q_proj"], modules_to_save=["lm_head"])),
        ("tied llama", dict(target_modules=["q_proj"], trainable_token_indices=[3, 5])),
    ],
)
def test_adapters(name, options, no_logits):
    peft = pytest.importorskip("peft")
    torch.manual_seed(0)
    config = peft.LoraConfig(r=4, lora_alpha=8, init_lora_weights=False, **options)
    model = peft.get_peft_model(model_of(name), config).eval()
    want = result_of(model, LOSSES["preference"])
    read_lazily(model.get_base_model())
    expect_same(result_of(model, LOSSES["preference"]), want)

# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Measures gradients of chosen segments (backward="sampled" and "certified") against exact ones and the dense
head.

    python bench/sampled_gradients.py --states DIR/text.safetensors --head DIR/head.safetensors
    python bench/sampled_gradients.py --model qwen2.5-1.5b --scale 1.2 --dtype bfloat16

A file has a model's states and targets as tensors `hidden` [N, H] and `targets` [N], or its head as `lm_head`
[V, H]. With `--distil SHARE` the loss is the forward KL from a teacher with that head and those states; the
student's states are the same plus noise of SHARE of their size.

Without files both are seeded. Logits then have a standard deviation of `scale` times the square root of H,
and each row's target is drawn from its logits, so that a larger scale means more peaked rows.

The calls take turns in one process. Prints median times, and each variant's gradient errors relative to the
exact ones of two pass (Frobenius norms).
"""

import argparse
import statistics
import time

import torch

import logitless

HEADS = {"smollm2-135m": (576, 49152), "qwen2.5-1.5b": (1536, 151936)}


def seeded(model, tokens, scale):
    size, vocab = HEADS[model]
    hidden = torch.randn(tokens, size)
    weight = torch.randn(vocab, size) * scale / size**0.5
    targets = torch.empty(tokens, dtype=torch.int64)
    for begin in range(0, tokens, 256):
        logits = hidden[begin : begin + 256] @ weight.T
        targets[begin : begin + 256] = torch.distributions.Categorical(logits=logits).sample()
    return hidden, weight, targets


def from_files(states, head, tokens):
    from safetensors.torch import load_file

    read = load_file(states)
    hidden, targets = read["hidden"], read["targets"].long()
    if tokens and tokens > len(hidden):
        # If more tokens are wanted than the file has, it repeats them with a little noise.
        copies = -(-tokens // len(hidden))
        hidden = torch.cat([hidden + 0.01 * k * torch.randn_like(hidden) for k in range(copies)])[:tokens]
        targets = targets.repeat(copies)[:tokens]
    elif tokens:
        hidden, targets = hidden[:tokens], targets[:tokens]
    return hidden.contiguous(), load_file(head)["lm_head"], targets.contiguous()


class Fused:
    """A variant of logitless, which writes into its own gradients."""

    def __init__(self, inputs, plan="auto", **backward):
        self.inputs, self.backward = inputs[:3], backward
        self.teacher = inputs[3:]  # its states and head, if there is a teacher
        self.context = logitless.Context(plan=plan, threads=torch.get_num_threads())
        self.grads = [torch.empty(x.shape, dtype=torch.float32) for x in inputs[:2]]

    def __call__(self):
        self.result = self.loss(d_hidden=self.grads[0], d_weight=self.grads[1], **self.backward)
        return self.grads

    def loss(self, **outputs):
        hidden, weight, targets = self.inputs
        if self.teacher:
            return logitless.distillation_loss(hidden, weight, *self.teacher, context=self.context, **outputs)
        return logitless.cross_entropy(hidden, weight, targets, context=self.context, **outputs)


def dense_of(inputs, loss):
    hidden, weight, *rest = inputs
    leaves = hidden.clone().requires_grad_(), weight.clone().requires_grad_()

    def step():
        for leaf in leaves:
            leaf.grad = None
        loss(*leaves, *rest).backward()
        return [leaf.grad for leaf in leaves]

    return step


def dense(hidden, weight, targets, *teacher):
    logits = (hidden @ weight.T).float()
    if not teacher:
        return torch.nn.functional.cross_entropy(logits, targets)
    with torch.no_grad():
        wanted = (teacher[0] @ teacher[1].T).float().log_softmax(1)
    return torch.nn.functional.kl_div(logits.log_softmax(1), wanted, reduction="batchmean", log_target=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--states")
    parser.add_argument("--head")
    parser.add_argument("--model", choices=list(HEADS), default="smollm2-135m")
    parser.add_argument("--scale", type=float, default=4.0)
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--distil", type=float, metavar="SHARE")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--noise", type=float, nargs="*", default=[0.005, 0.01, 0.02])
    parser.add_argument("--tolerance", type=float, nargs="*", default=[1e-3])
    parser.add_argument("--without-dense", action="store_true", help="skip the dense head and torch.compile, which keep all logits")
    options = parser.parse_args()
    torch.manual_seed(0)
    if options.states:
        inputs = from_files(options.states, options.head, options.tokens)
    else:
        inputs = seeded(options.model, options.tokens, options.scale)
    dtype = getattr(torch, options.dtype)
    inputs = (inputs[0].to(dtype), inputs[1].to(dtype), inputs[2])
    if options.distil is not None:
        noise = torch.randn(inputs[0].shape) * inputs[0].float().std() * options.distil
        inputs = ((inputs[0] + noise).to(dtype), inputs[1], inputs[2], inputs[0], inputs[1])

    ways = {"two pass": Fused(inputs, "two_pass"), "auto": Fused(inputs)}
    for noise in options.noise:
        ways[f"sampled, noise {noise:g}"] = Fused(inputs, backward="sampled", noise=noise)
    for tolerance in options.tolerance:
        ways[f"certified, {tolerance:g}"] = Fused(inputs, backward="certified", tolerance=tolerance)
    calls = {"forward": ways["auto"].loss, **ways}
    if not options.without_dense:
        calls["torch, eager"] = dense_of(inputs, dense)
        calls["torch.compile"] = dense_of(inputs, torch.compile(dense))
    seconds = {name: [] for name in calls}
    for turn in range(options.rounds + 1):
        for name, call in calls.items():
            started = time.perf_counter()
            call()
            if turn:
                seconds[name].append(time.perf_counter() - started)
    medians = {name: statistics.median(taken) for name, taken in seconds.items()}

    exact = ways["two pass"].grads
    norms = [x.double().norm() for x in exact]
    loss = ways["two pass"].result.loss
    print(f"{len(inputs[0])} tokens, {options.dtype}, loss {loss:.4f}, {logitless.environment()['cpu']}")
    print(f"{'':24} {'seconds':>8} {'÷ two pass':>10} {'÷ eager':>8}  kept   errors of d_hidden, d_weight; expected")
    for name, taken in medians.items():
        eager = f"{taken / medians['torch, eager']:8.2f}" if "torch, eager" in medians else f"{'':8}"
        line = f"{name:24} {taken:8.3f} {taken / medians['two pass']:10.2f} {eager}"
        if name in ways:
            plan = ways[name].result.plan
            errors = [((a.double() - b.double()).norm() / n).item() for a, b, n in zip(ways[name].grads, exact, norms)]
            line += f"  {100 * plan.kept_share:4.1f} %  {errors[0]:.2e}, {errors[1]:.2e}; {plan.noise_estimate:.2e}"
            if plan.d_hidden_bound:
                line += f"  (bounds {plan.d_hidden_bound / norms[0]:.1e}, {plan.d_weight_bound / norms[1]:.1e})"
        print(line)


if __name__ == "__main__":
    main()

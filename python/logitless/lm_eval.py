# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""logitless for EleutherAI's lm-evaluation-harness: log-likelihoods of a causal LM without its logits in
memory.

    python -m logitless.lm_eval --model logitless --model_args pretrained=DIR,dtype=float32 --tasks wikitext

is the command `lm_eval` with an additional model, `logitless`. It takes the arguments of `hf` and returns the
same results. In a program, importing this module registers the model for simple_evaluate(), which also
accepts LogitlessLM(pretrained=model, tokenizer=tokenizer).
"""

from __future__ import annotations

from ._extras import check_extra

check_extra("lm_eval")

import logging
from collections.abc import Iterator
from typing import Any

import torch
from accelerate import find_executable_batch_size
from lm_eval.api.registry import register_model
from lm_eval.models.huggingface import HFLM
from lm_eval.models.utils import Collator
from lm_eval.models.utils_hf import pad_and_concat
from torch import Tensor
from tqdm import tqdm

from ._absent_logits import AbsentLogits
from .transformers import absent_logits, causal_lm

__all__ = ["LogitlessLM"]

_log = logging.getLogger(__name__)

_Request = tuple[Any, list[int], list[int]]  # texts (None for a window of a document), context, continuation
_Answer = tuple[float, bool]

_REFUSED = {
    "parallelize": "logitless computes on one CPU",
    "tp_plan": "logitless computes on one CPU",
    "autogptq": "logitless does not read GPTQ heads",
    "gptqmodel": "logitless does not read GPTQ heads",
}


def _cpu(device: Any) -> str:
    """Checks the device of the model. As in the harness, the default "cuda" means the CPU if CUDA is not
    available."""
    kind = "cpu" if device is None else str(device).partition(":")[0]
    if kind != "cpu" and (kind != "cuda" or torch.cuda.is_available()):
        raise ValueError(f"device = {device}: logitless computes on the CPU: device=cpu")
    return "cpu"


@register_model("logitless")
class LogitlessLM(HFLM):
    """The harness's model `hf` for causal LMs on a CPU. Arguments, requests, batches and truncation are the
    same, and results are equal up to rounding. Logits are only computed for scored tokens, tile by tile.

    Log-probabilities are at least float32, whatever the model's type. (`hf` rounds logits to the model's
    type, and without softmax_dtype the log-probabilities, too.) generate_until() is unchanged.

    Args:
        pretrained: a name or folder, or a model.
        device: "cpu" or None.
        softmax_dtype: float32, or float64 for a float64 model, or None.
        **arguments: further arguments of `hf`, such as tokenizer, dtype, batch_size and peft.

    Raises:
        ValueError: an argument or the model is not supported.

    Example:
        >>> import lm_eval
        >>> from logitless.lm_eval import LogitlessLM
        >>> lm_eval.simple_evaluate(LogitlessLM(model, tokenizer=tokenizer), tasks=["wikitext"])  # doctest: +SKIP
    """

    def __init__(self, pretrained: Any, *, device: Any = "cpu", softmax_dtype: Any = None, **arguments: Any) -> None:
        for name, why in _REFUSED.items():
            if arguments.get(name):
                raise ValueError(f"{name} = {arguments[name]!r}: {why}, so leave it out")
        if isinstance(pretrained, str):
            device = _cpu(device)
        else:
            causal_lm(pretrained, "pretrained")
        super().__init__(pretrained, device=device, softmax_dtype=softmax_dtype, **arguments)
        # A call with one token raises here if the model changes its logits in an unsupported way.
        logits = self._absent_logits(torch.zeros((1, 1), dtype=torch.int64, device=self.device))
        sums = torch.float64 if logits.dtype == torch.float64 else torch.float32
        if self.softmax_dtype not in (None, sums):
            raise ValueError(
                f"softmax_dtype = {softmax_dtype}: logitless sums in {sums}, so give that or leave it out"
            )

    def _get_backend(self, config: Any, backend: str = "default", **arguments: Any) -> None:  # type: ignore[override]
        super()._get_backend(config, backend=backend, **arguments)  # type: ignore[arg-type]
        if self.backend != "causal":
            kind = getattr(config, "model_type", None)
            raise ValueError(
                f"backend = {self.backend}, of a model of type {kind}: logitless scores causal models"
            )

    def _absent_logits(self, ids: Tensor) -> AbsentLogits:
        return absent_logits(self.model, lambda: self._model_call(ids))

    def _detect_batch_size(self, requests: Any = None, pos: int = 0) -> int:
        """The largest batch size that fits into memory at this request's length: max_batch_size, or its half,
        and so on."""
        length = self.max_length
        if requests:
            _, context, continuation = requests[pos]
            length = min(len(context) + len(continuation) - 1, length)

        @find_executable_batch_size(starting_batch_size=self.max_batch_size)
        def run(batch_size: int) -> int:
            ids = torch.ones((batch_size, length), dtype=torch.int64, device=self.device)
            self._absent_logits(ids).argmax(-1)
            return batch_size

        return run()

    def _loglikelihood_tokens(
        self, requests: list[_Request], disable_tqdm: bool = False, override_bs: int | None = None
    ) -> list[_Answer]:
        # As in `hf`, requests with the same input share a call, such as one-token answers after the same
        # context.
        order = Collator(
            requests,
            sort_fn=lambda request: (-len(request[1] + request[2]), tuple(request[1] + request[2])),
            group_fn=lambda request: request[1] + request[2][:-1],
            group_by="contexts" if self.logits_cache else None,
        )
        size, schedule = self.batch_size, None
        if size == "auto":
            size = override_bs or 0
            if not override_bs and requests:
                self.batch_sizes = {}
                schedule = self._batch_scheduler
        answers = []
        with tqdm(total=len(requests), disable=disable_tqdm or self.rank != 0, desc="Log-likelihoods") as bar:
            for batch in order.get_batched(n=size, batch_fn=schedule):
                for texts, answer in self._scored(batch, order):
                    answers.append(answer)
                    if texts is not None:
                        self.cache_hook.add_partial("loglikelihood", texts, answer)
                    bar.update()
        return order.get_original(answers)

    def _input_of(self, context: list[int], continuation: list[int]) -> Tensor:
        """All tokens except the last, which predict the continuation, truncated on the left to max_length."""
        if not context or not 0 < len(continuation) <= self.max_length:
            raise ValueError(
                f"a request has a context of {len(context)} tokens and a continuation of {len(continuation)}: each "
                f"must have one or more, and the continuation at most max_length = {self.max_length}"
            )
        tokens = (context + continuation)[:-1]
        if len(tokens) > self.max_length:
            _log.warning(
                "A request of %d tokens is longer than max_length = %d: its first %d tokens are dropped",
                len(tokens),
                self.max_length,
                len(tokens) - self.max_length,
            )
        return torch.tensor(tokens[-self.max_length :], dtype=torch.int64, device=self.device)

    def _scored(self, batch: list[_Request], order: Any) -> Iterator[tuple[Any, _Answer]]:
        """The texts and the answer of each request of the batch, and of the requests that share its calls."""
        inputs = [self._input_of(context, continuation) for _, context, continuation in batch]
        conts = [continuation for _, _, continuation in batch]
        logits = self._absent_logits(pad_and_concat(max(map(len, inputs)), list(inputs), padding_side="right"))
        # Prompt tuning prepends tokens.
        added = logits.shape[1] - max(map(len, inputs))
        spans = [(added + len(tokens) - len(cont), added + len(tokens)) for tokens, cont in zip(inputs, conts)]
        counts = [len(cont) for cont in conts]
        stats = logits.spans(spans).token_stats(torch.tensor([i for cont in conts for i in cont]), argmax=True)
        logps, best, log_sums = (stats[name].split(counts) for name in ("logp", "argmax", "log_sum"))

        # The requests with the same input. get_cache() wants logits, which are not needed: pass a dummy.
        groups = [
            list(order.get_cache(req_str=texts, cxt_toks=context, cont_toks=cont, logits=torch.zeros(1, 1, 1)))
            for texts, context, cont in batch
        ]
        # The requests of a group differ only in their last token. The most likely token has log-probability
        # -log_sum; any other token has that plus the difference of the two logits. If the logits are NaN, the
        # most likely id is -1, and any id gives NaN.
        sets = [
            [max(int(ids[-1]), 0), *(tokens[-1] for _, tokens, _ in group)] for ids, group in zip(best, groups)
        ]
        sizes = [len(ids) for ids in sets]
        offsets = torch.tensor([0, *sizes]).cumsum(0)
        last = logits.spans([(end - 1, end) for _, end in spans])
        of_sets = last.set_logps(torch.tensor([i for ids in sets for i in ids]), offsets).split(sizes)
        for i, group in enumerate(groups):
            for (texts, tokens, _), logp in zip(group, of_sets[i][1:]):
                # The continuation may be shorter than the group's longest one, and is then the end of that.
                before = logps[i][counts[i] - len(tokens) : -1].sum()
                total = before + (logp - of_sets[i][0] - log_sums[i][-1])
                yield texts, (float(total), best[i][-len(tokens) :].tolist() == tokens)


if __name__ == "__main__":
    from lm_eval.__main__ import cli_evaluate

    cli_evaluate()

# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Small random models of several families, a tokenizer and a batch for them."""

import tokenizers
import torch
import transformers

SMALL = dict(
    vocab_size=97,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    max_position_embeddings=64,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
)


NAMES = {name: SMALL[name] for name in ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads")}
NO_DROPOUT = dict(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
EXPERTS = dict(num_local_experts=4, num_experts_per_tok=2, output_router_logits=True)
CONFIGS = {
    "llama": lambda: transformers.LlamaConfig(**SMALL, tie_word_embeddings=False),
    "tied llama": lambda: transformers.LlamaConfig(**SMALL, tie_word_embeddings=True),
    "qwen3": lambda: transformers.Qwen3Config(**SMALL),
    "gemma2": lambda: transformers.Gemma2Config(**SMALL, final_logit_softcapping=2.0),
    "cohere2": lambda: transformers.Cohere2Config(**SMALL, logit_scale=0.25),
    "granite": lambda: transformers.GraniteConfig(**SMALL, logits_scaling=4.0),
    "mixtral": lambda: transformers.MixtralConfig(**SMALL, **EXPERTS),
    "gpt2": lambda: transformers.GPT2Config(**NAMES, n_positions=64, **NO_DROPOUT),
    "opt": lambda: transformers.OPTConfig(
        **NAMES, ffn_dim=48, max_position_embeddings=64, word_embed_proj_dim=32, dropout=0.0
    ),
}


def model_of(name):
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(CONFIGS[name]())
    # Scaled up: with a small random head, a softcap or a scale would have no visible effect.
    with torch.no_grad():
        model.get_output_embeddings().weight.mul_(20)
    return model


def tokenizer_of(words):
    """A token per word. The first four stand for padding, begin, end and unknown words."""
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({word: i for i, word in enumerate(words)}, unk_token=words[3]))
    made.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    special = dict(zip(("pad_token", "bos_token", "eos_token", "unk_token"), words))
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made, **special)


def batch():
    torch.manual_seed(1)
    ids = torch.randint(3, 97, (3, 17))
    labels = ids.clone()
    labels[0, :5] = -100
    return ids, labels


def loss_and_gradients(model, **inputs):
    model.zero_grad()
    loss = model(**inputs).loss
    loss.backward()
    return loss.detach(), {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def expect_close(got, want, bound=2e-5):
    """Compares two results of loss_and_gradients()."""
    torch.testing.assert_close(got[0], want[0], atol=1e-5, rtol=1e-5)
    assert got[1].keys() == want[1].keys()
    for name, grad in got[1].items():
        torch.testing.assert_close(grad, want[1][name], atol=bound, rtol=1e-3, msg=name)


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


def past_its_head():
    """A small Llama that computes its logits without calling its head."""

    class Past(transformers.LlamaForCausalLM):
        def forward(self, input_ids, labels=None, **kwargs):
            states = self.model(input_ids, **kwargs).last_hidden_state
            logits = torch.nn.functional.linear(states, self.lm_head.weight)
            loss = None if labels is None else self.loss_function(logits, labels, vocab_size=97)
            return transformers.modeling_outputs.CausalLMOutputWithPast(loss=loss, logits=logits)

    model = model_of("llama")
    model.__class__ = Past
    return model

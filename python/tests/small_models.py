# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Small random models of several families, and a batch for them."""

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


NO_DROPOUT = dict(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)


def model_of(name):
    torch.manual_seed(0)
    if name == "llama":
        config = transformers.LlamaConfig(**SMALL, tie_word_embeddings=False)
    elif name == "tied llama":
        config = transformers.LlamaConfig(**SMALL, tie_word_embeddings=True)
    elif name == "qwen3":
        config = transformers.Qwen3Config(**SMALL)
    elif name == "gemma2":
        config = transformers.Gemma2Config(**SMALL, final_logit_softcapping=2.0)
    elif name == "cohere2":
        config = transformers.Cohere2Config(**SMALL, logit_scale=0.25)
    elif name == "granite":
        config = transformers.GraniteConfig(**SMALL, logits_scaling=4.0)
    elif name == "mixtral":
        config = transformers.MixtralConfig(
            **SMALL, num_local_experts=4, num_experts_per_tok=2, output_router_logits=True
        )
    elif name == "gpt2":
        config = transformers.GPT2Config(
            vocab_size=97, n_embd=32, n_layer=2, n_head=4, n_positions=64, **NO_DROPOUT
        )
    elif name == "opt":
        config = transformers.OPTConfig(
            vocab_size=97,
            hidden_size=32,
            ffn_dim=48,
            num_hidden_layers=2,
            num_attention_heads=4,
            max_position_embeddings=64,
            word_embed_proj_dim=32,
            dropout=0.0,
        )
    model = transformers.AutoModelForCausalLM.from_config(config)
    # Scaled up: with a small random head, a softcap or a scale would have no visible effect.
    with torch.no_grad():
        model.get_output_embeddings().weight.mul_(20)
    return model


MODELS = ["llama", "tied llama", "qwen3", "gemma2", "cohere2", "granite", "mixtral", "gpt2", "opt"]


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

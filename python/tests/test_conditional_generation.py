# Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
"""Patched multimodal models whose loss is a causal LM's."""

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from small_models import SMALL, expect_close, loss_and_gradients  # noqa: E402

from logitless._logits_on_read import LogitsOnRead  # noqa: E402
from logitless.transformers import compute_loss_func, patch  # noqa: E402

IMAGE = 3  # the token for a part of an image
VISION = dict(
    hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=4, image_size=8, patch_size=4
)


def llava():
    vision = dict(model_type="clip_vision_model", **VISION)
    config = transformers.LlavaConfig(
        text_config=dict(model_type="llama", **SMALL), vision_config=vision, image_token_index=IMAGE
    )
    return transformers.LlavaForConditionalGeneration(config), dict(pixel_values=torch.randn(2, 3, 8, 8))


def gemma3():
    text = dict(**SMALL, final_logit_softcapping=2.0)
    config = transformers.Gemma3Config(text_config=text, vision_config=dict(VISION), mm_tokens_per_image=4)
    of_text = torch.zeros(2, 12, dtype=torch.int64)
    return transformers.Gemma3ForConditionalGeneration(config), dict(token_type_ids=of_text)


def chameleon():
    """A model that sets the logits of image tokens to the lowest number of their type."""
    images = dict(embed_dim=8, num_embeddings=1, latent_channels=8, base_channels=32, channel_multiplier=[1])
    config = transformers.ChameleonConfig(
        **SMALL,
        vq_config=dict(**images, num_res_blocks=1, resolution=16),
        vocabulary_map={"IMGIMGAZ": 2, "<image>": IMAGE},
    )
    return transformers.ChameleonForConditionalGeneration(config), {}


def moonshine():
    """A speech model with encoder and decoder, which passes its labels as shift_labels."""
    heads = {f"{part}_num_attention_heads": 4 for part in ("encoder", "decoder")}
    layers = {f"{part}_num_hidden_layers": 1 for part in ("encoder", "decoder")}
    names = ("vocab_size", "hidden_size", "intermediate_size", "pad_token_id", "bos_token_id", "eos_token_id")
    small = {name: SMALL[name] for name in names}
    config = transformers.MoonshineConfig(**small, **heads, **layers, decoder_start_token_id=1)
    return transformers.MoonshineForConditionalGeneration(config), dict(input_values=torch.randn(2, 16000))


@pytest.mark.parametrize("build", [llava, gemma3, chameleon, moonshine])
def test_loss_and_gradients_of_every_parameter(build):
    torch.manual_seed(0)
    model, inputs = build()
    with torch.no_grad():
        model.get_output_embeddings().weight.mul_(20)
    ids = torch.randint(4, 97, (2, 12))
    inputs["labels"] = ids.clone()
    inputs["labels"][:, :5] = -100
    if build is not moonshine:
        inputs["input_ids"] = ids
    if build is llava:
        ids[:, :4] = IMAGE
    want = loss_and_gradients(model, **inputs)
    expect_close(loss_and_gradients(patch(model), **inputs), want)
    assert isinstance(model(**inputs).logits, LogitsOnRead)


def test_compute_loss_func_refuses_an_encoder_and_a_decoder():
    """Its labels are not shifted, because the decoder's input is computed from them."""
    model, _ = moonshine()
    with pytest.raises(ValueError, match="MoonshineForConditionalGeneration is an encoder-decoder model"):
        compute_loss_func(patch(model))

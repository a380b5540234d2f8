// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Inputs drawn from a seed: each value is a function of (seed, tensor, index) alone, so that no number of threads,
// layout or order of filling changes it.
#pragma once

#include <cstdint>
#include <span>

#include "logitless/dtype.h"
#include "logitless/tensors.h"

namespace logitless::io {

/// Standard deviation of the seeded logits. At 4 a vocabulary of 150,000 gives its likeliest word a probability of
/// 0.1 to 0.3, as text does; near-uniform logits would hide errors of the softmax.
inline constexpr double kSeededLogitDeviation = 4.0;

/// hidden [N, H] ~ N(0, 1), rounded to `dtype`.
void fill_seeded_hidden(uint64_t seed, DType dtype, int64_t tokens, int64_t hidden_size, void* out);

/// logits [N, V] ~ N(0, kSeededLogitDeviation²), rounded to `dtype`.
void fill_seeded_logits(uint64_t seed, DType dtype, int64_t tokens, int64_t vocab_size, void* out);

/// The head ~ N(0, kSeededLogitDeviation² / H). Word v has the same values in both layouts.
void fill_seeded_head(uint64_t seed, DType dtype, HeadLayout layout, int64_t hidden_size, int64_t vocab_size,
                      void* out);

/// [V] ~ N(0, 1/4).
void fill_seeded_bias(uint64_t seed, DType dtype, int64_t vocab_size, void* out);

/// Uniform in [0, vocab_size), but for a share of `ignored_fraction` that is `ignore_index`.
void fill_seeded_targets(uint64_t seed, int64_t vocab_size, double ignored_fraction, int64_t ignore_index,
                         std::span<int64_t> out);

/// Uniform between 0.5 and 1.5.
void fill_seeded_class_weights(uint64_t seed, std::span<float> out);

/// Uniform in [low, high).
void fill_seeded_temperatures(uint64_t seed, double low, double high, std::span<double> out);

/// N(0, 1).
void fill_seeded_advantages(uint64_t seed, std::span<double> out);

/// Log-probabilities that some other policy could have: values + N(0, deviation²), at most 0. One name, one draw.
enum class SeededPolicy { kOld, kReference, kSampler, kMismatched, kMismatchedReference };
void move_seeded_logps(uint64_t seed, SeededPolicy which, double deviation, std::span<double> values);

/// 1, but 0 for a share of `dropped`.
void fill_seeded_mask(uint64_t seed, double dropped, std::span<uint8_t> out);

/// 0 or 1 alike; the first two entries differ.
void fill_seeded_labels(uint64_t seed, std::span<uint8_t> out);

}  // namespace logitless::io

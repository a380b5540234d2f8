// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "io/seeded_inputs.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "io/safetensors.h"

namespace logitless::io {
namespace {

enum class Stream : uint64_t {
  kHidden = 1,
  kHead,
  kBias,
  kTargets,
  kIgnored,
  kClassWeights,
  kTemperatures,
  kLogits,
  kAdvantages,
  kMask,
  kLabels,
  kPolicies,  ///< the last: one stream for each SeededPolicy follows
};

// The finaliser of SplitMix64 (Steele, Lea and Flood 2014): a bijection of 64-bit words that passes BigCrush as a
// counter generator.
uint64_t mix(uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

// Seed and stream choose where the counter begins.
uint64_t stream_start(uint64_t seed, Stream stream) {
  return mix(mix(seed + 0x9e3779b97f4a7c15u) + static_cast<uint64_t>(stream) * 0xd1b54a32d192ed03u);
}

uint64_t draw(uint64_t start, int64_t counter) {
  return mix(start + static_cast<uint64_t>(counter) * 0x9e3779b97f4a7c15u);
}

double uniform(uint64_t word) { return static_cast<double>(word >> 11) * 0x1p-53; }

struct NormalPair {
  float first;
  float second;
};

// Box and Muller (1958) from the two halves of one word. The radius stays finite because the upper half counts from 1.
NormalPair normal_pair(uint64_t word) {
  const float radius = std::sqrt(-2.0f * std::log(static_cast<float>((word >> 32) + 1) * 0x1p-32f));
  const float angle = static_cast<float>(word & 0xffffffffu) * (0x1p-32f * 2 * std::numbers::pi_v<float>);
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

template <class T>
T store(float value) {
  if constexpr (std::is_same_v<T, bfloat16>) {
    return to_bfloat16(value);
  } else if constexpr (std::is_same_v<T, float16>) {
    return to_float16(value);
  } else {
    return value;
  }
}

template <class F>
void with_type(DType dtype, void* out, F&& f) {
  if (dtype == DType::kFloat32) f(static_cast<float*>(out));
  if (dtype == DType::kFloat64) f(static_cast<double*>(out));
  if (dtype == DType::kBFloat16) f(static_cast<bfloat16*>(out));
  if (dtype == DType::kFloat16) f(static_cast<float16*>(out));
}

// Vectors of `length` normal values, one a word or token; element k of vector r comes from pair k/2 of that vector.
// Stored as [vectors, length].
template <class T>
void fill_rows(uint64_t start, float scale, int64_t vectors, int64_t length, T* out) {
  const int64_t pairs = (length + 1) / 2;
#pragma omp parallel for schedule(static)
  for (int64_t r = 0; r < vectors; ++r) {
    T* row = out + r * length;
    for (int64_t p = 0; p < pairs; ++p) {
      const NormalPair values = normal_pair(draw(start, r * pairs + p));
      row[2 * p] = store<T>(scale * values.first);
      if (2 * p + 1 < length) row[2 * p + 1] = store<T>(scale * values.second);
    }
  }
}

// The same vectors stored as [length, vectors]: both rows of a pair are filled together.
template <class T>
void fill_columns(uint64_t start, float scale, int64_t vectors, int64_t length, T* out) {
  const int64_t pairs = (length + 1) / 2;
#pragma omp parallel for schedule(static)
  for (int64_t p = 0; p < pairs; ++p) {
    T* even = out + 2 * p * vectors;
    T* odd = 2 * p + 1 < length ? even + vectors : nullptr;
    for (int64_t r = 0; r < vectors; ++r) {
      const NormalPair values = normal_pair(draw(start, r * pairs + p));
      even[r] = store<T>(scale * values.first);
      if (odd) odd[r] = store<T>(scale * values.second);
    }
  }
}

}  // namespace

void fill_seeded_hidden(uint64_t seed, DType dtype, int64_t tokens, int64_t hidden_size, void* out) {
  const uint64_t start = stream_start(seed, Stream::kHidden);
  with_type(dtype, out, [&](auto* values) { fill_rows(start, 1.0f, tokens, hidden_size, values); });
}

void fill_seeded_logits(uint64_t seed, DType dtype, int64_t tokens, int64_t vocab_size, void* out) {
  const uint64_t start = stream_start(seed, Stream::kLogits);
  const auto scale = static_cast<float>(kSeededLogitDeviation);
  with_type(dtype, out, [&](auto* values) { fill_rows(start, scale, tokens, vocab_size, values); });
}

void fill_seeded_head(uint64_t seed, DType dtype, HeadLayout layout, int64_t hidden_size, int64_t vocab_size,
                      void* out) {
  const uint64_t start = stream_start(seed, Stream::kHead);
  const auto scale = static_cast<float>(kSeededLogitDeviation / std::sqrt(static_cast<double>(hidden_size)));
  with_type(dtype, out, [&](auto* values) {
    if (layout == HeadLayout::kVocabHidden) {
      fill_rows(start, scale, vocab_size, hidden_size, values);
    } else {
      fill_columns(start, scale, vocab_size, hidden_size, values);
    }
  });
}

void fill_seeded_bias(uint64_t seed, DType dtype, int64_t vocab_size, void* out) {
  const uint64_t start = stream_start(seed, Stream::kBias);
  with_type(dtype, out, [&](auto* values) { fill_rows(start, 0.5f, vocab_size, 1, values); });
}

void fill_seeded_targets(uint64_t seed, int64_t vocab_size, double ignored_fraction, int64_t ignore_index,
                         std::span<int64_t> out) {
  const uint64_t words = stream_start(seed, Stream::kTargets), ignored = stream_start(seed, Stream::kIgnored);
  for (size_t i = 0; i < out.size(); ++i) {
    const auto counter = static_cast<int64_t>(i);
    const auto scaled = static_cast<unsigned __int128>(draw(words, counter)) * static_cast<uint64_t>(vocab_size);
    out[i] = uniform(draw(ignored, counter)) < ignored_fraction ? ignore_index : static_cast<int64_t>(scaled >> 64);
  }
}

void fill_seeded_class_weights(uint64_t seed, std::span<float> out) {
  const uint64_t start = stream_start(seed, Stream::kClassWeights);
  for (size_t v = 0; v < out.size(); ++v) {
    out[v] = static_cast<float>(0.5 + uniform(draw(start, static_cast<int64_t>(v))));
  }
}

void fill_seeded_temperatures(uint64_t seed, double low, double high, std::span<double> out) {
  const uint64_t start = stream_start(seed, Stream::kTemperatures);
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = low + (high - low) * uniform(draw(start, static_cast<int64_t>(i)));
  }
}

void fill_seeded_advantages(uint64_t seed, std::span<double> out) {
  const uint64_t start = stream_start(seed, Stream::kAdvantages);
  for (size_t i = 0; i < out.size(); ++i) out[i] = normal_pair(draw(start, static_cast<int64_t>(i))).first;
}

void move_seeded_logps(uint64_t seed, SeededPolicy which, double deviation, std::span<double> values) {
  const auto stream = static_cast<Stream>(static_cast<uint64_t>(Stream::kPolicies) + static_cast<uint64_t>(which));
  const uint64_t start = stream_start(seed, stream);
  for (size_t i = 0; i < values.size(); ++i) {
    const double moved = values[i] + deviation * normal_pair(draw(start, static_cast<int64_t>(i))).first;
    values[i] = std::min(moved, 0.0);
  }
}

void fill_seeded_mask(uint64_t seed, double dropped, std::span<uint8_t> out) {
  const uint64_t start = stream_start(seed, Stream::kMask);
  for (size_t i = 0; i < out.size(); ++i) out[i] = uniform(draw(start, static_cast<int64_t>(i))) >= dropped;
}

void fill_seeded_labels(uint64_t seed, std::span<uint8_t> out) {
  const uint64_t start = stream_start(seed, Stream::kLabels);
  for (size_t i = 0; i < out.size(); ++i) out[i] = draw(start, static_cast<int64_t>(i)) & 1;
  if (out.size() > 1) out[1] = !out[0];
}

}  // namespace logitless::io

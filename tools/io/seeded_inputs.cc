// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "io/seeded_inputs.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <stdexcept>
#include <string>

#include "io/safetensors.h"

namespace logitless::io {
namespace {

// The position of a tensor seeds its draws, so new ones go to the end.
constexpr std::string_view kTensors[] = {
    "hidden",          "lm_head",        "bias",       "targets",      "ignored",       "class_weights",
    "temperatures",    "logits",         "advantages", "mask",         "labels",        "old_logps",
    "ref_logps",       "sampling_logps", "kl_logps",   "kl_ref_logps", "teacher_logps", "teacher_hidden",
    "teacher_lm_head", "teacher_bias",   "set_ids",    "set_values",   "set_mass",      "scores",
    "reward_targets",  "lora_a",         "lora_b",     "token_weights"};

uint64_t number_of(std::string_view tensor) {
  const auto* const found = std::ranges::find(kTensors, tensor);
  if (found == std::end(kTensors)) throw std::logic_error("kTensors does not list " + std::string(tensor));
  return static_cast<uint64_t>(found - std::begin(kTensors)) + 1;
}

constexpr uint64_t kGolden = 0x9e3779b97f4a7c15u;

// The finaliser of SplitMix64 (Steele, Lea and Flood 2014): a bijection of 64-bit words that passes BigCrush
// as a counter generator.
uint64_t mix(uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

struct NormalPair {
  float first;
  float second;
};

// Box and Muller (1958) from the two halves of one word. The upper half counts from 1, so the radius is
// finite.
NormalPair normal_pair(uint64_t word) {
  const float radius = std::sqrt(-2.0f * std::log(static_cast<float>((word >> 32) + 1) * 0x1p-32f));
  const float angle = static_cast<float>(word & 0xffffffffu) * (0x1p-32f * 2 * std::numbers::pi_v<float>);
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

// Pair p of vector r becomes its elements 2p and 2p + 1. If `transposed`, row k of `out` holds element k of
// every vector, so a pair's two rows are filled together.
template <class T>
void fill_normal(const SeededNumbers& numbers, float scale, int64_t vectors, int64_t length, T* out, bool transposed) {
  const int64_t pairs = (length + 1) / 2, outer = transposed ? pairs : vectors, inner = transposed ? vectors : pairs;
  const int64_t vector_stride = transposed ? 1 : length, stride = transposed ? vectors : 1;
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < outer; ++i) {
    for (int64_t j = 0; j < inner; ++j) {
      const int64_t r = transposed ? j : i, p = transposed ? i : j;
      const NormalPair values = normal_pair(numbers.word(r * pairs + p));
      T* element = out + r * vector_stride + 2 * p * stride;
      element[0] = from_float<T>(scale * values.first);
      if (2 * p + 1 < length) element[stride] = from_float<T>(scale * values.second);
    }
  }
}

}  // namespace

// Seed and tensor choose the start of the counter.
SeededNumbers::SeededNumbers(uint64_t seed, std::string_view tensor)
    : start_(mix(mix(seed + kGolden) + number_of(tensor) * 0xd1b54a32d192ed03u)) {}

uint64_t SeededNumbers::word(int64_t i) const { return mix(start_ + static_cast<uint64_t>(i) * kGolden); }

double SeededNumbers::uniform(int64_t i) const { return static_cast<double>(word(i) >> 11) * 0x1p-53; }

int64_t SeededNumbers::below(int64_t i, int64_t bound) const {
  return static_cast<int64_t>(static_cast<unsigned __int128>(word(i)) * static_cast<uint64_t>(bound) >> 64);
}

double SeededNumbers::normal(int64_t i) const { return normal_pair(word(i)).first; }

void SeededNumbers::fill(DType dtype, double scale, int64_t vectors, int64_t length, void* out, bool transposed) const {
  with_type(dtype, [&]<class T>(T) {
    fill_normal(*this, static_cast<float>(scale), vectors, length, static_cast<T*>(out), transposed);
  });
}

}  // namespace logitless::io

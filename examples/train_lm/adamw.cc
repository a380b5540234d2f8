// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "adamw.h"

#include <algorithm>
#include <cmath>

void AdamW::begin_step(double learning_rate) {
  ++step_;
  decay_factor_ = static_cast<float>(1.0 - learning_rate * options_.weight_decay);
  rate_ = static_cast<float>(learning_rate / (1.0 - std::pow(options_.beta1, step_)));
  second_scale_ = static_cast<float>(1.0 / (1.0 - std::pow(options_.beta2, step_)));
}

// A plain loop, because every operation must round the same wherever an element is in its piece. Eigen's
// square root is approximate in vector registers, but exact for the remaining elements. CMakeLists.txt keeps
// the compiler from fusing a product and a sum in only some places.
void AdamW::update(size_t tensor, int64_t first, std::span<const float> gradient) {
  State& state = states_[tensor];
  const float new1 = static_cast<float>(1.0 - options_.beta1), new2 = static_cast<float>(1.0 - options_.beta2);
  const float epsilon = static_cast<float>(options_.epsilon);
  const float decay_factor = decay_factor_, rate = rate_, second_scale = second_scale_;
  const float* const g = gradient.data();
  float* const m = state.first_moment.data() + first;
  float* const v = state.second_moment.data() + first;
  float* const value = state.values.data() + first;
  const auto size = static_cast<int64_t>(gradient.size());
  for (int64_t i = 0; i < size; ++i) {
    m[i] += new1 * (g[i] - m[i]);
    v[i] += new2 * (g[i] * g[i] - v[i]);
    value[i] = decay_factor * value[i] - rate * m[i] / (std::sqrt(second_scale * v[i]) + epsilon);
  }
}

void AdamW::update_all(size_t tensor, std::span<const float> gradient) {
  // Four arrays of 16 KiB, so that a thread's share of a small tensor is whole pages
  constexpr int64_t kBlock = 4096;
  const int64_t size = static_cast<int64_t>(gradient.size());
#pragma omp parallel for schedule(static)
  for (int64_t first = 0; first < size; first += kBlock) {
    update(tensor, first, gradient.subspan(first, std::min(kBlock, size - first)));
  }
}

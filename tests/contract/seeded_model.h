// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// A model and targets from fixed seeds, of any size, for tests of the ways to compute gradients.
#pragma once

#include <cstdint>
#include <vector>

#include "logitless/logitless.h"
#include "support/every_task.h"
#include "support/views.h"

namespace logitless::testing {

struct SeededModel {
  int64_t tokens, hidden, vocab;
  std::vector<float> states, weight, bias;
  std::vector<int64_t> targets;
  double softcap = 0;

  /// `scale` is the standard deviation of the states: a larger one makes rows more peaked.
  SeededModel(int64_t tokens_, int64_t hidden_, int64_t vocab_, double scale = 1)
      : tokens(tokens_),
        hidden(hidden_),
        vocab(vocab_),
        states(normal(static_cast<size_t>(tokens * hidden), 1, scale)),
        weight(normal(static_cast<size_t>(vocab * hidden), 2)),
        bias(normal(static_cast<size_t>(vocab), 3, 0.5)) {
    for (int64_t i = 0; i < tokens; ++i) targets.push_back((i * 37) % vocab);
  }

  HiddenStates hidden_states() const { return {states.data(), 1, tokens, hidden}; }
  LmHead head() const {
    LmHead out(ConstMatrix(weight.data(), vocab, hidden));
    out.bias = {bias.data(), vocab};
    out.softcap = softcap;
    return out;
  }
  Targets ids() const { return {targets.data(), 1, tokens}; }

  /// Makes a row's states parallel to its target's row of the head, with `logit` as their product.
  void aim_at_target(int64_t row, double logit) {
    const float* target = weight.data() + targets[static_cast<size_t>(row)] * hidden;
    double square = 0;
    for (int64_t h = 0; h < hidden; ++h) square += static_cast<double>(target[h]) * static_cast<double>(target[h]);
    for (int64_t h = 0; h < hidden; ++h) {
      states[static_cast<size_t>(row * hidden + h)] = static_cast<float>(logit / square * target[h]);
    }
  }
};

}  // namespace logitless::testing

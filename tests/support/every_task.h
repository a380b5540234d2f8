// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// A small batch that every task can run on, from both sources, for tests that go through all of them.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "logitless/logitless.h"

namespace logitless::testing {

inline constexpr int64_t kBatch = 4, kTime = 5, kTokens = kBatch * kTime, kHidden = 7, kVocab = 101;

inline std::vector<float> normal(size_t count, uint64_t seed, double scale = 1) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> draw(0, scale);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(draw(random));
  return values;
}

/// What every task reads beside its source.
struct Batch {
  Batch() {
    for (int64_t i = 0; i < kTokens; ++i) {
      ids.push_back(i % 6 == 5 ? -100 : (i * 37) % kVocab);
      mask.push_back(i % 6 == 5 ? 0 : 1);
    }
  }

  Targets targets() const { return {ids.data(), kBatch, kTime}; }
  PolicyBatch policy() const {
    PolicyBatch batch;
    batch.chosen_ids = targets();
    batch.advantages = {advantages.data(), kBatch};
    batch.old_logps = {old_logps.data(), kTokens};
    batch.mask = mask;
    return batch;
  }
  Reference reference() const {
    Reference result;
    result.logps = {sums.data(), kBatch};
    return result;
  }
  KtoBatch kto() const {
    KtoBatch batch;
    batch.targets = targets();
    batch.labels = labels;
    batch.reference = reference();
    return batch;
  }

  std::vector<int64_t> ids;
  std::vector<uint8_t> mask;
  std::vector<uint8_t> labels = {1, 0, 0, 1};
  std::vector<float> advantages = {1.5F, -0.5F, 2, -1};
  std::vector<float> old_logps = std::vector<float>(kTokens, -4.6F);
  std::vector<float> sums = {-18, -20, -19, -17};
};

/// Calls a function with its tensors before the task's arguments. Outputs keep the gradients.
struct FromHidden {
  std::vector<float> hidden = normal(kTokens * kHidden, 1), weight = normal(kVocab * kHidden, 2),
                     bias = normal(kVocab, 3);

  HiddenStates states() const { return {hidden.data(), kBatch, kTime, kHidden}; }
  LmHead head() const {
    LmHead result(ConstMatrix(weight.data(), kVocab, kHidden));
    result.bias = {bias.data(), kVocab};
    return result;
  }
  template <class Function, class... Arguments>
  auto call(Function&& function, const Context& context, Arguments&&... arguments) const {
    return function(context, states(), head(), arguments...);
  }
  class Outputs {
   public:
    Gradients views() {
      Gradients result;
      result.d_hidden = {values_.data(), kTokens, kHidden};
      result.d_weight = {values_.data() + kTokens * kHidden, kVocab, kHidden};
      result.d_bias = {values_.data() + (kTokens + kVocab) * kHidden, kVocab};
      return result;
    }
    const std::vector<float>& values() const { return values_; }

   private:
    std::vector<float> values_ = std::vector<float>((kTokens + kVocab) * kHidden + kVocab, 99.0F);
  };
};

/// The same with finished logits.
struct FromLogits {
  std::vector<float> data = normal(kTokens * kVocab, 4, 3);

  template <class Function, class... Arguments>
  auto call(Function&& function, const Context& context, Arguments&&... arguments) const {
    return function(context, Logits(data.data(), kBatch, kTime, kVocab), arguments...);
  }
  class Outputs {
   public:
    LogitsGradient views() { return {values_.data(), kBatch, kTime, kVocab}; }
    const std::vector<float>& values() const { return values_; }

   private:
    std::vector<float> values_ = std::vector<float>(kTokens * kVocab, 99.0F);
  };
};

/// An overload set as an object.
#define LOGITLESS_TEST_CALL(name) [](auto&&... arguments) { return name(arguments...); }

}  // namespace logitless::testing

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// All logits are 0, so the loss is log V and d_bias is (softmax - one hot) / N.
#include <logitless/logitless.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

int main() {
  constexpr int64_t kTokens = 3, kHidden = 2, kVocab = 5;
  const std::vector<float> hidden(kTokens * kHidden, 1.0f), weight(kHidden * kVocab, 0.0f), bias(kVocab, 0.0f);
  const std::vector<int64_t> targets = {1, 1, 1};
  std::vector<float> d_bias(kVocab);

  logitless::LmHead head{.weight = logitless::transposed(logitless::view(weight.data(), {kHidden, kVocab}))};
  head.bias = bias;
  logitless::Gradients gradients;
  gradients.d_bias = logitless::view(d_bias.data(), {kVocab});
  const auto logits = logitless::Logits::of(logitless::view(hidden.data(), {kTokens, kHidden}), head);
  const auto result =
      logitless::run(logitless::Context(), logits, logitless::CrossEntropy{.targets = targets}, gradients);
  const bool right = std::abs(result.loss - std::log(5.0)) < 1e-6 && std::abs(d_bias[0] - 0.2f) < 1e-6f &&
                     std::abs(d_bias[1] + 0.8f) < 1e-6f;
  const bool same_version = std::string(LOGITLESS_VERSION_STRING) == logitless::version() &&
                            std::string(LOGITLESS_VERSION_STRING) == std::to_string(LOGITLESS_VERSION_MAJOR) + "." +
                                                                         std::to_string(LOGITLESS_VERSION_MINOR) + "." +
                                                                         std::to_string(LOGITLESS_VERSION_PATCH);
  try {
    logitless::Context({.threads = -1});
    return 1;
  } catch (const logitless::InvalidInput&) {  // needs the exception's type info across the library's border
  }
  return right && same_version ? 0 : 1;
}

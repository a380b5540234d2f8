// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// One fused forward and backward of an LM head with cross-entropy: the [tokens, vocab] logits never exist.
#include <cstdint>
#include <cstdio>
#include <exception>
#include <random>
#include <vector>

#include "logitless/logitless.h"

int main() try {
  constexpr int64_t tokens = 512, hidden_size = 256, vocab = 16000;

  std::mt19937 generator(1);
  std::normal_distribution<float> normal(0.0f, 1.0f);
  std::uniform_int_distribution<int64_t> word(0, vocab - 1);
  std::vector<float> hidden(tokens * hidden_size), weight(vocab * hidden_size), bias(vocab, 0.0f);
  std::vector<int64_t> targets(tokens);
  for (float& value : hidden) value = normal(generator);
  for (float& value : weight) value = 0.05f * normal(generator);
  for (int64_t& target : targets) target = word(generator);
  targets[3] = -100;  // ignore_index: this token takes no part and costs nothing

  // Views of what you own; nothing is copied.
  const logitless::HiddenStates states({hidden.data(), tokens, hidden_size});
  logitless::LmHead head({weight.data(), vocab, hidden_size}, logitless::HeadLayout::kVocabHidden);
  head.bias = {bias.data(), vocab};

  std::vector<float> d_hidden(hidden.size()), d_weight(weight.size()), d_bias(bias.size());
  logitless::Gradients gradients;  // leave out what you do not need, e.g. d_weight when the head is frozen
  gradients.d_hidden = {d_hidden.data(), tokens, hidden_size};
  gradients.d_weight = {d_weight.data(), vocab, hidden_size};
  gradients.d_bias = {d_bias.data(), vocab};

  const logitless::Context context({.workspace_bytes = size_t{8} << 20});
  const logitless::CrossEntropyOptions options;  // the mean over the tokens, ignore_index -100
  const logitless::CrossEntropyResult result =
      logitless::cross_entropy(context, states, head, {targets.data(), tokens}, options, gradients);

  std::printf("loss        %.6f (perplexity %.0f over %lld tokens)\n", result.loss, result.metrics.perplexity,
              static_cast<long long>(result.metrics.tokens));
  std::printf("d_hidden[0] %+.3e, d_weight[0] %+.3e, d_bias[0] %+.3e\n", d_hidden[0], d_weight[0], d_bias[0]);
  std::printf("plan        %s\n", result.plan.describe().c_str());
  std::printf("workspace   %.1f MiB (the logits alone would be %.1f MiB)\n", result.plan.workspace_bytes / 1048576.0,
              tokens * vocab * sizeof(float) / 1048576.0);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "minimal: %s\n", error.what());
  return 1;
}

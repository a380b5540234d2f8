// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// One fused forward and backward of an LM head with cross-entropy: the [N, V] logits never exist. The README
// quotes the code between [head] and [/head].
// [head]
#include <logitless/logitless.h>
using logitless::view;  // of your memory: nothing is copied

// Writes both gradients; leave out what you do not need. Create the context once: threads may share it.
logitless::CrossEntropyResult fused_head(const logitless::Context& context, int64_t N, int64_t H, int64_t V,
                                         const float* hidden, const float* weight, const int64_t* targets,
                                         float* d_hidden, float* d_weight) {
  return logitless::run(context, logitless::Logits::of(view(hidden, {N, H}), view(weight, {V, H})),
                        logitless::CrossEntropy{.targets = view(targets, {N})},  // -100 is ignored
                        {.d_hidden = view(d_hidden, {N, H}), .d_weight = view(d_weight, {V, H})});
}
// [/head]
#include <cstdio>
#include <exception>
#include <random>
#include <vector>

int main() try {
  constexpr int64_t tokens = 512, hidden_size = 256, vocab = 16000;

  std::mt19937 generator(1);
  std::normal_distribution<float> normal(0.0f, 1.0f);
  std::uniform_int_distribution<int64_t> token_id(0, vocab - 1);
  std::vector<float> hidden(tokens * hidden_size), weight(vocab * hidden_size);
  std::vector<int64_t> targets(tokens);
  for (float& value : hidden) value = normal(generator);
  for (float& value : weight) value = 0.05f * normal(generator);
  for (int64_t& target : targets) target = token_id(generator);
  targets[3] = -100;  // ignore_index: this token is skipped and costs nothing

  std::vector<float> d_hidden(hidden.size()), d_weight(weight.size());
  // One per program; threads may share it.
  const logitless::Context context({.workspace_bytes = size_t{8} << 20});
  const logitless::CrossEntropyResult result =
      fused_head(context, tokens, hidden_size, vocab, hidden.data(), weight.data(), targets.data(), d_hidden.data(),
                 d_weight.data());

  std::printf("loss        %.6f (perplexity %.0f over %lld tokens)\n", result.loss, result.metrics.perplexity,
              static_cast<long long>(result.metrics.tokens));
  std::printf("d_hidden[0] %+.3e, d_weight[0] %+.3e\n", d_hidden[0], d_weight[0]);
  std::printf("plan        %s\n", result.plan.describe().c_str());
  std::printf("workspace   %.1f MiB (the logits alone would be %.1f MiB)\n", result.plan.workspace_bytes / 1048576.0,
              tokens * vocab * sizeof(float) / 1048576.0);
  return 0;
} catch (const std::exception& error) {  // e.g. bad input: one line with the argument and its value
  std::fprintf(stderr, "minimal: %s\n", error.what());
  return 1;
}

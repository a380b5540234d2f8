// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The C++ of docs/heads.md and docs/losses-distillation.md, as one program that compares calls with equal
// ones. The pages quote the code between [name] and [/name].
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "logitless/logitless.h"

namespace {

using Floats = std::vector<float>;

constexpr double kTolerance = 1e-5;  // as in `logitless compare` for float32
constexpr int64_t N = 24, H = 64, V = 100, r = 4;

void check_near(double got, double want, const std::string& what) {
  if (std::abs(got - want) > kTolerance * std::abs(want)) throw std::runtime_error(what + " differs");
}

void check_near(const Floats& got, const Floats& want, const std::string& what) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    difference += std::pow(static_cast<double>(got[i]) - want[i], 2);
    norm += std::pow(static_cast<double>(want[i]), 2);
  }
  if (std::sqrt(difference) > kTolerance * std::sqrt(norm)) throw std::runtime_error(what + " differs");
}

Floats random_floats(int64_t count, float scale, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0.0f, scale);
  Floats values(static_cast<size_t>(count));
  for (float& value : values) value = normal(generator);
  return values;
}

/// The student of every call below.
struct Batch {
  Floats hidden = random_floats(N * H, 1.0f, 1), weight = random_floats(V * H, 0.2f, 2);
  std::vector<int64_t> targets = std::vector<int64_t>(N);

  Batch() {
    for (int64_t i = 0; i < N; ++i) targets[static_cast<size_t>(i)] = (7 * i) % V;
  }
};

/// Cross-entropy and its gradient of the hidden states, with a plain head.
double plain_loss(const logitless::Context& context, const Batch& batch, const Floats& weight, Floats& d_hidden) {
  const auto logits =
      logitless::Logits::of(logitless::view(batch.hidden.data(), {N, H}), logitless::view(weight.data(), {V, H}));
  const logitless::CrossEntropy task = {.targets = batch.targets};
  return logitless::run(context, logits, task, {.d_hidden = logitless::view(d_hidden.data(), {N, H})}).loss;
}

void head_with_lora(const logitless::Context& context, const Batch& batch) {
  const Floats first = random_floats(r * H, 0.1f, 3), second = random_floats(V * r, 0.1f, 4);
  const double alpha = 8;
  Floats merged = batch.weight, d_states(N * H), d_first(r * H), d_second(V * r), want(N * H);
  for (int64_t v = 0; v < V; ++v) {
    for (int64_t h = 0; h < H; ++h) {
      for (int64_t k = 0; k < r; ++k) {
        merged[v * H + h] += static_cast<float>(alpha / r) * second[v * r + k] * first[k * H + h];
      }
    }
  }
  const auto hidden = logitless::view(batch.hidden.data(), {N, H});
  const auto weight = logitless::view(batch.weight.data(), {V, H});
  const auto a = logitless::view(first.data(), {r, H}), b = logitless::view(second.data(), {V, r});
  const auto d_hidden = logitless::view(d_states.data(), {N, H});
  const auto d_a = logitless::view(d_first.data(), {r, H}), d_b = logitless::view(d_second.data(), {V, r});
  const logitless::CrossEntropy task = {.targets = batch.targets};
  // [lora]
  const logitless::LmHead head{.weight = weight, .lora = {.a = a, .b = b, .scale = alpha / r}};
  const auto result = logitless::run(context, logitless::Logits::of(hidden, head), task,
                                     {.d_hidden = d_hidden, .d_lora_a = d_a, .d_lora_b = d_b});
  // [/lora]
  check_near(result.loss, plain_loss(context, batch, merged, want), "the loss of a head with a LoRA");
  check_near(d_states, want, "the gradient of hidden states");
}

void packed_head(const logitless::Context& context, const Batch& batch) {
  // Blocks of GGUF's Q8_0: a float16 scale, here 2^-6, and 32 signed bytes.
  constexpr uint16_t scale = 0x2400;
  std::vector<uint8_t> packed;
  Floats unpacked, d_states(N * H), want(N * H);
  std::mt19937 generator(5);
  for (int64_t i = 0; i < V * H; ++i) {
    if (i % 32 == 0) {
      packed.push_back(scale & 0xff);
      packed.push_back(scale >> 8);
    }
    const auto number = static_cast<int8_t>(generator() % 64 - 32);
    packed.push_back(static_cast<uint8_t>(number));
    unpacked.push_back(static_cast<float>(number) / 64);
  }
  const uint8_t* rows = packed.data();
  // [packed]
  const int64_t row_bytes = H / 32 * 34;
  const logitless::LmHead head{.weight = logitless::view(rows, {V, row_bytes}), .packing = logitless::Packing::kQ8_0};
  // [/packed]
  const auto logits = logitless::Logits::of(logitless::view(batch.hidden.data(), {N, H}), head);
  const logitless::CrossEntropy task = {.targets = batch.targets};
  const auto result = logitless::run(context, logits, task, {.d_hidden = logitless::view(d_states.data(), {N, H})});
  check_near(result.loss, plain_loss(context, batch, unpacked, want), "the loss of a packed head");
  check_near(d_states, want, "the gradient of hidden states");
}

/// One teacher in five forms. Its sets of ids hold the whole vocabulary, so that all losses are the same.
void teachers(const logitless::Context& context, const Batch& batch) {
  constexpr int64_t width = 48, K = V;
  const Floats states = random_floats(N * width, 1.0f, 6), head = random_floats(V * width, 0.2f, 7);
  Floats values(N * V), probabilities(N * V);
  std::vector<double> log_probabilities(N * V);
  std::vector<int64_t> all_ids(N * K);
  for (int64_t i = 0; i < N; ++i) {
    double total = 0;
    for (int64_t v = 0; v < V; ++v) {
      const float* x = &states[i * width];
      values[i * V + v] = std::inner_product(x, x + width, &head[v * width], 0.0f);
      total += std::exp(static_cast<double>(values[i * V + v]));
      all_ids[i * K + v] = V - 1 - v;
    }
    for (int64_t v = 0; v < V; ++v) {
      log_probabilities[i * K + V - 1 - v] = values[i * V + v] - std::log(total);
      probabilities[i * V + v] = static_cast<float>(std::exp(log_probabilities[i * K + V - 1 - v]));
    }
  }
  Floats ordered(probabilities.rbegin(), probabilities.rend()), d_states(N * H);
  for (int64_t i = 0; i < N; ++i) {
    for (int64_t k = 0; k < K; ++k) ordered[i * K + k] = probabilities[i * V + V - 1 - k];
  }
  const auto logits =
      logitless::Logits::of(logitless::view(batch.hidden.data(), {N, H}), logitless::view(batch.weight.data(), {V, H}));
  const auto teacher_hidden = logitless::view(states.data(), {N, width});
  const auto teacher_weight = logitless::view(head.data(), {V, width});
  const auto teacher_logits = logitless::view(values.data(), {N, V});
  const auto rows = logitless::view(probabilities.data(), {N, V}), weights = logitless::view(ordered.data(), {N, K});
  const auto ids = logitless::view(all_ids.data(), {N, K});
  const auto logps = logitless::view(log_probabilities.data(), {N, K});
  const logitless::Gradients gradients = {.d_hidden = logitless::view(d_states.data(), {N, H})};
  using namespace logitless;
  // [teachers]
  const Distillation of_head = {.teacher = Logits::of(teacher_hidden, teacher_weight),
                                .loss_type = Divergence::kForwardKl};
  const Distillation of_logits = {.teacher = Logits::given(teacher_logits)};          // [N, V]
  const SetDistillation of_sets = {.teacher = {.sets = IdSets(ids), .logps = logps},  // both [N, K]
                                   .outside = OutsideSet::kTeacherRenormalised};
  const SoftCrossEntropy dense = {.targets = SoftTargets(rows), .subtract_entropy = true};  // rows: [N, V]
  const SoftCrossEntropy sparse = {.targets = SoftTargets(IdSets(ids), weights)};           // both [N, K]
  const double loss = run(context, logits, of_head, gradients).loss;  // and the others in the same way
  // [/teachers]
  check_near(run(context, logits, of_logits, gradients).loss, loss, "the loss of a teacher's logits");
  check_near(run(context, logits, of_sets, gradients).loss, loss, "the loss of a teacher's log-probabilities");
  check_near(run(context, logits, dense, gradients).loss, loss, "the loss of dense targets");
  const double entropy = run(context, logits, dense).metrics.mean_target_entropy;
  check_near(run(context, logits, sparse, gradients).loss, loss + entropy, "the loss of sparse targets");
}

}  // namespace

int main() try {
  const Batch batch;
  const logitless::Context context;
  head_with_lora(context, batch);
  packed_head(context, batch);
  teachers(context, batch);
  std::puts("a LoRA, a packed head and five forms of a teacher: all equal to the plain call");
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "heads_and_teachers: %s\n", error.what());
  return 1;
}

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The code of docs/trainers.md, as one program that compares each way of calling the library with the dense
// path on plain copies. The page quotes the code between [name] and [/name].
#include "logitless/logitless.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using Floats = std::vector<float>;
using Ids = std::vector<int64_t>;

constexpr double kTolerance = 1e-5;  // as in `logitless compare` for float32
constexpr int64_t B = 3, T = 32, H = 48, V = 1000, Vp = 1024;

void check(bool good, const std::string& what) {
  if (!good) throw std::runtime_error(what + " is wrong");
}

void check_near(const Floats& got, const Floats& want, const std::string& what) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    difference += std::pow(static_cast<double>(got[i]) - want[i], 2);
    norm += std::pow(static_cast<double>(want[i]), 2);
  }
  check(got.size() == want.size() && std::sqrt(difference) <= kTolerance * std::sqrt(norm), what);
}

Floats random_floats(int64_t count, float scale, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0.0f, scale);
  Floats values(static_cast<size_t>(count));
  for (float& value : values) value = normal(generator);
  return values;
}

Ids random_ids(int64_t count, unsigned seed) {
  std::mt19937 generator(seed);
  Ids ids(static_cast<size_t>(count));
  for (int64_t& id : ids) id = static_cast<int64_t>(generator() % V);
  return ids;
}

/// Loss and gradients of consecutive [N, H] rows, with all logits in memory.
struct Dense {
  double loss;
  Floats d_hidden, d_weight = Floats(V * H);

  Dense(const Floats& hidden, const Floats& weight, const Ids& targets) : d_hidden(hidden.size()) {
    const auto rows = static_cast<int64_t>(targets.size());
    Floats logits(rows * V);
    for (int64_t i = 0; i < rows * V; ++i) {
      logits[i] = std::inner_product(&hidden[i / V * H], &hidden[i / V * H] + H, &weight[i % V * H], 0.0f);
    }
    const auto finished = logitless::view(logits.data(), {rows, V});  // also their gradients, in place
    loss = logitless::run(logitless::Context(), logitless::Logits::given(finished),
                          logitless::CrossEntropy{.targets = targets}, {.d_logits = finished})
               .loss;
    for (int64_t i = 0; i < rows * V; ++i) {
      for (int64_t h = 0; h < H; ++h) {
        d_hidden[i / V * H + h] += logits[i] * weight[i % V * H + h];
        d_weight[i % V * H + h] += logits[i] * hidden[i / V * H + h];
      }
    }
  }
};

Floats sum(const Floats& a, const Floats& b) {
  Floats out = a;
  for (size_t i = 0; i < out.size(); ++i) out[i] += b[i];
  return out;
}

/// The batch that every step below trains on.
struct Batch {
  Floats hidden = random_floats(B * T * H, 1.0f, 1), weight = random_floats(V * H, 0.2f, 2);
  Ids targets = random_ids(B * T, 3);
  Dense dense{hidden, weight, targets};
};

void tied_embeddings(const logitless::Context& context, const Batch& batch) {
  const auto hidden = logitless::view(batch.hidden.data(), {B * T, H});
  const float* embedding = batch.weight.data();
  const Floats before = random_floats(V * H, 0.01f, 4);  // left by the embedding's own backward
  Floats sums = before;
  float* d_embedding = sums.data();
  const Ids& targets = batch.targets;
  // [tied]
  const logitless::LmHead head{.weight = logitless::view(embedding, {V, H})};
  logitless::Gradients gradients;
  gradients.d_weight = logitless::view(d_embedding, {V, H});
  gradients.d_weight_mode = logitless::WriteMode::kAccumulate;
  logitless::run(context, logitless::Logits::of(hidden, head), logitless::CrossEntropy{.targets = targets}, gradients);
  // [/tied]
  check_near(sums, sum(batch.dense.d_weight, before), "the gradient of a tied embedding");
}

void padded_vocabulary(const logitless::Context& context, const Batch& batch) {
  const auto hidden = logitless::view(batch.hidden.data(), {B * T, H});
  const Ids& targets = batch.targets;
  Floats tall(Vp * H, 77.0f), d_tall(Vp * H, 5.0f), wide(H * Vp, 77.0f), d_wide(H * Vp, 5.0f);
  for (int64_t v = 0; v < V; ++v) {
    for (int64_t h = 0; h < H; ++h) tall[v * H + h] = wide[h * Vp + v] = batch.weight[v * H + h];
  }
  const float* weight = tall.data();
  float* d_weight = d_tall.data();
  // [padded]
  const logitless::LmHead head{.weight = logitless::view(weight, {V, H})};  // the first V of Vp rows
  logitless::Gradients gradients;
  gradients.d_weight = logitless::view(d_weight, {V, H});  // rows V to Vp are unchanged
  const logitless::CrossEntropy task = {.targets = targets};
  const double loss = logitless::run(context, logitless::Logits::of(hidden, head), task, gradients).loss;
  // [/padded]
  check(std::abs(loss - batch.dense.loss) <= kTolerance * loss, "the loss of a padded vocabulary");
  check_near(Floats(d_tall.begin(), d_tall.begin() + V * H), batch.dense.d_weight,
             "the gradient of its vocabulary entries");
  check(std::all_of(d_tall.begin() + V * H, d_tall.end(), [](float x) { return x == 5.0f; }), "the padding's gradient");

  weight = wide.data();
  d_weight = d_wide.data();
  // [padded_wide]
  const logitless::LmHead wide_head{.weight = logitless::view(weight, {V, H}, {1, Vp})};  // stored as [H, Vp]
  gradients.d_weight = logitless::view(d_weight, {V, H}, {1, Vp});
  // [/padded_wide]
  logitless::run(context, logitless::Logits::of(hidden, wide_head), task, gradients);
  Floats entries(V * H);
  for (int64_t h = 0; h < H; ++h) {
    for (int64_t v = 0; v < Vp; ++v) {
      if (v < V) entries[v * H + h] = d_wide[h * Vp + v];
      check(v < V || d_wide[h * Vp + v] == 5.0f, "the padding's gradient");
    }
  }
  check_near(entries, batch.dense.d_weight, "the gradient of a wide head's vocabulary entries");
}

// [split]
struct HeadStep {
  logitless::Logits logits;
  logitless::CrossEntropy task;
  logitless::Forward<logitless::CrossEntropy> saved = {};  // a few numbers per token

  double forward(const logitless::Context& context) {
    saved = logitless::forward(context, logits, task);
    return saved.result.loss;
  }
  // The memory that `logits` and `task` point to must be unchanged since forward().
  void backward(const logitless::Context& context, double d_loss, const logitless::Gradients& gradients) {
    logitless::backward(context, logits, task, saved, d_loss, gradients);
  }
};
// [/split]

void forward_here_backward_there(const logitless::Context& context, const Batch& batch) {
  const auto hidden = logitless::view(batch.hidden.data(), {B * T, H});
  const logitless::LmHead head{.weight = logitless::view(batch.weight.data(), {V, H})};
  Floats d_hidden(B * T * H);
  logitless::Gradients gradients;
  gradients.d_hidden = logitless::view(d_hidden.data(), {B * T, H});
  HeadStep step{logitless::Logits::of(hidden, head), {.targets = batch.targets}};
  check(std::abs(step.forward(context) - batch.dense.loss) < 1e-5, "the forward's loss");
  step.backward(context, 0.5, gradients);
  Floats half = batch.dense.d_hidden;
  for (float& value : half) value *= 0.5f;
  check_near(d_hidden, half, "the gradient of half the loss");

  const Ids& targets = batch.targets;
  std::fill(d_hidden.begin(), d_hidden.end(), 0.0f);
  // [statistics]
  const auto logits = logitless::Logits::of(hidden, head);
  const logitless::TokenStatistics task = {.targets = targets};
  const auto saved = logitless::forward(context, logits, task);
  logitless::TokenGrads d_stats;  // your loss of stats.logp, stats.lse, ...; empty vectors mean zero
  const std::vector<double>& logps = saved.result.stats.logp;
  for (const double logp : logps) d_stats.logp.push_back(-std::exp(logp));  // L = -Σ p(target)
  logitless::backward(context, logits, task, saved, d_stats, gradients);
  // [/statistics]
  check(std::any_of(d_hidden.begin(), d_hidden.end(), [](float x) { return x != 0; }), "a loss of the statistics");
}

void accumulation(const logitless::Context& context, const Batch& batch) {
  const logitless::LmHead head{.weight = logitless::view(batch.weight.data(), {V, H})};
  Floats d_weight(V * H, std::nanf(""));
  double loss = 0;
  // [accumulation]
  logitless::CrossEntropy task;
  task.num_items_in_batch = B * T;  // targets that count in the whole batch, not only in this part
  logitless::Gradients gradients;
  gradients.d_weight = logitless::view(d_weight.data(), {V, H});
  for (int64_t b = 0; b < B; ++b) {
    const auto hidden = logitless::view(batch.hidden.data() + b * T * H, {T, H});
    task.targets = logitless::view(batch.targets.data() + b * T, {T});
    loss += logitless::run(context, logitless::Logits::of(hidden, head), task, gradients).loss;
    gradients.d_weight_mode = logitless::WriteMode::kAccumulate;  // from the second part on
  }
  // [/accumulation]
  check(std::abs(loss - batch.dense.loss) < 1e-5, "the loss of a batch in parts");
  check_near(d_weight, batch.dense.d_weight, "the gradient of a batch in parts");
}

void slices(const logitless::Context& context, const Batch& batch) {
  constexpr int64_t T1 = T + 1;  // hidden, its gradient and the ids are [B, T + 1, ...]
  const logitless::LmHead head{.weight = logitless::view(batch.weight.data(), {V, H})};
  Floats states(B * T1 * H, std::nanf("")), d_states(B * T1 * H, 0.0f);
  Ids padded_ids(B * T1, 0);
  for (int64_t b = 0; b < B; ++b) {
    std::copy_n(batch.hidden.begin() + b * T * H, T * H, states.begin() + b * T1 * H);
    std::copy_n(batch.targets.begin() + b * T, T, padded_ids.begin() + b * T1 + 1);
  }
  const float* hidden = states.data();
  float* d_hidden = d_states.data();
  const int64_t* ids = padded_ids.data();
  // [slices]
  const auto all_but_the_last = logitless::view(hidden, {B, T, H}, {T1 * H, H, 1});  // hidden[:, :-1]
  const auto all_but_the_first = logitless::view(ids + 1, {B, T}, {T1, 1});          // ids[:, 1:]
  logitless::Gradients gradients;
  gradients.d_hidden = logitless::view(d_hidden, {B, T, H}, {T1 * H, H, 1});  // writes only d_hidden[:, :-1]
  logitless::run(context, logitless::Logits::of(all_but_the_last, head),
                 logitless::CrossEntropy{.targets = all_but_the_first}, gradients);
  // [/slices]
  for (int64_t b = 0; b < B; ++b) {
    const auto begin = [b](const Floats& values, int64_t rows) { return values.begin() + b * rows * H; };
    check_near(Floats(begin(d_states, T1), begin(d_states, T1) + T * H),
               Floats(begin(batch.dense.d_hidden, T), begin(batch.dense.d_hidden, T) + T * H),
               "the gradient of a slice");
    check(d_states[(b * T1 + T) * H] == 0.0f, "the last position's gradient");
  }
}

void time_first(const logitless::Context& context, const Batch& batch) {
  const logitless::LmHead head{.weight = logitless::view(batch.weight.data(), {V, H})};
  Floats states(T * B * H), d_states(T * B * H), want(T * B * H);
  Ids time_first_ids(T * B);
  for (int64_t b = 0; b < B; ++b) {
    for (int64_t t = 0; t < T; ++t) {
      std::copy_n(batch.hidden.begin() + (b * T + t) * H, H, states.begin() + (t * B + b) * H);
      std::copy_n(batch.dense.d_hidden.begin() + (b * T + t) * H, H, want.begin() + (t * B + b) * H);
      time_first_ids[t * B + b] = batch.targets[b * T + t];
    }
  }
  const float* hidden = states.data();
  float* d_hidden = d_states.data();
  const int64_t* ids = time_first_ids.data();
  // [time_first]
  logitless::Gradients gradients;
  gradients.d_hidden = logitless::view(d_hidden, {B, T, H}, {H, B * H, 1});
  const auto transposed = logitless::view(hidden, {B, T, H}, {H, B * H, 1});
  const auto transposed_ids = logitless::view(ids, {B, T}, {1, B});
  const logitless::CrossEntropy task = {.targets = transposed_ids};
  const double loss = logitless::run(context, logitless::Logits::of(transposed, head), task, gradients).loss;
  // [/time_first]
  check(std::abs(loss - batch.dense.loss) < 1e-5, "the loss of data in [T, B, H]");
  check_near(d_states, want, "the gradient of data in [T, B, H]");
}

}  // namespace

int main() try {
  const Batch batch;
  for (const auto plan : {logitless::PlanKind::kOnePass, logitless::PlanKind::kTwoPass}) {
    const logitless::Context context({.workspace_bytes = size_t{16} << 20, .plan = plan});
    const logitless::Context any({.workspace_bytes = size_t{16} << 20});
    tied_embeddings(context, batch);
    padded_vocabulary(context, batch);
    forward_here_backward_there(any, batch);  // two pass, whatever plan a combined call uses
    accumulation(context, batch);
    slices(context, batch);
    time_first(context, batch);
  }
  std::puts("tied, padded, split, accumulated, sliced and transposed: all equal to the dense path");
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}

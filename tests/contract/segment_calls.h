// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Calls that compute gradients of chosen segments, and their comparison with exact ones.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "logitless/logitless.h"
#include "seeded_model.h"
#include "support/calls.h"
#include "support/views.h"

namespace logitless::testing {

/// All gradients of one call, one after another: d_hidden, d_weight and d_bias.
struct Outputs {
  std::vector<float> values;
  int64_t tokens, hidden, vocab;

  explicit Outputs(const SeededModel& model)
      : values(static_cast<size_t>((model.tokens + model.vocab) * model.hidden + model.vocab),
               std::numeric_limits<float>::quiet_NaN()),
        tokens(model.tokens),
        hidden(model.hidden),
        vocab(model.vocab) {}
  Gradients views() {
    Gradients out;
    out.d_hidden = {values.data(), tokens, hidden};
    out.d_weight = {values.data() + tokens * hidden, vocab, hidden};
    out.d_bias = {values.data() + (tokens + vocab) * hidden, vocab};
    return out;
  }
  /// Returns the Frobenius norms of d_hidden and of d_weight, or of their differences from `other`.
  std::array<double, 2> norms(const Outputs* other = nullptr) const {
    std::array<double, 2> squares = {0, 0};
    for (size_t i = 0; i < static_cast<size_t>((tokens + vocab) * hidden); ++i) {
      const double value = static_cast<double>(values[i]) - static_cast<double>(other ? other->values[i] : 0);
      squares[i < static_cast<size_t>(tokens * hidden) ? 0 : 1] += value * value;
    }
    return {std::sqrt(squares[0]), std::sqrt(squares[1])};
  }
};

inline BackwardOptions sampled(double theta, int64_t seed = 0) {
  BackwardOptions out;
  out.mode = BackwardMode::kSampled;
  out.theta = theta;
  out.seed = seed;
  return out;
}
inline BackwardOptions by_noise(double noise, int64_t seed = 0) {
  BackwardOptions out = sampled(0, seed);
  out.noise = noise;
  return out;
}
inline BackwardOptions certified(double tolerance) {
  BackwardOptions out;
  out.mode = BackwardMode::kCertified;
  out.tolerance = tolerance;
  return out;
}

inline ContextOptions options_of(int threads = 1, PlanKind plan = PlanKind::kAuto) {
  ContextOptions options;
  options.threads = threads;
  options.plan = plan;
  options.row_tile = 16;
  options.vocab_tile = 128;
  return options;
}

/// A call that computes the gradients of a loss, and returns the plan that ran.
using Caller = std::function<Plan(const Context&, const Gradients&)>;

inline Plan run_cross_entropy(const SeededModel& model, const Context& context, const Gradients& gradients,
                              const CrossEntropy& options = {}) {
  return cross_entropy(context, model.hidden_states(), model.head(), model.ids(), options, gradients).plan;
}

inline Caller cross_entropy_of(const SeededModel& model, const CrossEntropy& options = {}) {
  return [&model, options](const Context& context, const Gradients& gradients) {
    return run_cross_entropy(model, context, gradients, options);
  };
}

/// Returns all gradients that `run` computes; `plan` receives the plan that ran.
inline Outputs outputs_of(const SeededModel& model, const Caller& run, const BackwardOptions& backward,
                          Plan* plan = nullptr, ContextOptions options = options_of()) {
  Outputs outputs(model);
  Gradients views = outputs.views();
  views.backward = backward;
  const Plan ran = run(Context(options), views);
  if (plan) *plan = ran;
  return outputs;
}

/// Expects the mean of each element over many seeds to be close to the exact one, relative to its own spread.
/// Every pair should be drawn many times, so the model must not have peaked rows.
inline void expect_unbiased(const SeededModel& model, const Caller& run, double theta, double most_kept = 0.5) {
  constexpr int kSeeds = 4000;
  const Outputs exact = outputs_of(model, run, {}, nullptr, options_of(1, PlanKind::kTwoPass));
  const size_t count = exact.values.size();
  std::vector<double> sums(count), squares(count);
  double most = 0, kept = 0;
  for (const float value : exact.values) most = std::max(most, std::abs(static_cast<double>(value)));
  for (int seed = 0; seed < kSeeds; ++seed) {
    Plan plan;
    const Outputs one = outputs_of(model, run, sampled(theta, seed), &plan);
    ASSERT_LT(plan.kept_share, most_kept);
    kept += plan.kept_share / kSeeds;
    for (size_t i = 0; i < count; ++i) {
      const double off = static_cast<double>(one.values[i]) - static_cast<double>(exact.values[i]);
      sums[i] += off;
      squares[i] += off * off;
    }
  }
  ASSERT_GT(kept, 0.05);
  double chi_square = 0, worst = 0;
  int random = 0;
  for (size_t i = 0; i < count; ++i) {
    const double mean = sums[i] / kSeeds, variance = squares[i] / kSeeds;
    const double error = std::sqrt(variance / kSeeds);
    // Rounding is not noise.
    if (variance < 1e-12 * most * most) {
      ASSERT_LT(std::abs(mean), 3e-6 * most) << i;
      continue;
    }
    ++random;
    chi_square += mean * mean / (error * error);
    worst = std::max(worst, std::abs(mean) / error);
  }
  ASSERT_GT(random, static_cast<int>(count / 8));
  EXPECT_LT(worst, 5) << "standard errors, of " << random << " elements";
  // One random number per row affects all elements of the row, so there are about a hundred independent ones.
  if (model.tokens > 1) {
    EXPECT_NEAR(chi_square / random, 1, 0.5);
  }
}

/// Expects the larger relative error of d_hidden and d_weight, over many seeds, to be about `noise`.
inline void expect_noise(const SeededModel& model, const Caller& run, double noise) {
  const Outputs exact = outputs_of(model, run, {}, nullptr, options_of(2, PlanKind::kTwoPass));
  constexpr int kSeeds = 5;
  std::array<double, 2> squares = {0, 0};
  for (int seed = 0; seed < kSeeds; ++seed) {
    Plan plan;
    const auto errors = outputs_of(model, run, by_noise(noise, seed), &plan, options_of(2)).norms(&exact);
    ASSERT_LT(plan.kept_share, 0.5) << noise;
    EXPECT_NEAR(plan.noise_estimate, noise, 1e-3 * noise);
    for (size_t k = 0; k < 2; ++k) squares[k] += std::pow(errors[k] / exact.norms()[k], 2) / kSeeds;
  }
  const double reached = std::sqrt(std::max(squares[0], squares[1]));
  EXPECT_GT(reached, noise / 1.3);
  EXPECT_LT(reached, noise * 1.3);
}

}  // namespace logitless::testing

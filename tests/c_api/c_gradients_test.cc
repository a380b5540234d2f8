// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Ways to make gradients, through C: they have the bits of those through C++, and every option of theirs
// arrives.
#include <gtest/gtest.h>

#include <cstddef>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "c_call.h"
#include "logitless/c_api.h"
#include "logitless/fields.h"
#include "logitless/logitless.h"
#include "support/inputs.h"

namespace logitless::testing {
namespace {

// Enough segments of the vocabulary that a choice of them pays.
InputSpec spec_of_segments() {
  InputSpec spec;
  spec.tokens = 30;
  spec.vocab = 1500;
  spec.hidden = 24;
  return spec;
}

TEST(CGradients, GradientsOfChosenSegmentsHaveTheBitsOfCxx) {
  const InputSpec spec = spec_of_segments();
  CCall c(spec), cxx(spec);
  logitless_backward_options backward;
  LOGITLESS_INIT(backward_options, &backward);
  const BackwardOptions defaults;
  EXPECT_EQ(backward.mode, LOGITLESS_BACKWARD_EXACT);
  EXPECT_EQ(backward.noise, defaults.noise);
  EXPECT_EQ(backward.tolerance, defaults.tolerance);
  EXPECT_EQ(std::string(logitless_backward_mode_name(LOGITLESS_BACKWARD_CERTIFIED)), "certified");
  c.gradients.backward = &backward;
  logitless_cross_entropy_result result;
  LOGITLESS_INIT(cross_entropy_result, &result);
  for (const int32_t mode : {LOGITLESS_BACKWARD_SAMPLED, LOGITLESS_BACKWARD_CERTIFIED, LOGITLESS_BACKWARD_EXACT}) {
    backward.mode = mode;
    backward.theta = 0.2;
    backward.tolerance = 0.3;
    backward.seed = 12;
    logitless_plan plan;
    LOGITLESS_INIT(plan, &plan);
    ASSERT_EQ(logitless_cross_entropy(c.context, &c.source, &c.targets, nullptr, &c.gradients, &result, &plan),
              LOGITLESS_OK)
        << logitless_last_error();
    cxx.wanted.backward.mode = static_cast<BackwardMode>(mode);
    cxx.wanted.backward.theta = 0.2;
    cxx.wanted.backward.tolerance = 0.3;
    cxx.wanted.backward.seed = 12;
    const Plan same = cross_entropy(Context(), cxx.inputs.hidden_view(), cxx.inputs.head_view(),
                                    cxx.inputs.targets_view(), {}, cxx.wanted)
                          .plan;
    EXPECT_EQ(c.outputs.bytes(), cxx.outputs.bytes());
    EXPECT_EQ(plan.kept_share, same.kept_share);
    EXPECT_EQ(plan.d_hidden_bound, same.d_hidden_bound);
    EXPECT_EQ(plan.d_weight_bound, same.d_weight_bound);
    EXPECT_EQ(plan.kept_share < 1, mode != LOGITLESS_BACKWARD_EXACT);
  }
  backward.mode = 7;
  EXPECT_EQ(logitless_cross_entropy(c.context, &c.source, &c.targets, nullptr, &c.gradients, &result, nullptr),
            LOGITLESS_INVALID_INPUT);
  EXPECT_NE(std::string(logitless_last_error()).find("mode = 7"), std::string::npos) << logitless_last_error();
  backward.mode = LOGITLESS_BACKWARD_SAMPLED;
  backward.noise = 10;
  EXPECT_EQ(logitless_cross_entropy(c.context, &c.source, &c.targets, nullptr, &c.gradients, &result, nullptr),
            LOGITLESS_INVALID_INPUT);
  EXPECT_NE(std::string(logitless_last_error()).find("backward.noise = 10"), std::string::npos);
}

// The bytes of all gradients of a cross-entropy, and what its plan says of how they were made.
struct Made {
  std::vector<std::byte> gradients;
  double kept_share = 0, noise_estimate = 0, d_hidden_bound = 0, d_weight_bound = 0;
  std::string description;
  bool operator==(const Made&) const = default;
};

Made made_by(const logitless_backward_options& backward) {
  CCall c(spec_of_segments());
  c.gradients.backward = &backward;
  logitless_plan plan;
  LOGITLESS_INIT(plan, &plan);
  EXPECT_EQ(logitless_cross_entropy(c.context, &c.source, &c.targets, nullptr, &c.gradients, nullptr, &plan),
            LOGITLESS_OK)
      << logitless_last_error();
  return {c.outputs.bytes(),   plan.kept_share,     plan.noise_estimate,
          plan.d_hidden_bound, plan.d_weight_bound, plan.description};
}

Made made_by(const BackwardOptions& backward) {
  CCall cxx(spec_of_segments());
  cxx.wanted.backward = backward;
  const Plan plan = cross_entropy(Context(), cxx.inputs.hidden_view(), cxx.inputs.head_view(),
                                  cxx.inputs.targets_view(), {}, cxx.wanted)
                        .plan;
  return {cxx.outputs.bytes(), plan.kept_share,     plan.noise_estimate,
          plan.d_hidden_bound, plan.d_weight_bound, plan.describe()};
}

// Options differ in one member from others, which give other bits: `prepare` gives it something to act on.
TEST(CGradients, EveryOptionOfTheBackwardArrives) {
  const Made exact = made_by(BackwardOptions());
  std::set<std::string> arrived;
  const auto expect_arrives = [&](const std::string& member, const auto& prepare, const auto& set) {
    SCOPED_TRACE(member);
    logitless_backward_options options;
    LOGITLESS_INIT(backward_options, &options);
    BackwardOptions before;
    prepare(options), prepare(before);
    BackwardOptions same = before;
    set(options), set(same);
    const Made got = made_by(options), want = made_by(same);
    EXPECT_TRUE(got == want) << got.description << " is not " << want.description;
    EXPECT_LT(want.kept_share, 1);
    EXPECT_FALSE(want.gradients == made_by(before).gradients);
    EXPECT_FALSE(want.gradients == exact.gradients);
    arrived.insert(member);
  };
  const auto sampled = [](auto& o) { o.mode = static_cast<decltype(o.mode)>(BackwardMode::kSampled); };
  const auto certified = [](auto& o) { o.mode = static_cast<decltype(o.mode)>(BackwardMode::kCertified); };
  const auto noisy = [](auto& o) { o.noise = 0.2; };
  const auto tolerant = [](auto& o) { o.tolerance = 0.3; };
  expect_arrives("mode", noisy, sampled);
  expect_arrives("mode", tolerant, certified);
  expect_arrives("noise", sampled, noisy);
  expect_arrives("tolerance", certified, tolerant);
  expect_arrives("theta", sampled, [](auto& o) { o.theta = 0.2; });
  const auto sampled_by_noise = [&](auto& o) { sampled(o), noisy(o); };
  expect_arrives("seed", sampled_by_noise, [](auto& o) { o.seed = 12; });
  visit_fields(
      FieldsOf<BackwardOptions>(),
      [&](const Field& field, const auto&) { EXPECT_TRUE(arrived.contains(field.name)) << field.name; },
      BackwardOptions());
}

// Heads of every type, without a LoRA and with one.
std::vector<std::pair<InputSpec, int64_t>> heads_and_ranks() {
  std::vector<std::pair<InputSpec, int64_t>> out;
  for (const InputSpec& spec : specs()) {
    for (const int64_t rank : {0, 3}) {
      if (rank == 0 || spec.dtype != DType::kFloat64) out.emplace_back(spec, rank);
    }
  }
  return out;
}

TEST(CGradients, ExpectedRowsHaveTheBitsOfCxx) {
  for (const auto& [spec, rank] : heads_and_ranks()) {
    CCall c(spec), cxx(spec);
    LmHead head = cxx.inputs.head_view();
    const std::vector<float> a(static_cast<size_t>(rank * spec.hidden), 0.25F);
    const std::vector<float> b(static_cast<size_t>(spec.vocab * rank), 0.5F);
    if (rank > 0) {
      c.head.lora_a = {a.data(), LOGITLESS_FLOAT32, rank, spec.hidden, 0};
      c.head.lora_b = {b.data(), LOGITLESS_FLOAT32, spec.vocab, rank, 0};
      head.lora = {{a.data(), rank, spec.hidden}, {b.data(), spec.vocab, rank}};
    }
    const auto n = static_cast<size_t>(spec.tokens);
    std::vector<double> logp(n), lse(n), max_logit(n), log_sum(n), f64(n * static_cast<size_t>(spec.hidden + rank));
    std::vector<float> f32(f64.size());
    const bool in_double = spec.dtype == DType::kFloat64;
    logitless_token_stats stats;
    LOGITLESS_INIT(token_stats, &stats);
    stats.tokens = spec.tokens;
    stats.logp = logp.data(), stats.lse = lse.data();
    stats.max_logit = max_logit.data(), stats.log_sum = log_sum.data();
    stats.expected_f32 = in_double ? nullptr : f32.data();
    stats.expected_f64 = in_double ? f64.data() : nullptr;
    EXPECT_EQ(logitless_compute_token_stats(c.context, &c.source, &c.targets, nullptr, nullptr, &stats, nullptr),
              LOGITLESS_INVALID_INPUT);
    EXPECT_NE(std::string(logitless_last_error()).find("the context's plan is not expected_row"), std::string::npos);
    logitless_context_options options;
    LOGITLESS_INIT(context_options, &options);
    options.plan = LOGITLESS_PLAN_EXPECTED_ROW;
    logitless_context* context = nullptr;
    ASSERT_EQ(logitless_context_create(&options, &context), LOGITLESS_OK);
    ASSERT_EQ(logitless_compute_token_stats(context, &c.source, &c.targets, nullptr, nullptr, &stats, nullptr),
              LOGITLESS_OK)
        << logitless_last_error();
    const Context same({.plan = PlanKind::kExpectedRow});
    const TokenStats wanted = compute_token_stats(same, cxx.inputs.hidden_view(), head, cxx.inputs.targets_view());
    EXPECT_TRUE(in_double ? f64 == wanted.expected.f64 : f32 == wanted.expected.f32);

    std::vector<double> g_logp(n, -0.25);
    logitless_token_grads grads;
    LOGITLESS_INIT(token_grads, &grads);
    grads.tokens = spec.tokens;
    grads.logp = g_logp.data();
    logitless_plan plan;
    LOGITLESS_INIT(plan, &plan);
    ASSERT_EQ(logitless_backpropagate_token_grads(context, &c.source, &c.targets, nullptr, nullptr, &stats, &grads,
                                                  &c.gradients, &plan),
              LOGITLESS_OK)
        << logitless_last_error();
    EXPECT_EQ(plan.kind, LOGITLESS_PLAN_EXPECTED_ROW);
    TokenGrads same_grads;
    same_grads.logp = g_logp;
    backpropagate_token_grads(same, cxx.inputs.hidden_view(), head, cxx.inputs.targets_view(), {}, {}, wanted,
                              same_grads, cxx.wanted);
    EXPECT_EQ(c.outputs.bytes(), cxx.outputs.bytes());
    // The other type than that of the sums.
    stats.expected_f32 = in_double ? f32.data() : nullptr;
    stats.expected_f64 = in_double ? nullptr : f64.data();
    EXPECT_EQ(logitless_compute_token_stats(context, &c.source, &c.targets, nullptr, nullptr, &stats, nullptr),
              LOGITLESS_INVALID_INPUT);
    EXPECT_NE(std::string(logitless_last_error()).find("the type of the sums"), std::string::npos);
    logitless_context_free(context);
  }
}

}  // namespace
}  // namespace logitless::testing

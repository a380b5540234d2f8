// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Calls that are drawn too rarely, or whose checks drawn calls lack. Mutants of tests/mutants.txt name this
// suite.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "../c_api/c_call.h"
#include "core/views.h"
#include "generator/expect_call.h"
#include "logitless/logitless.h"

namespace logitless::testing {
namespace mutant_calls_test {

std::vector<float> numbers(int64_t count, double step, double scale = 1) {
  std::vector<float> out;
  for (int64_t i = 1; i <= count; ++i) out.push_back(static_cast<float>(scale * std::sin(step * double(i * i))));
  return out;
}

template <class Call>
std::string refusal_of(const Call& call) {
  try {
    call();
  } catch (const InvalidInput& error) {
    return error.what();
  }
  return "";
}

template <class Set>
void all_right(uint64_t seeds, const std::string& task, const std::vector<std::pair<std::string, std::string>>& options,
               const Set& set) {
  DrawnCall call;
  call.task = task, call.options = options;
  set(call);
  for (call.seed = 1; call.seed <= seeds; ++call.seed) expect_right(call);
}

TEST(NamedCalls, OfRareSettings) {
  // Chosen answers have one token, rejected ones three or more.
  all_right(5, "preference_loss", {{"ld_alpha", "0.25"}},
            [](DrawnCall& c) { c.time = 3, c.packed = c.model_as_reference = true; });
  for (const char* const weights : {"[1, 0.25]", "[0, 1]", "[0, 0]"}) {
    all_right(1, "preference_loss", {{"loss_type", "[hinge, sft]"}, {"loss_weights", weights}},
              [](DrawnCall& c) { c.time = 5; });
  }
  // A discount counts positions, including ignored tokens.
  all_right(1, "policy_loss", {{"teacher_discount", "0.5"}, {"teacher_weight", "0.5"}},
            [](DrawnCall& c) { c.time = 8, c.mask = true; });
  // With some seeds the masked entry has weight 0. Its logit of -inf must then have no effect.
  all_right(40, "cross_entropy", {{"label_smoothing", "0.25"}},
            [](DrawnCall& c) { c.values = Values::kMasked, c.bias = c.weights_of_entries = true; });
  all_right(1, "cross_entropy", {{"label_smoothing", "0.25"}},
            [](DrawnCall& c) { c.vocab = 31, c.slices = 2, c.bias = c.weights_of_entries = true; });
  // If the weights of all tokens sum to 0, only the z-loss remains, because its mean is over tokens.
  for (const char* const z_loss : {"0", "0.5"}) {
    all_right(40, "cross_entropy", {{"label_smoothing", "0.25"}, {"z_loss", z_loss}},
              [](DrawnCall& c) { c.sequences = c.time = 1, c.weights_of_entries = true; });
  }
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16, DType::kFloat64}) {
    all_right(1, "cross_entropy", {}, [&](DrawnCall& c) { c.vocab_ids = c.bias = true, c.states = c.head = dtype; });
  }
  all_right(1, "cross_entropy", {}, [](DrawnCall& c) { c.lora_rank = 2, c.all_ignored = true; });
  // With three entries, sets of two or more ids contain one of them twice.
  all_right(1, "id_logps", {},
            [](DrawnCall& c) { c.vocab = 3, c.time = 8, c.d_weight = false, c.plan = PlanKind::kExpectedRow; });
}

// The reference has 2,000 times as many components as the policy.
TEST(NamedCalls, APlanCountsAReferenceThatNeedsMore) {
  constexpr int64_t kTokens = 64, kVocab = 40, kHidden = 4000;
  const std::vector<bfloat16> x(kTokens * kHidden), w(kVocab * kHidden);
  std::vector<int64_t> ids(kTokens);
  for (size_t i = 1; i < ids.size(); i += 3) ids[i] = -100;  // so that rows are gathered
  const Logits policy = Logits::of(view(x.data(), {2, kTokens / 2, 2}), view(w.data(), {kVocab, 2}));
  const Logits model = Logits::of(view(x.data(), {2, kTokens / 2, kHidden}), view(w.data(), {kVocab, kHidden}));
  const size_t of_model = plan(Context(), model, TokenStatistics{ids}).workspace_bytes;
  EXPECT_LT(plan(Context(), policy, TokenStatistics{ids}).workspace_bytes, of_model);
  EXPECT_GE(plan(Context(), policy, PreferenceLoss{.targets = ids, .reference = model}).workspace_bytes, of_model);
}

TEST(NamedCalls, OutputsMayTouchInputsAndNotReachIntoThem) {
  std::vector<float> both = numbers(2 * 6, 1);
  const std::vector<float> w = numbers(5 * 3, 2);
  const std::vector<int64_t> ids = {4, 0};
  const Logits logits = Logits::of(view(both.data(), {2, 3}), view(w.data(), {5, 3}));
  const auto refusal = [&](float* d_hidden) {
    return refusal_of([&] {
      run(Context(), logits, CrossEntropy{.targets = ids}, {.d_hidden = view(d_hidden, {2, 3})});
    });
  };
  EXPECT_EQ(refusal(both.data() + 6), "");  // begins where hidden ends
  EXPECT_EQ(refusal(both.data() + 5), "output d_hidden overlaps input hidden");
}

TEST(NamedCalls, SubnormalFloat16OfVectors) {
  const float16 halves[] = {{0x0001}, {0x83ff}};
  const ConstVector values(halves, 2);
  EXPECT_EQ(core::read(values, 0), 0x1p-24);
  EXPECT_EQ(core::read(values, 1), -1023 * 0x1p-24);
}

// Two entries are equal, and the other two are swapped: the slope is ½ sign(s - t), and 0 for the equal ones.
TEST(NamedCalls, TotalVariationHasNoSlopeWhereBothAreEqual) {
  const std::vector<float> s = {1, 0, -1, -1}, t = {0, 1, -1, -1};
  std::vector<float> d(4);
  Distillation task{.teacher = Logits::given(view(t.data(), {1, 4}))};
  task.loss_type = Divergence::kTotalVariation;
  run(Context(), Logits::given(view(s.data(), {1, 4})), task, {.d_logits = view(d.data(), {1, 4})});
  const double sum = std::exp(1) + 1 + 2 * std::exp(-1), mean = (std::exp(1) - 1) / 2 / sum;
  const double slopes[] = {0.5, -0.5, 0, 0};
  for (size_t v = 0; v < 4; ++v) EXPECT_NEAR(d[v], std::exp(s[v]) / sum * (slopes[v] - mean), 1e-6) << v;
}

TEST(NamedCalls, ABackwardPlanCountsRowsWithAGradient) {
  const std::vector<float> x = numbers(4 * 3, 1), w = numbers(5 * 3, 2);
  std::vector<float> d_x(x.size());
  const std::vector<int64_t> ids = {4, 0, 1, -100};
  const Logits logits = Logits::of(view(x.data(), {4, 3}), view(w.data(), {5, 3}));
  CrossEntropy task{.targets = ids};
  task.reduction = Reduction::kNone;
  const Forward<CrossEntropy> left = forward(Context(), logits, task);
  const std::vector<double> upstream = {0, 2, 0, 1};
  const Plan ran = backward(Context(), logits, task, left, upstream, {.d_hidden = view(d_x.data(), {4, 3})});
  EXPECT_EQ(ran.active_rows, 1);
}

// First the second half of a vocabulary, and then the first half, with other targets.
TEST(NamedCalls, ARecordRunsWithItsLastSlice) {
  const std::vector<float> x = numbers(3, 1), w = numbers(4 * 3, 2);
  const std::vector<int64_t> ids = {5};
  CCall call("cross_entropy");
  call.put("hidden", c_tensor(view(x.data(), {1, 3}))), call.put("weight", c_tensor(view(w.data(), {4, 3})));
  call.put("targets", c_tensor(ids));
  call.put("slice_vocab_size", int64_t{8});
  const auto bytes_of_slice = [&](int64_t first) {
    call.put("slice_first", first);
    EXPECT_EQ(logitless_slice(call), LOGITLESS_OK) << logitless_last_error();
    logitless_tensor slice{};
    EXPECT_EQ(logitless_get_tensor(call, "slice", &slice), LOGITLESS_OK);
    const auto* bytes = static_cast<const uint8_t*>(slice.data);
    return std::vector<uint8_t>(bytes, bytes + slice.sizes[0] * slice.sizes[1]);
  };
  const std::vector<uint8_t> second = bytes_of_slice(4);
  EXPECT_NE(bytes_of_slice(0), second);
}

TEST(NamedCalls, AListMayNotEndInAComma) {
  logitless_context* const context = logitless_context_new();
  EXPECT_EQ(logitless_context_set(context, "slices", "1,"), LOGITLESS_INVALID_INPUT);
  EXPECT_EQ(logitless_context_set(context, "slices", "[1, 4]"), LOGITLESS_OK);
  logitless_context_free(context);
}

TEST(NamedCalls, ExpectedRowsKnowNoSlopeOfASoftcapOfRoundedLogits) {
  DrawnCall call;
  call.options = {{"round_logits_to", "bfloat16"}};
  call.d_weight = false;
  call.softcap = 3;
  call.plan = PlanKind::kExpectedRow;
  expect_refusal(call, "the head has a softcap and rounded logits");
}

// The part of d_hidden that a certified call leaves out is within its bound.
void expect_within_bound(const ContextOptions& options, const std::vector<float>& w,
                         const logitless::LoraAdapter& lora = {}) {
  constexpr int64_t kTokens = 6, kHidden = 8, kVocab = 1280;
  const std::vector<float> x = numbers(kTokens * kHidden, 1, 0.3);
  const std::vector<int64_t> ids = {1, 700, 1279, 64, 5, 639};
  std::vector<float> bias(kVocab);
  for (size_t v = 0; v < bias.size(); ++v) bias[v] = v / 64 % 2 == 0 ? 3.0F : 0;
  Plan ran;
  const auto d_hidden = [&](double tolerance) {
    std::vector<float> d(x.size());
    logitless::Gradients out = {.d_hidden = view(d.data(), {kTokens, kHidden})};
    if (tolerance > 0) out.backward = {.mode = BackwardMode::kCertified, .tolerance = tolerance};
    const logitless::LmHead head = {.weight = view(w.data(), {kVocab, kHidden}), .bias = bias, .lora = lora};
    ran = run(Context(options), Logits::of(view(x.data(), {kTokens, kHidden}), head), CrossEntropy{.targets = ids}, out)
              .plan;
    return d;
  };
  const std::vector<float> exact = d_hidden(0), near = d_hidden(0.5);
  double squares = 0;
  for (size_t i = 0; i < exact.size(); ++i) squares += std::pow(double(exact[i]) - double(near[i]), 2);
  EXPECT_LT(ran.kept_share, 0.9);
  EXPECT_GT(squares, 0);
  EXPECT_LE(std::sqrt(squares), ran.d_hidden_bound);
}

// The head's rows in the second slice are close to 0, and so is that slice's bound.
TEST(NamedCalls, ABoundOfCertifiedGradientsIsThatOfAllSlices) {
  std::vector<float> w = numbers(1280 * 8, 2);
  for (size_t i = 640 * 8; i < w.size(); ++i) w[i] *= 1e-6F;
  ContextOptions options;
  options.ranks.slices = {640, 640};
  expect_within_bound(options, w);
}

// The base weight is 0, so the LoRA is the whole head.
TEST(NamedCalls, ABoundOfCertifiedGradientsHasTheLora) {
  const std::vector<float> a = numbers(2 * 8, 3), b = numbers(1280 * 2, 4, 5);
  const logitless::LoraAdapter lora = {.a = view(a.data(), {2, 8}), .b = view(b.data(), {1280, 2}), .scale = 1};
  ContextOptions options;
  options.row_tile = 16, options.vocab_tile = 128;
  expect_within_bound(options, std::vector<float>(1280 * 8), lora);
}

// The second tile has only logits of -inf, which have no effect.
TEST(NamedCalls, AMaskedTileWithoutCrossWeights) {
  const std::vector<float> x = numbers(3, 1), w = numbers(32 * 3, 2);
  std::vector<float> bias(32), weights(32, 1);
  for (size_t v = 16; v < 32; ++v) bias[v] = -std::numeric_limits<float>::infinity(), weights[v] = 0;
  const std::vector<int64_t> ids = {4};
  ContextOptions options;
  options.vocab_tile = 16;
  CrossEntropy task{.targets = ids};
  task.class_weights = weights;
  task.label_smoothing = 0.25;
  const logitless::LmHead head = {.weight = view(w.data(), {32, 3}), .bias = bias};
  EXPECT_TRUE(std::isfinite(run(Context(options), Logits::of(view(x.data(), {1, 3}), head), task).loss));
}

TEST(NamedCalls, AnOptionalNumberHasItsRange) {
  const std::vector<float> x = numbers(2 * 3, 1), w = numbers(5 * 3, 2);
  const std::vector<double> advantages = {1, -1};
  const std::vector<int64_t> ids = {4, 0};
  PolicyLoss task{.chosen_ids = ids, .advantages = advantages};
  task.log_ratio_clamp = 301;
  const Logits logits = Logits::of(view(x.data(), {2, 3}), view(w.data(), {5, 3}));
  EXPECT_NE(refusal_of([&] { run(Context(), logits, task); }).find("log_ratio_clamp = 301"), std::string::npos);
}

TEST(NamedCalls, ACPointerIsAligned) {
  alignas(logitless_tensor) char memory[2 * sizeof(logitless_tensor)] = {};
  logitless_call* const call = logitless_call_new(nullptr, "cross_entropy");
  EXPECT_EQ(logitless_set_tensor(call, "hidden", reinterpret_cast<const logitless_tensor*>(memory + 1)),
            LOGITLESS_INVALID_INPUT);
  EXPECT_NE(std::string(logitless_last_error()).find("is not aligned"), std::string::npos);
  logitless_call_free(call);
}

}  // namespace mutant_calls_test
}  // namespace logitless::testing

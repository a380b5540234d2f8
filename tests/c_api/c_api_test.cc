// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Calls through C have the bits of those through C++, structures of older and newer callers are understood,
// and an allocation that fails becomes a status.
#include "logitless/c_api.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <vector>

#include "c_call.h"
#include "logitless/logitless.h"
#include "support/failing_allocation.h"
#include "support/inputs.h"

namespace logitless::testing {
namespace {

TEST(CApi, CrossEntropyHasTheBitsOfCxx) {
  for (const InputSpec& spec : specs()) {
    for (const bool accumulate : {false, true}) {
      SCOPED_TRACE(name_of(spec.dtype));
      RunSpec run;
      run.accumulate = accumulate;
      CCall c(spec, run), cxx(spec, run);
      std::vector<double> losses(static_cast<size_t>(spec.tokens)), logps(losses), upstream(losses.size(), 0.5);
      logitless_cross_entropy_options options;
      LOGITLESS_INIT(cross_entropy_options, &options);
      options.label_smoothing = 0.1;
      options.z_loss = 1e-3;
      options.want_accuracy = 1;
      logitless_cross_entropy_result result;
      LOGITLESS_INIT(cross_entropy_result, &result);
      result.tokens = spec.tokens;
      result.per_token_loss = losses.data();
      result.per_token_logps = logps.data();
      ASSERT_EQ(logitless_cross_entropy(c.context, &c.source, &c.targets, &options, &c.gradients, &result, nullptr),
                LOGITLESS_OK)
          << logitless_last_error();
      CrossEntropy same;
      same.label_smoothing = 0.1;
      same.z_loss = 1e-3;
      same.want_accuracy = true;
      const Context context;
      const CrossEntropyResult expected = cross_entropy(context, cxx.inputs.hidden_view(), cxx.inputs.head_view(),
                                                        cxx.inputs.targets_view(), same, cxx.wanted);
      EXPECT_EQ(result.loss, expected.loss);
      EXPECT_EQ(losses, expected.per_token_loss);
      EXPECT_EQ(logps, expected.per_token_logps);
      EXPECT_EQ(result.z_loss, expected.metrics.z_loss);
      EXPECT_EQ(result.accuracy, expected.metrics.accuracy);
      EXPECT_EQ(result.counted_tokens, expected.metrics.tokens);
      EXPECT_EQ(c.outputs.bytes(), cxx.outputs.bytes());

      // The two halves, with an upstream gradient a token.
      options.reduction = LOGITLESS_NO_REDUCTION;
      same.reduction = Reduction::kNone;
      logitless_forward* forward = nullptr;
      ASSERT_EQ(logitless_cross_entropy_forward(c.context, &c.source, &c.targets, &options, &result, nullptr, &forward),
                LOGITLESS_OK);
      EXPECT_EQ(logitless_cross_entropy_backward(c.context, &c.source, &c.targets, &options, forward, upstream.data(),
                                                 upstream.size(), &c.gradients, nullptr),
                LOGITLESS_OK)
          << logitless_last_error();
      logitless_forward_free(forward);
      const Forward<CrossEntropy> half = cross_entropy_forward(context, cxx.inputs.hidden_view(), cxx.inputs.head_view(),
                                                             cxx.inputs.targets_view(), same);
      cross_entropy_backward(context, cxx.inputs.hidden_view(), cxx.inputs.head_view(), cxx.inputs.targets_view(), same,
                             half, upstream, cxx.wanted);
      EXPECT_EQ(c.outputs.bytes(), cxx.outputs.bytes());
    }
  }
}

TEST(CApi, StatisticsHaveTheBitsOfCxx) {
  for (const InputSpec& spec : specs()) {
    CCall c(spec);
    const auto n = static_cast<size_t>(spec.tokens);
    std::vector<double> logp(n), lse(n), entropy(n), cross(n), max_logit(n), log_sum(n), outside(n), outside_max(n),
        square_sum(n);
    std::vector<int64_t> argmax(n), rank(n), top_ids(5 * n);
    std::vector<double> top_logps(5 * n);
    logitless_token_options options;
    LOGITLESS_INIT(token_options, &options);
    options.temperature = 0.7;
    logitless_stats_request request;
    LOGITLESS_INIT(stats_request, &request);
    request.entropy = request.cross = request.argmax = request.rank = request.outside = request.square_sum = 1;
    request.top_k = 5;
    logitless_token_stats stats;
    LOGITLESS_INIT(token_stats, &stats);
    stats.tokens = spec.tokens;
    stats.logp = logp.data(), stats.lse = lse.data(), stats.entropy = entropy.data(), stats.cross = cross.data();
    stats.max_logit = max_logit.data(), stats.log_sum = log_sum.data();
    stats.argmax = argmax.data(), stats.rank = rank.data();
    stats.top_ids = top_ids.data(), stats.top_logps = top_logps.data();
    stats.outside = outside.data(), stats.outside_max = outside_max.data();
    stats.square_sum = square_sum.data();
    ASSERT_EQ(logitless_compute_token_stats(c.context, &c.source, &c.targets, &options, &request, &stats, nullptr),
              LOGITLESS_OK)
        << logitless_last_error();
    TokenOptions same;
    same.temperature = 0.7;
    const TokenStats expected =
        compute_token_stats(Context(), c.inputs.hidden_view(), c.inputs.head_view(), c.inputs.targets_view(), same,
                            {true, true, true, true, 5, {}, true, true});
    EXPECT_EQ(logp, expected.logp);
    EXPECT_EQ(lse, expected.lse);
    EXPECT_EQ(entropy, expected.entropy);
    EXPECT_EQ(cross, expected.cross);
    EXPECT_EQ(max_logit, expected.max_logit);
    EXPECT_EQ(log_sum, expected.log_sum);
    EXPECT_EQ(argmax, expected.argmax);
    EXPECT_EQ(rank, expected.rank);
    EXPECT_EQ(top_ids, expected.top_ids);
    EXPECT_EQ(top_logps, expected.top_logps);
    EXPECT_EQ(outside, expected.outside);
    EXPECT_EQ(outside_max, expected.outside_max);
    EXPECT_EQ(square_sum, expected.square_sum);
  }
}

// The defaults of C are those of C++, for every policy and every preference loss.
TEST(CApi, LossesHaveTheBitsOfCxx) {
  InputSpec spec;
  spec.tokens = 36;
  spec.sequences = 4;
  CCall c(spec), cxx(spec);
  const std::vector<float> advantages = {1, -1, 0.5f, -2};
  std::vector<float> old_logps(36);
  for (size_t i = 0; i < old_logps.size(); ++i) old_logps[i] = -4 - 0.01f * static_cast<float>(i);
  const Context context;
  for (int32_t variant = 0; logitless_policy_variant_name(variant); ++variant) {
    SCOPED_TRACE(logitless_policy_variant_name(variant));
    logitless_policy_batch batch;
    LOGITLESS_INIT(policy_batch, &batch);
    batch.chosen_ids = &c.targets;
    batch.advantages = {advantages.data(), LOGITLESS_FLOAT32, 4};
    batch.old_logps = {old_logps.data(), LOGITLESS_FLOAT32, 36};
    logitless_policy_options options;
    LOGITLESS_INIT(policy_options, &options);
    options.variant = variant;
    PolicyBatch same_batch;
    same_batch.chosen_ids = cxx.inputs.targets_view();
    same_batch.advantages = {advantages.data(), 4};
    same_batch.old_logps = {old_logps.data(), 36};
    PolicyLoss same;
    same.variant = static_cast<PolicyVariant>(variant);
    if (same.variant == PolicyVariant::kDrGrpo) {
      options.max_completion_length = 9;
      same.max_completion_length = 9;
    }
    if (same.variant == PolicyVariant::kTopr) {
      batch.scores = batch.advantages;
      same_batch.scores = same_batch.advantages;
    }
    logitless_policy_result result;
    LOGITLESS_INIT(policy_result, &result);
    ASSERT_EQ(logitless_policy_loss(c.context, &c.source, &batch, &options, &c.gradients, &result, nullptr),
              LOGITLESS_OK)
        << logitless_last_error();
    const PolicyResult expected =
        policy_loss(context, cxx.inputs.hidden_view(), cxx.inputs.head_view(), same_batch, same, cxx.wanted);
    EXPECT_EQ(result.loss, expected.loss);
    EXPECT_EQ(result.mean_ratio, expected.metrics.mean_ratio);
    EXPECT_EQ(c.outputs.bytes(), cxx.outputs.bytes());
  }
  const std::vector<float> sums = {-40, -41, -42, -43};
  logitless_reference reference;
  LOGITLESS_INIT(reference, &reference);
  reference.logps = {sums.data(), LOGITLESS_FLOAT32, 4};
  Reference same_reference;
  same_reference.logps = {sums.data(), 4};
  for (int32_t loss = 0; logitless_preference_loss_name(loss); ++loss) {
    SCOPED_TRACE(logitless_preference_loss_name(loss));
    logitless_preference_options options;
    LOGITLESS_INIT(preference_options, &options);
    options.losses = &loss;
    options.loss_count = 1;
    PreferenceLoss same;
    same.losses = {static_cast<PairedLoss>(loss)};
    // The robust loss and EXO are undefined without a share of flipped labels.
    if (same.losses[0] == PairedLoss::kRobust || same.losses[0] == PairedLoss::kExoPair) {
      options.label_smoothing = same.label_smoothing = 0.1;
    }
    const bool compares = logitless_needs_reference(loss) != 0;
    logitless_preference_result result;
    LOGITLESS_INIT(preference_result, &result);
    ASSERT_EQ(logitless_preference_loss(c.context, &c.source, &c.targets, compares ? &reference : nullptr, &options,
                                        &c.gradients, &result, nullptr),
              LOGITLESS_OK)
        << logitless_last_error();
    const PreferenceResult expected =
        preference_loss(context, cxx.inputs.hidden_view(), cxx.inputs.head_view(), cxx.inputs.targets_view(),
                        compares ? same_reference : Reference(), same, cxx.wanted);
    EXPECT_EQ(result.loss, expected.loss);
    EXPECT_EQ(c.outputs.bytes(), cxx.outputs.bytes());
  }
}

TEST(CApi, FinishedLogitsOfATeacherHaveTheBitsOfCxx) {
  InputSpec spec;
  spec.tokens = 36;
  spec.sequences = 4;
  CCall c(spec), cxx(spec);
  const int64_t vocab = cxx.inputs.head_view().vocab_size();
  std::vector<float> values(static_cast<size_t>(36 * vocab));
  for (size_t i = 0; i < values.size(); ++i) values[i] = 0.25f * static_cast<float>(i * i % 17);
  logitless_logits logits;
  LOGITLESS_INIT(logits, &logits);
  logits.data = values.data();
  logits.batch = 4, logits.time = 9, logits.vocab = vocab;
  logitless_teacher teacher;
  LOGITLESS_INIT(teacher, &teacher);
  teacher.logits = &logits;
  logitless_distillation_result result;
  LOGITLESS_INIT(distillation_result, &result);
  ASSERT_EQ(
      logitless_distillation_loss(c.context, &c.source, &teacher, &c.targets, nullptr, &c.gradients, &result, nullptr),
      LOGITLESS_OK)
      << logitless_last_error();
  const FinishedLogits same(values.data(), 4, 9, vocab);
  EXPECT_EQ(result.loss, distillation_loss(Context(), cxx.inputs.hidden_view(), cxx.inputs.head_view(), same,
                                           cxx.inputs.targets_view(), {}, cxx.wanted)
                             .loss);
  EXPECT_EQ(c.outputs.bytes(), cxx.outputs.bytes());
  teacher.head = c.source.head;
  EXPECT_EQ(
      logitless_distillation_loss(c.context, &c.source, &teacher, &c.targets, nullptr, &c.gradients, &result, nullptr),
      LOGITLESS_INVALID_INPUT);
  EXPECT_STREQ(logitless_last_error(), "teacher has logits, and hidden states or a head beside them");
}

// A caller with an older header has a shorter structure: what it does not know has its default, and what
// stands behind its result is not written.
TEST(CApi, StructuresMayBeShorter) {
  const InputSpec spec;
  CCall c(spec);
  logitless_cross_entropy_options options;
  LOGITLESS_INIT(cross_entropy_options, &options);
  options.struct_size = offsetof(logitless_cross_entropy_options, loss_scale);
  options.loss_scale = -7;  // not there, as far as this caller knows
  options.normaliser = -7;
  logitless_cross_entropy_result result;
  LOGITLESS_INIT(cross_entropy_result, &result);
  result.struct_size = offsetof(logitless_cross_entropy_result, accuracy);
  result.accuracy = result.mean_entropy = -7;
  ASSERT_EQ(logitless_cross_entropy(c.context, &c.source, &c.targets, &options, nullptr, &result, nullptr),
            LOGITLESS_OK)
      << logitless_last_error();
  EXPECT_EQ(result.loss,
            cross_entropy(Context(), c.inputs.hidden_view(), c.inputs.head_view(), c.inputs.targets_view()).loss);
  EXPECT_EQ(result.accuracy, -7);
  EXPECT_EQ(result.mean_entropy, -7);
}

// A caller with a newer header gets zeros where this library knows nothing, and is refused.
TEST(CApi, StructuresOfNewerHeadersAreRefused) {
  struct {
    logitless_token_options known;
    int64_t unknown = -1;
  } newer;
  logitless_token_options_init(&newer.known, sizeof newer);
  EXPECT_EQ(newer.unknown, 0);
  EXPECT_EQ(newer.known.temperature, 1);
  logitless_cross_entropy_options options;
  LOGITLESS_INIT(cross_entropy_options, &options);
  options.token = &newer.known;
  const InputSpec spec;
  CCall c(spec);
  EXPECT_EQ(logitless_cross_entropy(c.context, &c.source, &c.targets, &options, nullptr, nullptr, nullptr),
            LOGITLESS_INVALID_INPUT);
  EXPECT_NE(std::string(logitless_last_error()).find("newer header"), std::string::npos) << logitless_last_error();
}

TEST(CApi, FailedAllocationsAreAStatus) {
  const InputSpec spec;
  CCall c(spec);
  const auto call = [&] {
    return logitless_cross_entropy(c.context, &c.source, &c.targets, nullptr, &c.gradients, nullptr, nullptr);
  };
  ASSERT_EQ(call(), LOGITLESS_OK);
  int64_t refused = 0;
  for (int64_t index = 0;; ++index) {
    const int64_t before = blocks_alive();
    fail_allocation(index, Failing::kAllAfter);
    const logitless_status status = call();
    const AllocationsSeen seen = stop_failing();
    EXPECT_EQ(blocks_alive(), before);
    if (seen.failed == 0) break;
    ASSERT_EQ(status, LOGITLESS_OUT_OF_MEMORY) << logitless_last_error();
    ++refused;
  }
  EXPECT_GT(refused, 5);
}

}  // namespace
}  // namespace logitless::testing

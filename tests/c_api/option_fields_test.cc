// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Every option arrives through C: the structure that the library then has is the one that C++ would hand
// over, and the call has the bits of that through C++, which are others than without the option.
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#include "c_api/context.h"
#include "c_api/fields.h"
#include "c_batch.h"
#include "support/option_cases.h"

namespace logitless::testing {
namespace {

template <class Options, class COptions, class CResult, class Metrics>
void every_option_arrives() {
  COptions by_default;
  init(by_default);
  EXPECT_EQ(all_text(c_api::options_of(&by_default)), all_text(Options()));
  CBatch batch;
  std::set<std::string> refusals;
  for (const OptionCase<Options>& one : option_cases<Options>()) {
    SCOPED_TRACE(one.field + " = " + one.value);
    Lent lent;
    COptions options;
    init(options);
    lent.fill(options, one.changed);
    EXPECT_EQ(all_text(c_api::options_of(&options)), all_text(one.changed));
    const Outcome base = batch.batch.outcome(one.base), changed = batch.batch.outcome(one.changed);
    EXPECT_EQ(base.refusal, "");
    EXPECT_NE(changed, base);
    EXPECT_EQ((batch.outcome<CResult, Metrics>(options, one.changed)), changed);
    if (!changed.refusal.empty()) refusals.insert(one.field + " = " + one.value);
  }
  EXPECT_EQ(refusals, refused(Options()));
}

TEST(OptionFields, OfCrossEntropyArriveThroughC) {
  every_option_arrives<CrossEntropy, logitless_cross_entropy_options, logitless_cross_entropy_result,
                       CrossEntropyMetrics>();
}
TEST(OptionFields, OfSoftTargetsArriveThroughC) {
  every_option_arrives<SoftCrossEntropy, logitless_soft_cross_entropy_options,
                       logitless_soft_cross_entropy_result, SoftCrossEntropyMetrics>();
}
TEST(OptionFields, OfSetsOfIdsArriveThroughC) {
  CBatch batch;
  std::set<std::string> refusals;
  for (const OptionCase<IdLogps>& one : option_cases<IdLogps>()) {
    SCOPED_TRACE(one.field + " = " + one.value);
    Lent lent;
    logitless_id_logps_options options;
    init(options);
    lent.fill(options, one.changed);
    EXPECT_EQ(all_text(c_api::options_of(&options)), all_text(one.changed));
    const Outcome changed = batch.batch.outcome(one.changed);
    EXPECT_NE(changed, batch.batch.outcome(one.base));
    EXPECT_EQ(batch.outcome(options), changed);
    if (!changed.refusal.empty()) refusals.insert(one.field + " = " + one.value);
  }
  EXPECT_EQ(refusals, refused(IdLogps()));
}
TEST(OptionFields, OfPolicyLossesArriveThroughC) {
  every_option_arrives<PolicyLoss, logitless_policy_options, logitless_policy_result, PolicyMetrics>();
}
TEST(OptionFields, OfPreferenceLossesArriveThroughC) {
  every_option_arrives<PreferenceLoss, logitless_preference_options, logitless_preference_result,
                       PreferenceMetrics>();
}
TEST(OptionFields, OfDistillationArriveThroughC) {
  every_option_arrives<Distillation, logitless_distillation_options, logitless_distillation_result,
                       DistillationMetrics>();
}
TEST(OptionFields, OfSetDistillationArriveThroughC) {
  every_option_arrives<SetDistillation, logitless_set_distillation_options, logitless_set_distillation_result,
                       SetDistillationMetrics>();
}
TEST(OptionFields, OfKtoArriveThroughC) {
  every_option_arrives<KtoLoss, logitless_kto_options, logitless_kto_result, KtoMetrics>();
}

// Statistics with one option of tokens, or of the request, at another value.
template <class Options, class COptions>
void every_option_of_statistics_arrives(const auto& taken, const auto& split) {
  CBatch batch;
  for (const OptionCase<Options>& one : option_cases<Options>()) {
    SCOPED_TRACE(one.field + " = " + one.value);
    Lent lent;
    logitless_token_options token;
    logitless_stats_request request;
    LOGITLESS_INIT(token_options, &token);
    LOGITLESS_INIT(stats_request, &request);
    COptions& options = split(token, request);
    lent.fill(options, one.changed);
    EXPECT_EQ(all_text(taken(&options)), all_text(one.changed));
    const auto outcome = [&](const Options& given) {
      if constexpr (std::is_same_v<Options, TokenOptions>) {
        return batch.batch.outcome(given, StatsRequest());
      } else {
        return batch.batch.outcome(TokenOptions(), given);
      }
    };
    EXPECT_NE(outcome(one.changed), outcome(one.base));
    EXPECT_EQ(batch.outcome(token, request), outcome(one.changed));
  }
}

TEST(OptionFields, OfTokensArriveThroughC) {
  every_option_of_statistics_arrives<TokenOptions, logitless_token_options>(
      c_api::token_options_of, [](auto& token, auto&) -> auto& { return token; });
}
TEST(OptionFields, OfStatisticsArriveThroughC) {
  every_option_of_statistics_arrives<StatsRequest, logitless_stats_request>(
      c_api::request_of, [](auto&, auto& request) -> auto& { return request; });
}

/// Sets one field of a context's options to the same value in C and in C++.
struct Both {
  logitless_workspace* workspace;
  std::vector<int64_t> slices = {40, kVocab - 40};
  std::string backend = gemm_backends().back();

  void operator()(const Field&, int32_t& c, bool& cxx) const { c = cxx = !cxx; }
  template <class To, class Number>
  requires std::is_arithmetic_v<Number>
  void operator()(const Field&, To& c, Number& cxx) const { c = cxx = cxx == 0 ? 3 : cxx / 2; }
  template <Named Enum>
  void operator()(const Field&, int32_t& c, Enum& cxx) const {
    c = 2;
    cxx = static_cast<Enum>(2);
  }
  void operator()(const Field& field, const char*& c, std::string& cxx) const {
    c = std::string(field.name) == "simd_target" ? "plain" : backend.c_str();
    cxx = c;
  }
  void operator()(const Field&, logitless_workspace*& c, Workspace*& cxx) const {
    c = workspace;
    cxx = &workspace->workspace;
  }
  template <class Data, class Count>
  void operator()(const Field&, const PointerAndCount<Data, Count>& c, std::vector<int64_t>& cxx) const {
    c.data = slices.data();
    c.count = slices.size();
    cxx = slices;
  }
};

TEST(OptionFields, OfAContextArriveThroughC) {
  logitless_workspace* workspace = nullptr;
  ASSERT_EQ(logitless_workspace_create(&workspace), LOGITLESS_OK);
  const Both both{workspace};
  std::vector<std::string> names;
  visit_fields(
      FieldsOf<ContextOptions>(), [&](const Field& field, const auto&) { names.emplace_back(field.name); },
      ContextOptions());
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    ContextOptions same;
    logitless_context_options options;
    LOGITLESS_INIT(context_options, &options);
    const auto set = [&](const Field& field, auto&& c, auto& cxx) {
      if (name == field.name) both(field, c, cxx);
    };
    visit_fields(FieldsOf<ContextOptions>(), set, options, same);
    logitless_context* context = nullptr;
    ASSERT_EQ(logitless_context_create(&options, &context), LOGITLESS_OK) << logitless_last_error();
    const ContextOptions& arrived = context->context.options();
    EXPECT_EQ(all_text(arrived), all_text(same));
    EXPECT_EQ(arrived.workspace, same.workspace);
    EXPECT_TRUE(name == "workspace" ? arrived.workspace != nullptr : all_text(arrived) != all_text(ContextOptions()));
    logitless_context_free(context);
  }
  logitless_workspace_free(workspace);
}

}  // namespace
}  // namespace logitless::testing

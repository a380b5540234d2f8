// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Single hostile calls through C whose message or result matters, beside those that hostile_test makes by
// thousands.
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "hostile_world.h"

namespace logitless::testing {
namespace {

struct CBorders : ::testing::Test {
  logitless_context* context = nullptr;
  CBorders() { EXPECT_EQ(logitless_context_create(nullptr, &context), LOGITLESS_OK); }
  ~CBorders() override { logitless_context_free(context); }

  std::unique_ptr<World> world(Form form = Form::kHidden) const { return std::make_unique<World>(form, context); }
};

void expect_status(logitless_status status, logitless_status wanted, const std::vector<std::string>& parts) {
  EXPECT_EQ(status, wanted);
  const std::string message = logitless_last_error();
  for (const std::string& part : parts) {
    EXPECT_NE(message.find(part), std::string::npos) << "no '" << part << "' in: " << message;
  }
}

logitless_status run(World& w) {
  return logitless_cross_entropy(w.given.context, w.given.source, w.given.targets, w.given.cross_entropy,
                                 w.given.gradients, w.given.cross_entropy_result, w.given.plan);
}

TEST_F(CBorders, AStructSizeThatCutsAMemberInTwoIsRefused) {
  for (const size_t size : {size_t{9}, size_t{12}, size_t{28}, sizeof(logitless_gradients) - 4}) {
    const auto w = world();
    w->gradients.struct_size = size;
    expect_status(run(*w), LOGITLESS_INVALID_INPUT,
                  {"gradients.struct_size = " + std::to_string(size), "within a member"});
  }
  // What a shorter header ended with is whole, and is read.
  const auto w = world();
  w->cross_entropy.struct_size = offsetof(logitless_cross_entropy_options, normaliser);
  EXPECT_EQ(run(*w), LOGITLESS_OK) << logitless_last_error();
}

// The arrays have N entries and not one more: the address sanitizer sees who reads further.
TEST_F(CBorders, BackpropagationReadsNoMoreThanTheRowsOfTheCall) {
  const auto n = static_cast<size_t>(World::kTokens);
  std::vector<double> columns[8];
  for (auto& column : columns) column.assign(n, -1.0);
  std::vector<int64_t> whole[2] = {std::vector<int64_t>(n, 1), std::vector<int64_t>(n, 1)};
  for (const char* longer : {"stats", "grads", ""}) {
    const auto w = world();
    logitless_token_stats& s = w->stats;
    s.logp = columns[0].data(), s.lse = columns[1].data(), s.entropy = columns[2].data(), s.cross = columns[3].data();
    s.max_logit = columns[4].data(), s.log_sum = columns[5].data();
    s.argmax = whole[0].data(), s.rank = whole[1].data();
    s.top_ids = nullptr, s.top_logps = nullptr;
    w->grads.logp = columns[6].data(), w->grads.lse = columns[7].data();
    w->grads.entropy = w->grads.cross = w->grads.outside = nullptr;
    if (longer == std::string("stats")) ++w->stats.tokens;
    if (longer == std::string("grads")) ++w->grads.tokens;
    const logitless_status status = logitless_backpropagate_token_grads(
        context, &w->source, &w->targets, &w->token, &w->request, &w->stats, &w->grads, &w->gradients, nullptr);
    if (longer == std::string()) {
      EXPECT_EQ(status, LOGITLESS_OK) << logitless_last_error();
    } else {
      expect_status(status, LOGITLESS_INVALID_INPUT, {longer + std::string(".tokens = 7"), "6 entries"});
    }
  }
}

// A program of C++ may hand over callbacks that throw.
std::function<void()> thrower;
int throwing_sink(void*, int64_t, int64_t, const logitless_const_matrix*) { return thrower(), 0; }
int throwing_loss(void*, const int64_t*, size_t, const logitless_token_stats*, logitless_token_grads*) {
  return thrower(), 0;
}
int throwing_gather(void*, const void*, void*, size_t) { return thrower(), 0; }

TEST_F(CBorders, AnExceptionOfACallbackKeepsItsText) {
  const std::vector<std::pair<std::function<void()>, std::string>> cases = {
      {[] { throw std::runtime_error("the disk is full"); }, "threw: the disk is full"},
      {[] { throw std::string("the net is down"); }, "threw: the net is down"},
      {[] { throw "the line is busy"; }, "threw: the line is busy"},
      {[] { throw 42; }, "threw: an exception without a text"},
  };
  for (const auto& [thrown, text] : cases) {
    SCOPED_TRACE(text);
    thrower = thrown;
    auto w = world();
    w->gradients.weight_sink = throwing_sink;
    w->gradients.d_weight = {};
    expect_status(run(*w), LOGITLESS_CALLBACK_FAILED, {"weight_sink " + text});

    w = world();
    w->token_loss.evaluate = throwing_loss;
    expect_status(logitless_run_token_loss(context, &w->source, &w->targets, &w->token, &w->token_loss, nullptr,
                                           nullptr, nullptr),
                  LOGITLESS_CALLBACK_FAILED, {"loss.evaluate " + text});

    w = world();
    w->vocab_ranks.all_gather = throwing_gather;
    ASSERT_EQ(logitless_context_create(&w->context_options, &w->made), LOGITLESS_OK) << logitless_last_error();
    w->given.context = w->made;
    expect_status(run(*w), LOGITLESS_CALLBACK_FAILED, {"all_gather " + text});
  }
}

// What ranks say of themselves would be 34 GB.
TEST_F(CBorders, MoreRanksThanAMachineHasAreRefused) {
  const auto w = world();
  w->vocab_ranks.size = std::numeric_limits<int32_t>::max();
  ASSERT_EQ(logitless_context_create(&w->context_options, &w->made), LOGITLESS_OK) << logitless_last_error();
  w->given.context = w->made;
  expect_status(run(*w), LOGITLESS_INVALID_INPUT, {"ranks.vocab", "size() = 2147483647", "65536"});
}

TEST_F(CBorders, ProductsThatDoNotFit64BitsAreRefused) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  auto w = world();
  w->targets.time = w->targets.stride = kMost;
  w->targets.batch_stride = 0;
  expect_status(run(*w), LOGITLESS_INVALID_INPUT, {"targets has 6 entries"});
  w = world();
  w->hidden.states.rows = kMost;
  expect_status(run(*w), LOGITLESS_INVALID_INPUT, {"9223372036854775807"});
  w = world();
  w->hidden.sequences = kMost;
  expect_status(run(*w), LOGITLESS_INVALID_INPUT, {"sequences = 9223372036854775807"});
  w = world(Form::kLogits);
  w->logits.batch = w->logits.time = w->logits.row_stride = kMost;
  w->logits.batch_stride = 0;
  expect_status(run(*w), LOGITLESS_INVALID_INPUT, {"9223372036854775807"});
  w = world();
  w->cross_entropy.class_weight_count = static_cast<size_t>(kMost);
  expect_status(run(*w), LOGITLESS_INVALID_INPUT, {"class_weights is said to have 9223372036854775807"});
}

TEST_F(CBorders, ABatchStrideOfMinusOneIsNoDefault) {
  for (const int64_t stride : {-1, -15}) {
    auto w = world(Form::kLogits);
    w->logits.batch_stride = stride;
    expect_status(run(*w), LOGITLESS_INVALID_INPUT, {"logits.batch_stride = " + std::to_string(stride)});
    w = world(Form::kLogits);
    w->gradients.d_logits_batch_stride = stride;
    expect_status(run(*w), LOGITLESS_INVALID_INPUT, {"dlogits.batch_stride = " + std::to_string(stride)});
    w = world();
    w->hidden.states.stride = stride;
    expect_status(run(*w), LOGITLESS_INVALID_INPUT, {"hidden.stride = " + std::to_string(stride)});
  }
}

TEST_F(CBorders, ASliceOfNoVocabularyIsNoWholeOne) {
  auto w = world();
  w->context_options.vocab_ranks = w->context_options.data_ranks = nullptr;
  w->context_options.slice_count = 0;
  w->context_options.slice_first = 3;
  logitless_context_free(w->made);
  w->made = nullptr;
  ASSERT_EQ(logitless_context_create(&w->context_options, &w->made), LOGITLESS_OK) << logitless_last_error();
  w->given.context = w->made;
  expect_status(run(*w), LOGITLESS_INVALID_INPUT, {"ranks.slice", "a vocabulary of 0"});
}

TEST_F(CBorders, AnArrayThatStandsWhereItsElementsMayNotIsRefusedByName) {
  auto w = world();
  w->targets.data64 = reinterpret_cast<const int64_t*>(reinterpret_cast<uintptr_t>(w->ids.data) + 4);
  expect_status(run(*w), LOGITLESS_INVALID_INPUT, {"targets.data64", "not aligned"});
  w = world();
  w->token.temperatures = reinterpret_cast<const double*>(reinterpret_cast<uintptr_t>(w->temperatures.data) + 4);
  expect_status(run(*w), LOGITLESS_INVALID_INPUT, {"temperatures", "not aligned"});
  w = world();
  auto* column = reinterpret_cast<double*>(reinterpret_cast<uintptr_t>(w->written.columns[0]) + 1);
  w->cross_entropy_result.per_token_loss = column;
  expect_status(run(*w), LOGITLESS_INVALID_INPUT, {"result.per_token_loss", "not aligned"});
}

}  // namespace
}  // namespace logitless::testing

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Error messages about keys and handles in C; failing callbacks and allocations.
#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

#include "logitless/c_api.h"
#include "support/failing_allocation.h"
#include "support/key_call.h"

namespace logitless::testing {
namespace {

void expect_says(const std::string& words) {
  EXPECT_NE(std::string(logitless_last_error()).find(words), std::string::npos) << logitless_last_error();
}

// A verb fails with the message of a setter that failed, and does not run.
void expect_mistake(const KeyCall& call, const std::string& words) {
  SCOPED_TRACE(words);
  const KeyCall::Handle handle(call);
  if (handle.status != LOGITLESS_OK) {
    EXPECT_EQ(handle.status, LOGITLESS_INVALID_INPUT);
    expect_says(words);
  }
  EXPECT_EQ(logitless_run(handle), LOGITLESS_INVALID_INPUT);
  expect_says(words);
  EXPECT_EQ(std::string(logitless_last_error()).find("targets.weights"), std::string::npos) << "is no key";
  EXPECT_TRUE(call.untouched());
}

TEST(CMessages, NameTheMistake) {
  const RefusedChange changes[] = {
      {"policy_loss", "epsilon_hihg = 0.3", "policy_loss has no key 'epsilon_hihg'; did you mean epsilon_high"},
      {"cross_entropy", "smoothing = 0.1", "did you mean label_smoothing?"},
      {"cross_entropy", "zzzzzzzz = 0.1", "cross_entropy has no key 'zzzzzzzz'"},
      {"policy_loss", "beta = hot", "beta must be a finite number of at least 0, not the text 'hot'"},
      {"policy_loss", "loss_type = gpro", "loss_type must be one of grpo, bnpo"},
      {"preference_loss", "loss_type = sigmoid,sfd", "loss_type must be a text that lists some of sigmoid, hinge"},
      {"preference_loss", "loss_type = sigmoid,", "loss_type must be a text that lists some of sigmoid, hinge"},
      {"preference_loss", "loss_weights = 1,,2", "loss_weights must be a text that lists numbers, not the text ''"},
      {"cross_entropy", "targets = @6 float32",
       "targets must be a tensor of int32 or int64 [N] or [B, T], not float32 [6]"},
      {"cross_entropy", "label_smoothing = @1",
       "label_smoothing must be a number from 0 to 1, not a tensor of float64 [1]"},
      {"cross_entropy", "weight = @3x2 int64",
       "weight must be a tensor of floats [V, H], or of uint8 [V, bytes of a row] if packed, not int64 [3, 2]"},
      {"cross_entropy", "targets =", "cross_entropy needs targets, which is not set"},
      {"cross_entropy", "weight =", "cross_entropy needs weight, which is not set"},
      {"cross_entropy", "hidden =", "cross_entropy needs hidden and weight, or logits"},
      {"distillation_loss", "teacher.logits =", "needs teacher.hidden or teacher.logits"},
      {"custom_loss", "targets = @6 int64", "custom_loss needs a loss, which is not set"},
      {"token_stats", "", "gradients are requested from token_stats, which has no loss"},
      {"soft_cross_entropy", "weights = @1 float32", "weights has 1 entries but sets.ids has "},
  };
  for (const RefusedChange& line : changes) {
    KeyCall call(line.task);
    if (!line.changes.empty()) call.change(line.changes);
    expect_mistake(call, line.words);
  }
  const auto number = [](double value) { return Setting{.kind = Setting::kNumber, .number = value}; };
  const auto integer = [](int64_t value) { return Setting{.kind = Setting::kInteger, .integer = value}; };
  const std::tuple<const char*, const char*, Setting, const char*> settings[] = {
      {"policy_loss", "beta", number(-1), "beta = -1 must be a finite number of at least 0"},
      {"policy_loss", "beta", number(NAN), "beta = nan must be"},
      {"policy_loss", "loss_type", integer(3), "not the integer 3"},
      {"cross_entropy", "shift", number(1.5), "shift must be an integer of at least 0, not the number 1.5"},
      {"cross_entropy", "dft", integer(2), "dft must be 0 or 1, not the integer 2"},
      {"cross_entropy", "targets", number(3),
       "targets must be a tensor of int32 or int64 [N] or [B, T], not the number 3"},
  };
  for (const auto& [task, key, setting, words] : settings) {
    KeyCall call(task);
    call.keys[key] = setting;
    expect_mistake(call, words);
  }
}

TEST(CMessages, AFailureOfASetterIsToldOnce) {
  const KeyCall good("cross_entropy");
  const KeyCall::Handle call(good);
  EXPECT_EQ(logitless_set_text(call, nullptr, "x"), LOGITLESS_INVALID_INPUT);
  expect_says("name is NULL");
  EXPECT_EQ(logitless_set_number(call, "z_los", 1), LOGITLESS_INVALID_INPUT);
  EXPECT_EQ(logitless_set_number(call, "z_loss", -1), LOGITLESS_INVALID_INPUT);
  EXPECT_EQ(logitless_run(call), LOGITLESS_INVALID_INPUT);
  expect_says("z_los'");
  EXPECT_EQ(logitless_run(call), LOGITLESS_OK);
  EXPECT_EQ(logitless_set_number(call, "z_los", 1), LOGITLESS_INVALID_INPUT);
  EXPECT_EQ(logitless_unset(call, "z_los"), LOGITLESS_OK);  // withdraws the failure
  EXPECT_EQ(logitless_run(call), LOGITLESS_OK);
  EXPECT_EQ(logitless_set_text(call, "reduction", nullptr), LOGITLESS_INVALID_INPUT);
  expect_says("text is NULL");
}

TEST(CMessages, AFailureOfAContextIsToldByItsCalls) {
  logitless_context* const context = logitless_context_new();
  EXPECT_EQ(logitless_context_set(context, "workspace_byte", "1000000"), LOGITLESS_INVALID_INPUT);
  for (const bool mended : {false, true}) {
    if (mended) {
      EXPECT_EQ(logitless_context_set(context, "plan", "twopass"), LOGITLESS_INVALID_INPUT);
      EXPECT_EQ(logitless_context_set(context, "plan", "two_pass"), LOGITLESS_OK);
    }
    logitless_call* const call = logitless_call_new(context, "cross_entropy");
    ASSERT_NE(call, nullptr);
    EXPECT_EQ(logitless_run(call), LOGITLESS_INVALID_INPUT);
    expect_says("workspace_byte'");
    logitless_call_free(call);
  }
  logitless_context_free(context);
}

TEST(CMessages, OfResultsAndHandles) {
  KeyCall good("cross_entropy");
  const KeyCall::Handle call(good);
  double number = 0;
  int64_t integer = 0;
  const char* text = nullptr;
  logitless_tensor tensor;
  EXPECT_EQ(logitless_get_number(call, "loss", &number), LOGITLESS_INVALID_INPUT);
  expect_says("loss was not computed: nothing has run");
  EXPECT_EQ(logitless_backward(call), LOGITLESS_INVALID_INPUT);
  expect_says("backward needs the results of forward");
  EXPECT_EQ(logitless_plan(call), LOGITLESS_OK);
  EXPECT_EQ(logitless_get_number(call, "loss", &number), LOGITLESS_INVALID_INPUT);
  EXPECT_EQ(logitless_get_integer(call, "plan.workspace_bytes", &integer), LOGITLESS_OK);
  EXPECT_GT(integer, 0);
  EXPECT_EQ(logitless_run(call), LOGITLESS_OK);
  EXPECT_EQ(logitless_get_number(call, "los", &number), LOGITLESS_INVALID_INPUT);
  expect_says("cross_entropy has no result 'los'; did you mean loss");
  EXPECT_EQ(logitless_get_tensor(call, "loss", &tensor), LOGITLESS_INVALID_INPUT);
  expect_says("loss is not a tensor");
  EXPECT_EQ(logitless_get_number(call, "per_token_loss", &number), LOGITLESS_INVALID_INPUT);
  EXPECT_EQ(logitless_get_integer(call, "loss", &integer), LOGITLESS_INVALID_INPUT);
  EXPECT_EQ(logitless_get_tensor(call, "per_token_argmax", &tensor), LOGITLESS_INVALID_INPUT);
  expect_says("per_token_argmax was not computed");
  EXPECT_EQ(logitless_get_text(call, "tokens", &text), LOGITLESS_OK);
  EXPECT_STREQ(text, "6");
  EXPECT_EQ(logitless_get_number(call, "loss", nullptr), LOGITLESS_INVALID_INPUT);
  good.change("targets[0] = 99");  // a failed run drops the earlier results
  EXPECT_EQ(logitless_run(call), LOGITLESS_INVALID_INPUT);
  EXPECT_EQ(logitless_get_number(call, "loss", &number), LOGITLESS_INVALID_INPUT);
  // plan() for a different batch does not change the results.
  KeyCall listed("token_stats");
  listed.change("d_hidden =; d_weight =; d_bias =; d_logp =; top_k = 2");
  const KeyCall::Handle stats(listed);
  ASSERT_EQ(logitless_run(stats), LOGITLESS_OK) << logitless_last_error();
  ASSERT_EQ(logitless_set_2d(stats, "hidden", listed.keys["hidden"].tensor.data, 0, 3, 4), LOGITLESS_OK);
  ASSERT_EQ(logitless_set_1d(stats, "targets", listed.keys["targets"].tensor.data, LOGITLESS_INT64, 3), LOGITLESS_OK);
  ASSERT_EQ(logitless_plan(stats), LOGITLESS_OK) << logitless_last_error();
  ASSERT_EQ(logitless_get_tensor(stats, "top_ids", &tensor), LOGITLESS_OK);
  EXPECT_TRUE(tensor.sizes[0] == KeyCall::kTokens && tensor.sizes[1] == 2);
  EXPECT_EQ(logitless_run(nullptr), LOGITLESS_INVALID_INPUT);
  expect_says("call is NULL");
  EXPECT_EQ(logitless_call_new(nullptr, "cross_entropi"), nullptr);
  expect_says("there is no task 'cross_entropi'; tasks are cross_entropy, policy_loss");
  EXPECT_EQ(logitless_call_new(nullptr, nullptr), nullptr);
  EXPECT_EQ(logitless_describe("nothing"), nullptr);
  logitless_call_free(nullptr), logitless_context_free(nullptr);
  logitless_context* context = logitless_context_new();
  EXPECT_EQ(logitless_context_set(context, "thread", "4"), LOGITLESS_INVALID_INPUT);
  expect_says("context has no key 'thread'; did you mean threads?");
  EXPECT_EQ(logitless_context_set(context, "threads", "-4"), LOGITLESS_INVALID_INPUT);
  EXPECT_EQ(logitless_context_set(context, "gemm_backend", "no such"), LOGITLESS_INVALID_INPUT);
  EXPECT_EQ(logitless_context_set(context, "workspace_bytes", "12 parsecs"), LOGITLESS_INVALID_INPUT);
  const logitless_communicator none = {0, 1, nullptr, nullptr, nullptr};
  EXPECT_EQ(logitless_context_set_ranks(context, "vocab", &none), LOGITLESS_INVALID_INPUT);
  EXPECT_EQ(logitless_context_set_ranks(context, "pipeline", nullptr), LOGITLESS_INVALID_INPUT);
  expect_says("context has no ranks 'pipeline': vocab or data");
  logitless_context_free(context);
}

// The gradients of the mean of −log p, and of z-loss.
int evaluate(void* user, logitless_call* call, const int64_t* rows, int64_t count) {
  constexpr double kTokens = KeyCall::kTokens;
  logitless_tensor lse, entropy, top_ids, d_logp, d_lse;
  if (logitless_get_tensor(call, "lse", &lse) || logitless_get_tensor(call, "top_ids", &top_ids) ||
      logitless_get_tensor(call, "entropy", &entropy) || logitless_get_tensor(call, "d_logp", &d_logp) ||
      logitless_get_tensor(call, "d_lse", &d_lse)) {
    return 1;
  }
  EXPECT_TRUE(top_ids.axes == 2 && top_ids.sizes[0] == kTokens && top_ids.sizes[1] == 3);
  EXPECT_EQ(logitless_run(call), LOGITLESS_INVALID_INPUT);
  expect_says("custom_loss is running");
  EXPECT_EQ(logitless_unset(call, "targets"), LOGITLESS_INVALID_INPUT);
  for (int64_t i = 0; i < count; ++i) {
    static_cast<double*>(d_logp.data)[rows[i]] = -1 / kTokens;
    static_cast<double*>(d_lse.data)[rows[i]] = 2 * 0.001 * static_cast<const double*>(lse.data)[rows[i]] / kTokens;
  }
  EXPECT_EQ(count, kTokens);
  return *static_cast<const int*>(user);
}

// Returns a good call of a caller's own loss.
KeyCall own_loss() {
  KeyCall call("custom_loss");
  call.give_ids("targets");
  return call;
}

TEST(CCallbacks, ALossOfOnesOwnHasTheGradientsOfTheSameCrossEntropy) {
  KeyCall good = own_loss(), same_good("cross_entropy");
  good.change("entropy = true; fills_lse = true; top_k = 3");
  same_good.change("z_loss = 0.001");
  const KeyCall::Handle own(good), same(same_good);
  const auto expect_same_gradients = [&] {
    for (const char* const name : {"d_hidden", "d_weight", "d_bias"}) {
      const logitless_tensor got = good.keys[name].tensor, want = same_good.keys[name].tensor;
      EXPECT_EQ(std::memcmp(got.data, want.data, 5 * sizeof(float)), 0) << name;
    }
  };
  int result = 0;
  ASSERT_EQ(logitless_set_loss(own, evaluate, &result), LOGITLESS_OK);
  for (const auto verb : {logitless_run, logitless_plan, logitless_forward, logitless_backward}) {
    if (verb == logitless_backward) {
      good.reset_outputs();
      logitless_set_number(own, "upstream", 2), logitless_set_number(same, "upstream", 2);
    }
    ASSERT_EQ(verb(own), LOGITLESS_OK) << logitless_last_error();
    ASSERT_EQ(verb(same), LOGITLESS_OK) << logitless_last_error();
    if (verb == logitless_run || verb == logitless_backward) expect_same_gradients();
  }
  EXPECT_EQ(logitless_set_loss(same, evaluate, &result), LOGITLESS_INVALID_INPUT);
  result = 42;
  EXPECT_EQ(logitless_run(own), LOGITLESS_CALLBACK_FAILED);
  expect_says("evaluate returned 42");
  logitless_tensor lse;
  EXPECT_EQ(logitless_get_tensor(own, "lse", &lse), LOGITLESS_INVALID_INPUT);
}

TEST(CCallbacks, WhatTheyReturnOrThrowIsAStatus) {
  KeyCall good = own_loss();
  const KeyCall::Handle own(good);
  const auto thrower = [](void*, logitless_call*, const int64_t*, int64_t) -> int { throw std::runtime_error("ouch"); };
  logitless_set_loss(own, thrower, nullptr);
  EXPECT_EQ(logitless_run(own), LOGITLESS_CALLBACK_FAILED);
  expect_says("evaluate threw: ouch");
  const auto out_of_memory = [](void*, logitless_call*, const int64_t*, int64_t) -> int { throw std::bad_alloc(); };
  logitless_set_loss(own, out_of_memory, nullptr);
  EXPECT_EQ(logitless_run(own), LOGITLESS_OUT_OF_MEMORY);
  KeyCall with_sink("cross_entropy");
  with_sink.change("d_weight =");
  const KeyCall::Handle call(with_sink);
  const auto sink = [](void*, int64_t, int64_t, const logitless_tensor*) { return 3; };
  ASSERT_EQ(logitless_set_weight_sink(call, sink, nullptr), LOGITLESS_OK);
  EXPECT_EQ(logitless_run(call), LOGITLESS_CALLBACK_FAILED);
  expect_says("weight_sink returned 3");
  ASSERT_EQ(logitless_set_weight_sink(call, nullptr, nullptr), LOGITLESS_OK);
  EXPECT_EQ(logitless_run(call), LOGITLESS_OK);
}

TEST(CCallbacks, FailedAllocationsAreAStatus) {
  const auto try_each = [](const auto& call, int64_t at_least) {
    int64_t refused = 0;
    for (int64_t index = 0;; ++index) {
      const int64_t before = blocks_alive();
      fail_allocation(index, Failing::kAllAfter);
      const bool good = call();
      const AllocationsSeen seen = stop_failing();
      if (seen.failed == 0) break;
      ASSERT_EQ(blocks_alive(), before);
      EXPECT_FALSE(good);
      EXPECT_STREQ(logitless_last_error(), "out of memory");
      ++refused;
    }
    EXPECT_GE(refused, at_least);
  };
  KeyCall good("cross_entropy");
  const KeyCall::Handle call(good);
  ASSERT_EQ(logitless_run(call), LOGITLESS_OK);
  // Frees the first result, so that each of the next runs makes the same allocations.
  good.change("targets[0] = 99");
  ASSERT_NE(logitless_run(call), LOGITLESS_OK);
  good.change("targets[0] = 1");
  try_each(
      [] {
        logitless_call* made = logitless_call_new(nullptr, "policy_loss");
        logitless_call_free(made);
        return made != nullptr;
      },
      5);
  try_each([&] { return logitless_run(call) == LOGITLESS_OK; }, 5);
}

}  // namespace
}  // namespace logitless::testing

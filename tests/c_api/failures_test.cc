// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Error messages about keys and handles in C; failing callbacks and allocations.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "logitless/c_api.h"
#include "logitless/logitless.h"
#include "support/failing_allocation.h"

namespace logitless::testing {
namespace {

constexpr int64_t kTokens = 6, kHidden = 4, kVocab = 9;

/// A small call with buffers for its gradients.
struct Small {
  std::vector<float> hidden, weight, d_hidden, d_weight, numbers;
  std::vector<int64_t> ids = {1, 2, 3, 4, 5, 6};
  logitless_call* call;

  explicit Small(const char* task = "cross_entropy") : call(logitless_call_new(nullptr, task)) {
    for (int64_t i = 0; i < kTokens * kHidden; ++i) hidden.push_back(0.1F * static_cast<float>(i % 7));
    for (int64_t i = 0; i < kVocab * kHidden; ++i) weight.push_back(0.1F * static_cast<float>(i % 5));
    d_hidden.assign(hidden.size(), 7), d_weight.assign(weight.size(), 7), numbers.assign(100, -1);
    logitless_set_2d(call, "hidden", hidden.data(), LOGITLESS_FLOAT32, kTokens, kHidden);
    logitless_set_2d(call, "weight", weight.data(), LOGITLESS_FLOAT32, kVocab, kHidden);
    logitless_set_1d(call, std::string(task) == "policy_loss" ? "chosen_ids" : "targets", ids.data(), LOGITLESS_INT64,
                     kTokens);
    want_gradients();
  }
  ~Small() { logitless_call_free(call); }
  Small(const Small&) = delete;
  Small& operator=(const Small&) = delete;

  void want_gradients() {
    logitless_set_2d(call, "d_hidden", d_hidden.data(), LOGITLESS_FLOAT32, kTokens, kHidden);
    logitless_set_2d(call, "d_weight", d_weight.data(), LOGITLESS_FLOAT32, kVocab, kHidden);
  }
  bool untouched() const {
    return d_hidden == std::vector<float>(hidden.size(), 7) && d_weight == std::vector<float>(weight.size(), 7);
  }
  logitless_status set(const char* name, void* data, int32_t dtype, int32_t axes, int64_t a, int64_t b = 0,
                       int64_t step_a = 0, int64_t step_b = 0) {
    const logitless_tensor tensor = {data, dtype, axes, {a, b, 0}, {step_a, step_b, 0}};
    return logitless_set_tensor(call, name, &tensor);
  }
};

void expect_says(const std::string& words) {
  EXPECT_NE(std::string(logitless_last_error()).find(words), std::string::npos) << logitless_last_error();
}

struct Mistake {
  const char* task;
  std::function<logitless_status(Small&)> make;
  const char* words;
};

TEST(CMessages, NameTheMistake) {
  const Mistake mistakes[] = {
      {"policy_loss", [](Small& s) { return logitless_set_number(s.call, "epsilon_hihg", 0.3); },
       "policy_loss has no key 'epsilon_hihg'; did you mean epsilon_high"},
      {"cross_entropy", [](Small& s) { return logitless_set_number(s.call, "smoothing", 0.1); },
       "did you mean label_smoothing?"},
      {"cross_entropy", [](Small& s) { return logitless_set_number(s.call, "zzzzzzzz", 0.1); },
       "cross_entropy has no key 'zzzzzzzz'"},
      {"policy_loss", [](Small& s) { return logitless_set_text(s.call, "beta", "hot"); },
       "beta must be a finite number of at least 0, not the text 'hot'"},
      {"policy_loss", [](Small& s) { return logitless_set_number(s.call, "beta", -1); },
       "beta = -1 must be a finite number of at least 0"},
      {"policy_loss", [](Small& s) { return logitless_set_number(s.call, "beta", NAN); }, "beta = nan must be"},
      {"policy_loss", [](Small& s) { return logitless_set_text(s.call, "loss_type", "gpro"); },
       "loss_type must be one of grpo, bnpo"},
      {"policy_loss", [](Small& s) { return logitless_set_integer(s.call, "loss_type", 3); }, "not the integer 3"},
      {"cross_entropy", [](Small& s) { return logitless_set_number(s.call, "shift", 1.5); },
       "shift must be an integer of at least 0, not the number 1.5"},
      {"cross_entropy", [](Small& s) { return logitless_set_integer(s.call, "dft", 2); },
       "dft must be 0 or 1, not the integer 2"},
      {"preference_loss", [](Small& s) { return logitless_set_text(s.call, "loss_type", "sigmoid,sfd"); },
       "loss_type must be a text that lists some of sigmoid, hinge"},
      {"preference_loss", [](Small& s) { return logitless_set_text(s.call, "loss_weights", "1,,2"); },
       "loss_weights must be a text that lists numbers, not the text ''"},
      {"preference_loss", [](Small& s) { return logitless_set_text(s.call, "loss_type", "sigmoid,"); },
       "loss_type must be a text that lists some of sigmoid, hinge"},
      {"cross_entropy", [](Small& s) { return logitless_set_number(s.call, "targets", 3); },
       "targets must be a tensor of int32 or int64 [N] or [B, T], not the number 3"},
      {"cross_entropy", [](Small& s) { return s.set("targets", s.hidden.data(), LOGITLESS_FLOAT32, 1, kTokens); },
       "targets must be a tensor of int32 or int64 [N] or [B, T], not float32 [6]"},
      {"cross_entropy", [](Small& s) { return s.set("label_smoothing", s.hidden.data(), LOGITLESS_FLOAT32, 1, 1); },
       "label_smoothing must be a number from 0 to 1, not a tensor of float32 [1]"},
      {"cross_entropy", [](Small& s) { return logitless_unset(s.call, "targets"); },
       "cross_entropy needs targets, which is not set"},
      {"cross_entropy", [](Small& s) { return logitless_set_tensor(s.call, "weight", nullptr); },
       "cross_entropy needs weight, which is not set"},
      {"cross_entropy", [](Small& s) { return logitless_unset(s.call, "hidden"); },
       "cross_entropy needs hidden and weight, or logits"},
      {"distillation_loss", [](Small&) { return LOGITLESS_OK; }, "needs teacher.hidden or teacher.logits"},
      {"cross_entropy", [](Small& s) { return s.set("weight", s.ids.data(), LOGITLESS_INT64, 2, 3, 2); },
       "weight must be a tensor of floats [V, H], or of uint8 [V, bytes of a row] if packed, not int64 [3, 2]"},
      {"custom_loss", [](Small&) { return LOGITLESS_OK; }, "custom_loss needs a loss, which is not set"},
      {"token_stats", [](Small&) { return LOGITLESS_OK; },
       "gradients are requested from token_stats, which has no loss"},
      {"cross_entropy", [](Small& s) { return logitless_set_text(s.call, nullptr, "x"); }, "name is NULL"},
      {"cross_entropy", [](Small& s) { return logitless_set_text(s.call, "reduction", nullptr); }, "text is NULL"},
  };
  for (const Mistake& mistake : mistakes) {
    SCOPED_TRACE(mistake.words);
    Small small(mistake.task);
    const logitless_status status = mistake.make(small);
    if (status != LOGITLESS_OK) {
      EXPECT_EQ(status, LOGITLESS_INVALID_INPUT);
      expect_says(mistake.words);
    }
    // The next verb fails with the setter's message, and does not run.
    const bool named = std::string(mistake.words) != "name is NULL";
    if (named) {
      EXPECT_EQ(logitless_run(small.call), LOGITLESS_INVALID_INPUT);
      expect_says(mistake.words);
    }
    EXPECT_TRUE(small.untouched());
  }
}

TEST(CMessages, AFailureOfASetterIsToldOnce) {
  Small small;
  EXPECT_EQ(logitless_set_number(small.call, "z_los", 1), LOGITLESS_INVALID_INPUT);
  EXPECT_EQ(logitless_set_number(small.call, "z_loss", -1), LOGITLESS_INVALID_INPUT);
  EXPECT_EQ(logitless_run(small.call), LOGITLESS_INVALID_INPUT);
  expect_says("z_los'");
  EXPECT_EQ(logitless_run(small.call), LOGITLESS_OK);
  EXPECT_EQ(logitless_set_number(small.call, "z_los", 1), LOGITLESS_INVALID_INPUT);
  EXPECT_EQ(logitless_unset(small.call, "z_los"), LOGITLESS_OK);  // withdraws the failure
  EXPECT_EQ(logitless_run(small.call), LOGITLESS_OK);
}

TEST(CMessages, OfResultsAndHandles) {
  Small small;
  double number = 0;
  int64_t integer = 0;
  const char* text = nullptr;
  logitless_tensor tensor;
  EXPECT_EQ(logitless_get_number(small.call, "loss", &number), LOGITLESS_INVALID_INPUT);
  expect_says("loss was not computed: nothing has run");
  EXPECT_EQ(logitless_backward(small.call), LOGITLESS_INVALID_INPUT);
  expect_says("backward needs the results of forward");
  EXPECT_EQ(logitless_plan(small.call), LOGITLESS_OK);
  EXPECT_EQ(logitless_get_number(small.call, "loss", &number), LOGITLESS_INVALID_INPUT);
  EXPECT_EQ(logitless_get_integer(small.call, "plan.workspace_bytes", &integer), LOGITLESS_OK);
  EXPECT_GT(integer, 0);
  EXPECT_EQ(logitless_run(small.call), LOGITLESS_OK);
  EXPECT_EQ(logitless_get_number(small.call, "los", &number), LOGITLESS_INVALID_INPUT);
  expect_says("cross_entropy has no result 'los'; did you mean loss");
  EXPECT_EQ(logitless_get_tensor(small.call, "loss", &tensor), LOGITLESS_INVALID_INPUT);
  expect_says("loss is not a tensor");
  EXPECT_EQ(logitless_get_number(small.call, "per_token_loss", &number), LOGITLESS_INVALID_INPUT);
  EXPECT_EQ(logitless_get_integer(small.call, "loss", &integer), LOGITLESS_INVALID_INPUT);
  EXPECT_EQ(logitless_get_tensor(small.call, "per_token_argmax", &tensor), LOGITLESS_INVALID_INPUT);
  expect_says("per_token_argmax was not computed");
  EXPECT_EQ(logitless_get_text(small.call, "tokens", &text), LOGITLESS_OK);
  EXPECT_STREQ(text, "6");
  EXPECT_EQ(logitless_get_number(small.call, "loss", nullptr), LOGITLESS_INVALID_INPUT);
  small.ids[0] = 99;  // a failed run drops the earlier results
  EXPECT_EQ(logitless_run(small.call), LOGITLESS_INVALID_INPUT);
  EXPECT_EQ(logitless_get_number(small.call, "loss", &number), LOGITLESS_INVALID_INPUT);
  // plan() for a different batch does not change the results.
  Small stats("token_stats");
  logitless_unset(stats.call, "d_hidden"), logitless_unset(stats.call, "d_weight");
  logitless_set_integer(stats.call, "top_k", 2);
  ASSERT_EQ(logitless_run(stats.call), LOGITLESS_OK) << logitless_last_error();
  stats.set("hidden", stats.hidden.data(), 0, 2, 3, kHidden),
      stats.set("targets", stats.ids.data(), LOGITLESS_INT64, 1, 3);
  ASSERT_EQ(logitless_plan(stats.call), LOGITLESS_OK) << logitless_last_error();
  ASSERT_EQ(logitless_get_tensor(stats.call, "top_ids", &tensor), LOGITLESS_OK);
  EXPECT_TRUE(tensor.sizes[0] == kTokens && tensor.sizes[1] == 2);
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

// ---- Callbacks ----

struct Seen {
  int64_t rows = 0;
  std::vector<double> lse;
  int result = 0;
};

// The gradients of the mean of −log p, and of z-loss.
int evaluate(void* user, logitless_call* call, const int64_t* rows, int64_t count) {
  auto& seen = *static_cast<Seen*>(user);
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
    const double value = static_cast<const double*>(lse.data)[rows[i]];
    static_cast<double*>(d_logp.data)[rows[i]] = -1.0 / kTokens;
    static_cast<double*>(d_lse.data)[rows[i]] = 2 * 0.001 * value / kTokens;
    seen.lse.push_back(value);
  }
  seen.rows += count;
  return seen.result;
}

TEST(CCallbacks, ALossOfOnesOwnHasTheGradientsOfTheSameCrossEntropy) {
  Small own("custom_loss"), same;
  Seen seen;
  logitless_set_integer(own.call, "entropy", 1), logitless_set_integer(own.call, "fills_lse", 1);
  logitless_set_integer(own.call, "top_k", 3);
  logitless_set_loss(own.call, evaluate, &seen);
  logitless_set_number(same.call, "z_loss", 0.001);
  ASSERT_EQ(logitless_run(own.call), LOGITLESS_OK) << logitless_last_error();
  ASSERT_EQ(logitless_run(same.call), LOGITLESS_OK) << logitless_last_error();
  EXPECT_EQ(own.d_hidden, same.d_hidden);
  EXPECT_EQ(own.d_weight, same.d_weight);
  EXPECT_EQ(seen.rows, kTokens);
  logitless_tensor lse;
  ASSERT_EQ(logitless_get_tensor(own.call, "lse", &lse), LOGITLESS_OK) << logitless_last_error();
  EXPECT_EQ(std::vector<double>(static_cast<double*>(lse.data), static_cast<double*>(lse.data) + kTokens), seen.lse);
  ASSERT_EQ(logitless_plan(own.call), LOGITLESS_OK) << logitless_last_error();
  std::fill(own.d_hidden.begin(), own.d_hidden.end(), 0.0f);
  ASSERT_EQ(logitless_forward(own.call), LOGITLESS_OK) << logitless_last_error();
  logitless_set_number(own.call, "upstream", 2), logitless_set_number(same.call, "upstream", 2);
  ASSERT_EQ(logitless_backward(own.call), LOGITLESS_OK) << logitless_last_error();
  ASSERT_EQ(logitless_forward(same.call), LOGITLESS_OK) << logitless_last_error();
  ASSERT_EQ(logitless_backward(same.call), LOGITLESS_OK) << logitless_last_error();
  EXPECT_EQ(own.d_hidden, same.d_hidden);
  EXPECT_EQ(logitless_set_loss(same.call, evaluate, &seen), LOGITLESS_INVALID_INPUT);
  seen.result = 42;
  EXPECT_EQ(logitless_run(own.call), LOGITLESS_CALLBACK_FAILED);
  expect_says("evaluate returned 42");
  EXPECT_EQ(logitless_get_tensor(own.call, "lse", &lse), LOGITLESS_INVALID_INPUT);
}

TEST(CCallbacks, ASinkGetsEveryEntryOnce) {
  for (const bool transposed : {false, true}) {
    Small small, whole;
    std::vector<float> turned(small.weight.size());
    for (int64_t v = 0; v < kVocab; ++v) {
      for (int64_t h = 0; h < kHidden; ++h)
        turned[static_cast<size_t>(h * kVocab + v)] = small.weight[static_cast<size_t>(v * kHidden + h)];
    }
    if (transposed) {
      ASSERT_EQ(small.set("weight", turned.data(), 0, 2, kVocab, kHidden, 1, kVocab), LOGITLESS_OK);
    }
    struct Received {
      std::vector<float> d_weight;
      int result = 0;
    } received;
    const auto receive = [](void* user, int64_t first, int64_t count, const logitless_tensor* tile) {
      auto& to = *static_cast<Received*>(user);
      EXPECT_EQ(static_cast<size_t>(first * kHidden), to.d_weight.size());
      EXPECT_EQ(tile->sizes[0], count);
      EXPECT_EQ(tile->sizes[1], kHidden);
      for (int64_t i = 0; i < count; ++i) {
        for (int64_t h = 0; h < kHidden; ++h) {
          to.d_weight.push_back(static_cast<const float*>(tile->data)[i * tile->strides[0] + h * tile->strides[1]]);
        }
      }
      return to.result;
    };
    logitless_unset(small.call, "d_weight");
    ASSERT_EQ(logitless_set_weight_sink(small.call, receive, &received), LOGITLESS_OK);
    ASSERT_EQ(logitless_run(small.call), LOGITLESS_OK) << logitless_last_error();
    ASSERT_EQ(logitless_run(whole.call), LOGITLESS_OK) << logitless_last_error();
    ASSERT_EQ(received.d_weight.size(), whole.d_weight.size());
    for (size_t i = 0; i < whole.d_weight.size(); ++i) EXPECT_NEAR(received.d_weight[i], whole.d_weight[i], 1e-6);
    received = {.d_weight = {}, .result = 3};
    EXPECT_EQ(logitless_run(small.call), LOGITLESS_CALLBACK_FAILED);
    expect_says("weight_sink returned 3");
    ASSERT_EQ(logitless_set_weight_sink(small.call, nullptr, nullptr), LOGITLESS_OK);
    EXPECT_EQ(logitless_run(small.call), LOGITLESS_OK);
  }
}

TEST(CCallbacks, WhatTheyThrowIsAStatus) {
  Small own("custom_loss");
  const auto thrower = [](void*, logitless_call*, const int64_t*, int64_t) -> int { throw std::runtime_error("ouch"); };
  logitless_set_loss(own.call, thrower, nullptr);
  EXPECT_EQ(logitless_run(own.call), LOGITLESS_CALLBACK_FAILED);
  expect_says("evaluate threw: ouch");
  const auto out_of_memory = [](void*, logitless_call*, const int64_t*, int64_t) -> int { throw std::bad_alloc(); };
  logitless_set_loss(own.call, out_of_memory, nullptr);
  EXPECT_EQ(logitless_run(own.call), LOGITLESS_OUT_OF_MEMORY);
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
  Small small;
  ASSERT_EQ(logitless_run(small.call), LOGITLESS_OK);
  // Frees the first result, so that each of the next runs makes the same allocations.
  small.ids[0] = 99;
  ASSERT_NE(logitless_run(small.call), LOGITLESS_OK);
  small.ids[0] = 1;
  try_each(
      [] {
        logitless_call* call = logitless_call_new(nullptr, "policy_loss");
        logitless_call_free(call);
        return call != nullptr;
      },
      5);
  try_each([&] { return logitless_run(small.call) == LOGITLESS_OK; }, 5);
}

}  // namespace
}  // namespace logitless::testing

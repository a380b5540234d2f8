// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Runs drawn calls through the C API: all inputs must reach the call, and all results must come back.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <string>
#include <vector>

#include "../c_api/c_call.h"
#include "generator/call_run.h"

namespace logitless::testing {
namespace c_calls_test {

void throw_unless_ok(logitless_status status) {
  if (status == LOGITLESS_OK) return;
  if (status == LOGITLESS_INVALID_INPUT) throw InvalidInput(logitless_last_error());
  throw std::runtime_error(std::to_string(status) + ": " + logitless_last_error());
}

class CContext {
 public:
  explicit CContext(const ContextOptions& options) {
    const auto set = [&](const Field& field, const auto& value) {
      if constexpr (requires { text_of(value); }) {
        throw_unless_ok(logitless_context_set(context_, field.name, text_of(value).c_str()));
      }
    };
    visit_fields(FieldsOf<ContextOptions>(), set, options);
    set_ranks("vocab", options.ranks.vocab), set_ranks("data", options.ranks.data);
  }
  ~CContext() { logitless_context_free(context_); }
  CContext(const CContext&) = delete;
  CContext& operator=(const CContext&) = delete;
  operator const logitless_context*() const { return context_; }

 private:
  void set_ranks(const char* of, Communicator* ranks) {
    if (!ranks) return;
    const auto gather = [](void* user, const void* mine, void* all, size_t bytes) {
      return static_cast<Communicator*>(user)->all_gather(mine, all, bytes), 0;
    };
    const auto exchange = [](void* user, const void* mine, void* theirs, size_t bytes) {
      return static_cast<Communicator*>(user)->all_to_all(mine, theirs, bytes), 0;
    };
    const logitless_communicator communicator = {ranks->rank(), ranks->size(), gather, exchange, ranks};
    throw_unless_ok(logitless_context_set_ranks(context_, of, &communicator));
  }

  logitless_context* context_ = logitless_context_new();
};

int receive_tile(void* user, int64_t first, int64_t count, const logitless_tensor* tile) {
  ConstTensor view;
  view.data = tile->data, view.dtype = static_cast<DType>(tile->dtype), view.axes = tile->axes;
  std::copy_n(tile->sizes, 3, view.sizes.begin()), std::copy_n(tile->strides, 3, view.strides.begin());
  (*static_cast<const logitless::WeightGradientSink*>(user))(first, count, view);
  return 0;
}

// Returns the results by name; a result that was not computed is empty.
template <Task T>
std::vector<Column> columns_in(logitless_call* call) {
  std::vector<Column> columns = columns_of(typename T::Result());
  for (Column& column : columns) {
    int64_t integer = 0;
    double number = 0;
    logitless_tensor tensor;
    const char* const name = column.name.c_str();
    if (column.values.empty()) {
      if (logitless_get_tensor(call, name, &tensor) != LOGITLESS_OK) continue;
      const int64_t count = tensor.sizes[0] * (tensor.axes > 1 ? tensor.sizes[1] : 1);
      for (int64_t i = 0; i < count; ++i) {
        column.values.push_back(column.whole ? static_cast<double>(static_cast<const int64_t*>(tensor.data)[i])
                                             : static_cast<const double*>(tensor.data)[i]);
      }
    } else if (column.whole) {
      throw_unless_ok(logitless_get_integer(call, name, &integer));
      column.values = {static_cast<double>(integer)};
    } else {
      throw_unless_ok(logitless_get_number(call, name, &number));
      column.values = {number};
    }
  }
  return columns;
}

Plan plan_in(logitless_call* call) {
  Plan plan;
  const auto read = [&](const Field& field, auto& member) {
    const char* text = nullptr;
    throw_unless_ok(logitless_get_text(call, ("plan." + std::string(field.name)).c_str(), &text));
    record::Keys keys("plan");
    keys.add(field.name, member, member, field);
    keys.set(field.name, std::string_view(text));
  };
  visit_fields(FieldsOf<Plan>(), read, plan);
  return plan;
}

std::atomic<int64_t> runs_through_c = 0;

template <Task T>
Ran run_through_c(const Given<T>& given) {
  ++runs_through_c;
  CCall call(T::kName, CContext(given.context.options()), true);  // the call keeps what it needs
  call.give(given.logits);
  call.give(given.task);
  call.give(given.gradients, given.logits);
  logitless::WeightGradientSink sink = given.gradients.weight_sink;
  if (sink) throw_unless_ok(logitless_set_weight_sink(call, receive_tile, &sink));
  if (std::is_same_v<T, IdLogps> || !given.upstream.each.empty()) {
    // An empty list needs an address too.
    static const double kNone = 0;
    const std::vector<double>& each = given.upstream.each;
    call.put("upstream", tensor(each.empty() ? &kNone : each.data(), LOGITLESS_FLOAT64, {std::ssize(each)}));
  } else if (kHasLoss<T>) {
    call.put("upstream", given.upstream.one);
  }
  if constexpr (std::is_same_v<T, TokenStatistics>) {
    const TokenGrads& grads = given.upstream.grads;
    const std::pair<const char*, const std::vector<double>*> all[] = {
        {"d_logp", &grads.logp},   {"d_lse", &grads.lse},         {"d_entropy", &grads.entropy},
        {"d_cross", &grads.cross}, {"d_outside", &grads.outside}, {"d_square_sum", &grads.square_sum}};
    for (const auto& [name, values] : all) {
      if (!values->empty()) call.put(name, span_tensor(std::span<const double>(*values)));
    }
  }
  Ran ran;
  if (!given.halves) {
    throw_unless_ok(logitless_plan(call));
    ran.planned = plan_in(call);
  }
  throw_unless_ok(given.halves ? logitless_forward(call) : logitless_run(call));
  ran.columns = columns_in<T>(call);
  if (given.halves && given.gradients.any()) throw_unless_ok(logitless_backward(call));
  ran.plan = plan_in(call);
  for (const Column& column : ran.columns) {
    const auto bytes = std::as_bytes(std::span(column.values));
    ran.bits.insert(ran.bits.end(), bytes.begin(), bytes.end());
  }
  return ran;
}

TEST(DrawnCalls, ArriveThroughC) {
  const auto send = [](bool through_c) {
    AllTasks::each([&]<class T>() {
      if constexpr (!std::is_same_v<T, CustomLoss>) run_here<T> = through_c ? &run_through_c<T> : &run_given<T>;
    });
  };
  send(true);
  int64_t accepted = 0;
  for (uint64_t random = 1; random <= 1500; ++random) {
    DrawnCall call = draw_call(random);
    call.reuse = false;
    if (call.task == CustomLoss::kName) continue;  // its callback has its own test
    const Verdict verdict = check(call);
    EXPECT_EQ(verdict.fault, "") << code_of(call);
    accepted += verdict.refusal.empty();
  }
  send(false);
  EXPECT_GT(accepted, 1000);
  EXPECT_GE(runs_through_c, 2 * accepted);  // with two teams
}

}  // namespace c_calls_test
}  // namespace logitless::testing

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "c_api/context.h"
#include "c_api/fields.h"
#include "c_api/inputs.h"
#include "c_api/outputs.h"
#include "c_api/structs.h"
#include "logitless/logits.h"
#include "logitless/token_stats.h"

using namespace logitless;
using namespace logitless::c_api;

namespace logitless::c_api {

template <>
logitless_token_loss defaults() {
  logitless_token_loss out = {};
  out.may_drop_rows = 1;
  return out;
}

namespace {

// Tells whether a column has top_k entries a token; no call reads these.
bool is_top(const Field& field) { return std::string_view(field.name).starts_with("top_"); }

// Returns the columns of `in`, which have the call's `tokens` entries each; NULL is an empty one.
template <class Columns, class CColumns>
Columns columns_of(const CColumns* given, int64_t tokens, const char* name) {
  const CColumns in = read(&there(given, name), name);
  check_entries((std::string(name) + ".tokens").c_str(), in.tokens, tokens);
  Columns out;
  const auto copy_column = [&](const Field& field, auto& to, const auto* from) {
    if (!from || is_top(field)) return;
    const auto entries = span_of(from, static_cast<size_t>(tokens), field.name);
    to.assign(entries.begin(), entries.end());
  };
  visit_fields(FieldsOf<Columns>(), copy_column, out, in);
  return out;
}

// Throws InvalidInput where expected rows are given to a call that has none, or in another type than its.
void check_expected(const logitless_token_stats& in, const CallTensors& call) {
  const char* given = in.expected_f32 ? "stats.expected_f32" : in.expected_f64 ? "stats.expected_f64" : nullptr;
  if (!given) return;
  if (call.expected_elements() == 0 && call.tokens() > 0) {
    core::fail(given, " is given, but finished logits have no head");
  }
  if ((in.expected_f32 && in.expected_f64) || (in.expected_f64 != nullptr) != call.in_double()) {
    core::fail(given, " is given: expected rows are of ", call.in_double() ? "float64" : "float32",
               ", the type of the sums");
  }
  check_place(in.expected_f32, "stats.expected_f32");
  check_place(in.expected_f64, "stats.expected_f64");
}

// Adds the expected rows that a backward call was given to its statistics.
TokenStats with_expected(TokenStats stats, const logitless_token_stats* given, const CallTensors& call) {
  const logitless_token_stats in = read(&there(given, "stats"), "stats");
  check_expected(in, call);
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max() / static_cast<int64_t>(sizeof(double));
  const auto count = static_cast<size_t>(std::clamp<int64_t>(call.expected_elements(), 0, kMost));
  if (count == static_cast<size_t>(kMost)) core::fail("hidden has more elements than memory has bytes");
  if (in.expected_f32) stats.expected.f32.assign(in.expected_f32, in.expected_f32 + count);
  if (in.expected_f64) stats.expected.f64.assign(in.expected_f64, in.expected_f64 + count);
  return stats;
}

// The arrays that are wanted are looked at before a call, and filled after it.
class StatsArrays {
 public:
  StatsArrays(logitless_token_stats* out, int64_t tokens) : in_(read(out, "stats")) {
    if (out) check_entries("stats.tokens", in_.tokens, tokens);
  }
  void fill(const TokenStats& stats) const {
    if (stats.expected.empty() && in_.tokens > 0 && (in_.expected_f32 || in_.expected_f64)) {
      core::fail("stats.", in_.expected_f32 ? "expected_f32" : "expected_f64",
                 " is given, but the call has left none: the plan's kind says what ran");
    }
    visit_fields(
        FieldsOf<TokenStats>(), [](const Field&, const auto& from, auto* to) { copy(from, to); }, stats, in_);
    copy(stats.expected.f32, in_.expected_f32);
    copy(stats.expected.f64, in_.expected_f64);
  }
  // Expected rows are left by a call of statistics alone, whose plan must be theirs.
  void check_expected_of(const Context* context, const CallTensors& call) const {
    if (!in_.expected_f32 && !in_.expected_f64) return;
    check_expected(in_, call);
    if (!context || context->options().plan != PlanKind::kExpectedRow) {
      core::fail("stats.", in_.expected_f32 ? "expected_f32" : "expected_f64", " is given, but ",
                 context ? "the context's plan is not expected_row" : "this call leaves no expected rows");
    }
    if (context->options().ranks.cuts_vocab()) {
      core::fail("stats.", in_.expected_f32 ? "expected_f32" : "expected_f64", " is given, but the vocabulary is cut");
    }
  }
  // A statistic that nobody asked for cannot be returned.
  void check_wanted(const StatsRequest& request) const {
    const auto check = [](const void* array, bool wanted, const char* name) {
      if (array && !wanted) core::fail("stats.", name, " is given, but request does not ask for it");
    };
    check(in_.entropy, request.entropy, "entropy");
    check(in_.cross, request.cross, "cross");
    check(in_.argmax, request.argmax, "argmax");
    check(in_.rank, request.rank, "rank");
    check(in_.top_ids, request.top_k != 0, "top_ids");
    check(in_.top_logps, request.top_k != 0, "top_logps");
    check(in_.outside, request.outside, "outside");
    check(in_.outside_max, request.outside, "outside_max");
    check(in_.square_sum, request.square_sum, "square_sum");
  }

 private:
  logitless_token_stats in_;
};

// Returns columns for a callback, which only reads those of statistics; NULL where there is none.
template <class CColumns, class Columns>
CColumns lent(const Columns& columns) {
  CColumns out = {};
  out.struct_size = sizeof out;
  out.tokens = static_cast<int64_t>(columns.logp.size());
  const auto lend = [](const Field&, auto*& to, const auto& from) {
    to = from.empty() ? nullptr : const_cast<std::remove_reference_t<decltype(to)>>(from.data());
  };
  visit_fields(FieldsOf<Columns>(), lend, out, columns);
  return out;
}

class CallbackLoss final : public TokenLoss {
 public:
  explicit CallbackLoss(const logitless_token_loss* given)
      : in_(read(&there(given, "loss"), "loss")), needs_(request_of(in_.needs)) {
    if (!in_.evaluate) core::fail("loss.evaluate is NULL");
    groups_ = span_of(in_.groups, in_.group_count, "loss.groups");
  }

  StatsRequest needs() const override { return needs_; }
  GradsFilled gradients() const override {
    return {in_.fills_lse != 0, in_.fills_entropy != 0, in_.fills_cross != 0, in_.fills_outside != 0};
  }
  bool may_drop_rows() const override { return in_.may_drop_rows != 0; }
  std::span<const int64_t> groups() const override { return groups_; }
  void evaluate(std::span<const int64_t> rows, const TokenStats& stats, TokenGrads& grads) override {
    const auto read_stats = lent<logitless_token_stats>(stats);
    auto written = lent<logitless_token_grads>(grads);
    call_back("loss.evaluate", [&] { return in_.evaluate(in_.user, rows.data(), rows.size(), &read_stats, &written); });
  }

 private:
  logitless_token_loss in_;
  StatsRequest needs_;
  std::span<const int64_t> groups_;
};

}  // namespace
}  // namespace logitless::c_api

void logitless_token_stats_init(logitless_token_stats* stats, size_t size) { init(stats, size); }
void logitless_token_grads_init(logitless_token_grads* grads, size_t size) { init(grads, size); }
void logitless_token_loss_init(logitless_token_loss* loss, size_t size) { init(loss, size); }

logitless_status logitless_compute_token_stats(const logitless_context* context, const logitless_source* source,
                                               const logitless_targets* targets, const logitless_token_options* options,
                                               const logitless_stats_request* request, logitless_token_stats* stats,
                                               logitless_plan* plan) {
  return guarded([&] {
    const Context& ran_in = context_of(context);
    const CallTensors call(source, nullptr);
    const StatsRequest wanted = request_of(request);
    const StatsArrays arrays(&there(stats, "stats"), call.tokens());
    arrays.check_wanted(wanted);
    arrays.check_expected_of(&ran_in, call);
    check_plan(plan);
    Plan ran;
    arrays.fill(call.with([&](const auto&, const auto&... from) {
      return compute_token_stats(ran_in, from..., targets_of(targets, "targets"), token_options_of(options), wanted,
                                 &ran);
    }));
    write_plan(ran, plan);
  });
}

size_t logitless_token_stats_slice_bytes(int32_t hidden_dtype, const logitless_stats_request* request) {
  size_t bytes = 0;
  guarded([&] { bytes = slice_bytes_per_token(dtype_of(hidden_dtype, "hidden_dtype"), request_of(request)); });
  return bytes;
}

logitless_status logitless_token_stats_slice(const logitless_context* context, const logitless_source* source,
                                             const logitless_targets* targets, const logitless_token_options* options,
                                             const logitless_stats_request* request, void* slice, size_t slice_bytes) {
  return guarded([&] {
    const Context& ran_in = context_of(context);
    const StatsRequest wanted = request_of(request);
    fold_slice(CallTensors(source, nullptr), wanted, slice, slice_bytes, [&](const auto&... from) {
      return token_stats_slice(ran_in, from..., targets_of(targets, "targets"), token_options_of(options), wanted);
    });
  });
}

logitless_status logitless_backpropagate_token_grads(
    const logitless_context* context, const logitless_source* source, const logitless_targets* targets,
    const logitless_token_options* options, const logitless_stats_request* request, const logitless_token_stats* stats,
    const logitless_token_grads* grads, const logitless_gradients* gradients, logitless_plan* plan) {
  return guarded([&] {
    const Context& ran_in = context_of(context);
    check_plan(plan);
    Plan ran;
    const CallTensors call(source, gradients);
    const TokenStats given = with_expected(columns_of<TokenStats>(stats, call.tokens(), "stats"), stats, call);
    call.with([&](const auto& outputs, const auto&... from) {
      backpropagate_token_grads(ran_in, from..., targets_of(targets, "targets"), token_options_of(options),
                                request_of(request), given, columns_of<TokenGrads>(grads, call.tokens(), "grads"),
                                outputs, &ran);
    });
    write_plan(ran, plan);
  });
}

logitless_status logitless_run_token_loss(const logitless_context* context, const logitless_source* source,
                                          const logitless_targets* targets, const logitless_token_options* options,
                                          const logitless_token_loss* loss, const logitless_gradients* gradients,
                                          logitless_token_stats* stats, logitless_plan* plan) {
  return guarded([&] {
    const Context& ran_in = context_of(context);
    const CallTensors call(source, gradients);
    CallbackLoss callback(loss);
    const StatsArrays arrays(stats, call.tokens());
    arrays.check_wanted(callback.needs());
    arrays.check_expected_of(nullptr, call);
    check_plan(plan);
    Plan ran;
    arrays.fill(call.with([&](const auto& outputs, const auto&... from) {
      return run_token_loss(ran_in, from..., targets_of(targets, "targets"), token_options_of(options), callback,
                            outputs, &ran);
    }));
    write_plan(ran, plan);
  });
}

logitless_status logitless_plan_token_stats(const logitless_context* context, const logitless_source* source,
                                            const logitless_targets* targets, const logitless_token_options* options,
                                            const logitless_stats_request* request, logitless_plan* plan) {
  return guarded([&] {
    const Context& ran_in = context_of(context);
    check_plan(&there(plan, "plan"));
    write_plan(CallTensors(source, nullptr).with([&](const auto&, const auto&... from) {
      return plan_token_stats(ran_in, from..., targets_of(targets, "targets"), token_options_of(options),
                              request_of(request));
    }),
               plan);
  });
}

logitless_status logitless_plan_token_loss(const logitless_context* context, const logitless_source* source,
                                           const logitless_targets* targets, const logitless_token_options* options,
                                           const logitless_token_loss* loss, const logitless_gradients* gradients,
                                           logitless_plan* plan) {
  return guarded([&] {
    const Context& ran_in = context_of(context);
    check_plan(&there(plan, "plan"));
    const CallbackLoss callback(loss);
    write_plan(CallTensors(source, gradients).with([&](const auto& outputs, const auto&... from) {
      return plan_token_loss(ran_in, from..., targets_of(targets, "targets"), token_options_of(options), callback,
                             outputs);
    }),
               plan);
  });
}

logitless_status logitless_entropy_from_logits(const logitless_context* context, const logitless_logits* given,
                                               const logitless_token_options* options, const double* upstream,
                                               const logitless_gradients* wanted, double* entropy) {
  return guarded([&] {
    const Context& ran_in = context_of(context);
    const FinishedLogits logits = logits_of(given);
    const logitless_gradients gradients = read(wanted, "gradients");
    check_of_logits_alone(gradients);
    const int64_t tokens = upstream ? std::max<int64_t>(logits.tokens(), 0) : 0;
    const std::span<const double> from_above = span_of(upstream, static_cast<size_t>(tokens), "upstream");
    check_place(entropy, "entropy");
    copy(entropy_from_logits(ran_in, logits, token_options_of(options), from_above, d_logits_of(gradients, logits)),
         entropy);
  });
}

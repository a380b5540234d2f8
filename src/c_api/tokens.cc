// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>
#include <vector>

#include "c_api/context.h"
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

template <class T>
std::vector<T> copied(const T* data, int64_t entries) {
  return data ? std::vector<T>(data, data + entries) : std::vector<T>();
}

TokenStats stats_of(const logitless_token_stats* given) {
  const logitless_token_stats in = read(&there(given, "stats"), "stats");
  if (in.tokens < 0) core::fail("stats.tokens = ", in.tokens, " is negative");
  TokenStats out;
  out.logp = copied(in.logp, in.tokens);
  out.lse = copied(in.lse, in.tokens);
  out.entropy = copied(in.entropy, in.tokens);
  out.cross = copied(in.cross, in.tokens);
  out.argmax = copied(in.argmax, in.tokens);
  out.rank = copied(in.rank, in.tokens);
  out.max_logit = copied(in.max_logit, in.tokens);
  out.log_sum = copied(in.log_sum, in.tokens);
  return out;
}

TokenGrads grads_of(const logitless_token_grads* given) {
  const logitless_token_grads in = read(&there(given, "grads"), "grads");
  if (in.tokens < 0) core::fail("grads.tokens = ", in.tokens, " is negative");
  return {copied(in.logp, in.tokens), copied(in.lse, in.tokens), copied(in.entropy, in.tokens),
          copied(in.cross, in.tokens)};
}

// The arrays that are wanted are looked at before a call, and filled after it.
class StatsArrays {
 public:
  StatsArrays(logitless_token_stats* out, int64_t tokens) : in_(read(out, "stats")) {
    if (out) check_entries("stats.tokens", in_.tokens, tokens);
  }
  void fill(const TokenStats& stats) const {
    copy(stats.logp, in_.logp);
    copy(stats.lse, in_.lse);
    copy(stats.entropy, in_.entropy);
    copy(stats.cross, in_.cross);
    copy(stats.argmax, in_.argmax);
    copy(stats.rank, in_.rank);
    copy(stats.max_logit, in_.max_logit);
    copy(stats.log_sum, in_.log_sum);
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
  }

 private:
  logitless_token_stats in_;
};

// Returns the entries of a column for a callback that only reads them; NULL where there is none.
template <class T>
T* entries_of(const std::vector<T>& column) {
  return column.empty() ? nullptr : const_cast<T*>(column.data());
}

class CallbackLoss final : public TokenLoss {
 public:
  explicit CallbackLoss(const logitless_token_loss* given)
      : in_(read(&there(given, "loss"), "loss")), needs_(request_of(in_.needs)) {
    if (!in_.evaluate) core::fail("loss.evaluate is NULL");
    groups_ = span_of(in_.groups, in_.group_count, "loss.groups");
  }

  StatsRequest needs() const override { return needs_; }
  GradsFilled gradients() const override { return {in_.fills_lse != 0, in_.fills_entropy != 0, in_.fills_cross != 0}; }
  bool may_drop_rows() const override { return in_.may_drop_rows != 0; }
  std::span<const int64_t> groups() const override { return groups_; }
  void evaluate(std::span<const int64_t> rows, const TokenStats& stats, TokenGrads& grads) override {
    const auto tokens = static_cast<int64_t>(stats.logp.size());
    const logitless_token_stats read_stats = {sizeof(logitless_token_stats), tokens,
                                              entries_of(stats.logp),        entries_of(stats.lse),
                                              entries_of(stats.entropy),     entries_of(stats.cross),
                                              entries_of(stats.argmax),      entries_of(stats.rank),
                                              entries_of(stats.max_logit),   entries_of(stats.log_sum)};
    logitless_token_grads written = {sizeof(logitless_token_grads), tokens,
                                     entries_of(grads.logp),        entries_of(grads.lse),
                                     entries_of(grads.entropy),     entries_of(grads.cross)};
    const int result = in_.evaluate(in_.user, rows.data(), rows.size(), &read_stats, &written);
    if (result != 0) throw CallbackFailed("loss.evaluate returned " + std::to_string(result));
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
    check_plan(plan);
    Plan ran;
    arrays.fill(call.with([&](const auto&, const auto&... from) {
      return compute_token_stats(ran_in, from..., targets_of(targets, "targets"), token_options_of(options), wanted,
                                 &ran);
    }));
    write_plan(ran, plan);
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
    CallTensors(source, gradients).with([&](const auto& outputs, const auto&... from) {
      backpropagate_token_grads(ran_in, from..., targets_of(targets, "targets"), token_options_of(options),
                                request_of(request), stats_of(stats), grads_of(grads), outputs, &ran);
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
    const Logits logits = logits_of(given);
    const logitless_gradients gradients = read(wanted, "gradients");
    check_of_logits_alone(gradients);
    const std::span<const double> from_above(upstream,
                                             upstream ? static_cast<size_t>(std::max<int64_t>(logits.tokens(), 0)) : 0);
    copy(entropy_from_logits(ran_in, logits, token_options_of(options), from_above, d_logits_of(gradients, logits)),
         entropy);
  });
}

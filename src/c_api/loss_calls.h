// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// How a loss is run, run in halves and planned, from C.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "c_api/context.h"
#include "c_api/fields.h"
#include "c_api/inputs.h"
#include "c_api/outputs.h"
#include "c_api/structs.h"

namespace logitless::c_api {

/// Where the caller wants a result. Its sizes are checked before a call, and it is filled after it.
template <class CResult>
class ResultOf {
 public:
  ResultOf(CResult* out, int64_t tokens, int64_t sequences) : out_(out), value_(read(out, "result")) {
    if (has_token_arrays()) check_entries("result.tokens", value_.tokens, tokens);
    if constexpr (requires { value_.sequences; }) {
      if (has_sequence_arrays()) check_entries("result.sequences", value_.sequences, sequences);
    }
  }

  template <class Result>
  void fill(const Result& result) {
    if (!out_) return;
    value_.loss = result.loss;
    if constexpr (requires { value_.per_token_logps; }) copy(result.per_token_logps, value_.per_token_logps);
    if constexpr (requires { value_.per_token_loss; }) copy(result.per_token_loss, value_.per_token_loss);
    if constexpr (requires { value_.per_token_divergence; }) {
      copy(result.per_token_divergence, value_.per_token_divergence);
    }
    if constexpr (requires { value_.per_token_acceptance; }) copy_distilled(result);
    if constexpr (requires { value_.sequence_logps; }) copy(result.sequence_logps, value_.sequence_logps);
    if constexpr (requires { value_.sequence_losses; }) copy(result.sequence_losses, value_.sequence_losses);
    put_fields(value_, result.metrics);
    write(value_, out_);
  }

 private:
  template <class Result>
  void copy_distilled(const Result& result) {
    copy(result.per_token_acceptance, value_.per_token_acceptance);
    copy(result.per_token_agreement, value_.per_token_agreement);
    copy(result.per_token_entropy, value_.per_token_entropy);
    copy(result.per_token_teacher_entropy, value_.per_token_teacher_entropy);
  }
  bool has_token_arrays() const {
    bool has = false;
    if constexpr (requires { value_.per_token_loss; }) has |= value_.per_token_loss != nullptr;
    if constexpr (requires { value_.per_token_logps; }) has |= value_.per_token_logps != nullptr;
    if constexpr (requires { value_.per_token_divergence; }) has |= value_.per_token_divergence != nullptr;
    if constexpr (requires { value_.per_token_acceptance; }) {
      has |= value_.per_token_acceptance || value_.per_token_agreement || value_.per_token_entropy ||
             value_.per_token_teacher_entropy;
    }
    return has;
  }
  bool has_sequence_arrays() const {
    if constexpr (requires { value_.sequence_losses; }) return value_.sequence_losses || value_.sequence_logps;
    if constexpr (requires { value_.sequence_logps; }) return value_.sequence_logps;
    return false;
  }

  CResult* out_;
  CResult value_;
};

// What the four functions of every loss have in common. `run` is called with the outputs and the source; it
// returns the C++ result, what a forward half leaves, or a plan.

template <class CResult, class Run>
logitless_status run_loss(const logitless_context* context, const logitless_source* source,
                          const logitless_gradients* gradients, CResult* result, logitless_plan* plan, const Run& run) {
  return guarded([&] {
    const Context& ran_in = context_of(context);
    const CallTensors call(source, gradients);
    ResultOf<CResult> out(result, call.tokens(), call.sequences());
    check_plan(plan);
    const auto got = call.with([&](const auto& outputs, const auto&... from) { return run(outputs, ran_in, from...); });
    out.fill(got);
    write_plan(got.plan, plan);
  });
}

template <class CResult, class Run>
logitless_status run_forward(const logitless_context* context, const logitless_source* source, CResult* result,
                             logitless_plan* plan, logitless_forward** forward, const Run& run) {
  return guarded([&] {
    const Context& ran_in = context_of(context);
    logitless_forward*& left = there(forward, "forward");
    const CallTensors call(source, nullptr);
    ResultOf<CResult> out(result, call.tokens(), call.sequences());
    check_plan(plan);
    auto half = call.with([&](const auto&, const auto&... from) { return run(ran_in, from...); });
    auto kept = std::make_unique<logitless_forward>();
    const auto& result_of_half = kept->forward.emplace<decltype(half)>(std::move(half)).result;
    out.fill(result_of_half);
    write_plan(result_of_half.plan, plan);
    left = kept.release();
  });
}

// The backward half and the plan of a loss return a Plan.
template <class Run>
logitless_status run_plan(const logitless_context* context, const logitless_source* source,
                          const logitless_gradients* gradients, logitless_plan* plan, const Run& run) {
  return guarded([&] {
    const Context& ran_in = context_of(context);
    const CallTensors call(source, gradients);
    check_plan(plan);
    write_plan(call.with([&](const auto& outputs, const auto&... from) { return run(outputs, ran_in, from...); }),
               plan);
  });
}

}  // namespace logitless::c_api

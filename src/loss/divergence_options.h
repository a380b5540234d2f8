// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The common options of losses between a student and a teacher.
#pragma once

#include "core/checks.h"
#include "core/matrices.h"
#include "logitless/cross_entropy.h"
#include "logitless/divergence.h"
#include "loss/reduction.h"
#include "problem/token_problem.h"

namespace logitless::loss {

/// Returns the parameter of the divergence (β, λ, w or η), or 0 without one.
template <class Options>
double divergence_parameter(const Options& options) {
  switch (options.loss_type) {
    case Divergence::kJsd:
      return options.beta;
    case Divergence::kSkewKl:
    case Divergence::kSkewReverseKl:
      return options.skew;
    case Divergence::kMixedKl:
      return options.forward_weight;
    case Divergence::kLkHybrid:
      if constexpr (requires { options.acceptance_decay; }) return options.acceptance_decay;
      break;
    case Divergence::kForwardKl:
    case Divergence::kReverseKl:
    case Divergence::kTotalVariation:
    case Divergence::kAcceptance:
      break;
  }
  return 0;
}

/// Returns the factor of a row's divergence, without the mean and loss_scale.
template <class Options>
double divergence_weight(const Options& options, int64_t row) {
  const problem::Temperatures student = {options.token.temperature, options.token.temperatures};
  const double t = options.temperature_squared ? student.of(row) : 1;
  return options.divergence_weight * t * t;
}

/// Throws InvalidInput for options that have no meaning with the divergence, its reduction, or missing
/// targets; the call has `tokens` rows.
template <class Options>
void check_divergence_options(const Options& options, const ConstTensor& targets, int64_t tokens) {
  using core::fail_if;
  const Options defaults;
  const Divergence kind = options.loss_type;
  const auto check_meaning = [&](const char* name, double value, double unset, bool meant) {
    fail_if(value != unset && !meant, name, " = ", value, " has no meaning for divergence ", name_of(kind));
  };
  check_meaning("beta", options.beta, defaults.beta, kind == Divergence::kJsd);
  check_meaning("skew", options.skew, defaults.skew, kind == Divergence::kSkewKl || kind == Divergence::kSkewReverseKl);
  check_meaning("forward_weight", options.forward_weight, defaults.forward_weight, kind == Divergence::kMixedKl);
  if constexpr (requires { options.acceptance_decay; }) {
    check_meaning("acceptance_decay", options.acceptance_decay, defaults.acceptance_decay,
                  kind == Divergence::kLkHybrid);
  }
  const TokenOptions& token = options.token;
  fail_if(token.temperature_meaning != TemperatureMeaning::kScaleLogits,
          "token.temperature_meaning = ", name_of(token.temperature_meaning),
          " must be scale_logits: a divergence compares distributions");
  if (targets.count() == 0 && tokens > 0) {
    problem::check_no_targets(token, "there are no targets");
    fail_if(options.hard_weight != 0, "hard_weight = ", options.hard_weight, " needs targets");
  }
  check_mean(mean_options(options));
}

}  // namespace logitless::loss

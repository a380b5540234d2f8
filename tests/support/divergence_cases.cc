// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "support/divergence_cases.h"

namespace logitless::testing {

std::vector<DivergenceCase> divergence_cases() {
  std::vector<DivergenceCase> out;
  const auto add = [&](const std::string& name, Divergence kind) -> Distillation& {
    out.push_back({name, {}});
    out.back().options.loss_type = kind;
    return out.back().options;
  };
  add("forward_kl", Divergence::kForwardKl);
  add("reverse_kl", Divergence::kReverseKl);
  for (const double beta : {0.0, 1e-6, 0.1, 0.5, 0.9, 1 - 1e-6, 1.0}) {
    add("jsd beta " + std::to_string(beta), Divergence::kJsd).beta = beta;
  }
  for (const double skew : {0.0, 1e-6, 0.1, 0.5, 1 - 1e-6, 1.0}) {
    add("skew_kl skew " + std::to_string(skew), Divergence::kSkewKl).skew = skew;
    add("skew_reverse_kl skew " + std::to_string(skew), Divergence::kSkewReverseKl).skew = skew;
  }
  add("total_variation", Divergence::kTotalVariation);
  for (const double weight : {0.0, 0.3, 1.0}) {
    add("mixed_kl weight " + std::to_string(weight), Divergence::kMixedKl).forward_weight = weight;
  }
  add("acceptance", Divergence::kAcceptance);
  add("lk_hybrid", Divergence::kLkHybrid);
  return out;
}

}  // namespace logitless::testing

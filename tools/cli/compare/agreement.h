// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// How far two runs of one call lie apart.
#pragma once

#include <string>
#include <vector>

#include "cli/common/gates.h"
#include "cli/measure/results.h"

namespace logitless::cli {

struct Agreement {
  double loss_abs = 0;
  Differences differences;
  std::vector<io::Gate> gates;  ///< those of the config's tolerances that have something to hold

  bool holds() const { return all_pass(gates); }
};

/// `tokens`: those that take part; `spacing`: the larger gradient_spacing() of the two.
Agreement make_agreement(const io::Config& config, const Job& job, double tokens, double spacing, double loss_abs,
                         Differences differences);

/// {"loss_abs": ..., "d_hidden_max_abs": ..., "d_hidden_rel_l2": ..., ...}
Json difference_json(const Agreement& agreement, bool has_bias);
/// The gates, what has none, and the tolerances that were not used.
std::string agreement_text(const io::Config& config, const Agreement& agreement);

/// NaN where b is 0.
double ratio(double a, double b);

}  // namespace logitless::cli

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Compares the outputs of two contenders.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cli/common/gates.h"
#include "io/tolerances.h"

namespace logitless::cli {

/// The outputs of a job, and its per-token losses [N].
struct Outputs {
  const Job& job;
  const std::vector<double>& losses;
};

struct Difference {
  double max_abs = 0;
  double rel_l2 = 0;
};

/// By name: losses, d_hidden, d_weight, d_bias, d_lora_a and d_lora_b, as far as both contenders have them.
using Differences = std::map<std::string, Difference>;

/// Measures how far b is from the reference a.
Differences differences_of(const Outputs& a, const Outputs& b);

/// Returns one gate for the loss and one per difference. `tokens` counts those that are not ignored;
/// `spacing`: of the gradient terms of both contenders.
std::vector<io::Gate> gates_of(const io::Config& config, const Job& job, double tokens, const io::TermSpacing& spacing,
                               double loss_abs, const Differences& differences);

/// {"loss_abs": ..., "d_hidden_max_abs": ..., "d_hidden_rel_l2": ..., ...}
Json difference_json(double loss_abs, const Differences& differences, const Job& job);

/// Writes the loss and the gradients, as described under FILES in compare's man page. Throws io::Error.
void write_outputs(const std::string& path, const Job& job, double loss);

}  // namespace logitless::cli

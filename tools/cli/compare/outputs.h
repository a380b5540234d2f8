// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// What a contender has computed, held against another one's.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cli/common/gates.h"
#include "io/tolerances.h"

namespace logitless::cli {

/// The outputs of a job, and the losses of its tokens [N].
struct Outputs {
  const Job& job;
  const std::vector<double>& losses;
};

struct Difference {
  double max_abs = 0;
  double rel_l2 = 0;
};

/// By tensor, of those that both have: losses, d_hidden, d_weight, d_bias, d_lora_a and d_lora_b.
using Differences = std::map<std::string, Difference>;

/// b's are held against a's.
Differences differences_of(const Outputs& a, const Outputs& b);

/// One for the loss, and one for each difference. `tokens`: those that take part; `spacing`: that of the
/// two.
std::vector<io::Gate> gates_of(const io::Config& config, const Job& job, double tokens, const io::TermSpacing& spacing,
                               double loss_abs, const Differences& differences);

/// {"loss_abs": ..., "d_hidden_max_abs": ..., "d_hidden_rel_l2": ..., ...}
Json difference_json(double loss_abs, const Differences& differences, const Job& job);

/// The loss and the gradients, as FILES of compare's page describes them. Throws io::Error.
void write_outputs(const std::string& path, const Job& job, double loss);

}  // namespace logitless::cli

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The gates that `compare` and `gradcheck` share.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cli/common/job.h"
#include "cli/common/output.h"
#include "io/config.h"
#include "io/tolerances.h"

namespace logitless::cli {

/// Returns loss_atol, in nats per token, times the number of tokens whose errors the loss adds up. `tokens`:
/// the tokens that are not ignored.
double loss_limit(const io::Config& config, const Job& job, double tokens, double loss_atol);

/// Returns the factor by which the relative error of a token gradient's weight grows. The ratio of a whole
/// sequence (rloo, vespo) is the exponential of a sum over its n tokens, and independent errors grow by
/// sqrt(n).
double error_growth(const io::Config& config, const Job& job, double tokens);

bool all_pass(std::span<const io::Gate> gates);

/// Returns the tolerances that the config sets and no gate has used.
std::vector<std::string> gates_not_applied(const io::Config& config, std::span<const io::Gate> gates);

/// [{name, value, limit, pass}, ...]
Json gates_json(std::span<const io::Gate> gates);
/// Returns a heading, `what`, and one line for each gate of gates_json().
std::string gates_text(const std::string& what, const Json& gates);
/// Returns one line for each name of gates_not_applied().
std::string not_applied_text(const Json& names, const std::string& why);

}  // namespace logitless::cli

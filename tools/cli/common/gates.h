// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// What the gates of `compare` and `gradcheck` have in common.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cli/common/job.h"
#include "cli/common/output.h"
#include "io/config.h"
#include "io/tolerances.h"

namespace logitless::cli {

/// loss_atol, in nats a token, times the tokens whose errors the loss adds up. `tokens`: those that take
/// part.
double loss_limit(const io::Config& config, const Job& job, double tokens, double loss_atol);

/// What the relative error of a weight in front of a token's gradient grows by: the ratio of a whole sequence
/// (rloo, vespo) is the exponential of a sum over its n tokens, whose independent errors make sqrt(n) of one.
double error_growth(const io::Config& config, const Job& job, double tokens);

bool all_pass(std::span<const io::Gate> gates);

/// The tolerances that the config names and no gate has used.
std::vector<std::string> gates_not_applied(const io::Config& config, std::span<const io::Gate> gates);

/// [{name, value, limit, pass}, ...]
Json gates_json(std::span<const io::Gate> gates);
/// A heading, `what`, and a line for each of gates_json().
std::string gates_text(const std::string& what, const Json& gates);
/// A line for each name of gates_not_applied().
std::string not_applied_text(const Json& names, const std::string& why);

}  // namespace logitless::cli

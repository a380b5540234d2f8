// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The inputs of one logits-level call, checked and resolved: every InvalidInput is thrown while a Problem is made.
#pragma once

#include <string_view>
#include <vector>

#include "engine/problem.h"
#include "logitless/logits.h"

namespace logitless::logits {

struct Problem : engine::TokenProblem {
  Logits logits;
  LogitsGradient dlogits;

  const void* row(int64_t row) const;
  void* gradient_row(int64_t row) const;
};

/// [B + 1], for losses that know sequences. Throws InvalidInput for logits whose shape is wrong.
std::vector<int64_t> checked_sequence_offsets(const Logits& logits);

/// What may be written, for losses that have inputs of their own to keep apart from it.
core::ByteRange output_range(const LogitsGradient& dlogits);

Problem make_problem(const Logits& logits, const Targets& targets, const TokenOptions& options, StatsRequest request,
                     const LogitsGradient& dlogits, std::string_view prior_name = "prior");

/// Without targets: every row takes part. `upstream` is one more input that dlogits may not overlap.
Problem make_problem(const Logits& logits, const TokenOptions& options, StatsRequest request,
                     std::span<const double> upstream, const LogitsGradient& dlogits);

}  // namespace logitless::logits

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// What the float64 oracle says of a task's call.
#pragma once

#include <memory>
#include <optional>

#include "cli/common/task_call.h"
#include "oracle/tiled_truth.h"

namespace logitless::cli {

/// Loss and statistics of a call, and the means to go on to its gradients.
struct Truth {
  /// d_hidden, and through `receive` the gradients of the head: level fused.
  oracle::MatrixXd parameter_gradients(const TaskRun& call, const oracle::ReceiveWeights& receive) const;

  std::unique_ptr<oracle::LogitsTruth> of_logits;  ///< level logits
  std::unique_ptr<oracle::FusedTruth> fused;       ///< level fused
  /// Losses of whole distributions: dL/dr of all tokens and vocabulary entries. Of the statistics below these
  /// have `logp` alone, as the call reports it.
  std::optional<oracle::MatrixXd> d_raw;
  oracle::TokenStatistics stats;
  oracle::LossTruth loss;
};

/// The call has run, so that its inputs have been checked. `held_logits`: where the logits stand, unless a
/// run in place has overwritten them there.
Truth find_truth(const TaskRun& call, const void* held_logits);

}  // namespace logitless::cli

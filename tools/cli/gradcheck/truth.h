// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The float64 oracle's results for a call.
#pragma once

#include <memory>
#include <optional>

#include "cli/common/task_call.h"
#include "oracle/tiled_truth.h"

namespace logitless::cli {

/// Loss and statistics of a call, and the means to compute its gradients.
struct Truth {
  /// Returns d_hidden, and passes the gradients of the head to `receive`. Level fused only.
  oracle::MatrixXd parameter_gradients(const TaskRun& call, const oracle::ReceiveWeights& receive) const;

  std::unique_ptr<oracle::LogitsTruth> of_logits;  ///< level logits
  std::unique_ptr<oracle::FusedTruth> fused;       ///< level fused
  /// dL/dr of all tokens and vocabulary entries, for losses of whole distributions. These fill only `logp` of
  /// the statistics below, as the call reports it.
  std::optional<oracle::MatrixXd> d_raw;
  oracle::TokenStatistics stats;
  oracle::LossTruth loss;
};

/// Call it after the run, which checks the inputs. `held_logits` points to the original logits, since a run
/// in place overwrites its own.
Truth find_truth(const TaskRun& call, const void* held_logits);

}  // namespace logitless::cli

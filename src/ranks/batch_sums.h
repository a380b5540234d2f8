// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// If ranks hold parts of a batch, the gradients of the head are summed over these ranks.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "core/store.h"
#include "logitless/context.h"
#include "logitless/logits.h"
#include "problem/hidden_problem.h"
#include "problem/logits_problem.h"
#include "ranks/row_sums.h"
#include "ranks/shared.h"

namespace logitless::ranks {

/// Throws InvalidInput if the outputs cannot be summed.
void check_sums(const GradientMatrices& outputs, const Shared& shared);
/// Finished logits have no head, so there is nothing to check.
inline void check_sums(const LogitsGradient&, const Shared&) {}

/// Sums the gradients of a head over Shared::weight_ranks, if that is set. If all ranks can do so, rows of
/// d_weight are sent while later rows are still being computed.
class BatchSums {
 public:
  /// Exchanges the outputs' sizes and types before gradients are computed, and throws RankError if they
  /// differ between ranks. `early_chunks`: the number of chunks of this rank if it calls reached() in the
  /// last one, else 0. All arguments must outlive this.
  BatchSums(const Context& context, const problem::HiddenProblem& problem, const GradientMatrices& outputs,
            const Shared& shared, int64_t early_chunks);
  BatchSums(const Context& context, const problem::LogitsProblem&, const LogitsGradient&, const Shared&, int64_t)
      : context_(context) {}

  /// Returns whether all ranks call reached(), at about the same time. A rank that did not would keep the
  /// others waiting.
  bool overlaps_backward() const { return early_; }
  /// The first `entries` rows of d_weight are final, while other threads of this call still compute. Sums
  /// those rows that fill several whole messages. Must be called on the thread that made the call.
  void reached(int64_t entries);
  /// Sums all remaining rows and outputs.
  void finish();

 private:
  static constexpr size_t kMostOutputs = 5;

  // Sends groups of `at_least` messages of the current output while they end at or before row `end`. After
  // its last row, moves to the next output.
  void advance(int64_t end, int64_t at_least, int threads);

  const Context& context_;
  Group* group_ = nullptr;  // null: no sums
  bool in_double_ = false;
  int threads_ = 1;  // of the call: within its regions, a Context may report fewer
  bool early_ = false;
  std::array<Matrix, kMostOutputs> outputs_ = {};  // d_weight is first
  size_t output_ = 0;
  std::optional<RowSums> sums_;  // of the current output, once its first message was sent
};

}  // namespace logitless::ranks

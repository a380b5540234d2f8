// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Where ranks have parts of a batch, their gradients of the head are summed over them.
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

/// Throws InvalidInput where outputs cannot be summed.
void check_sums(const GradientMatrices& outputs, const Shared& shared);
/// Finished logits have no head.
inline void check_sums(const LogitsGradient&, const Shared&) {}

/// Sums what the gradients of a head hold over Shared::weight_ranks, if there are any. Those of d_weight
/// travel while later ones are made, where all ranks can do so.
class BatchSums {
 public:
  /// Meets the ranks before gradients are made. Throws RankError where these have outputs of other sizes or
  /// types. `early_chunks`: so many chunks does this rank make, if it calls reached() in the last one; else
  /// 0. All that is given must outlive this.
  BatchSums(const Context& context, const problem::HiddenProblem& problem, const GradientMatrices& outputs,
            const Shared& shared, int64_t early_chunks);
  BatchSums(const Context& context, const problem::LogitsProblem&, const LogitsGradient&, const Shared&, int64_t)
      : context_(context) {}

  /// Tells whether all ranks call reached(), at about the same time: one that does not would keep the others
  /// waiting.
  bool travels_early() const { return early_; }
  /// The first `entries` rows of d_weight have their last values, and other threads of this call work on:
  /// sums those that fill a few messages. It is called on the thread that made the call.
  void reached(int64_t entries);
  /// Sums the rest.
  void finish();

 private:
  static constexpr size_t kMostOutputs = 5;

  // Sums the rows up to `end` of the output whose turn it is, as far as they fill so many messages at a time;
  // behind its last row, the next output has its turn.
  void advance(int64_t end, int64_t at_least, int threads);

  const Context& context_;
  Group* group_ = nullptr;  // null: nothing is summed
  bool in_double_ = false;
  int threads_ = 1;  // of the call: inside its regions a Context may say that there are fewer
  bool early_ = false;
  std::array<Matrix, kMostOutputs> outputs_ = {};  // d_weight is the first
  size_t output_ = 0;
  std::optional<RowSums> sums_;  // of this output, once it has begun
};

}  // namespace logitless::ranks

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The oracle of distillation from a teacher on sets of ids: the formulas of docs/losses-distillation.md over
// whole rows in float64.
#pragma once

#include <vector>

#include "logitless/set_distillation.h"
#include "oracle/set_oracle.h"

namespace logitless::oracle {

struct SetDistillationTruth {
  double loss = 0;
  /// [N] each; 0 for ignored rows. The masses are the probabilities of a row's set.
  std::vector<double> per_token_loss, divergence, teacher_mass, student_mass, nll;
  int64_t rows = 0;  ///< that are not ignored
  MatrixXd d_raw;    ///< [N, V]: dL/dr of the student
};

/// `labels`: the label of each row, or kNoLabel if it is ignored, [N]; `offsets`: the bounds of the
/// sequences.
SetDistillationTruth set_distillation_truth(const SetLogits& logits, const SetTeacher& teacher,
                                            const std::vector<int64_t>& labels, std::span<const int64_t> offsets,
                                            const SetDistillation& options);

}  // namespace logitless::oracle

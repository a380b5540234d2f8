// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The oracle of distillation: the formulas of docs/losses-distillation.md over whole rows in float64. A
// divergence is a sum of terms of log s and log t; its gradient dF/da = w − s Σ w comes from the slopes
// w = ∂F/∂log s. The terms are the textbook's, not those that the engine sums.
#pragma once

#include <cstdint>
#include <vector>

#include "logitless/distillation.h"
#include "oracle/oracle.h"

namespace logitless::oracle {

/// The inputs of a distillation call.
struct DistillationInputs {
  HiddenStates hidden;
  HeadMatrices head;
  TeacherMatrices teacher;
  Targets targets;
  Distillation options;
};

/// A divergence and its parameter: β, λ, w or η.
struct DivergenceFormula {
  explicit DivergenceFormula(const Distillation& options);
  DivergenceFormula(Divergence kind, double parameter);

  /// Returns the term of one vocabulary entry. kAcceptance: min(s, t). kLkHybrid also needs `overlap`, Σ
  /// min(s, t).
  double term(double log_s, double log_t, double overlap) const;
  /// Returns s ∂term/∂s. At s = t the slopes of |s − t| and min(s, t) are 0.
  double slope(double log_s, double log_t, double overlap) const;

  Divergence kind;
  double parameter = 0;
};

/// A row's divergence F, its overlap Σ min(s, t), and dF/da.
struct DivergenceRow {
  double value = 0;
  double overlap = 0;
  double log_overlap = 0;
  VectorXd gradient;  ///< [V]
};
DivergenceRow divergence_row(const DivergenceFormula& formula, const VectorXd& log_s, const VectorXd& log_t);

/// log softmax of `logits` / temperature.
VectorXd log_softmax(const VectorXd& logits, double temperature);

struct DistillationTruth {
  double loss = 0;
  /// [N] each; 0 for ignored rows.
  std::vector<double> per_token_loss, divergence, acceptance, logps, entropy, teacher_entropy, agreement;
  std::vector<bool> is_active;
  std::vector<int64_t> labels;  ///< the labels of the rows, if there are targets
  /// [N, V]: the student's raw and capped logits, and the teacher's capped ones.
  MatrixXd raw, capped, teacher_capped;
  MatrixXd d_raw;                 ///< dL/dr of the student
  std::vector<double> scale;      ///< factor of a row's divergence in the loss
  std::vector<double> nll_scale;  ///< factor of its cross-entropy in the loss
};
/// parameter_gradients() computes the gradients of hidden states and head from d_raw.
DistillationTruth distillation_rows(const DistillationInputs& inputs);

}  // namespace logitless::oracle

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The oracle of distillation: the formulas of docs/losses-distillation.md over whole rows in float64. A
// divergence is a sum of terms of log s and log t; its gradient dF/da = w − s Σ w comes from the slopes
// w = ∂F/∂log s. The terms are the textbook's, not those that the engine sums.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "logitless/distillation.h"
#include "oracle/oracle.h"

namespace logitless::oracle {

/// What a distillation call is given.
struct DistillationInputs {
  HiddenStates hidden;
  HeadMatrices head;
  TeacherMatrices teacher;
  Targets targets;
  Distillation options;
};

/// How tokens' losses become one.
struct MeanOptions {
  Reduction reduction;
  MeanOver mean_over;
  std::optional<double> num_items_in_batch;
};
/// What each row's loss is divided by, [N]. `labels` has kNoLabel where a row takes no part; `offsets`: where
/// the sequences begin and end.
std::vector<double> mean_divisors(const MeanOptions& options, const std::vector<int64_t>& labels,
                                  std::span<const int64_t> offsets);

/// A divergence and its parameter (β, λ, w or η), as the options name them.
struct DivergenceFormula {
  explicit DivergenceFormula(const Distillation& options);
  DivergenceFormula(Divergence kind, double parameter);

  /// The term of one vocabulary entry. kAcceptance: min(s, t). kLkHybrid has `overlap` Σ min(s, t) as well.
  double term(double log_s, double log_t, double overlap) const;
  /// s ∂term/∂s; a tie of s and t has the slope of neither.
  double slope(double log_s, double log_t, double overlap) const;

  Divergence kind;
  double parameter = 0;
};

/// F, Σ min(s, t) and dF/da of one row.
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
  /// [N] each; 0 where a row takes no part.
  std::vector<double> per_token_loss, divergence, acceptance, logps, entropy, teacher_entropy, agreement;
  std::vector<bool> takes_part;
  std::vector<int64_t> labels;  ///< what each row predicts, with targets
  /// [N, V]: capped logits, and what they are on the way there.
  MatrixXd raw, capped, teacher_capped;
  MatrixXd d_raw;                  ///< dL/dr of the student
  std::vector<double> scale;       ///< what a row's divergence is multiplied with on its way into the loss
  std::vector<double> nll_scale;   ///< the same of its cross-entropy
  std::vector<double> normaliser;  ///< what a row's loss is divided by
  MatrixXd d_hidden, d_weight;     ///< [N, H], [V, H]
  VectorXd d_bias;
};
DistillationTruth distillation_truth(const DistillationInputs& inputs);
/// The same but for the gradients of hidden states and head: those of a large head are for
/// parameter_gradients().
DistillationTruth distillation_rows(const DistillationInputs& inputs);

/// The loss alone, of other student tensors than those in `inputs`: for finite differences.
double distillation_value(const DistillationInputs& inputs, const MatrixXd& hidden, const MatrixXd& weight,
                          const VectorXd& bias);

}  // namespace logitless::oracle

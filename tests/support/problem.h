// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The oracle with all logits of a call in memory, for the error analysis of bounds.h.
#pragma once

#include "oracle/oracle.h"

namespace logitless::oracle {

/// Double copies of a fused call's inputs.
struct Problem : Tokens {
  MatrixXd hidden;  ///< [N, H]
  MatrixXd weight;  ///< [V, H]
  VectorXd bias;    ///< [V]
};

/// Uses the head's softcap.
Problem read_problem(const HiddenStates& hidden, const HeadMatrices& head, Tokens tokens);
/// `options` is TokenOptions or CrossEntropy.
template <class Options>
Problem read_problem(const HiddenStates& hidden, const HeadMatrices& head, const Targets& targets,
                     const Options& options) {
  return read_problem(hidden, head, read_tokens(sequence_offsets(hidden), head.vocab_size(), targets, options));
}

/// Statistics with all logits.
struct Statistics : TokenStatistics {
  MatrixXd raw;      ///< r, [N, V]
  MatrixXd shifted;  ///< a - m, [N, V]
  MatrixXd log_p;    ///< [N, V]
};

Statistics compute_statistics(const Problem& problem);

/// Gradients of all logits, [N, V] each.
struct LogitGradients {
  MatrixXd d_final, slope, d_raw;
};

LogitGradients compute_logit_gradients(const Problem& problem, const Statistics& stats, const TokenGradients& grads);

struct ParameterGradients {
  MatrixXd d_hidden;  ///< [N, H]
  MatrixXd d_weight;  ///< [V, H]
  VectorXd d_bias;    ///< [V]
};

/// Rows whose dL/dr is 0 everywhere add nothing, whatever their hidden states are.
ParameterGradients compute_parameter_gradients(const Problem& problem, const MatrixXd& d_raw);

}  // namespace logitless::oracle

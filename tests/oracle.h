// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The fp64 oracle: every number the library promises, by the direct formula, with all logits in memory. Written to be
// read; it shares nothing with the engine but the public view and option structs.
#pragma once

#include <Eigen/Core>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "logitless/cross_entropy.h"
#include "logitless/tensors.h"
#include "logitless/token_stats.h"

namespace logitless::oracle {

using MatrixXd = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using VectorXd = Eigen::VectorXd;

inline constexpr int64_t kNoLabel = -1;

/// An element of any type.
double read_element(const void* data, DType dtype, int64_t at);

/// Double copies of one call's inputs.
struct Problem {
  MatrixXd hidden;              ///< [N, H]; rows that take no part are 0, whatever they held
  MatrixXd weight;              ///< [V, H]
  VectorXd bias;                ///< [V]
  double softcap = 0;           ///< 0: none
  std::vector<int64_t> labels;  ///< [N]: the word that row i predicts, or kNoLabel where it takes no part
  VectorXd temperature;         ///< [N]
  TemperatureMeaning temperature_meaning = TemperatureMeaning::kScaleLogits;
  VectorXd prior;  ///< q, [V]
  /// Raw logits are rounded to it.
  std::optional<DType> round_logits_to;

  int64_t tokens() const { return hidden.rows(); }
  int64_t vocab() const { return weight.rows(); }
  bool takes_part(int64_t row) const { return labels[row] != kNoLabel; }
  /// What the capped logits of a row are divided by.
  double logit_divisor(int64_t row) const {
    return temperature_meaning == TemperatureMeaning::kScaleLogits ? temperature[row] : 1.0;
  }
  /// What logp is divided by after the softmax.
  double logp_divisor(int64_t row) const {
    return temperature_meaning == TemperatureMeaning::kScaleLogp ? temperature[row] : 1.0;
  }
};

Problem read_problem(const HiddenStates& hidden, const LmHead& head, const Targets& targets,
                     const TokenOptions& options);
/// With the q of label smoothing: class_weights / V.
Problem read_problem(const HiddenStates& hidden, const LmHead& head, const Targets& targets,
                     const CrossEntropyOptions& options);

/// Everything a softmax of each row gives. Rows that take no part hold 0 (argmax: -1), as do ranks that are undefined.
struct Statistics {
  MatrixXd raw;      ///< r, [N, V]
  MatrixXd shifted;  ///< a - m, [N, V]
  MatrixXd log_p;    ///< [N, V]
  VectorXd max;      ///< m, of the final logits a
  VectorXd log_sum;  ///< l
  VectorXd logp, lse, entropy, prior;
  std::vector<int64_t> argmax;
  std::vector<int64_t> rank;  ///< 1 + how many final logits are larger than the label's
};

Statistics compute_statistics(const Problem& problem);

/// dL/dstatistic, [N] each.
struct TokenGradients {
  explicit TokenGradients(int64_t tokens = 0)
      : logp(VectorXd::Zero(tokens)),
        lse(VectorXd::Zero(tokens)),
        entropy(VectorXd::Zero(tokens)),
        prior(VectorXd::Zero(tokens)) {}
  bool all_zero(int64_t row) const { return logp[row] == 0 && lse[row] == 0 && entropy[row] == 0 && prior[row] == 0; }
  VectorXd logp, lse, entropy, prior;
};

struct LogitGradients {
  MatrixXd d_final;  ///< dL/da, [N, V]
  MatrixXd slope;    ///< dc/dr = 1 - tanh²(r / softcap), [N, V]
  MatrixXd d_raw;    ///< dL/dr, [N, V]
};

LogitGradients compute_logit_gradients(const Problem& problem, const Statistics& stats, const TokenGradients& grads);

struct ParameterGradients {
  MatrixXd d_hidden;  ///< [N, H]
  MatrixXd d_weight;  ///< [V, H]
  VectorXd d_bias;    ///< [V]
};

/// Rows whose dL/dr is 0 everywhere add nothing, whatever their hidden states hold.
ParameterGradients compute_parameter_gradients(const Problem& problem, const MatrixXd& d_raw);

struct Loss {
  double loss = 0;
  std::vector<double> losses;  ///< [N], under kNone only
  CrossEntropyMetrics metrics;
  TokenGradients grads;  ///< of upstream · loss
};

/// `upstream`: one value, or under kNone one a token. Empty: 1.
Loss compute_cross_entropy(const Problem& problem, const Statistics& stats, const CrossEntropyOptions& options,
                           std::span<const double> upstream = {});

/// What each row's numbers are multiplied by on their way into the loss.
struct LossWeights {
  VectorXd nll;  ///< [N]: loss_scale / normaliser of the negative log-likelihood
  VectorXd z;    ///< [N]: the same of the z-loss
};
LossWeights loss_weights(const Problem& problem, const CrossEntropyOptions& options);

}  // namespace logitless::oracle

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The float64 oracle: every number that the library promises, by the direct formula, one row or logit at a
// time. Written to be read. It shares only the public structs of views and options with the engine.
#pragma once

#include <Eigen/Core>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "core/matrices.h"
#include "logitless/cross_entropy.h"
#include "logitless/token_stats.h"

namespace logitless::oracle {

using MatrixXd = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using VectorXd = Eigen::VectorXd;

inline constexpr int64_t kNoLabel = -1;

/// Reads an element of any type.
double read_element(const void* data, DType dtype, int64_t at);

/// Returns the nearest value of a type; ties go to even.
double round_to(double value, DType dtype);
std::vector<double> read_vector(const ConstTensor& vector);
/// Returns entry i of token ids, row by row.
int64_t read_id(const ConstTensor& ids, int64_t i);
inline VectorXd to_eigen(const std::vector<double>& values) {
  return Eigen::Map<const VectorXd>(values.data(), static_cast<int64_t>(values.size()));
}
/// Returns vocabulary entries [first_entry, first_entry + entries) of a head: [entries, H]. With a LoRA they
/// are w + scale · b a.
MatrixXd read_weight(const HeadMatrices& head, int64_t first_entry, int64_t entries);
/// Returns [V]; 0 for a head without a bias.
VectorXd read_bias(const HeadMatrices& head);

/// The inputs of a call, except the tensors that its logits come from.
struct Tokens {
  std::vector<int64_t> labels;  ///< [N]: the token id that row i predicts, or kNoLabel if it is ignored
  VectorXd temperature;         ///< [N]
  TemperatureMeaning temperature_meaning = TemperatureMeaning::kScaleLogits;
  VectorXd cross;      ///< q, [V]
  double softcap = 0;  ///< 0: none
  /// The type to which raw logits are rounded.
  std::optional<DType> round_logits_to;
  int64_t top_k = 0;             ///< how many of the largest logits of each row are listed
  StatsRequest draws;            ///< what is drawn; the other statistics are not read
  std::vector<int64_t> offsets;  ///< [S + 1]: the bounds of the sequences

  int64_t tokens() const { return static_cast<int64_t>(labels.size()); }
  int64_t vocab() const { return cross.size(); }
  bool is_active(int64_t row) const { return labels[row] != kNoLabel; }
  /// Returns the divisor of a row's capped logits.
  double logit_divisor(int64_t row) const {
    return temperature_meaning == TemperatureMeaning::kScaleLogits ? temperature[row] : 1.0;
  }
  /// Returns the divisor of logp after the softmax.
  double logp_divisor(int64_t row) const {
    return temperature_meaning == TemperatureMeaning::kScaleLogp ? temperature[row] : 1.0;
  }
};

/// `offsets`: the bounds of the sequences, [S + 1].
Tokens read_tokens(std::span<const int64_t> offsets, int64_t vocab, const Targets& targets,
                   const TokenOptions& options);
/// With the q of label smoothing, class_weights / V.
Tokens read_tokens(std::span<const int64_t> offsets, int64_t vocab, const Targets& targets,
                   const CrossEntropy& options);
/// Returns the bounds of the sequences, [S + 1].
std::vector<int64_t> sequence_offsets(const HiddenStates& hidden);

/// Returns [N, H]; ignored rows are 0, whatever they held.
MatrixXd read_hidden(const HiddenStates& hidden, const Tokens& tokens);

/// Returns x · w + b for every row and vocabulary entry, [N, V]. The head is read in tiles.
MatrixXd read_products(const MatrixXd& hidden, const HeadMatrices& head);

/// Takes d_weight [entries, H] and d_bias [entries] of the vocabulary entries from first_entry on.
using ReceiveWeights = std::function<void(int64_t first_entry, const MatrixXd& d_weight, const VectorXd& d_bias)>;
/// Computes the gradients of a head's LoRA from G = d_weight of the entries from first_entry on: returns d_b
/// = scale · G aᵀ of these entries, and adds scale · bᵀ G to d_a.
MatrixXd lora_gradients(const HeadMatrices& head, int64_t first_entry, const MatrixXd& d_weight, MatrixXd& d_a);

/// Computes the gradients of hidden states and head from dL/dr [N, V] of the raw logits. Calls `receive` for
/// one tile after another, in vocabulary order; returns d_hidden [N, H].
MatrixXd parameter_gradients(const MatrixXd& hidden, const HeadMatrices& head, const MatrixXd& d_raw,
                             const ReceiveWeights& receive);

/// Statistics of each row's softmax, [N] each. Ignored rows hold 0 (argmax: -1), as do undefined ranks.
struct TokenStatistics {
  explicit TokenStatistics(int64_t tokens = 0);
  VectorXd max;      ///< m, of the final logits a
  VectorXd log_sum;  ///< l
  VectorXd logp, lse, entropy, cross;
  VectorXd outside;     ///< log-probability of all entries except the label
  VectorXd square_sum;  ///< Σ p²
  std::vector<int64_t> argmax;
  std::vector<int64_t> rank;  ///< 1 + the number of final logits that are larger than the label's
  /// [N] lists of min(top_k, V) token ids, sorted by logit (ties go to the lower id), and their
  /// log-probabilities.
  std::vector<std::vector<int64_t>> top_ids;
  std::vector<std::vector<double>> top_logps;
  /// [N] lists of the drawn ids, and their log-probabilities; empty for rows without statistics.
  std::vector<std::vector<int64_t>> drawn_ids;
  std::vector<std::vector<double>> drawn_logps;
};

/// Returns the raw logit r for x · w + b: rounded if the call says so.
double raw_logit(const Tokens& tokens, double sum);
/// Returns the final logit a for a raw logit r.
double final_logit(const Tokens& tokens, int64_t row, double raw);
/// Fills the statistics of a row, which is not ignored, from its final logits, [V].
void add_row_statistics(const Tokens& tokens, int64_t row, const Eigen::Ref<const VectorXd>& a, TokenStatistics& stats);

/// dL/dstatistic, [N] each.
struct TokenGradients {
  explicit TokenGradients(int64_t tokens = 0)
      : logp(VectorXd::Zero(tokens)),
        lse(VectorXd::Zero(tokens)),
        entropy(VectorXd::Zero(tokens)),
        cross(VectorXd::Zero(tokens)),
        outside(VectorXd::Zero(tokens)),
        square_sum(VectorXd::Zero(tokens)) {}
  bool all_zero(int64_t row) const {
    return logp[row] == 0 && lse[row] == 0 && entropy[row] == 0 && cross[row] == 0 && outside[row] == 0 &&
           square_sum[row] == 0;
  }
  VectorXd logp, lse, entropy, cross, outside, square_sum;
};

struct LogitGradient {
  double d_final = 0;  ///< dL/da
  double slope = 1;    ///< dc/dr = 1 - tanh²(r / softcap)
  double d_raw = 0;    ///< dL/dr
};

/// The gradient of any logit of a row that is not ignored.
class LogitGradientFormula {
 public:
  LogitGradientFormula(const Tokens& tokens, const TokenStatistics& stats, const TokenGradients& grads)
      : tokens_(tokens), stats_(stats), grads_(grads), cross_sum_(tokens.cross.sum()) {}
  LogitGradient at(int64_t row, int64_t entry, double raw) const;

 private:
  /// Returns the probability of an entry given that the token is not the label.
  double others_share(int64_t row, double log_p) const;

  const Tokens& tokens_;
  const TokenStatistics& stats_;
  const TokenGradients& grads_;
  double cross_sum_;
};

struct Loss {
  double loss = 0;
  std::vector<double> per_token_loss;  ///< [N]: the losses under kNone
  CrossEntropyMetrics metrics;
  TokenGradients grads;  ///< gradients of upstream · loss
};

/// `upstream`: one value, or under kNone one per token. Empty: 1.
Loss compute_cross_entropy(const Tokens& tokens, const TokenStatistics& stats, const CrossEntropy& options,
                           std::span<const double> upstream = {});

/// The factors of each row's terms in the loss: 0 for ignored rows.
struct LossWeights {
  VectorXd nll;    ///< [N]: loss_scale · token weight / divisor of the negative log-likelihood
  VectorXd z;      ///< [N]: the same for the z-loss
  VectorXd token;  ///< [N]: the token weight
};
LossWeights loss_weights(const Tokens& tokens, const CrossEntropy& options);

/// The oracle's result for any loss that is computed from statistics.
struct LossTruth {
  double loss = 0;
  std::vector<double> per_token_loss;  ///< [N], as the library reports them; may be empty
  TokenGradients grads;
};

LossTruth cross_entropy_truth(const Tokens& tokens, const TokenStatistics& stats, const CrossEntropy& options);

}  // namespace logitless::oracle

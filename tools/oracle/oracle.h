// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The fp64 oracle: every number the library promises, by the direct formula, a row or a logit at a time.
// Written to be read; it shares nothing with the engine but the public view and option structs.
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

/// An element of any type.
double read_element(const void* data, DType dtype, int64_t at);

/// The nearest value of a type, ties to even.
double round_to(double value, DType dtype);
std::vector<double> read_vector(const ConstTensor& vector);
/// Entry i of token ids, row by row.
int64_t read_id(const ConstTensor& ids, int64_t i);
inline VectorXd to_eigen(const std::vector<double>& values) {
  return Eigen::Map<const VectorXd>(values.data(), static_cast<int64_t>(values.size()));
}
/// vocabulary entries [first_entry, first_entry + entries) of a head: [entries, H]. With a LoRA they are w +
/// scale · b a.
MatrixXd read_weight(const HeadMatrices& head, int64_t first_entry, int64_t entries);
/// [V]; 0 for a head without one.
VectorXd read_bias(const HeadMatrices& head);

/// What a call makes of its logits: all of its inputs but where these come from.
struct Tokens {
  std::vector<int64_t> labels;  ///< [N]: the token id that row i predicts, or kNoLabel where it takes no part
  VectorXd temperature;         ///< [N]
  TemperatureMeaning temperature_meaning = TemperatureMeaning::kScaleLogits;
  VectorXd cross;      ///< q, [V]
  double softcap = 0;  ///< 0: none
  /// Raw logits are rounded to it.
  std::optional<DType> round_logits_to;
  int64_t top_k = 0;  ///< so many of the largest logits of each row

  int64_t tokens() const { return static_cast<int64_t>(labels.size()); }
  int64_t vocab() const { return cross.size(); }
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

/// `offsets`: where the sequences begin and end, [S + 1].
Tokens read_tokens(std::span<const int64_t> offsets, int64_t vocab, const Targets& targets,
                   const TokenOptions& options);
/// With the q of label smoothing: class_weights / V.
Tokens read_tokens(std::span<const int64_t> offsets, int64_t vocab, const Targets& targets,
                   const CrossEntropy& options);
/// Where the sequences of these hidden states begin and end.
std::vector<int64_t> sequence_offsets(const HiddenStates& hidden);

/// [N, H]; rows that take no part are 0, whatever they held.
MatrixXd read_hidden(const HiddenStates& hidden, const Tokens& tokens);

/// x · w + b of every row and vocabulary entry, [N, V]: the head is read in tiles.
MatrixXd read_products(const MatrixXd& hidden, const HeadMatrices& head);

/// d_weight [entries, H] and d_bias [entries] of the vocabulary entries from first_entry on.
using ReceiveWeights = std::function<void(int64_t first_entry, const MatrixXd& d_weight, const VectorXd& d_bias)>;
/// The gradients of a LoRA beside a head, from G = d_weight of the entries from first_entry on: returns
/// d_b = scale · G aᵀ of these, and adds scale · bᵀ G to d_a.
MatrixXd lora_gradients(const HeadMatrices& head, int64_t first_entry, const MatrixXd& d_weight, MatrixXd& d_a);

/// Gradients of hidden states and head from dL/dr [N, V] of the raw logits. Calls `receive` with one tile
/// after the other, in vocabulary order; returns d_hidden [N, H].
MatrixXd parameter_gradients(const MatrixXd& hidden, const HeadMatrices& head, const MatrixXd& d_raw,
                             const ReceiveWeights& receive);

/// What a softmax of each row gives, [N] each. Rows that take no part hold 0 (argmax: -1), as do ranks that
/// are undefined.
struct TokenStatistics {
  explicit TokenStatistics(int64_t tokens = 0);
  VectorXd max;      ///< m, of the final logits a
  VectorXd log_sum;  ///< l
  VectorXd logp, lse, entropy, cross;
  VectorXd outside;     ///< log-probability of every entry but the label
  VectorXd square_sum;  ///< Σ p²
  std::vector<int64_t> argmax;
  std::vector<int64_t> rank;  ///< 1 + how many final logits are larger than the label's
  /// [N] lists of min(top_k, V) token ids, by falling logit and then by rising id, and their
  /// log-probabilities.
  std::vector<std::vector<int64_t>> top_ids;
  std::vector<std::vector<double>> top_logps;
};

/// The raw logit r of x · w + b: rounded where the call says so.
double raw_logit(const Tokens& tokens, double sum);
/// The final logit a of a raw logit r.
double final_logit(const Tokens& tokens, int64_t row, double raw);
/// Fills the entries of a row that takes part from its final logits, [V].
void add_row_statistics(const Tokens& tokens, int64_t row, const Eigen::Ref<const VectorXd>& a, TokenStatistics& stats);

/// dL/dstatistic, [N] each.
struct TokenGradients {
  explicit TokenGradients(int64_t tokens = 0)
      : logp(VectorXd::Zero(tokens)),
        lse(VectorXd::Zero(tokens)),
        entropy(VectorXd::Zero(tokens)),
        cross(VectorXd::Zero(tokens)),
        outside(VectorXd::Zero(tokens)) {}
  bool all_zero(int64_t row) const {
    return logp[row] == 0 && lse[row] == 0 && entropy[row] == 0 && cross[row] == 0 && outside[row] == 0;
  }
  VectorXd logp, lse, entropy, cross, outside;
};

struct LogitGradient {
  double d_final = 0;  ///< dL/da
  double slope = 1;    ///< dc/dr = 1 - tanh²(r / softcap)
  double d_raw = 0;    ///< dL/dr
};

/// The gradient of any one logit of a row that takes part.
class LogitGradientFormula {
 public:
  LogitGradientFormula(const Tokens& tokens, const TokenStatistics& stats, const TokenGradients& grads)
      : tokens_(tokens), stats_(stats), grads_(grads), cross_sum_(tokens.cross.sum()) {}
  LogitGradient at(int64_t row, int64_t entry, double raw) const;

 private:
  /// The probability of an entry given that the token is not the label.
  double others_share(int64_t row, double log_p) const;

  const Tokens& tokens_;
  const TokenStatistics& stats_;
  const TokenGradients& grads_;
  double cross_sum_;
};

struct Loss {
  double loss = 0;
  std::vector<double> per_token_loss;  ///< [N]: what each row's loss is under kNone
  CrossEntropyMetrics metrics;
  TokenGradients grads;  ///< of upstream · loss
};

/// `upstream`: one value, or under kNone one per token. Empty: 1.
Loss compute_cross_entropy(const Tokens& tokens, const TokenStatistics& stats, const CrossEntropy& options,
                           std::span<const double> upstream = {});

/// What each row's numbers are multiplied by on their way into the loss.
struct LossWeights {
  VectorXd nll;  ///< [N]: loss_scale / normaliser of the negative log-likelihood
  VectorXd z;    ///< [N]: the same of the z-loss
};
LossWeights loss_weights(const Tokens& tokens, const CrossEntropy& options);

/// The oracle of any loss in one shape: statistics in, loss and gradients of the statistics out.
struct LossTruth {
  double loss = 0;
  std::vector<double> per_token_loss;  ///< [N], as the library reports them; empty where the loss has none
  TokenGradients grads;
};

LossTruth cross_entropy_truth(const Tokens& tokens, const TokenStatistics& stats, const CrossEntropy& options);

}  // namespace logitless::oracle

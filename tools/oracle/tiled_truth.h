// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The oracle at full size: the same formulas on tiles of the logits, which are read or computed twice instead
// of kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "core/matrices.h"
#include "logitless/logits.h"
#include "oracle/oracle.h"

namespace logitless::oracle {

/// Statistics and gradients of a call whose N × V logits do not fit in float64. Per-token values and hidden
/// states are kept in float64. `scratch_bytes` bounds the tiles, but a tile always holds at least one row of
/// V logits, or one vocabulary entry of each row.
class TiledTruth {
 public:
  explicit TiledTruth(Tokens tokens, size_t scratch_bytes);
  virtual ~TiledTruth() = default;

  const Tokens& tokens() const { return tokens_; }
  TokenStatistics compute_statistics() const;

  /// Takes dL/dlogits of all tokens and the vocabulary entries [first_entry, first_entry + tile.cols()); 0
  /// for ignored tokens.
  using ReceiveLogits = std::function<void(int64_t first_entry, const MatrixXd& tile)>;
  /// Calls `receive` for one tile after another, in vocabulary order.
  void compute_logit_gradients(const TokenStatistics& stats, const TokenGradients& grads,
                               const ReceiveLogits& receive) const;

 protected:
  /// Reads raw logits, before any rounding, from the given row and vocabulary entry on. Ignored rows may get
  /// any value.
  virtual void read(int64_t first_row, int64_t first_entry, Eigen::Ref<MatrixXd> tile) const = 0;
  bool has_gradient(const TokenGradients& grads, int64_t row) const {
    return tokens_.is_active(row) && !grads.all_zero(row);
  }
  /// Returns the number of vocabulary entries in a tile that takes `rows` logits and some other numbers per
  /// entry.
  int64_t entries_of_tile(int64_t rows, int64_t extra) const;

 private:
  /// Returns the other numbers per vocabulary entry that a tile of all rows needs.
  virtual int64_t extra_numbers_per_entry() const { return 0; }

  Tokens tokens_;
  int64_t scratch_numbers_;
};

/// For logits that the caller holds.
class LogitsTruth final : public TiledTruth {
 public:
  LogitsTruth(const FinishedLogits& logits, Tokens tokens, size_t scratch_bytes);

 private:
  void read(int64_t first_row, int64_t first_entry, Eigen::Ref<MatrixXd> tile) const override;

  FinishedLogits logits_;
};

/// For hidden states and a head.
class FusedTruth final : public TiledTruth {
 public:
  /// The softcap of `tokens` is replaced by the head's.
  FusedTruth(const HiddenStates& hidden, const HeadMatrices& head, Tokens tokens, size_t scratch_bytes);

  /// Calls `receive` for one tile after another, in vocabulary order; returns d_hidden [N, H].
  MatrixXd compute_parameter_gradients(const TokenStatistics& stats, const TokenGradients& grads,
                                       const ReceiveWeights& receive) const;

 private:
  void read(int64_t first_row, int64_t first_entry, Eigen::Ref<MatrixXd> tile) const override;
  int64_t extra_numbers_per_entry() const override { return 2 * hidden_.cols(); }

  MatrixXd hidden_;  ///< [N, H]; ignored rows are 0
  HeadMatrices head_;
  VectorXd bias_;
};

}  // namespace logitless::oracle

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "oracle/tiled_truth.h"

#include <algorithm>
#include <utility>

namespace logitless::oracle {
namespace {

Tokens with_softcap(Tokens tokens, double softcap) {
  tokens.softcap = softcap;
  return tokens;
}

}  // namespace

TiledTruth::TiledTruth(Tokens tokens, size_t scratch_bytes)
    : tokens_(std::move(tokens)), scratch_numbers_(static_cast<int64_t>(scratch_bytes / sizeof(double))) {}

int64_t TiledTruth::entries_of_tile(int64_t rows, int64_t extra) const {
  return std::clamp<int64_t>(scratch_numbers_ / std::max<int64_t>(1, rows + extra), 1, tokens_.vocab());
}

TokenStatistics TiledTruth::compute_statistics() const {
  TokenStatistics stats(tokens_.tokens());
  // Half of the scratch is for the inputs of the logits.
  const int64_t most_rows = std::max<int64_t>(1, scratch_numbers_ / 2 / tokens_.vocab());
  for (int64_t first = 0; first < tokens_.tokens(); first += most_rows) {
    MatrixXd logits(std::min(most_rows, tokens_.tokens() - first), tokens_.vocab());
    read(first, 0, logits);
#pragma omp parallel for schedule(dynamic)
    for (int64_t k = 0; k < logits.rows(); ++k) {
      const int64_t row = first + k;
      if (!tokens_.is_active(row)) continue;
      for (int64_t v = 0; v < logits.cols(); ++v) {
        logits(k, v) = final_logit(tokens_, row, raw_logit(tokens_, logits(k, v)));
      }
      add_row_statistics(tokens_, row, logits.row(k).transpose(), stats);
    }
  }
  return stats;
}

void TiledTruth::compute_logit_gradients(const TokenStatistics& stats, const TokenGradients& grads,
                                         const ReceiveLogits& receive) const {
  const LogitGradientFormula formula(tokens_, stats, grads);
  const int64_t rows = tokens_.tokens(), most_entries = entries_of_tile(rows, extra_numbers_per_entry());
  for (int64_t first = 0; first < tokens_.vocab(); first += most_entries) {
    MatrixXd tile(rows, std::min(most_entries, tokens_.vocab() - first));
    read(0, first, tile);
#pragma omp parallel for schedule(dynamic)
    for (int64_t i = 0; i < rows; ++i) {
      const bool counts = has_gradient(grads, i);
      for (int64_t k = 0; k < tile.cols(); ++k) {
        tile(i, k) = counts ? formula.at(i, first + k, raw_logit(tokens_, tile(i, k))).d_raw : 0.0;
      }
    }
    receive(first, tile);
  }
}

LogitsTruth::LogitsTruth(const FinishedLogits& logits, Tokens tokens, size_t scratch_bytes)
    : TiledTruth(std::move(tokens), scratch_bytes), logits_(logits) {}

void LogitsTruth::read(int64_t first_row, int64_t first_entry, Eigen::Ref<MatrixXd> tile) const {
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < tile.rows(); ++i) {
    const int64_t row = first_row + i;
    if (!tokens().is_active(row)) continue;
    const int64_t begin =
        row / logits_.time * logits_.batch_stride + row % logits_.time * logits_.row_stride + first_entry;
    for (int64_t k = 0; k < tile.cols(); ++k) tile(i, k) = read_element(logits_.data, logits_.dtype, begin + k);
  }
}

FusedTruth::FusedTruth(const HiddenStates& hidden, const HeadMatrices& head, Tokens tokens, size_t scratch_bytes)
    : TiledTruth(with_softcap(std::move(tokens), head.softcap), scratch_bytes),
      hidden_(read_hidden(hidden, this->tokens())),
      head_(head),
      bias_(read_bias(head)) {}

void FusedTruth::read(int64_t first_row, int64_t first_entry, Eigen::Ref<MatrixXd> tile) const {
  const int64_t most_entries = entries_of_tile(0, 2 * head_.hidden_size());
  for (int64_t first = 0; first < tile.cols(); first += most_entries) {
    const int64_t entries = std::min(most_entries, tile.cols() - first);
    const MatrixXd weight = read_weight(head_, first_entry + first, entries);
    auto logits = tile.middleCols(first, entries);
    logits.noalias() = hidden_.middleRows(first_row, tile.rows()) * weight.transpose();
    logits.rowwise() += bias_.segment(first_entry + first, entries).transpose();
  }
}

MatrixXd FusedTruth::compute_parameter_gradients(const TokenStatistics& stats, const TokenGradients& grads,
                                                 const ReceiveWeights& receive) const {
  // Rows without a gradient must add nothing, whatever they or the head contain: 0 · NaN would be NaN.
  MatrixXd used = hidden_, d_hidden = MatrixXd::Zero(hidden_.rows(), hidden_.cols());
  for (int64_t i = 0; i < used.rows(); ++i) {
    if (!has_gradient(grads, i)) used.row(i).setZero();
  }
  compute_logit_gradients(stats, grads, [&](int64_t first_entry, const MatrixXd& tile) {
    d_hidden.noalias() += tile * read_weight(head_, first_entry, tile.cols());
    receive(first_entry, tile.transpose() * used, tile.colwise().sum().transpose());
  });
  for (int64_t i = 0; i < used.rows(); ++i) {
    if (!has_gradient(grads, i)) d_hidden.row(i).setZero();
  }
  return d_hidden;
}

}  // namespace logitless::oracle

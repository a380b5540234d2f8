// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
/// @file
/// Log-probabilities at sets of token ids, any number per row, and their gradients. docs/losses.md
/// has the formulas.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "logitless/context.h"
#include "logitless/names.h"
#include "logitless/plan.h"
#include "logitless/tensor.h"
#include "logitless/token_stats.h"

namespace logitless {

/// The token ids of each row, int32 or int64, in any order. There are two forms:
///
///     offsets given   ids is [E]; row r has the entries [offsets[r], offsets[r + 1]) (CSR)
///     no offsets      ids is [N, K]; row r has the first counts[r] of its K entries, or all K without counts
///
/// An id outside [0, V) is an error that names row, entry and value; entries after a row's count are not
/// read. A row may list an id more than once; each entry then has its own value. A row without entries is
/// ignored: its states are not read, and it costs nothing.
struct IdSets {
  ConstTensor ids;                   ///< [E] or [N, K], of any strides
  std::span<const int64_t> offsets;  ///< [N + 1], from 0 to E, non-decreasing; empty: ids is [N, K]
  std::span<const int64_t> counts;   ///< [N], each in [0, K]; empty: K in every row; not with offsets

  IdSets() = default;
  /// CSR form.
  IdSets(ConstTensor ids_, std::span<const int64_t> offsets_) : ids(ids_), offsets(offsets_) {}
  /// [N, K] form.
  explicit IdSets(ConstTensor ids_) : ids(ids_) {}
  /// [N, K] form where row r has the first counts_[r] entries.
  static IdSets padded(ConstTensor ids_, std::span<const int64_t> counts_) {
    IdSets sets(ids_);
    sets.counts = counts_;
    return sets;
  }

  /// Returns the number of entries: E, or N · K.
  int64_t entries() const { return ids.count(); }
};

/// The set over which a row's probabilities sum to 1.
enum class NormaliseOver {
  kVocabulary,  ///< the whole vocabulary: log p_iv
  /// The distinct ids of the row's set (a repeated id counts once). Only the head's rows of these ids are
  /// read, without a pass over the vocabulary.
  kSet,
};

/// The names of NormaliseOver.
template <>
inline constexpr std::array kNamesOf<NormaliseOver> = {"vocabulary", "set"};

/// The log-probabilities of the sets.
struct IdLogpsResult {
  /// [E] or [N, K], in the order of the ids; 0 for entries after a row's count. Never above 0. NaN if the
  /// row's statistics are NaN (token_stats.h).
  std::vector<double> logps;
  Plan plan;  ///< what ran
};

/// With final logits a_iv as in token_stats.h, the entry e of row i with token id v has
///
///     kVocabulary:  logp_e = log p_iv = (a_iv − m_i) − log Σ_u exp(a_iu − m_i)     u in the vocabulary
///     kSet:         the same with u, and the maximum m_i, over the distinct ids of row i
///
/// A set with a single distinct id has logp = 0 under kSet. kSet does not support a cut vocabulary
/// (ContextOptions::ranks).
///
/// backward() takes ∂L/∂logp of every entry, γ_e, in the order of the ids; entries after a row's count are
/// not read. A NaN makes its row's gradients NaN.
///
///     dL/da_iv = Σ_{e of v} γ_e − p_iv Σ_{e of row i} γ_e       kSet: 0 where v is not in the set
///
/// Under kSet, d_hidden is summed in the order of the ids, and d_weight and d_bias in the order of the rows,
/// 16 at a time: neither the number of threads nor the budget changes their bits. The task has no
/// loss: run() refuses gradients.
struct LOGITLESS_API IdLogps {
  using Result = IdLogpsResult;                               ///< result type of the verbs
  static constexpr const char* kName = "id_logps";            ///< on every surface
  IdSets sets = {};                                           ///< the ids of each row
  NormaliseOver normalise_over = NormaliseOver::kVocabulary;  ///< see above
  /// How log-probabilities are taken. The sets say which rows are active and belong to the positions that
  /// predict them, so ignore_index and shift are not used.
  TokenOptions token = {};
};

}  // namespace logitless

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
/// @file
/// Log-probabilities at sets of token ids, any number a row, and their gradients. Formulas stand in
/// docs/losses.md, section 4.
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

/// Token ids of each row, int32 or int64, in any order. There are two forms:
///
///     offsets given   ids is [E]; row r has the entries [offsets[r], offsets[r + 1]) (CSR)
///     no offsets      ids is [N, K]; row r has the first counts[r] of its K entries, or all K without counts
///
/// An id outside of [0, V) is an error that names row, entry and value; entries behind a row's count are not
/// read. An id may stand in a row more than once: each of its entries has its value. A row without entries
/// takes no part: its states are not read, and it costs nothing.
struct IdSets {
  ConstTensor ids;                   ///< [E] or [N, K], of any strides
  std::span<const int64_t> offsets;  ///< [N + 1], from 0 to E, never falling; empty: ids is [N, K]
  std::span<const int64_t> counts;   ///< [N], each in [0, K]; empty: K in every row; not with offsets

  IdSets() = default;
  /// Takes CSR.
  IdSets(ConstTensor ids_, std::span<const int64_t> offsets_) : ids(ids_), offsets(offsets_) {}
  /// Takes [N, K].
  explicit IdSets(ConstTensor ids_) : ids(ids_) {}
  /// Takes [N, K] whose rows have the first `counts_` entries.
  static IdSets padded(ConstTensor ids_, std::span<const int64_t> counts_) {
    IdSets sets(ids_);
    sets.counts = counts_;
    return sets;
  }

  /// Returns how many entries there are: E, or N · K.
  int64_t entries() const { return ids.count(); }
};

/// What the probabilities of a row sum to 1 over.
enum class NormaliseOver {
  kVocabulary,  ///< log p_iv of the whole vocabulary
  /// The distinct ids of the row's set: an id that stands twice counts once. Only the head's rows of these
  /// ids are read, and nothing walks the vocabulary.
  kSet,
};

/// The names of what probabilities sum to 1 over.
template <>
inline constexpr std::array kNamesOf<NormaliseOver> = {"vocabulary", "set"};

/// The log-probabilities of sets.
struct IdLogpsResult {
  /// [E] or [N, K], in the order of the ids; 0 for entries behind a row's count. Never above 0. NaN where the
  /// row's statistics are (token_stats.h).
  std::vector<double> logps;
  Plan plan;  ///< what ran
};

/// With final logits a_iv as in token_stats.h, entry e of row i, whose token id is v, has
///
///     kVocabulary:  logp_e = log p_iv = (a_iv − m_i) − log Σ_u exp(a_iu − m_i)     u in the vocabulary
///     kSet:         the same with u, and the maximum m_i, over the distinct ids of row i
///
/// A set with one distinct id has logp = 0 under kSet, which does not work with a vocabulary that is cut
/// (ContextOptions::ranks).
///
/// backward() takes ∂L/∂logp of every entry, in the order of the ids; those behind a row's count are not
/// read. A NaN among them makes its row's gradients NaN. With γ_e for that of entry e,
///
///     dL/da_iv = Σ_{e of v} γ_e − p_iv Σ_{e of row i} γ_e       kSet: 0 where v is not in the set
///
/// Under kSet, sums of d_hidden are in the order of the ids, and those of d_weight and d_bias in the order of
/// the rows, 16 at a time: no number of threads and no budget changes their bits. run() has no loss to make
/// gradients of, and takes none.
struct LOGITLESS_API IdLogps {
  using Result = IdLogpsResult;                               ///< what its verbs return
  static constexpr const char* kName = "id_logps";            ///< on every surface
  IdSets sets = {};                                           ///< of each row
  NormaliseOver normalise_over = NormaliseOver::kVocabulary;  ///< see above
  /// How log-probabilities are taken. The sets say which rows take part and stand where they are predicted:
  /// ignore_index and shift have no use here.
  TokenOptions token = {};
};

}  // namespace logitless

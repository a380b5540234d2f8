// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
/// @file
/// Per-token statistics of the final logits, and gradients from them. Every loss is built on them.
///
///     r_iv = x_i · w_v + b_v                       raw logit (rounded to TokenOptions::round_logits_to)
///     c_iv = softcap · tanh(r_iv / softcap)        capped logit (c = r without a softcap)
///     a_iv = c_iv / temperature_i                  final logit (a = c under TemperatureMeaning::kScaleLogp)
///     m_i  = max_v a_iv;  l_i = log Σ_v exp(a_iv − m_i)
///     logp = (a_iy − m_i) − l_i          lse = m_i + l_i          entropy = l_i − Σ_v p_iv (a_iv − m_i)
///     cross = Σ_v q_v (a_iv − m_i) − l_i Σ_v q_v  = Σ_v q_v log p_iv
///     outside = log Σ_{v≠y} exp(a_iv − m_i) − l_i  = log (1 − p_iy), from a sum of its own
///     square_sum = Σ_v p_iv²
///
/// In float32 a value exp(a_iv − m_i) below 1.7e-38 counts as 0, so log_sum has an absolute error of up to V
/// · 1.7e-38. logp and cross are never above 0 and entropy is never below 0, by construction. A row with a
/// NaN or +inf logit, or with nothing but -inf, has NaN statistics.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "logitless/context.h"
#include "logitless/names.h"
#include "logitless/plan.h"
#include "logitless/tensor.h"

namespace logitless {

/// What a temperature divides: two conventions exist.
enum class TemperatureMeaning {
  kScaleLogits,  ///< a = c / temperature (Hugging Face, TRL, Liger)
  kScaleLogp,    ///< a = c; only logp is divided by the temperature, lse, entropy and cross are those of c
};

/// The names of meanings.
template <>
inline constexpr std::array kNamesOf<TemperatureMeaning> = {"scale_logits", "scale_logp"};

/// The most that StatsRequest::top_k may be.
inline constexpr int64_t kMostTopK = 256;

/// Which statistics a call computes beyond logp and lse. Each costs time in the row kernels; rank
/// costs a second walk over the logits, which are computed once more where they have not stayed (one pass
/// keeps them).
struct StatsRequest {
  bool entropy = false;  ///< entropy of the token's distribution
  bool cross = false;    ///< Σ_v q_v log p_v
  bool argmax = false;   ///< most likely token
  bool rank = false;     ///< rank of the target among the logits
  int64_t top_k = 0;     ///< so many of the largest logits of each row, with their ids: 0 (none) to kMostTopK
  /// This is q of the cross statistic, [V], finite and >= 0; empty means uniform, 1/V.
  std::span<const float> cross_weights = {};
  bool outside = false;     ///< log-probability of all vocabulary entries but the target
  bool square_sum = false;  ///< Σ_v p_v²
};

/// Which rows take part, and how a logit becomes a log-probability. Every loss's options hold one
/// of these, as `token`.
struct TokenOptions {
  /// Rows with this target take no part: their content is never read and they cost no GEMM. Tasks without
  /// targets, and policy losses, whose rows a mask selects, have no use for another value than this one.
  int64_t ignore_index = -100;
  /// Position t of hidden predicts target t + shift of the same sequence; the last `shift` positions of a
  /// sequence take no part. 1 is a language model's, and more that of states which predict further on
  /// (docs/trainers.md, "Several positions from one head"). It is at least 0.
  int64_t shift = 0;
  /// It is positive, and a normal number of the type of the sums.
  double temperature = 1.0;
  /// [N], by position of hidden: it replaces the scalar when it is not empty; entries of rows that take no
  /// part are not read.
  std::span<const double> temperatures = {};
  /// What the temperature divides.
  TemperatureMeaning temperature_meaning = TemperatureMeaning::kScaleLogits;
  /// With kBFloat16 or kFloat16 every raw logit r, bias included, is rounded to that type (nearest even)
  /// before softcap and temperature, as in a trainer that keeps its logits in that type; dr/d(x · w + b)
  /// counts as 1. Unset, there is no rounding.
  std::optional<DType> round_logits_to = {};
};

/// What is known of a row's student and teacher (distillation.h): one entry a position of hidden, [N], and
/// empty in a call without a teacher. log_sum, mean and those of the teacher are what the backward pass
/// needs.
struct DivergenceStats {
  std::vector<double> value = {};              ///< the divergence
  std::vector<double> overlap = {};            ///< Σ_v min(s_v, t_v)
  std::vector<double> mean = {};               ///< Σ_v s_v ∂value/∂s_v, apart from constants that cancel
  std::vector<double> log_sum = {};            ///< l_i of the student at its temperature
  std::vector<double> teacher_max_logit = {};  ///< max_v of the teacher's capped logits
  std::vector<double> teacher_log_sum = {};    ///< l_i of the teacher at its temperature
  std::vector<double> entropy = {};            ///< of the student, where it was asked for
  std::vector<double> teacher_entropy = {};    ///< of the teacher, where it was asked for
  std::vector<int64_t> teacher_argmax = {};    ///< as TokenStats::argmax, where it was asked for
};

/// Rows [N, H], or of a head with a LoRA [N, H + r], in the type of a call's sums: one of the two is empty.
struct ExpectedRows {
  std::vector<float> f32 = {};   ///< for all other hidden states
  std::vector<double> f64 = {};  ///< for float64 hidden states
  /// Tells whether there are none.
  bool empty() const { return f32.empty() && f64.empty(); }
};

/// Each statistic has one entry a position of hidden, [N], and top_k of them in top_ids and top_logps.
/// Rows that take no part hold 0 (argmax and top_ids: -1); a statistic that was not asked for is empty.
/// `max_logit` and `log_sum` are what the backward pass needs besides logp. The target is the greedy choice
/// where it is argmax; its rank is 1 there, and also where it ties with argmax.
struct TokenStats {
  std::vector<double> logp;     ///< log-probability of the target, in nats
  std::vector<double> lse;      ///< log-sum-exp of the final logits
  std::vector<double> entropy;  ///< in nats
  std::vector<double> cross;    ///< Σ_v q_v log p_v
  std::vector<int64_t> argmax;  ///< the first vocabulary entry with the largest logit; -1 where the statistics are NaN
  /// 1 + the number of vocabulary entries whose capped logit c is larger than the target's, as computed: it
  /// is 1 where the target is argmax, and does not depend on the temperature. Equal logits share the better
  /// rank. It is 0 where the statistics are NaN.
  std::vector<int64_t> rank;
  /// Log-probability of all vocabulary entries but the target: log(1 - p), which keeps its digits as p nears
  /// 1. It is -inf where no other entry has mass. kScaleLogp does not divide it.
  std::vector<double> outside;
  std::vector<double> outside_max;  ///< the largest capped logit c but the target's; the backward pass reads it
  std::vector<double> max_logit;    ///< max_v c_iv, before the temperature
  std::vector<double> log_sum;      ///< l_i
  /// The token ids of the top_k largest logits of a row, [N, top_k], by falling logit and, of equal ones, by
  /// rising id: a row's first one is argmax. Logits are compared as capped logits c, as computed, so the
  /// temperature changes none of them. -inf is a logit as any other. Where the vocabulary has fewer than
  /// top_k entries, places behind them have the id -1 and the log-probability -inf. All places of a row whose
  /// statistics are NaN have -1 and NaN.
  std::vector<int64_t> top_ids;
  /// The log-probabilities of top_ids, [N, top_k]. That of the target, if it is among them, has the bits of
  /// logp.
  std::vector<double> top_logps;
  /// Σ_v p_v², the probability that two draws are the same token: from 1/V to 1. It has no gradient.
  std::vector<double> square_sum = {};
  DivergenceStats divergence = {};  ///< with a teacher; none of its columns is one that a caller asks for
  /// Σ_{v≠y} p_v (1 − (c_v/softcap)²) w_v: the row of the head that the model expects, without the target's
  /// share (in a call with several ids a row, without theirs). With a LoRA the same sum of its b_v stands
  /// behind it. A forward call under PlanKind::kExpectedRow leaves them, and backward() makes
  /// d_hidden of them without a GEMM. There are none with a teacher, over sets of ids, from finished
  /// logits, of rounded logits with a softcap, where a vocabulary is cut, and where the workspace has no room
  /// for the walk that sums them.
  ExpectedRows expected = {};
};

/// ∂L/∂statistic, one entry a position of hidden, [N]. An empty vector means zero everywhere. With
/// them the gradients are
///
///     dL/da_iv = g_logp (1[v=y] − p) + g_lse p − g_entropy p (log p + entropy) + g_cross (q_v − p Σq)
///                + g_outside (1[v≠y] p / (1 − p_y) − p)
///     dL/dr_iv = dL/da_iv · (1 − (c/softcap)²) / temperature_i
///
/// (under kScaleLogp g_logp alone is divided by the temperature). Rows whose entries are all zero cost no
/// GEMM. They are functions of the statistics, so a NaN among them is no error: it makes its row's gradients
/// NaN.
struct TokenGrads {
  std::vector<double> logp;     ///< g_logp
  std::vector<double> lse;      ///< g_lse
  std::vector<double> entropy;  ///< g_entropy
  std::vector<double> cross;    ///< g_cross
  /// This is g_outside; it must be 0 where TokenStats::outside is -inf.
  std::vector<double> outside = {};
  /// ∂L/∂divergence, only in a call with a teacher.
  std::vector<double> divergence = {};
};

/// Returns Σ exp(top_logps) of each row, [N]: how much probability its top_k entries have together. Rows that
/// take no part have 0, those with NaN statistics NaN. Throws InvalidInput where `stats` has no top_ids.
LOGITLESS_API std::vector<double> top_masses(const TokenStats& stats);

/// Returns, for each of `rows` rows, how many ids of its list in `a`, [rows, A], stand in its list in `b`,
/// [rows, B], too. Neither list has an id twice; ids below 0 stand for none and never count. Throws
/// InvalidInput where the ids are no lists of one length.
LOGITLESS_API std::vector<int64_t> top_overlaps(std::span<const int64_t> a, std::span<const int64_t> b, int64_t rows);

/// Lists of token ids of any length, as IdSets takes them: row r has entries [offsets[r], offsets[r + 1]).
struct TopUnions {
  std::vector<int64_t> ids;      ///< [E]
  std::vector<int64_t> offsets;  ///< [rows + 1]
};

/// Returns the union of each of `rows` rows' list in `a`, [rows, A], and its list in `b`, [rows, B], as of a
/// student's own top_ids and a teacher's: each id once, those of `a` first, both in their order. Ids below 0
/// stand for none. Throws InvalidInput where the ids are no lists of one length.
LOGITLESS_API TopUnions top_unions(std::span<const int64_t> a, std::span<const int64_t> b, int64_t rows);

/// A loss that is a function of the tokens' statistics. evaluate() is called with disjoint sets of
/// rows, each increasing, that together are all rows that take part (from one thread at a time), and fills
/// the entries of `grads` for these rows; the vectors it declares in needs() and gradients() have N entries
/// by then. One pass calls it for one chunk after the other, all other plans once.
class LOGITLESS_API TokenLoss {
 public:
  virtual ~TokenLoss();
  /// Returns the statistics that evaluate() reads beyond logp and lse.
  virtual StatsRequest needs() const = 0;
  /// Which entries of TokenGrads evaluate() fills besides logp, which it always fills.
  struct GradsFilled {
    bool lse = false;         ///< TokenGrads::lse
    bool entropy = false;     ///< TokenGrads::entropy
    bool cross = false;       ///< TokenGrads::cross
    bool outside = false;     ///< TokenGrads::outside
    bool divergence = false;  ///< TokenGrads::divergence
  };
  /// Returns the entries of TokenGrads that evaluate() fills.
  virtual GradsFilled gradients() const = 0;
  /// Tells whether evaluate() may set all entries of some row to zero, so that the row costs no GEMM. A loss
  /// that says no and does it all the same gets a std::logic_error.
  virtual bool may_drop_rows() const { return true; }
  /// Returns the group of each row, [N] (any ids): the gradient of a row may depend on the statistics of all
  /// rows of its group, so evaluate() always gets whole groups. Where it is empty, every row is a group by
  /// itself. Entries of rows that take no part do not matter.
  virtual std::span<const int64_t> groups() const { return {}; }
  /// Reads the entries of `stats` for `rows`, and sets those of `grads`.
  virtual void evaluate(std::span<const int64_t> rows, const TokenStats& stats, TokenGrads& grads) = 0;
};

/// The statistics of tokens, and what ran.
struct TokenStatisticsResult {
  TokenStats stats;  ///< of all tokens
  Plan plan;         ///< what ran
};

/// The statistics of every token. backward() takes TokenGrads, the gradients of any loss of them: where
/// grads.entropy is not empty, `request` asked for the entropy. run() has no loss to make gradients of, and
/// takes none.
struct LOGITLESS_API TokenStatistics {
  using Result = TokenStatisticsResult;                ///< what its verbs return
  static constexpr const char* kName = "token_stats";  ///< on every surface
  /// [N]. With none (size 0) every row takes part, and nothing is of a target: logp is 0, and rank and
  /// outside are refused.
  ConstTensor targets = {};
  TokenOptions token = {};    ///< which rows take part, and how log-probabilities are taken
  StatsRequest request = {};  ///< what is computed beyond logp and lse
};

/// A loss of the caller's own, as a function of the statistics. One pass keeps the logits of whole groups, so
/// a group that is too large for the workspace means two pass. Its needs() and groups() are read by every
/// verb.
struct LOGITLESS_API CustomLoss {
  using Result = TokenStatisticsResult;                ///< what its verbs return
  static constexpr const char* kName = "custom_loss";  ///< on every surface
  ConstTensor targets = {};                            ///< token ids, [N] or [B, T], int32 or int64
  TokenOptions token = {};                             ///< which rows take part, and how log-probabilities are taken
  TokenLoss* loss = nullptr;                           ///< must be there
};

}  // namespace logitless

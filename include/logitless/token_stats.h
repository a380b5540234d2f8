// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
/// @file
/// Per-token statistics of the final logits, on which every loss is built, and the gradients from them.
///
///     r_iv = x_i · w_v + b_v                       raw logit (rounded to TokenOptions::round_logits_to)
///     c_iv = softcap · tanh(r_iv / softcap)        capped logit (c = r without a softcap)
///     a_iv = c_iv / temperature_i                  final logit (a = c under TemperatureMeaning::kScaleLogp)
///     m_i  = max_v a_iv;  l_i = log Σ_v exp(a_iv − m_i)
///     logp = (a_iy − m_i) − l_i          lse = m_i + l_i          entropy = l_i − Σ_v p_iv (a_iv − m_i)
///     cross = Σ_v q_v (a_iv − m_i) − l_i Σ_v q_v  = Σ_v q_v log p_iv
///     outside = log Σ_{v≠y} exp(a_iv − m_i) − l_i  = log (1 − p_iy), from a sum of its own
///     square_sum = Σ_v p_iv²
///     drawn_ids = argmax_v a_iv + G_iv, with independent Gumbel noise G for each draw
///
/// In float32 a value exp(a_iv − m_i) below 1.7e-38 counts as 0, so log_sum has an absolute error of up to V
/// · 1.7e-38. By construction logp and cross are never above 0 and entropy is never below 0. A row with a NaN
/// or +inf logit, or with only -inf, has NaN statistics.
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

/// What a temperature divides; two conventions exist.
enum class TemperatureMeaning {
  kScaleLogits,  ///< a = c / temperature (Hugging Face, TRL, Liger)
  kScaleLogp,    ///< a = c; only logp is divided by the temperature, lse, entropy and cross are not
};

/// The names of TemperatureMeaning.
template <>
inline constexpr std::array kNamesOf<TemperatureMeaning> = {"scale_logits", "scale_logp"};

/// The largest StatsRequest::top_k.
inline constexpr int64_t kMostTopK = 256;

/// Which statistics a call computes in addition to logp and lse. Each costs time in the row kernels. `rank`
/// costs a second pass over the logits, which recomputes them unless they are stored (one pass stores them).
struct StatsRequest {
  bool entropy = false;  ///< entropy of the token's distribution
  bool cross = false;    ///< Σ_v q_v log p_v
  bool argmax = false;   ///< most likely token
  bool rank = false;     ///< rank of the target among the logits
  int64_t top_k = 0;     ///< number of largest logits of each row to return, with their ids: 0 to kMostTopK
  /// The q of the cross statistic, [V], finite and >= 0; empty: uniform, 1/V.
  std::span<const float> cross_weights = {};
  bool outside = false;     ///< log-probability of all vocabulary entries except the target
  bool square_sum = false;  ///< Σ_v p_v²
  /// Number of token ids to draw from each row's distribution, independently and with replacement: 0 to
  /// kMostTopK.
  int64_t draws = 0;
  /// A draw depends only on the seed, the row's position in hidden (or in the finished logits), the row's
  /// logits and the number of the draw. So use another seed for each call, and for each rank with rows of its
  /// own: equal seeds give equal noise.
  int64_t draw_seed = 0;
  /// Draws are restricted to the draw_top_k largest logits of a row, as in top_ids: 0 (all) to kMostTopK.
  int64_t draw_top_k = 0;
  /// Draws are further restricted to the fewest most likely ids whose probabilities, which sum to 1 over the
  /// draw_top_k ids, sum to at least draw_top_p (nucleus sampling): in (0, 1]. Below 1 it needs draw_top_k.
  double draw_top_p = 1;
};

/// Which rows are active, and how a logit becomes a log-probability. The options of every loss contain it as
/// `token`.
struct TokenOptions {
  /// Rows with this target are ignored: their content is never read and they cost no GEMM. All other rows are
  /// active. Tasks without targets, and policy losses, which select rows by a mask, accept only this default.
  int64_t ignore_index = -100;
  /// Position t of hidden predicts target t + shift of the same sequence; the last `shift` positions of a
  /// sequence are ignored. 1 for a language model, more for states that predict further ahead
  /// (docs/heads.md, "Several positions from one head"). At least 0.
  int64_t shift = 0;
  /// Positive, and a normal number of the type of the sums.
  double temperature = 1.0;
  /// [N], by position of hidden; replaces the scalar unless empty. Entries of ignored rows are not
  /// read.
  std::span<const double> temperatures = {};
  /// What the temperature divides.
  TemperatureMeaning temperature_meaning = TemperatureMeaning::kScaleLogits;
  /// With kBFloat16 or kFloat16 every raw logit r, bias included, is rounded to that type (nearest even)
  /// before softcap and temperature, as in a trainer that stores its logits in that type; the derivative of
  /// the rounding counts as 1. Unset: no rounding.
  std::optional<DType> round_logits_to = {};
};

/// Statistics of a row's student and teacher (distillation.h), one entry per position of hidden, [N]; empty
/// in a call without a teacher. The backward pass needs log_sum, mean and the teacher's statistics.
struct DivergenceStats {
  std::vector<double> value = {};              ///< the divergence
  std::vector<double> overlap = {};            ///< Σ_v min(s_v, t_v)
  std::vector<double> mean = {};               ///< Σ_v s_v ∂value/∂s_v, apart from constants that cancel
  std::vector<double> log_sum = {};            ///< l_i of the student at its temperature
  std::vector<double> teacher_max_logit = {};  ///< max_v of the teacher's capped logits
  std::vector<double> teacher_log_sum = {};    ///< l_i of the teacher at its temperature
  std::vector<double> entropy = {};            ///< of the student, if requested
  std::vector<double> teacher_entropy = {};    ///< of the teacher, if requested
  std::vector<int64_t> teacher_argmax = {};    ///< like TokenStats::argmax, if requested
};

/// Rows [N, H], or [N, H + r] for a head with a LoRA, in the type of the call's sums; the other vector is
/// empty.
struct ExpectedRows {
  std::vector<float> f32 = {};   ///< for hidden states other than float64
  std::vector<double> f64 = {};  ///< for float64 hidden states
  /// Returns whether both are empty.
  bool empty() const { return f32.empty() && f64.empty(); }
};

/// Statistics, one entry per position of hidden, [N] (top_ids and top_logps: top_k entries). Ignored rows
/// hold 0 (argmax, top_ids and drawn_ids: -1); a statistic that was not requested is empty. The backward pass
/// needs `max_logit` and `log_sum` in addition to logp. The target is the greedy choice if it equals argmax;
/// its rank is then 1, as it is when it ties with argmax.
struct TokenStats {
  std::vector<double> logp;     ///< log-probability of the target, in nats
  std::vector<double> lse;      ///< log-sum-exp of the final logits
  std::vector<double> entropy;  ///< in nats
  std::vector<double> cross;    ///< Σ_v q_v log p_v
  std::vector<int64_t> argmax;  ///< the first vocabulary entry with the largest logit; -1 if the statistics are NaN
  /// 1 + the number of vocabulary entries whose computed capped logit c is larger than the target's, so 1 if
  /// the target is argmax, independent of the temperature. Ties get the better rank. 0 if the statistics are
  /// NaN.
  std::vector<int64_t> rank;
  /// Log-probability of all vocabulary entries except the target: log(1 - p), accurate even if p is near 1.
  /// -inf if no other entry has mass. kScaleLogp does not divide it.
  std::vector<double> outside;
  std::vector<double> outside_max;  ///< the largest capped logit c except the target's; the backward pass needs it
  std::vector<double> max_logit;    ///< max_v c_iv, before the temperature
  std::vector<double> log_sum;      ///< l_i
  /// The token ids of the top_k largest logits of a row, [N, top_k], in descending order; ties go to the
  /// lower id, so the first is argmax. Capped logits c are compared, as computed, so the temperature has no
  /// effect. -inf counts as any other logit. If the vocabulary has fewer than top_k entries, the remaining
  /// places have the id -1 and the log-probability -inf. If a row's statistics are NaN, all its places have
  /// -1 and NaN.
  std::vector<int64_t> top_ids;
  /// The log-probabilities of top_ids, [N, top_k]. If the target is among them, its value has the bits of
  /// logp.
  std::vector<double> top_logps;
  /// Σ_v p_v², the probability that two draws are the same token: from 1/V to 1.
  std::vector<double> square_sum = {};
  /// Token ids drawn from softmax(a), or from its restriction to the ids that draw_top_k and draw_top_p keep,
  /// [N, draws]. An id with a logit of -inf is never drawn. If a row's statistics are NaN, its ids are -1.
  std::vector<int64_t> drawn_ids = {};
  /// The log-probabilities of drawn_ids among all ids, also for restricted draws, [N, draws]; NaN if the
  /// row's statistics are NaN. If a draw is the target, its value has the bits of logp. No gradient.
  std::vector<double> drawn_logps = {};
  DivergenceStats divergence = {};  ///< with a teacher; callers cannot request these columns
  /// The expected row of the head, Σ_{v≠y} p_v (1 − (c_v/softcap)²) w_v, without the target's share (with
  /// several ids per row, without theirs). With a LoRA the same sum of the rows b_v follows it. A forward
  /// call under PlanKind::kExpectedRow returns these rows, and backward() computes d_hidden from them without
  /// a GEMM. Empty with a teacher, over sets of ids, for finished logits, for rounded logits with a softcap,
  /// with a cut vocabulary, and if the workspace has no room to compute them.
  ExpectedRows expected = {};
};

/// ∂L/∂statistic, one entry per position of hidden, [N]; an empty vector means zero everywhere. The gradients
/// are
///
///     dL/da_iv = g_logp (1[v=y] − p) + g_lse p − g_entropy p (log p + entropy) + g_cross (q_v − p Σq)
///                + g_outside (1[v≠y] p / (1 − p_y) − p) + g_square_sum 2 p (p − square_sum)
///     dL/dr_iv = dL/da_iv · (1 − (c/softcap)²) / temperature_i
///
/// (under kScaleLogp only g_logp is divided by the temperature). Rows whose entries are all zero cost no
/// GEMM. The entries are functions of the statistics, so a NaN is not an error: it makes its row's gradients
/// NaN.
struct TokenGrads {
  std::vector<double> logp;     ///< g_logp
  std::vector<double> lse;      ///< g_lse
  std::vector<double> entropy;  ///< g_entropy
  std::vector<double> cross;    ///< g_cross
  /// g_outside; must be 0 where TokenStats::outside is -inf.
  std::vector<double> outside = {};
  /// ∂L/∂divergence, only in a call with a teacher.
  std::vector<double> divergence = {};
  std::vector<double> square_sum = {};  ///< g_square_sum
};

/// Returns Σ exp(top_logps) of each row, [N]: the total probability of its top_k entries. 0 for
/// ignored rows, NaN for rows with NaN statistics. Throws InvalidInput if `stats` has no top_ids.
LOGITLESS_API std::vector<double> top_masses(const TokenStats& stats);

/// Returns, for each row, the number of ids in its list in `a`, [rows, A], that are also in its list in `b`,
/// [rows, B]. No list repeats an id; ids below 0 mean "none" and never count. Throws InvalidInput if the
/// sizes of `a` or `b` are not a multiple of `rows`.
LOGITLESS_API std::vector<int64_t> top_overlaps(std::span<const int64_t> a, std::span<const int64_t> b, int64_t rows);

/// Lists of token ids of any length in the form of IdSets: row r has entries [offsets[r], offsets[r + 1]).
struct TopUnions {
  std::vector<int64_t> ids;      ///< [E]
  std::vector<int64_t> offsets;  ///< [rows + 1]
};

/// Returns, for each row, the union of its list in `a`, [rows, A], and its list in `b`, [rows, B], such as
/// the top_ids of a student and of a teacher: each id once, first the ids of `a`, then the rest of `b`, in
/// their order. Ids below 0 mean "none". Throws InvalidInput if the sizes of `a` or `b` are not a multiple of
/// `rows`.
LOGITLESS_API TopUnions top_unions(std::span<const int64_t> a, std::span<const int64_t> b, int64_t rows);

/// A loss that is a function of the tokens' statistics. evaluate() is called from one thread at a time, with
/// increasing rows; its calls together cover each active row once. One pass calls it once per chunk, all
/// other plans once. The vectors declared in needs() and gradients() have N entries by then. The library does
/// not ask for the value of the loss: add it up in your object. Exceptions of these functions propagate to
/// the caller.
class LOGITLESS_API TokenLoss {
 public:
  virtual ~TokenLoss();
  /// Returns the statistics that evaluate() reads in addition to logp and lse.
  virtual StatsRequest needs() const = 0;
  /// The entries of TokenGrads that evaluate() fills in addition to logp.
  struct GradsFilled {
    bool lse = false;         ///< TokenGrads::lse
    bool entropy = false;     ///< TokenGrads::entropy
    bool cross = false;       ///< TokenGrads::cross
    bool outside = false;     ///< TokenGrads::outside
    bool divergence = false;  ///< TokenGrads::divergence
    bool square_sum = false;  ///< TokenGrads::square_sum
  };
  /// Returns the entries of TokenGrads that evaluate() fills.
  virtual GradsFilled gradients() const = 0;
  /// Returns whether evaluate() may set all entries of a row to zero, so that the row costs no GEMM. If it
  /// returns false and evaluate() does so anyway, the call throws std::logic_error.
  virtual bool may_drop_rows() const { return true; }
  /// Returns the group of each row, [N] (any ids): a row's gradient may depend on the statistics of all rows
  /// of its group, so evaluate() always gets whole groups. Empty: every row is its own group. Entries of
  /// ignored rows are not used.
  virtual std::span<const int64_t> groups() const { return {}; }
  /// Reads `stats` and fills `grads`, at the entries `rows` only. These entries of grads are 0 on entry.
  /// The evaluations of a call do not overlap, but may come from different threads of the team.
  virtual void evaluate(std::span<const int64_t> rows, const TokenStats& stats, TokenGrads& grads) = 0;
};

/// The statistics of all tokens.
struct TokenStatisticsResult {
  TokenStats stats;  ///< of all tokens
  Plan plan;         ///< what ran
};

/// The statistics of every token. backward() takes TokenGrads, the gradients of any loss with respect to
/// them; grads.entropy and grads.square_sum may be non-empty only if `request` asked for these statistics.
/// The task has no loss: run() refuses gradients.
struct LOGITLESS_API TokenStatistics {
  using Result = TokenStatisticsResult;                ///< result type of the verbs
  static constexpr const char* kName = "token_stats";  ///< on every surface
  /// [N]. If absent (size 0), every row is active, logp is 0, and rank and outside are refused.
  ConstTensor targets = {};
  TokenOptions token = {};    ///< which rows are active, and how log-probabilities are taken
  StatsRequest request = {};  ///< what is computed in addition to logp and lse
};

/// A loss of the caller's own, as a function of the statistics. One pass stores the logits of whole groups,
/// so a group that does not fit in the workspace means two pass. Every verb calls the loss's needs() and
/// groups().
struct LOGITLESS_API CustomLoss {
  using Result = TokenStatisticsResult;                ///< result type of the verbs
  static constexpr const char* kName = "custom_loss";  ///< on every surface
  ConstTensor targets = {};                            ///< token ids, [N] or [B, T], int32 or int64
  TokenOptions token = {};                             ///< which rows are active, and how log-probabilities are taken
  TokenLoss* loss = nullptr;                           ///< required
};

}  // namespace logitless

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Everything that a call returns, whatever its task, but for its plan: vectors and numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <tuple>
#include <vector>

#include "logitless/logitless.h"

namespace logitless::testing {

/// The forward half of a loss of the caller's own is its statistics.
struct StatsForward {
  TokenStats result;
};

/// Returns references to all vectors of a result.
inline auto columns(const CrossEntropyResult& r) {
  return std::tie(r.per_token_loss, r.per_token_logps, r.per_token_lse, r.per_token_argmax);
}
inline auto columns(const SoftCrossEntropyResult& r) { return std::tie(r.per_token_loss); }
inline auto columns(const PolicyResult& r) { return std::tie(r.per_token_loss, r.per_token_logps); }
inline auto columns(const PreferenceResult& r) { return std::tie(r.sequence_logps, r.per_token_logps); }
inline auto columns(const KtoResult& r) { return std::tie(r.sequence_losses, r.sequence_logps, r.per_token_logps); }
inline auto columns(const DistillationResult& r) {
  return std::tie(r.per_token_loss, r.per_token_divergence, r.per_token_acceptance, r.per_token_logps,
                  r.per_token_agreement, r.per_token_entropy, r.per_token_teacher_entropy);
}
inline auto columns(const DivergenceStats& d) {
  return std::tie(d.value, d.overlap, d.mean, d.log_sum, d.teacher_max_logit, d.teacher_log_sum, d.entropy,
                  d.teacher_entropy, d.teacher_argmax);
}
inline auto columns(const TokenStats& s) {
  return std::tuple_cat(std::tie(s.logp, s.lse, s.entropy, s.cross, s.argmax, s.rank, s.outside, s.outside_max,
                                 s.max_logit, s.log_sum, s.top_ids, s.top_logps, s.square_sum),
                        columns(s.divergence));
}
inline auto columns(const TokenGrads& g) {
  return std::tie(g.logp, g.lse, g.entropy, g.cross, g.outside, g.divergence);
}
template <class Number>
auto columns(const std::vector<Number>& values) {
  return std::tie(values);
}
inline auto columns(const StatsForward& f) { return columns(f.result); }
inline auto columns(const Forward<CrossEntropy>& f) { return std::tuple_cat(columns(f.result), columns(f.stats)); }
inline auto columns(const Forward<Distillation>& f) { return std::tuple_cat(columns(f.result), columns(f.stats)); }
inline auto columns(const Forward<SoftCrossEntropy>& f) { return std::tuple_cat(columns(f.result), columns(f.stats)); }
template <Task T>
auto columns(const Forward<T>& f) {
  return std::tuple_cat(columns(f.result), columns(f.stats), columns(f.grads));
}

/// Counts the vectors that hold something: each is a block of the heap that the caller gets.
template <class Returned>
int64_t count_columns(const Returned& returned) {
  return std::apply([](const auto&... column) { return (int64_t{0} + ... + (column.empty() ? 0 : 1)); },
                    columns(returned));
}

/// Returns all numbers of a result.
inline std::vector<double> numbers(const CrossEntropyResult& r) {
  const CrossEntropyMetrics& m = r.metrics;
  return {r.loss, static_cast<double>(m.tokens), m.mean_nll, m.perplexity, m.z_loss, m.accuracy, m.mean_entropy};
}
inline std::vector<double> numbers(const PolicyResult& r) {
  const PolicyMetrics& m = r.metrics;
  return {r.loss,
          static_cast<double>(m.tokens),
          m.mean_ratio,
          m.clip_fraction_low,
          m.clip_fraction_high,
          m.clip_fraction,
          m.mean_kl,
          m.mean_entropy,
          m.mean_logp,
          m.mean_teacher_kl};
}
inline std::vector<double> numbers(const PreferenceResult& r) {
  const PreferenceMetrics& m = r.metrics;
  return {r.loss,
          static_cast<double>(m.pairs),
          static_cast<double>(m.tokens),
          m.chosen_reward,
          m.rejected_reward,
          m.margin,
          m.accuracy,
          m.chosen_logp,
          m.rejected_logp,
          m.nll,
          m.mean_entropy};
}
inline std::vector<double> numbers(const KtoResult& r) {
  const KtoMetrics& m = r.metrics;
  return {r.loss,
          static_cast<double>(m.desirable),
          static_cast<double>(m.undesirable),
          static_cast<double>(m.tokens),
          m.kl,
          m.desirable_reward,
          m.undesirable_reward,
          m.margin,
          m.desirable_logp,
          m.undesirable_logp,
          m.mean_entropy};
}
inline std::vector<double> numbers(const DistillationResult& r) {
  const DistillationMetrics& m = r.metrics;
  return {r.loss,         static_cast<double>(m.tokens), m.mean_divergence, m.mean_acceptance, m.mean_nll, m.agreement,
          m.mean_entropy, m.mean_teacher_entropy};
}
inline std::vector<double> numbers(const SoftCrossEntropyResult& r) {
  const SoftCrossEntropyMetrics& m = r.metrics;
  return {r.loss, static_cast<double>(m.tokens), m.mean_cross_entropy, m.mean_target_entropy, m.mean_kl};
}
inline std::vector<double> numbers(const TokenStats&) { return {}; }
template <class Number>
std::vector<double> numbers(const std::vector<Number>&) {
  return {};
}
template <class Forward>
requires requires(const Forward& f) { f.result; }
std::vector<double> numbers(const Forward& f) { return numbers(f.result); }

/// Returns the bytes of all vectors and numbers.
template <class Returned>
std::vector<std::byte> bytes_of(const Returned& returned) {
  std::vector<std::byte> bytes;
  const auto append = [&](const auto& values) {
    const auto more = std::as_bytes(std::span(values));
    bytes.insert(bytes.end(), more.begin(), more.end());
  };
  std::apply([&](const auto&... column) { (append(column), ...); }, columns(returned));
  append(numbers(returned));
  return bytes;
}

}  // namespace logitless::testing

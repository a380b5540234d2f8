// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "loss/soft_targets.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "core/check_fields.h"
#include "core/parallel.h"
#include "core/tensors.h"
#include "core/views.h"
#include "loss/math.h"
#include "problem/id_sets.h"

namespace logitless::loss {
namespace {

using core::fail_if;

double times_log(double q) { return q > 0 ? q * std::log(q) : 0; }

void check_weight(std::string_view name, int64_t row, std::string_view of, int64_t at, double value) {
  fail_if(!kNotNegative.holds(value), name, " of row ", row, ", ", of, " ", at, ", = ", value,
          " must be finite and at least 0: a probability, not a logarithm");
}

bool is_sparse(const SoftTargets& targets) { return targets.weights.given() || problem::is_given(targets.sets); }

// Reads a row's weights; the weights of one id add up.
void read_row(const ConstVector& given, const problem::SetPicks& picks, int64_t row, bool wants_entropy,
              SoftRows& out) {
  const auto r = static_cast<size_t>(row);
  const int64_t first = picks.picks.offsets[r], end = picks.picks.offsets[r + 1];
  const int64_t row_entry =
      first < end ? *std::min_element(picks.entries.begin() + first, picks.entries.begin() + end) : 0;
  double of_id = 0;
  for (int64_t pick = first; pick < end; ++pick) {
    const auto k = static_cast<size_t>(pick);
    const double weight = core::read(given, picks.entries[k]);
    check_weight("targets.weights", row, "entry", picks.entries[k] - row_entry, weight);
    out.weights[k] = weight;
    out.masses[r] += weight;
    of_id += weight;
    if (pick + 1 < end && picks.picks.ids[k + 1] == picks.picks.ids[k]) continue;
    if (wants_entropy) out.negentropy[r] += times_log(of_id);
    of_id = 0;
  }
}

SoftRows check_sparse(const SoftTargets& targets, const problem::Shape& shape, bool wants_entropy) {
  problem::SetPicks picks = problem::set_picks(targets.sets, shape, targets.mask);
  const ConstVector weights = core::vector_of("targets.weights", targets.weights, numbers("as sets.ids"));
  fail_if(weights.size != targets.sets.entries(), "targets.weights ", core::HasEntries(weights.size),
          " but targets.sets.ids has ", targets.sets.entries());
  SoftRows out;
  out.weights.assign(picks.entries.size(), 0);
  out.masses.assign(static_cast<size_t>(shape.tokens), 0);
  if (wants_entropy) out.negentropy = out.masses;
  for (const int64_t row : picks.picks.rows) read_row(weights, picks, row, wants_entropy, out);
  out.picks = std::move(picks.picks);
  return out;
}

// Returns the sum of a row, in eight partial sums of fixed order, or NaN if a weight is invalid.
template <class T>
double sum_row(const T* weights, int64_t vocab) {
  constexpr int64_t kChains = 8;
  std::array<double, kChains> sums = {};
  bool good = true;
  int64_t v = 0;
  for (; v + kChains <= vocab; v += kChains) {
    for (int64_t k = 0; k < kChains; ++k) {
      const T q = weights[v + k];
      good &= q >= 0 && q <= std::numeric_limits<T>::max();
      sums[static_cast<size_t>(k)] += q;
    }
  }
  for (; v < vocab; ++v) {
    good &= weights[v] >= 0 && weights[v] <= std::numeric_limits<T>::max();
    sums[0] += weights[v];
  }
  double sum = 0;
  for (const double part : sums) sum += part;
  return good ? sum : kNan;
}

template <class T>
void read_rows(const ConstMatrix& given, std::span<const int64_t> rows, bool wants_entropy, int threads,
               SoftRows& out) {
  const auto weights_of = [&](int64_t row) { return static_cast<const T*>(given.data) + row * given.stride; };
  core::parallel_for(threads, static_cast<int64_t>(rows.size()), [&](int64_t a) {
    const int64_t row = rows[static_cast<size_t>(a)];
    const T* weights = weights_of(row);
    out.masses[static_cast<size_t>(row)] = sum_row(weights, given.cols);
    if (!wants_entropy) return;
    double sum = 0;
    for (int64_t v = 0; v < given.cols; ++v) sum += times_log(weights[v]);
    out.negentropy[static_cast<size_t>(row)] = sum;
  });
  for (const int64_t row : rows) {
    for (int64_t v = 0; std::isnan(out.masses[static_cast<size_t>(row)]) && v < given.cols; ++v) {
      check_weight("targets.rows", row, "vocabulary entry", v, weights_of(row)[v]);
    }
  }
}

SoftRows check_dense(const SoftTargets& targets, const problem::Shape& shape, bool wants_entropy, int threads) {
  const ConstMatrix given = core::with_used_stride(core::matrix_of("targets.rows", targets.rows, "[N, V]"));
  problem::check_mask(targets.mask, shape.tokens, shape.rows_name);
  core::check_matrix("targets.rows", given.data, given.rows, given.cols, given.stride);
  fail_if(given.rows != shape.tokens || given.cols != shape.vocab_size, "targets.rows is [", given.rows, ", ",
          given.cols, "] but must be [", shape.tokens, ", ", shape.vocab_size, "]: for each row of ", shape.rows_name,
          ", one row over the whole vocabulary");
  const DType sums = shape.dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
  fail_if(given.dtype != sums, "targets.rows is ", name_of(given.dtype), " but must be ", name_of(sums), " for ",
          shape.rows_name, " of ", name_of(shape.dtype));
  SoftRows out;
  out.dense = true;
  for (int64_t row = 0; row < shape.tokens; ++row) {
    if (targets.mask.empty() || targets.mask[static_cast<size_t>(row)] != 0) out.picks.rows.push_back(row);
  }
  out.masses.assign(static_cast<size_t>(shape.tokens), 0);
  if (wants_entropy) out.negentropy = out.masses;
  if (sums == DType::kFloat64) {
    read_rows<double>(given, out.picks.rows, wants_entropy, threads, out);
  } else {
    read_rows<float>(given, out.picks.rows, wants_entropy, threads, out);
  }
  out.cross.name = "targets.rows";
  out.cross.rows = given.data;
  out.cross.rows_stride = given.stride;
  out.cross.row_masses = out.masses;
  return out;
}

}  // namespace

void check_options(const SoftCrossEntropy& options) {
  core::check_fields(options);
  problem::check_no_targets(options.token, "soft targets belong to the positions that predict them");
  check_mean(mean_options(options));
}

core::Array<core::ByteRange> ranges_of(const SoftTargets& targets) {
  core::Array<core::ByteRange> ranges = problem::ranges_of(targets.sets);
  ranges.insert(ranges.end(),
                {core::range_of("targets.weights", targets.weights), core::range_of("targets.rows", targets.rows),
                 core::range_of("mask", targets.mask.data(), targets.mask.size())});
  return ranges;
}

SoftRows check_soft_targets(const SoftTargets& targets, const problem::Shape& shape, bool wants_entropy, int threads) {
  const bool dense = targets.rows.given(), sparse = is_sparse(targets);
  fail_if(sparse && dense, "targets.rows is set together with targets.sets or targets.weights: targets are either ",
          "dense or sparse");
  fail_if(!sparse && !dense && shape.tokens > 0, "targets is empty: it needs rows, or sets and weights");
  return dense ? check_dense(targets, shape, wants_entropy, threads) : check_sparse(targets, shape, wants_entropy);
}

SoftCrossEntropyLoss::SoftCrossEntropyLoss(const SoftCrossEntropy& options, SoftRows rows,
                                           std::span<const int64_t> offsets, const problem::TokenProblem& problem,
                                           ranks::Totals totals)
    : ReducedLoss(problem, mean_options(options), offsets, totals), options_(options), rows_(std::move(rows)) {
  losses_.assign(static_cast<size_t>(problem.tokens), 0);
}

double SoftCrossEntropyLoss::cross_entropy(int64_t row, const TokenStats& stats) const {
  if (rows_.dense) return -stats.cross[static_cast<size_t>(row)] / problem_.logp_temperature(row);
  double sum = 0;
  for (int64_t pick = problem_.pick_begin(row); pick < problem_.pick_end(row); ++pick) {
    sum += weighted(rows_.weights[static_cast<size_t>(pick)], -stats.logp[static_cast<size_t>(pick)]);
  }
  return sum;
}

// By the log-sum inequality KL is at least Q log Q, because Σ p is at most 1. Rounding must not violate this.
double SoftCrossEntropyLoss::divergence(int64_t row, double cross_entropy) const {
  const double kl = cross_entropy + rows_.negentropy[static_cast<size_t>(row)];
  // A sum that differs from 1 only by its own rounding counts as 1.
  constexpr double kRounding = 0x1p-40;
  const double mass = rows_.masses[static_cast<size_t>(row)];
  const double bound = std::abs(mass - 1) <= kRounding ? 0 : times_log(mass);
  // Under kScaleLogp the divided values are not the logarithms of a distribution.
  return problem_.logp_temperature(row) != 1 || !(kl < bound) ? kl : bound;
}

void SoftCrossEntropyLoss::evaluate(std::span<const int64_t> rows, const TokenStats& stats, TokenGrads& grads) {
  for (const int64_t row : rows) {
    const auto i = static_cast<size_t>(row);
    losses_[i] = cross_entropy(row, stats);
    if (token_weight(i) == 0) continue;
    const double scale = mean_.factor(i) * options_.loss_scale * upstream(i) * token_weight(i);
    if (rows_.dense) {
      grads.cross[i] = -scale / problem_.logp_temperature(row);
      continue;
    }
    for (int64_t pick = problem_.pick_begin(row); pick < problem_.pick_end(row); ++pick) {
      const auto k = static_cast<size_t>(pick);
      grads.logp[k] = -scale * rows_.weights[k];
    }
  }
}

SoftCrossEntropyResult SoftCrossEntropyLoss::result(const TokenStats&, const Plan& plan) const {
  SoftCrossEntropyResult out;
  out.plan = plan;
  out.per_token_loss.assign(losses_.size(), 0);
  const bool subtracts = options_.subtract_entropy;
  double tokens = static_cast<double>(problem_.active().size()), cross = 0, entropy = 0, kl = 0;
  for (const int64_t row : problem_.active()) {
    const auto i = static_cast<size_t>(row);
    cross += losses_[i];
    const double loss = subtracts ? divergence(row, losses_[i]) : losses_[i];
    if (subtracts) entropy -= rows_.negentropy[i];
    if (subtracts) kl += loss;
    const double scale = options_.loss_scale * token_weight(i);
    out.loss += weighted(mean_.factor(i) * scale, loss);
    out.per_token_loss[i] = weighted(scale, loss);
  }
  totals_.sum({&tokens, &cross, &entropy, &kl, &out.loss});
  const double share = reciprocal_or_zero(tokens);
  out.metrics.tokens = static_cast<int64_t>(tokens);
  out.metrics.mean_cross_entropy = cross * share;
  if (subtracts) out.metrics.mean_target_entropy = entropy * share;
  if (subtracts) out.metrics.mean_kl = kl * share;
  return out;
}

}  // namespace logitless::loss

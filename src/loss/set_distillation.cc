// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "loss/set_distillation.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "loss/divergence_options.h"
#include "loss/math.h"

namespace logitless::loss {
namespace {

// Returns log(e^a + e^b).
double log_sum(double a, double b) {
  if (a < b) std::swap(a, b);
  return b == kNothing ? a : a + std::log1p(std::exp(b - a));
}

CellMasses cell_masses(OutsideSet outside) {
  switch (outside) {
    case OutsideSet::kTail:
    case OutsideSet::kRenormalised:
      return CellMasses::kDistributions;
    case OutsideSet::kGeneralised:
      return CellMasses::kGeneralised;
    case OutsideSet::kTruncated:
    case OutsideSet::kTeacherRenormalised:
      break;
  }
  return CellMasses::kAny;
}

}  // namespace

SetDistillationLoss::SetDistillationLoss(const SetDistillation& options, SetRows rows, std::span<const int64_t> offsets,
                                         const problem::TokenProblem& problem, ranks::Totals totals)
    : ReducedLoss(problem, mean_options(options), offsets, totals), options_(options), rows_(std::move(rows)) {
  const auto cells = static_cast<size_t>(problem.most_picks() + 1);
  student_.reserve(cells);
  teacher_.reserve(cells);
  slopes_.resize(cells);
  divergences_.assign(static_cast<size_t>(problem.tokens), 0);
}

double SetDistillationLoss::compare(int64_t row, const TokenStats& stats) {
  const auto i = static_cast<size_t>(row);
  student_.clear();
  teacher_.clear();
  double student_outside = has_tail() ? stats.outside[i] : 0;
  for (int64_t pick = problem_.pick_begin(row); pick < problem_.pick_end(row); ++pick) {
    const auto k = static_cast<size_t>(pick);
    if (std::isnan(rows_.logps[k])) {
      // A target outside the set belongs to the tail.
      if (has_tail()) student_outside = log_sum(student_outside, stats.logp[k]);
      continue;
    }
    student_.push_back(stats.logp[k]);
    teacher_.push_back(rows_.logps[k]);
  }
  if (has_tail()) {
    // If the student has no mass outside the set, and the teacher's mass there may be only rounding or the
    // floor, the teacher's counts as 0.
    const double entries = static_cast<double>(student_.size()) + 16;
    const double least = std::log(std::max(entries * rows_.rounding, options_.tail_floor));
    const bool nothing = student_outside == kNothing && rows_.outside[i] <= least;
    student_.push_back(student_outside);
    teacher_.push_back(nothing ? kNothing : rows_.outside[i]);
  }
  return divergence_of_cells({options_.loss_type, divergence_parameter(options_)}, cell_masses(options_.outside),
                             student_, teacher_, slopes_);
}

void SetDistillationLoss::evaluate(std::span<const int64_t> rows, const TokenStats& stats, TokenGrads& grads) {
  for (const int64_t row : rows) {
    const auto i = static_cast<size_t>(row);
    divergences_[i] = compare(row, stats);
    if (token_weight(i) == 0) continue;
    const double scale = mean_.factor(i) * options_.loss_scale * upstream(i) * token_weight(i);
    const double weight = divergence_weight(options_, row) * scale;
    // The tail's gradient goes to its parts by their shares of its mass.
    const double tail_slope = has_tail() ? slopes_[student_.size() - 1] : 0;
    const auto share_of_tail = [&](double logp) {
      const double share = !has_tail() || logp == kNothing ? 0 : std::exp(logp - student_.back());
      return weighted(weight, weighted(share, tail_slope));
    };
    size_t cell = 0;
    for (int64_t pick = problem_.pick_begin(row); pick < problem_.pick_end(row); ++pick) {
      const auto k = static_cast<size_t>(pick);
      grads.logp[k] = std::isnan(rows_.logps[k]) ? share_of_tail(stats.logp[k]) : weighted(weight, slopes_[cell++]);
    }
    if (has_tail()) grads.outside[i] = share_of_tail(stats.outside[i]);
    if (options_.hard_weight != 0) grads.logp[static_cast<size_t>(rows_.target[i])] -= options_.hard_weight * scale;
  }
}

SetDistillationResult SetDistillationLoss::result(const TokenStats& stats, const Plan& plan) const {
  SetDistillationResult out;
  out.plan = plan;
  out.per_token_loss.assign(divergences_.size(), 0);
  out.per_token_divergence.assign(divergences_.begin(), divergences_.end());
  const bool hard = options_.hard_weight != 0;
  double tokens = 0, divergence = 0, teacher_mass = 0, student_mass = 0, nll = 0;
  for (const int64_t row : problem_.active()) {
    const auto i = static_cast<size_t>(row);
    double loss = weighted(divergence_weight(options_, row), divergences_[i]);
    if (hard) {
      const double logp = stats.logp[static_cast<size_t>(rows_.target[i])];
      loss -= options_.hard_weight * logp;
      nll -= logp;
    }
    out.per_token_loss[i] = weighted(options_.loss_scale * token_weight(i), loss);
    out.loss += weighted(mean_.factor(i), out.per_token_loss[i]);
    ++tokens;
    divergence += divergences_[i];
    teacher_mass += rows_.masses[i];
    for (int64_t pick = problem_.pick_begin(row); pick < problem_.pick_end(row); ++pick) {
      const auto k = static_cast<size_t>(pick);
      if (!std::isnan(rows_.logps[k])) student_mass += std::exp(stats.logp[k]);
    }
  }
  totals_.sum({&tokens, &divergence, &teacher_mass, &student_mass, &nll, &out.loss});
  const double share = reciprocal_or_zero(tokens);
  out.metrics.tokens = static_cast<int64_t>(tokens);
  out.metrics.mean_divergence = divergence * share;
  out.metrics.mean_teacher_mass = teacher_mass * share;
  if (options_.outside != OutsideSet::kRenormalised) out.metrics.mean_student_mass = student_mass * share;
  if (hard) out.metrics.mean_nll = nll * share;
  return out;
}

}  // namespace logitless::loss

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "loss/set_cells.h"

#include <algorithm>
#include <cmath>

#include "loss/math.h"

namespace logitless::loss {
namespace {

// A cell's part of a divergence: x log(x / y), the −x + y of the generalised KL, and the derivatives of both
// by log s.
struct Part {
  double plain = 0, extra = 0;
  double slope = 0, extra_slope = 0;
  double whole = 0;  // plain + extra, without cancellation
};

// Returns x log(x / y) − x + y.
double excess(double log_x, double log_y) {
  const double x = std::exp(log_x), apart = log_y - log_x;
  if (x == 0) return std::exp(log_y);
  if (apart < 1) return x * (std::expm1(apart) - apart);
  return std::exp(log_y) - x * (1 + apart);
}

// Returns log(v a + w b) for v + w = 1 and a >= b, accurate near log a if a and b are close.
double log_mixture_of_larger(double log_a, double v, double log_b, double w) {
  const double change = w * std::expm1(log_b - log_a);
  if (change > -0.5) return log_a + std::log1p(change);
  return log_a + std::log(v + w * std::exp(log_b - log_a));
}
// Returns log(w a + (1 − w) b) for 0 < w < 1.
double log_mixture(double log_a, double log_b, double w) {
  if (log_a < log_b) return log_mixture_of_larger(log_b, 1 - w, log_a, w);
  return log_mixture_of_larger(log_a, w, log_b, 1 - w);
}

Part forward_kl(double log_s, double log_t) {
  const double s = std::exp(log_s), t = std::exp(log_t);
  return {weighted(t, log_t - log_s), s - t, -t, s, excess(log_t, log_s)};
}
Part reverse_kl(double log_s, double log_t) {
  const double s = std::exp(log_s), t = std::exp(log_t);
  return {weighted(s, log_s - log_t), t - s, weighted(s, log_s - log_t + 1), -s, excess(log_s, log_t)};
}
Part scaled(double w, const Part& part) {
  if (w == 0) return {};
  return {w * part.plain, w * part.extra, w * part.slope, w * part.extra_slope, w * part.whole};
}
Part sum(const Part& a, const Part& b) {
  return {a.plain + b.plain, a.extra + b.extra, a.slope + b.slope, a.extra_slope + b.extra_slope, a.whole + b.whole};
}

Part jsd(double log_s, double log_t, double beta) {
  if (beta == 0) return forward_kl(log_s, log_t);
  if (beta == 1) return reverse_kl(log_s, log_t);
  const double log_m = log_mixture(log_t, log_s, beta);
  Part out;
  out.whole = beta * excess(log_t, log_m) + (1 - beta) * excess(log_s, log_m);
  out.plain = out.whole;  // −β t − (1 − β) s + m = 0
  out.slope = (1 - beta) * weighted(std::exp(log_s), log_s - log_m);
  return out;
}

Part skew_kl(double log_s, double log_t, double skew) {
  if (skew == 0) return forward_kl(log_s, log_t);
  if (skew == 1) return {};
  const double log_m = log_mixture(log_t, log_s, skew), s = std::exp(log_s), t = std::exp(log_t);
  return {weighted(t, log_t - log_m), (1 - skew) * (s - t), -(1 - skew) * std::exp(log_t + log_s - log_m),
          (1 - skew) * s, excess(log_t, log_m)};
}
Part skew_reverse_kl(double log_s, double log_t, double skew) {
  if (skew == 0) return reverse_kl(log_s, log_t);
  if (skew == 1) return {};
  const double log_m = log_mixture(log_s, log_t, skew), s = std::exp(log_s), t = std::exp(log_t);
  const double slope = weighted(s, log_s - log_m + 1 - skew * std::exp(log_s - log_m));
  return {weighted(s, log_s - log_m), (1 - skew) * (t - s), slope, -(1 - skew) * s, excess(log_s, log_m)};
}

Part total_variation(double log_s, double log_t) {
  const double s = std::exp(log_s), t = std::exp(log_t);
  const double half = 0.5 * std::abs(s - t);
  return {half, 0, s > t ? 0.5 * s : s < t ? -0.5 * s : 0, 0, half};
}

Part part_of(const CellDivergence& divergence, double log_s, double log_t) {
  if (log_s == kNothing && log_t == kNothing) return {};
  const double w = divergence.parameter;
  switch (divergence.kind) {
    case Divergence::kForwardKl:
      return forward_kl(log_s, log_t);
    case Divergence::kReverseKl:
      return reverse_kl(log_s, log_t);
    case Divergence::kJsd:
      return jsd(log_s, log_t, w);
    case Divergence::kSkewKl:
      return skew_kl(log_s, log_t, w);
    case Divergence::kSkewReverseKl:
      return skew_reverse_kl(log_s, log_t, w);
    case Divergence::kTotalVariation:
      return total_variation(log_s, log_t);
    case Divergence::kMixedKl:
      return sum(scaled(w, forward_kl(log_s, log_t)), scaled(1 - w, reverse_kl(log_s, log_t)));
    case Divergence::kAcceptance:
    case Divergence::kLkHybrid:
      break;  // check_set_options() refuses them
  }
  return {};
}

}  // namespace

double divergence_of_cells(const CellDivergence& divergence, CellMasses masses, std::span<const double> student,
                           std::span<const double> teacher, std::span<double> slopes) {
  double value = 0;
  for (size_t k = 0; k < student.size(); ++k) {
    const Part part = part_of(divergence, student[k], teacher[k]);
    value += masses == CellMasses::kAny ? part.plain : part.whole;
    slopes[k] = part.slope + (masses == CellMasses::kGeneralised ? part.extra_slope : 0);
  }
  return value;
}

}  // namespace logitless::loss

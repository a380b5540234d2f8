// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "loss/preference_losses.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "loss/math.h"

namespace logitless::loss {

WithSlope smoothed_logistic(double z, double smoothing) {
  if (smoothing == 0) return {-log_sigmoid(z), -sigmoid(-z)};
  return {-(1 - smoothing) * log_sigmoid(z) - smoothing * log_sigmoid(-z),
          -(1 - smoothing) * sigmoid(-z) + smoothing * sigmoid(z)};
}

namespace {

using Options = PreferenceLoss;

double margin_of(const PairLogps& p, const Options& o) { return o.beta * (p.a - p.b); }

// A loss of z = β (a − b) + constant: ∂z/∂a = β = −∂z/∂b.
PairValue of_margin(double loss, double slope, const Options& o) {
  const double by_chosen = o.beta * slope;
  return {loss, by_chosen, -by_chosen};
}

// DPO: Rafailov et al. 2023, eq. 7.
PairValue dpo(const PairLogps& p, const Options& o) {
  const double z = margin_of(p, o);
  return of_margin(-log_sigmoid(z), -sigmoid(-z), o);
}

// SLiC-HF: Zhao et al. 2023. Written so that a NaN is not clipped away.
PairValue hinge(const PairLogps& p, const Options& o) {
  const double z = margin_of(p, o);
  return of_margin(z >= 1 ? 0 : 1 - z, z >= 1 ? 0 : -1, o);
}

// IPO: Azar et al. 2023, eq. 17.
PairValue ipo(const PairLogps& p, const Options& o) {
  const double error = p.a - p.b - 1 / (2 * o.beta);
  return {error * error, 2 * error, -(2 * error)};
}

// EXO: Ji et al. 2024, eq. 16.
PairValue exo_pair(const PairLogps& p, const Options& o) {
  const double z = margin_of(p, o), smoothing = o.label_smoothing;
  const double win = log_sigmoid(z) - std::log1p(-smoothing), lose = log_sigmoid(-z) - std::log(smoothing);
  const double q = sigmoid(z), rest = sigmoid(-z);
  return of_margin(weighted(q, win) + weighted(rest, lose), weighted(q * rest, win - lose), o);
}

// NCA: Chen et al. 2024.
PairValue nca_pair(const PairLogps& p, const Options& o) {
  const double beta = o.beta, a = p.a, b = p.b;
  return {-log_sigmoid(beta * a) - 0.5 * log_sigmoid(-beta * a) - 0.5 * log_sigmoid(-beta * b),
          beta * (0.5 * sigmoid(beta * a) - sigmoid(-beta * a)), beta * 0.5 * sigmoid(beta * b)};
}

// Robust DPO: Chowdhury et al. 2024.
PairValue robust(const PairLogps& p, const Options& o) {
  const double z = margin_of(p, o), smoothing = o.label_smoothing;
  const double scale = 1 / (1 - 2 * smoothing);
  return of_margin(scale * ((smoothing - 1) * log_sigmoid(z) + weighted(smoothing, log_sigmoid(-z))),
                   scale * ((smoothing - 1) * sigmoid(-z) - smoothing * sigmoid(z)), o);
}

// BCO: Jung et al. 2024, without its running mean.
PairValue bco_pair(const PairLogps& p, const Options& o) {
  const double beta = o.beta, a = p.a, b = p.b;
  return {-log_sigmoid(beta * a) - log_sigmoid(-beta * b), -beta * sigmoid(-beta * a), beta * sigmoid(beta * b)};
}

// SPPO: Wu et al. 2024, eq. 4.7.
PairValue sppo_hard(const PairLogps& p, const Options& o) {
  const double half = 1 / (2 * o.beta);
  return {(p.a - half) * (p.a - half) + (p.b + half) * (p.b + half), 2 * (p.a - half), 2 * (p.b + half)};
}

// APO: D'Oosterlinck et al. 2024, eq. 7.
PairValue apo_zero(const PairLogps& p, const Options& o) {
  const double beta = o.beta, a = p.a, b = p.b;
  return {sigmoid(-beta * a) + sigmoid(beta * b), -beta * sigmoid(beta * a) * sigmoid(-beta * a),
          beta * sigmoid(beta * b) * sigmoid(-beta * b)};
}

// APO: eq. 8 of the same.
PairValue apo_down(const PairLogps& p, const Options& o) {
  const double beta = o.beta, a = p.a, z = margin_of(p, o);
  const double slope = beta * sigmoid(z) * sigmoid(-z);
  return {sigmoid(beta * a) + sigmoid(-z), beta * sigmoid(beta * a) * sigmoid(-beta * a) - slope, slope};
}

// DiscoPOP: Lu et al. 2024, eq. 5.
PairValue discopop(const PairLogps& p, const Options& o) {
  const double z = margin_of(p, o), x = z / o.discopop_tau;
  // mix is σ(x), and mix_slope the slope of log σ(x).
  const double mix = sigmoid(x), rest = sigmoid(-x), mix_slope = rest / o.discopop_tau;
  // log(m e^{−z}); for z < 0 without subtracting terms that both grow with z.
  const double exponent = x < 0 ? weighted(1 / o.discopop_tau - 1, z) - std::log1p(std::exp(x)) : log_sigmoid(x) - z;
  const WithSlope exponential = bounded_exp(exponent, kMostExponent);
  return of_margin(weighted(-rest, log_sigmoid(z)) + exponential.value,
                   weighted(mix_slope * mix, log_sigmoid(z)) - rest * sigmoid(-z) + exponential.slope * (mix_slope - 1),
                   o);
}

// Upper bound that keeps 1 − e^x away from 0; float32 logits cannot resolve smaller distances.
constexpr double kMostMeanLogp = -0x1p-24;

double log_one_minus_exp(double x) { return x > -0.6931 ? std::log(-std::expm1(x)) : std::log1p(-std::exp(x)); }

// ORPO: Hong et al. 2024, eqs. 4 and 7.
PairValue orpo(const PairLogps& p, const Options& o) {
  const double chosen = std::min(p.c, kMostMeanLogp), rejected = std::min(p.r, kMostMeanLogp);
  const double log_odds = (p.c - p.r) - (log_one_minus_exp(chosen) - log_one_minus_exp(rejected));
  const double slope = -o.beta * sigmoid(-log_odds);
  return {-o.beta * log_sigmoid(log_odds), -slope / std::expm1(chosen), slope / std::expm1(rejected)};
}

// (e^(k x) − 1) / k, or x for k = 0. AlphaPO's reward with k = −α: Gupta et al. 2025.
WithSlope exponential_of(double x, double k) {
  if (k == 0) return {x, 1};
  const double exponent = k * x;
  if (exponent > kMostLogRatio) return {std::expm1(kMostLogRatio) / k, 0};
  return {std::expm1(exponent) / k, std::exp(exponent)};
}

PairValue logistic_of_logps(const PairLogps& p, const Options& o, double gamma) {
  const WithSlope c = reward_of(p.c, o), r = reward_of(p.r, o);
  const WithSlope logistic = smoothed_logistic(o.beta * (c.value - r.value) - gamma, o.label_smoothing);
  const double slope = o.beta * logistic.slope;
  return {logistic.value, slope * c.slope, -slope * r.slope};
}

// SimPO: Meng et al. 2024, eq. 6.
PairValue simpo(const PairLogps& p, const Options& o) { return logistic_of_logps(p, o, o.simpo_gamma); }

// CPO: Xu et al. 2024, eq. 3.
PairValue cpo(const PairLogps& p, const Options& o) { return logistic_of_logps(p, o, 0); }

using enum PreferenceLossType;
using enum PairKind;

// In the order of the enumeration. AOT: Melnyk et al. 2024.
constexpr PairLossRow kRows[] = {
    {.loss_type = kSigmoid, .value = dpo, .takes_f_divergence = true},
    {.loss_type = kHinge, .value = hinge, .takes_f_divergence = true},
    {.loss_type = kIpo, .value = ipo, .averages = true, .takes_f_divergence = true},
    {.loss_type = kExoPair, .value = exo_pair, .smooths = true, .needs_smoothing = true, .takes_f_divergence = true},
    {.loss_type = kNcaPair, .value = nca_pair},
    {.loss_type = kRobust, .value = robust, .smooths = true, .takes_f_divergence = true, .smoothing_below = 0.5},
    {.loss_type = kBcoPair, .value = bco_pair},
    {.loss_type = kSppoHard, .value = sppo_hard},
    {.loss_type = kApoZero, .value = apo_zero},
    {.loss_type = kApoDown, .value = apo_down},
    {.loss_type = kAot, .kind = kSortedMargins, .smooths = true},
    {.loss_type = kAotUnpaired, .kind = kSortedRatios, .smooths = true},
    {.loss_type = kDiscopop, .value = discopop, .takes_f_divergence = true},
    {.loss_type = kSft, .kind = kLikelihood, .needs_reference = false, .takes_f_divergence = true},
    {.loss_type = kOrpo, .value = orpo, .needs_reference = false, .averages = true, .with_likelihood = true},
    {.loss_type = kSimpo,
     .value = simpo,
     .needs_reference = false,
     .averages = true,
     .smooths = true,
     .takes_rewards = true},
    {.loss_type = kCpo,
     .value = cpo,
     .needs_reference = false,
     .with_likelihood = true,
     .smooths = true,
     .takes_rewards = true},
    {.loss_type = kSigmoidNorm, .value = dpo, .averages = true, .takes_f_divergence = true},
};

static_assert(has_row_per_loss(kRows));
static_assert(std::all_of(std::begin(kRows), std::end(kRows),
                          [](const PairLossRow& row) { return (row.kind == kPair) == (row.value != nullptr); }),
              "a row has a function exactly when it is one of pairs");

}  // namespace

const PairLossRow& row_of(PreferenceLossType loss) { return kRows[static_cast<size_t>(loss)]; }

// f-DPO: Wang et al. 2024, with s(0) = 0 as in TRL.
WithSlope divergence_score_of(double log_ratio, const PreferenceLoss& options) {
  switch (options.f_divergence) {
    case FDivergence::kReverseKl:
      break;
    case FDivergence::kForwardKl:
      return exponential_of(log_ratio, -1);
    case FDivergence::kJs:
      return {std::log(2.0) + log_sigmoid(log_ratio), sigmoid(-log_ratio)};
    case FDivergence::kAlpha:
      return exponential_of(log_ratio, std::abs(options.f_alpha - 1) < 1e-6 ? 0 : options.f_alpha - 1);
  }
  return {log_ratio, 1};
}

WithSlope reward_of(double logp, const PreferenceLoss& options) { return exponential_of(logp, -options.reward_alpha); }

}  // namespace logitless::loss

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "oracle/preference_oracle.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace logitless::oracle {
namespace {

constexpr double kOrpoCeiling = -0x1p-24;  // 1 - e^x is taken at min(x, this)

double sigmoid(double x) { return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x)); }
double log_sigmoid(double x) { return x < 0 ? x - std::log1p(std::exp(x)) : -std::log1p(std::exp(-x)); }
double square(double x) { return x * x; }

bool contains(const PreferenceOptions& options, PreferenceLoss loss) {
  return std::any_of(options.terms.begin(), options.terms.end(),
                     [&](const PreferenceTerm& term) { return term.loss == loss; });
}

bool any_needs_reference(const PreferenceOptions& options) {
  return std::any_of(options.terms.begin(), options.terms.end(),
                     [](const PreferenceTerm& term) { return compares_with_reference(term.loss); });
}

bool averages(PreferenceLoss loss, const PreferenceOptions& options) {
  return options.average_log_prob || loss == PreferenceLoss::kIpo || loss == PreferenceLoss::kOrpo ||
         loss == PreferenceLoss::kSimpo;
}

bool metrics_average(const PreferenceOptions& options) {
  return options.average_log_prob || contains(options, PreferenceLoss::kOrpo) ||
         contains(options, PreferenceLoss::kSimpo);
}

// A pair that takes part: sums, or averages.
struct Pair {
  int64_t chosen = 0, rejected = 0;             // sequences
  double chosen_count = 0, rejected_count = 0;  // n_s
  double c = 0, r = 0;
  double c0 = 0, r0 = 0;
  double a() const { return c - c0; }
  double b() const { return r - r0; }
};

std::vector<Pair> pairs_of(const SequenceBatch& batch, bool averaged) {
  std::vector<Pair> pairs;
  const int64_t half = batch.sequences() / 2;
  for (int64_t k = 0; k < half; ++k) {
    Pair pair;
    pair.chosen = k;
    pair.rejected = half + k;
    pair.chosen_count = static_cast<double>(batch.count(pair.chosen));
    pair.rejected_count = static_cast<double>(batch.count(pair.rejected));
    if (pair.chosen_count == 0 || pair.rejected_count == 0) continue;
    pair.c = batch.sum(batch.logp, pair.chosen);
    pair.r = batch.sum(batch.logp, pair.rejected);
    if (!batch.reference.empty()) {
      pair.c0 = batch.reference[pair.chosen];
      pair.r0 = batch.reference[pair.rejected];
    }
    if (averaged) {
      pair.c /= pair.chosen_count;
      pair.c0 /= pair.chosen_count;
      pair.r /= pair.rejected_count;
      pair.r0 /= pair.rejected_count;
    }
    pairs.push_back(pair);
  }
  return pairs;
}

// ℓ of a pair, ∂ℓ/∂c and ∂ℓ/∂r.
struct PairLoss {
  double value = 0;
  double by_c = 0;
  double by_r = 0;
};

// ℓ = value(z) with z = beta (c - r) + something constant, and its derivative by z.
PairLoss of_difference(double beta, double value, double by_z) { return {value, beta * by_z, -beta * by_z}; }

// −(1−ε) log σ(z) − ε log σ(−z) and its derivative.
double smoothed(double z, double epsilon) { return -(1 - epsilon) * log_sigmoid(z) - epsilon * log_sigmoid(-z); }
double smoothed_slope(double z, double epsilon) { return -(1 - epsilon) * sigmoid(-z) + epsilon * sigmoid(z); }

PairLoss exo_pair(double beta, double z, double epsilon) {
  const double p = sigmoid(z), q = sigmoid(-z);
  const double value = p * (log_sigmoid(z) - std::log(1 - epsilon)) + q * (log_sigmoid(-z) - std::log(epsilon));
  // p' = pq, (log p)' = q, (log q)' = -p: what comes from the logarithms cancels, and log p - log q = z.
  return of_difference(beta, value, p * q * (z - std::log(1 - epsilon) + std::log(epsilon)));
}

PairLoss discopop(double beta, double z, double tau) {
  const double m = sigmoid(z / tau), rest = sigmoid(-z / tau);
  const double log_m = log_sigmoid(z / tau);
  const double m_exp = std::exp(std::clamp(log_m - z, -700.0, 700.0));  // m e^{−z}
  const double value = -rest * log_sigmoid(z) + m_exp;
  // m' = m rest / tau; (log m - z)' = rest / tau - 1, and no gradient outside of the clamp.
  const double m_exp_by_z = std::abs(log_m - z) <= 700 ? m_exp * (rest / tau - 1) : 0;
  const double by_z = m * rest * log_sigmoid(z) / tau - rest * sigmoid(-z) + m_exp_by_z;
  return of_difference(beta, value, by_z);
}

PairLoss orpo(double beta, double c, double r) {
  const double near_c = std::min(c, kOrpoCeiling), near_r = std::min(r, kOrpoCeiling);
  // log(1 − e^x) as log(−expm1(x)), its derivative −e^x / (1 − e^x) = e^x / expm1(x).
  const double lambda = (c - r) - (std::log(-std::expm1(near_c)) - std::log(-std::expm1(near_r)));
  const double by_lambda = -beta * sigmoid(-lambda);
  const double lambda_by_c = 1 - std::exp(near_c) / std::expm1(near_c);
  const double lambda_by_r = -1 + std::exp(near_r) / std::expm1(near_r);
  return {-beta * log_sigmoid(lambda), by_lambda * lambda_by_c, by_lambda * lambda_by_r};
}

PairLoss pair_loss(PreferenceLoss loss, const Pair& pair, const PreferenceOptions& options) {
  const double beta = options.beta, epsilon = options.label_smoothing;
  const double a = pair.a(), b = pair.b(), z = beta * (a - b), c = pair.c, r = pair.r;
  switch (loss) {
    case PreferenceLoss::kSigmoid:
      return of_difference(beta, -log_sigmoid(z), -sigmoid(-z));
    case PreferenceLoss::kHinge:
      return of_difference(beta, z >= 1 ? 0.0 : 1 - z, z >= 1 ? 0.0 : -1.0);
    case PreferenceLoss::kIpo: {
      const double distance = (a - b) - 1 / (2 * beta);
      return {square(distance), 2 * distance, -2 * distance};
    }
    case PreferenceLoss::kExoPair:
      return exo_pair(beta, z, epsilon);
    case PreferenceLoss::kNcaPair:
      return {-log_sigmoid(beta * a) - 0.5 * log_sigmoid(-beta * a) - 0.5 * log_sigmoid(-beta * b),
              beta * (-sigmoid(-beta * a) + 0.5 * sigmoid(beta * a)), beta * 0.5 * sigmoid(beta * b)};
    case PreferenceLoss::kRobust:
      return of_difference(beta, (-(1 - epsilon) * log_sigmoid(z) + epsilon * log_sigmoid(-z)) / (1 - 2 * epsilon),
                           (-(1 - epsilon) * sigmoid(-z) - epsilon * sigmoid(z)) / (1 - 2 * epsilon));
    case PreferenceLoss::kBcoPair:
      return {-log_sigmoid(beta * a) - log_sigmoid(-beta * b), -beta * sigmoid(-beta * a), beta * sigmoid(beta * b)};
    case PreferenceLoss::kSppoHard:
      return {square(a - 1 / (2 * beta)) + square(b + 1 / (2 * beta)), 2 * (a - 1 / (2 * beta)),
              2 * (b + 1 / (2 * beta))};
    case PreferenceLoss::kApoZero:
      return {sigmoid(-beta * a) + sigmoid(beta * b), -beta * sigmoid(beta * a) * sigmoid(-beta * a),
              beta * sigmoid(beta * b) * sigmoid(-beta * b)};
    case PreferenceLoss::kApoDown: {
      const double by_a = beta * sigmoid(beta * a) * sigmoid(-beta * a);
      const double by_delta = -beta * sigmoid(z) * sigmoid(-z);
      return {sigmoid(beta * a) + sigmoid(-z), by_a + by_delta, -by_delta};
    }
    case PreferenceLoss::kDiscopop:
      return discopop(beta, z, options.discopop_tau);
    case PreferenceLoss::kOrpo:
      return orpo(beta, c, r);
    case PreferenceLoss::kSimpo: {
      const double margin = beta * (c - r) - options.simpo_gamma;
      return of_difference(beta, smoothed(margin, epsilon), smoothed_slope(margin, epsilon));
    }
    case PreferenceLoss::kCpo:
      return of_difference(beta, smoothed(beta * (c - r), epsilon), smoothed_slope(beta * (c - r), epsilon));
    case PreferenceLoss::kAot:
    case PreferenceLoss::kAotUnpaired:
    case PreferenceLoss::kSft:
      break;  // not losses of one pair
  }
  return {};
}

// Which entry of `values` stands at each place of the sorted order; equal values keep theirs.
std::vector<size_t> sorted_order(const std::vector<double>& values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t x, size_t y) { return values[x] < values[y]; });
  return order;
}

// The two lists that aot and aot_unpaired sort.
void sorted_lists(PreferenceLoss loss, const std::vector<Pair>& pairs, std::vector<double>& first,
                  std::vector<double>& second) {
  for (const Pair& pair : pairs) {
    first.push_back(loss == PreferenceLoss::kAot ? pair.c - pair.r : pair.a());
    second.push_back(loss == PreferenceLoss::kAot ? pair.c0 - pair.r0 : pair.b());
  }
}

std::vector<PairLoss> aot(PreferenceLoss loss, const std::vector<Pair>& pairs, const PreferenceOptions& options) {
  std::vector<double> first, second;
  sorted_lists(loss, pairs, first, second);
  const std::vector<size_t> first_order = sorted_order(first), second_order = sorted_order(second);
  std::vector<PairLoss> losses(pairs.size());
  for (size_t k = 0; k < pairs.size(); ++k) {
    const double z = options.beta * (first[first_order[k]] - second[second_order[k]]);
    const double slope = options.beta * smoothed_slope(z, options.label_smoothing);
    losses[first_order[k]].value += smoothed(z, options.label_smoothing);
    losses[first_order[k]].by_c += slope;
    if (loss == PreferenceLoss::kAot) {
      losses[first_order[k]].by_r -= slope;
    } else {
      losses[second_order[k]].by_r -= slope;
    }
  }
  return losses;
}

void add_to_tokens(const SequenceBatch& batch, int64_t sequence, double value, std::vector<double>& tokens) {
  for (int64_t i = batch.offsets[sequence]; i < batch.offsets[sequence + 1]; ++i) {
    if (batch.takes_part[i]) tokens[i] += value;
  }
}

void add_pairwise_term(const SequenceBatch& batch, const PreferenceTerm& term, const PreferenceOptions& options,
                       PreferenceTruth& truth) {
  const bool averaged = averages(term.loss, options);
  const std::vector<Pair> pairs = pairs_of(batch, averaged);
  std::vector<PairLoss> losses;
  if (term.loss == PreferenceLoss::kAot || term.loss == PreferenceLoss::kAotUnpaired) {
    losses = aot(term.loss, pairs, options);
  } else {
    for (const Pair& pair : pairs) losses.push_back(pair_loss(term.loss, pair, options));
  }
  const double share = options.loss_scale * term.weight / std::max<double>(1, static_cast<double>(pairs.size()));
  for (size_t k = 0; k < pairs.size(); ++k) {
    const Pair& pair = pairs[k];
    truth.loss += share * losses[k].value;
    add_to_tokens(batch, pair.chosen, share * losses[k].by_c / (averaged ? pair.chosen_count : 1), truth.d_logp);
    add_to_tokens(batch, pair.rejected, share * losses[k].by_r / (averaged ? pair.rejected_count : 1), truth.d_logp);
  }
}

// Σ (−logp) over the chosen tokens of the pairs that take part, and how many they are.
struct ChosenTokens {
  double nll_sum = 0;
  double count = 0;
};

ChosenTokens chosen_tokens(const SequenceBatch& batch) {
  ChosenTokens chosen;
  for (const Pair& pair : pairs_of(batch, false)) {
    chosen.nll_sum -= pair.c;
    chosen.count += pair.chosen_count;
  }
  return chosen;
}

void add_likelihood(const SequenceBatch& batch, double weight, PreferenceTruth& truth) {
  const ChosenTokens chosen = chosen_tokens(batch);
  if (weight == 0 || chosen.count == 0) return;
  truth.loss += weight * chosen.nll_sum / chosen.count;
  for (const Pair& pair : pairs_of(batch, false)) {
    add_to_tokens(batch, pair.chosen, -weight / chosen.count, truth.d_logp);
  }
}

PreferenceMetrics metrics_of(const SequenceBatch& batch, const PreferenceOptions& options) {
  const std::vector<Pair> pairs = pairs_of(batch, metrics_average(options));
  const bool relative = any_needs_reference(options);
  PreferenceMetrics metrics;
  metrics.pairs = static_cast<int64_t>(pairs.size());
  if (pairs.empty()) return metrics;
  metrics.chosen_reward = metrics.rejected_reward = metrics.margin = metrics.accuracy = 0;
  metrics.chosen_logp = metrics.rejected_logp = 0;
  double entropy = 0;
  const auto count = static_cast<double>(pairs.size());
  for (const Pair& pair : pairs) {
    const double chosen = options.beta * (relative ? pair.a() : pair.c);
    const double rejected = options.beta * (relative ? pair.b() : pair.r);
    metrics.chosen_reward += chosen / count;
    metrics.rejected_reward += rejected / count;
    metrics.margin += (chosen - rejected) / count;
    metrics.accuracy += (chosen > rejected ? 1.0 : 0.0) / count;
    metrics.chosen_logp += pair.c / count;
    metrics.rejected_logp += pair.r / count;
    metrics.tokens += static_cast<int64_t>(pair.chosen_count + pair.rejected_count);
    if (options.want_entropy)
      entropy += batch.sum(batch.entropy, pair.chosen) + batch.sum(batch.entropy, pair.rejected);
  }
  metrics.nll = chosen_tokens(batch).nll_sum / chosen_tokens(batch).count;
  if (options.want_entropy) metrics.mean_entropy = entropy / static_cast<double>(metrics.tokens);
  return metrics;
}

double smallest_gap(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  double gap = std::numeric_limits<double>::infinity();
  for (size_t k = 0; k + 1 < values.size(); ++k) gap = std::min(gap, values[k + 1] - values[k]);
  return gap;
}

}  // namespace

bool compares_with_reference(PreferenceLoss loss) {
  return loss != PreferenceLoss::kSft && loss != PreferenceLoss::kOrpo && loss != PreferenceLoss::kSimpo &&
         loss != PreferenceLoss::kCpo;
}

int64_t SequenceBatch::count(int64_t sequence) const {
  return std::count(takes_part.begin() + offsets[sequence], takes_part.begin() + offsets[sequence + 1], true);
}

double SequenceBatch::sum(const std::vector<double>& values, int64_t sequence) const {
  double total = 0;
  for (int64_t i = offsets[sequence]; i < offsets[sequence + 1]; ++i) {
    if (takes_part[i]) total += values[i];
  }
  return total;
}

void drop_half_pairs(std::span<const int64_t> offsets, Tokens& tokens) {
  const size_t half = (offsets.size() - 1) / 2;
  const auto labels_of = [&](size_t s) {
    return std::span(tokens.labels).subspan(offsets[s], offsets[s + 1] - offsets[s]);
  };
  const auto is_empty = [&](size_t s) {
    const auto labels = labels_of(s);
    return std::count(labels.begin(), labels.end(), kNoLabel) == std::ssize(labels);
  };
  for (size_t k = 0; k < half; ++k) {
    if (!is_empty(k) && !is_empty(half + k)) continue;
    for (const size_t s : {k, half + k}) std::ranges::fill(labels_of(s), kNoLabel);
  }
}

SequenceBatch read_batch(const Tokens& tokens, const TokenStatistics& stats, std::vector<int64_t> offsets) {
  SequenceBatch batch;
  batch.offsets = std::move(offsets);
  for (int64_t i = 0; i < tokens.tokens(); ++i) {
    batch.logp.push_back(stats.logp[i]);
    batch.entropy.push_back(stats.entropy[i]);
    batch.takes_part.push_back(tokens.takes_part(i));
  }
  return batch;
}

std::vector<double> read_reference(const ConstVector& logps, const SequenceBatch& batch) {
  const std::vector<double> values = read_vector(logps);
  if (logps.size == batch.sequences()) return values;
  std::vector<double> sums;
  for (int64_t s = 0; s < batch.sequences(); ++s) sums.push_back(batch.sum(values, s));
  return sums;
}

PreferenceTruth compute_preference(const SequenceBatch& batch, const PreferenceOptions& options) {
  PreferenceTruth truth;
  truth.d_logp.assign(batch.logp.size(), 0.0);
  for (const PreferenceTerm& term : options.terms) {
    if (term.loss == PreferenceLoss::kSft) {
      add_likelihood(batch, options.loss_scale * term.weight, truth);
    } else {
      add_pairwise_term(batch, term, options, truth);
    }
  }
  const bool has_likelihood = contains(options, PreferenceLoss::kOrpo) || contains(options, PreferenceLoss::kCpo);
  add_likelihood(batch, options.loss_scale * options.nll_weight.value_or(has_likelihood ? 1.0 : 0.0), truth);
  truth.sequence_logps.assign(batch.sequences(), 0.0);
  for (const Pair& pair : pairs_of(batch, metrics_average(options))) {
    truth.sequence_logps[pair.chosen] = pair.c;
    truth.sequence_logps[pair.rejected] = pair.r;
  }
  truth.metrics = metrics_of(batch, options);
  return truth;
}

double distance_from_kinks(const SequenceBatch& batch, const PreferenceOptions& options) {
  double distance = std::numeric_limits<double>::infinity();
  const bool relative = any_needs_reference(options);
  for (const Pair& pair : pairs_of(batch, metrics_average(options))) {
    distance = std::min(distance, std::abs(relative ? pair.a() - pair.b() : pair.c - pair.r));
  }
  for (const PreferenceTerm& term : options.terms) {
    const std::vector<Pair> pairs = pairs_of(batch, averages(term.loss, options));
    for (const Pair& pair : pairs) {
      if (term.loss == PreferenceLoss::kHinge) {
        distance = std::min(distance, std::abs(1 / options.beta - (pair.a() - pair.b())));
      }
      if (term.loss == PreferenceLoss::kOrpo)
        distance = std::min({distance, kOrpoCeiling - pair.c, kOrpoCeiling - pair.r});
    }
    if (term.loss == PreferenceLoss::kAot || term.loss == PreferenceLoss::kAotUnpaired) {
      std::vector<double> first, second;
      sorted_lists(term.loss, pairs, first, second);
      distance = std::min(distance, smallest_gap(first));
      // The order of the reference's values decides about no gradient.
      if (term.loss == PreferenceLoss::kAotUnpaired) distance = std::min(distance, smallest_gap(second));
    }
  }
  return distance;
}

}  // namespace logitless::oracle

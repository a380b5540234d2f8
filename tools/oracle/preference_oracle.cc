// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "oracle/preference_oracle.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "oracle/number.h"

namespace logitless::oracle {
namespace {

constexpr double kOrpoCeiling = -0x1p-24;  // 1 - e^x is computed at min(x, this)

Number square(const Number& x) { return x * x; }

Number log_sigmoid(const Number& x) {
  const double z = x.value, log = z < 0 ? z - std::log1p(std::exp(z)) : -std::log1p(std::exp(-z));
  return detail::function(log, log, sigmoid(-z).value, x);
}

// log(1 − e^x) as log(−expm1(x)), its derivative −e^x / (1 − e^x) = e^x / expm1(x).
Number log_of_rest(const Number& x) {
  const double near_x = std::min(x.value, kOrpoCeiling), log = std::log(-std::expm1(near_x));
  return detail::function(log, log, std::exp(near_x) / std::expm1(near_x), x);
}

// −(1−ε) log σ(z) − ε log σ(−z)
Number smoothed(const Number& z, double epsilon) { return -(1 - epsilon) * log_sigmoid(z) - epsilon * log_sigmoid(-z); }

bool contains(const PreferenceLoss& options, PreferenceLossType loss) {
  return std::ranges::find(options.loss_type, loss) != options.loss_type.end();
}

bool any_needs_reference(const PreferenceLoss& options) {
  return std::ranges::any_of(options.loss_type, compares_with_reference);
}

bool averages(PreferenceLossType loss, const PreferenceLoss& options) {
  return options.average_log_prob || loss == PreferenceLossType::kIpo || loss == PreferenceLossType::kOrpo ||
         loss == PreferenceLossType::kSimpo || loss == PreferenceLossType::kSigmoidNorm;
}

bool metrics_average(const PreferenceLoss& options) {
  return options.average_log_prob || contains(options, PreferenceLossType::kOrpo) ||
         contains(options, PreferenceLossType::kSimpo);
}

// Variants: replacements of a log ratio.
Number score(const Number& a, const PreferenceLoss& options) {
  switch (options.f_divergence) {
    case FDivergence::kReverseKl:
      return a;
    case FDivergence::kForwardKl:
      return -expm1(Kinks().clamp(-a, -1e300, 300));
    case FDivergence::kJs:
      return std::log(2.0) + log_sigmoid(a);
    case FDivergence::kAlpha:
      break;
  }
  const double k = options.f_alpha - 1;
  return std::abs(k) < 1e-6 ? a : expm1(Kinks().clamp(k * a, -1e300, 300)) / k;
}
Number reward(const Number& logp, const PreferenceLoss& options) {
  const double alpha = options.reward_alpha;
  return alpha == 0 ? logp : -expm1(Kinks().clamp(-alpha * logp, -1e300, 300)) / alpha;
}

// A pair with two non-empty sides: sums, or averages.
struct Pair {
  int64_t chosen = 0, rejected = 0;             // sequences
  double chosen_count = 0, rejected_count = 0;  // n_s
  double chosen_per = 1, rejected_per = 1;      // divisors of the sums
  double weight = 1;                            // from WPO
  const PreferenceLoss* options = nullptr;
  Number c, r;
  double c0 = 0, r0 = 0;
  Number a() const { return score((c - c0) * chosen_per, *options) / chosen_per; }
  Number b() const { return score((r - r0) * rejected_per, *options) / rejected_per; }
};

// Returns the weight of each token in its sequence's sum (LD-DPO).
std::vector<double> token_weights(const SequenceBatch& batch, const PreferenceLoss& options) {
  std::vector<double> weights(batch.logp.size(), 1);
  const int64_t half = batch.sequences() / 2;
  for (int64_t s = 0; options.ld_alpha && s < batch.sequences(); ++s) {
    const int64_t least = std::min(batch.count(s), batch.count((s + half) % (2 * half)));
    int64_t rank = 0;
    for (int64_t i = batch.offsets[s]; i < batch.offsets[s + 1]; ++i) {
      if (batch.is_active[i] && ++rank > least) weights[i] = *options.ld_alpha;
    }
  }
  return weights;
}

// c and r of pair k are the inputs 2k and 2k + 1 of the tape; without a tape they are constants.
std::vector<Pair> pairs_of(const SequenceBatch& batch, bool averaged, const PreferenceLoss& options,
                           Tape* tape = nullptr) {
  std::vector<Pair> pairs;
  const int64_t half = batch.sequences() / 2;
  const std::vector<double> weights = token_weights(batch, options);
  const auto times_weights = [&](std::vector<double> values) {
    for (size_t i = 0; i < values.size(); ++i) values[i] *= weights[i];
    return values;
  };
  const std::vector<double> logps = times_weights(batch.logp), references = times_weights(batch.reference_tokens);
  for (int64_t k = 0; k < half; ++k) {
    Pair pair;
    pair.chosen = k;
    pair.rejected = half + k;
    pair.chosen_count = static_cast<double>(batch.count(pair.chosen));
    pair.rejected_count = static_cast<double>(batch.count(pair.rejected));
    if (pair.chosen_count == 0 || pair.rejected_count == 0) continue;
    const auto per = [&](double count) { return averaged ? count : 1; };
    const auto sum = [&](int64_t sequence, double count, int64_t side) {
      const double value = batch.sum(logps, sequence) / per(count);
      const auto input = 2 * static_cast<int64_t>(pairs.size()) + side;
      return tape ? Number::input(*tape, value, value, input) : Number(value);
    };
    pair.c = sum(pair.chosen, pair.chosen_count, 0);
    pair.r = sum(pair.rejected, pair.rejected_count, 1);
    pair.options = &options;
    pair.chosen_per = per(pair.chosen_count);
    pair.rejected_per = per(pair.rejected_count);
    if (!batch.reference.empty()) {
      const auto reference_of = [&](int64_t s) {
        return options.ld_alpha ? batch.sum(references, s) : batch.reference[s];
      };
      pair.c0 = reference_of(pair.chosen) / pair.chosen_per;
      pair.r0 = reference_of(pair.rejected) / pair.rejected_per;
    }
    if (options.use_weighting) {
      std::vector<double> certainty(batch.logp.size(), 0);
      for (size_t i = 0; i < certainty.size(); ++i) {
        const double held = batch.held_logp.empty() ? batch.logp[i] : batch.held_logp[i];
        if (batch.is_active[i]) certainty[i] = held - std::log(batch.square_sums[i]);
      }
      pair.weight = std::exp(batch.sum(certainty, pair.chosen) / pair.chosen_count +
                             batch.sum(certainty, pair.rejected) / pair.rejected_count);
    }
    pairs.push_back(pair);
  }
  return pairs;
}

// With m = σ(z / tau): −(1 − m) log σ(z) + m e^−z. Its exponent is clamped, and has no gradient outside.
Number discopop(const Number& z, double tau) {
  const Number exponent = Kinks().clamp(log_sigmoid(z / tau) - z, -700, 700);
  return exp(exponent) - sigmoid(-z / tau) * log_sigmoid(z);
}

// Returns ℓ of a pair.
Number pair_loss(PreferenceLossType loss, const Pair& pair, const PreferenceLoss& options) {
  const double beta = options.beta, epsilon = options.label_smoothing;
  const Number a = pair.a(), b = pair.b(), z = beta * (a - b), c = pair.c, r = pair.r;
  switch (loss) {
    case PreferenceLossType::kSigmoid:
    case PreferenceLossType::kSigmoidNorm:
      return -log_sigmoid(z);
    case PreferenceLossType::kHinge:
      return z.value >= 1 ? Number(0) : 1 - z;
    case PreferenceLossType::kIpo:
      return square((a - b) - 1 / (2 * beta));
    case PreferenceLossType::kExoPair:
      return sigmoid(z) * (log_sigmoid(z) - std::log(1 - epsilon)) +
             sigmoid(-z) * (log_sigmoid(-z) - std::log(epsilon));
    case PreferenceLossType::kNcaPair:
      return -log_sigmoid(beta * a) - 0.5 * log_sigmoid(-beta * a) - 0.5 * log_sigmoid(-beta * b);
    case PreferenceLossType::kRobust:
      return (-(1 - epsilon) * log_sigmoid(z) + epsilon * log_sigmoid(-z)) / (1 - 2 * epsilon);
    case PreferenceLossType::kBcoPair:
      return -log_sigmoid(beta * a) - log_sigmoid(-beta * b);
    case PreferenceLossType::kSppoHard:
      return square(a - 1 / (2 * beta)) + square(b + 1 / (2 * beta));
    case PreferenceLossType::kApoZero:
      return sigmoid(-beta * a) + sigmoid(beta * b);
    case PreferenceLossType::kApoDown:
      return sigmoid(beta * a) + sigmoid(-z);
    case PreferenceLossType::kDiscopop:
      return discopop(z, options.discopop_tau);
    case PreferenceLossType::kOrpo:
      return -beta * log_sigmoid((c - r) - (log_of_rest(c) - log_of_rest(r)));
    case PreferenceLossType::kSimpo:
      return smoothed(beta * (reward(c, options) - reward(r, options)) - options.simpo_gamma, epsilon);
    case PreferenceLossType::kCpo:
      return smoothed(beta * (reward(c, options) - reward(r, options)), epsilon);
    case PreferenceLossType::kAot:
    case PreferenceLossType::kAotUnpaired:
    case PreferenceLossType::kSft:
      break;  // not losses of one pair
  }
  return 0;
}

bool is_aot(PreferenceLossType loss) {
  return loss == PreferenceLossType::kAot || loss == PreferenceLossType::kAotUnpaired;
}

using Numbers = std::vector<Number>;

// Returns the two lists that aot and aot_unpaired compare, sorted; ties keep their order.
std::pair<Numbers, Numbers> sorted_lists(PreferenceLossType loss, const std::vector<Pair>& pairs) {
  std::pair<Numbers, Numbers> lists;
  for (const Pair& pair : pairs) {
    lists.first.push_back(loss == PreferenceLossType::kAot ? pair.c - pair.r : pair.a());
    lists.second.push_back(loss == PreferenceLossType::kAot ? Number(pair.c0 - pair.r0) : pair.b());
  }
  for (Numbers* list : {&lists.first, &lists.second}) {
    std::stable_sort(list->begin(), list->end(), [](const auto& x, const auto& y) { return x.value < y.value; });
  }
  return lists;
}

void add_to_tokens(const SequenceBatch& batch, int64_t sequence, double value, std::vector<double>& tokens,
                   const std::vector<double>& weights = {}) {
  for (int64_t i = batch.offsets[sequence]; i < batch.offsets[sequence + 1]; ++i) {
    if (batch.is_active[i]) tokens[i] += value * (weights.empty() ? 1 : weights[i]);
  }
}

void add_pairwise_loss(const SequenceBatch& batch, PreferenceLossType loss, double weight,
                       const PreferenceLoss& options, PreferenceTruth& truth) {
  const bool averaged = averages(loss, options);
  Tape tape;
  const std::vector<Pair> pairs = pairs_of(batch, averaged, options, &tape);
  const std::vector<double> weights = token_weights(batch, options);
  Number sum;
  if (is_aot(loss)) {
    const auto& [first, second] = sorted_lists(loss, pairs);
    for (size_t k = 0; k < pairs.size(); ++k) {
      sum = sum + smoothed(options.beta * (first[k] - second[k]), options.label_smoothing);
    }
  } else {
    for (const Pair& pair : pairs) sum = sum + pair.weight * pair_loss(loss, pair, options);
  }
  const double share = options.loss_scale * weight / std::max<double>(1, static_cast<double>(pairs.size()));
  truth.loss += share * sum.value;
  for (const auto& [input, slope] : sum.slopes()) {
    const Pair& pair = pairs[input / 2];
    const bool chosen = input % 2 == 0;
    const double count = averaged ? (chosen ? pair.chosen_count : pair.rejected_count) : 1;
    add_to_tokens(batch, chosen ? pair.chosen : pair.rejected, share * slope / count, truth.d_logp, weights);
  }
}

// Σ (−logp) over the chosen tokens of the pairs that count, and the number of these tokens.
struct ChosenTokens {
  double nll_sum = 0;
  double count = 0;
};

const PreferenceLoss kPlain;

ChosenTokens chosen_tokens(const SequenceBatch& batch) {
  ChosenTokens chosen;
  for (const Pair& pair : pairs_of(batch, false, kPlain)) {
    chosen.nll_sum -= pair.c.value;
    chosen.count += pair.chosen_count;
  }
  return chosen;
}

void add_likelihood(const SequenceBatch& batch, double weight, PreferenceTruth& truth) {
  const ChosenTokens chosen = chosen_tokens(batch);
  if (weight == 0 || chosen.count == 0) return;
  truth.loss += weight * chosen.nll_sum / chosen.count;
  for (const Pair& pair : pairs_of(batch, false, kPlain)) {
    add_to_tokens(batch, pair.chosen, -weight / chosen.count, truth.d_logp);
  }
}

PreferenceMetrics metrics_of(const SequenceBatch& batch, const PreferenceLoss& options) {
  const std::vector<Pair> pairs = pairs_of(batch, metrics_average(options), options);
  const bool relative = any_needs_reference(options);
  PreferenceMetrics metrics;
  metrics.pairs = static_cast<int64_t>(pairs.size());
  if (pairs.empty()) return metrics;
  metrics.chosen_reward = metrics.rejected_reward = metrics.margin = metrics.accuracy = 0;
  metrics.chosen_logp = metrics.rejected_logp = 0;
  double entropy = 0;
  const auto count = static_cast<double>(pairs.size());
  for (const Pair& pair : pairs) {
    const double chosen = options.beta * (relative ? pair.c - pair.c0 : reward(pair.c, options)).value;
    const double rejected = options.beta * (relative ? pair.r - pair.r0 : reward(pair.r, options)).value;
    metrics.chosen_reward += chosen / count;
    metrics.rejected_reward += rejected / count;
    metrics.margin += (chosen - rejected) / count;
    metrics.accuracy += (chosen > rejected ? 1.0 : 0.0) / count;
    metrics.chosen_logp += pair.c.value / count;
    metrics.rejected_logp += pair.r.value / count;
    metrics.tokens += static_cast<int64_t>(pair.chosen_count + pair.rejected_count);
    if (options.want_entropy)
      entropy += batch.sum(batch.entropy, pair.chosen) + batch.sum(batch.entropy, pair.rejected);
  }
  metrics.nll = chosen_tokens(batch).nll_sum / chosen_tokens(batch).count;
  if (options.want_entropy) metrics.mean_entropy = entropy / static_cast<double>(metrics.tokens);
  return metrics;
}

double smallest_gap(const Numbers& sorted) {
  double gap = std::numeric_limits<double>::infinity();
  for (size_t k = 0; k + 1 < sorted.size(); ++k) gap = std::min(gap, sorted[k + 1].value - sorted[k].value);
  return gap;
}

}  // namespace

bool compares_with_reference(PreferenceLossType loss) {
  return loss != PreferenceLossType::kSft && loss != PreferenceLossType::kOrpo && loss != PreferenceLossType::kSimpo &&
         loss != PreferenceLossType::kCpo;
}

int64_t SequenceBatch::count(int64_t sequence) const {
  return std::count(is_active.begin() + offsets[sequence], is_active.begin() + offsets[sequence + 1], true);
}

double SequenceBatch::sum(const std::vector<double>& values, int64_t sequence) const {
  double total = 0;
  for (int64_t i = offsets[sequence]; i < offsets[sequence + 1]; ++i) {
    if (is_active[i]) total += values[i];
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
    batch.is_active.push_back(tokens.is_active(i));
    batch.square_sums.push_back(stats.square_sum[i]);
  }
  return batch;
}

void add_reference(const ConstTensor& logps, EntriesPer per, SequenceLogps meaning, SequenceBatch& batch) {
  const std::vector<double> values = read_vector(logps);
  if (values.empty()) return;
  std::vector<double>& sums = batch.reference;
  if (per == EntriesPer::kSequence || (per == EntriesPer::kBySize && logps.count() == batch.sequences())) {
    for (int64_t s = 0; s < batch.sequences(); ++s) {
      sums.push_back(meaning == SequenceLogps::kAverages ? static_cast<double>(batch.count(s)) * values[s] : values[s]);
    }
    // If every sequence is a single token, sums are log-probabilities of tokens.
    if (batch.tokens() == batch.sequences()) batch.reference_tokens = values;
    return;
  }
  for (int64_t s = 0; s < batch.sequences(); ++s) sums.push_back(batch.sum(values, s));
  batch.reference_tokens = values;
}

PreferenceTruth compute_preference(const SequenceBatch& batch, const PreferenceLoss& options) {
  PreferenceTruth truth;
  truth.d_logp.assign(batch.logp.size(), 0.0);
  for (size_t k = 0; k < options.loss_type.size(); ++k) {
    const double weight = options.loss_weights.empty() ? 1 : options.loss_weights[k];
    if (options.loss_type[k] == PreferenceLossType::kSft) {
      add_likelihood(batch, options.loss_scale * weight, truth);
    } else {
      add_pairwise_loss(batch, options.loss_type[k], weight, options, truth);
    }
  }
  const bool has_likelihood =
      contains(options, PreferenceLossType::kOrpo) || contains(options, PreferenceLossType::kCpo);
  add_likelihood(batch, options.loss_scale * options.nll_weight.value_or(has_likelihood ? 1.0 : 0.0), truth);
  truth.sequence_logps.assign(batch.sequences(), 0.0);
  for (const Pair& pair : pairs_of(batch, metrics_average(options), options)) {
    truth.sequence_logps[pair.chosen] = pair.c.value;
    truth.sequence_logps[pair.rejected] = pair.r.value;
  }
  truth.metrics = metrics_of(batch, options);
  return truth;
}

double distance_from_kinks(const SequenceBatch& batch, const PreferenceLoss& options) {
  double distance = std::numeric_limits<double>::infinity();
  const bool relative = any_needs_reference(options);
  for (const Pair& pair : pairs_of(batch, metrics_average(options), options)) {
    distance = std::min(distance, std::abs((relative ? pair.c - pair.c0 - (pair.r - pair.r0) : pair.c - pair.r).value));
  }
  for (const PreferenceLossType loss : options.loss_type) {
    const std::vector<Pair> pairs = pairs_of(batch, averages(loss, options), options);
    for (const Pair& pair : pairs) {
      if (loss == PreferenceLossType::kHinge) {
        distance = std::min(distance, std::abs(1 / options.beta - (pair.a() - pair.b()).value));
      }
      if (loss == PreferenceLossType::kOrpo)
        distance = std::min({distance, kOrpoCeiling - pair.c.value, kOrpoCeiling - pair.r.value});
    }
    if (is_aot(loss)) {
      const auto& [first, second] = sorted_lists(loss, pairs);
      distance = std::min(distance, smallest_gap(first));
      // For aot, the order of the reference's values has no effect on a gradient.
      if (loss == PreferenceLossType::kAotUnpaired) distance = std::min(distance, smallest_gap(second));
    }
  }
  return distance;
}

PreferenceTruth preference_result(std::span<const int64_t> offsets, const Tokens& tokens, const TokenStatistics& stats,
                                  const PreferenceLoss& task) {
  SequenceBatch batch = read_batch(tokens, stats, {offsets.begin(), offsets.end()});
  add_reference(task.ref_logps, task.ref_logps_per, task.ref_logps_are, batch);
  return compute_preference(batch, task);
}

LossTruth preference_truth(std::span<const int64_t> offsets, const Tokens& tokens, const TokenStatistics& stats,
                           const PreferenceLoss& task) {
  const PreferenceTruth loss = preference_result(offsets, tokens, stats, task);
  LossTruth truth{loss.loss, {}, TokenGradients(tokens.tokens())};
  truth.grads.logp = to_eigen(loss.d_logp);
  return truth;
}

}  // namespace logitless::oracle

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "oracle/policy_oracle.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "oracle/policy_choices.h"

namespace logitless::oracle {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

std::optional<std::vector<double>> read_optional(const ConstTensor& vector) {
  if (!vector.given()) return std::nullopt;
  return read_vector(vector);
}

/// One evaluation. Functions of a token i or a sequence s are named as in docs/losses-policy.md.
class Evaluation {
 public:
  Evaluation(const PolicyTokens& tokens, const PolicyLoss& options, const PolicyPoint& at, const PolicyPoint& held)
      : tokens_(tokens), options_(options), at_(at), held_(held) {
    for (int64_t s = 0; s < tokens.sequences(); ++s) {
      members_.emplace_back();
      for (int64_t i = tokens.offsets[s]; i < tokens.offsets[s + 1]; ++i) {
        sequence_of_.push_back(s);
        if (!tokens.is_active[i]) continue;
        members_[s].push_back(i);
        active_.push_back(i);
      }
    }
    vespo_exponent_.resize(members_.size());
    drift_.resize(members_.size());
    sampler_exponent_.resize(members_.size());
  }

  PolicyValue run() {
    PolicyValue result;
    tape_ = result.tape.get();
    find_ratios();
    find_quantile();
    drop_moments();
    choose_tokens();
    result.per_token_loss.assign(tokens_.tokens(), Number());
    result.tokens = static_cast<int64_t>(active_.size());
    Number sum;
    for (const int64_t i : active_) {
      result.per_token_loss[i] = token_loss(i);
      sum = sum + result.per_token_loss[i] / normaliser(i);
    }
    if (options_.positive_nll_weight != 0) sum = sum + options_.positive_nll_weight * positive_nll();
    result.loss = options_.loss_scale * (sum - options_.entropy_bonus * mean_of_top_entropies());
    add_metrics(result);
    result.kinks = kinks_.all();
    result.slopes = Eigen::VectorXd::Zero(2 * tokens_.tokens());
    for (const auto& [input, slope] : result.loss.slopes()) result.slopes[input] = slope;
    return result;
  }

 private:
  bool is(PolicyLossType variant) const { return options_.loss_type == variant; }
  double advantage(int64_t i) const { return tokens_.advantages[i] + options_.teacher_weight * teacher_return(i); }
  // A teacher in the advantage: log ratios of the teacher to the policy, all without gradient.
  double teacher_ratio(int64_t t) const {
    double against = held_.logp[t];
    if (options_.teacher_against == TeacherAgainst::kOld && tokens_.old_logps) against = (*tokens_.old_logps)[t];
    if (options_.teacher_against == TeacherAgainst::kSampling) {
      against = (*tokens_.sampling_logps)[t];
      if (std::isnan(against)) return 0;
    }
    return (*tokens_.teacher_logps)[t] - against;
  }
  double teacher_return(int64_t i) const {
    if (!tokens_.teacher_logps) return 0;
    double sum = 0;
    for (const int64_t t : members_[sequence_of_[i]]) {
      if (t >= i) sum += std::pow(options_.teacher_discount, static_cast<double>(t - i)) * teacher_ratio(t);
    }
    return sum;
  }
  double count(int64_t s) const { return std::max<double>(1, static_cast<double>(members_[s].size())); }
  double count() const { return std::max<double>(1, static_cast<double>(active_.size())); }
  double most_exponent() const { return options_.log_ratio_clamp.value_or(300); }
  double epsilon_low() const { return options_.epsilon_low.value_or(is(PolicyLossType::kGmpo) ? 0.4 : 0.2); }
  double epsilon_high() const {
    if (options_.epsilon_high) return *options_.epsilon_high;
    if (is(PolicyLossType::kCispo)) return 5.0;
    if (is(PolicyLossType::kDppo)) return 3.0;
    return is(PolicyLossType::kGmpo) ? 0.4 : 0.3;
  }
  bool ratio_is_of_sequence() const {
    return is(PolicyLossType::kRloo) || is(PolicyLossType::kGmpo) ||
           options_.importance_sampling_level == ImportanceLevel::kSequence;
  }
  bool truncates() const { return is(PolicyLossType::kCispo) || is(PolicyLossType::kDppo); }
  bool is_good(int64_t i) const { return tokens_.scores && (*tokens_.scores)[sequence_of_[i]] > 0; }
  bool uses_entropy() const {
    return options_.want_entropy || options_.entropy_bonus != 0 || options_.top_entropy_quantile < 1;
  }

  Number logp(int64_t i) const { return Number::input(*tape_, at_.logp[i], held_.logp[i], i); }
  Number entropy(int64_t i) const {
    return Number::input(*tape_, at_.entropy[i], held_.entropy[i], tokens_.tokens() + i);
  }
  Number old(int64_t i) const { return tokens_.old_logps ? Number((*tokens_.old_logps)[i]) : sg(logp(i)); }

  template <class Function>
  Number sum_over(int64_t s, const Function& function) {
    Number sum;
    for (const int64_t t : members_[s]) sum = sum + function(t);
    return sum;
  }
  // The same, computed once per sequence.
  template <class Function>
  const Number& sum_once(std::vector<std::optional<Number>>& sums, int64_t s, const Function& function) {
    if (!sums[s]) sums[s] = sum_over(s, function);
    return *sums[s];
  }

  // Importance ratio
  void find_ratios() {
    const auto delta = [this](int64_t t) { return logp(t) - old(t); };
    const auto to_ratio = [this](const Number& w) { return exp(kinks_.clamp(w, -most_exponent(), most_exponent())); };
    ratio_.resize(tokens_.tokens());
    for (int64_t s = 0; s < tokens_.sequences(); ++s) {
      for (const int64_t i : members_[s]) {
        const bool first = i == members_[s].front();
        if (is(PolicyLossType::kGmpo)) {
          const auto term = [&](int64_t t) { return clipped_term(t, delta(t)); };
          ratio_[i] = first ? to_ratio(sum_over(s, term) / count(s)) : ratio_[members_[s].front()];
        } else if (is(PolicyLossType::kRloo)) {
          ratio_[i] = first ? to_ratio(sum_over(s, delta)) : ratio_[members_[s].front()];
        } else if (options_.importance_sampling_level == ImportanceLevel::kSequence) {
          ratio_[i] = first ? to_ratio(sum_over(s, delta) / count(s)) : ratio_[members_[s].front()];
        } else {
          ratio_[i] = to_ratio(delta(i));
        }
      }
    }
  }
  Number clipped_term(int64_t t, const Number& delta) {
    if (advantage(t) > 0) return kinks_.min(delta, epsilon_high());
    if (advantage(t) < 0) return -kinks_.min(-delta, epsilon_low());
    return 0;
  }
  const Number& ratio(int64_t i) const { return ratio_[i]; }
  Number capped_ratio(int64_t i) { return options_.delta ? kinks_.min(ratio(i), *options_.delta) : ratio(i); }

  // Loss per token
  Number variant_loss(int64_t i) {
    const double a = advantage(i);
    if (is(PolicyLossType::kReinforce)) return -a * logp(i);
    if (truncates()) return -a * sg(truncated(ratio(i))) * logp(i);
    if (is(PolicyLossType::kImportanceSampling) || is(PolicyLossType::kGmpo)) return -a * ratio(i);
    if (is(PolicyLossType::kDro)) {
      const Number delta = logp(i) - old(i);
      return -a * logp(i) + options_.dro_tau / 2 * delta * delta;
    }
    if (is(PolicyLossType::kTopr)) {
      if (is_good(i)) return -a * options_.topr_weight_pos * logp(i);
      return -a * options_.topr_weight_neg * sg(kinks_.min(ratio(i), 1)) * logp(i);
    }
    if (is(PolicyLossType::kClipCov) && chosen_[i]) return 0;
    if (is(PolicyLossType::kKlCov)) {
      return chosen_[i] ? -a * ratio(i) + options_.cov_kl_weight * kinks_.absolute(logp(i) - old(i)) : -a * ratio(i);
    }
    if (is(PolicyLossType::kVespo)) return -a * sg(vespo_factor(i)) * logp(i);
    if (is(PolicyLossType::kSapo)) {
      const double tau = a > 0 ? options_.sapo_temperature_pos : options_.sapo_temperature_neg;
      return -a * (4 / tau) * sigmoid(tau * (ratio(i) - 1.0));
    }
    // min(x A, y A) is A min(x, y) for A > 0 and A max(x, y) for A < 0. The comparison is made without A,
    // because rounding the products may hide a difference.
    const Number capped = capped_ratio(i);
    const Number clipped = kinks_.clamp(ratio(i), 1 - epsilon_low(), 1 + epsilon_high());
    const bool first = a > 0 ? capped.value <= clipped.value : capped.value >= clipped.value;
    return -a * (first ? capped : clipped);
  }

  Number truncated(const Number& ratio) {
    if (!options_.epsilon_low) return kinks_.min(ratio, epsilon_high());
    return kinks_.clamp(ratio, 1 - epsilon_low(), epsilon_high());
  }

  Number vespo_factor(int64_t i) {
    const double lowest = std::log(1e-8), highest = 20;
    const Number& total = sum_once(vespo_exponent_, sequence_of_[i], [&](int64_t t) {
      Number term = kinks_.clamp(logp(t) - old(t), -most_exponent(), most_exponent());
      if (options_.sampler_correction == SamplerCorrection::kNone) return term;
      // r is exp(x) clamped, or 0: its logarithm is x clamped, or -∞.
      const Number r = sampler_factor(t);
      const double log_r = std::log(r.value);
      const Number kappa = r.value > 0 ? detail::function(log_r, std::log(r.held), 1 / r.value, r) : Number(-kInfinity);
      return term + kinks_.clamp(kappa, lowest, highest);
    });
    const Number w = kinks_.clamp(total, lowest, highest);
    const bool positive = advantage(i) >= 0;
    const double k = positive ? options_.vespo_k_pos : options_.vespo_k_neg;
    const double lambda = std::max(1e-4, positive ? options_.vespo_lambda_pos : options_.vespo_lambda_neg);
    return exp(kinks_.min(lambda + k * w - lambda * exp(w), 300));
  }

  // Factors
  Number off_policy_keep(int64_t i) {
    if (!options_.off_policy_mask_threshold || advantage(i) >= 0) return 1;
    const int64_t s = sequence_of_[i];
    const Number& drift = sum_once(drift_, s, [this](int64_t t) -> Number {
      const Number q = tokens_.sampling_logps ? Number((*tokens_.sampling_logps)[t]) : old(t);
      return std::isnan(q.value) ? Number(0) : sg(q - logp(t));
    });
    return kinks_.at_most(drift / count(s), *options_.off_policy_mask_threshold) ? 1 : 0;
  }
  bool is_trusted(int64_t i) {
    TrustRegion region = options_.trust_region;
    if (region == TrustRegion::kDefault) region = is(PolicyLossType::kDppo) ? TrustRegion::kTv : TrustRegion::kNone;
    if (region == TrustRegion::kNone) return true;
    const double by_default = region == TrustRegion::kTvBoth ? 0.1 : 0.2;
    const double low = options_.trust_region_low.value_or(by_default);
    const double high = options_.trust_region_high.value_or(by_default);
    const Number x = sg(logp(i)), p = exp(x), q = exp(old(i)), moved = p - q;
    if (!tokens_.old_logps || std::isnan(moved.value)) return true;
    const bool up = advantage(i) > 0;
    if (region == TrustRegion::kTvBoth) return !kinks_.above(moved, high) && !kinks_.below(moved, -low);
    if (region == TrustRegion::kTv) return up ? !kinks_.above(moved, high) : !kinks_.below(moved, -low);
    if (up ? !kinks_.above(moved, 0) : !kinks_.below(moved, 0)) return true;
    // q (log q − log p) + (1 − q) log((1 − q) / (1 − p)), with 1e-8 added to 1 − q and to 1 − p in the
    // logarithm. Both are at least 0.
    const auto left = [](double log_p) { return std::exp(log_p) > 1 ? 0 : 1 - std::exp(log_p); };
    const auto of = [&](double log_p) {
      const double log_q = (*tokens_.old_logps)[i];
      return std::exp(log_q) * (log_q - log_p) +
             left(log_q) * (std::log(left(log_q) + 1e-8) - std::log(left(log_p) + 1e-8));
    };
    if (std::isnan(of(x.value))) return true;
    const double slope = -q.value + (p.value > 1 ? 0 : left((*tokens_.old_logps)[i]) * p.value / (1 - p.value + 1e-8));
    return !kinks_.above(detail::function(of(x.value), of(x.held), slope, x), up ? high : low);
  }

  // Choices over the batch
  void drop_moments() {
    dropped_.assign(tokens_.tokens(), false);
    if (!options_.m2_threshold) return;
    Numbers moments;
    for (const int64_t i : active_) {
      const double sampling = (*tokens_.sampling_logps)[i];
      const Number drift = std::isnan(sampling) ? Number(0) : sg(old(i)) - sampling;
      moments.push_back(drift * drift);
    }
    for (const size_t k : large_moments(moments, *options_.m2_threshold, kinks_)) dropped_[active_[k]] = true;
  }
  void choose_tokens() {
    chosen_.assign(tokens_.tokens(), false);
    const bool clips = is(PolicyLossType::kClipCov);
    if ((!clips && !is(PolicyLossType::kKlCov)) || active_.empty()) return;
    const Number mean_logp = sg(mean_over(active_, [this](int64_t i) { return logp(i); }));
    const Number mean_advantage = mean_over(active_, [this](int64_t i) { return Number(advantage(i)); });
    if (!std::isfinite(mean_logp.value) || !std::isfinite(mean_advantage.value)) return;
    Numbers covariances;
    std::vector<bool> is_clipped;
    for (const int64_t i : active_) {
      covariances.push_back((advantage(i) - mean_advantage) * (sg(logp(i)) - mean_logp));
      is_clipped.push_back(clips && (advantage(i) > 0   ? kinks_.above(ratio(i), 1 + epsilon_high())
                                     : advantage(i) < 0 ? kinks_.below(ratio(i), 1 - epsilon_low())
                                                        : false));
    }
    const auto chosen = clips ? tokens_to_drop(covariances, is_clipped, options_, kinks_)
                              : tokens_to_penalise(covariances, options_, kinks_);
    for (const size_t k : chosen) chosen_[active_[k]] = true;
  }
  Number positive_nll() {
    Number sum;
    double tokens = 0;
    for (const int64_t i : active_) {
      if (!is_good(i)) continue;
      sum = sum - logp(i);
      ++tokens;
    }
    return sum / std::max(1.0, tokens);
  }

  void find_quantile() {
    if (!(options_.top_entropy_quantile < 1) || active_.empty()) return;
    std::vector<Number> sorted;
    for (const int64_t t : active_) sorted.push_back(sg(entropy(t)));
    std::stable_sort(sorted.begin(), sorted.end(), [](const auto& x, const auto& y) { return x.value < y.value; });
    const auto last = static_cast<double>(sorted.size() - 1);
    const double position = last - options_.top_entropy_quantile * last;
    const auto below = static_cast<size_t>(position);
    quantile_ = sorted[below];
    if (below + 1 < sorted.size()) {
      quantile_ = quantile_ + (position - std::floor(position)) * (sorted[below + 1] - sorted[below]);
    }
  }
  Number top(int64_t i) {
    if (!(options_.top_entropy_quantile < 1)) return 1;
    return kinks_.at_most(quantile_, sg(entropy(i))) ? 1 : 0;
  }

  // Sampler correction
  Number sampler_factor(int64_t i) {
    const SamplerCorrection mode = options_.sampler_correction;
    if (mode == SamplerCorrection::kNone) return 1;
    const auto difference = [this](int64_t t) -> Number {
      const double sampling = (*tokens_.sampling_logps)[t];
      return std::isnan(sampling) ? Number(0) : sg(old(t)) - sampling;
    };
    const bool of_token = mode == SamplerCorrection::kTokenTruncate || mode == SamplerCorrection::kTokenMask;
    const Number exponent = of_token ? difference(i) : sum_once(sampler_exponent_, sequence_of_[i], difference);
    const bool geometric = mode == SamplerCorrection::kGeometricMask;
    const Number r = exp(kinks_.clamp(geometric ? exponent / count(sequence_of_[i]) : exponent, -300, 300));
    const double low = options_.sampler_clip_min.value_or(0), high = options_.sampler_clip_max.value_or(kInfinity);
    if (mode == SamplerCorrection::kTokenTruncate || mode == SamplerCorrection::kSequenceTruncate) {
      return kinks_.clamp(r, low, high);
    }
    if (kinks_.below(r, low) || kinks_.above(r, high)) return 0;
    return geometric ? exp(kinks_.clamp(difference(i), -300, 300)) : r;
  }

  // Penalties
  Number kl(int64_t i) {
    const Number d = (*tokens_.ref_logps)[i] - logp(i);
    Number k = -d;
    if (options_.kl_estimator == KlEstimator::kK2) k = d * d / 2;
    if (options_.kl_estimator == KlEstimator::kK3) {
      const Number held_within = kinks_.clamp(d, -most_exponent(), most_exponent());
      k = expm1(held_within) - held_within;
    }
    if (options_.kl_estimator == KlEstimator::kAbs) k = kinks_.absolute(d);
    // The value of one estimator, with the gradient of k2.
    const Number k2 = d * d / 2;
    if (options_.kl_estimator == KlEstimator::kK1Plus) k = k2 - sg(k2) + sg(-d);
    if (options_.kl_estimator == KlEstimator::kK3Plus) {
      const Number held_within = kinks_.clamp(d, -most_exponent(), most_exponent());
      k = k2 - sg(k2) + sg(expm1(held_within) - held_within);
    }
    return options_.use_bias_correction_kl ? k * ratio(i) : k;
  }

  Number token_loss(int64_t i) {
    Number loss = variant_loss(i) * off_policy_keep(i) * top(i);
    if (dropped_[i] || !is_trusted(i)) loss = 0;
    if (!is(PolicyLossType::kVespo)) loss = loss * sampler_factor(i);
    if (options_.beta != 0) loss = loss + options_.beta * kl(i);
    if (options_.sampler_penalty != 0 && !std::isnan((*tokens_.sampling_logps)[i])) {
      const Number drift = logp(i) - (*tokens_.sampling_logps)[i];
      loss = loss + options_.sampler_penalty * drift * drift;
    }
    return loss;
  }

  // Aggregation
  PolicyAggregation aggregation() const {
    using enum PolicyAggregation;
    if (options_.aggregation != kDefault) return options_.aggregation;
    switch (options_.loss_type) {
      case PolicyLossType::kGrpo:
      case PolicyLossType::kSapo:
      case PolicyLossType::kRloo:
      case PolicyLossType::kGmpo:
      case PolicyLossType::kTopr:
        return kSeqMeanTokenMean;
      case PolicyLossType::kLuspo:
      case PolicyLossType::kReinforce:
        return kSeqMeanTokenSum;
      case PolicyLossType::kDrGrpo:
        return kSeqMeanTokenSumNorm;
      case PolicyLossType::kImportanceSampling:
        return kTokenSum;
      default:
        return kTokenMean;
    }
  }
  // Returns the divisor of a token's loss.
  double normaliser(int64_t i) const {
    double sequences = 0;
    for (int64_t s = 0; s < tokens_.sequences(); ++s) {
      sequences += options_.count_empty_sequences || !members_[s].empty();
    }
    sequences = options_.num_sequences.value_or(std::max(1.0, sequences));
    switch (aggregation()) {
      case PolicyAggregation::kTokenMean:
        return std::max(1.0, options_.num_items_in_batch.value_or(count()));
      case PolicyAggregation::kTokenSum:
        return 1;
      case PolicyAggregation::kSeqMeanTokenSum:
        return sequences;
      case PolicyAggregation::kSeqMeanTokenMean:
        return sequences * count(sequence_of_[i]);
      case PolicyAggregation::kSeqMeanTokenSumNorm:
        return sequences * static_cast<double>(*options_.max_completion_length);
      default:
        return kNaN;
    }
  }
  Number mean_of_top_entropies() {
    if (options_.entropy_bonus == 0) return 0;
    Number sum;
    double kept = 0;
    for (const int64_t i : active_) {
      sum = sum + top(i) * entropy(i);
      kept += top(i).value;
    }
    return sum / std::max(1.0, kept);
  }

  // Metrics
  void add_metrics(PolicyValue& result) {
    result.mean_teacher_kl = kNaN;
    result.mean_ratio = result.mean_kl = result.mean_logp = result.mean_entropy = kNaN;
    result.clip_fraction_low = result.clip_fraction_high = result.clip_fraction = kNaN;
    if (active_.empty()) return;
    result.mean_logp = mean_over(active_, [this](int64_t i) { return logp(i); });
    if (options_.beta != 0) result.mean_kl = mean_over(active_, [this](int64_t i) { return kl(i); });
    if (tokens_.teacher_logps) {
      result.mean_teacher_kl = mean_over(active_, [this](int64_t i) { return Number(-teacher_ratio(i)); });
    }
    if (uses_entropy()) result.mean_entropy = mean_over(active_, [this](int64_t i) { return entropy(i); });
    // The ratio of a sequence counts once, shared by its tokens.
    const bool once = ratio_is_of_sequence() && tokens_.one_advantage_per_sequence && !tokens_.teacher_logps;
    const auto mean = [&](auto of) {
      Number sum;
      double weights = 0;
      for (const int64_t i : active_) {
        const double weight = once ? 1 / count(sequence_of_[i]) : 1;
        sum = sum + weight * of(i);
        weights += weight;
      }
      return sum / weights;
    };
    result.mean_ratio = mean([this](int64_t i) { return ratio(i); });
    const auto fraction = [&](auto is_clipped) {
      return mean([&](int64_t i) { return Number(is_clipped(i) ? 1 : 0); }).value;
    };
    const auto low = [this](int64_t i) { return advantage(i) < 0 && clips_low(i); };
    const auto high = [this](int64_t i) { return advantage(i) > 0 && clips_high(i); };
    result.clip_fraction_low = fraction(low);
    result.clip_fraction_high = fraction(high);
    result.clip_fraction = fraction([&](int64_t i) { return low(i) || high(i); });
  }
  template <class Function>
  Number mean_over(const std::vector<int64_t>& tokens, const Function& function) {
    Number sum;
    for (const int64_t i : tokens) sum = sum + function(i);
    return sum / static_cast<double>(tokens.size());
  }
  bool clips_nothing() const {
    return is(PolicyLossType::kSapo) || is(PolicyLossType::kVespo) || is(PolicyLossType::kReinforce) ||
           is(PolicyLossType::kImportanceSampling) || is(PolicyLossType::kDro) || is(PolicyLossType::kTopr) ||
           is(PolicyLossType::kKlCov);
  }
  bool clips_low(int64_t i) {
    if (clips_nothing() || (truncates() && !options_.epsilon_low)) return false;
    if (is(PolicyLossType::kGmpo)) return kinks_.below(logp(i) - old(i), -epsilon_low());
    return kinks_.below(truncates() ? ratio(i) : capped_ratio(i), 1 - epsilon_low());
  }
  bool clips_high(int64_t i) {
    if (clips_nothing()) return false;
    if (is(PolicyLossType::kGmpo)) return kinks_.above(logp(i) - old(i), epsilon_high());
    if (truncates()) return kinks_.above(ratio(i), epsilon_high());
    return kinks_.above(capped_ratio(i), 1 + epsilon_high());
  }

  const PolicyTokens& tokens_;
  const PolicyLoss& options_;
  const PolicyPoint& at_;
  const PolicyPoint& held_;
  Tape* tape_ = nullptr;
  Kinks kinks_;
  std::vector<Number> ratio_;                                                     // ρ
  Number quantile_;                                                               // of the entropies
  std::vector<int64_t> active_;                                                   // the tokens that count
  std::vector<std::vector<int64_t>> members_;                                     // T_s
  std::vector<int64_t> sequence_of_;                                              // s(i)
  std::vector<bool> dropped_, chosen_;                                            // Choices over the batch
  std::vector<std::optional<Number>> vespo_exponent_, drift_, sampler_exponent_;  // sums over sequences
};

std::vector<double> to_vector(const VectorXd& values) { return {values.begin(), values.end()}; }

}  // namespace

Tokens read_tokens(std::span<const int64_t> offsets, int64_t vocab, const PolicyLoss& task) {
  TokenOptions token_options = task.token;
  token_options.ignore_index = kNoLabel;
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < task.chosen_ids.count(); ++i) ids.push_back(read_id(task.chosen_ids, i));
  Tokens tokens = read_tokens(offsets, vocab, Targets(std::span<const int64_t>(ids)), token_options);
  for (size_t i = 0; i < task.mask.size(); ++i) {
    if (task.mask[i] == 0) tokens.labels[i] = kNoLabel;
  }
  return tokens;
}

PolicyTokens read_policy_batch(const PolicyLoss& task, std::vector<int64_t> offsets) {
  const int64_t tokens = offsets.back();
  PolicyTokens result;
  result.offsets = std::move(offsets);
  result.is_active.assign(tokens, true);
  for (size_t i = 0; i < task.mask.size(); ++i) result.is_active[i] = task.mask[i] != 0;
  result.old_logps = read_optional(task.old_logps);
  result.ref_logps = read_optional(task.ref_logps);
  result.sampling_logps = read_optional(task.sampling_logps);
  result.teacher_logps = read_optional(task.teacher_logps);
  result.scores = read_optional(task.scores);
  result.one_advantage_per_sequence =
      task.advantages_per == EntriesPer::kSequence ||
      (task.advantages_per == EntriesPer::kBySize && task.advantages.count() == result.sequences());
  const std::vector<double> advantages = read_vector(task.advantages);
  result.advantages.assign(tokens, advantages.empty() ? 0 : kNaN);
  if (advantages.empty()) return result;
  for (int64_t s = 0; s < result.sequences(); ++s) {
    for (int64_t i = result.offsets[s]; i < result.offsets[s + 1]; ++i) {
      result.advantages[i] = advantages[result.one_advantage_per_sequence ? s : i];
    }
  }
  return result;
}

PolicyValue compute_policy_loss(const PolicyTokens& tokens, const PolicyLoss& options, const PolicyPoint& at,
                                const PolicyPoint& held) {
  return Evaluation(tokens, options, at, held).run();
}

LossTruth policy_truth(std::span<const int64_t> offsets, const TokenStatistics& stats, const PolicyLoss& task) {
  const PolicyTokens tokens = read_policy_batch(task, {offsets.begin(), offsets.end()});
  const PolicyValue loss = compute_policy_loss(tokens, task, {to_vector(stats.logp), to_vector(stats.entropy)});
  LossTruth truth{loss.loss.value, {}, TokenGradients(tokens.tokens())};
  for (int64_t i = 0; i < tokens.tokens(); ++i) {
    truth.per_token_loss.push_back(loss.per_token_loss[i].value);
    truth.grads.logp[i] = loss.d_logp(i);
    truth.grads.entropy[i] = loss.d_entropy(i);
  }
  return truth;
}

}  // namespace logitless::oracle

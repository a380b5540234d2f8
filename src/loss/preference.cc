// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "loss/preference.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/check_fields.h"
#include "core/store.h"
#include "loss/math.h"

namespace logitless {
namespace loss {
namespace {

template <class Predicate>
bool any_row(const PreferenceLoss& options, Predicate matches) {
  return std::any_of(options.loss_type.begin(), options.loss_type.end(),
                     [&](PreferenceLossType loss) { return matches(row_of(loss)); });
}

bool any_sorted(const PreferenceLoss& options) {
  return any_row(options, [](const PairLossRow& row) { return row.is_sorted(); });
}

}  // namespace

void check_preference_options(const PreferenceLoss& o) {
  using core::fail_if;
  core::check_fields(o);
  fail_if(o.loss_type.empty(), "loss_type is empty: at least one is needed");
  fail_if(!o.loss_weights.empty() && o.loss_weights.size() != o.loss_type.size(), "loss_weights ",
          core::HasEntries(o.loss_weights.size()), " but loss_type has ", o.loss_type.size());
  const double smoothing = o.label_smoothing;
  const bool has_divergence = o.f_divergence != FDivergence::kReverseKl;
  const auto no_divergence = [&](bool used, const char* by) {
    fail_if(has_divergence && !used, "f_divergence = ", name_of(o.f_divergence), " has no meaning for ", by);
  };
  for (const PreferenceLossType loss : o.loss_type) {
    const PairLossRow& row = row_of(loss);
    fail_if(smoothing >= row.smoothing_below, "label_smoothing = ", smoothing, " must be below ", row.smoothing_below,
            " for ", name_of(loss));
    fail_if(row.needs_smoothing && smoothing == 0, "label_smoothing = 0 must be above 0 for ", name_of(loss));
    no_divergence(row.takes_f_divergence, name_of(loss));
    fail_if(o.use_weighting && row.is_sorted(), "use_weighting has no meaning for ", name_of(loss));
  }
  const bool has_pairs = any_row(o, [](const PairLossRow& row) { return row.kind != PairKind::kLikelihood; });
  fail_if(!has_pairs && o.use_weighting, "use_weighting has no meaning for sft alone");
  no_divergence(has_pairs, "sft alone");
  fail_if(!has_pairs && o.ld_alpha, "ld_alpha = ", o.ld_alpha.value_or(0), " has no meaning for sft alone");
  constexpr double kDefaultAlpha = 0.5;  // Not PreferenceLoss(), which allocates.
  fail_if(o.f_alpha != kDefaultAlpha && o.f_divergence != FDivergence::kAlpha, "f_alpha = ", o.f_alpha,
          " is set but f_divergence = ", name_of(o.f_divergence));
  fail_if(o.reward_alpha != 0 && !any_row(o, [](const PairLossRow& row) { return row.takes_rewards; }),
          "reward_alpha = ", o.reward_alpha, " has no meaning for ", name_of(o.loss_type[0]));
  fail_if(smoothing != 0 && !any_row(o, [](const PairLossRow& row) { return row.smooths; }),
          "label_smoothing = ", smoothing, " has no meaning for ", name_of(o.loss_type[0]));
}

PairLoss::PairLoss(const PreferenceLoss& options, SequenceTokens tokens, ranks::Totals totals)
    : options_(options), tokens_(std::move(tokens)), batch_(tokens_.sequences() / 2), totals_(totals) {
  // A pair with an empty side is ignored.
  for (size_t i = 0; i < tokens_.targets.size(); ++i) {
    if (tokens_.count(other_side(tokens_.sequence[i])) == 0) tokens_.targets[i] = kNoTarget;
  }
  for (size_t c = 0, r = static_cast<size_t>(batch_); c < static_cast<size_t>(batch_); ++c, ++r) {
    if (tokens_.counts[c] == 0 || tokens_.counts[r] == 0) tokens_.counts[c] = tokens_.counts[r] = 0;
    pairs_ += tokens_.counts[c] > 0;
    chosen_tokens_ += tokens_.count(c);
  }
  core::fail_if(any_sorted(options) && totals.are_shared(),
                "loss_type aot or aot_unpaired sorts the whole batch, which ranks.data splits");
  totals_.sum({&pairs_, &chosen_tokens_});
  if (any_sorted(options)) {
    groups_.assign(tokens_.targets.size(), 0);
  } else if (any_row(options, [](const PairLossRow& row) { return row.kind == PairKind::kPair; })) {
    groups_ = tokens_.sequence;
    for (int64_t& group : groups_) group %= batch_;
  }
  if (options.ld_alpha) weigh_tails();
  if (options.use_weighting) certainties_.assign(tokens_.counts.size(), 0);
  likelihoods_.assign(tokens_.counts.size(), 0);
  sums_.assign(tokens_.counts.size(), 0);
  by_sum_.assign(tokens_.counts.size(), 0);
  loss_.assign(static_cast<size_t>(batch_), 0);
}

// LD-DPO (Liu et al. 2024): weights a sequence's tokens beyond the length of the pair's shorter sequence.
void PairLoss::weigh_tails() {
  token_weights_.assign(tokens_.targets.size(), 1);
  core::Array<int64_t> seen(tokens_.counts.size(), 0);
  for (size_t i = 0; i < tokens_.targets.size(); ++i) {
    if (!tokens_.takes_part(i)) continue;
    const int64_t s = tokens_.sequence[i], other = other_side(s);
    if (++seen[static_cast<size_t>(s)] > tokens_.counts[static_cast<size_t>(other)]) {
      token_weights_[i] = *options_.ld_alpha;
    }
  }
}

// Metrics use means with average_log_prob, or with a loss without a reference that averages (orpo, simpo).
bool PairLoss::averages_in_report() const {
  return options_.average_log_prob ||
         any_row(options_, [](const PairLossRow& row) { return row.averages && !row.needs_reference; });
}

double PairLoss::weight(size_t k) const { return options_.loss_weights.empty() ? 1 : options_.loss_weights[k]; }

// Returns the weight of NLL in the loss: nll_weight plus the weights of sft.
double PairLoss::likelihood_weight() const {
  const bool by_default = any_row(options_, [](const PairLossRow& row) { return row.with_likelihood; });
  double sum = options_.nll_weight.value_or(by_default ? 1 : 0);
  for (size_t k = 0; k < options_.loss_type.size(); ++k) {
    if (row_of(options_.loss_type[k]).kind == PairKind::kLikelihood) sum += weight(k);
  }
  return sum;
}

PairLoss::Pair PairLoss::pair(int64_t index) const {
  const auto side = [&](size_t s) {
    return Side{sums_[s], reference_.empty() ? sums_[s] : sums_[s] - reference_[s], tokens_.count(s)};
  };
  const auto c = static_cast<size_t>(index), r = static_cast<size_t>(batch_ + index);
  Pair out = {side(c), side(r)};
  if (!certainties_.empty()) {
    const double certainty = certainties_[c] / out.chosen.count + certainties_[r] / out.rejected.count;
    out.weight = bounded_exp(certainty, kMostExponent).value;
  }
  return out;
}

PairValue PairLoss::value(const PairLossRow& row, const Pair& pair) const {
  const bool averages = options_.average_log_prob || row.averages;
  const double c = pair.chosen.scale(averages), r = pair.rejected.scale(averages);
  const WithSlope a = divergence_score_of(pair.chosen.ratio, options_);
  const WithSlope b = divergence_score_of(pair.rejected.ratio, options_);
  const PairLogps logps = {.c = pair.chosen.logp * c, .r = pair.rejected.logp * r, .a = a.value * c, .b = b.value * r};
  const PairValue out = row.value(logps, options_);
  return {pair.weight * out.loss, pair.weight * out.by_chosen * c * a.slope,
          pair.weight * out.by_rejected * r * b.slope};
}

void PairLoss::add(int64_t index, double scale, const PairValue& value) {
  loss_[static_cast<size_t>(index)] += scale * value.loss;
  by_sum_[static_cast<size_t>(index)] += scale * value.by_chosen;
  by_sum_[static_cast<size_t>(batch_ + index)] += scale * value.by_rejected;
}

// The aot losses compare the k-th smallest value of one quantity with the k-th smallest of another.
void PairLoss::add_sorted(PairKind kind, double scale, std::span<const int64_t> pairs) {
  const size_t count = pairs.size();
  core::Array<double> left(count), right(count);
  core::Array<Pair> all(count);
  for (size_t k = 0; k < count; ++k) {
    Pair p = pair(pairs[k]);
    if (!options_.average_log_prob) p.chosen.count = p.rejected.count = 1;
    if (kind == PairKind::kSortedRatios) {
      left[k] = p.chosen.ratio / p.chosen.count;
      right[k] = p.rejected.ratio / p.rejected.count;
    } else {
      left[k] = p.chosen.logp / p.chosen.count - p.rejected.logp / p.rejected.count;
      right[k] = reference_[static_cast<size_t>(pairs[k])] / p.chosen.count -
                 reference_[static_cast<size_t>(batch_ + pairs[k])] / p.rejected.count;
    }
    all[k] = p;
  }
  // Equal values keep their order, and NaN comes last. Not std::stable_sort, which allocates memory.
  const auto sorted = [&](const core::Array<double>& values) {
    core::Array<size_t> order(count);
    std::iota(order.begin(), order.end(), size_t{0});
    std::sort(order.begin(), order.end(), [&](size_t i, size_t j) {
      if (std::isnan(values[i]) || std::isnan(values[j])) {
        return std::isnan(values[i]) == std::isnan(values[j]) ? i < j : std::isnan(values[j]);
      }
      return values[i] == values[j] ? i < j : values[i] < values[j];
    });
    return order;
  };
  const core::Array<size_t> left_order = sorted(left), right_order = sorted(right);
  for (size_t k = 0; k < count; ++k) {
    const size_t i = left_order[k], j = right_order[k];
    const WithSlope logistic = smoothed_logistic(options_.beta * (left[i] - right[j]), options_.label_smoothing);
    const double slope = options_.beta * logistic.slope;
    if (kind == PairKind::kSortedMargins) {
      add(pairs[i], scale, {logistic.value, slope / all[i].chosen.count, -slope / all[i].rejected.count});
    } else {
      add(pairs[i], scale, {logistic.value, slope / all[i].chosen.count, 0});
      add(pairs[j], scale, {0, 0, -slope / all[j].rejected.count});
    }
  }
}

void PairLoss::evaluate(std::span<const int64_t> rows, const TokenStats& stats, TokenGrads& grads) {
  core::Array<int64_t> pairs;
  for (const int64_t row : rows) {
    const auto i = static_cast<size_t>(row);
    const int64_t s = tokens_.sequence[i];
    const auto at = static_cast<size_t>(s);
    sums_[at] += weighted(token_weights_.empty() ? 1 : token_weights_[i], stats.logp[i]);
    likelihoods_[at] += stats.logp[i];
    if (!certainties_.empty()) certainties_[at] += stats.logp[i] - std::log(stats.square_sum[i]);
    if (s < batch_ && (pairs.empty() || pairs.back() != s)) pairs.push_back(s);
  }
  std::sort(pairs.begin(), pairs.end());
  pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
  for (size_t k = 0; k < options_.loss_type.size(); ++k) {
    const PairLossRow& row = row_of(options_.loss_type[k]);
    if (row.kind == PairKind::kLikelihood || weight(k) == 0) continue;
    const double scale = options_.loss_scale * weight(k) / pairs_;
    if (row.is_sorted()) {
      add_sorted(row.kind, scale, pairs);
      continue;
    }
    for (const int64_t index : pairs) add(index, scale, value(row, pair(index)));
  }
  const double likelihood = options_.loss_scale * likelihood_weight() / std::max(chosen_tokens_, 1.0);
  for (const int64_t row : rows) {
    const auto i = static_cast<size_t>(row);
    const int64_t s = tokens_.sequence[i];
    const double weight = token_weights_.empty() ? 1 : token_weights_[i];
    grads.logp[i] = weight * by_sum_[static_cast<size_t>(s)] - (s < batch_ ? likelihood : 0);
  }
}

PreferenceResult PairLoss::result(const TokenStats& stats, const Plan& plan) const {
  PreferenceResult out;
  out.plan = plan;
  out.per_token_logps = stats.logp;
  out.sequence_logps.assign(sums_.begin(), sums_.end());
  const bool averages = averages_in_report();
  for (size_t s = 0; averages && s < sums_.size(); ++s) out.sequence_logps[s] /= std::max(1.0, tokens_.count(s));
  PreferenceMetrics& metrics = out.metrics;
  metrics.pairs = static_cast<int64_t>(pairs_);
  double tokens = tokens_.total(), entropy = options_.want_entropy ? tokens_.sum(stats.entropy) : 0;
  double chosen_reward = 0, rejected_reward = 0, margin = 0, correct = 0, chosen = 0, rejected = 0, likelihood = 0;
  for (int64_t index = 0; index < batch_; ++index) {
    if (tokens_.count(index) == 0) continue;
    const Pair p = pair(index);
    const auto reward = [&](const Side& side) {
      const double ratio = side.ratio * side.scale(averages);
      return options_.beta * (reference_.empty() ? reward_of(ratio, options_).value : ratio);
    };
    const double win = reward(p.chosen), lose = reward(p.rejected);
    chosen_reward += win;
    rejected_reward += lose;
    margin += win - lose;
    correct += win > lose;
    chosen += p.chosen.logp * p.chosen.scale(averages);
    rejected += p.rejected.logp * p.rejected.scale(averages);
    likelihood -= likelihoods_[static_cast<size_t>(index)];
    out.loss += loss_[static_cast<size_t>(index)];
  }
  totals_.sum({&tokens, &chosen_reward, &rejected_reward, &margin, &correct, &chosen, &rejected, &likelihood, &entropy,
               &out.loss});
  metrics.tokens = static_cast<int64_t>(tokens);
  if (pairs_ == 0) return out;
  metrics.nll = likelihood / chosen_tokens_;
  const double weight = likelihood_weight();
  if (weight != 0) out.loss += options_.loss_scale * weight * metrics.nll;
  metrics.chosen_reward = chosen_reward / pairs_;
  metrics.rejected_reward = rejected_reward / pairs_;
  metrics.margin = margin / pairs_;
  metrics.accuracy = correct / pairs_;
  metrics.chosen_logp = chosen / pairs_;
  metrics.rejected_logp = rejected / pairs_;
  if (options_.want_entropy) metrics.mean_entropy = entropy / tokens;
  return out;
}

}  // namespace loss

bool needs_reference(PreferenceLossType loss) { return loss::row_of(loss).needs_reference; }

}  // namespace logitless

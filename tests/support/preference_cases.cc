// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "support/preference_cases.h"

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <limits>
#include <random>
#include <utility>

namespace logitless::testing {
namespace {

using L = PreferenceLossType;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

const char* short_name(L loss) {
  static const char* const names[] = {"sigmoid",  "hinge",     "ipo",      "exo_pair", "nca_pair", "robust",
                                      "bco_pair", "sppo_hard", "apo_zero", "apo_down", "aot",      "aot_unpaired",
                                      "discopop", "sft",       "orpo",     "simpo",    "cpo",      "sigmoid_norm"};
  return names[static_cast<size_t>(loss)];
}

void add_cases_of(L loss, std::vector<PreferenceCase>& cases) {
  const auto add = [&](const std::string& what, const std::function<void(PreferenceLoss&)>& change) {
    PreferenceLoss options = options_of(loss);
    change(options);
    cases.push_back({short_name(loss) + (" " + what), options});
  };
  add("by default", [](auto&) {});
  add("beta 0.7", [](auto& o) { o.beta = 0.7; });
  add("beta 3", [](auto& o) { o.beta = 3; });
  add("averages", [](auto& o) { o.average_log_prob = true; });
  add("averages, beta 2.5", [](auto& o) {
    o.average_log_prob = true;
    o.beta = 2.5;
  });
  add("nll_weight 0", [](auto& o) { o.nll_weight = 0.0; });
  add("nll_weight 2", [](auto& o) { o.nll_weight = 2.0; });
  add("loss_scale -3.5", [](auto& o) { o.loss_scale = -3.5; });
  add("loss_scale 0", [](auto& o) { o.loss_scale = 0; });
  add("weight 0.25, entropy", [](auto& o) {
    o.loss_weights = {0.25};
    o.want_entropy = true;
  });
  std::vector<double> smoothings;
  if (loss == L::kExoPair) smoothings = {1e-3, 0.5, 0.9};
  if (loss == L::kRobust) smoothings = {0.1, 0.4375};
  if (loss == L::kAot || loss == L::kAotUnpaired || loss == L::kSimpo || loss == L::kCpo) smoothings = {0.1, 0.5, 0.9};
  for (const double smoothing : smoothings) {
    add("label_smoothing " + std::to_string(smoothing), [=](auto& o) { o.label_smoothing = smoothing; });
  }
  const auto is_one_of = [=](std::initializer_list<L> losses) {
    return std::find(losses.begin(), losses.end(), loss) != losses.end();
  };
  if (is_one_of({L::kSigmoid, L::kHinge, L::kIpo, L::kExoPair, L::kRobust, L::kDiscopop, L::kSigmoidNorm})) {
    for (const FDivergence f : all_of<FDivergence>()) {
      add(name_of(f), [=](auto& o) { o.f_divergence = f; });
    }
    for (const double alpha : {-0.5, 1.0, 2.0}) {
      add("f_alpha " + std::to_string(alpha),
          [=](auto& o) { o.f_divergence = FDivergence::kAlpha, o.f_alpha = alpha, o.average_log_prob = alpha == 2; });
    }
  }
  if (!is_one_of({L::kAot, L::kAotUnpaired, L::kSft})) {
    add("weighting", [](auto& o) { o.use_weighting = true; });
    add("weighting and a likelihood", [](auto& o) { o.use_weighting = true, o.nll_weight = 0.5; });
  }
  if (is_one_of({L::kSigmoid, L::kOrpo})) {
    add("weighting beside sft", [](auto& o) { o.use_weighting = true, o.loss_type.push_back(L::kSft); });
  }
  for (const double alpha : {0.0, 0.3, 1.0}) {
    if (loss == L::kSft) break;
    add("ld_alpha " + std::to_string(alpha), [=](auto& o) { o.ld_alpha = alpha, o.nll_weight = 0.25; });
  }
  if (is_one_of({L::kSimpo, L::kCpo})) {
    for (const double alpha : {0.25, -0.5}) {
      add("reward_alpha " + std::to_string(alpha), [=](auto& o) { o.reward_alpha = alpha; });
    }
    add("reward_alpha, weighting, ld_alpha",
        [](auto& o) { o.reward_alpha = 0.2, o.use_weighting = true, o.ld_alpha = 0.5; });
  }
  if (loss == L::kDiscopop) {
    for (const double tau : {0.3, 1.0, 4.0}) {
      add("discopop_tau " + std::to_string(tau), [=](auto& o) { o.discopop_tau = tau; });
    }
  }
  if (loss == L::kSimpo) {
    for (const double gamma : {0.0, 1.5, -2.0}) {
      add("simpo_gamma " + std::to_string(gamma), [=](auto& o) { o.simpo_gamma = gamma; });
    }
  }
}

std::vector<PreferenceCase> make_cases() {
  std::vector<PreferenceCase> cases;
  for (const L loss : every_preference_loss()) add_cases_of(loss, cases);
  const auto add_sum = [&](const std::vector<std::pair<L, double>>& losses, double smoothing,
                           const std::function<void(PreferenceLoss&)>& change) {
    PreferenceCase sum;
    sum.options.loss_type.clear();
    for (const auto& [loss, weight] : losses) {
      sum.name += std::to_string(weight) + " " + short_name(loss) + " + ";
      sum.options.loss_type.push_back(loss);
      sum.options.loss_weights.push_back(weight);
    }
    sum.options.label_smoothing = smoothing;
    change(sum.options);
    cases.push_back(sum);
  };
  add_sum({{L::kSigmoid, 0.8}, {L::kBcoPair, 0.2}, {L::kSft, 1.0}}, 0, [](auto&) {});  // MPO
  add_sum({{L::kSigmoid, 1.5}, {L::kIpo, -0.5}, {L::kAot, 2.0}}, 0.2, [](auto& o) { o.loss_scale = 0.5; });
  add_sum({{L::kOrpo, 1.0}, {L::kRobust, 0.3}, {L::kAotUnpaired, 0.7}}, 0.25, [](auto& o) { o.want_entropy = true; });
  add_sum({{L::kHinge, 1.0}, {L::kSimpo, 0.5}, {L::kCpo, 0.25}}, 0.1, [](auto& o) { o.beta = 1.25; });
  add_sum({{L::kSft, 0.5}, {L::kSft, 0.25}, {L::kNcaPair, 1.0}}, 0, [](auto& o) { o.nll_weight = 0.125; });
  add_sum({{L::kSigmoid, 0.5}, {L::kIpo, 1.0}, {L::kSigmoidNorm, 2.0}, {L::kSft, 0.5}}, 0, [](auto& o) {
    o.f_divergence = FDivergence::kJs;
    o.ld_alpha = 0.25;
  });
  add_sum({{L::kSigmoid, 0.0}, {L::kCpo, 1.0}, {L::kSigmoid, 2.0}}, 0, [](auto& o) { o.average_log_prob = true; });
  return cases;
}

}  // namespace

const std::vector<PreferenceLossType>& every_preference_loss() {
  static const std::vector<L> all = {L::kSigmoid, L::kHinge,       L::kIpo,        L::kExoPair, L::kNcaPair,
                                     L::kRobust,  L::kBcoPair,     L::kSppoHard,   L::kApoZero, L::kApoDown,
                                     L::kAot,     L::kAotUnpaired, L::kDiscopop,   L::kSft,     L::kOrpo,
                                     L::kSimpo,   L::kCpo,         L::kSigmoidNorm};
  return all;
}

PreferenceLoss options_of(PreferenceLossType loss) {
  PreferenceLoss options;
  options.loss_type = {loss};
  if (loss == L::kExoPair) options.label_smoothing = 0.05;  // required
  return options;
}

const std::vector<PreferenceCase>& preference_cases() {
  static const std::vector<PreferenceCase> cases = make_cases();
  return cases;
}

oracle::SequenceBatch random_batch(const std::vector<int64_t>& lengths, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::exponential_distribution<double> surprise(1.0);
  std::normal_distribution<double> normal(0, 0.4);
  std::mt19937_64 others(seed + 1000);
  oracle::SequenceBatch batch;
  batch.offsets = {0};
  for (const int64_t length : lengths) {
    double reference = 0;
    for (int64_t t = 0; t < length; ++t) {
      batch.logp.push_back(-0.05 - surprise(random));
      batch.entropy.push_back(surprise(random));
      // The first token of a sequence is never ignored.
      batch.is_active.push_back(t == 0 || random() % 4 != 0);
      batch.square_sums.push_back(std::exp(-surprise(others)));
      batch.reference_tokens.push_back(kNaN);
      if (batch.is_active.back()) batch.reference_tokens.back() = batch.logp.back() + normal(random);
      if (batch.is_active.back()) reference += batch.reference_tokens.back();
    }
    batch.reference.push_back(reference);
    batch.offsets.push_back(batch.tokens());
  }
  return batch;
}

oracle::SequenceBatch one_token_batch(const std::vector<double>& logp, const std::vector<double>& reference) {
  oracle::SequenceBatch batch;
  batch.logp = logp;
  batch.entropy.assign(logp.size(), 0.5);
  batch.is_active.assign(logp.size(), true);
  for (size_t s = 0; s <= logp.size(); ++s) batch.offsets.push_back(static_cast<int64_t>(s));
  batch.reference = reference;
  batch.reference_tokens = reference;
  batch.square_sums.assign(logp.size(), 0.25);
  return batch;
}

const std::vector<KtoCase>& kto_cases() {
  static const std::vector<KtoCase> cases = [] {
    std::vector<KtoCase> all;
    const auto add = [&](const std::string& name, const std::function<void(KtoCase&)>& change) {
      KtoCase one;
      one.name = name;
      one.labels = {1, 0, 0, 1, 1};
      change(one);
      all.push_back(one);
    };
    const auto with_baseline = [](KtoCase& c) {
      c.kl_logps = {-3.5, -8.25, -1};
      c.kl_ref_logps = {-4.5, -9, -3.25};
    };
    add("no baseline", [](auto&) {});
    add("baseline", with_baseline);
    add("negative mean", [](auto& c) {
      c.kl_logps = {-3.5, -8.25};
      c.kl_ref_logps = {-2.5, -8.5};
    });
    add("one of the mean is negative", [](auto& c) {
      c.kl_logps = {-1, -8.25, -2, -7};
      c.kl_ref_logps = {-2.5, -8, -2, -7};
    });
    add("weights", [&](auto& c) {
      with_baseline(c);
      c.options.desirable_weight = 1.33;
      c.options.undesirable_weight = 0.25;
    });
    add("beta, scale, entropy", [&](auto& c) {
      with_baseline(c);
      c.options.beta = 0.9;
      c.options.loss_scale = -2.5;
      c.options.want_entropy = true;
    });
    add("averages", [&](auto& c) {
      c.options.average_log_prob = true;
      c.options.beta = 2;
    });
    add("only desirable", [&](auto& c) {
      with_baseline(c);
      c.labels = {1};
    });
    add("only undesirable", [&](auto& c) {
      with_baseline(c);
      c.labels = {0};
    });
    add("sequence weights", [&](auto& c) { with_baseline(c), c.weighs = true; });
    for (const KtoLossType loss : {KtoLossType::kApoZeroUnpaired, KtoLossType::kBco, KtoLossType::kA2po}) {
      const std::string name = name_of(loss);
      add(name, [=](auto& c) { c.options.loss_type = loss; });
      add(name + " with weights", [=](auto& c) {
        c.options.loss_type = loss;
        c.weighs = true;
        c.options.desirable_weight = 0.75;
        c.options.loss_scale = -1.5;
        c.options.average_log_prob = true;
        if (loss == KtoLossType::kBco) c.options.bco_delta = 0.3;
      });
    }
    add("undesirable ones weigh nothing", [](auto& c) { c.options.undesirable_weight = 0; });
    return all;
  }();
  return cases;
}

oracle::KtoInput kto_input(const oracle::SequenceBatch& batch, const KtoCase& kto_case) {
  oracle::KtoInput input;
  input.batch = batch;
  input.kl_logps = kto_case.kl_logps;
  input.kl_ref_logps = kto_case.kl_ref_logps;
  for (int64_t s = 0; s < batch.sequences(); ++s) {
    input.labels.push_back(kto_case.labels[s % kto_case.labels.size()]);
    // Values of sequences without tokens are not read.
    const bool read = batch.count(s) > 0;
    if (kto_case.weighs) input.sequence_weights.push_back(read ? 0.5 * static_cast<double>(s % 4) : kNaN);
    if (kto_case.options.loss_type == KtoLossType::kA2po) {
      input.reward_targets.push_back(read ? 0.4 - 0.3 * static_cast<double>(s % 3) : kNaN);
    }
  }
  return input;
}

}  // namespace logitless::testing

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Losses of pairs and of single sequences, and DFT, compared with TRL on many small batches
// (tests/golden/README.md): loss and ∂loss/∂logp, on given log-probabilities.
#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "golden.h"
#include "loss/cross_entropy.h"
#include "loss/kto.h"
#include "loss/preference.h"
#include "support/calls.h"

namespace logitless::testing {
namespace preference_projects_test {

class ProjectBatch {
 public:
  ProjectBatch(const json& values, double unit)
      : offsets(flat<int64_t>(values.at("offsets"))),
        labels(flat<uint8_t>(values.at("labels"))),
        values_(values),
        unit_(unit) {
    stats.logp = column("logps");
    for (const double value : column("log_square_sums")) stats.square_sum.push_back(std::exp(value));
    for (const uint8_t takes_part : flat<uint8_t>(values.at("mask"))) {
      if (takes_part != 0) rows.push_back(static_cast<int64_t>(ids.size()));
      ids.push_back(takes_part != 0 ? 0 : problem::kNoTarget);
    }
  }

  std::vector<double> column(const std::string& name) const { return column_of(values_, name); }
  std::vector<double> column_of(const json& values, const std::string& name) const {
    std::vector<double> out = flat(values.at(name));
    for (double& value : out) value /= unit_;
    return out;
  }
  loss::SequenceTokens tokens() const { return loss::read_sequences(offsets, ids); }
  // Returns Σ logp per sequence under the reference. Empty weights mean 1.
  core::Array<double> reference_sums(std::span<const double> weights) const {
    const loss::SequenceTokens all = tokens();
    const std::vector<double> logps = column("ref_logps");
    core::Array<double> sums(all.counts.size(), 0);
    for (const int64_t row : rows) {
      const auto i = static_cast<size_t>(row);
      sums[static_cast<size_t>(all.sequence[i])] += (weights.empty() ? 1 : weights[i]) * logps[i];
    }
    return sums;
  }

  std::vector<int64_t> offsets;
  std::vector<uint8_t> labels;
  core::Array<int64_t> ids;
  std::vector<int64_t> rows;  // rows that are not ignored
  TokenStats stats;

 private:
  const json& values_;
  double unit_;
};

bool reads(const json& c, const std::string& name) {
  const auto names = c.at("reads").get<std::vector<std::string>>();
  return std::find(names.begin(), names.end(), name) != names.end();
}

template <class Loss>
OfTokens evaluated(Loss& loss, const ProjectBatch& batch) {
  TokenGrads grads;
  grads.logp.assign(batch.stats.logp.size(), 0);
  loss.evaluate(batch.rows, batch.stats, grads);
  return {loss.result(batch.stats, Plan()).loss, grads.logp};
}

OfTokens evaluate_pairs(const ProjectBatch& batch, const json& c) {
  json values = c.at("options");
  const json losses = values.at("loss_type"), weights = values.value("loss_weights", json::array());
  values.erase("loss_type");
  values.erase("loss_weights");
  PreferenceLoss options = read_options<PreferenceLoss>(values);
  options.want_entropy = false;
  options.loss_type.clear();
  for (const json& name : losses) options.loss_type.push_back(parse<PreferenceLossType>(name));
  options.loss_weights = flat(weights);
  loss::check_preference_options(options);
  loss::PairLoss loss(options, batch.tokens());
  if (reads(c, "ref_logps")) {
    loss.set_reference(batch.reference_sums(loss.token_weights()));
  } else if (std::any_of(options.loss_type.begin(), options.loss_type.end(), needs_reference)) {
    loss.set_reference(core::Array<double>(batch.labels.size(), 0));
  }
  return evaluated(loss, batch);
}

OfTokens evaluate_singles(const ProjectBatch& from, const json& c) {
  KtoLoss options = read_options<KtoLoss>(c.at("options"));
  options.want_entropy = false;
  KtoBatch batch;
  if (options.loss_type != KtoLossType::kA2po) batch.labels = from.labels;
  std::vector<double> kl, kl_ref, weights, targets;
  const auto give = [](std::vector<double>& to, std::vector<double> values, ConstVector& member) {
    to = std::move(values);
    member = ConstVector(to.data(), static_cast<int64_t>(to.size()));
  };
  if (c.contains("kl_logps")) {
    give(kl, from.column_of(c, "kl_logps"), batch.kl_logps);
    give(kl_ref, from.column_of(c, "kl_ref_logps"), batch.kl_ref_logps);
  }
  if (reads(c, "sequence_weights")) give(weights, from.column("sequence_weights"), batch.sequence_weights);
  if (reads(c, "reward_targets")) give(targets, from.column("reward_targets"), batch.reward_targets);
  loss::check_kto_options(options);
  const KtoLoss task = with(options, batch);
  loss::SequenceLoss loss(task, from.tokens(), "hidden");
  loss.set_reference(from.reference_sums({}));
  return evaluated(loss, from);
}

OfTokens evaluate_dft(const ProjectBatch& batch, const json& c) {
  CrossEntropy options = read_options<CrossEntropy>(c.at("options"));
  options.want_entropy = false;
  loss::check_options(options);
  problem::TokenProblem of_tokens;
  of_tokens.tokens = static_cast<int64_t>(batch.ids.size());
  of_tokens.vocab_size = 1;
  of_tokens.picks = problem::target_picks(batch.ids);
  loss::CrossEntropyLoss loss(options, of_tokens, ranks::Totals());
  return evaluated(loss, batch);
}

OfTokens evaluate_case(const ProjectBatch& batch, const json& c) {
  if (c.at("kind") == "preference") return evaluate_pairs(batch, c);
  return c.at("kind") == "single" ? evaluate_singles(batch, c) : evaluate_dft(batch, c);
}

TEST(PreferenceProjects, EveryCase) {
  expect_every_case<ProjectBatch>("preference_projects.json", evaluate_case, 1e-9, 1e-12);
}

}  // namespace preference_projects_test
}  // namespace logitless::testing

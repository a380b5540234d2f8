// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Losses of policies, of pairs and of single sequences, and DFT, compared with the functions of other
// projects on many small batches (tests/golden/README.md): loss and ∂loss/∂logp, on given log-probabilities.
#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "core/matrices.h"
#include "golden.h"
#include "loss/cross_entropy.h"
#include "loss/kto.h"
#include "loss/policy.h"
#include "loss/preference.h"

namespace logitless::testing {
namespace projects_test {

class ProjectBatch {
 public:
  ProjectBatch(const json& values, double unit)
      : offsets(flat<int64_t>(values.at("offsets"))),
        mask(flat<uint8_t>(values.at("mask"))),
        values_(values),
        unit_(unit) {
    stats.logp = column("logps");
    stats.entropy.assign(mask.size(), 0);
    if (values.contains("log_square_sums")) {
      for (const double value : column("log_square_sums")) stats.square_sum.push_back(std::exp(value));
    }
    for (const uint8_t takes_part : mask) {
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
  std::vector<uint8_t> labels() const { return flat<uint8_t>(values_.at("labels")); }
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
  std::vector<uint8_t> mask;
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

ConstTensor tensor_of(const std::vector<double>& values) {
  return view(values.data(), {static_cast<int64_t>(values.size())});
}

// The loss of a case on given log-probabilities, and its gradients.
struct OfTokens {
  double loss = 0;
  std::vector<double> d_logps;
};

template <class Loss>
OfTokens evaluated(Loss& loss, const ProjectBatch& batch) {
  TokenGrads grads;
  grads.logp.assign(batch.stats.logp.size(), 0);
  grads.entropy = grads.logp;
  loss.evaluate(batch.rows, batch.stats, grads);
  return {loss.result(batch.stats, Plan()).loss, grads.logp};
}

OfTokens evaluate_policy(const ProjectBatch& from, const json& c) {
  const std::vector<int64_t> ids(from.mask.size(), 0);
  const std::string advantages_of = c.at("advantages");
  const std::vector<double> advantages = from.column(advantages_of);
  auto task = read_options<PolicyLoss>(c.at("options"));
  task.chosen_ids = view(ids.data(), {static_cast<int64_t>(ids.size())});
  task.mask = from.mask;
  task.advantages = tensor_of(advantages);
  task.advantages_per = advantages_of == "token_advantages" ? EntriesPer::kToken : EntriesPer::kSequence;
  std::vector<std::vector<double>> columns(5);
  size_t next = 0;
  for (const auto& [name, member] :
       {std::pair("old_logps", &task.old_logps), std::pair("ref_logps", &task.ref_logps),
        std::pair("sampling_logps", &task.sampling_logps), std::pair("teacher_logps", &task.teacher_logps),
        std::pair("scores", &task.scores)}) {
    if (reads(c, name)) *member = tensor_of(columns[next++] = from.column(name));
  }
  loss::CompletionLoss loss(task, from.offsets, 1);
  return evaluated(loss, from);
}

OfTokens evaluate_pairs(const ProjectBatch& batch, const json& c) {
  const auto task = read_options<PreferenceLoss>(c.at("options"));
  loss::check_preference_options(task);
  loss::PairLoss loss(task, batch.tokens());
  if (reads(c, "ref_logps")) {
    loss.set_reference(batch.reference_sums(loss.token_weights()));
  } else if (std::ranges::any_of(task.loss_type, needs_reference)) {
    loss.set_reference(core::Array<double>(batch.labels().size(), 0));
  }
  return evaluated(loss, batch);
}

OfTokens evaluate_singles(const ProjectBatch& from, const json& c) {
  auto task = read_options<KtoLoss>(c.at("options"));
  const std::vector<uint8_t> labels = from.labels();
  if (task.loss_type != KtoLossType::kA2po) task.labels = labels;
  std::vector<double> kl, kl_ref, weights, targets;
  if (c.contains("kl_logps")) {
    task.kl_logps = tensor_of(kl = from.column_of(c, "kl_logps"));
    task.kl_ref_logps = tensor_of(kl_ref = from.column_of(c, "kl_ref_logps"));
  }
  if (reads(c, "sequence_weights")) task.sequence_weights = tensor_of(weights = from.column("sequence_weights"));
  if (reads(c, "reward_targets")) task.reward_targets = tensor_of(targets = from.column("reward_targets"));
  loss::check_kto_options(task);
  loss::SequenceLoss loss(task, from.tokens(), "hidden");
  loss.set_reference(from.reference_sums({}));
  return evaluated(loss, from);
}

OfTokens evaluate_dft(const ProjectBatch& batch, const json& c) {
  const auto task = read_options<CrossEntropy>(c.at("options"));
  loss::check_options(task);
  problem::TokenProblem of_tokens;
  of_tokens.tokens = static_cast<int64_t>(batch.ids.size());
  of_tokens.vocab_size = 1;
  of_tokens.picks = problem::target_picks(batch.ids);
  const std::vector<int64_t> offsets = {0, of_tokens.tokens};
  loss::CrossEntropyLoss loss(task, offsets, of_tokens, ranks::Totals());
  return evaluated(loss, batch);
}

template <class Evaluate>
void expect_every_case(const std::string& file, double relative, double floor, const Evaluate& evaluate) {
  const Golden golden(file);
  std::vector<ProjectBatch> batches;
  for (const json& values : golden.inputs.at("batches")) {
    batches.emplace_back(values, golden.inputs.at("unit").get<double>());
  }
  EXPECT_GE(golden.cases.size(), 1000U);
  for (const auto& [name, c] : golden.cases) {
    SCOPED_TRACE(name);
    const OfTokens got = evaluate(batches.at(c.at("batch").template get<size_t>()), c);
    expect_all_near("loss", {got.loss}, flat(c.at("loss")), relative, floor);
    expect_all_near("d_logps", got.d_logps, flat(c.at("d_logps")), relative, floor);
  }
}

TEST(PolicyProjects, EveryCase) {
  // Other projects add 1e-8 to counts, and the file has twelve digits.
  expect_every_case("policy_projects.json", 1e-7, 1e-7, evaluate_policy);
}

TEST(PreferenceProjects, EveryCase) {
  expect_every_case("preference_projects.json", 1e-9, 1e-12, [](const ProjectBatch& batch, const json& c) {
    if (c.at("kind") == "preference") return evaluate_pairs(batch, c);
    return c.at("kind") == "single" ? evaluate_singles(batch, c) : evaluate_dft(batch, c);
  });
}

}  // namespace projects_test
}  // namespace logitless::testing

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Policy losses compared with the functions of other projects on many small batches (tests/golden/README.md):
// loss and ∂loss/∂logp, on given log-probabilities.
#include <string>
#include <vector>

#include "golden.h"
#include "loss/policy.h"
#include "support/calls.h"

namespace logitless::testing {
namespace policy_projects_test {

class ProjectBatch {
 public:
  ProjectBatch(const json& values, double unit) : values_(values), unit_(unit) {
    append<int64_t>(values.at("offsets"), offsets);
    append<uint8_t>(values.at("mask"), mask);
    logps = column("logps");
  }
  std::vector<double> column(const std::string& name) const {
    std::vector<double> out = flat(values_.at(name));
    for (double& value : out) value /= unit_;
    return out;
  }

  std::vector<int64_t> offsets;
  std::vector<uint8_t> mask;
  std::vector<double> logps;

 private:
  const json& values_;
  double unit_;
};

OfTokens evaluate(const ProjectBatch& from, const json& c) {
  const auto view = [](const std::vector<double>& v) { return ConstVector(v.data(), static_cast<int64_t>(v.size())); };
  const std::vector<int64_t> ids(from.logps.size(), 0);
  const std::vector<double> advantages = from.column(c.at("advantages").get<std::string>());
  std::vector<double> old, ref, sampling, scores;
  PolicyBatch batch;
  batch.chosen_ids = Targets(std::span<const int64_t>(ids));
  batch.mask = from.mask;
  batch.advantages = view(advantages);
  batch.advantages_per = c.at("advantages") == "token_advantages" ? EntriesPer::kToken : EntriesPer::kSequence;
  for (const json& name : c.at("reads")) {
    const auto read = [&](const char* wanted, std::vector<double>& to, ConstVector& member) {
      if (name != wanted) return;
      to = from.column(wanted);
      member = view(to);
    };
    read("old_logps", old, batch.old_logps);
    read("ref_logps", ref, batch.ref_logps);
    read("sampling_logps", sampling, batch.sampling_logps);
    read("teacher_logps", ref, batch.teacher_logps);
    read("scores", scores, batch.scores);
  }
  PolicyLoss options = read_options<PolicyLoss>(c.at("options"));
  options.want_entropy = false;
  const PolicyLoss task = with(options, batch);
  loss::CompletionLoss loss(task, from.offsets, 1);
  TokenStats stats;
  stats.logp = from.logps;
  stats.entropy.assign(from.logps.size(), 0);
  TokenGrads grads;
  grads.logp.assign(from.logps.size(), 0);
  grads.entropy = grads.logp;
  std::vector<int64_t> rows;
  for (size_t i = 0; i < from.mask.size(); ++i) {
    if (from.mask[i]) rows.push_back(static_cast<int64_t>(i));
  }
  loss.evaluate(rows, stats, grads);
  return {loss.result(stats, Plan()).loss, grads.logp};
}

TEST(PolicyProjects, EveryCase) {
  // Other projects add 1e-8 to counts, and the file has twelve digits.
  expect_every_case<ProjectBatch>("policy_projects.json", evaluate, 1e-7, 1e-7);
}

}  // namespace policy_projects_test
}  // namespace logitless::testing

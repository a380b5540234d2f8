// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "cli/gradcheck/truth.h"

#include <utility>
#include <vector>

#include "core/tensors.h"
#include "oracle/distillation_oracle.h"
#include "oracle/policy_oracle.h"
#include "oracle/preference_oracle.h"
#include "oracle/set_distillation_oracle.h"
#include "oracle/set_oracle.h"

namespace logitless::cli {
namespace {

// At the largest shapes a tile has 100 rows or a few thousand vocabulary entries: large enough for blocked
// products, small compared with the tensors.
constexpr size_t kScratchBytes = size_t{256} << 20;

HiddenStates hidden_of(const TaskRun& call) { return core::hidden_of(call.source); }
HeadMatrices head_of(const TaskRun& call) { return core::head_of(call.source.head); }
FinishedLogits logits_of(const TaskRun& call) { return core::logits_of("logits", call.source.finished); }

std::vector<int64_t> offsets_of(const TaskRun& call) {
  if (!call.source.is_given()) return oracle::sequence_offsets(hidden_of(call));
  const FinishedLogits logits = logits_of(call);
  std::vector<int64_t> offsets;
  for (int64_t b = 0; b <= logits.batch; ++b) offsets.push_back(b * logits.time);
  return offsets;
}

using Offsets = std::vector<int64_t>;

// Compute each loss from the statistics of its tokens.

oracle::LossTruth loss_of(const CrossEntropy& task, const Offsets&, const oracle::Tokens& tokens,
                          const oracle::TokenStatistics& stats) {
  return oracle::cross_entropy_truth(tokens, stats, task);
}
oracle::LossTruth loss_of(const PolicyLoss& task, const Offsets& offsets, const oracle::Tokens&,
                          const oracle::TokenStatistics& stats) {
  return oracle::policy_truth(offsets, stats, task);
}
oracle::LossTruth loss_of(const PreferenceLoss& task, const Offsets& offsets, const oracle::Tokens& tokens,
                          const oracle::TokenStatistics& stats) {
  return oracle::preference_truth(offsets, tokens, stats, task);
}
oracle::LossTruth loss_of(const KtoLoss& task, const Offsets& offsets, const oracle::Tokens& tokens,
                          const oracle::TokenStatistics& stats) {
  return oracle::kto_truth(offsets, tokens, stats, task);
}

template <class Task>
oracle::Tokens tokens_of(const TaskRun& call, const Task& task, const Offsets& offsets) {
  const int64_t vocab = call.source.is_given() ? call.source.finished.last_size() : call.source.head.vocab_size();
  if constexpr (std::is_same_v<Task, PolicyLoss>) {
    return oracle::read_tokens(offsets, vocab, task);
  } else if constexpr (std::is_same_v<Task, CrossEntropy>) {
    return oracle::read_tokens(offsets, vocab, call.targets, task);
  } else {
    oracle::Tokens tokens = oracle::read_tokens(offsets, vocab, call.targets, task.token);
    if (std::is_same_v<Task, PreferenceLoss>) oracle::drop_half_pairs(offsets, tokens);
    return tokens;
  }
}

oracle::MatrixXd states_of(const TaskRun& call) {
  const HiddenStates hidden = hidden_of(call);
  oracle::Tokens all;
  all.labels.assign(static_cast<size_t>(hidden.tokens()), 0);
  return oracle::read_hidden(hidden, all);
}

oracle::SetLogits logits_of_sets(const TaskRun& call) {
  return {oracle::read_products(states_of(call), head_of(call)), call.source.head.softcap, call.token_options()};
}

Truth truth_of(const TaskRun& call, const Distillation& task, const void* /*held_logits*/) {
  Truth truth;
  const TeacherMatrices teacher(core::hidden_of(task.teacher), core::head_of(task.teacher.head),
                                task.teacher_round_logits_to);
  oracle::DistillationTruth distillation =
      oracle::distillation_rows({hidden_of(call), head_of(call), teacher, call.targets, task});
  truth.loss.loss = distillation.loss;
  truth.loss.per_token_loss = std::move(distillation.per_token_loss);
  truth.stats.logp = oracle::to_eigen(distillation.logps);
  truth.d_raw = std::move(distillation.d_raw);
  return truth;
}

Truth truth_of(const TaskRun& call, const SetDistillation& task, const void* /*held_logits*/) {
  Truth truth;
  const std::vector<int64_t> offsets = offsets_of(call);
  const std::vector<int64_t> labels =
      oracle::read_tokens(offsets, call.source.head.vocab_size(), call.targets, call.token_options()).labels;
  oracle::SetDistillationTruth distillation =
      oracle::set_distillation_truth(logits_of_sets(call), task.teacher, labels, offsets, task);
  truth.loss.loss = distillation.loss;
  truth.loss.per_token_loss = std::move(distillation.per_token_loss);
  truth.d_raw = std::move(distillation.d_raw);
  return truth;
}

Truth truth_of(const TaskRun& call, const SoftCrossEntropy& task, const void* /*held_logits*/) {
  Truth truth;
  const oracle::SetLogits logits = logits_of_sets(call);
  oracle::SoftTruth soft = oracle::compute_soft_cross_entropy(logits, offsets_of(call), task);
  truth.loss.loss = soft.loss;
  truth.loss.per_token_loss = std::move(soft.per_token_loss);
  truth.d_raw.emplace(soft.gamma.rows(), soft.gamma.cols());
#pragma omp parallel for schedule(dynamic)
  for (int64_t row = 0; row < soft.gamma.rows(); ++row) {
    truth.d_raw->row(row) = oracle::d_raw_logits(logits, row, {}, soft.gamma.row(row).transpose()).transpose();
  }
  return truth;
}

Truth truth_of(const TaskRun& call, const IdLogps& task, const void* /*held_logits*/) {
  Truth truth;
  oracle::SetLogits logits = logits_of_sets(call);
  logits.over_set = task.normalise_over == NormaliseOver::kSet;
  const int64_t tokens = logits.products.rows(), vocab = logits.products.cols();
  const oracle::RowIds sets = oracle::read_sets(task.sets, tokens);
  truth.d_raw = oracle::MatrixXd::Zero(tokens, vocab);
  truth.stats.logp = oracle::VectorXd::Zero(task.sets.entries());
  for (int64_t row = 0; row < tokens; ++row) {
    const std::vector<int64_t>& ids = sets[static_cast<size_t>(row)];
    if (ids.empty()) continue;
    const oracle::VectorXd log_p = oracle::log_probabilities(logits, row, ids);
    oracle::VectorXd gamma = oracle::VectorXd::Zero(vocab);
    int64_t entry = oracle::first_entry(task.sets, tokens, row);
    for (const int64_t id : ids) {
      const double upstream = call.set_values[static_cast<size_t>(entry)];
      truth.stats.logp[entry++] = log_p[id];
      truth.loss.loss += upstream * log_p[id];
      gamma[id] += upstream;
    }
    truth.d_raw->row(row) = oracle::d_raw_logits(logits, row, ids, gamma).transpose();
  }
  return truth;
}

// For per-token losses. A task without a loss_of() does not compile.
template <class Task>
Truth truth_of(const TaskRun& call, const Task& task, const void* held_logits) {
  const std::vector<int64_t> offsets = offsets_of(call);
  Truth truth;
  const oracle::TiledTruth* reference = nullptr;
  oracle::Tokens tokens = tokens_of(call, task, offsets);
  tokens.top_k = call.config.top_k;
  if (call.source.is_given()) {
    FinishedLogits logits = logits_of(call);
    logits.data = held_logits;
    truth.of_logits = std::make_unique<oracle::LogitsTruth>(logits, std::move(tokens), kScratchBytes);
    reference = truth.of_logits.get();
  } else {
    truth.fused =
        std::make_unique<oracle::FusedTruth>(hidden_of(call), head_of(call), std::move(tokens), kScratchBytes);
    reference = truth.fused.get();
  }
  truth.stats = reference->compute_statistics();
  truth.loss = loss_of(task, offsets, reference->tokens(), truth.stats);
  return truth;
}

}  // namespace

oracle::MatrixXd Truth::parameter_gradients(const TaskRun& call, const oracle::ReceiveWeights& receive) const {
  return d_raw ? oracle::parameter_gradients(states_of(call), head_of(call), *d_raw, receive)
               : fused->compute_parameter_gradients(stats, loss.grads, receive);
}

Truth find_truth(const TaskRun& call, const void* held_logits) {
  Truth truth;
  io::for_each_task([&]<class Task> {
    if (call.config.runs<Task>()) truth = truth_of(call, call.of<Task>(), held_logits);
  });
  return truth;
}

}  // namespace logitless::cli

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "cli/gradcheck/truth.h"

#include <utility>
#include <vector>

#include "oracle/distillation_oracle.h"
#include "oracle/policy_oracle.h"
#include "oracle/preference_oracle.h"
#include "oracle/set_distillation_oracle.h"
#include "oracle/set_oracle.h"

namespace logitless::cli {
namespace {

// Tiles of 100 rows or a few thousand vocabulary entries at the largest shapes: large enough for a matrix
// product's blocks, and small beside the tensors themselves.
constexpr size_t kScratchBytes = size_t{256} << 20;

std::vector<int64_t> offsets_of(const TaskRun& call) {
  if (call.config.level == io::Level::kFused) return oracle::sequence_offsets(call.hidden);
  std::vector<int64_t> offsets;
  for (int64_t b = 0; b <= call.logits.batch; ++b) offsets.push_back(b * call.logits.time);
  return offsets;
}

oracle::Tokens tokens_of(const TaskRun& call, const std::vector<int64_t>& offsets) {
  const int64_t vocab = call.config.level == io::Level::kFused ? call.head.vocab_size() : call.logits.vocab;
  if (call.config.task == io::Task::kPolicyLoss) return oracle::read_tokens(offsets, vocab, call.policy);
  if (call.config.task == io::Task::kCrossEntropy) {
    return oracle::read_tokens(offsets, vocab, call.targets, call.cross_entropy);
  }
  oracle::Tokens tokens = oracle::read_tokens(offsets, vocab, call.targets, call.token_options());
  if (call.config.task == io::Task::kPreferenceLoss) oracle::drop_half_pairs(offsets, tokens);
  return tokens;
}

oracle::LossTruth loss_of(const TaskRun& call, const std::vector<int64_t>& offsets, const oracle::Tokens& tokens,
                          const oracle::TokenStatistics& stats) {
  switch (call.config.task) {
    case io::Task::kPolicyLoss:
      return oracle::policy_truth(offsets, stats, call.policy);
    case io::Task::kPreferenceLoss:
      return oracle::preference_truth(offsets, tokens, stats, call.preference.ref_logps, call.preference);
    case io::Task::kKtoLoss:
      return oracle::kto_truth(offsets, tokens, stats, call.kto);
    default:
      break;
  }
  return oracle::cross_entropy_truth(tokens, stats, call.cross_entropy);
}

oracle::MatrixXd states_of(const TaskRun& call) {
  oracle::Tokens all;
  all.labels.assign(static_cast<size_t>(call.hidden.tokens()), 0);
  return oracle::read_hidden(call.hidden, all);
}

void take(oracle::DistillationTruth distillation, Truth& truth) {
  truth.loss.loss = distillation.loss;
  truth.loss.per_token_loss = std::move(distillation.per_token_loss);
  truth.stats.logp = oracle::to_eigen(distillation.logps);
  truth.d_raw = std::move(distillation.d_raw);
}

void take(oracle::SetDistillationTruth distillation, Truth& truth) {
  truth.loss.loss = distillation.loss;
  truth.loss.per_token_loss = std::move(distillation.per_token_loss);
  truth.d_raw = std::move(distillation.d_raw);
}

void add_soft_truth(const TaskRun& call, const oracle::SetLogits& logits, Truth& truth) {
  oracle::SoftTruth soft =
      oracle::compute_soft_cross_entropy(logits, call.soft_cross_entropy.targets, call.soft_cross_entropy);
  truth.loss.loss = soft.loss;
  truth.loss.per_token_loss = std::move(soft.per_token_loss);
  truth.d_raw.emplace(soft.gamma.rows(), soft.gamma.cols());
#pragma omp parallel for schedule(dynamic)
  for (int64_t row = 0; row < soft.gamma.rows(); ++row) {
    truth.d_raw->row(row) = oracle::d_raw_logits(logits, row, {}, soft.gamma.row(row).transpose()).transpose();
  }
}

void add_id_logps_truth(const TaskRun& call, oracle::SetLogits logits, Truth& truth) {
  logits.over_set = call.id_logps.normalise_over == NormaliseOver::kSet;
  const int64_t tokens = logits.products.rows(), vocab = logits.products.cols();
  const oracle::RowIds sets = oracle::read_sets(call.id_logps.sets, tokens);
  truth.d_raw = oracle::MatrixXd::Zero(tokens, vocab);
  truth.stats.logp = oracle::VectorXd::Zero(call.id_logps.sets.entries());
  for (int64_t row = 0; row < tokens; ++row) {
    const std::vector<int64_t>& ids = sets[static_cast<size_t>(row)];
    if (ids.empty()) continue;
    const oracle::VectorXd log_p = oracle::log_probabilities(logits, row, ids);
    oracle::VectorXd gamma = oracle::VectorXd::Zero(vocab);
    int64_t entry = oracle::first_entry(call.id_logps.sets, tokens, row);
    for (const int64_t id : ids) {
      const double upstream = call.set_values[static_cast<size_t>(entry)];
      truth.stats.logp[entry++] = log_p[id];
      truth.loss.loss += upstream * log_p[id];
      gamma[id] += upstream;
    }
    truth.d_raw->row(row) = oracle::d_raw_logits(logits, row, ids, gamma).transpose();
  }
}

Truth truth_of_distributions(const TaskRun& call) {
  Truth truth;
  if (call.config.task == io::Task::kDistillation) {
    take(oracle::distillation_rows({call.hidden, call.head, call.teacher, call.targets, call.distillation}), truth);
    return truth;
  }
  const oracle::SetLogits logits = {oracle::read_products(states_of(call), call.head), call.head.softcap,
                                    call.token_options()};
  if (call.config.task == io::Task::kSoftCrossEntropy) {
    add_soft_truth(call, logits, truth);
  } else if (call.config.task == io::Task::kIdLogps) {
    add_id_logps_truth(call, logits, truth);
  } else {
    const std::vector<int64_t> offsets = offsets_of(call);
    const std::vector<int64_t> labels =
        oracle::read_tokens(offsets, call.head.vocab_size(), call.targets, call.token_options()).labels;
    take(oracle::set_distillation_truth(logits, call.set_distillation.teacher, labels, offsets, call.set_distillation),
         truth);
  }
  return truth;
}

}  // namespace

oracle::MatrixXd Truth::parameter_gradients(const TaskRun& call, const oracle::ReceiveWeights& receive) const {
  return d_raw ? oracle::parameter_gradients(states_of(call), call.head, *d_raw, receive)
               : fused->compute_parameter_gradients(stats, loss.grads, receive);
}

Truth find_truth(const TaskRun& call, const void* held_logits) {
  if (io::has_sets(call.config.task) || call.config.task == io::Task::kDistillation) {
    return truth_of_distributions(call);
  }
  const std::vector<int64_t> offsets = offsets_of(call);
  Truth truth;
  const oracle::TiledTruth* reference = nullptr;
  oracle::Tokens tokens = tokens_of(call, offsets);
  tokens.top_k = call.config.top_k;
  if (call.config.level == io::Level::kLogits) {
    FinishedLogits logits = call.logits;
    logits.data = held_logits;
    truth.of_logits = std::make_unique<oracle::LogitsTruth>(logits, std::move(tokens), kScratchBytes);
    reference = truth.of_logits.get();
  } else {
    truth.fused = std::make_unique<oracle::FusedTruth>(call.hidden, call.head, std::move(tokens), kScratchBytes);
    reference = truth.fused.get();
  }
  truth.stats = reference->compute_statistics();
  truth.loss = loss_of(call, offsets, reference->tokens(), truth.stats);
  return truth;
}

}  // namespace logitless::cli

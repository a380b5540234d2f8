// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "cli/gradcheck/truth.h"

#include "oracle/policy_oracle.h"
#include "oracle/preference_oracle.h"

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
  if (call.config.task == io::Task::kGrpo) return oracle::read_tokens(offsets, vocab, call.policy_batch, call.policy);
  if (call.config.task == io::Task::kCrossEntropy) {
    return oracle::read_tokens(offsets, vocab, call.targets, call.cross_entropy);
  }
  oracle::Tokens tokens = oracle::read_tokens(offsets, vocab, call.targets, call.token_options());
  if (call.config.task == io::Task::kDpo) oracle::drop_half_pairs(offsets, tokens);
  return tokens;
}

oracle::LossTruth loss_of(const TaskRun& call, const std::vector<int64_t>& offsets, const oracle::Tokens& tokens,
                          const oracle::TokenStatistics& stats) {
  switch (call.config.task) {
    case io::Task::kGrpo:
      return oracle::policy_truth(offsets, stats, call.policy_batch, call.policy);
    case io::Task::kDpo:
      return oracle::preference_truth(offsets, tokens, stats, call.reference.logps, call.preference);
    case io::Task::kKto:
      return oracle::kto_truth(offsets, tokens, stats, call.kto_batch, call.kto);
    case io::Task::kCrossEntropy:
      break;
  }
  return oracle::cross_entropy_truth(tokens, stats, call.cross_entropy);
}

}  // namespace

Truth find_truth(const TaskRun& call, const void* held_logits) {
  const std::vector<int64_t> offsets = offsets_of(call);
  Truth truth;
  const oracle::TiledTruth* reference = nullptr;
  if (call.config.level == io::Level::kLogits) {
    Logits logits = call.logits;
    logits.data = held_logits;
    truth.of_logits = std::make_unique<oracle::LogitsTruth>(logits, tokens_of(call, offsets), kScratchBytes);
    reference = truth.of_logits.get();
  } else {
    truth.fused = std::make_unique<oracle::FusedTruth>(call.hidden, call.head, tokens_of(call, offsets), kScratchBytes);
    reference = truth.fused.get();
  }
  truth.stats = reference->compute_statistics();
  truth.loss = loss_of(call, offsets, reference->tokens(), truth.stats);
  return truth;
}

}  // namespace logitless::cli

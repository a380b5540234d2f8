// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// `logitless score`: what a model thinks of each token, from hidden states and a head, without the logits.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/common/job.h"
#include "cli/common/json.h"
#include "io/config.h"
#include "logitless/environment.h"
#include "logitless/plan.h"

namespace logitless::cli {

/// Means over the tokens that take part; NaN when none does, and where the statistic was not asked for. A token whose
/// statistics are NaN makes cross-entropy and entropy NaN and counts as a wrong answer.
struct ScoreSummary {
  int64_t tokens = 0;         ///< that take part
  int64_t nan_tokens = 0;     ///< of these, how many have NaN statistics
  double cross_entropy = 0;   ///< mean of -logp, in nats
  double perplexity = 0;      ///< exp(cross_entropy)
  double bits_per_token = 0;  ///< cross_entropy / log(2)
  double accuracy = 0;        ///< share of tokens whose argmax is the target
  double top5_accuracy = 0;   ///< share of tokens whose rank is at most 5
  double mean_entropy = 0;    ///< in nats
  int64_t sequences = 0;      ///< of which at least one token takes part
  int64_t greedy = 0;         ///< of these, how many are greedy
};

/// Sums over the tokens of each sequence that take part.
struct SequenceScores {
  std::vector<double> logp;     ///< of all its targets together, in nats; 0 without a token, NaN with a NaN token
  std::vector<int64_t> tokens;  ///< that take part
  std::vector<uint8_t> greedy;  ///< 1 where every target is the argmax of its row
};

struct ScoreReport {
  io::Config config;
  Job job;  ///< shape and types
  Environment environment;
  bool rank = false;     ///< asked for
  bool entropy = false;  ///< asked for
  ScoreSummary summary;
  std::string written;  ///< the tensors of the file
  double time_s = 0;
  Plan plan;
  std::string output_path;
};

/// Keys that the config's file sets and that score, which computes no loss and no gradient, has no use for.
std::vector<std::string> keys_not_applied(const io::Config& config);

std::string table_of(const ScoreReport& report);
Json json_of(const ScoreReport& report);

}  // namespace logitless::cli

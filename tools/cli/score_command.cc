// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include <memory>

#include "cli/command.h"
#include "cli/score.h"

namespace logitless::cli {
namespace {

constexpr const char* kScoreHelp =
    "Writes the log-probability of each target and of each sequence to a safetensors file";

constexpr const char* kScoreFooter =
    R"(The file holds one entry a row of hidden, [N]:
  logp         float64, log-probability of the target in nats, with the config's temperature
  argmax       int64, the first word with the largest logit
  argmax_logp  float64, its log-probability
  rank         with --rank: int64, 1 + the number of words with a larger logit than the target; equal logits share the
               better rank
  entropy      with --entropy: float64, of the whole distribution, in nats
and one a sequence (--lengths, or batch_size sequences of equal length), over its rows that take part:
  sequence_logp       float64, sum of logp; 0 without such a row
  sequence_tokens     int64, how many rows there are
  sequence_is_greedy  bool, whether every target is the argmax; true without such a row
Rows that take no part (targets[i] is ignore_index; under shift=true, where row i predicts target i + 1, the last row of
a sequence) hold NaN (rank 0, argmax -1), and so do rows whose logits hold a NaN or +inf: these make their sequence's
sum NaN, and it is not greedy.

The summary is of the rows that take part: cross-entropy, perplexity, bits per token, accuracy (argmax is the target),
top-5 accuracy (rank is at most 5), mean entropy, and how many sequences are greedy.

Exit status: 0 done, 2 a bad option, config or input (no file is written), 3 out of memory.

Examples:
  logitless score --hidden states.safetensors --lm-head head.safetensors --targets states.safetensors \
      -o scores.safetensors
  logitless score configs/tiny.yaml --set temperature=0.7 -o scores.safetensors --json -)";

}  // namespace

void add_score(CLI::App& app, Action& action) {
  CLI::App* score = app.add_subcommand("score", kScoreHelp);
  score->footer(kScoreFooter);
  const auto flags = std::make_shared<ConfigFlags>();
  const auto options = std::make_shared<ScoreOptions>();
  flags->add_to(*score);
  add_head_flags(*score, options->tensors);
  score->add_option("-o,--output", options->output_path, "the safetensors file to write")
      ->type_name("FILE")
      ->required();
  score->add_option("--json", options->json_path, "writes the summary as one JSON object; - is standard output")
      ->type_name("FILE");
  score->add_flag("--rank", options->rank, "computes the target's rank too: the logits are computed twice");
  score->add_flag("--entropy", options->entropy, "computes the entropy of each row's distribution too");
  add_profile_flag(*score, options->profile_path);
  score->add_flag("--quiet", options->quiet, "prints no summary and no progress");
  score->callback([=, &action] {
    options->config_path = flags->path();
    options->assignments = flags->assignments;
    action = [=] { return run_score(*options); };
  });
}

}  // namespace logitless::cli

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include <memory>

#include "cli/command.h"
#include "cli/score.h"

namespace logitless::cli {
namespace {

constexpr const char* kScoreHelp = "Writes log-probability, entropy and rank of each target to a safetensors file";

constexpr const char* kScoreFooter =
    R"(The file holds four tensors [N], one entry a row of hidden:
  logp     float64, log-probability of the target in nats, with the config's temperature
  entropy  float64, of the whole distribution, in nats
  rank     int64, 1 + the number of words with a larger logit than the target; equal logits share the better rank
  argmax   int64, the first word with the largest logit
Rows that take no part (targets[i] is ignore_index; under shift=true, where row i predicts target i + 1, the last row of
a sequence) hold NaN, NaN, 0 and -1, and so do rows whose logits hold a NaN or +inf.

The summary is of the rows that take part: cross-entropy, perplexity, bits per token, accuracy (argmax is the target),
top-5 accuracy (rank is at most 5) and mean entropy.

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
  add_profile_flag(*score, options->profile_path);
  score->add_flag("--quiet", options->quiet, "prints no summary and no progress");
  score->callback([=, &action] {
    options->config_path = flags->path();
    options->assignments = flags->assignments;
    action = [=] { return run_score(*options); };
  });
}

}  // namespace logitless::cli

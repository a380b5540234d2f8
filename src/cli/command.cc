// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "cli/command.h"

namespace logitless::cli {

void add_set_flag(CLI::App& command, std::vector<std::string>& assignments) {
  command.add_option("--set", assignments, "sets one key of the config, for example model.dtype=bfloat16; repeatable")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
}

void ConfigFlags::add_to(CLI::App& command) {
  auto* free_argument = command.add_option("CONFIG", positional, "a YAML config, as --config");
  command.add_option("--config", config, "a YAML config")->type_name("FILE")->excludes(free_argument);
  add_set_flag(command, assignments);
}

std::optional<std::string> ConfigFlags::path() const {
  if (!config.empty()) return config;
  if (!positional.empty()) return positional;
  return std::nullopt;
}

void add_tensor_flags(CLI::App& command, TensorPaths& paths) {
  const auto tensor = [&](const char* name, std::string& path, const char* help) {
    return command.add_option(name, path, help)->type_name("FILE[:TENSOR]");
  };
  auto* hidden = tensor("--hidden", paths.hidden, "hidden states [N, H], safetensors");
  auto* head = tensor("--lm-head", paths.lm_head, "LM head [V, H] or [H, V]");
  auto* logits = tensor("--logits", paths.logits, "finished logits [N, V], at level logits");
  auto* targets = tensor("--targets", paths.targets, "word ids [N], int32 or int64");
  hidden->needs(head)->needs(targets)->excludes(logits);
  head->needs(hidden);
  logits->needs(targets);
  tensor("--lengths", paths.lengths, "lengths of packed sequences, summing to N")->needs(hidden);
  tensor("--bias", paths.bias, "bias of the head [V]")->needs(hidden);
  tensor("--mask", paths.mask, "grpo: which tokens count [N], bool or uint8")->needs(targets);
  tensor("--advantages", paths.advantages, "grpo: one a sequence [B] or a token [N]")->needs(targets);
  tensor("--old-logps", paths.old_logps, "grpo: log-probabilities under the old policy [N]")->needs(targets);
  tensor("--ref-logps", paths.ref_logps, "grpo, dpo, kto: the same under the reference [N]")->needs(targets);
  tensor("--sampling-logps", paths.sampling_logps, "grpo: the same under the sampler [N]")->needs(targets);
  tensor("--labels", paths.labels, "kto: which sequences are desirable [B], bool or uint8")->needs(targets);
  tensor("--kl-logps", paths.kl_logps, "kto: sums of mismatched completions under the policy")->needs(targets);
  tensor("--kl-ref-logps", paths.kl_ref_logps, "kto: and under the reference")->needs(targets);
}

}  // namespace logitless::cli

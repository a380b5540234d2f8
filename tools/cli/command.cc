// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "cli/command.h"

#include "cli/report_text.h"

namespace logitless::cli {

void add_set_flag(CLI::App& command, std::vector<std::string>& assignments) {
  command.add_option("--set", assignments, "sets one key of the config, for example model.dtype=bfloat16; repeatable")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
}

CLI::Validator number_within(double low, double high) {
  const std::string range = format("from %g to %g", low, high);
  const auto check = [=](const std::string& text) {
    double number = 0;
    const bool inside = CLI::detail::lexical_cast(text, number) && number >= low && number <= high;
    return inside ? "" : "must be a number " + range + ", not " + text;
  };
  return CLI::Validator(check, range);
}

void add_profile_flag(CLI::App& command, std::string& path) {
  command
      .add_option("--profile", path,
                  "kernel settings that tune found; by default those of the environment variable LOGITLESS_PROFILE")
      ->type_name("FILE");
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

namespace {

CLI::Option* add_tensor(CLI::App& command, const char* name, std::string& path, const char* help) {
  return command.add_option(name, path, help)->type_name("FILE[:TENSOR]");
}

}  // namespace

void add_head_flags(CLI::App& command, TensorPaths& paths) {
  auto* hidden = add_tensor(command, "--hidden", paths.hidden, "hidden states [N, H] or [B, T, H], safetensors");
  auto* head = add_tensor(command, "--lm-head", paths.lm_head, "LM head [V, H] or [H, V]");
  auto* targets = add_tensor(command, "--targets", paths.targets, "word ids [N] or [B, T], int32 or int64");
  hidden->needs(head)->needs(targets);
  head->needs(hidden);
  targets->needs(hidden);
  add_tensor(command, "--lengths", paths.lengths, "lengths of packed sequences, summing to N")->needs(hidden);
  add_tensor(command, "--bias", paths.bias, "bias of the head [V]")->needs(hidden);
}

void add_tensor_flags(CLI::App& command, TensorPaths& paths) {
  add_head_flags(command, paths);
  auto *hidden = command.get_option("--hidden"), *targets = command.get_option("--targets");
  const auto tensor = [&](const char* name, std::string& path, const char* help) {
    add_tensor(command, name, path, help)->needs(targets);
  };
  tensor("--logits", paths.logits, "finished logits [N, V] or [B, T, V], at level logits");
  hidden->excludes(command.get_option("--logits"));
  targets->remove_needs(hidden);  // they may belong to logits
  tensor("--mask", paths.mask, "grpo: which tokens count [N], bool or uint8");
  tensor("--advantages", paths.advantages, "grpo: one a sequence [B] or a token [N]");
  tensor("--old-logps", paths.old_logps, "grpo: log-probabilities under the old policy [N]");
  tensor("--ref-logps", paths.ref_logps, "grpo, dpo, kto: the same under the reference [N]");
  tensor("--sampling-logps", paths.sampling_logps, "grpo: the same under the sampler [N]");
  tensor("--labels", paths.labels, "kto: which sequences are desirable [B], bool or uint8");
  tensor("--kl-logps", paths.kl_logps, "kto: sums of mismatched completions under the policy");
  tensor("--kl-ref-logps", paths.kl_ref_logps, "kto: and under the reference");
}

}  // namespace logitless::cli

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "cli/command.h"
#include "cli/inputs.h"

namespace logitless::cli {

void add_tensor_flags(CLI::App& command, TensorPaths& paths) {
  const auto tensor = [&](const char* name, std::string& path, const char* help) {
    return command.add_option(name, path, help)->type_name("FILE[:TENSOR]");
  };
  auto* hidden = tensor("--hidden", paths.hidden, "hidden states [N, H], safetensors");
  auto* head = tensor("--lm-head", paths.lm_head, "LM head [V, H] or [H, V], safetensors");
  auto* targets = tensor("--targets", paths.targets, "word ids [N], int32 or int64, safetensors");
  hidden->needs(head)->needs(targets);
  head->needs(hidden);
  targets->needs(hidden);
  tensor("--lengths", paths.lengths, "lengths of packed sequences, summing to N")->needs(hidden);
  tensor("--bias", paths.bias, "bias of the head [V]")->needs(hidden);
}

}  // namespace logitless::cli

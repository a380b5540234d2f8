// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Keys that rule each other out, and keys that the task gives nothing to act on.
#include <algorithm>
#include <initializer_list>
#include <string_view>

#include "io/config.h"
#include "io/config_schema.h"

namespace logitless::io {
namespace {

[[noreturn]] void reject(const Config& config, const std::string& key, const std::string& reason) {
  throw Error(config.place_of(key) + " " + reason);
}

// Rejects every key that is set and begins with one of `keys`.
void reject_set(const Config& config, std::initializer_list<std::string_view> keys, const std::string& reason) {
  for (const auto& [key, place] : config.places) {
    if (std::any_of(keys.begin(), keys.end(), [&, &name = key](std::string_view k) { return name.starts_with(k); })) {
      reject(config, key, reason);
    }
  }
}

void check_kernel(const Config& config) {
  if (config.kernel.dense_backward) {
    const std::pair<const char*, bool> tiles[] = {{"kernel.block_size", config.kernel.block_size != 0},
                                                  {"kernel.time_block", config.kernel.time_block != 0},
                                                  {"kernel.plan", config.kernel.plan != PlanKind::kAuto},
                                                  {"kernel.workspace", config.kernel.workspace_bytes.has_value()}};
    for (const auto& [key, given] : tiles) {
      if (given)
        reject(config, key, "has no meaning with kernel.bwd_impl dense, which has no tiles: leave it out or auto");
    }
  }
}

void check_task(const Config& config) {
  const std::string needs = "has no meaning for task " + std::string(name_of(config.task)) + ": ";
  if (config.task != Task::kGrpo) reject_set(config, {"policy."}, needs + "it belongs to grpo");
  if (config.task != Task::kDpo) reject_set(config, {"preference."}, needs + "it belongs to dpo");
  if (config.task != Task::kKto) reject_set(config, {"kto."}, needs + "it belongs to kto");
  if (config.task != Task::kCrossEntropy) {
    reject_set(config, {"reduction", "label_smoothing", "z_loss", "class_weights", "normaliser", "metrics.accuracy"},
               needs + "it belongs to cross_entropy");
  }
  if (config.task == Task::kDpo || config.task == Task::kKto) {
    reject_set(config, {"tolerances.losses_rel_l2"}, needs + "it has no loss a token");
  }
  if (config.task == Task::kGrpo)
    reject_set(config, {"ignore_index", "shift"}, needs + "a mask says which tokens count");
  if (config.task == Task::kDpo && config.batch_size % 2 != 0) {
    reject(config, "batch_size",
           "is " + std::to_string(config.batch_size) +
               ", but task dpo needs an even number of sequences: the chosen ones, then the rejected ones");
  }
  if (!config.preference_weights.empty() && config.preference_weights.size() != config.preference.terms.size()) {
    reject(config, "preference.loss_weights",
           "has " + std::to_string(config.preference_weights.size()) + " entries, but preference.losses has " +
               std::to_string(config.preference.terms.size()));
  }
  if (config.policy.on_policy) reject_set(config, {"policy.log_ratio_deviation"}, "needs policy.on_policy false");
}

void check_level(const Config& config) {
  if (config.level == Level::kFused) {
    reject_set(config, {"kernel.in_place"}, "needs level logits: at level fused there are no logits to replace");
    return;
  }
  if (config.task != Task::kCrossEntropy && config.task != Task::kGrpo) {
    reject(config, "level", "is logits, but task " + std::string(name_of(config.task)) + " has level fused alone");
  }
  reject_set(config, {"gradients.d_", "kernel.gemm_backend"}, "needs level fused: at level logits there is no head");
  if (config.model.softcap != 0) reject(config, "model.softcap", "needs level fused: logits are final");
  if (config.model.bias) reject(config, "model.bias", "needs level fused: logits are final");
  if (config.kernel.in_place && config.gradients.float32 && size_of(config.model.dtype) == 2) {
    reject(config, "kernel.in_place", "needs gradients.dtype same: the gradient replaces the logits");
  }
}

}  // namespace

void check_together(const Config& config) {
  check_kernel(config);
  check_task(config);
  check_level(config);
  if (config.normaliser && config.reduction != Reduction::kMean) reject(config, "normaliser", "needs reduction mean");
  const bool one_loss = config.task == Task::kCrossEntropy && config.level == Level::kFused;
  if (config.tolerances.losses_rel_l2 && one_loss && config.reduction != Reduction::kNone) {
    reject(config, "tolerances.losses_rel_l2",
           "needs reduction none: otherwise there is one loss, which loss_atol bounds");
  }
}

}  // namespace logitless::io

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "cli/compare/outputs.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "io/safetensors.h"
#include "oracle/deviation.h"

namespace logitless::cli {

Differences differences_of(const Outputs& a, const Outputs& b) {
  Differences out;
  const auto add = [&](const std::string& name, const ConstTensor& left, const ConstTensor& right) {
    if (!left.given()) return;
    const int64_t cols = left.axes == 1 ? 1 : left.last_size();
    oracle::Deviation deviation;
    deviation.add({left.data, left.dtype, cols, 1}, {right.data, right.dtype, cols, 1},
                  left.count() / std::max<int64_t>(1, cols), cols);
    out[name] = {deviation.max_abs(), deviation.rel_l2()};
  };
  if (!a.losses.empty()) add("losses", a.losses, b.losses);
  for (const char* name : kGradients) add(name, a.job[name].view, b.job[name].view);
  return out;
}

std::vector<io::Gate> gates_of(const io::Config& config, const Job& job, double tokens, const io::TermSpacing& spacing,
                               double loss_abs, const Differences& differences) {
  const io::Tolerances limits = io::tolerances_of(job.dtype, job.gradient_dtype, spacing, config.parallel.data > 1);
  const double loss_atol = config.tolerance("loss_atol", limits.loss_atol);
  std::vector<io::Gate> gates = {io::make_gate("loss_atol", loss_abs, loss_limit(config, job, tokens, loss_atol))};
  const auto add = [&](const std::string& name, double limit) {
    const auto found = differences.find(name);
    if (found == differences.end()) return;
    // Sampled gradients have no default gate: only the user can say how far from exact they may be.
    const std::string gate = name + "_rel_l2";
    const bool of_sample = config.backward.mode != BackwardMode::kExact && name != "losses";
    if (of_sample && !config.is_set("tolerances." + gate)) return;
    gates.push_back(io::make_gate(gate, found->second.rel_l2, config.tolerance(gate, limit)));
  };
  add("losses", limits.losses_rel_l2);
  add("d_hidden", limits.d_hidden_rel_l2);
  for (const char* name : {"d_weight", "d_bias", "d_lora_a", "d_lora_b"}) add(name, limits.of_head_rel_l2);
  return gates;
}

Json difference_json(double loss_abs, const Differences& differences, const Job& job) {
  Json json = {{"loss_abs", loss_abs}};
  const auto add = [&](const std::string& name, bool with_max) {
    const auto found = differences.find(name);
    const bool has_difference = found != differences.end();
    if (with_max) json[name + "_max_abs"] = has_difference ? Json(found->second.max_abs) : Json();
    json[name + "_rel_l2"] = has_difference ? Json(found->second.rel_l2) : Json();
  };
  if (differences.contains("losses")) add("losses", true);
  add("d_hidden", true);
  add("d_weight", false);
  if (job.has("bias")) add("d_bias", false);
  if (job.has("lora_a")) add("d_lora_a", false), add("d_lora_b", false);
  return json;
}

void write_outputs(const std::string& path, const Job& job, double loss) {
  std::vector<io::TensorToWrite> tensors = {{"loss", "F64", {}, &loss}};
  for (const char* name : kGradients) {
    const ConstTensor& view = job[name].view;
    const std::vector<int64_t> shape(view.sizes.begin(), view.sizes.begin() + view.axes);
    if (view.given()) tensors.push_back({name, io::spelling_of(view.dtype), shape, view.data});
  }
  io::write_safetensors(path, tensors);
}

}  // namespace logitless::cli

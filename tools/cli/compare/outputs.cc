// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "cli/compare/outputs.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "io/safetensors.h"
#include "oracle/deviation.h"

namespace logitless::cli {

TensorBytes bytes_of_values(const std::vector<double>& values) {
  return {reinterpret_cast<const std::byte*>(values.data()), values.size() * sizeof(double)};
}

Differences differences_of(const Outputs& a, const Outputs& b) {
  Differences out;
  const auto add = [&](const char* name, const TensorBytes& left, const TensorBytes& right, DType dtype, int64_t cols) {
    if (!left) return;
    oracle::Deviation deviation;
    deviation.add({left.data, dtype, cols, 1}, {right.data, dtype, cols, 1},
                  left.count(size_of(dtype)) / std::max<int64_t>(1, cols), cols);
    out[name] = {deviation.max_abs(), deviation.rel_l2()};
  };
  add("losses", bytes_of_values(a.losses), bytes_of_values(b.losses), DType::kFloat64, 1);
  const auto gradient = [&](const char* name, TensorId id, int64_t cols) {
    add(name, a.job[id], b.job[id], a.job.gradient_dtype, cols);
  };
  gradient("d_hidden", TensorId::kDHidden, a.job.hidden_size);
  gradient("d_weight", TensorId::kDWeight, a.job.hidden_size);
  gradient("d_bias", TensorId::kDBias, 1);
  gradient("d_lora_a", TensorId::kDLoraA, a.job.hidden_size);
  gradient("d_lora_b", TensorId::kDLoraB, a.job.lora_rank);
  return out;
}

std::vector<io::Gate> gates_of(const io::Config& config, const Job& job, double tokens, const io::TermSpacing& spacing,
                               double loss_abs, const Differences& differences) {
  const io::Tolerances limits =
      io::resolve(config.tolerances, job.dtype, job.gradient_dtype, spacing, config.parallel.data > 1);
  std::vector<io::Gate> gates = {
      io::make_gate("loss_atol", loss_abs, loss_limit(config, job, tokens, limits.loss_atol))};
  const std::pair<const char*, double> limits_by_name[] = {
      {"losses", limits.losses_rel_l2}, {"d_hidden", limits.d_hidden_rel_l2}, {"d_weight", limits.d_weight_rel_l2},
      {"d_bias", limits.d_bias_rel_l2}, {"d_lora_a", limits.d_lora_a_rel_l2}, {"d_lora_b", limits.d_lora_b_rel_l2}};
  for (const auto& [name, limit] : limits_by_name) {
    const auto found = differences.find(name);
    if (found == differences.end()) continue;
    // How far gradients of a sample lie from exact ones is for the user to say.
    const std::string key = std::string("tolerances.") + name + "_rel_l2";
    const bool of_sample = config.backward.mode != BackwardMode::kExact && std::string_view(name) != "losses";
    if (of_sample && !config.is_set(key)) continue;
    gates.push_back(io::make_gate(std::string(name) + "_rel_l2", found->second.rel_l2, limit));
  }
  return gates;
}

Json difference_json(double loss_abs, const Differences& differences, const Job& job) {
  Json json = {{"loss_abs", loss_abs}};
  const auto add = [&](const std::string& name, bool with_max) {
    const auto found = differences.find(name);
    const bool there = found != differences.end();
    if (with_max) json[name + "_max_abs"] = there ? Json(found->second.max_abs) : Json();
    json[name + "_rel_l2"] = there ? Json(found->second.rel_l2) : Json();
  };
  if (differences.contains("losses")) add("losses", true);
  add("d_hidden", true);
  add("d_weight", false);
  if (job.has(TensorId::kBias)) add("d_bias", false);
  if (job.has(TensorId::kLoraA)) add("d_lora_a", false), add("d_lora_b", false);
  return json;
}

void write_outputs(const std::string& path, const Job& job, double loss) {
  const std::string dtype = io::spelling_of(job.gradient_dtype);
  std::vector<int64_t> of_weight = {job.vocab_size, job.hidden_size};
  if (job.layout == HeadLayout::kHiddenVocab) std::swap(of_weight[0], of_weight[1]);
  std::vector<io::TensorToWrite> tensors = {{"loss", "F64", {}, &loss}};
  const auto add = [&](const char* name, TensorId id, const std::vector<int64_t>& shape) {
    if (job.has(id)) tensors.push_back({name, dtype, shape, job[id].data});
  };
  add("d_hidden", TensorId::kDHidden, {job.tokens, job.hidden_size});
  add("d_weight", TensorId::kDWeight, of_weight);
  add("d_bias", TensorId::kDBias, {job.vocab_size});
  add("d_lora_a", TensorId::kDLoraA, {job.lora_rank, job.hidden_size});
  add("d_lora_b", TensorId::kDLoraB, {job.vocab_size, job.lora_rank});
  io::write_safetensors(path, tensors);
}

}  // namespace logitless::cli

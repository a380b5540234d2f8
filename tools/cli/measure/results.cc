// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "cli/measure/results.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "oracle/deviation.h"

namespace logitless::cli {

Differences differences_of(const Results& a, const Results& b) {
  Differences out;
  const auto add = [&](const char* name, const TensorBytes& left, const TensorBytes& right, DType dtype, int64_t cols) {
    if (!left) return;
    oracle::Deviation deviation;
    deviation.add({left.data, dtype, cols, 1}, {right.data, dtype, cols, 1},
                  left.count(size_of(dtype)) / std::max<int64_t>(1, cols), cols);
    out[name] = {deviation.max_abs(), deviation.rel_l2()};
  };
  const auto losses_of = [](const Results& results) {
    const std::vector<double>& losses = results.result.per_token_loss;
    return TensorBytes{reinterpret_cast<const std::byte*>(losses.data()), losses.size() * sizeof(double)};
  };
  add("losses", losses_of(a), losses_of(b), DType::kFloat64, 1);
  const auto gradient = [&](const char* name, TensorId id, int64_t cols) {
    add(name, a.job[id], b.job[id], a.job.gradient_dtype, cols);
  };
  gradient("d_hidden", TensorId::kDHidden, a.job.hidden_size);
  gradient("d_weight", TensorId::kDWeight, a.job.hidden_size);
  gradient("d_bias", TensorId::kDBias, 1);
  return out;
}

Json differences_json(const Differences& differences) {
  Json json = Json::object();
  for (const auto& [name, difference] : differences) {
    json[name] = {{"max_abs", difference.max_abs}, {"rel_l2", difference.rel_l2}};
  }
  return json;
}

Differences differences_of(const Json& json) {
  Differences out;
  for (const auto& [name, figures] : json.items()) {
    out[name] = {number_of(figures.at("max_abs")), number_of(figures.at("rel_l2"))};
  }
  return out;
}

void write_results(const std::string& path, const Results& results) {
  const Job& job = results.job;
  const std::string dtype = io::spelling_of(job.gradient_dtype);
  std::vector<int64_t> of_weight = {job.vocab_size, job.hidden_size};
  if (job.layout == HeadLayout::kHiddenVocab) std::swap(of_weight[0], of_weight[1]);
  std::vector<io::TensorToWrite> tensors = {{"loss", "F64", {}, &results.result.loss}};
  const auto add = [&](const char* name, TensorId id, const std::vector<int64_t>& shape) {
    if (job.has(id)) tensors.push_back({name, dtype, shape, job[id].data});
  };
  add("d_hidden", TensorId::kDHidden, {job.tokens, job.hidden_size});
  add("d_weight", TensorId::kDWeight, of_weight);
  add("d_bias", TensorId::kDBias, {job.vocab_size});
  io::write_safetensors(path, tensors);
}

}  // namespace logitless::cli

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "cli/compare/agreement.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

namespace logitless::cli {

Agreement make_agreement(const io::Config& config, const Job& job, double tokens, double spacing, double loss_abs,
                         Differences differences) {
  Agreement out{loss_abs, std::move(differences), {}};
  const io::Tolerances limits =
      io::resolve(config.tolerances, job.dtype, job.gradient_dtype, spacing, config.parallel.data > 1);
  out.gates.push_back(io::make_gate("loss_atol", loss_abs, loss_limit(config, job, tokens, limits.loss_atol)));
  const auto gate = [&](const std::string& name, double limit) {
    const auto found = out.differences.find(name);
    if (found != out.differences.end())
      out.gates.push_back(io::make_gate(name + "_rel_l2", found->second.rel_l2, limit));
  };
  gate("losses", limits.losses_rel_l2);
  gate("d_hidden", limits.d_hidden_rel_l2);
  gate("d_weight", limits.d_weight_rel_l2);
  gate("d_bias", limits.d_bias_rel_l2);
  return out;
}

Json difference_json(const Agreement& agreement, bool has_bias) {
  Json json = {{"loss_abs", agreement.loss_abs}};
  const auto add = [&](const std::string& name, bool with_max) {
    const auto found = agreement.differences.find(name);
    const bool there = found != agreement.differences.end();
    if (with_max) json[name + "_max_abs"] = there ? Json(found->second.max_abs) : Json();
    json[name + "_rel_l2"] = there ? Json(found->second.rel_l2) : Json();
  };
  if (agreement.differences.contains("losses")) add("losses", true);
  add("d_hidden", true);
  add("d_weight", false);
  if (has_bias) add("d_bias", false);
  return json;
}

std::string agreement_text(const io::Config& config, const Agreement& agreement) {
  std::string text = gates_text("difference", agreement.gates);
  for (const std::string name : {"d_hidden", "losses"}) {
    const auto found = agreement.differences.find(name);
    if (found == agreement.differences.end()) continue;
    text += format("%-18s %14.3e\n", (name + "_max_abs").c_str(), found->second.max_abs);
  }
  for (const std::string& name : gates_not_applied(config, agreement.gates)) {
    text += format("%-18s %14s %14s   not compared here: it belongs to gradcheck or to an output not asked for\n",
                   name.c_str(), "-", "-");
  }
  return text;
}

double ratio(double a, double b) { return b > 0 ? a / b : std::nan(""); }

}  // namespace logitless::cli

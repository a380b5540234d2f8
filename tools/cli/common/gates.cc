// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "cli/common/gates.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace logitless::cli {
namespace {

double tokens_per_sequence(const Job& job, double tokens) {
  return tokens / static_cast<double>(std::max<int64_t>(1, job.sequences));
}

double tokens_in_loss(const PolicyLoss& options, const Job& job, double tokens) {
  const bool has_ratio_of_sequence =
      options.loss_type == PolicyLossType::kRloo || options.loss_type == PolicyLossType::kVespo;
  const double tokens_per_ratio = has_ratio_of_sequence ? tokens_per_sequence(job, tokens) : 1;
  const double sequences = static_cast<double>(std::max<int64_t>(1, job.sequences));
  const double shares = options.num_sequences ? sequences / *options.num_sequences : 1;
  switch (aggregation_of(options)) {
    case PolicyAggregation::kTokenMean:
      return options.num_items_in_batch ? tokens_per_ratio * tokens / *options.num_items_in_batch : tokens_per_ratio;
    case PolicyAggregation::kTokenSum:
      return tokens;
    case PolicyAggregation::kSeqMeanTokenSum:
      return tokens_per_sequence(job, tokens) * shares;
    default:
      return tokens_per_ratio * shares;
  }
}

// The loss is a mean over tokens of sums over their ids.
double tokens_in_loss(const IdLogps&, const Job& job, double /*tokens*/) {
  return static_cast<double>(job["set_ids"].view.count()) / std::max(1.0, static_cast<double>(job.tokens));
}

// Returns the mean of the token weights; weights of ignored tokens may be anything.
double mean_token_weight(const Job& job) {
  const std::span<const double> weights = job["token_weights"].values<double>();
  if (weights.empty()) return 1;
  double sum = 0;
  for (const double weight : weights) sum += std::isfinite(weight) ? weight : 0;
  return sum / static_cast<double>(weights.size());
}

double tokens_in_loss(const auto& options, const Job& job, double tokens) {
  if constexpr (requires { options.average_log_prob; }) {  // of a sequence's sum
    return options.average_log_prob ? 1 : tokens_per_sequence(job, tokens);
  } else {
    double summed = tokens * mean_token_weight(job);
    if (options.reduction != Reduction::kMean) return summed;
    if (summed == 0) return 1.0;
    double counted = tokens;  // the mean's divisor without num_items_in_batch
    if (options.mean_over == MeanOver::kTokenWeights) counted = summed;
    const bool of_sequences =
        options.mean_over == MeanOver::kSequences || options.mean_over == MeanOver::kSequenceMeans;
    if (of_sequences) counted = static_cast<double>(std::max<int64_t>(1, job.sequences));
    if (options.mean_over == MeanOver::kSequenceMeans) summed *= counted / tokens;
    return summed / options.num_items_in_batch.value_or(counted);
  }
}

}  // namespace

double loss_limit(const io::Config& config, const Job& job, double tokens, double loss_atol) {
  double counted = 0;
  io::for_each_task([&]<class Task> {
    if (config.runs<Task>()) counted = tokens_in_loss(config.of<Task>(), job, tokens);
  });
  return loss_atol * counted * std::abs(config.of<CrossEntropy>().loss_scale);
}

double error_growth(const io::Config& config, const Job& job, double tokens) {
  const PolicyLossType variant = config.of<PolicyLoss>().loss_type;
  const bool whole_sequences = variant == PolicyLossType::kRloo || variant == PolicyLossType::kVespo;
  if (!config.runs<PolicyLoss>() || !whole_sequences) return 1;
  return std::max(1.0, std::sqrt(tokens_per_sequence(job, tokens)));
}

bool all_pass(std::span<const io::Gate> gates) {
  return std::all_of(gates.begin(), gates.end(), [](const io::Gate& gate) { return gate.pass; });
}

std::vector<std::string> gates_not_applied(const io::Config& config, std::span<const io::Gate> gates) {
  std::vector<std::string> names;
  for (const auto& [key, place] : config.places) {
    if (!key.starts_with("tolerances.")) continue;
    const std::string name = key.substr(key.find('.') + 1);
    const auto applied = [&](const io::Gate& gate) { return gate.name == name; };
    if (std::none_of(gates.begin(), gates.end(), applied)) names.push_back(name);
  }
  return names;
}

Json gates_json(std::span<const io::Gate> gates) {
  Json json = Json::array();
  for (const io::Gate& gate : gates) {
    json.push_back({{"name", gate.name}, {"value", gate.value}, {"limit", gate.limit}, {"pass", gate.pass}});
  }
  return json;
}

std::string gates_text(const std::string& what, const Json& gates) {
  std::string text = format("%-18s %14s %14s\n", what.c_str(), "value", "tolerance");
  for (const Json& gate : gates) {
    text += format("%-18s %14.3e %14.3e   %s\n", gate["name"].get<std::string>().c_str(), number_of(gate["value"]),
                   number_of(gate["limit"]), gate["pass"] ? "pass" : "FAIL");
  }
  return text;
}

std::string not_applied_text(const Json& names, const std::string& why) {
  std::string text;
  for (const std::string name : names) text += format("%-18s %14s %14s   %s\n", name.c_str(), "-", "-", why.c_str());
  return text;
}

}  // namespace logitless::cli

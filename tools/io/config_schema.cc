// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "io/config_schema.h"

#include <algorithm>
#include <numeric>

#include "io/config_rules.h"

#include "logitless/context.h"

namespace logitless::io {
namespace {

// A name the library offers at run time, or auto.
std::string read_offered(const ConfigValue& value, const std::vector<std::string>& offered) {
  std::vector<std::pair<std::string, std::string>> choices = {{"auto", "auto"}};
  for (const std::string& name : offered) choices.emplace_back(name, name);
  return read_choice(value, choices);
}

TemperatureConfig read_temperature(const ConfigValue& value) {
  Interval positive = kPositive;
  positive.text = "a finite number above 0, or a list [low, high] of two";
  if (!value.node.IsSequence()) {
    const double scalar = read_number(value, positive);
    return {scalar, scalar};
  }
  if (value.node.size() != 2) value.reject(positive.text);
  const TemperatureConfig range{read_number({value.key, value.place, value.node[0]}, positive),
                                read_number({value.key, value.place, value.node[1]}, positive)};
  if (!(range.low < range.high)) value.reject("a list [low, high] with low below high");
  return range;
}

void add_model_rules(std::vector<KeyRule>& rules) {
  rules.push_back(rule("model.name", path(&Config::model, &ModelConfig::name), read_text));
  rules.push_back(rule("model.hidden_size", path(&Config::model, &ModelConfig::hidden_size), integer(1, kMaxSize)));
  rules.push_back(rule("model.vocab_size", path(&Config::model, &ModelConfig::vocab_size), integer(1, kMaxSize)));
  rules.push_back(rule(
      "model.layout", path(&Config::model, &ModelConfig::layout),
      choice<HeadLayout>({{"hidden_vocab", HeadLayout::kHiddenVocab}, {"vocab_hidden", HeadLayout::kVocabHidden}})));
  rules.push_back(rule("model.dtype", path(&Config::model, &ModelConfig::dtype),
                       choice<DType>({{"float32", DType::kFloat32},
                                      {"bfloat16", DType::kBFloat16},
                                      {"float16", DType::kFloat16},
                                      {"float64", DType::kFloat64}})));
  rules.push_back(rule("model.softcap", path(&Config::model, &ModelConfig::softcap),
                       number({.low = 0, .text = "a finite number above 0, or 0 for none"})));
  rules.push_back(rule("model.bias", path(&Config::model, &ModelConfig::bias), read_bool));
}

void add_loss_rules(std::vector<KeyRule>& rules) {
  rules.push_back(rule("ignore_index", &Config::ignore_index, integer(kAnyLow)));
  rules.push_back(rule("ignored_fraction", &Config::ignored_fraction, number(kShare)));
  rules.push_back(rule("temperature", &Config::temperature, read_temperature));
  rules.push_back(rule("temperature_meaning", &Config::temperature_meaning,
                       choice<TemperatureMeaning>({{"scale_logits", TemperatureMeaning::kScaleLogits},
                                                   {"scale_logp", TemperatureMeaning::kScaleLogp}})));
  rules.push_back(rule("round_logits_to", &Config::round_logits_to,
                       none_or(choice<DType>({{"bfloat16", DType::kBFloat16}, {"float16", DType::kFloat16}}))));
  rules.push_back(
      rule("reduction", &Config::reduction,
           choice<Reduction>({{"mean", Reduction::kMean}, {"sum", Reduction::kSum}, {"none", Reduction::kNone}})));
  rules.push_back(rule("label_smoothing", &Config::label_smoothing, number(kShare)));
  rules.push_back(rule("z_loss", &Config::z_loss, number(kNotNegative)));
  rules.push_back(rule("class_weights", &Config::class_weights, read_bool));
  rules.push_back(rule("loss_scale", &Config::loss_scale, number(kFinite)));
  rules.push_back(rule("normaliser", &Config::normaliser, number(kPositive)));
  rules.push_back(rule("shift", &Config::shift, read_bool));
  rules.push_back(rule("metrics.accuracy", &Config::accuracy, read_bool));
  rules.push_back(rule("metrics.entropy", &Config::entropy, read_bool));
}

void add_kernel_rules(std::vector<KeyRule>& rules) {
  rules.push_back(
      rule("kernel.block_size", path(&Config::kernel, &KernelConfig::block_size), auto_or(integer(1, kMaxSize))));
  rules.push_back(
      rule("kernel.time_block", path(&Config::kernel, &KernelConfig::time_block), auto_or(integer(1, kMaxSize))));
  rules.push_back(rule("kernel.bwd_impl", path(&Config::kernel, &KernelConfig::dense_backward),
                       choice<bool>({{"fused", false}, {"dense", true}})));
  rules.push_back(
      rule("kernel.plan", path(&Config::kernel, &KernelConfig::plan),
           choice<PlanKind>(
               {{"auto", PlanKind::kAuto}, {"one_pass", PlanKind::kOnePass}, {"two_pass", PlanKind::kTwoPass}})));
  rules.push_back(rule("kernel.workspace", path(&Config::kernel, &KernelConfig::workspace_bytes),
                       [](const ConfigValue& value) -> std::optional<size_t> {
                         if (is_auto(value)) return std::nullopt;
                         return read_bytes(value, true);
                       }));
  rules.push_back(rule("kernel.in_place", path(&Config::kernel, &KernelConfig::in_place), read_bool));
  rules.push_back(rule("kernel.gemm_backend", path(&Config::kernel, &KernelConfig::gemm_backend),
                       [](const ConfigValue& value) { return read_offered(value, gemm_backends()); }));
  rules.push_back(rule("kernel.simd_target", path(&Config::kernel, &KernelConfig::simd_target),
                       [](const ConfigValue& value) { return read_offered(value, simd_targets()); }));
  rules.push_back(rule("gradients.d_hidden", path(&Config::gradients, &GradientConfig::d_hidden), read_bool));
  rules.push_back(rule("gradients.d_weight", path(&Config::gradients, &GradientConfig::d_weight), read_bool));
  rules.push_back(rule("gradients.d_bias", path(&Config::gradients, &GradientConfig::d_bias), read_bool));
  rules.push_back(rule("gradients.dtype", path(&Config::gradients, &GradientConfig::float32),
                       choice<bool>({{"same", false}, {"float32", true}})));
}

void add_tolerance_rules(std::vector<KeyRule>& rules) {
  const std::pair<const char*, std::optional<double> ToleranceConfig::*> members[] = {
      {"loss_atol", &ToleranceConfig::loss_atol},
      {"losses_rel_l2", &ToleranceConfig::losses_rel_l2},
      {"d_hidden_rel_l2", &ToleranceConfig::d_hidden_rel_l2},
      {"d_weight_rel_l2", &ToleranceConfig::d_weight_rel_l2},
      {"d_bias_rel_l2", &ToleranceConfig::d_bias_rel_l2},
      {"dlogits_max_abs", &ToleranceConfig::dlogits_max_abs},
      {"dlogits_max_rel", &ToleranceConfig::dlogits_max_rel},
      {"dlogits_rel_l2", &ToleranceConfig::dlogits_rel_l2},
      {"logp_max_abs", &ToleranceConfig::logp_max_abs}};
  for (const auto& [name, member] : members) {
    rules.push_back(rule(std::string("tolerances.") + name, path(&Config::tolerances, member), number(kNotNegative)));
  }
}

std::vector<KeyRule> build_schema() {
  std::vector<KeyRule> rules;
  rules.push_back(rule(
      "task", &Config::task,
      choice<Task>(
          {{"cross_entropy", Task::kCrossEntropy}, {"grpo", Task::kGrpo}, {"dpo", Task::kDpo}, {"kto", Task::kKto}})));
  rules.push_back(rule("level", &Config::level, choice<Level>({{"fused", Level::kFused}, {"logits", Level::kLogits}})));
  add_model_rules(rules);
  rules.push_back(rule("batch_size", &Config::batch_size, integer(1, kMaxSize)));
  rules.push_back(rule("seq_len", &Config::seq_len, integer(0, kMaxSize)));
  rules.push_back(rule("seed", &Config::seed, integer(0)));
  rules.push_back(rule("threads", &Config::threads, [](const ConfigValue& value) {
    return is_auto(value) ? 0 : static_cast<int>(read_integer(value, 1, 4096));
  }));
  add_loss_rules(rules);
  add_policy_rules(rules);
  add_preference_rules(rules);
  add_kernel_rules(rules);
  add_tolerance_rules(rules);
  return rules;
}

size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row[b.size()];
}

std::string last_part(const std::string& key) { return key.substr(key.rfind('.') + 1); }

}  // namespace

const char* name_of(Task task) {
  static constexpr const char* kNames[] = {"cross_entropy", "grpo", "dpo", "kto"};
  return kNames[static_cast<size_t>(task)];
}

const char* name_of(Level level) { return level == Level::kFused ? "fused" : "logits"; }

const std::vector<KeyRule>& config_schema() {
  static const std::vector<KeyRule> schema = build_schema();
  return schema;
}

bool is_section(const std::string& name) {
  return std::any_of(config_schema().begin(), config_schema().end(),
                     [&](const KeyRule& r) { return r.key.starts_with(name + "."); });
}

std::string suggestion_for(const std::string& key) {
  constexpr size_t kLongestSlip = 100;
  if (key.size() > kLongestSlip) return "";  // The distance below takes time in proportion.
  std::string best;
  size_t best_distance = std::numeric_limits<size_t>::max();
  const auto consider = [&](const std::string& known) {
    // The right word in the wrong section is as good as a small slip.
    const size_t distance = last_part(known) == last_part(key) ? 1 : edit_distance(key, known);
    if (distance < best_distance) {
      best = known;
      best_distance = distance;
    }
  };
  for (const KeyRule& r : config_schema()) {
    consider(r.key);
    if (r.key.find('.') != std::string::npos) consider(r.key.substr(0, r.key.find('.')));
  }
  return best_distance <= std::max<size_t>(2, key.size() / 4) ? "; did you mean " + best + "?" : "";
}

}  // namespace logitless::io

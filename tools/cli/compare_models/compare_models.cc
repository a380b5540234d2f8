// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// `logitless compare-models`: compares a model with another one on the same text, token by token, from the
// hidden states and the head of each, without logits.
#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/common/command_line.h"
#include "cli/common/model_files.h"
#include "cli/common/output.h"
#include "cli/measure/one_call.h"
#include "logitless/run.h"
#include "logitless/token_stats.h"
#include "timing/statistics.h"

namespace logitless::cli {
namespace {

constexpr const char* kHelp =
    "Measures how far a model, such as a quantised one, is from its base on the same text, as KL per token";

constexpr const char* kFooter =
    R"(Each model is given as the hidden states [N, H] of the same N tokens and a head. Hidden sizes and types may differ; the
vocabulary must be the same. Prints the mean of KL(base || model) with its standard error, percentiles, and the share of
tokens for which both models predict the same most likely token. With --targets it also prints both perplexities, their
ratio, and the change in the target's probability. `man logitless-compare-models` explains them.

Exit status: 0 done, 2 a bad option or input (no file is written), 3 out of memory.

Examples:
  logitless compare-models --base-hidden base.safetensors --base-lm-head head.safetensors \
      --hidden q4.safetensors --lm-head q4_head.safetensors --targets base.safetensors)";

// The files of one model.
struct ModelPaths {
  std::string hidden, head, bias, lora;
  std::optional<double> softcap;  // none: the softcap in the head's file
};

struct Options {
  ModelPaths model, base;
  std::string targets;
  int threads = 0;
  std::string output_path, json_path;
  bool quiet = false;
};

// Values of the tokens that count, none of them NaN.
class Numbers {
 public:
  void add(double value) { values_.push_back(value); }

  double mean() const {
    double sum = 0;
    for (const double value : values_) sum += value;
    return values_.empty() ? kNone : sum / static_cast<double>(values_.size());
  }
  // Returns the standard error of the mean, as if tokens were independent.
  double standard_error() const {
    if (values_.size() < 2) return kNone;
    const double middle = mean();
    double squares = 0;
    for (const double value : values_) squares += (value - middle) * (value - middle);
    const auto count = static_cast<double>(values_.size());
    return std::sqrt(squares / (count - 1) / count);
  }
  double root_mean_square() const {
    double squares = 0;
    for (const double value : values_) squares += value * value;
    return values_.empty() ? kNone : std::sqrt(squares / static_cast<double>(values_.size()));
  }
  double percentile(double percent) const { return values_.empty() ? kNone : timing::quantile(values_, percent / 100); }

 private:
  static constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  std::vector<double> values_;
};

Json percentiles(const Numbers& numbers) {
  Json out;
  for (const auto& [name, percent] : {std::pair("min", 0.0),
                                      {"p0.1", 0.1},
                                      {"p1", 1.0},
                                      {"p5", 5.0},
                                      {"p10", 10.0},
                                      {"median", 50.0},
                                      {"p90", 90.0},
                                      {"p95", 95.0},
                                      {"p99", 99.0},
                                      {"p99.9", 99.9},
                                      {"max", 100.0}}) {
    out[name] = numbers.percentile(percent);
  }
  return out;
}

Logits read_model(ModelFiles& files, const ModelPaths& paths, const std::string& prefix) {
  const auto name = [&](const char* tensor) { return prefix + tensor; };
  Logits model;
  model.hidden = files.floats(flag_of(name("hidden")), paths.hidden, name("hidden").c_str(), 2);
  const int64_t hidden_size = model.hidden.sizes[1];
  model.head = files.head(flag_of(name("lm_head")), paths.head, name("lm_head").c_str(), hidden_size);
  if (!paths.bias.empty()) model.head.bias = files.floats(flag_of(name("bias")), paths.bias, name("bias").c_str(), 1);
  if (!paths.lora.empty()) {
    model.head.lora = files.lora(flag_of(name("lora")), paths.lora, model.head.stored_entries(), hidden_size);
  }
  if (paths.softcap) model.head.softcap = *paths.softcap;
  return model;
}

Json summary(const DistillationResult& result, const TokenStats& base, const std::vector<int64_t>& targets) {
  Numbers kl, same, model_nll, base_nll, log_ratio, change;
  int64_t tokens = 0, nan_tokens = 0;
  for (size_t i = 0; i < result.per_token_divergence.size(); ++i) {
    if (!targets.empty() && targets[i] == -100) continue;
    ++tokens;
    if (std::isnan(result.per_token_divergence[i])) {
      ++nan_tokens;
      continue;
    }
    kl.add(result.per_token_divergence[i]);
    same.add(result.per_token_agreement[i]);
    if (targets.empty()) continue;
    const double of_model = result.per_token_logps[i], of_base = base.logp[i];
    model_nll.add(-of_model);
    base_nll.add(-of_base);
    log_ratio.add(of_base - of_model);
    change.add(std::exp(of_model) - std::exp(of_base));
  }
  Json out = {{"tokens", tokens},
              {"nan_tokens", nan_tokens},
              {"kl", {{"mean", kl.mean()}, {"standard_error", kl.standard_error()}, {"percentiles", percentiles(kl)}}},
              {"same_top", {{"share", same.mean()}, {"standard_error", same.standard_error()}}}};
  if (targets.empty()) return out;
  const double ratio = std::exp(log_ratio.mean());
  out["perplexity"] = {
      {"model", std::exp(model_nll.mean())},
      {"base", std::exp(base_nll.mean())},
      {"ratio", ratio},
      {"ratio_standard_error", ratio * log_ratio.standard_error()},
      {"log_ratio", log_ratio.mean()},
      {"log_ratio_standard_error", log_ratio.standard_error()},
  };
  out["probability_change"] = {{"mean", change.mean()},
                               {"standard_error", change.standard_error()},
                               {"root_mean_square", change.root_mean_square()},
                               {"percentiles", percentiles(change)}};
  return out;
}

std::string table_of(const Json& json) {
  std::string text;
  const auto line = [&](const char* name, const std::string& value) { text += format("%-26s ", name) + value + "\n"; };
  const auto figure = [&](const char* pattern, const Json& value) {
    char out[64];
    std::snprintf(out, sizeof(out), pattern, number_of(value));
    return std::string(out);
  };
  const auto with_error = [&](const Json& value, const Json& error) {
    return figure("%.6f", value) + " ± " + figure("%.6f", error);
  };
  line("tokens", json["tokens"].dump());
  if (json["nan_tokens"] != 0) line("NaN tokens, left out", json["nan_tokens"].dump());
  const Json& kl = json["kl"];
  line("mean KL(base || model)", with_error(kl["mean"], kl["standard_error"]) + " nats");
  for (const char* name : {"median", "p90", "p99", "p99.9", "max"}) {
    line((std::string("  ") + name).c_str(), figure("%.6f", kl["percentiles"][name]));
  }
  line("same most likely token", with_error(json["same_top"]["share"], json["same_top"]["standard_error"]));
  if (json.contains("perplexity")) {
    const Json& of = json["perplexity"];
    line("perplexity, base", figure("%.6f", of["base"]));
    line("perplexity, model", figure("%.6f", of["model"]));
    line("perplexity ratio", with_error(of["ratio"], of["ratio_standard_error"]));
    const Json& change = json["probability_change"];
    line("change of p(target)", with_error(change["mean"], change["standard_error"]));
    line("  root mean square", figure("%.6f", change["root_mean_square"]));
  }
  line("time", figure("%.3f s", json["time_s"]));
  line("workspace", human_bytes(json["workspace_bytes"]));
  return text;
}

void write_tokens(const std::string& path, const DistillationResult& result, const TokenStats& base,
                  const std::vector<int64_t>& targets) {
  const std::vector<int64_t> rows = {static_cast<int64_t>(result.per_token_divergence.size())};
  std::vector<double> kl = result.per_token_divergence, model = result.per_token_logps, of_base = base.logp;
  std::vector<uint8_t> same(kl.size());
  for (size_t i = 0; i < kl.size(); ++i) {
    same[i] = result.per_token_agreement[i] != 0;
    if (targets.empty() || targets[i] != -100) continue;
    kl[i] = model[i] = of_base[i] = std::numeric_limits<double>::quiet_NaN();
  }
  std::vector<io::TensorToWrite> tensors = {{"kl", "F64", rows, kl.data()}, {"same_top", "BOOL", rows, same.data()}};
  if (!targets.empty()) {
    tensors.push_back({"logp", "F64", rows, model.data()});
    tensors.push_back({"base_logp", "F64", rows, of_base.data()});
  }
  io::write_safetensors(path, tensors);
}

// Returns the exit status, 0. Throws io::Error or InvalidInput; then no file has been written.
int run_compare_models(const Options& options) {
  if (options.output_path == "-") throw io::Error("-o -: must be the name of a file");
  std::vector<InputFile> inputs;
  for (const auto& [prefix, paths] : {std::pair("--", options.model), {"--base-", options.base}}) {
    for (const auto& [name, spec] :
         {std::pair("hidden", paths.hidden), {"lm-head", paths.head}, {"bias", paths.bias}, {"lora", paths.lora}}) {
      add_input_files(std::string(prefix) + name, spec, inputs);
    }
  }
  add_input_files("--targets", options.targets, inputs);
  check_output_files({{"-o", options.output_path}, {"--json", options.json_path}}, inputs);
  ModelFiles files;
  const Logits model = read_model(files, options.model, ""), base = read_model(files, options.base, "base_");
  std::vector<int64_t> ids;
  if (!options.targets.empty()) {
    const io::TensorWish wish = {"targets", io::TensorClass::kInteger, 1, true};
    ids = io::read_integers(*files.open("--targets", options.targets, wish).tensor);
  }
  const ConstTensor targets = ids.empty() ? ConstTensor() : ConstTensor(ids);

  ContextOptions context_options;
  context_options.threads = options.threads;
  const Context context(context_options);
  Distillation divergence = {.teacher = base, .targets = targets};
  divergence.want_agreement = true;
  divergence.hard_weight = ids.empty() ? 0 : 1;
  DistillationResult result;
  TokenStatisticsResult base_ran;
  const double time_s = measure([&] {
                          result = logitless::run(context, model, divergence);
                          if (!ids.empty()) {
                            base_ran = logitless::run(context, base, TokenStatistics{.targets = targets});
                          }
                        }).time_s;
  const TokenStats& of_base = base_ran.stats;
  files.check();
  Json json = summary(result, of_base, ids);
  json["time_s"] = time_s;
  json["workspace_bytes"] = std::max(result.plan.workspace_bytes, base_ran.plan.workspace_bytes);
  json["environment"] = environment_json(describe_environment(context));
  if (!options.output_path.empty()) write_tokens(options.output_path, result, of_base, ids);
  if (!options.json_path.empty()) write_output("--json", options.json_path, page_of(json));
  if (!options.quiet && options.json_path != "-") print(table_of(json));
  return 0;
}

void add_flags(CLI::App& command, Options& options) {
  command.add_option("--hidden", options.model.hidden, "hidden states of the model, [N, H] or [B, T, H]")
      ->type_name("FILE[:TENSOR]")
      ->required();
  command.add_option("--lm-head", options.model.head, "LM head of the model, [V, H] or [H, V]")
      ->type_name("FILE[:TENSOR]")
      ->required();
  command.add_option("--bias", options.model.bias, "bias of the model's head [V]")->type_name("FILE[:TENSOR]");
  command.add_option("--lora", options.model.lora, "LoRA of the model's head as PEFT saves it")
      ->type_name("FILE[:MODULE]");
  command.add_option("--softcap", options.model.softcap, "softcap of the model's logits; 0 for none")->type_name("X");
  command.add_option("--base-hidden", options.base.hidden, "hidden states of the base")
      ->type_name("FILE[:TENSOR]")
      ->required();
  command.add_option("--base-lm-head", options.base.head, "LM head of the base")
      ->type_name("FILE[:TENSOR]")
      ->required();
  command.add_option("--base-bias", options.base.bias, "bias of the base's head")->type_name("FILE[:TENSOR]");
  command.add_option("--base-lora", options.base.lora, "LoRA of the base's head")->type_name("FILE[:MODULE]");
  command.add_option("--base-softcap", options.base.softcap, "softcap of the base's logits")->type_name("X");
  command
      .add_option("--targets", options.targets,
                  "the next token of each row [N], int32 or int64; rows with -100 are ignored")
      ->type_name("FILE[:TENSOR]");
  command.add_option("--threads", options.threads, "the number of threads; 0, the default, is one per core")
      ->type_name("N")
      ->check(CLI::Range(0, 4096));
  command
      .add_option("-o,--output", options.output_path,
                  "writes kl, same_top, logp and base_logp of each token to a safetensors file")
      ->type_name("FILE");
  add_json_flag(command, options.json_path, "summary");
  command.add_flag("--quiet", options.quiet, "prints no summary");
}

}  // namespace

void add_compare_models(CLI::App& app, int& status) {
  add_command(app, "compare-models", kHelp, kFooter, add_flags, run_compare_models, status);
}

}  // namespace logitless::cli

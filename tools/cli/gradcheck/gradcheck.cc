// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// `logitless gradcheck`: compares loss and gradients of a config's call with the float64 oracle.
#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/common/command_line.h"
#include "cli/common/failure.h"
#include "cli/common/gates.h"
#include "cli/common/output.h"
#include "cli/gradcheck/mean_gradients.h"
#include "cli/gradcheck/truth.h"
#include "cli/measure/one_call.h"
#include "cli/measure/runner.h"
#include "core/tensors.h"
#include "oracle/deviation.h"

namespace logitless::cli {
namespace {

constexpr const char* kGradcheckHelp = "Checks loss and gradients against a float64 reference";

constexpr const char* kGradcheckFooter =
    R"(Exit status, the worst of all configs: 0 all gates passed, 1 a gate failed, 2 a bad option, config or input, 3 out of
memory. `man logitless-gradcheck` explains the metrics and gates.

Examples:
  logitless gradcheck configs/tiny.yaml configs/tiny-policy_loss.yaml configs/tiny-preference_loss.yaml configs/tiny-kto_loss.yaml
  logitless gradcheck configs/gradcheck/policy_loss-logits-tiny.yaml --set model.dtype=float16 --json -)";

struct GradcheckOptions {
  std::vector<std::string> config_paths;  ///< one check each; empty: one check without a file
  std::vector<std::string> assignments;   ///< --set, for all of them
  TensorPaths tensors;
  std::string json_path;  ///< empty: none; "-": standard output
  bool quiet = false;
};

using oracle::Deviation;
using oracle::MatrixXd;
using oracle::VectorXd;

Deviation deviation_of(const VectorXd& want, const std::vector<double>& got) {
  Deviation deviation;
  deviation.add(want, {got.data(), DType::kFloat64, 1, 1});
  return deviation;
}

// Returns a view of rows [first, ...) of a matrix or vector, or of its columns [column, ...). The sequences
// of [B, T, ...] are joined.
oracle::StoredMatrix from(const Tensor& tensor, int64_t first = 0, int64_t column = 0) {
  const auto last = static_cast<size_t>(tensor.axes - 1);
  const int64_t row_stride = tensor.strides[last == 0 ? 0 : last - 1],
                col_stride = last == 0 ? 1 : tensor.strides[last];
  const int64_t begin = (first * row_stride + column * col_stride) * static_cast<int64_t>(size_of(tensor.dtype));
  return {static_cast<const std::byte*>(tensor.data) + begin, tensor.dtype, row_stride, col_stride};
}

// Compares the results of one call with the oracle. Collects metrics and gates.
class Check {
 public:
  Check(const TaskRun& call, const Job& job, const TaskResult& forward, const TaskResult& result, const Truth& truth,
        const MeanGradients* mean)
      : call_(call), config_(call.config), job_(job), result_(result), truth_(truth), mean_(mean) {
    compare_losses();
    if (config_.top_k > 0) compare_top(forward);
    if (truth.of_logits) compare_logit_gradients();
    if (!truth.of_logits) compare_parameter_gradients();
  }

  const Json& metrics() const { return metrics_; }
  const std::vector<io::Gate>& gates() const { return gates_; }

 private:
  void compare_losses() {
    const double difference = std::abs(result_.loss - truth_.loss.loss);
    add("loss_ref", truth_.loss.loss);
    add("loss_kernel", result_.loss);
    add("abs_diff_loss", difference);
    const double by_default = io::tolerances_of(job_.dtype, job_.gradient_dtype).loss_atol * growth_by_rounding();
    const double limit = loss_limit(config_, job_, tokens(), config_.tolerance("loss_atol", by_default));
    gates_.push_back(io::make_gate("loss_atol", difference, limit));
    if (!result_.per_token_logps.empty()) {
      const Deviation logps = deviation_of(truth_.stats.logp, result_.per_token_logps);
      add("logp_max_abs", logps.max_abs());
      // A rounded logit, the target's included, may differ by one unit in the last place, so no limit can be
      // derived for a single token.
      if (has_tolerance("logp_max_abs") || growth_by_rounding() == 1) {
        gate("logp_max_abs", logps.max_abs(), exact(logps, DType::kFloat64).max_abs);
      }
    }
    if (!result_.per_token_loss.empty()) {
      const Deviation losses = deviation_of(oracle::to_eigen(truth_.loss.per_token_loss), result_.per_token_loss);
      add("per_token_loss_max_abs", losses.max_abs());
      add("per_token_loss_rel_l2", losses.rel_l2());
      gate("losses_rel_l2", losses.rel_l2(), exact(losses, DType::kFloat64).rel_l2);
    }
  }

  // Two ids may be swapped if their exact log-probabilities differ by less than the errors of the computed
  // ones.
  void compare_top(const TaskResult& forward) {
    const auto width = static_cast<size_t>(config_.top_k);
    std::vector<double> want, got;
    for (size_t row = 0; row < truth_.stats.top_logps.size(); ++row) {
      const std::vector<double>& logps = truth_.stats.top_logps[row];
      want.insert(want.end(), logps.begin(), logps.end());
      const auto own = forward.top_logps.begin() + static_cast<ptrdiff_t>(row * width);
      got.insert(got.end(), own, own + static_cast<ptrdiff_t>(logps.size()));
    }
    const Deviation deviation = deviation_of(oracle::to_eigen(want), got);
    const double limit = config_.tolerance("logp_max_abs", exact(deviation, DType::kFloat64).max_abs);
    double wrong = 0;
    for (size_t row = 0; row < truth_.stats.top_ids.size(); ++row) {
      const std::vector<int64_t>& ids = truth_.stats.top_ids[row];
      const std::vector<double>& logps = truth_.stats.top_logps[row];
      for (size_t k = 0; k < ids.size(); ++k) {
        const auto found = std::find(ids.begin(), ids.end(), forward.top_ids[row * width + k]);
        // An id that is not in the list is at most as likely as the last one there.
        const double exact_logp = found == ids.end() ? logps.back() : logps[static_cast<size_t>(found - ids.begin())];
        wrong += std::abs(exact_logp - logps[k]) > 2 * limit;
      }
    }
    add("top_logps_max_abs", deviation.max_abs());
    add("top_ids_wrong", wrong);
    gate("top_logps_max_abs", deviation.max_abs(), limit);
    gate("top_ids_wrong", wrong, 0);
  }

  void compare_logit_gradients() {
    const Tensor& out = call_.gradients.d_logits;
    Deviation dlogits;
    truth_.of_logits->compute_logit_gradients(
        truth_.stats, truth_.loss.grads,
        [&](int64_t first_entry, const MatrixXd& tile) { dlogits.add(tile, from(out, 0, first_entry)); });
    add("dlogits_max_abs", dlogits.max_abs());
    add("dlogits_max_rel", dlogits.max_rel());
    add("dlogits_rel_l2", dlogits.rel_l2());
    const io::ExactTolerances limits = exact(dlogits, out.dtype);
    gate("dlogits_max_abs", dlogits.max_abs(), limits.max_abs);
    if (has_tolerance("dlogits_max_rel") || !may_cancel()) gate("dlogits_max_rel", dlogits.max_rel(), limits.max_rel);
    gate("dlogits_rel_l2", dlogits.rel_l2(), limits.rel_l2);
  }

  void compare_parameter_gradients() {
    const Gradients& out = mean_ ? mean_->views : call_.gradients;
    if (!out.any()) return;
    const HeadMatrices head = core::head_of(call_.source.head);
    std::map<std::string, Deviation> deviations;
    const auto compare = [&](const char* name, const Tensor& got, int64_t first, const MatrixXd& want) {
      if (got.given()) deviations[name].add(want, from(got, first));
    };
    MatrixXd lora_a = MatrixXd::Zero(job_.lora_rank, job_.hidden_size);
    const MatrixXd hidden = truth_.parameter_gradients(call_, [&](int64_t first_entry, const MatrixXd& weight_tile,
                                                                  const VectorXd& bias_tile) {
      compare("d_weight", out.d_weight, first_entry, weight_tile);
      compare("d_bias", out.d_bias, first_entry, bias_tile);
      if (job_.lora_rank == 0) return;
      compare("d_lora_b", out.d_lora_b, first_entry, oracle::lora_gradients(head, first_entry, weight_tile, lora_a));
    });
    compare("d_hidden", out.d_hidden, 0, hidden);
    compare("d_lora_a", out.d_lora_a, 0, lora_a);
    for (const std::string name : kGradients) {
      const auto found = deviations.find(name);
      if (found == deviations.end()) continue;
      const Deviation& deviation = found->second;
      add(name + "_max_abs", deviation.max_abs());
      add(name + "_rel_l2", deviation.rel_l2());
      double limit = exact(deviation, job_.gradient_dtype, io::gradient_spacing(result_.plan)).rel_l2;
      if (mean_ && deviation.norm() > 0) {
        add(name + "_noise", mean_->spread(name) / deviation.norm());
        limit += kSpreads * mean_->spread(name) / std::sqrt(kDraws) / deviation.norm();
      }
      gate(name + "_rel_l2", deviation.rel_l2(), limit);
    }
    if (mean_) compare_noise(deviations["d_hidden"].norm(), deviations["d_weight"].norm());
  }

  void compare_noise(double d_hidden, double d_weight) {
    add("kept_share", result_.plan.kept_share);
    const double asked = result_.plan.noise_estimate;
    if (asked == 0) return;  // θ is given, or all segments were taken
    const auto noise_of = [&](const char* name, double norm) { return norm > 0 ? mean_->spread(name) / norm : 0; };
    gate("noise", std::max(noise_of("d_hidden", d_hidden), noise_of("d_weight", d_weight)), kNoiseRatio * asked);
  }

  void add(const std::string& name, double value) { metrics_[name] = value; }
  // A tolerance of this name in the config replaces the limit.
  void gate(const std::string& name, double value, double limit) {
    gates_.push_back(io::make_gate(name, value, config_.tolerance(name, limit)));
  }
  bool has_tolerance(const std::string& name) const { return config_.tolerances.contains(name); }
  double tokens() const { return result_.metric("tokens"); }
  // True if a gradient can be the small difference of large terms, so that single elements have no bounded
  // relative error. Such terms come from smoothing, from entropies, and from a KL penalty's e^d - 1 near d =
  // 0.
  bool may_cancel() const {
    const oracle::TokenGradients& grads = truth_.loss.grads;
    return grads.entropy.any() || grads.cross.any() || call_.of<PolicyLoss>().beta != 0;
  }
  // Finished logits are exact, so rounding them adds no error.
  double growth_by_rounding() const {
    const auto& rounded = config_.of<CrossEntropy>().token.round_logits_to;
    const bool sums = config_.level == io::Level::kFused;
    return rounded && sums ? io::growth_by_rounded_logits(job_.dtype, *rounded) : 1;
  }
  io::ExactTolerances exact(const Deviation& deviation, DType stored, double spacing = 0) const {
    return io::tolerances_of_exact(job_.dtype, stored, {deviation.largest(), deviation.norm(), deviation.count()},
                                   error_growth(config_, job_, tokens()) * growth_by_rounding(), spacing);
  }

  const TaskRun& call_;
  const io::Config& config_;
  const Job& job_;
  const TaskResult& result_;
  const Truth& truth_;
  const MeanGradients* mean_;      // null for exact gradients
  Json metrics_ = Json::object();  // in the order of the report
  std::vector<io::Gate> gates_;
};

// Runs the call and the oracle on the same tensors. Returns one check of the report.
Json run_check(const GradcheckOptions& options, const std::string& name, const io::Config& config, Progress& progress) {
  if (config.backward.mode == BackwardMode::kCertified) {
    throw io::Error("backward.mode = certified: gradcheck compares exact and sampled gradients with the oracle");
  }
  const auto phase = [&](const char* what) { progress.phase(name + ": " + what); };
  phase(options.tensors.given() ? "reading the tensors" : "drawing the inputs");
  const Inputs inputs = read_inputs(config, options.tensors);
  Job job = inputs.job;
  const Context context(context_options_of(config));
  const std::vector<Memory> outputs = add_outputs(config, job);
  const TaskRun call(config, job);
  job.touch();
  warm_up(context, job.dtype);

  phase("kernel, forward");
  call.reset();
  TaskResult forward, result;
  const double forward_s = measure([&] { forward = call.run(context, true); }).time_s;
  phase("kernel, with gradients");
  call.reset();
  const double kernel_s = measure([&] { result = call.run(context); }).time_s;
  std::optional<MeanGradients> mean;
  if (config.backward.mode == BackwardMode::kSampled) {
    phase("kernel, other seeds");
    mean.emplace(call, context);
  }
  phase("float64 oracle");
  std::optional<Check> check;
  const double reference_s = measure([&] {
                               const Truth truth = find_truth(call, job["logits"].view.data);
                               check.emplace(call, job, forward, result, truth, mean ? &*mean : nullptr);
                             }).time_s;
  inputs.files.check();
  Json metrics = check->metrics();
  metrics.update({{"time/forward_s", forward_s}, {"time/ref_grad_s", reference_s}, {"time/kernel_grad_s", kernel_s}});
  return {{"config", name},
          {"task", config.task},
          {"level", name_of(config.level)},
          {"shape", shape_json(job)},
          {"gradient_dtype", name_of(job.gradient_dtype)},
          {"metrics", metrics},
          {"gates", gates_json(check->gates())},
          {"gates_not_applied", gates_not_applied(config, check->gates())},
          {"pass", all_pass(check->gates())},
          {"environment", environment_json(describe_environment(context))}};
}

// Formats a check for people.
std::string text_of(const Json& check, const std::string& model) {
  const std::string name = check["config"], level = check["level"], task = check["task"];
  const Environment environment = environment_of(check["environment"]);
  std::string text = name + ": " + shape_text(level + " " + task, model, check["shape"]) + ", gradients in " +
                     check["gradient_dtype"].get<std::string>() + "\n" + machine_text(environment) + "\n" +
                     warnings_text(environment) + "\n";
  for (const auto& [metric, value] : check["metrics"].items()) {
    text += format(metric.starts_with("time/") ? "%-22s %16.3f\n" : "%-22s %16.9g\n", metric.c_str(), number_of(value));
  }
  text += "\n" + gates_text("gate", check["gates"]) +
          not_applied_text(check["gates_not_applied"], "not checked here: this level or output has no such figure");
  return text + (check["pass"] ? "all gates hold\n\n" : "NOT all gates hold\n\n");
}

// Returns the report of a check that could not run because its inputs are bad.
Json failed_check(const std::string& name, const io::Config& config, const std::string& error) {
  return {{"config", name}, {"task", config.task}, {"level", name_of(config.level)}, {"error", error}, {"pass", false}};
}

// Runs one check per config. Returns the exit status: 0 all gates hold, 1 one does not, 2 a config's inputs
// are bad (the other checks still run; without any result, nothing is written). Throws io::Error before any
// check runs if a config cannot be read.
int run_gradcheck(const GradcheckOptions& options) {
  std::vector<std::string> names = options.config_paths;
  if (names.empty()) names.push_back("--set");
  std::vector<io::Config> configs;
  for (const std::string& name : names) {
    configs.push_back(options.config_paths.empty() ? io::load_config(std::nullopt, options.assignments)
                                                   : io::load_config(name, options.assignments));
    reject_ranks(configs.back());
  }
  check_output_files({{"--json", options.json_path}}, input_files(options.tensors, options.config_paths));
  Json report = {{"checks", Json::array()}, {"pass", true}};
  int status = 0, run = 0;
  for (size_t i = 0; i < names.size(); ++i) {
    Progress progress(!options.quiet);
    Json check;
    std::string error;
    try {
      check = options.tensors.naming_flags([&] { return run_check(options, names[i], configs[i], progress); });
    } catch (const std::exception&) {
      const Failure failure = current_failure();
      if (!failure.bad_input) throw;
      error = failure.what;
    }
    progress.erase();
    if (error.empty()) {
      ++run;
      if (!options.quiet && options.json_path != "-") print(text_of(check, configs[i].model.name));
      status = std::max(status, check["pass"] ? 0 : 1);
    } else {
      const bool says_where = names.size() == 1 || error.starts_with(names[i]);
      complain((says_where ? "" : names[i] + ": ") + error);
      check = failed_check(names[i], configs[i], error);
      status = 2;
    }
    report["checks"].push_back(check);
    report["pass"] = status == 0;
  }
  if (run > 0 && !options.json_path.empty()) write_output("--json", options.json_path, page_of(report));
  return status;
}

void add_flags(CLI::App& gradcheck, GradcheckOptions& options) {
  gradcheck.add_option("CONFIG,--config", options.config_paths, "YAML configs; each is a separate check")
      ->type_name("FILE");
  add_set_flag(gradcheck, options.assignments);
  add_tensor_flags(gradcheck, options.tensors, TensorFlags::kOfAll);
  add_json_flag(gradcheck, options.json_path, "report");
  gradcheck.add_flag("--quiet", options.quiet, "prints no table and no progress; the exit status has the result");
}

}  // namespace

void add_gradcheck(CLI::App& app, int& status) {
  add_command(app, "gradcheck", kGradcheckHelp, kGradcheckFooter, add_flags, run_gradcheck, status);
}

}  // namespace logitless::cli

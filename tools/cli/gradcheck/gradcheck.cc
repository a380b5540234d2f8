// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// `logitless gradcheck`: loss and gradients of a config's call against the float64 oracle.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>

#include "cli/common/command_line.h"
#include "cli/common/gates.h"
#include "cli/common/output.h"
#include "cli/gradcheck/truth.h"
#include "cli/measure/one_call.h"
#include "cli/measure/turns.h"
#include "logitless/error.h"
#include "oracle/deviation.h"

namespace logitless::cli {
namespace {

constexpr const char* kGradcheckHelp = "Checks loss and gradients against a float64 oracle";

constexpr const char* kGradcheckFooter =
    R"(Exit status, the worst of all configs: 0 every gate holds, 1 one does not, 2 a bad option, config or input, 3 out of
memory. `man logitless-gradcheck` says what each metric and gate is.

Examples:
  logitless gradcheck configs/tiny.yaml configs/tiny-grpo.yaml configs/tiny-dpo.yaml configs/tiny-kto.yaml
  logitless gradcheck configs/gradcheck/grpo-logits-tiny.yaml --set model.dtype=float16 --json -)";

struct GradcheckOptions {
  std::vector<std::string> config_paths;  ///< each is a check of its own; empty: one check without a file
  std::vector<std::string> assignments;   ///< of --set, for all of them
  TensorPaths tensors;
  std::string json_path;     ///< empty: none; "-": standard output
  std::string metrics_path;  ///< empty: none
  std::string profile_path;  ///< of --profile
  bool quiet = false;
};

// One config's check.
struct GradcheckReport {
  std::string name;  // the config's path
  io::Config config;
  Job job;
  Environment environment;
  Metrics metrics;  // in the order of the report
  std::vector<io::Gate> gates;
  std::string error;  // why nothing was measured; empty: it was

  bool passes() const { return error.empty() && all_pass(gates); }
};

using oracle::Deviation;
using oracle::MatrixXd;
using oracle::VectorXd;

Deviation deviation_of(const VectorXd& want, const std::vector<double>& got) {
  Deviation deviation;
  deviation.add(want, {got.data(), DType::kFloat64, 1, 1});
  return deviation;
}

oracle::StoredMatrix from(const void* data, DType dtype, int64_t first, int64_t row_stride, int64_t col_stride) {
  return {static_cast<const std::byte*>(data) + first * static_cast<int64_t>(size_of(dtype)), dtype, row_stride,
          col_stride};
}

// Words of the head from `first` on.
oracle::StoredMatrix entries_of(const Matrix& d_weight, HeadLayout layout, int64_t first) {
  return layout == HeadLayout::kVocabHidden
             ? from(d_weight.data, d_weight.dtype, first * d_weight.stride, d_weight.stride, 1)
             : from(d_weight.data, d_weight.dtype, first, 1, d_weight.stride);
}

// Compares one call with the oracle and writes down what comes of it.
class Check {
 public:
  Check(const TaskRun& call, const TaskResult& result, const Truth& truth, GradcheckReport& report)
      : call_(call), result_(result), truth_(truth), report_(report) {}

  void compare_losses() {
    const io::ToleranceConfig& tolerances = report_.config.tolerances;
    const double difference = std::abs(result_.loss - truth_.loss.loss);
    add("loss_ref", truth_.loss.loss);
    add("loss_kernel", result_.loss);
    add("abs_diff_loss", difference);
    const io::Tolerances limits = io::resolve(tolerances, report_.job.dtype, report_.job.gradient_dtype);
    const double loss_atol = limits.loss_atol * (tolerances.loss_atol ? 1 : growth_by_rounding());
    gate("loss_atol", difference, loss_limit(report_.config, report_.job, tokens(), loss_atol));
    if (!result_.per_token_logps.empty()) {
      const Deviation logps = deviation_of(truth_.stats.logp, result_.per_token_logps);
      add("logp_max_abs", logps.max_abs());
      // A computed logit that is rounded, the target's too, may land one place away: no limit follows for one
      // token.
      if (tolerances.logp_max_abs || growth_by_rounding() == 1) {
        const double limit = exact(logps, DType::kFloat64).max_abs;
        gate("logp_max_abs", logps.max_abs(), tolerances.logp_max_abs.value_or(limit));
      }
    }
    if (!result_.per_token_loss.empty()) {
      const Deviation losses = deviation_of(oracle::to_eigen(truth_.loss.per_token_loss), result_.per_token_loss);
      add("per_token_loss_max_abs", losses.max_abs());
      add("per_token_loss_rel_l2", losses.rel_l2());
      const double limit = exact(losses, DType::kFloat64).rel_l2;
      gate("losses_rel_l2", losses.rel_l2(), tolerances.losses_rel_l2.value_or(limit));
    }
  }

  void compare_logit_gradients() {
    const LogitsGradient& out = call_.dlogits;
    Deviation dlogits;
    truth_.of_logits->compute_logit_gradients(
        truth_.stats, truth_.loss.grads, [&](int64_t first_entry, const MatrixXd& tile) {
          dlogits.add(tile, from(out.data, out.dtype, first_entry, out.row_stride, 1));
        });
    report_.metrics.insert(report_.metrics.end(), {{"dlogits_max_abs", dlogits.max_abs()},
                                                   {"dlogits_max_rel", dlogits.max_rel()},
                                                   {"dlogits_rel_l2", dlogits.rel_l2()},
                                                   {"dlogits_rounded_max_abs", dlogits.rounded_max_abs()},
                                                   {"dlogits_rounded_max_rel", dlogits.rounded_max_rel()}});
    const io::ToleranceConfig& tolerances = report_.config.tolerances;
    const io::ExactTolerances limits = exact(dlogits, out.dtype);
    gate("dlogits_max_abs", dlogits.max_abs(), tolerances.dlogits_max_abs.value_or(limits.max_abs));
    if (tolerances.dlogits_max_rel || !may_cancel()) {
      gate("dlogits_max_rel", dlogits.max_rel(), tolerances.dlogits_max_rel.value_or(limits.max_rel));
    }
    gate("dlogits_rel_l2", dlogits.rel_l2(), tolerances.dlogits_rel_l2.value_or(limits.rel_l2));
  }

  void compare_parameter_gradients() {
    const Gradients& out = call_.gradients;
    if (!out.any()) return;
    Deviation d_hidden, d_weight, d_bias;
    const MatrixXd hidden_truth = truth_.fused->compute_parameter_gradients(
        truth_.stats, truth_.loss.grads,
        [&](int64_t first_entry, const MatrixXd& weight_tile, const VectorXd& bias_tile) {
          if (out.d_weight.data) d_weight.add(weight_tile, entries_of(out.d_weight, call_.head.layout, first_entry));
          if (out.d_bias.data) d_bias.add(bias_tile, from(out.d_bias.data, out.d_bias.dtype, first_entry, 1, 1));
        });
    if (out.d_hidden.data) {
      d_hidden.add(hidden_truth, from(out.d_hidden.data, out.d_hidden.dtype, 0, out.d_hidden.stride, 1));
    }
    const io::ToleranceConfig& tolerances = report_.config.tolerances;
    const auto compare = [&](const std::string& name, bool wanted, const Deviation& deviation,
                             const std::optional<double>& tolerance) {
      if (!wanted) return;
      add(name + "_max_abs", deviation.max_abs());
      add(name + "_rel_l2", deviation.rel_l2());
      gate(name + "_rel_l2", deviation.rel_l2(),
           tolerance.value_or(exact(deviation, report_.job.gradient_dtype, io::gradient_spacing(result_.plan)).rel_l2));
    };
    compare("d_hidden", out.d_hidden.data, d_hidden, tolerances.d_hidden_rel_l2);
    compare("d_weight", out.d_weight.data, d_weight, tolerances.d_weight_rel_l2);
    compare("d_bias", out.d_bias.data, d_bias, tolerances.d_bias_rel_l2);
  }

 private:
  void add(const std::string& name, double value) { report_.metrics.emplace_back(name, value); }
  void gate(const std::string& name, double value, double limit) {
    report_.gates.push_back(io::make_gate(name, value, limit));
  }
  double tokens() const { return result_.metric("tokens"); }
  // Whether a gradient can be the small difference of large terms, so that no element has an error relative
  // to itself: those of smoothing and of entropies, and a KL penalty's e^d - 1 near d = 0.
  bool may_cancel() const {
    const oracle::TokenGradients& grads = truth_.loss.grads;
    return grads.entropy.any() || grads.cross.any() || call_.policy.beta != 0;
  }
  // Finished logits are exact, and so is their rounding.
  double growth_by_rounding() const {
    const auto& rounded = report_.config.cross_entropy.token.round_logits_to;
    const bool sums = report_.config.level == io::Level::kFused;
    return rounded && sums ? io::growth_by_rounded_logits(report_.job.dtype, *rounded) : 1;
  }
  io::ExactTolerances exact(const Deviation& deviation, DType stored, double spacing = 0) const {
    return io::tolerances_of_exact(report_.job.dtype, stored,
                                   {deviation.largest(), deviation.norm(), deviation.count()},
                                   error_growth(report_.config, report_.job, tokens()) * growth_by_rounding(), spacing);
  }

  const TaskRun& call_;
  const TaskResult& result_;
  const Truth& truth_;
  GradcheckReport& report_;
};

// Runs the call, and the oracle on the same tensors.
void run_check(const GradcheckOptions& options, const Profile& profile, Progress& progress, GradcheckReport& report) {
  const auto phase = [&](const char* what) { progress.phase(report.name + ": " + what); };
  io::Config& config = report.config;
  phase(options.tensors.given() ? "reading the tensors" : "drawing the inputs");
  const Inputs inputs = read_inputs(config, options.tensors);
  report.job = inputs.job;
  progress.note(profile.apply(report.job, config));
  const Context context(context_options_of(config));
  report.environment = describe_environment(context);
  const std::vector<Memory> outputs = add_outputs(config, report.job);
  const TaskRun call(config, report.job);
  report.job.touch();
  warm_up(context, report.job.dtype);

  phase("kernel, forward");
  call.reset();
  const double forward_s = measure([&] { call.run(context, true); }).time_s;
  phase("kernel, with gradients");
  call.reset();
  TaskResult result;
  const double kernel_s = measure([&] { result = call.run(context); }).time_s;
  phase("float64 oracle");
  const double reference_s = measure([&] {
                               const Truth truth = find_truth(call, report.job[TensorId::kLogits].data);
                               Check check(call, result, truth, report);
                               check.compare_losses();
                               if (truth.of_logits) check.compare_logit_gradients();
                               if (truth.fused) check.compare_parameter_gradients();
                             }).time_s;
  inputs.check_files();
  report.metrics.insert(
      report.metrics.end(),
      {{"time/forward_s", forward_s}, {"time/ref_grad_s", reference_s}, {"time/kernel_grad_s", kernel_s}});
}

std::vector<GradcheckReport> load_configs(const GradcheckOptions& options) {
  std::vector<GradcheckReport> reports;
  const auto load = [&](const std::optional<std::string>& path) {
    reports.emplace_back();
    reports.back().name = path.value_or("--set");
    reports.back().config = io::load_config(path, options.assignments);
    reject_ranks(reports.back().config);
  };
  for (const std::string& path : options.config_paths) load(path);
  if (options.config_paths.empty()) load(std::nullopt);
  return reports;
}

Json check_json(const GradcheckReport& report) {
  Json json = {{"config", report.name}, {"task", name_of(report.config.task)}, {"level", name_of(report.config.level)}};
  if (!report.error.empty()) {
    json["error"] = report.error;
    json["pass"] = false;
    return json;
  }
  json["shape"] = shape_json(report.job);
  json["gradient_dtype"] = name_of(report.job.gradient_dtype);
  for (const auto& [name, value] : report.metrics) json["metrics"][name] = value;
  json["gates"] = gates_json(report.gates);
  json["gates_not_applied"] = gates_not_applied(report.config, report.gates);
  json["pass"] = report.passes();
  json["environment"] = environment_json(report.environment);
  return json;
}

std::string what_was_checked(const GradcheckReport& report) {
  const Job& job = report.job;
  const std::string what = std::string(name_of(report.config.level)) + " " + name_of(report.config.task);
  if (report.config.level == io::Level::kFused) return shape_text(what, report.config.model.name, job);
  return what + (report.config.model.name.empty() ? "" : ", " + report.config.model.name) +
         format(": %lld tokens, vocab %lld, %s", static_cast<long long>(job.tokens),
                static_cast<long long>(job.vocab_size), name_of(job.dtype));
}

std::string table_of(const GradcheckReport& report) {
  if (!report.error.empty()) return "";
  std::string text = report.name + ": " + what_was_checked(report) + ", gradients in " +
                     name_of(report.job.gradient_dtype) + "\n" + machine_text(report.environment) + "\n" +
                     warnings_text(report.environment) + "\n";
  for (const auto& [name, value] : report.metrics) {
    text += format(name.starts_with("time/") ? "%-22s %16.3f\n" : "%-22s %16.9g\n", name.c_str(), value);
  }
  text += "\n";
  text += gates_text("gate", report.gates);
  for (const std::string& name : gates_not_applied(report.config, report.gates)) {
    text +=
        format("%-18s %14s %14s   not checked here: this level or output has no such figure\n", name.c_str(), "-", "-");
  }
  return text + (report.passes() ? "all gates hold\n\n" : "NOT all gates hold\n\n");
}

Json json_of(std::span<const GradcheckReport> reports) {
  Json json;
  json["checks"] = Json::array();
  for (const GradcheckReport& report : reports) json["checks"].push_back(check_json(report));
  json["pass"] = std::ranges::all_of(reports, [](const GradcheckReport& report) { return report.passes(); });
  return json;
}

void write_metrics(std::span<const GradcheckReport> reports, MetricsFile& file) {
  for (size_t i = 0; i < reports.size(); ++i) {
    const auto step = static_cast<int64_t>(i) + 1;
    for (const auto& [name, value] : reports[i].metrics) file.write(step, name, value);
    for (const io::Gate& gate : reports[i].gates) file.write(step, "gate/" + gate.name, gate.pass ? 1 : 0);
  }
}

// Every config in turn. Returns the exit status: 0 all gates hold, 1 one does not, 2 a config's inputs are
// bad (the others run all the same; nothing is written where none does). Throws io::Error for a config that
// cannot be read, before any check runs.
int run_gradcheck(const GradcheckOptions& options) {
  std::vector<GradcheckReport> reports = load_configs(options);
  const Profile profile(options.profile_path);
  check_output_files({{"--json", options.json_path}, {"--metrics", options.metrics_path}},
                     input_files(options.tensors, profile, options.config_paths));
  int status = 0;
  for (GradcheckReport& report : reports) {
    Progress progress(!options.quiet);
    try {
      run_check(options, profile, progress, report);
    } catch (const io::Error& e) {
      report.error = e.what();
    } catch (const InvalidInput& e) {
      report.error = e.what();
    }
    progress.erase();
    if (!report.error.empty()) {
      const bool says_where = reports.size() == 1 || report.error.starts_with(report.name);
      std::fprintf(stderr, "logitless: %s%s\n", says_where ? "" : (report.name + ": ").c_str(), report.error.c_str());
    }
    const bool has_output = options.json_path == "-" || options.metrics_path == "-";  // to stdout
    if (!options.quiet && !has_output) print(table_of(report));
    status = std::max(status, report.passes() ? 0 : report.error.empty() ? 1 : 2);
  }
  if (std::ranges::none_of(reports, [](const GradcheckReport& report) { return report.error.empty(); })) return status;
  if (!options.json_path.empty()) write_output("--json", options.json_path, page_of(json_of(reports)));
  if (!options.metrics_path.empty()) {
    MetricsFile metrics(options.metrics_path);
    write_metrics(reports, metrics);
  }
  return status;
}

void add_flags(Command& gradcheck, GradcheckOptions& options) {
  gradcheck.arguments("CONFIG,--config", options.config_paths, "FILE", "YAML configs, each a check of its own");
  gradcheck.set_flag(options.assignments);
  gradcheck.tensor_flags(options.tensors, true);
  gradcheck.value("--json", options.json_path, "FILE", "writes the report as one JSON object; - is standard output");
  gradcheck.value("--metrics", options.metrics_path, "FILE", "writes each metric as a line of JSON");
  gradcheck.profile_flag(options.profile_path);
  gradcheck.flag("--quiet", options.quiet, "prints no table and no progress: the exit status says it");
}

}  // namespace

void add_gradcheck(CommandLine& line) {
  line.add("gradcheck", kGradcheckHelp, kGradcheckFooter, add_flags, run_gradcheck);
}

}  // namespace logitless::cli

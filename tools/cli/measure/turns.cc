// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "cli/measure/turns.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "api/large_gemm.h"
#include "cli/measure/cost.h"
#include "cli/measure/one_call.h"
#include "cli/measure/results.h"
#include "timing/statistics.h"

namespace logitless::cli {
namespace {

ContextOptions options_of(const io::Config& config, const Contender& contender) {
  ContextOptions options = context_options_of(config);
  if (contender.dense) options.plan = PlanKind::kDense;
  return options;
}

// A contender and what its calls took.
class Runner {
 public:
  Runner(const std::vector<std::string>& settings, const Contender& contender, const Job& job)
      : error_(contender.error),
        contender_(contender),
        job_(job),
        config_(contender_config(settings, contender)),
        context_(options_of(config_, contender)),
        call_(config_, job_) {}

  const std::string& name() const { return contender_.name; }
  const Context& context() const { return context_; }
  Results results() const { return {job_, result_}; }
  bool failed() const { return !error_.empty(); }

  void run(bool timed) {
    call_.reset();
    const Measured measured = measure([&] { result_ = call_.run(context_, contender_.forward_only); });
    if (!first_s_) first_s_ = measured.time_s;
    if (!timed) return;
    times_s_.push_back(measured.time_s);
    extra_peaks_.push_back(static_cast<double>(measured.extra_peak_bytes));
    peak_method_ = std::max(peak_method_, measured.peak_method);
  }
  void fail(const std::string& message) { error_ = failure_text(message); }

  /// `compared`: what a comparison tells is there too.
  Json json(const std::optional<Rates>& rates, bool compared) const {
    if (failed()) return failed_contender(name(), error_);
    const double median_s = timing::median(times_s_);
    Json json = {{"name", name()},       {"status", "ok"},       {"loss", result_.loss},
                 {"first_s", *first_s_}, {"median_s", median_s}, {"spread_s", timing::spread(times_s_)},
                 {"times_s", times_s_}};
    if (rates) {
      const Cost cost = cost_of(result_.plan, job_, contender_.forward_only);
      if (cost.flops > 0) json["gemm_efficiency"] = cost.flops / median_s / rates->flops;
      if (cost.flops > 0) json["predicted_s"] = cost.seconds(*rates);
    }
    json["extra_peak_bytes"] = std::llround(timing::median(extra_peaks_));
    json["extra_peak_spread_bytes"] = std::llround(timing::spread(extra_peaks_));
    if (peak_method_ != PeakMethod::kReset) json["extra_peak_method"] = describe(peak_method_);
    json["workspace_bytes"] = result_.plan.workspace_bytes;
    json["plan"] = name_of(config_.level == io::Level::kFused ? result_.plan.kind : context_.options().plan);
    if (!compared) return json;
    json["plan_text"] = result_.plan.describe();
    json["gradient_spacing"] = io::gradient_spacing(result_.plan);
    for (const auto& [name, value] : result_.metrics) json["metrics"][name] = value;
    json["extra_peaks_bytes"] = std::vector<int64_t>(extra_peaks_.begin(), extra_peaks_.end());
    json["peak_method"] = describe(peak_method_);
    return json;
  }

 private:
  std::string error_;  // empty: it has not failed

  Contender contender_;
  Job job_;  // TaskRun refers to it
  io::Config config_;
  Context context_;
  TaskRun call_;
  TaskResult result_;
  std::optional<double> first_s_;
  std::vector<double> times_s_, extra_peaks_;
  PeakMethod peak_method_ = PeakMethod::kReset;
};

// What a contender throws is its result, unless it is held against another one.
void run_turn(Runner& runner, bool timed, bool compare) {
  try {
    runner.run(timed);
  } catch (const std::bad_alloc&) {
    if (compare) throw;
    runner.fail(kOutOfMemory);
  } catch (const std::exception& e) {
    if (compare) throw;
    runner.fail(e.what());
  }
}

}  // namespace

void warm_up(const Context& context, DType dtype) {
  constexpr int64_t kTokens = 64, kHidden = 64, kVocab = 512;
  ContextOptions options = context.options();
  const ContextOptions defaults;
  options.workspace_bytes = defaults.workspace_bytes;  // The limits are for another shape.
  if (options.plan != PlanKind::kDense) options.plan = defaults.plan;
  options.row_tile = options.vocab_tile = 0;
  const size_t element = size_of(dtype);
  const std::vector<std::byte> hidden(kTokens * kHidden * element), weight(kHidden * kVocab * element);
  std::vector<std::byte> d_hidden(hidden.size()), d_weight(weight.size());
  const std::vector<int64_t> targets(kTokens);
  Gradients gradients;
  gradients.d_hidden = Matrix(d_hidden.data(), dtype, kTokens, kHidden);
  gradients.d_weight = Matrix(d_weight.data(), dtype, kHidden, kVocab);
  cross_entropy(Context(options), ConstMatrix(hidden.data(), dtype, kTokens, kHidden),
                LmHead(ConstMatrix(weight.data(), dtype, kHidden, kVocab), HeadLayout::kHiddenVocab), Targets(targets),
                {}, gradients);
}

Json take_turns(
    const TurnsRequest& request,
    const std::function<void(const std::string& contender, const std::string& step, double share)>& on_turn) {
  on_turn("", request.tensors.given() ? "reading the tensors" : "drawing the inputs", 0);
  io::Config config = io::load_config(std::nullopt, request.settings);
  if (request.compare) config.places = request.places;
  const Inputs inputs = read_inputs(config, request.tensors, request.values);
  Json result = Json::object();
  if (request.compare) result["note"] = Profile(request.profile_path).apply(inputs.job, config);
  std::vector<std::vector<Memory>> outputs;
  std::vector<std::unique_ptr<Runner>> runners;
  Job job = inputs.job;
  for (const Contender& contender : request.contenders) {
    if (outputs.empty() || request.compare) {
      outputs.push_back(add_outputs(config, job, request.compare && outputs.empty() ? 2 : 1));
      job.touch();
    }
    runners.push_back(std::make_unique<Runner>(config.settings, contender, job));
  }
  std::optional<api::LargeGemm> gemm;
  if (request.gemm_rate && config.level == io::Level::kFused) gemm.emplace(runners.front()->context(), job.dtype);
  std::vector<double> gemm_times_s, read_times_s;
  const TensorBytes head = job[TensorId::kWeight];
  [[maybe_unused]] volatile size_t read = 0;  // so that reading it is not left out
  for (const auto& runner : runners) {
    if (!runner->failed()) warm_up(runner->context(), job.dtype);
  }

  const int turns = request.warmup + request.iters;
  for (int turn = 0; turn < turns; ++turn) {
    const bool timed = turn >= request.warmup;
    const std::string which = ", turn " + std::to_string(turn + 1) + " of " + std::to_string(turns);
    double share = static_cast<double>(turn) / turns;
    if (gemm) {
      on_turn("", "GEMM rate" + which, share);
      const double time_s = measure([&] { gemm->run(); }).time_s;
      if (timed) gemm_times_s.push_back(time_s);
      const double read_s = measure([&] { read = read_all(head, runners.front()->context().threads()); }).time_s;
      if (timed) read_times_s.push_back(read_s);
    }
    for (const auto& runner : runners) {
      if (!runner->failed()) {
        on_turn(runner->name(), runner->name() + which, share);
        run_turn(*runner, timed, request.compare);
      }
      share += 1.0 / (turns * static_cast<double>(runners.size()));
    }
  }
  inputs.check_files();

  std::optional<Rates> rates;
  if (gemm) {
    rates = {gemm->flops() / timing::median(gemm_times_s),
             static_cast<double>(head.bytes) / timing::median(read_times_s)};
    result["gemm_rate_flops"] = rates->flops;
    result["read_rate_bytes"] = rates->bytes;
  }
  for (const auto& runner : runners) result["contenders"].push_back(runner->json(rates, request.compare));
  if (!request.compare) return result;
  if (!request.output_path.empty()) {
    on_turn("", "writing the results", 1);
    write_results(request.output_path, runners[0]->results());
  }
  on_turn("", "comparing", 1);
  result["differences"] = differences_json(differences_of(runners[0]->results(), runners[1]->results()));
  result["job"] = job_json(job);
  result["has_bias"] = job.has(TensorId::kBias);
  return result;
}

}  // namespace logitless::cli

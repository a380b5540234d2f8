// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "cli/bench_turns.h"

#include <cmath>
#include <memory>
#include <optional>

#include "cli/contender.h"
#include "cli/measure.h"
#include "cli/report_text.h"
#include "cli/task_call.h"
#include "timing/large_gemm.h"
#include "timing/statistics.h"

namespace logitless::cli {
namespace {

using Json = nlohmann::ordered_json;

ContextOptions options_of(const io::Config& config, const BenchContender& contender) {
  ContextOptions options = context_options_of(config);
  if (contender.dense) options.plan = PlanKind::kDense;
  return options;
}

// A contender and what its calls took.
class Runner {
 public:
  Runner(const PointRequest& request, const BenchContender& contender, const Job& job, const JobTensors& tensors)
      : contender_(contender),
        job_(job),
        config_(contender_config(request.settings, contender)),
        context_(options_of(config_, contender)),
        call_(config_, job, tensors) {}

  const std::string& name() const { return contender_.name; }
  const Context& context() const { return context_; }
  bool failed() const { return !error_.empty(); }

  void run(bool timed) {
    try {
      call_.reset();
      const Measured measured = measure([&] { result_ = call_.run(context_, contender_.forward_only); });
      if (!first_s_) first_s_ = measured.time_s;
      if (!timed) return;
      times_s_.push_back(measured.time_s);
      extra_peaks_.push_back(static_cast<double>(measured.extra_peak_bytes));
      peak_method_ = std::max(peak_method_, measured.peak_method);
    } catch (const std::bad_alloc&) {
      error_ = kOutOfMemory;
    } catch (const std::exception& e) {
      error_ = e.what();
    }
  }

  Json json(std::optional<double> gemm_rate) const {
    if (failed()) return failed_contender(name(), error_);
    const double median_s = timing::median(times_s_);
    Json json = {{"name", name()},       {"status", "ok"},       {"loss", number(result_.loss)},
                 {"first_s", *first_s_}, {"median_s", median_s}, {"spread_s", timing::spread(times_s_)},
                 {"times_s", times_s_}};
    if (gemm_rate && flops() > 0) json["gemm_efficiency"] = flops() / median_s / *gemm_rate;
    json["extra_peak_bytes"] = std::llround(timing::median(extra_peaks_));
    json["extra_peak_spread_bytes"] = std::llround(timing::spread(extra_peaks_));
    if (peak_method_ != PeakMethod::kReset) json["extra_peak_method"] = describe(peak_method_);
    json["workspace_bytes"] = result_.plan.workspace_bytes;
    json["plan"] = name_of(config_.level == io::Level::kFused ? result_.plan.kind : context_.options().plan);
    return json;
  }

 private:
  // Of the products that the call itself makes: the logits, again in two pass, and a product for each gradient. Dense
  // computes every row, the other plans those that take part.
  double flops() const {
    int products = 1;
    if (!contender_.forward_only) {
      products += job_.has(TensorId::kDHidden) + job_.has(TensorId::kDWeight);
      products += result_.plan.kind == PlanKind::kTwoPass;
    }
    const int64_t rows = result_.plan.kind == PlanKind::kDense ? job_.tokens : result_.plan.active_rows;
    return 2.0 * products * static_cast<double>(rows) * static_cast<double>(job_.hidden_size) *
           static_cast<double>(job_.vocab_size);
  }

  BenchContender contender_;
  const Job& job_;
  io::Config config_;
  Context context_;
  TaskCall call_;
  TaskResult result_;
  std::optional<double> first_s_;
  std::vector<double> times_s_, extra_peaks_;
  PeakMethod peak_method_ = PeakMethod::kReset;
  std::string error_;
};

std::vector<std::unique_ptr<Runner>> make_runners(const PointRequest& request, const Job& job,
                                                  const JobTensors& tensors) {
  std::vector<std::unique_ptr<Runner>> runners;
  for (const BenchContender& contender : request.contenders) {
    runners.push_back(std::make_unique<Runner>(request, contender, job, tensors));
  }
  return runners;
}

}  // namespace

Json failed_contender(const std::string& name, const std::string& message) {
  return {{"name", name}, {"status", "error"}, {"message", message}};
}

Json take_turns(const PointRequest& request, const OnTurn& on_turn) {
  on_turn("", "drawing the inputs", 0);
  const io::Config config = io::load_config(std::nullopt, request.settings);
  const Inputs inputs = make_seeded_inputs(config, request.values);
  Job job = inputs.job;
  const std::vector<SharedMemory> outputs = add_outputs(config, job);
  check_available(total_bytes(outputs), "the gradients");
  const JobTensors tensors(job);
  tensors.touch();
  const std::vector<std::unique_ptr<Runner>> runners = make_runners(request, job, tensors);
  const Context& context = runners.front()->context();
  std::optional<timing::LargeGemm> gemm;
  if (request.gemm_rate && config.level == io::Level::kFused) gemm.emplace(context, job.dtype);
  std::vector<double> gemm_times_s;
  warm_up(context, job.dtype);

  const int turns = request.warmup + request.iters;
  for (int turn = 0; turn < turns; ++turn) {
    const bool timed = turn >= request.warmup;
    const std::string which = ", turn " + std::to_string(turn + 1) + " of " + std::to_string(turns);
    double share = static_cast<double>(turn) / turns;
    if (gemm) {
      on_turn("", "GEMM rate" + which, share);
      const double time_s = measure([&] { gemm->run(); }).time_s;
      if (timed) gemm_times_s.push_back(time_s);
    }
    for (const auto& runner : runners) {
      if (!runner->failed()) {
        on_turn(runner->name(), runner->name() + which, share);
        runner->run(timed);
      }
      share += 1.0 / (turns * static_cast<double>(runners.size()));
    }
  }

  Json result = Json::object();
  std::optional<double> gemm_rate;
  if (gemm) result["gemm_rate_flops"] = *(gemm_rate = gemm->flops() / timing::median(gemm_times_s));
  result["contenders"] = Json::array();
  for (const auto& runner : runners) result["contenders"].push_back(runner->json(gemm_rate));
  return result;
}

}  // namespace logitless::cli

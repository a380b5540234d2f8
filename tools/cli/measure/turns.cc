// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "cli/measure/turns.h"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/common/failure.h"
#include "dense/large_gemm.h"
#include "timing/statistics.h"

namespace logitless::cli {
namespace {

// An exception becomes the contender's result.
void run_turn(Runner& runner, bool timed) try { runner.run(timed); } catch (const std::exception&) {
  runner.fail(current_failure().what);
}

Json take_turns(const TurnsRequest& request, const OnTurn& on_turn) {
  on_turn("", "drawing the inputs");
  const io::Config config = io::load_config(std::nullopt, request.settings);
  const Inputs inputs = make_seeded_inputs(config, request.values);
  Job job = inputs.job;
  const std::vector<Memory> outputs = add_outputs(config, job);
  job.touch();
  std::vector<std::unique_ptr<Runner>> runners;
  for (const Contender& contender : request.contenders) {
    runners.push_back(std::make_unique<Runner>(config.settings, contender, job));
  }
  std::optional<dense::LargeGemm> gemm;
  if (config.level == io::Level::kFused) gemm.emplace(runners.front()->context(), job.dtype);
  std::vector<double> gemm_times_s;
  for (const auto& runner : runners) {
    if (!runner->failed()) runner->warm_up();
  }

  const int turns = request.warmup + request.iters;
  for (int turn = 0; turn < turns; ++turn) {
    const bool timed = turn >= request.warmup;
    if (gemm) {
      on_turn("", turn_text("GEMM rate", turn, turns));
      const double time_s = measure([&] { gemm->run(); }).time_s;
      if (timed) gemm_times_s.push_back(time_s);
    }
    for (const auto& runner : runners) {
      if (runner->failed()) continue;
      on_turn(runner->name(), turn_text(runner->name(), turn, turns));
      run_turn(*runner, timed);
    }
  }

  Json result = Json::object();
  std::optional<double> gemm_rate;
  if (gemm) result["gemm_rate_flops"] = *(gemm_rate = gemm->flops() / timing::median(gemm_times_s));
  for (const auto& runner : runners) result["contenders"].push_back(runner->json(gemm_rate));
  return result;
}

}  // namespace

std::string turn_text(const std::string& name, int turn, int turns) {
  return name + ", turn " + std::to_string(turn + 1) + " of " + std::to_string(turns);
}

Json measure_turns(TurnsRequest request, const OnStep& on_step) {
  const auto has_failed = [](const Contender& contender) { return !contender.error.empty(); };
  while (!std::ranges::all_of(request.contenders, has_failed)) {
    const Outcome outcome = run_apart([&](const OnTurn& on_turn) { return take_turns(request, on_turn); }, on_step);
    if (!outcome.result.empty()) return Json::parse(outcome.result);
    // If no contender was running, the failure concerns them all: nothing can be measured.
    for (Contender& contender : request.contenders) {
      const bool fails = outcome.contender.empty() || contender.name == outcome.contender;
      if (fails && !has_failed(contender)) contender.error = (outcome.died ? "its process " : "") + outcome.why;
    }
  }
  Json result = {{"contenders", Json::array()}};
  for (const Contender& contender : request.contenders) {
    result["contenders"].push_back(failed_contender(contender.name, contender.error));
  }
  return result;
}

}  // namespace logitless::cli

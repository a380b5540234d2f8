// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "cli/contender.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <new>
#include <type_traits>
#include <vector>

#include "cli/process_memory.h"
#include "logitless/error.h"

namespace logitless::cli {
namespace {

static_assert(std::is_trivially_copyable_v<Job> && std::is_trivially_copyable_v<Outcome>);

void run(const Job& job, Outcome& outcome) {
  const io::Config config = config_of(job);
  const JobTensors tensors(job);
  const TaskCall call(config, job, tensors);
  ContextOptions options = context_options_of(config);
  if (job.dense) options.plan = PlanKind::kDense;
  const Context context(options);

  tensors.touch();
  call.reset();
  warm_up(context, job.dtype);
  TaskResult result;
  outcome.measured = measure([&] { result = call.run(context); });

  outcome.loss = result.loss;
  outcome.workspace_bytes = result.plan.workspace_bytes;
  outcome.plan = result.plan.kind;
  if (config.level == io::Level::kFused) copy_text(result.plan.describe().c_str(), outcome.plan_text);
  for (size_t i = 0; i < std::min(result.metrics.size(), outcome.metrics.size()); ++i) {
    copy_text(result.metrics[i].first.c_str(), outcome.metrics[i].name);
    outcome.metrics[i].value = result.metrics[i].second;
  }
  if (job.has(TensorId::kLosses)) {
    const size_t count = std::min(result.per_token_loss.size(), static_cast<size_t>(job.tokens));
    std::copy_n(result.per_token_loss.begin(), count, tensors[TensorId::kLosses].as<double>());
  }
  outcome.status = OutcomeStatus::kDone;
}

std::vector<int> descriptors_of(const Job& job) {
  std::vector<int> descriptors;
  if (job.settings) descriptors.push_back(job.settings.descriptor);
  for (const Region& region : job.tensors) {
    if (region) descriptors.push_back(region.descriptor);
  }
  return descriptors;
}

template <class T>
std::string_view bytes_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

}  // namespace

double Outcome::metric(const char* name) const {
  for (const OutcomeMetric& one : metrics) {
    if (std::strcmp(one.name, name) == 0) return one.value;
  }
  return std::numeric_limits<double>::quiet_NaN();
}

io::Config config_of(const Job& job) {
  const Mapping text(job.settings, Mapping::Access::kRead);
  std::vector<std::string> settings;
  const char* begin = text.as<char>();
  const char* const end = begin + text.bytes();
  while (begin < end) {
    settings.emplace_back(begin, strnlen(begin, static_cast<size_t>(end - begin)));
    begin += settings.back().size() + 1;
  }
  return io::load_config(std::nullopt, settings);
}

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

Outcome run_in_child(const Job& job) {
  std::string answer;
  const int status = run_child(kContenderCommand, bytes_of(job), descriptors_of(job),
                               [&](std::string_view bytes) { answer.append(bytes); });
  const std::string who = std::string("the ") + (job.dense ? "dense" : "fused") + " process ";
  Outcome outcome;
  if (answer.size() != sizeof(outcome)) throw ChildFailure(who + how_it_died(status));
  std::memcpy(&outcome, answer.data(), sizeof(outcome));
  if (outcome.status == OutcomeStatus::kInvalidInput) throw InvalidInput(outcome.message);
  if (outcome.status == OutcomeStatus::kFailed) throw ChildFailure(who + "failed: " + outcome.message);
  return outcome;
}

int run_contender(const ChildEnds& ends) {
  const std::string request = begin_child(ends);
  Job job;
  std::memcpy(&job, request.data(), std::min(sizeof(job), request.size()));
  // The command has to live to tell that memory ran out.
  volunteer_when_memory_runs_out();

  Outcome outcome;
  try {
    run(job, outcome);
  } catch (const InvalidInput& e) {
    outcome.status = OutcomeStatus::kInvalidInput;
    copy_text(e.what(), outcome.message);
  } catch (const std::bad_alloc&) {
    copy_text("out of memory (an allocation failed)", outcome.message);
  } catch (const std::exception& e) {
    copy_text(e.what(), outcome.message);
  }
  send_answer(ends, bytes_of(outcome));
  return outcome.status == OutcomeStatus::kDone ? 0 : 3;
}

}  // namespace logitless::cli

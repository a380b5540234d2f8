// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "cli/contender.h"

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

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

bool write_whole(int descriptor, const Outcome& outcome) {
  const char* bytes = reinterpret_cast<const char*>(&outcome);
  for (size_t done = 0; done < sizeof(outcome);) {
    const ssize_t written = write(descriptor, bytes + done, sizeof(outcome) - done);
    if (written <= 0) return false;
    done += static_cast<size_t>(written);
  }
  return true;
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

int run_contender(int job_descriptor, int outcome_descriptor) {
  Job job;
  if (pread(job_descriptor, &job, sizeof(job), 0) != static_cast<ssize_t>(sizeof(job))) return 3;
  // The comparing process may be killed without a chance to stop this one.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != job.parent_process) return 3;
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
  if (!write_whole(outcome_descriptor, outcome)) return 3;
  return outcome.status == OutcomeStatus::kDone ? 0 : 3;
}

}  // namespace logitless::cli

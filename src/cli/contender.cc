// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "cli/contender.h"

#include <malloc.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <new>
#include <type_traits>
#include <vector>

#include "cli/process_memory.h"
#include "logitless/dense.h"
#include "logitless/error.h"

namespace logitless::cli {
namespace {

static_assert(std::is_trivially_copyable_v<Job> && std::is_trivially_copyable_v<Outcome>);

// Everything a Job names, mapped.
struct MappedJob {
  explicit MappedJob(const Job& job)
      : hidden(job.hidden, Mapping::Access::kRead),
        weight(job.weight, Mapping::Access::kRead),
        bias(job.bias, Mapping::Access::kRead),
        targets(job.targets, Mapping::Access::kRead),
        offsets(job.offsets, Mapping::Access::kRead),
        class_weights(job.class_weights, Mapping::Access::kRead),
        temperatures(job.temperatures, Mapping::Access::kRead),
        d_hidden(job.d_hidden, Mapping::Access::kWrite),
        d_weight(job.d_weight, Mapping::Access::kWrite),
        d_bias(job.d_bias, Mapping::Access::kWrite),
        losses(job.losses, Mapping::Access::kWrite) {}

  // Afterwards every page is resident, and every output holds NaN: what the call leaves unwritten will show.
  void touch() const {
    for (const Mapping* input : {&hidden, &weight, &bias, &targets, &offsets, &class_weights, &temperatures}) {
      touch_for_reading(input->data(), input->bytes());
    }
    for (const Mapping* output : {&d_hidden, &d_weight, &d_bias, &losses}) {
      if (output->bytes() > 0) std::memset(output->data(), 0xff, output->bytes());
    }
  }

  Mapping hidden, weight, bias, targets, offsets, class_weights, temperatures;
  Mapping d_hidden, d_weight, d_bias, losses;
};

ContextOptions context_options(const Job& job) {
  ContextOptions options;
  options.threads = job.threads;
  options.workspace_bytes = job.workspace_bytes;
  options.plan = job.plan;
  options.row_tile = job.row_tile;
  options.vocab_tile = job.vocab_tile;
  options.gemm_backend = job.gemm_backend;
  options.simd_target = job.simd_target;
  return options;
}

CrossEntropyOptions loss_options(const Job& job, const MappedJob& mapped) {
  CrossEntropyOptions options;
  options.ignore_index = job.ignore_index;
  options.reduction = job.reduction;
  options.label_smoothing = job.label_smoothing;
  options.z_loss = job.z_loss;
  if (job.class_weights)
    options.class_weights = {mapped.class_weights.as<float>(), static_cast<size_t>(job.vocab_size)};
  options.temperature = job.temperature;
  if (job.temperatures) options.temperatures = {mapped.temperatures.as<double>(), static_cast<size_t>(job.tokens)};
  options.temperature_meaning = job.temperature_meaning;
  options.shift = job.shift;
  options.loss_scale = job.loss_scale;
  if (job.normaliser != 0) options.normaliser = job.normaliser;
  options.want_accuracy = job.want_accuracy;
  options.want_entropy = job.want_entropy;
  return options;
}

CrossEntropyResult call(Contender contender, const Context& context, const HiddenStates& hidden, const LmHead& head,
                        const Targets& targets, const CrossEntropyOptions& options, const Gradients& gradients) {
  return contender == Contender::kDense ? dense_cross_entropy(context, hidden, head, targets, options, gradients)
                                        : cross_entropy(context, hidden, head, targets, options, gradients);
}

// A small call brings up what every call needs once: the OpenMP team, the BLAS, the dispatch tables. What it leaves in
// the allocator goes back to the system, or the measured call would reuse resident pages that nobody counted.
void warm_up(const Job& job) {
  constexpr int64_t kTokens = 64, kHidden = 64, kVocab = 512;
  ContextOptions options = context_options(job);
  const ContextOptions defaults;
  options.workspace_bytes = defaults.workspace_bytes;  // The job's own limits are for the job's own shape.
  options.plan = defaults.plan;
  options.row_tile = options.vocab_tile = 0;
  {
    const size_t element = size_of(job.dtype), stored = size_of(job.gradient_dtype);
    const std::vector<std::byte> hidden(kTokens * kHidden * element), weight(kHidden * kVocab * element);
    std::vector<std::byte> d_hidden(kTokens * kHidden * stored), d_weight(kHidden * kVocab * stored);
    const std::vector<int64_t> targets(kTokens);
    const bool tall = job.layout == HeadLayout::kVocabHidden;
    const int64_t rows = tall ? kVocab : kHidden, cols = tall ? kHidden : kVocab;
    Gradients gradients;
    gradients.d_hidden = Matrix(d_hidden.data(), job.gradient_dtype, kTokens, kHidden);
    gradients.d_weight = Matrix(d_weight.data(), job.gradient_dtype, rows, cols);
    call(job.contender, Context(options), ConstMatrix(hidden.data(), job.dtype, kTokens, kHidden),
         LmHead(ConstMatrix(weight.data(), job.dtype, rows, cols), job.layout), Targets(targets), {}, gradients);
  }
  malloc_trim(0);
}

int64_t extra_peak(const ResidentMemory& before, bool was_reset, PeakMethod& method) {
  const ResidentMemory after = resident_memory();
  method = was_reset                              ? PeakMethod::kReset
           : after.peak_bytes > before.peak_bytes ? PeakMethod::kUnreset
                                                  : PeakMethod::kUpperBound;
  return std::max<int64_t>(0, after.peak_bytes - before.now_bytes);
}

void run(const Job& job, Outcome& outcome) {
  const MappedJob mapped(job);
  const Context context(context_options(job));
  const CrossEntropyOptions options = loss_options(job, mapped);

  HiddenStates hidden(ConstMatrix(mapped.hidden.data(), job.dtype, job.tokens, job.hidden_size), job.sequences);
  if (job.offsets) {
    hidden.offsets = {mapped.offsets.as<int64_t>(), static_cast<size_t>(job.offsets.bytes / sizeof(int64_t))};
  }
  const bool tall = job.layout == HeadLayout::kVocabHidden;
  const int64_t rows = tall ? job.vocab_size : job.hidden_size, cols = tall ? job.hidden_size : job.vocab_size;
  LmHead head(ConstMatrix(mapped.weight.data(), job.dtype, rows, cols), job.layout);
  if (job.bias) head.bias = ConstVector(mapped.bias.data(), job.dtype, job.vocab_size);
  head.softcap = job.softcap;
  const Targets targets = job.wide_targets ? Targets(mapped.targets.as<int64_t>(), job.tokens)
                                           : Targets(mapped.targets.as<int32_t>(), job.tokens);
  Gradients gradients;
  if (job.d_hidden)
    gradients.d_hidden = Matrix(mapped.d_hidden.data(), job.gradient_dtype, job.tokens, job.hidden_size);
  if (job.d_weight) gradients.d_weight = Matrix(mapped.d_weight.data(), job.gradient_dtype, rows, cols);
  if (job.d_bias) gradients.d_bias = Vector(mapped.d_bias.data(), job.gradient_dtype, job.vocab_size);

  mapped.touch();
  warm_up(job);
  const bool was_reset = reset_peak();
  const ResidentMemory before = resident_memory();
  const auto start = std::chrono::steady_clock::now();
  const CrossEntropyResult result = call(job.contender, context, hidden, head, targets, options, gradients);
  outcome.time_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  outcome.extra_peak_bytes = extra_peak(before, was_reset, outcome.peak_method);

  outcome.loss = result.loss;
  outcome.workspace_bytes = result.plan.workspace_bytes;
  outcome.plan = result.plan.kind;
  copy_text(result.plan.describe().c_str(), outcome.plan_text);
  outcome.metrics = result.metrics;
  if (job.losses) {
    const size_t count = std::min(result.losses.size(), static_cast<size_t>(job.tokens));
    std::copy_n(result.losses.begin(), count, mapped.losses.as<double>());
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

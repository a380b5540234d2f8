// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// One side of a comparison, as it runs in a process of its own: the job that the command hands over, and what comes
// back. Both are plain bytes: the child is the same executable.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cli/shared_memory.h"
#include "logitless/cross_entropy.h"

namespace logitless::cli {

enum class Contender { kDense, kFused };

struct Job {
  int32_t parent_process = 0;  ///< the child ends when this one has ended
  Contender contender = Contender::kDense;

  int32_t threads = 0;
  uint64_t workspace_bytes = 0;
  PlanKind plan = PlanKind::kAuto;
  int64_t row_tile = 0;
  int64_t vocab_tile = 0;
  char gemm_backend[32] = {};
  char simd_target[32] = {};

  int64_t ignore_index = 0;
  Reduction reduction = Reduction::kMean;
  double label_smoothing = 0;
  double z_loss = 0;
  double temperature = 1;
  TemperatureMeaning temperature_meaning = TemperatureMeaning::kScaleLogits;
  bool shift = false;
  double loss_scale = 1;
  double normaliser = 0;  ///< 0: none
  bool want_accuracy = false;
  bool want_entropy = false;

  int64_t tokens = 0;
  int64_t hidden_size = 0;
  int64_t vocab_size = 0;
  int64_t sequences = 1;
  DType dtype = DType::kFloat32;
  HeadLayout layout = HeadLayout::kHiddenVocab;
  double softcap = 0;
  bool wide_targets = false;  ///< int64 instead of int32
  Region hidden, weight, bias, targets;
  Region offsets;        ///< int64
  Region class_weights;  ///< float32 [V]
  Region temperatures;   ///< float64 [N]

  DType gradient_dtype = DType::kFloat32;
  Region d_hidden, d_weight, d_bias;
  Region losses;  ///< float64 [N], under Reduction::kNone
};

enum class OutcomeStatus { kDone, kInvalidInput, kFailed };

/// How extra_peak_bytes was found.
enum class PeakMethod {
  kReset,       ///< VmHWM, reset before the call, minus VmRSS then
  kUnreset,     ///< the reset was not permitted, but the call went above the earlier peak: exact as well
  kUpperBound,  ///< the reset was not permitted and the earlier peak was higher: the call stayed below this
};

struct Outcome {
  OutcomeStatus status = OutcomeStatus::kFailed;
  char message[1024] = {};  ///< unless kDone

  double loss = 0;
  double time_s = 0;
  int64_t extra_peak_bytes = 0;
  PeakMethod peak_method = PeakMethod::kReset;
  uint64_t workspace_bytes = 0;
  PlanKind plan = PlanKind::kAuto;
  char plan_text[512] = {};
  CrossEntropyMetrics metrics;
};

/// The child's whole life: reads the Job, runs it, writes the Outcome. Returns the exit status.
int run_contender(int job_descriptor, int outcome_descriptor);

/// Copies `text` into a fixed array, cut where it is longer.
template <size_t kSize>
void copy_text(const char* text, char (&out)[kSize]) {
  size_t i = 0;
  for (; i + 1 < kSize && text[i]; ++i) out[i] = text[i];
  out[i] = '\0';
}

}  // namespace logitless::cli

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// One side of a comparison, as it runs in a process of its own: a job in, an outcome back, both plain bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "cli/child_process.h"
#include "cli/job.h"
#include "cli/measure.h"
#include "cli/task_call.h"
#include "logitless/plan.h"

namespace logitless::cli {

/// The hidden command of the child.
inline constexpr const char* kContenderCommand = "run-contender";

enum class OutcomeStatus { kDone, kInvalidInput, kFailed };

struct OutcomeMetric {
  char name[24] = {};
  double value = 0;
};

struct Outcome {
  OutcomeStatus status = OutcomeStatus::kFailed;
  char message[1024] = {};  ///< unless kDone

  double loss = 0;
  Measured measured;
  uint64_t workspace_bytes = 0;
  PlanKind plan = PlanKind::kAuto;
  char plan_text[512] = {};
  std::array<OutcomeMetric, 12> metrics;  ///< those with a name

  /// NaN where there is no such metric.
  double metric(const char* name) const;
};

/// Runs `job` in a child process and waits for it. Throws ChildFailure, Interrupted, or InvalidInput where the child's
/// call threw that.
Outcome run_in_child(const Job& job);

/// That child's whole life. Returns its exit status.
int run_contender(const ChildEnds& ends);

/// The config that a Job was made from.
io::Config config_of(const Job& job);

/// Runs a small call that brings up what every call needs once: the OpenMP team, the BLAS, the dispatch tables.
void warm_up(const Context& context, DType dtype);

/// Copies `text` into a fixed array, cut where it is longer.
template <size_t kSize>
void copy_text(const char* text, char (&out)[kSize]) {
  size_t i = 0;
  for (; i + 1 < kSize && text[i]; ++i) out[i] = text[i];
  out[i] = '\0';
}

}  // namespace logitless::cli

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The costs of plans. They depend neither on the number of threads nor on timings.
#pragma once

#include "core/matrices.h"
#include "planning/run_plan.h"
#include "source/source.h"

namespace logitless::planning {

/// Returns whether storing and re-reading logits is cheaper than recomputing them. A stored logit is written,
/// read and replaced by its gradient, and read by the gradient's products; caches fetch a line before it is
/// written. Each chunk except one reads the head again, and reads and writes d_weight. Otherwise logits are
/// recomputed `times` times: for their gradients, and for a second walk.
bool keeping_pays(const source::Source& source, const GradientMatrices& outputs, int times, const RunPlan& one);

}  // namespace logitless::planning

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// What plans cost: no thread count, and no timing, has a part in it.
#pragma once

#include "core/matrices.h"
#include "planning/run_plan.h"
#include "source/source.h"

namespace logitless::planning {

/// Returns whether logits are sooner read than computed again. One that is kept is written, read as its
/// gradient is written in its place, and read by the products of that; caches take in what is written first.
/// Each chunk but one reads the head again, and reads and writes d_weight. Others are computed again `times`
/// times: for their gradients, and for a second walk.
bool keeping_pays(const source::Source& source, const GradientMatrices& outputs, int times, const RunPlan& one);

}  // namespace logitless::planning

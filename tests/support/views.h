// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Tests create a call's tensors as matrices, in the engine's forms (oracle/views.h), and use the names of the
// public API.
#pragma once

#include "core/matrices.h"
#include "logitless/logitless.h"
#include "oracle/views.h"

namespace logitless::testing {

using LmHead = HeadMatrices;
using Gradients = GradientMatrices;
using Teacher = TeacherMatrices;
using LoraAdapter = LoraMatrices;
using WeightGradientSink = WeightTileSink;

/// A reference model: log-probabilities, or hidden states and a head.
struct Reference {
  ConstVector logps;
  HiddenStates hidden;
  LmHead head;
  EntriesPer logps_per = EntriesPer::kBySize;
};

}  // namespace logitless::testing

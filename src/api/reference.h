// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The reference of a preference loss: given log-probabilities, or another model.
#pragma once

#include <cstdint>
#include <span>

#include "api/call.h"
#include "core/checks.h"
#include "core/store.h"
#include "core/tensors.h"
#include "logitless/preference.h"
#include "loss/sequences.h"

namespace logitless::api {

/// The reference of a task: log-probabilities, or a model.
struct Reference {
  ConstVector logps;
  EntriesPer logps_per;
  SequenceLogps logps_are;  ///< what per-sequence entries are
  const Logits& model;
};

/// Returns the reference of a PreferenceLoss or KtoLoss, which must outlive it.
template <class Task>
Reference reference_of(const Task& task) {
  return {core::vector_of("ref_logps", task.ref_logps), task.ref_logps_per, task.ref_logps_are, task.reference};
}

bool is_given(const Reference& reference);

/// Throws InvalidInput for a reference given in both forms, of the wrong size, or with averages that are not
/// per sequence.
void check_reference(const Reference& reference, const loss::SequenceTokens& tokens, const problem::Shape& shape);

/// Returns the inputs of a reference: no output may overlap them.
core::Array<core::ByteRange> ranges_of(const Reference& reference);

/// Returns the sums of log-probabilities per sequence, [S]. Computes them as a part of `whole` if the
/// reference is a model. `weights`, [N], are factors of the tokens; empty: all 1.
core::Array<double> reference_sums(Call& whole, const Reference& reference, const loss::SequenceTokens& tokens,
                                   const TokenOptions& token, std::span<const double> weights = {});

/// Includes the part that reference_sums() runs in the plan of `whole`.
void plan_reference(Call& whole, const Reference& reference, const loss::SequenceTokens& tokens,
                    const TokenOptions& token);

/// Returns whether the reference has one log-probability per sequence.
bool is_sums(const Reference& reference, const loss::SequenceTokens& tokens);

}  // namespace logitless::api

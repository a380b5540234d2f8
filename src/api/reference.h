// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// A preference loss compares with a reference: log-probabilities that are given, or those of another model.
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

/// What a task says of its reference: log-probabilities, or a model.
struct Reference {
  ConstVector logps;
  EntriesPer logps_per;
  SequenceLogps logps_are;  ///< what entries of sequences are
  const Logits& model;
};

/// Returns that of a PreferenceLoss or KtoLoss, which must outlive it.
template <class Task>
Reference reference_of(const Task& task) {
  return {core::vector_of("ref_logps", task.ref_logps), task.ref_logps_per, task.ref_logps_are, task.reference};
}

bool is_given(const Reference& reference);

/// Throws InvalidInput for a reference in both forms or of the wrong size, and for averages of what is no
/// sequence's.
void check_reference(const Reference& reference, const loss::SequenceTokens& tokens, const problem::Shape& shape);

/// Returns what a reference reads: no output may overlap it.
core::Array<core::ByteRange> ranges_of(const Reference& reference);

/// Returns Σ_t log-probability, [S]: computes them, as a part of `whole`, where hidden states were given.
/// `weights`, [N], are factors of the tokens; empty: all are 1.
core::Array<double> reference_sums(Call& whole, const Reference& reference, const loss::SequenceTokens& tokens,
                                   const TokenOptions& token, std::span<const double> weights = {});

/// Counts the part that reference_sums() runs in the plan of `whole`.
void plan_reference(Call& whole, const Reference& reference, const loss::SequenceTokens& tokens,
                    const TokenOptions& token);

/// Tells whether the reference is one log-probability a sequence.
bool is_sums(const Reference& reference, const loss::SequenceTokens& tokens);

}  // namespace logitless::api

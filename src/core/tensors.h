// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The only place that checks each view of the public API by itself, and converts it for the engine. problem/
// and loss/ check that tensors agree with each other.
#pragma once

#include <string>
#include <string_view>

#include "core/checks.h"
#include "core/fields.h"
#include "core/matrices.h"
#include "logitless/logits.h"
#include "logitless/tensor.h"

namespace logitless::core {

/// A vector of numbers.
inline constexpr Role kVectorRole = numbers("[B], [N] or [B, T]");

/// Returns e.g. "int32, int64", or "floats" for the four float types.
std::string elements_text(const Role& role);
/// Throws InvalidInput unless an argument of this name and role accepts the tensor.
void check_tensor(std::string_view name, const ConstTensor& tensor, const Role& role);

// Conversions with checks. An absent tensor becomes an empty one.

ConstVector vector_of(std::string_view name, const ConstTensor& tensor, const Role& role = kVectorRole);
ConstMatrix matrix_of(std::string_view name, const ConstTensor& tensor, const char* shape);
Targets targets_of(std::string_view name, const ConstTensor& tensor, const Role& role = kTargetsRole);
HiddenStates hidden_of(const Logits& logits);
HeadMatrices head_of(const LmHead& head);
FinishedLogits logits_of(std::string_view name, const ConstTensor& logits);
/// Sets the default-constructed `out` to the gradients for a head of this layout, or for finished logits.
void set_gradients(const Gradients& gradients, HeadLayout layout, GradientMatrices& out);

/// Returns the bytes that the tensor covers. The tensor may be absent, or unchecked: a range that does not
/// fit is empty, and the check refuses the tensor.
ByteRange range_of(std::string_view name, const ConstTensor& tensor);

}  // namespace logitless::core

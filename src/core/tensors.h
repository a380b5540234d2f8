// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The one place where views of the public API are checked by themselves, and become what the engine works
// with. What must agree between tensors is checked in problem/ and loss/.
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
/// Throws InvalidInput unless the argument of this name and role accepts the tensor.
void check_tensor(std::string_view name, const ConstTensor& tensor, const Role& role);

// Conversions, which check. What is not given becomes what is empty.

ConstVector vector_of(std::string_view name, const ConstTensor& tensor, const Role& role = kVectorRole);
ConstMatrix matrix_of(std::string_view name, const ConstTensor& tensor, const char* shape);
Targets targets_of(std::string_view name, const ConstTensor& tensor, const Role& role = kTargetsRole);
HiddenStates hidden_of(const Logits& logits);
HeadMatrices head_of(const LmHead& head);
FinishedLogits logits_of(std::string_view name, const ConstTensor& logits);
/// Sets `out`, which is as it was made, to the gradients of a head of this layout, or of finished logits.
void set_gradients(const Gradients& gradients, HeadLayout layout, GradientMatrices& out);

/// Returns what the elements of a tensor cover. It has been checked, or is not given.
ByteRange range_of(std::string_view name, const ConstTensor& tensor);

}  // namespace logitless::core

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The only place that checks each view of the public API by itself, and converts it for the engine. problem/
// and loss/ check that tensors agree with each other.
#pragma once

#include <array>
#include <span>
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

/// Returns what a role accepts, e.g. "a tensor of int32 or int64 [N]"; floats are the four float types.
std::string text_of(const Role& role);
/// Returns element type and sizes, e.g. "int64 [3, 4]".
std::string text_of(const ConstTensor& tensor);
/// Throws InvalidInput if a per-token tensor is [B, T] (these `sizes`) and the hidden states or logits have
/// another B or T: its entries would be in another order.
void check_batch(MemberName name, const std::array<int64_t, 2>& sizes, const Logits& logits);
/// Throws InvalidInput unless each flag is 0 or 1.
void check_flags(MemberName name, std::span<const uint8_t> flags);
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

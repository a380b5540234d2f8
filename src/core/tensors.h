// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The one place where views of the public API are checked by themselves, and become what the engine works
// with. What must agree between tensors is checked in problem/ and loss/.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>

#include "core/checks.h"
#include "core/matrices.h"
#include "logitless/logits.h"
#include "logitless/tensor.h"

namespace logitless::core {

/// How elements may be laid out.
enum class Order {
  kDense,   ///< contiguous
  kRows,    ///< the last axis is contiguous
  kEither,  ///< one axis is contiguous
  kAny,     ///< any strides
};

/// The tensors that an argument accepts.
struct Role {
  const char* shape = "";  ///< for messages, e.g. "[N, H] or [B, T, H]"
  unsigned elements = 0;   ///< a bit for each DType
  int least_axes = 1, most_axes = 2;
  Order order = Order::kDense;

  constexpr bool takes(DType dtype) const { return (elements >> static_cast<unsigned>(dtype)) & 1; }
};
constexpr unsigned only(DType dtype) { return 1U << static_cast<unsigned>(dtype); }
inline constexpr unsigned kFloats = 0b1111;
inline constexpr unsigned kIds = only(DType::kInt32) | only(DType::kInt64);

inline constexpr Role kHiddenRole = {"[N, H] or [B, T, H]", kFloats, 2, 3, Order::kRows};
inline constexpr Role kLogitsRole = {"[N, V] or [B, T, V]", kFloats, 2, 3, Order::kRows};
inline constexpr Role kWeightRole = {"[V, H], or of uint8 [V, bytes of a row] if packed", kFloats | only(DType::kUInt8),
                                     2, 2, Order::kEither};
inline constexpr Role kScalesRole = {"[V, H / group]", only(DType::kFloat32)};
inline constexpr Role kRowsRole = {"[N, V]", kFloats, 2, 2, Order::kRows};
inline constexpr Role kIdsRole = {"[N] or [B, T]", kIds, 1, 2, Order::kAny};
inline constexpr Role kVectorRole = {"[B], [N] or [B, T]", kFloats};
inline constexpr Role kEntriesRole = {"[V]", kFloats, 1, 1};

/// Tells whether a field of this name has token ids. Other tensors of tasks have numbers.
constexpr bool has_ids(std::string_view field) { return field == "targets" || field == "chosen_ids" || field == "ids"; }

/// Returns what a role accepts, e.g. "a tensor of int32 or int64 [N]"; floats are the four float types.
std::string text_of(const Role& role);
/// Returns the elements and sizes of any tensor, e.g. "int64 [3, 4]".
std::string text_of(const ConstTensor& tensor);
/// Throws InvalidInput if a tensor with an entry for each token is [B, T] (these `sizes`), and the hidden
/// states or logits are of another B and T, so that its entries are in another order.
void check_batch(MemberName name, const std::array<int64_t, 2>& sizes, const Logits& logits);
/// Throws InvalidInput unless each flag is 0 or 1.
void check_flags(MemberName name, std::span<const uint8_t> flags);
/// Throws InvalidInput unless the argument of this name and role accepts the tensor.
void check_tensor(std::string_view name, const ConstTensor& tensor, const Role& role);

// Conversions, which check. What is not given becomes what is empty.

ConstVector vector_of(std::string_view name, const ConstTensor& tensor, const Role& role = kVectorRole);
ConstMatrix matrix_of(std::string_view name, const ConstTensor& tensor, const char* shape);
Targets targets_of(std::string_view name, const ConstTensor& tensor, const Role& role = kIdsRole);
HiddenStates hidden_of(const Logits& logits);
HeadMatrices head_of(const LmHead& head);
FinishedLogits logits_of(std::string_view name, const ConstTensor& logits);
/// Sets `out`, which is as it was made, to the gradients of a head of this layout, or of finished logits.
void set_gradients(const Gradients& gradients, HeadLayout layout, GradientMatrices& out);

/// Returns what the elements of a tensor cover. It has been checked, or is not given.
ByteRange range_of(std::string_view name, const ConstTensor& tensor);

}  // namespace logitless::core

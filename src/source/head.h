// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// This file alone knows how a head's weight is stored.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include "core/matrices.h"
#include "core/packed.h"
#include "core/views.h"
#include "gemm/gemm.h"
#include "source/multiplier.h"
#include "source/unpack.h"

namespace logitless::source {

/// How a matrix stores one number per vocabulary entry and component: entries are rows, or columns in layout
/// hidden_vocab. A head's weight and its gradient have the same Layout.
class Layout {
 public:
  explicit Layout(HeadLayout layout) : hidden_vocab_(layout == HeadLayout::kHiddenVocab) {}

  /// Returns whether entries are columns.
  bool is_hidden_vocab() const { return hidden_vocab_; }
  int64_t rows(int64_t entries, int64_t components) const { return hidden_vocab_ ? components : entries; }
  int64_t cols(int64_t entries, int64_t components) const { return hidden_vocab_ ? entries : components; }
  /// Returns the offset of a number, in elements.
  int64_t offset(int64_t entry, int64_t component, int64_t stride) const {
    return hidden_vocab_ ? component * stride + entry : entry * stride + component;
  }

  /// Returns vocabulary entries [first, first + count) of a matrix.
  template <class AnyMatrix>
  AnyMatrix entries_of(const AnyMatrix& matrix, int64_t first, int64_t count) const {
    AnyMatrix out = core::with_used_stride(matrix);
    (hidden_vocab_ ? out.cols : out.rows) = count;
    if (out.data) out.data = core::element(out.data, out.dtype, offset(first, 0, out.stride));
    return out;
  }

 private:
  bool hidden_vocab_;
};

/// Returns entries [first, first + count) of a vector.
template <class AnyVector>
AnyVector entries_of(const AnyVector& vector, int64_t first, int64_t count) {
  AnyVector out = vector;
  if (!out.data) return out;
  out.size = count;
  out.data = core::element(out.data, out.dtype, first);
  return out;
}

/// Returns vocabulary entries [first, first + count) of a head.
inline HeadMatrices slice(const HeadMatrices& head, int64_t first, int64_t count) {
  HeadMatrices out = head;
  out.bias = entries_of(head.bias, first, count);
  if (!head.ids.empty()) {
    out.ids = head.ids.subspan(static_cast<size_t>(first), static_cast<size_t>(count));
    return out;
  }
  if (head.lora.given()) out.lora.b = Layout(HeadLayout::kVocabHidden).entries_of(head.lora.b, first, count);
  if (head.packed.given()) {
    out.packed = core::rows_of(head.packed, first, count);
  } else {
    out.weight = Layout(head.layout).entries_of(head.weight, first, count);
  }
  return out;
}

/// A head's weight as an operand of products: a matrix that is read in place, or entries that are unpacked or
/// gathered into a product's scratch.
class Head {
 public:
  explicit Head(const HeadMatrices& head)
      : weight_(core::with_used_stride(head.weight)),
        packed_(head.packed),
        ids_(head.ids),
        layout_(head.layout),
        entries_(head.vocab_size()),
        components_(head.hidden_size()) {}

  int64_t entries() const { return entries_; }
  int64_t components() const { return components_; }
  /// Returns the type of the operands.
  DType dtype() const { return packed_.given() ? DType::kFloat32 : weight_.dtype; }
  /// Returns the bytes per entry as stored.
  double entry_bytes() const {
    if (packed_.given()) return static_cast<double>(core::row_bytes(packed_));
    return static_cast<double>(size_of(weight_.dtype)) * static_cast<double>(components_);
  }
  /// Returns the layout of the weight's gradient.
  const Layout& layout() const { return layout_; }

  /// Copies the row of a vocabulary entry, [components] of dtype().
  void copy_entry(const kernels::RowKernels& kernels, int64_t entry, void* to) const {
    const auto copy = [&](const auto& unpack) { copy_components(unpack, entry, 0, components_, to); };
    packed_.given() ? copy(Unpacker(kernels, packed_)) : copy(nullptr);
  }

  /// The orientation of an operand in a product: op(M) [components, entries] or op(M) [entries, components].
  enum class Order { kComponentsFirst, kEntriesFirst };
  /// Returns whether such an operand is the transpose of the matrix in memory.
  bool is_transposed(Order order) const {
    const bool components_first = in_place() && layout_.is_hidden_vocab();
    return components_first != (order == Order::kComponentsFirst);
  }
  /// Returns the bytes of scratch that operand() needs for `entries` entries.
  size_t scratch_bytes(int64_t entries) const {
    return in_place() ? 0 : static_cast<size_t>(entries * components_) * size_of(dtype());
  }
  /// Returns vocabulary entries [entry, entry + entries) and components [component, component + components)
  /// as an operand for `multiply`. If it is not in place, the operand is in multiply.scratch.head and valid
  /// until that is written again.
  gemm::Operand operand(Order order, int64_t entry, int64_t entries, int64_t component, int64_t components,
                        const Multiplier& multiply) const {
    if (in_place()) {
      const int64_t offset = layout_.offset(entry, component, weight_.stride);
      return {core::element(weight_.data, weight_.dtype, offset), weight_.dtype, weight_.stride, is_transposed(order)};
    }
    void* const scratch = multiply.scratch.head;
    const auto copy = [&](const auto& unpack) {
      for (int64_t e = 0; e < entries; ++e) {
        copy_components(unpack, entry + e, component, components, core::element(scratch, dtype(), e * components));
      }
    };
    packed_.given() ? copy(Unpacker(multiply.kernels, packed_)) : copy(nullptr);
    return {scratch, dtype(), components, is_transposed(order)};
  }

 private:
  bool in_place() const { return ids_.empty() && !packed_.given(); }

  // `unpack` is an Unpacker, or null if the weight is a matrix.
  template <class Unpack>
  void copy_components(const Unpack& unpack, int64_t entry, int64_t first, int64_t count, void* to) const {
    const int64_t row = ids_.empty() ? entry : ids_[static_cast<size_t>(entry)];
    if constexpr (std::is_same_v<Unpack, Unpacker>) {
      unpack(row, first, count, static_cast<float*>(to));
    } else {
      copy_from_matrix(row, first, count, to);
    }
  }
  void copy_from_matrix(int64_t row, int64_t first, int64_t count, void* to) const {
    const void* from = core::element(weight_.data, weight_.dtype, layout_.offset(row, first, weight_.stride));
    const size_t bytes = size_of(weight_.dtype);
    if (!layout_.is_hidden_vocab()) {
      std::memcpy(to, from, static_cast<size_t>(count) * bytes);
      return;
    }
    const auto copy = [&](auto element) {
      using Element = decltype(element);
      const auto* source = static_cast<const Element*>(from);
      auto* target = static_cast<Element*>(to);
      for (int64_t i = 0; i < count; ++i) target[i] = source[i * weight_.stride];
    };
    bytes == 2 ? copy(uint16_t()) : bytes == 4 ? copy(uint32_t()) : copy(uint64_t());
  }

  ConstMatrix weight_;
  PackedMatrix packed_;
  std::span<const int64_t> ids_;
  Layout layout_;
  int64_t entries_;
  int64_t components_;
};

}  // namespace logitless::source

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The one place that knows how a head's weight is stored.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/views.h"
#include "gemm/gemm.h"
#include "logitless/tensors.h"
#include "source/multiplier.h"

namespace logitless::source {

/// Where numbers for each vocabulary entry and component stand in a matrix: an entry is a row, or a column in
/// layout hidden_vocab. A head's weight and its gradient have one Layout.
class Layout {
 public:
  explicit Layout(HeadLayout layout) : hidden_vocab_(layout == HeadLayout::kHiddenVocab) {}

  /// Returns whether an entry is a column.
  bool is_hidden_vocab() const { return hidden_vocab_; }
  int64_t rows(int64_t entries, int64_t components) const { return hidden_vocab_ ? components : entries; }
  int64_t cols(int64_t entries, int64_t components) const { return hidden_vocab_ ? entries : components; }
  /// Returns the place of a number, in elements.
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
inline LmHead slice(const LmHead& head, int64_t first, int64_t count) {
  LmHead out = head;
  out.weight = Layout(head.layout).entries_of(head.weight, first, count);
  out.bias = entries_of(head.bias, first, count);
  return out;
}

/// The weight of a head as products read it.
class Head {
 public:
  explicit Head(const LmHead& head)
      : weight_(core::with_used_stride(head.weight)),
        layout_(head.layout),
        entries_(head.vocab_size()),
        components_(head.hidden_size()) {}

  int64_t entries() const { return entries_; }
  int64_t components() const { return components_; }
  /// Returns the type that products read.
  DType dtype() const { return weight_.dtype; }
  /// Returns the layout of the weight's gradient.
  const Layout& layout() const { return layout_; }

  /// Copies the row of a vocabulary entry, [components] of dtype().
  void copy_entry(int64_t entry, void* to) const {
    const void* from = core::element(weight_.data, weight_.dtype, layout_.offset(entry, 0, weight_.stride));
    const size_t bytes = size_of(weight_.dtype);
    if (!layout_.is_hidden_vocab()) {
      std::memcpy(to, from, static_cast<size_t>(components_) * bytes);
      return;
    }
    const auto copy = [&](auto element) {
      using Element = decltype(element);
      const auto* source = static_cast<const Element*>(from);
      auto* target = static_cast<Element*>(to);
      for (int64_t i = 0; i < components_; ++i) target[i] = source[i * weight_.stride];
    };
    bytes == 2 ? copy(uint16_t()) : bytes == 4 ? copy(uint32_t()) : copy(uint64_t());
  }

  /// How an operand stands in a product: as op(M) [components, entries], or as op(M) [entries, components].
  enum class Order { kComponentsFirst, kEntriesFirst };
  /// Tells whether such an operand is a transpose of what stands in memory.
  bool is_transposed(Order order) const { return layout_.is_hidden_vocab() != (order == Order::kComponentsFirst); }
  /// Returns the bytes of scratch that operand() needs for so many entries: none, because a matrix is read as
  /// it stands.
  size_t scratch_bytes(int64_t /*entries*/) const { return 0; }
  /// Returns the part that holds vocabulary entries [entry, entry + entries) and components [component,
  /// component + components), for `multiply`. It lives as long as what the scratch of that holds.
  gemm::Operand operand(Order order, int64_t entry, int64_t /*entries*/, int64_t component, int64_t /*components*/,
                        const Multiplier& /*multiply*/) const {
    const int64_t offset = layout_.offset(entry, component, weight_.stride);
    return {core::element(weight_.data, weight_.dtype, offset), weight_.dtype, weight_.stride, is_transposed(order)};
  }

 private:
  ConstMatrix weight_;
  Layout layout_;
  int64_t entries_;
  int64_t components_;
};

}  // namespace logitless::source

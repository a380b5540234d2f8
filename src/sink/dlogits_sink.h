// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>
#include <span>

#include "logitless/logits.h"
#include "problem/logits_problem.h"

namespace logitless::sink {

/// Writes the gradients of finished logits. Each row is written once and needs no sums, so this is not a
/// Sink.
class DlogitsSink {
 public:
  /// `out` must outlive this.
  DlogitsSink(const LogitsGradient& out, int64_t vocab_size) : out_(out), vocab_size_(vocab_size) {}

  DType dtype() const { return out_.dtype; }

  /// Writes rows [begin, end): make(row, to) writes the gradient of each of the increasing `rows` for which
  /// has_gradient(row) is true, and all other rows are set to zero. If gradients overwrite their logits in
  /// place, a row's logits are valid until that row is written.
  template <class HasGradient, class Make>
  void write(int64_t begin, int64_t end, std::span<const int64_t> rows, const HasGradient& has_gradient,
             const Make& make) const {
    for (const int64_t row : rows) {
      if (!has_gradient(row)) continue;
      clear(begin, row);
      make(row, problem::dlogits_row(out_, row));
      begin = row + 1;
    }
    clear(begin, end);
  }

 private:
  void clear(int64_t begin, int64_t end) const {
    const size_t bytes = static_cast<size_t>(vocab_size_) * size_of(out_.dtype);
    for (int64_t row = begin; row < end; ++row) std::memset(problem::dlogits_row(out_, row), 0, bytes);
  }

  const LogitsGradient& out_;
  int64_t vocab_size_;
};

}  // namespace logitless::sink

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>
#include <span>

#include "logitless/logits.h"
#include "problem/logits_problem.h"

namespace logitless::sink {

/// The gradients of finished logits: each row is written once, to its place. There are no sums, so that this
/// is no Sink.
class DlogitsSink {
 public:
  /// `out` must outlive this.
  DlogitsSink(const LogitsGradient& out, int64_t vocab_size) : out_(out), vocab_size_(vocab_size) {}

  DType dtype() const { return out_.dtype; }

  /// Writes rows [begin, end): make(row, to) writes those of `rows` (increasing) that have a gradient, as
  /// has_gradient(row) says, and all others become zeros. Logits that stand in place of their gradients stay
  /// until their row is written.
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

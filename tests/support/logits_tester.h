// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The calls of logits.h as sentences:
//
//   LogitsTester().batch(3).tokens(36).vocab(2049).shift().in_place().cross_entropy_once();
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "logitless/logits.h"
#include "support/testers.h"
#include "support/views.h"

namespace logitless::testing {

/// Holds logits [B, T, V] with any strides. Elements outside of the slice are untouched memory (NaN).
class LogitsBuffer {
 public:
  struct Shape {
    DType dtype = DType::kFloat32;
    int64_t batch = 1, time = 1, vocab = 1;
    int64_t padding = 0;      ///< elements after each row
    int64_t later = 0;        ///< positions of each sequence beyond the slice: logits[:, :-later, :]
    bool time_first = false;  ///< stored as [T, B, V]
  };
  LogitsBuffer() = default;
  LogitsBuffer(const Shape& shape, const Allocate& allocate);

  double get(int64_t row, int64_t entry) const { return tensor_.get(stored_row(row), entry); }
  void set(int64_t row, int64_t entry, double value) { tensor_.set(stored_row(row), entry, value); }
  FinishedLogits view() const;
  LogitsGradient output();
  std::span<const std::byte> bytes() const { return tensor_.bytes(); }

 private:
  int64_t stored_row(int64_t row) const;
  int64_t stored_time() const { return shape_.time + shape_.later; }
  int64_t stride() const { return shape_.vocab + shape_.padding; }

  Shape shape_;
  HostTensor tensor_;
};

/// What one run left.
struct LogitsRun {
  CrossEntropyResult result;
  TokenStats stats;
  std::vector<double> entropy;
  LogitsBuffer dlogits;
  std::vector<std::byte> bytes;  ///< everything that must not depend on threads
};

class LogitsTester : public CrossEntropyOptionsTester<LogitsTester> {
 public:
  LogitsTester& in_place(bool on = true) { return run("in_place", on, in_place_, on); }
  /// The loss of run_token_loss has groups: all rows are evaluated at once.
  LogitsTester& groups(bool on = true) { return run("groups", on, groups_, on); }
  LogitsRun cross_entropy_once();
  LogitsRun token_loss_once();
  LogitsRun entropy_once();

 private:
  struct Reference;

  void forget() override { reference_.reset(); }
  Reference& reference();
  LogitsBuffer copy_of_logits() const;
  LogitsBuffer new_gradient() const;
  /// Calls `call(logits, dlogits)`, and stores the gradient in `run`.
  template <class Call>
  void with_buffers(LogitsRun& run, const Call& call);

  bool in_place_ = false;
  bool groups_ = false;
  std::shared_ptr<Reference> reference_;
};

}  // namespace logitless::testing

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The calls of logits.h as sentences:
//
//   LogitsTester().batch(3).tokens(36).vocab(2049).shift().in_place().cross_entropy_matches_oracle();
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
  /// Tells whether everything outside of the slice still has the bytes that it was made with.
  bool surroundings_are_intact() const;

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
  Plan backward_plan;  ///< of the split form
  TokenStats stats;
  std::vector<double> entropy;
  LogitsBuffer dlogits;
  std::vector<std::byte> bytes;  ///< everything that must not depend on threads
};

class LogitsTester : public CrossEntropyOptionsTester<LogitsTester> {
 public:
  LogitsTester& later(int64_t positions) { return input("later", positions, later_, positions); }
  LogitsTester& time_first(bool on = true) { return input("time_first", on, time_first_, on); }
  LogitsTester& in_place(bool on = true) { return run("in_place", on, in_place_, on); }
  LogitsTester& without_gradient(bool on = true) { return run("without_gradient", on, without_gradient_, on); }
  /// The loss of run_token_loss has groups: all rows are evaluated at once.
  LogitsTester& groups(bool on = true) { return run("groups", on, groups_, on); }
  /// Every row masks the vocabulary entries [first, last) with -inf.
  LogitsTester& masked(int64_t first, int64_t last) {
    masked_last_ = last;
    return input("masked", first, masked_first_, first);
  }

  /// Compares cross_entropy: loss, unreduced losses, logps, metrics and every element of dlogits.
  void cross_entropy_matches_oracle();
  /// Compares compute_token_stats, and run_token_loss with random gradients of all four statistics.
  void token_loss_matches_oracle();
  /// Compares entropy_from_logits with a random upstream.
  void entropy_matches_oracle();
  /// Does all three.
  void matches_oracle();

  /// Returns the plan of cross_entropy.
  Plan planned();
  LogitsRun cross_entropy_once();
  LogitsRun token_loss_once();
  LogitsRun entropy_once();

 private:
  struct Reference;

  void forget() override { reference_.reset(); }
  Reference& reference();
  LogitsBuffer copy_of_logits() const;
  LogitsBuffer new_gradient() const;
  /// Calls `call(logits, dlogits)` as in_place and without_gradient say, and leaves the gradient in `run`.
  template <class Call>
  void with_buffers(LogitsRun& run, const Call& call);
  void run_one_entropy();
  void expect_plan(const LogitsRun& run) const;
  void expect_gradient_near(const LogitsBuffer& got, const Expected& expected, const oracle::TokenGradients& grads,
                            const oracle::TokenGradients& token_errors) const;

  int64_t later_ = 0;
  bool time_first_ = false;
  bool in_place_ = false;
  bool without_gradient_ = false;
  bool groups_ = false;
  int64_t masked_first_ = 0, masked_last_ = 0;
  std::shared_ptr<Reference> reference_;
};

}  // namespace logitless::testing

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Cuts a run's points into the sets that one drawing can show, and says where they lie in it.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "report/bench_run.h"

namespace logitless::report {

/// The swept keys (as indices of BenchRun::sweep) that can lie along an axis: at least two of their values begin with a
/// digit.
std::vector<size_t> axis_keys(const BenchRun& run);

/// Points that differ in the keys of one drawing alone.
struct Slice {
  std::string title;  ///< "model.dtype = float32, seq_len = 512": the keys that other slices or held points vary
  std::vector<const Point*> points;
};

/// Cuts the points by the values of every varying key but those in `drawn`, in the order of these values. Slices that
/// differ in keys of `held` alone are rivals: only the one with the most points stays, of equal ones that of the last
/// values.
std::vector<Slice> cut(const BenchRun& run, const std::vector<size_t>& drawn, const std::vector<size_t>& held = {});

struct Tick {
  double x = 0;
  std::string label;
};

/// Where the points of a sweep lie along one of its keys: at the size of the shape that the key changes, at its values
/// where all of them are numbers, else one place after the other.
class Axis {
 public:
  Axis(const BenchRun& run, size_t key);

  bool is_shape() const { return size_ != nullptr; }
  bool ordinal() const { return ordinal_; }
  const std::string& label() const { return label_; }  ///< "tokens", "kernel.block_size"
  Tick tick(const Point& point) const;

 private:
  const SweptKey& swept_;
  size_t key_;
  int64_t Shape::*size_ = nullptr;
  std::string label_;
  bool ordinal_ = false;
};

/// What all of these points share: "1,024 tokens, hidden size 1,536, float32, hidden_vocab"
std::string common_shape(const std::vector<const Point*>& points);

}  // namespace logitless::report

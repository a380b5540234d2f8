// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Measures how far stored results are from the oracle's, tile by tile.
#pragma once

#include <cmath>
#include <cstdint>

#include "logitless/dtype.h"
#include "oracle/oracle.h"

namespace logitless::oracle {

/// Element (r, c) is data[r * row_stride + c * col_stride].
struct StoredMatrix {
  const void* data = nullptr;
  DType dtype = DType::kFloat32;
  int64_t row_stride = 0;
  int64_t col_stride = 1;

  double at(int64_t row, int64_t col) const { return read_element(data, dtype, row * row_stride + col * col_stride); }
};

/// Collects differences. A NaN on either side makes all of them NaN. Tiles in the same order give the same
/// bits for any number of threads.
class Deviation {
 public:
  /// `stored` has the shape of `want`.
  void add(const MatrixXd& want, const StoredMatrix& stored);
  /// Both are stored, as [row_count, cols].
  void add(const StoredMatrix& want, const StoredMatrix& stored, int64_t row_count, int64_t cols);

  double max_abs() const { return max_abs_; }  ///< max |stored - want|
  /// max |stored - want| / |want| over the elements with |want| at least the smallest normal number of the
  /// stored type, because the type itself loses digits below it.
  double max_rel() const { return max_rel_; }
  double rel_l2() const;  ///< ‖stored - want‖ / ‖want‖; 0 if both norms are 0, infinite if only ‖want‖ is
  double largest() const { return largest_; }          ///< max |want|
  double norm() const { return std::sqrt(squares_); }  ///< ‖want‖
  int64_t count() const { return count_; }             ///< elements

 private:
  double max_abs_ = 0, max_rel_ = 0, largest_ = 0, difference_squares_ = 0, squares_ = 0;
  int64_t count_ = 0;
};

}  // namespace logitless::oracle

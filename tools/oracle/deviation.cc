// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "oracle/deviation.h"

#include <vector>

namespace logitless::oracle {
namespace {

// A NaN stays: std::max would keep or drop it, depending on the order of its arguments.
double sticky_max(double a, double b) { return !(a >= b) && a == a ? b : a; }

double smallest_normal(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return 0x1p-1022;
    case DType::kFloat16:
      return 0x1p-14;
    default:
      break;
  }
  return 0x1p-126;
}

}  // namespace

void Deviation::add(const MatrixXd& want, const StoredMatrix& stored) {
  add({want.data(), DType::kFloat64, want.cols(), 1}, stored, want.rows(), want.cols());
}

void Deviation::add(const StoredMatrix& want, const StoredMatrix& stored, int64_t row_count, int64_t cols) {
  const double smallest = smallest_normal(stored.dtype);
  count_ += row_count * cols;
  std::vector<Deviation> rows(row_count);
#pragma omp parallel for schedule(static)
  for (int64_t r = 0; r < row_count; ++r) {
    Deviation& row = rows[r];
    for (int64_t c = 0; c < cols; ++c) {
      const double wanted = want.at(r, c), size = std::abs(wanted), got = stored.at(r, c);
      const double difference = std::abs(got - wanted);
      row.max_abs_ = sticky_max(row.max_abs_, difference);
      if (!(size < smallest) || std::isnan(difference)) row.max_rel_ = sticky_max(row.max_rel_, difference / size);
      row.largest_ = sticky_max(row.largest_, size);
      row.difference_squares_ += difference * difference;
      row.squares_ += size * size;
    }
  }
  for (const Deviation& row : rows) {
    for (double Deviation::*most : {&Deviation::max_abs_, &Deviation::max_rel_, &Deviation::largest_}) {
      this->*most = sticky_max(this->*most, row.*most);
    }
    difference_squares_ += row.difference_squares_;
    squares_ += row.squares_;
  }
}

double Deviation::rel_l2() const { return difference_squares_ == 0 ? 0 : std::sqrt(difference_squares_ / squares_); }

}  // namespace logitless::oracle

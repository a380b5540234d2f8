// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/common/job.h"

namespace logitless::cli {

/// Over all elements of two tensors. A NaN in either makes both figures NaN.
struct TensorDifference {
  double max_abs = 0;  ///< max |a − b|
  double rel_l2 = 0;   ///< ‖a − b‖ / ‖a‖; 0 where both norms are 0, infinite where only ‖a‖ is
};

/// Streams over both, which have the same size, with float64 sums; the same bits for any number of threads.
TensorDifference difference_of(const TensorBytes& a, const TensorBytes& b, DType dtype);

}  // namespace logitless::cli

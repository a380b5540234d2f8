// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The sink of a head's gradient that is a Python function.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "arrays.h"

namespace logitless::python {

/// Calls callable(first, count, tile). The tile owns its memory. It is the part of the gradient of those token ids in
/// the shape of the weight as it was given: `transposed` tells that the head stands in memory the other way round.
inline WeightGradientSink sink_of(nb::handle callable, bool transposed) {
  // The library copies the sink without Python's lock: such copies count no references. Calls come from threads of
  // OpenMP's.
  auto kept = std::make_shared<const nb::object>(nb::borrow(callable));
  return [kept = std::move(kept), transposed](int64_t first, int64_t count, const ConstMatrix& tile) {
    const nb::gil_scoped_acquire acquire;
    const auto call = [&]<class T>(const T* data) {
      const Column<T> copy(static_cast<size_t>(tile.rows * tile.cols));
      for (int64_t row = 0; row < tile.rows; ++row) {
        std::copy_n(data + row * tile.stride, tile.cols, copy.data + row * tile.cols);
      }
      const nb::object array = copy.array.attr("reshape")(tile.rows, tile.cols);
      (*kept)(first, count, transposed ? nb::object(array.attr("T")) : array);
    };
    if (tile.dtype == DType::kFloat64) {
      call(static_cast<const double*>(tile.data));
    } else {
      call(static_cast<const float*>(tile.data));
    }
  };
}

}  // namespace logitless::python

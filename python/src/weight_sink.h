// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// A sink for the head's gradient that calls a Python function.
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

/// Returns a sink that calls callable(first, count, tile). The tile is a copy, [count, H]: the gradient of
/// the token ids [first, first + count), in the memory order of the weight.
inline WeightGradientSink sink_of(nb::handle callable) {
  // Shared, because the library copies the sink without Python's lock, and copying an nb::object counts
  // references. The sink is called from OpenMP's threads.
  auto kept = std::make_shared<const nb::object>(nb::borrow(callable));
  return [kept = std::move(kept)](int64_t first, int64_t count, const ConstTensor& given) {
    const nb::gil_scoped_acquire acquire;
    // Copies contiguous rows: if the tile's columns are contiguous instead, transpose it.
    const bool turned = given.strides[1] != 1;
    const ConstTensor tile = turned ? transposed(given) : given;
    const auto call = [&]<class T>(const T* data) {
      const Column<T> copy(static_cast<size_t>(tile.count()));
      for (int64_t row = 0; row < tile.sizes[0]; ++row) {
        std::copy_n(data + row * tile.strides[0], tile.sizes[1], copy.data + row * tile.sizes[1]);
      }
      const nb::object array = copy.array.attr("reshape")(tile.sizes[0], tile.sizes[1]);
      (*kept)(first, count, turned ? nb::object(array.attr("T")) : array);
    };
    if (tile.dtype == DType::kFloat64) {
      call(static_cast<const double*>(tile.data));
    } else {
      call(static_cast<const float*>(tile.data));
    }
  };
}

}  // namespace logitless::python

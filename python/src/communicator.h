// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// A Communicator whose functions are those of a Python object.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <utility>

#include "logitless/ranks.h"

namespace logitless::python {

namespace nb = nanobind;

/// The object has the attributes rank and size, and the methods all_gather(mine, all) and all_to_all(mine, theirs),
/// which get arrays of uint8. What they raise ends the call.
class PythonCommunicator final : public Communicator {
 public:
  explicit PythonCommunicator(nb::object object)
      : object_(std::move(object)),
        rank_(nb::cast<int>(object_.attr("rank"))),
        size_(nb::cast<int>(object_.attr("size"))) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void all_gather(const void* mine, void* all, size_t bytes) override {
    const nb::gil_scoped_acquire acquire;
    object_.attr("all_gather")(bytes_of(mine, bytes), bytes_of(all, bytes * static_cast<size_t>(size_)));
  }
  void all_to_all(const void* mine, void* theirs, size_t bytes) override {
    const nb::gil_scoped_acquire acquire;
    const size_t all = bytes * static_cast<size_t>(size_);
    object_.attr("all_to_all")(bytes_of(mine, all), bytes_of(theirs, all));
  }

 private:
  static nb::object bytes_of(const void* data, size_t bytes) {
    const size_t shape[1] = {bytes};
    return nb::ndarray<nb::numpy, uint8_t>(const_cast<void*>(data), 1, shape, nb::handle())
        .cast(nb::rv_policy::reference);
  }

  nb::object object_;
  int rank_;
  int size_;
};

}  // namespace logitless::python

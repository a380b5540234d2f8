// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// A Communicator that calls a Python object.
#pragma once

#include <nanobind/nanobind.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "arrays.h"
#include "logitless/ranks.h"

namespace logitless::python {

/// The object has the attributes rank and size, and the methods all_gather(mine, all) and all_to_all(mine,
/// theirs). Each method gets two uint8 arrays and fills the second. The arrays are copies, so Python may keep
/// them. An exception from a method ends the call.
class PythonCommunicator final : public Communicator {
 public:
  explicit PythonCommunicator(nb::object object)
      : object_(std::move(object)), rank_(number_of("rank")), size_(number_of("size")) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void all_gather(const void* mine, void* all, size_t bytes) override {
    exchange("all_gather", mine, bytes, all, bytes * static_cast<size_t>(size_));
  }
  void all_to_all(const void* mine, void* theirs, size_t bytes) override {
    const size_t all = bytes * static_cast<size_t>(size_);
    exchange("all_to_all", mine, all, theirs, all);
  }

 private:
  int number_of(const char* name) const {
    const nb::object value = object_.attr(name);
    int out = 0;
    if (nb::try_cast(value, out)) return out;
    nb::raise_type_error("%s of a communicator is %s: it must be an int", name, nb::repr(value).c_str());
  }

  void exchange(const char* method, const void* mine, size_t given, void* theirs, size_t taken) {
    const nb::gil_scoped_acquire acquire;
    const auto* first = static_cast<const uint8_t*>(mine);
    const Column<uint8_t> out(given), in(taken);
    std::copy_n(first, given, out.data);
    std::fill_n(in.data, taken, uint8_t{0});
    object_.attr(method)(out.array, in.array);
    std::copy_n(in.data, taken, static_cast<uint8_t*>(theirs));
  }

  nb::object object_;
  int rank_;
  int size_;
};

}  // namespace logitless::python

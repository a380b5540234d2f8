// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Cuts a run's points into the sets that one drawing can show.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "report/bench_run.h"

namespace logitless::report {

/// The swept keys (as indices of BenchRun::sweep) that take more than one value.
struct VaryingKeys {
  std::vector<size_t> axes;    ///< at least two of the values begin with a digit: they can lie along an axis
  std::vector<size_t> facets;  ///< names, such as a dtype: one drawing for each
};
VaryingKeys varying_keys(const BenchRun& run);

/// Points that differ in the keys of one drawing alone.
struct Slice {
  std::string title;  ///< "dtype = float32, vocab_size = 32000": the keys that other slices or held points vary
  std::vector<const Point*> points;
};

/// Cuts the points by the values of every varying key but those in `drawn`, in the order of these values. Slices that
/// differ in keys of `held` alone are rivals: only the one with the most points stays, of equal ones that of the last
/// values.
std::vector<Slice> cut(const BenchRun& run, const std::vector<size_t>& drawn, const std::vector<size_t>& held = {});

/// The value of a key as a number, where all of it is one and its size can be drawn.
std::optional<double> number_in(const std::string& value);

/// A swept key without its section, "dtype" for "model.dtype", unless two swept keys would then look alike.
std::string short_key(const BenchRun& run, size_t key);

}  // namespace logitless::report

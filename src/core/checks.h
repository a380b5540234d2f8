// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// These functions check what a caller hands over. Each throws InvalidInput with a message that names the
// argument, the value and the rule; none of them writes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "logitless/error.h"
#include "logitless/tensors.h"

namespace logitless::core {

/// Throws InvalidInput with the arguments written one after the other.
template <class... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  std::ostringstream message;
  message.precision(17);
  (message << ... << parts);
  throw InvalidInput(message.str());
}

/// Checks shape, stride and pointer of a matrix; a matrix of zero rows may have a null pointer.
void check_matrix(std::string_view name, const void* data, DType dtype, int64_t rows, int64_t cols, int64_t stride);
void check_vector(std::string_view name, const void* data, DType dtype, int64_t size);
/// Checks strides, pointer and number of ids, of which there must be one for each of the `rows` rows of
/// `rows_name`.
void check_targets(std::string_view name, const Targets& targets, int64_t rows, std::string_view rows_name);
void check_positive_finite(std::string_view name, double value);
void check_finite(std::string_view name, double value);

/// [begin, end) are the bytes that a view may touch, for the search of overlaps.
struct ByteRange {
  std::string_view name;
  uintptr_t begin = 0;
  uintptr_t end = 0;
};
ByteRange range_of(std::string_view name, const Matrix& m);
ByteRange range_of(std::string_view name, const ConstMatrix& m);
ByteRange range_of(std::string_view name, const Vector& v);
ByteRange range_of(std::string_view name, const ConstVector& v);
ByteRange range_of(std::string_view name, const Targets& targets);
ByteRange range_of(std::string_view name, const void* data, size_t bytes);

/// Checks that no output overlaps an input or another output.
void check_overlaps(std::span<const ByteRange> outputs, std::span<const ByteRange> inputs);

}  // namespace logitless::core

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Checks of a caller's arguments. Each throws InvalidInput with a message that names the argument, the value
// and the rule; none of them writes.
#pragma once

#include <charconv>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/matrices.h"
#include "logitless/error.h"

namespace logitless::core {

/// Writes a part of a message; floating-point numbers as the shortest text that reads back as the same
/// number.
template <class Part>
void write_part(std::ostream& out, const Part& part) {
  if constexpr (std::is_floating_point_v<Part>) {
    char text[64];
    out.write(text, std::to_chars(text, text + sizeof text, part).ptr - text);
  } else {
    out << part;
  }
}

/// Throws InvalidInput with the arguments written one after the other.
template <class... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  std::ostringstream message;
  (write_part(message, parts), ...);
  throw InvalidInput(message.str());
}

/// Calls fail() if `condition` holds.
template <class... Parts>
void fail_if(bool condition, const Parts&... parts) {
  if (condition) fail(parts...);
}

/// The end of a message about a tensor with a wrong number of entries: "has 3 entries", or "is not given" for
/// 0 entries.
struct HasEntries {
  int64_t count;

  explicit HasEntries(std::integral auto count_) : count(static_cast<int64_t>(count_)) {}
};
inline std::ostream& operator<<(std::ostream& out, HasEntries has) {
  return has.count == 0 ? out << "is not given" : out << "has " << has.count << " entries";
}

/// A member of an argument in messages, e.g. "weight.stride". The two parts are joined only when printed, so
/// a correct call allocates nothing.
struct MemberName {
  std::string_view of;  // empty: the member stands alone
  std::string_view member;

  MemberName(std::string_view of_, std::string_view member_) : of(of_), member(member_) {}
  MemberName(std::string_view whole) : member(whole) {}
  MemberName(const char* whole) : member(whole) {}
};
inline std::ostream& operator<<(std::ostream& out, const MemberName& name) {
  return out << name.of << (name.of.empty() ? "" : ".") << name.member;
}

struct BatchedRows;  // core/batched_rows.h

/// Checks the strides of every tensor: each stride in use is at least a row, and the last element has a
/// 64-bit offset. The stride of an axis of size 1 may be anything. `batch_stride` and `row_stride` name the
/// strides in messages.
void check_strides(std::string_view name, MemberName batch_stride, MemberName row_stride, const BatchedRows& rows);
/// The largest number of rows or columns, and the largest stride, of a matrix that a BLAS multiplies: it
/// takes them as int.
inline constexpr int64_t kMostRows = std::numeric_limits<int32_t>::max();
/// Checks rows, columns and pointer of a matrix that a BLAS multiplies; without rows the pointer may be null.
void check_sizes(std::string_view name, const void* data, int64_t rows, int64_t cols);
/// Also checks the stride, for a matrix without sequences.
void check_matrix(std::string_view name, const void* data, int64_t rows, int64_t cols, int64_t stride);
/// Throws if the stride between rows, if there are several, is too large for a BLAS.
void check_blas_stride(MemberName row_stride, const BatchedRows& rows);
/// Throws unless `data` is aligned to `bytes`, the size of an element; `type` names the type in messages.
void check_aligned(std::string_view name, const void* data, size_t bytes, std::string_view type);
/// The same for an array of numbers.
template <class T>
void check_aligned(std::string_view name, std::span<const T> values) {
  constexpr std::string_view kType =
      std::is_floating_point_v<T> ? (sizeof(T) == 8 ? "float64" : "float32") : (sizeof(T) == 8 ? "int64" : "int32");
  check_aligned(name, values.data(), sizeof(T), kType);
}
/// Checks strides, pointer and number of the ids: one for each of the `rows` rows of `rows_name`.
void check_targets(std::string_view name, const Targets& targets, int64_t rows, std::string_view rows_name);

/// The bytes [begin, end) that a view may touch, to find overlaps.
struct ByteRange {
  std::string_view name;
  uintptr_t begin = 0;
  uintptr_t end = 0;
};
ByteRange range_of(std::string_view name, const Matrix& m);
ByteRange range_of(std::string_view name, const ConstMatrix& m);
ByteRange range_of(std::string_view name, const Vector& v);
ByteRange range_of(std::string_view name, const ConstVector& v);
ByteRange range_of(std::string_view name, const void* data, size_t bytes);

/// Checks that no output overlaps an input or another output.
void check_overlaps(std::span<const ByteRange> outputs, std::span<const ByteRange> inputs);

}  // namespace logitless::core

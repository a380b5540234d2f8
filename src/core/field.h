// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The parts of the lists in fields.h: a field, and the numbers or tensors that it accepts.
#pragma once

#include <limits>
#include <type_traits>

#include "logitless/dtype.h"

namespace logitless {

/// The numbers that an option accepts. NaN and infinities are never accepted.
struct Interval {
  const char* text = "a finite number";              ///< in a message: "beta = 0 must be <text>"
  double low = -std::numeric_limits<double>::max();  ///< least number
  double high = std::numeric_limits<double>::max();  ///< largest number
  bool open_low = false;                             ///< `low` itself is excluded
  bool open_high = false;                            ///< `high` itself is excluded

  /// Returns whether the number is accepted.
  constexpr bool holds(double number) const {
    return (open_low ? number > low : number >= low) && (open_high ? number < high : number <= high);
  }
};

inline constexpr Interval kFinite = {};  ///< any
inline constexpr Interval kPositive = {.text = "a finite number above 0", .low = 0, .open_low = true};
inline constexpr Interval kNotNegative = {.text = "a finite number of at least 0", .low = 0};
inline constexpr Interval kCount = {.text = "an integer of at least 1", .low = 1};
inline constexpr Interval kPositions = {.text = "an integer of at least 0", .low = 0};
inline constexpr Interval kShare = {.text = "a number from 0 to 1", .low = 0, .high = 1};
inline constexpr Interval kPositiveShare = {
    .text = "a number above 0 and up to 1", .low = 0, .high = 1, .open_low = true};
inline constexpr Interval kShareBelowOne = {
    .text = "a number of at least 0 and below 1", .low = 0, .high = 1, .open_high = true};
inline constexpr Interval kThreshold = {.text = "a number from 0 to 1000", .low = 0, .high = 1000};
inline constexpr Interval kLogRatio = {
    .text = "a number above 0 and up to 300", .low = 0, .high = 300, .open_low = true};

/// How the elements of a tensor may be laid out.
enum class Order {
  kDense,   ///< contiguous
  kRows,    ///< the last axis is contiguous
  kEither,  ///< one axis is contiguous
  kAny,     ///< any strides
};

/// The tensors that an argument accepts.
struct Role {
  const char* shape = "";  ///< N tokens, B sequences, V vocabulary entries, K ids per token, E ids of all
  unsigned elements = 0;   ///< a bit for each DType
  int least_axes = 1, most_axes = 2;
  Order order = Order::kDense;

  constexpr bool takes(DType dtype) const { return (elements >> static_cast<unsigned>(dtype)) & 1; }
};
constexpr unsigned only(DType dtype) { return 1U << static_cast<unsigned>(dtype); }
inline constexpr unsigned kFloats = 0b1111;
inline constexpr unsigned kIds = only(DType::kInt32) | only(DType::kInt64);

constexpr Role numbers(const char* shape) { return {shape, kFloats}; }
constexpr Role rows_of_numbers(const char* shape) { return {shape, kFloats, 2, 2, Order::kRows}; }
constexpr Role token_ids(const char* shape) { return {shape, kIds, 1, 2, Order::kAny}; }
/// Offsets, counts, and indices of rows.
constexpr Role places(const char* shape) { return {shape, only(DType::kInt64), 1, 1}; }
constexpr Role flags(const char* shape) { return {shape, only(DType::kUInt8)}; }

inline constexpr bool kOnRequest = true;  ///< for Field::on_request

/// One field of a structure.
struct Field {
  const char* name;       ///< on every surface
  const Interval& range;  ///< of a number, or of each number in a list
  const char* meaning;    ///< one sentence for users, without a full stop; may be empty
  Role role;              ///< of a tensor; a result has only a shape
  bool on_request;        ///< a result column that is empty unless an option requests it

  /// A field without a range: any number, or a result.
  constexpr explicit Field(const char* name_, const char* meaning_ = "", const char* shape_ = "",
                           bool on_request_ = false)
      : name(name_), range(kFinite), meaning(meaning_), role{shape_}, on_request(on_request_) {}
  /// A field of numbers in `range_`, which must outlive the field, or a tensor of such numbers.
  constexpr Field(const char* name_, const Interval& range_, const char* meaning_ = "", const Role& role_ = {})
      : name(name_), range(range_), meaning(meaning_), role(role_), on_request(false) {}
  /// A field of a tensor.
  constexpr Field(const char* name_, const char* meaning_, const Role& role_)
      : Field(name_, kFinite, meaning_, role_) {}
  /// Returns a copy of the field; if its meaning is empty, with this one.
  constexpr Field or_meaning(const char* other) const {
    Field out = *this;
    if (!*meaning) out.meaning = other;
    return out;
  }
};

/// Selects the list of a structure.
template <class Structure>
struct FieldsOf {};

/// Selects the list of a task's tensors and the fields that belong to them.
template <class Task>
struct TensorsOf {};

}  // namespace logitless

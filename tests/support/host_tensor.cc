// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "support/host_tensor.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "oracle/oracle.h"

namespace logitless::testing {
namespace {

// Quiet NaNs with a special payload, so that a computed NaN differs from untouched memory.
constexpr uint16_t kUntouched16 = 0x7fd5;
constexpr uint32_t kUntouched32 = 0x7fd5a5a5;
constexpr uint64_t kUntouched64 = 0x7ffd5a5a5a5a5a5a;

// The bytes of an element that was never written.
std::array<std::byte, 8> untouched(DType dtype) {
  std::array<std::byte, 8> out;
  const size_t size = size_of(dtype);
  std::memcpy(out.data(),
              size == 2   ? static_cast<const void*>(&kUntouched16)
              : size == 4 ? static_cast<const void*>(&kUntouched32)
                          : &kUntouched64,
              size);
  return out;
}

}  // namespace

bfloat16 to_bfloat16(double value) {
  if (std::isnan(value)) return {0x7fc0};
  // Every bfloat16 is a float whose lower half is 0. The neighbours of `value` are the float towards zero
  // with its lower half cleared, and the next one. Double arithmetic on them is exact, so the value is
  // rounded only once.
  float truncated = static_cast<float>(value);
  if (std::abs(static_cast<double>(truncated)) > std::abs(value)) truncated = std::nextafter(truncated, 0.0f);
  uint32_t bits;
  std::memcpy(&bits, &truncated, sizeof bits);
  const bfloat16 low{static_cast<uint16_t>(bits >> 16)};
  if (std::isinf(value)) return low;
  const bfloat16 high{static_cast<uint16_t>(low.bits + 1)};
  const double to_low = std::abs(value - to_double(low));
  const double to_high = std::abs(to_double(high) - value);
  if (to_low == to_high) return low.bits % 2 == 0 ? low : high;
  return to_low < to_high ? low : high;
}

double to_double(bfloat16 value) {
  const uint32_t bits = static_cast<uint32_t>(value.bits) << 16;
  float result;
  std::memcpy(&result, &bits, sizeof result);
  return result;
}

float16 to_float16(double value) {
  if (std::isnan(value)) return {0x7e00};
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::abs(value);
  // float16 numbers of one exponent are 2^(exponent - 10) apart, and subnormal ones have the spacing of
  // exponent -14. Their bits have the order of their values, so a carry leads into the next exponent, and
  // from the last one to infinity.
  const int exponent = magnitude == 0 ? -14 : std::max(std::ilogb(magnitude), -14);
  if (exponent > 15) return {static_cast<uint16_t>(sign | 0x7c00)};
  const auto steps = static_cast<int>(std::nearbyint(std::ldexp(magnitude, 10 - exponent)));
  return {static_cast<uint16_t>(sign | ((exponent + 14) * 1024 + steps))};
}

double to_double(float16 value) {
  const int exponent = value.bits >> 10 & 31, mantissa = value.bits & 1023;
  double magnitude = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  if (exponent == 31) magnitude = mantissa == 0 ? HUGE_VAL : std::numeric_limits<double>::quiet_NaN();
  return value.bits & 0x8000 ? -magnitude : magnitude;
}

double half_ulp(double value, DType dtype) {
  int digits = 24, lowest = -126;
  if (dtype == DType::kFloat64) digits = 53, lowest = -1022;
  if (dtype == DType::kBFloat16) digits = 8;
  if (dtype == DType::kFloat16) digits = 11, lowest = -14;
  const int exponent = value == 0 ? lowest : std::max(std::ilogb(value), lowest);
  return std::ldexp(1.0, exponent - digits);
}

void write_element(void* at, DType dtype, double value) {
  const auto put = [&](auto number) { std::memcpy(at, &number, sizeof number); };
  if (dtype == DType::kFloat64) put(value);
  if (dtype == DType::kFloat32) put(static_cast<float>(value));
  if (dtype == DType::kBFloat16) put(to_bfloat16(value));
  if (dtype == DType::kFloat16) put(to_float16(value));
  if (dtype == DType::kInt32) put(static_cast<int32_t>(value));
  if (dtype == DType::kInt64) put(static_cast<int64_t>(value));
  if (dtype == DType::kUInt8) put(static_cast<uint8_t>(value));
}

HostTensor::HostTensor(DType dtype, int64_t rows, int64_t cols, int64_t padding)
    : HostTensor(dtype, rows, cols, padding, Rows::kFollowing, 1) {}

HostTensor::HostTensor(DType dtype, int64_t rows, int64_t cols, int64_t padding, Rows places, int64_t batch)
    : dtype_(dtype), rows_(rows), cols_(cols), stride_(cols + padding) {
  if (places != Rows::kFollowing && rows > 0) {
    time_ = rows / batch;
    batch_stride_ = places == Rows::kSlice ? (time_ + 2) * stride_ : stride_;
    if (places == Rows::kTransposed) stride_ *= batch;
  }
  const size_t size = size_of(dtype);
  data_ = std::shared_ptr<std::byte[]>(new std::byte[static_cast<size_t>(elements()) * size]);
  for (size_t at = 0; at < bytes().size(); at += size) std::memcpy(data_.get() + at, untouched(dtype).data(), size);
}

int64_t HostTensor::begin_of(int64_t row) const {
  return batch_stride_ ? row / time_ * *batch_stride_ + row % time_ * stride_ : row * stride_;
}

double HostTensor::get(int64_t row, int64_t col) const {
  return oracle::read_element(data_.get(), dtype_, begin_of(row) + col);
}

void HostTensor::set(int64_t row, int64_t col, double value) {
  write_element(data_.get() + static_cast<size_t>(begin_of(row) + col) * size_of(dtype_), dtype_, value);
}

std::span<const std::byte> HostTensor::bytes() const {
  return {data_.get(), static_cast<size_t>(elements()) * size_of(dtype_)};
}

bool HostTensor::padding_is_intact() const {
  std::vector<bool> in_row(static_cast<size_t>(elements()));
  for (int64_t row = 0; row < rows_; ++row) std::fill_n(in_row.begin() + begin_of(row), cols_, true);
  const size_t size = size_of(dtype_);
  for (size_t at = 0; at < in_row.size(); ++at) {
    if (!in_row[at] && std::memcmp(data_.get() + at * size, untouched(dtype_).data(), size) != 0) return false;
  }
  return true;
}

}  // namespace logitless::testing

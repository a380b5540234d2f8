// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// What ranks compare: a rank lists the fields of its inputs, each with a digest. Every exchange compares one
// digest of all fields; if that differs, the digests of the fields are compared.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "core/field_text.h"
#include "core/store.h"

namespace logitless::ranks {

/// Returns `digest` with `value` mixed in.
inline uint64_t mix(uint64_t digest, uint64_t value) {
  digest = (digest ^ value) * 0x9E3779B97F4A7C15u;  // 2^64 / golden ratio
  return digest ^ digest >> 29;
}

/// Hashes `bytes` bytes at any alignment.
uint64_t digest_of(const void* data, size_t bytes, uint64_t seed = 0);

/// A list of fields, in the same order on all ranks.
class Digests {
 public:
  struct Field {
    std::string name;
    std::string text;  // for messages; equal texts may have different digests
    uint64_t digest;   // of name, text and value
  };

  /// Adds a field whose text is its value.
  void add(std::string name, std::string text) { add(std::move(name), std::move(text), 0); }
  template <class T>
  requires requires(const T& value) { text_of(value); }
  void add(std::string name, const T& value) { add(std::move(name), text_of(value)); }
  /// Adds a field for the values value(0), ..., value(count - 1), of 8 bytes each.
  template <class Value>
  void add_values(std::string name, int64_t count, const Value& value) {
    uint64_t digest = 1;
    for (int64_t i = 0; i < count; ++i) digest = mix(digest, std::bit_cast<uint64_t>(value(i)));
    add(std::move(name), text_of_count(count), digest);
  }
  /// Adds a field for an array, which need not be aligned.
  template <class T>
  void add_array(const std::string& name, std::span<const T> values) {
    add(name, text_of_count(static_cast<int64_t>(values.size())), digest_of(values.data(), values.size_bytes()));
  }

  std::span<const Field> fields() const { return fields_; }
  /// Returns a digest of all fields.
  uint64_t digest() const;

  /// Its destructor removes the fields that were added since its construction.
  class Scope {
   public:
    explicit Scope(Digests& digests) : fields_(digests.fields_), count_(fields_.size()) {}
    ~Scope() {
      while (fields_.size() > count_) fields_.pop_back();
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    core::Array<Field>& fields_;
    size_t count_;
  };

 private:
  void add(std::string name, std::string text, uint64_t digest);
  static std::string text_of_count(int64_t count) { return count == 0 ? "none" : text_of(count) + " values"; }

  core::Array<Field> fields_;
};

}  // namespace logitless::ranks

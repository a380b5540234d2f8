// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The part of XLA's foreign function interface that a handler on CPUs needs, so that a build works without
// JAX. The structures have the layout of version 0.1 of XLA's C interface (xla/ffi/api/c_api.h of jaxlib).
// Later versions only append to them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "logitless/error.h"

namespace logitless::python::xla {

enum class Type : int32_t {
  kBool = 1,
  kInt32 = 4,
  kInt64 = 5,
  kFloat16 = 10,
  kFloat32 = 11,
  kFloat64 = 12,
  kBFloat16 = 16
};

struct Extension {
  size_t struct_size;
  int32_t type;
  Extension* next;
};

/// Every structure of the interface begins with its size and a list of extensions.
struct Head {
  size_t struct_size;
  Extension* extensions;
};

struct Buffer : Head {
  Type type;
  void* data;
  int64_t rank;
  const int64_t* dims;

  std::span<const int64_t> sizes() const { return {dims, static_cast<size_t>(rank)}; }
  size_t count() const {
    size_t out = 1;
    for (const int64_t size : sizes()) out *= static_cast<size_t>(size);
    return out;
  }
};

struct Buffers : Head {
  int64_t size;
  const int32_t* types;  // all are kBuffer
  Buffer* const* values;

  static constexpr int32_t kBuffer = 1;
  const Buffer& operator[](size_t i) const {
    if (i >= static_cast<size_t>(size) || types[i] != kBuffer) {
      throw InvalidInput("XLA's buffer " + std::to_string(i) + " is missing: the call has " + std::to_string(size));
    }
    return *values[i];
  }
};

struct Text {
  const char* data;
  size_t size;
  operator std::string_view() const { return {data, size}; }
};

struct Scalar {
  Type type;
  const void* value;
};

struct Attributes : Head {
  int64_t size;
  const int32_t* types;
  const Text* const* names;
  const void* const* values;

  static constexpr int32_t kScalar = 3, kText = 4;
  /// Returns the place of an attribute, or −1.
  int64_t find(std::string_view name) const {
    for (int64_t i = 0; i < size; ++i) {
      if (*names[i] == name) return i;
    }
    return -1;
  }
  std::string_view text(int64_t at) const {
    if (types[at] != kText) throw InvalidInput(std::string(*names[at]) + " is not a text");
    return *static_cast<const Text*>(values[at]);
  }
  /// Returns a bool, an integer or a float.
  template <class T>
  T number(int64_t at) const {
    if (types[at] == kScalar) {
      const auto& scalar = *static_cast<const Scalar*>(values[at]);
      if (scalar.type == Type::kBool) return static_cast<T>(*static_cast<const bool*>(scalar.value));
      if (scalar.type == Type::kInt64) return static_cast<T>(*static_cast<const int64_t*>(scalar.value));
      if (scalar.type == Type::kFloat64) return static_cast<T>(*static_cast<const double*>(scalar.value));
    }
    throw InvalidInput(std::string(*names[at]) + " is not a bool, an int64 or a float64");
  }
};

struct Error;
enum class Code : int32_t { kInvalidArgument = 3, kInternal = 13 };
struct NewError : Head {
  const char* message;
  Code code;
};

struct Version : Head {
  int32_t major, minor;
};

struct Interface : Head {
  Version version;
  const void* internal;
  Error* (*create_error)(NewError* args);
};

/// What a handler is called with.
struct CallFrame : Head {
  const Interface* interface;
  void* context;
  int32_t stage;
  Buffers arguments, results;
  Attributes attributes;

  Error* error(Code code, const char* message) const {
    NewError args = {{sizeof(NewError), nullptr}, message, code};
    return interface->create_error(&args);
  }
};

/// XLA calls a handler with this extension when it is registered, to ask for the handler's version.
struct Metadata {
  size_t struct_size;
  Version version;
  uint32_t traits;
};
struct MetadataExtension : Extension {
  Metadata* metadata;

  static constexpr int32_t kType = 1;
};

/// Answers the question of a registration. Returns whether the frame was one.
inline bool answer_metadata(const CallFrame& frame) {
  if (!frame.extensions || frame.extensions->type != MetadataExtension::kType) return false;
  Metadata& metadata = *static_cast<MetadataExtension*>(frame.extensions)->metadata;
  metadata.version.major = 0, metadata.version.minor = 1;
  metadata.traits = 0;
  return true;
}

}  // namespace logitless::python::xla

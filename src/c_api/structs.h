// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// This reads and writes the structures of c_api.h that say how large they are.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "c_api/members.h"
#include "c_api/status.h"
#include "core/checks.h"
#include "logitless/c_api.h"

namespace logitless::c_api {

/// Returns the structure with every member at its default, but for struct_size. Where some default is not 0
/// there is a specialisation, declared where the structure is read and in sight of its _init function.
template <class T>
T defaults() {
  T out;
  std::memset(&out, 0, sizeof out);
  return out;
}

/// What LOGITLESS_INIT calls: a caller with a newer header has members that are unknown here.
template <class T>
void init(T* out, size_t size) {
  if (!out || size < sizeof out->struct_size) return;
  const T values = defaults<T>();
  std::memset(static_cast<void*>(out), 0, size);
  std::memcpy(static_cast<void*>(out), &values, std::min(size, sizeof values));
  out->struct_size = size;
}

/// Throws InvalidInput where the caller's structure does not stand where one may, or has no size that it had
/// in some header that is known here. It takes a pointer, because a reference must not bind to a structure
/// that is not aligned.
template <class T>
void check_size(const T* in, const char* name) {
  check_place(in, name);
  const size_t size = in->struct_size;
  if (size < sizeof size) core::fail(name, ".struct_size = ", size, ": LOGITLESS_INIT sets it, and the defaults");
  if (size > sizeof *in) {
    core::fail(name, ".struct_size = ", size, ", but this library knows ", sizeof *in,
               " bytes of it: the program was compiled with a newer header");
  }
  if (!is_size_of<T>(size)) {
    core::fail(name, ".struct_size = ", size, " ends within a member: LOGITLESS_INIT sets it");
  }
}

/// Throws InvalidInput where an array or a structure that a member points to stands where none may.
template <class T>
void check_pointers(T& in, const char* name) {
  visit_members(in, [&]<class Type>(const char* member, Type& pointer) {
    using Pointee = std::remove_cv_t<std::remove_pointer_t<Type>>;
    if constexpr (std::is_pointer_v<Type> && (std::is_arithmetic_v<Pointee> || is_listed<Pointee>)) {
      const void* at = pointer;
      if (reinterpret_cast<uintptr_t>(at) % alignof(Pointee) == 0) return;
      core::fail(name, ".", member, " = ", at, " is not aligned");
    }
  });
}

/// Returns what the caller set, and the defaults of what a caller with an older header does not know. NULL
/// stands for the defaults.
template <class T>
T read(const T* in, const char* name) {
  T out = defaults<T>();
  if (!in) return out;
  check_size(in, name);
  std::memcpy(static_cast<void*>(&out), in, in->struct_size);
  check_pointers(out, name);
  return out;
}

/// Writes what the caller's structure has room for. NULL: it is not wanted.
template <class T>
void write(T value, T* out) {
  if (!out) return;
  value.struct_size = out->struct_size;
  std::memcpy(static_cast<void*>(out), &value, out->struct_size);
}

}  // namespace logitless::c_api

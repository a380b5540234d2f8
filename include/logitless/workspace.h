// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
/// @file
/// A Workspace is memory that calls use again.
#pragma once

#include <cstddef>
#include <memory>

#include "logitless/export.h"

namespace logitless {

class Workspace;

namespace core {
class Store;
}
namespace detail {
core::Store* store_of(const Workspace* workspace);
}

/// A Workspace is memory that calls use again, call after call. Without one a call allocates its memory and
/// frees it before it returns; with one (ContextOptions::workspace) everything that a call does not return
/// comes from here, and a call like the few before it allocates what it returns and nothing else. (The OpenMP
/// runtime and the BLAS have memory of their own.) It holds up to twice the most that calls have used at
/// once, until release(). Results have the same bits with and without.
///
/// Several contexts and several threads may use one Workspace at once: each call then has a part of its own.
class LOGITLESS_API Workspace {
 public:
  /// Makes an empty one: the first calls fill it.
  Workspace();
  /// Frees everything: no call may be using it, nor begin to.
  ~Workspace();
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  /// Returns the bytes that it holds.
  size_t bytes() const;
  /// Frees what no call is using.
  void release();

 private:
  friend core::Store* detail::store_of(const Workspace* workspace);

  std::unique_ptr<core::Store> store_;
};

}  // namespace logitless

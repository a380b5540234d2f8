// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
/// @file
/// A Workspace is memory that calls reuse.
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

/// Memory that calls reuse. Without one, a call allocates its memory and frees it before it returns. With one
/// (ContextOptions::workspace) all memory except the returned values comes from here, so a call of the same
/// size as earlier ones allocates only what it returns. (The OpenMP runtime and the BLAS have memory of their
/// own.) It holds up to twice the most that calls have used at once, until release(). Results have the same
/// bits with and without it.
///
/// Several contexts and several threads may use one Workspace at once; each call then has its own part.
class LOGITLESS_API Workspace {
 public:
  /// Creates an empty workspace; the first calls fill it.
  Workspace();
  /// Frees everything. No call may use it any more.
  ~Workspace();
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  /// Returns the bytes held.
  size_t bytes() const;
  /// Frees all memory that no call is using.
  void release();

 private:
  friend core::Store* detail::store_of(const Workspace* workspace);

  std::unique_ptr<core::Store> store_;
};

}  // namespace logitless

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <initializer_list>

#include "ranks/meeting.h"

namespace logitless::ranks {

/// Sums over a batch of which each rank of a group has a part.
class Totals {
 public:
  /// A null group has the whole batch.
  explicit Totals(Group* group = nullptr) : group_(group && group->size() > 1 ? group : nullptr) {}

  bool are_shared() const { return group_ != nullptr; }
  /// Makes each number, which is this rank's, the sum over all ranks in their order. All ranks give the same
  /// numbers in the same order.
  void sum(std::initializer_list<double*> numbers) const;

 private:
  Group* group_;
};

}  // namespace logitless::ranks

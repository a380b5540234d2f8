// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <initializer_list>

#include "ranks/meeting.h"

namespace logitless::ranks {

/// Sums over a batch that is divided over the ranks of a group.
class Totals {
 public:
  /// With a null group, or a group of one rank, this rank has the whole batch.
  explicit Totals(Group* group = nullptr) : group_(group && group->size() > 1 ? group : nullptr) {}

  bool are_shared() const { return group_ != nullptr; }
  /// Replaces each number by its sum over all ranks, in rank order. All ranks pass the same numbers in the
  /// same order.
  void sum(std::initializer_list<double*> numbers) const;

 private:
  Group* group_;
};

}  // namespace logitless::ranks

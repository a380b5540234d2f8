// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "ranks/totals.h"

#include "core/store.h"

namespace logitless::ranks {

void Totals::sum(std::initializer_list<double*> numbers) const {
  if (!group_) return;
  core::Array<double> mine;
  for (const double* number : numbers) mine.push_back(*number);
  core::Array<double> all(mine.size() * static_cast<size_t>(group_->size()));
  group_->all_gather(std::span<const double>(mine), std::span(all));
  size_t i = 0;
  for (double* number : numbers) {
    *number = all[i];
    for (size_t at = i + mine.size(); at < all.size(); at += mine.size()) *number += all[at];
    ++i;
  }
}

}  // namespace logitless::ranks

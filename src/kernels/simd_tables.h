// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <hwy/highway.h>

#include <cstdint>
#include <string_view>

namespace logitless::kernels {

/// Calls visit(table) with the kernels of each instruction set that this CPU supports, best first, until it
/// returns true. `tables` is HWY_DISPATCH_TABLE of the function that returns them. Highway's own dispatch
/// makes one choice per process, but each Context chooses separately. API calls use this function, so it does
/// not allocate.
template <class Tables, class Visit>
void visit_tables(const Tables& tables, const Visit& visit) {
  for (int64_t targets = hwy::SupportedTargets() & HWY_TARGETS; targets != 0; targets &= targets - 1) {
    hwy::ChosenTarget chosen;
    chosen.Update(targets & -targets);  // a lower bit is a better target
    if (visit(*tables[chosen.GetIndex()]())) return;
  }
}

/// Returns the kernels of the instruction set named `name`, or `plain`.
template <class Table, class Tables>
const Table& find_table(const Tables& tables, std::string_view name, const Table& plain) {
  const Table* found = &plain;
  visit_tables(tables, [&](const Table& table) {
    if (name != table.name) return false;
    found = &table;
    return true;
  });
  return *found;
}

}  // namespace logitless::kernels

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The members of a task that have their own keys, including members of nested structures.
#pragma once

#include <string>
#include <type_traits>

#include "record/types.h"

namespace logitless::testing {

/// Calls visit(name, field, member) for each.
template <class Structure, class Visit>
void visit_leaves(Structure& structure, const std::string& prefix, const Visit& visit) {
  const auto visit_member = [&]<class T>(const Field& field, T& member) {
    using Plain = std::remove_const_t<T>;
    if constexpr (record::kIsFlat<Plain>) {
      visit_leaves(member, prefix, visit);
    } else if constexpr (requires {
                           visit_fields(
                               FieldsOf<Plain>(), [](const Field&, auto&) {}, member);
                         }) {
      visit_leaves(member, prefix + field.name + ".", visit);
    } else {
      visit(prefix + field.name, field, member);
    }
  };
  record::visit_members<std::remove_const_t<Structure>>(visit_member, structure);
}

}  // namespace logitless::testing

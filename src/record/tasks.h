// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// What records know of each task beside the lists of fields.h.
#pragma once

#include <array>
#include <type_traits>

#include "core/fields.h"
#include "logitless/run.h"
#include "record/types.h"

namespace logitless {

// Lists of structures that have none in fields.h. The models in them are in record::Model.

template <class Visit, class... S>
void visit_fields(FieldsOf<IdSets>, const Visit& visit, S&&... s) {
  visit(Field("ids"), s.ids...);
  visit(Field("offsets"), s.offsets...);
  visit(Field("counts"), s.counts...);
}
template <class Visit, class... S>
void visit_fields(FieldsOf<SoftTargets>, const Visit& visit, S&&... s) {
  visit(Field("sets"), s.sets...);
  visit(Field("weights"), s.weights...);
  visit(Field("rows"), s.rows...);
  visit(Field("mask"), s.mask...);
}
template <class Visit, class... S>
void visit_fields(FieldsOf<Reference>, const Visit& visit, S&&... s) {
  visit(Field("logps"), s.logps...);
  visit(Field("logps_per"), s.logps_per...);
}
template <class Visit, class... S>
void visit_fields(FieldsOf<Teacher>, const Visit& visit, S&&... s) {
  visit(Field("round_logits_to"), s.round_logits_to...);
}
template <class Visit, class... S>
void visit_fields(FieldsOf<SetTeacher>, const Visit& visit, S&&... s) {
  visit(Field("sets"), s.sets...);
  visit(Field("logps"), s.logps...);
  visit(Field("outside_logps"), s.outside_logps...);
}

}  // namespace logitless

namespace logitless::record {

/// Returns the keys that a task needs; "a|b" means one of the two.
template <Task T>
constexpr auto needs_of() {
  if constexpr (std::is_same_v<T, PolicyLoss>) {
    return std::array{"chosen_ids"};
  } else if constexpr (std::is_same_v<T, KtoLoss>) {
    return std::array{"targets", "reference.logps|reference.hidden"};
  } else if constexpr (std::is_same_v<T, SoftCrossEntropy>) {
    return std::array{"sets.ids|rows"};
  } else if constexpr (std::is_same_v<T, Distillation>) {
    return std::array{"teacher.hidden|teacher.logits"};
  } else if constexpr (std::is_same_v<T, SetDistillation>) {
    return std::array{"teacher.sets.ids", "teacher.logps"};
  } else if constexpr (std::is_same_v<T, IdLogps>) {
    return std::array{"sets.ids"};
  } else if constexpr (std::is_same_v<T, TokenStatistics>) {
    return std::array<const char*, 0>();
  } else {
    return std::array{"targets"};
  }
}

}  // namespace logitless::record

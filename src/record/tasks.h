// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// What records know of each task beside the lists of fields.h.
#pragma once

#include <array>

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

/// The keys that a task needs; "a|b" means one of the two.
template <Task T>
inline constexpr std::array kNeeds = {"targets"};
template <>
inline constexpr std::array kNeeds<PolicyLoss> = {"chosen_ids"};
template <>
inline constexpr std::array kNeeds<KtoLoss> = {"targets", "reference.logps|reference.hidden"};
template <>
inline constexpr std::array kNeeds<SoftCrossEntropy> = {"sets.ids|rows"};
template <>
inline constexpr std::array kNeeds<Distillation> = {"teacher.hidden|teacher.logits"};
template <>
inline constexpr std::array kNeeds<SetDistillation> = {"teacher.sets.ids", "teacher.logps"};
template <>
inline constexpr std::array kNeeds<IdLogps> = {"sets.ids"};
template <>
inline constexpr std::array<const char*, 0> kNeeds<TokenStatistics> = {};

}  // namespace logitless::record

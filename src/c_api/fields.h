// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// C's structures of options and results, copied member by member along the lists of fields.h. Each type of a
// member is converted here, once.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "c_api/inputs.h"
#include "c_api/status.h"
#include "c_api/structs.h"
#include "logitless/fields.h"

struct logitless_workspace;

namespace logitless::c_api {

// What C handed over becomes a member, which holds its default. NULL leaves the default of what C says by a
// pointer.

template <class T>
requires std::is_arithmetic_v<T>
void take(const char*, T& to, T from) { to = from; }
inline void take(const char*, bool& to, int32_t from) { to = from != 0; }
template <Named Enum>
void take(const char* name, Enum& to, int32_t from) {
  to = enumerator<Enum>(from, name);
}
/// NAN stands for what is not set, and INFINITY for no bound where there is one by default.
inline void take(const char*, std::optional<double>& to, double from) {
  const bool none = to ? from == INFINITY : std::isnan(from);
  to = none ? std::nullopt : std::optional<double>(from);
}
inline void take(const char*, std::optional<int64_t>& to, int64_t from) {
  to = from == 0 ? std::nullopt : std::optional<int64_t>(from);
}
inline void take(const char* name, std::optional<DType>& to, int32_t from) {
  to = from == LOGITLESS_NO_DTYPE ? std::nullopt : std::optional<DType>(enumerator<DType>(from, name));
}
inline void take(const char*, std::string& to, const char* from) {
  if (from) to = from;
}
void take(const char* name, Workspace*& to, logitless_workspace* from);
template <class T, class Data, class Count>
void take(const char* name, std::span<const T>& to, const PointerAndCount<Data, Count>& from) {
  to = span_of(from.data, from.count, name);
}
template <class T, class Data, class Count>
void take(const char* name, std::vector<T>& to, const PointerAndCount<Data, Count>& from) {
  const auto given = span_of(from.data, from.count, name);
  if (!from.data) return;
  to.clear();
  for (const auto& entry : given) {
    if constexpr (Named<T>) {
      to.push_back(enumerator<T>(entry, name));
    } else {
      to.push_back(entry);
    }
  }
}
inline void take(const char* name, ConstVector& to, const logitless_const_vector& from) { to = vector_of(from, name); }
inline void take(const char* name, Targets& to, const logitless_targets* from) { to = targets_of(from, name); }
inline void take(const char* name, IdSets& to, const logitless_id_sets* from) {
  if (from) to = sets_of(from, name);
}
void take(const char* name, Reference& to, const logitless_reference* from);
void take(const char* name, TokenOptions& to, const logitless_token_options* from);

// A member becomes C's. Arrays and texts stay NULL: they are the defaults of what C says by a pointer.

template <class To, class From>
requires std::is_arithmetic_v<To> && std::is_arithmetic_v<From>
void put(To& to, const From& from) { to = static_cast<To>(from); }
template <Named Enum>
void put(int32_t& to, Enum from) {
  to = static_cast<int32_t>(from);
}
inline void put(double& to, const std::optional<double>& from) { to = from.value_or(NAN); }
inline void put(int64_t& to, const std::optional<int64_t>& from) { to = from.value_or(0); }
inline void put(int32_t& to, const std::optional<DType>& from) {
  to = from ? static_cast<int32_t>(*from) : LOGITLESS_NO_DTYPE;
}
template <class To, class From>
void put(To*&, const From&) {}
template <class Data, class Count, class From>
void put(const PointerAndCount<Data, Count>&, const From&) {}

/// Returns the structure that the caller described.
template <class Structure, class CStructure>
Structure taken(const CStructure* given, const char* name) {
  const CStructure in = read(given, name);
  Structure out;
  visit_fields(
      FieldsOf<Structure>(), [&](const Field& field, auto& to, const auto& from) { take(field.name, to, from); }, out,
      in);
  return out;
}

/// Writes the members of `from` that are numbers or enumerators to C's.
template <class Structure, class CStructure>
void put_fields(CStructure& out, const Structure& from) {
  visit_fields(
      FieldsOf<Structure>(), [](const Field&, auto&& to, const auto& value) { put(to, value); }, out, from);
}

/// Returns C's structure with the defaults of C++'s.
template <class Structure, class CStructure>
CStructure defaults_of() {
  CStructure out;
  std::memset(&out, 0, sizeof out);
  put_fields(out, Structure());
  return out;
}

template <>
inline logitless_backward_options defaults() {
  return defaults_of<BackwardOptions, logitless_backward_options>();
}
template <>
inline logitless_token_options defaults() {
  return defaults_of<TokenOptions, logitless_token_options>();
}
template <>
inline logitless_stats_request defaults() {
  return defaults_of<StatsRequest, logitless_stats_request>();
}
template <>
inline logitless_cross_entropy_options defaults() {
  return defaults_of<CrossEntropy, logitless_cross_entropy_options>();
}
template <>
inline logitless_soft_cross_entropy_options defaults() {
  return defaults_of<SoftCrossEntropy, logitless_soft_cross_entropy_options>();
}
template <>
inline logitless_id_logps_options defaults() {
  return defaults_of<IdLogps, logitless_id_logps_options>();
}
template <>
inline logitless_policy_options defaults() {
  return defaults_of<PolicyLoss, logitless_policy_options>();
}
template <>
inline logitless_preference_options defaults() {
  return defaults_of<PreferenceLoss, logitless_preference_options>();
}
template <>
inline logitless_kto_options defaults() {
  return defaults_of<KtoLoss, logitless_kto_options>();
}
template <>
inline logitless_teacher defaults() {
  logitless_teacher out;
  std::memset(&out, 0, sizeof out);
  out.round_logits_to = LOGITLESS_NO_DTYPE;
  return out;
}
template <>
inline logitless_distillation_options defaults() {
  return defaults_of<Distillation, logitless_distillation_options>();
}
template <>
inline logitless_set_distillation_options defaults() {
  return defaults_of<SetDistillation, logitless_set_distillation_options>();
}
template <>
inline logitless_context_options defaults() {
  return defaults_of<ContextOptions, logitless_context_options>();
}

inline TokenOptions token_options_of(const logitless_token_options* given) {
  return taken<TokenOptions>(given, "token options");
}
inline StatsRequest request_of(const logitless_stats_request* given) { return taken<StatsRequest>(given, "request"); }
inline CrossEntropy options_of(const logitless_cross_entropy_options* given) {
  return taken<CrossEntropy>(given, "options");
}
inline SoftCrossEntropy options_of(const logitless_soft_cross_entropy_options* given) {
  return taken<SoftCrossEntropy>(given, "options");
}
inline IdLogps options_of(const logitless_id_logps_options* given) {
  return taken<IdLogps>(given, "options");
}
inline PolicyLoss options_of(const logitless_policy_options* given) {
  return taken<PolicyLoss>(given, "options");
}
inline PreferenceLoss options_of(const logitless_preference_options* given) {
  return taken<PreferenceLoss>(given, "options");
}
inline KtoLoss options_of(const logitless_kto_options* given) { return taken<KtoLoss>(given, "options"); }
inline Distillation options_of(const logitless_distillation_options* given) {
  return taken<Distillation>(given, "options");
}
inline SetDistillation options_of(const logitless_set_distillation_options* given) {
  return taken<SetDistillation>(given, "options");
}
inline ContextOptions options_of(const logitless_context_options* given) {
  return taken<ContextOptions>(given, "options");
}
inline PolicyBatch batch_of(const logitless_policy_batch* given) {
  return taken<PolicyBatch>(&there(given, "batch"), "batch");
}
inline KtoBatch batch_of(const logitless_kto_batch* given) { return taken<KtoBatch>(&there(given, "batch"), "batch"); }
Reference reference_of(const logitless_reference* given);
Teacher teacher_of(const logitless_teacher* given);

}  // namespace logitless::c_api

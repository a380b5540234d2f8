// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The results of all tasks by name: visit(name, value).
#pragma once

#include <string>
#include <type_traits>
#include <vector>

#include "core/fields.h"
#include "record/keys.h"

namespace logitless::record {

template <class T>
Tensor tensor_of(const std::vector<T>& column) {
  Tensor tensor;
  tensor.data = const_cast<T*>(column.data());
  tensor.element = std::is_same_v<T, double>    ? Element::kFloat64
                   : std::is_same_v<T, int64_t> ? Element::kInt64
                                                : Element::kUInt8;
  tensor.axes = 1;
  tensor.sizes[0] = static_cast<int64_t>(column.size());
  tensor.strides[0] = 1;
  return tensor;
}

template <std::integral T>
Value value_of(T number) {
  return static_cast<int64_t>(number);
}
inline Value value_of(double number) { return number; }
inline Value value_of(const std::string& text) { return std::string_view(text); }
template <Named Enum>
Value value_of(Enum value) {
  return std::string_view(name_of(value));
}
template <class T>
Value value_of(const std::vector<T>& column) {
  return tensor_of(column);
}

/// Visits the columns of statistics, or of gradients with a prefix.
template <class Columns, class Visit>
void visit_columns(const Columns& columns, const std::string& prefix, const Visit& visit) {
  visit_fields(
      FieldsOf<Columns>(),
      [&](const Field& field, const auto& column) { visit(prefix + field.name, value_of(column)); }, columns);
}

/// Visits the result of a task.
template <class Result, class Visit>
void visit_result(const Result& result, const Visit& visit) {
  if constexpr (requires { result.loss; }) visit("loss", value_of(result.loss));
#define LOGITLESS_COLUMN(name) \
  if constexpr (requires { result.name; }) visit(#name, value_of(result.name))
  LOGITLESS_COLUMN(per_token_loss);
  LOGITLESS_COLUMN(per_token_logps);
  LOGITLESS_COLUMN(per_token_lse);
  LOGITLESS_COLUMN(per_token_argmax);
  LOGITLESS_COLUMN(per_token_divergence);
  LOGITLESS_COLUMN(per_token_acceptance);
  LOGITLESS_COLUMN(per_token_agreement);
  LOGITLESS_COLUMN(per_token_entropy);
  LOGITLESS_COLUMN(per_token_teacher_entropy);
  LOGITLESS_COLUMN(sequence_logps);
  LOGITLESS_COLUMN(sequence_losses);
  LOGITLESS_COLUMN(logps);
#undef LOGITLESS_COLUMN
  if constexpr (requires { result.metrics; }) {
    visit_fields(
        FieldsOf<std::remove_cvref_t<decltype(result.metrics)>>(),
        [&](const Field& field, const auto& metric) { visit(field.name, value_of(metric)); }, result.metrics);
  } else if constexpr (!requires { result.logps; }) {
    visit_columns(result.stats, "", visit);
  }
}

/// Visits the members of a plan.
template <class Visit>
void visit_plan(const Plan& plan, const Visit& visit) {
#define LOGITLESS_MEMBER(name) visit("plan." #name, value_of(plan.name))
  LOGITLESS_MEMBER(kind);
  LOGITLESS_MEMBER(tokens);
  LOGITLESS_MEMBER(active_rows);
  LOGITLESS_MEMBER(hidden_size);
  LOGITLESS_MEMBER(vocab_size);
  LOGITLESS_MEMBER(row_tile);
  LOGITLESS_MEMBER(row_block);
  LOGITLESS_MEMBER(vocab_tile);
  LOGITLESS_MEMBER(hidden_block);
  LOGITLESS_MEMBER(chunk_rows);
  LOGITLESS_MEMBER(gemm_library);
  LOGITLESS_MEMBER(gradient_dtype);
  LOGITLESS_MEMBER(gradient_terms);
  LOGITLESS_MEMBER(threads);
  LOGITLESS_MEMBER(tiles_alive);
  LOGITLESS_MEMBER(workspace_bytes);
  LOGITLESS_MEMBER(packed_bytes);
  LOGITLESS_MEMBER(least_workspace_bytes);
  LOGITLESS_MEMBER(kept_share);
  LOGITLESS_MEMBER(noise_estimate);
  LOGITLESS_MEMBER(d_hidden_bound);
  LOGITLESS_MEMBER(d_weight_bound);
  LOGITLESS_MEMBER(blas_bytes);
#undef LOGITLESS_MEMBER
}

}  // namespace logitless::record

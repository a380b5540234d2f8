// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The numbers of a result, by name.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "oracle/oracle.h"
#include "record/results.h"

namespace logitless::testing {

struct Column {
  std::string name;
  bool whole;     ///< integers
  bool of_batch;  ///< one number for all tokens
  std::vector<double> values;
};

template <class Result>
std::vector<Column> columns_of(const Result& result) {
  std::vector<Column> columns;
  record::visit_values(result, "", [&](const std::string& name, const record::Value& value, const Field& field) {
    Column column{name, false, *field.role.shape == '\0', {}};
    if (const auto* integer = std::get_if<int64_t>(&value)) {
      column.whole = true;
      column.values = {static_cast<double>(*integer)};
    } else if (const auto* number = std::get_if<double>(&value)) {
      column.values = {*number};
    } else if (const auto* tensor = std::get_if<Tensor>(&value)) {
      column.whole = tensor->dtype != DType::kFloat64;
      for (int64_t i = 0; i < tensor->count(); ++i) {
        column.values.push_back(tensor->dtype == DType::kFloat64
                                    ? static_cast<const double*>(tensor->data)[i]
                                    : static_cast<double>(static_cast<const int64_t*>(tensor->data)[i]));
      }
    }
    columns.push_back(std::move(column));
  });
  return columns;
}

}  // namespace logitless::testing

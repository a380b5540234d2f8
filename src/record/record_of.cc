// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Creates records by the names of tasks.
#include <memory>
#include <string>
#include <utility>

#include "core/checks.h"
#include "core/views.h"
#include "record/record.h"
#include "record/record_of.h"

namespace logitless::record {
namespace {

template <class List>
struct Maker;
template <class... Tasks>
struct Maker<TypeList<Tasks...>> {
  static std::unique_ptr<Record> make(std::string_view name, const Context& context) {
    std::unique_ptr<Record> record;
    ((name == Tasks::kName ? void(record = std::make_unique<RecordOf<Tasks>>(context)) : void()), ...);
    return record;
  }
  static std::vector<std::string> names() { return {Tasks::kName...}; }
};
using All = Maker<AllTasks>;

}  // namespace

std::unique_ptr<Record> make_record(std::string_view task, const Context& context) {
  std::unique_ptr<Record> record = All::make(task, context);
  if (record) return record;
  std::string names;
  for (const std::string& name : All::names()) names += (names.empty() ? "" : ", ") + name;
  core::fail("there is no task '", task.substr(0, 100), "'; tasks are ", names);
}

std::vector<std::string> task_names() { return All::names(); }

}  // namespace logitless::record

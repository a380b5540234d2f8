// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The tasks that have functions, and how the keywords of one call are read.
#pragma once

#include <array>
#include <string>
#include <type_traits>
#include <utility>

#include "logitless/error.h"
#include "logitless/run.h"
#include "options.h"

namespace logitless::python {

/// The arguments that a call of a task must have. Where it is one of several, the library says so.
template <class Task>
inline constexpr std::array<const char*, 2> kNeeded = {"targets"};
template <>
inline constexpr std::array<const char*, 2> kNeeded<PolicyLoss> = {"chosen_ids"};
template <>
inline constexpr std::array<const char*, 2> kNeeded<SoftCrossEntropy> = {};
template <>
inline constexpr std::array<const char*, 2> kNeeded<Distillation> = {};
template <>
inline constexpr std::array<const char*, 2> kNeeded<SetDistillation> = {"ids", "teacher_logps"};
template <>
inline constexpr std::array<const char*, 2> kNeeded<IdLogps> = {"ids"};

/// Calls use.operator()<Task>() for each task that has functions: all but a loss of the caller's own.
template <class Use>
void for_each_task(const Use& use) {
  AllTasks::each([&]<class Task> {
    if constexpr (!std::is_same_v<Task, CustomLoss>) use.template operator()<Task>();
  });
}

/// Calls use(list, structure) for the list of this name, with a structure of defaults: options of a task, of tokens, of
/// a context or of gradients, or a task's tensors (policy_loss.tensors).
template <class Use>
void with_list(const std::string& name, const Use& use) {
  bool found = false;
  const auto offer = [&]<template <class> class List, class Structure>(const std::string& offered,
                                                                       List<Structure> list) {
    if (name != offered) return;
    found = true;
    Structure structure;
    use(list, structure);
  };
  for_each_task([&]<class Task> {
    offer(Task::kName, FieldsOf<Task>());
    offer(std::string(Task::kName) + ".tensors", TensorsOf<Task>());
  });
  offer("token", FieldsOf<TokenOptions>());
  offer("context", FieldsOf<ContextOptions>());
  offer("backward", FieldsOf<BackwardOptions>());
  offer("logits", FieldsOf<Logits>());
  offer("gradients", FieldsOf<Gradients>());
  if (!found) throw InvalidInput("'" + name + "' is not a list of fields");
}

/// Returns the fields of a list by the names of arguments, each with its type, default, range, meaning, and where it
/// has them, choices and shape.
nb::dict fields_of(const std::string& name);
/// Returns the fields of a list as text, with the values that the keywords set.
nb::dict texts_of(const std::string& name, nb::dict keywords);

/// The keywords of one call, read. Outputs are those of a backward half, and of a call of a task with a loss.
template <class Task>
struct Read {
  Arrays arrays;
  Keywords keywords;
  CallTensors call;
  Task task;
  DType type_of_results;  // float32, or float64 for float64 hidden states or logits, unless dtype names one of the two

  explicit Read(nb::dict given, bool is_backward = false)
      : keywords(std::move(given), Task::kName),
        call(take_tensors(keywords, arrays, /*outputs=*/is_backward || kHasLoss<Task>)) {
    const auto& needed = kNeeded<Task>;
    for (const char* name : needed) {
      if (name && !keywords.find(name)) throw InvalidInput(std::string(name) + " is missing");
    }
    take_fields(keywords, arrays, TensorsOf<Task>(), task);
    take_fields(keywords, arrays, FieldsOf<Task>(), task);
    const ConstTensor& rows = call.logits.is_given() ? call.logits.finished : call.logits.hidden;
    type_of_results = rows.dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
    if (!is_backward) keywords.take("dtype", type_of_results);
    keywords.check_all_known();
    arrays.check(call.logits, needed);
  }
};

}  // namespace logitless::python

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The tasks that Python has functions for, and the keywords of one call.
#pragma once

#include <array>
#include <string>
#include <type_traits>
#include <utility>

#include "logitless/error.h"
#include "logitless/run.h"
#include "options.h"

namespace logitless::python {

/// The required arguments of a task. If one of several is required, the library checks it.
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

/// Calls use.operator()<Task>() for each task except CustomLoss, which Python does not have.
template <class Use>
void for_each_task(const Use& use) {
  AllTasks::each([&]<class Task> {
    if constexpr (!std::is_same_v<Task, CustomLoss>) use.template operator()<Task>();
  });
}

/// Calls use(list, structure) for the named list, with a structure of defaults. A name is a task's (its
/// options), a task's with ".tensors" (policy_loss.tensors), or token, context, backward, logits or
/// gradients. Throws for any other name.
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

/// Returns {argument: description} of a list. A description has type, default, range and meaning, and for
/// some fields choices or shape.
nb::dict fields_of(const std::string& name);
/// Returns {field: value as text} of a list, after setting the fields in `keywords`.
nb::dict texts_of(const std::string& name, nb::dict keywords);

/// The arguments of one call. Outputs are only read for a backward half, and for a task with a loss.
template <class Task>
struct Read {
  Arrays arrays;
  Keywords keywords;
  CallTensors call;
  Task task;
  DType type_of_results;  // dtype=; by default float64 for float64 hidden states or logits, else float32

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

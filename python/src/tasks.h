// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The table of tasks, and how the keywords of one call are read.
#pragma once

#include <array>
#include <string>
#include <utility>

#include "logitless/error.h"
#include "logitless/run.h"
#include "options.h"

namespace logitless::python {

/// The Python names of a task beside its kName, which is run() (a task without a loss has no function for it);
/// plan() has plan_ before it.
struct TaskNames {
  const char* forward;                     // forward()
  const char* backward;                    // backward()
  const char* forward_class;               // the class of its Forward
  std::array<const char*, 2> needed = {};  // required arguments
};
template <class Task>
inline constexpr TaskNames kTaskNames = {};
template <>
inline constexpr TaskNames kTaskNames<CrossEntropy> = {
    "cross_entropy_forward", "cross_entropy_backward", "CrossEntropyForward", {"targets"}};
template <>
inline constexpr TaskNames kTaskNames<PolicyLoss> = {"policy_loss_forward", "policy_loss_backward", "PolicyForward"};
template <>
inline constexpr TaskNames kTaskNames<PreferenceLoss> = {
    "preference_loss_forward", "preference_loss_backward", "PreferenceForward", {"targets"}};
template <>
inline constexpr TaskNames kTaskNames<KtoLoss> = {"kto_loss_forward", "kto_loss_backward", "KtoForward"};
template <>
inline constexpr TaskNames kTaskNames<SoftCrossEntropy> = {"soft_cross_entropy_forward", "soft_cross_entropy_backward",
                                                           "SoftCrossEntropyForward"};
template <>
inline constexpr TaskNames kTaskNames<Distillation> = {"distillation_loss_forward", "distillation_loss_backward",
                                                       "DistillationForward"};
template <>
inline constexpr TaskNames kTaskNames<SetDistillation> = {"set_distillation_loss_forward",
                                                          "set_distillation_loss_backward",
                                                          "SetDistillationForward",
                                                          {"ids", "teacher_logps"}};
template <>
inline constexpr TaskNames kTaskNames<IdLogps> = {"id_logps", "id_logps_backward", "IdLogps", {"ids"}};
template <>
inline constexpr TaskNames kTaskNames<TokenStatistics> = {"token_stats", "token_grads", "TokenStats", {"targets"}};

/// Calls use.operator()<Task>() for each task.
template <class Use>
void for_each_task(const Use& use) {
  const auto each = [&]<class... T> { (use.template operator()<T>(), ...); };
  each.template operator()<CrossEntropy, PolicyLoss, PreferenceLoss, KtoLoss, SoftCrossEntropy, Distillation,
                           SetDistillation, IdLogps, TokenStatistics>();
}

/// True for a task whose result has a loss: run() computes its gradients too.
template <class Task>
inline constexpr bool kHasLoss = requires(typename Task::Result result) {
  result.loss;
};

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
    const auto& needed = kTaskNames<Task>.needed;
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

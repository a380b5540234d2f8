// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// A drawn call whose members can all be changed, for tests of refusals.
#pragma once

#include <string>
#include <vector>

#include "../c_api/leaves.h"
#include "generator/call_run.h"

namespace logitless::testing {

template <Task T>
class GoodCall : private CallRun<T> {
 public:
  explicit GoodCall(const DrawnCall& call) : CallRun<T>(call), outputs_(call_, student_) {
    this->set_task();
    task = task_;
    reset(0, student_.vocab());
  }

  /// Restricts the call to `count` vocabulary entries from `first` on.
  void reset(int64_t first, int64_t count) {
    logits = student_.logits(first, count);
    if (tensors_.other() && !tensors_.other()->call.finished) tensors_.set_other(task, first, count);
    gradients = outputs_.views(first, count);
  }
  /// Calls visit(name, field, member) for each member that is an argument.
  template <class Visit>
  void visit(const Visit& visit) {
    const auto add = [&](const Field& field, auto& member) { visit(std::string(field.name), field, member); };
    const auto add_backward = [&](const Field& field, auto& member) {
      visit(std::string("backward.") + field.name, field, member);
    };
    visit_fields(FieldsOf<Logits>(), add, logits);
    visit_leaves(task, "", visit);
    visit_fields(FieldsOf<logitless::Gradients>(), add, gradients);
    visit_fields(FieldsOf<BackwardOptions>(), add_backward, gradients.backward);
  }
  /// Runs the call, as a whole or as forward() and backward(); throws what the library throws.
  void run(const Context& context) {
    if constexpr (kHasLoss<T>) {
      if (!this->halves()) return static_cast<void>(logitless::run(context, logits, task, gradients));
    }
    run_given<T>({context, logits, task, upstream_, gradients, true});
  }
  /// Restores the outputs to their state before a run.
  void put_back() {
    for (GuardedTensor* output : outputs_.all()) output->put_back();
  }
  bool unchanged() { return outputs_.unchanged() && student_.unchanged() && tensors_.unchanged(); }
  const DrawnCall& drawn() const { return call_; }
  int64_t vocab() const { return student_.vocab(); }
  using CallRun<T>::upstream_;
  Logits logits;
  T task;
  logitless::Gradients gradients;

 private:
  using Base = CallRun<T>;
  using Base::call_, Base::student_, Base::tensors_, Base::task_;
  Outputs outputs_;
};

/// Returns calls of a task that together set all its tensors: from hidden states, and from finished logits.
inline std::vector<DrawnCall> forms_of(const std::string& task) {
  DrawnCall states;
  states.task = task;
  states.time = 3, states.hidden = 4;
  states.bias = states.mask = states.temperatures = states.weights_of_entries = true;
  states.lora_rank = 2;
  if (task == "policy_loss") {
    states.options = {{"beta", "0.5"},
                      {"sampler_correction", "token_truncate"},
                      {"teacher_weight", "0.5"},
                      {"positive_nll_weight", "0.5"}};
  }
  if (task == "preference_loss") states.options = {{"loss_weights", "0.5"}};
  if (task == "token_stats") states.options = {{"entropy", "true"}, {"cross", "true"}};
  if (task == "cross_entropy") {
    states.options = {{"reduction", "none"}};
    states.halves = states.upstream_of_each = true;
  }
  DrawnCall packed = states;
  packed.packed = packed.head_transposed = packed.lora_states = packed.vocab_ids = packed.per_token = true;
  packed.kept = packed.padded_sets = packed.ids32 = packed.model_as_reference = true;
  packed.temperatures = false;
  packed.states_gap = packed.head_gap = packed.output_gap = 3;
  DrawnCall finished = states;
  finished.finished = finished.dense_targets = finished.strided_ids = true;
  finished.bias = finished.temperatures = false;
  finished.lora_rank = 0;
  DrawnCall bytes = states;
  bytes.packing = Packing::kInt8;
  bytes.seed = 2;
  bytes.d_weight = false;
  if (task == "kto_loss") bytes.mask = false, bytes.options = {{"loss_type", "a2po"}};
  return {states, packed, finished, bytes};
}

}  // namespace logitless::testing

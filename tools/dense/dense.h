// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The baseline: an LM head with all logits in memory. One product on all threads computes them, the library's
// call on finished logits computes the loss and replaces them by dL/dlogits, and two more products compute
// the gradients of the hidden states and the head.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>

#include "logitless/context.h"
#include "logitless/gradients.h"
#include "logitless/logits.h"
#include "logitless/plan.h"
#include "logitless/run.h"

namespace logitless::dense {

/// The logits of hidden states and a head. Every row is computed, even ignored ones, as `lm_head` does.
class Projection {
 public:
  /// Computes the logits [N, V]: products, bias and softcap. backward() writes `gradients`. `round_to` is the
  /// task's round_logits_to. Rounding precedes a softcap, so with a softcap this class rounds the logits and
  /// resets *round_to; without one, the caller rounds. All arguments must outlive this. Throws InvalidInput
  /// where the library would, and for features that dense lacks: hidden states with gaps between sequences, a
  /// LoRA's `states`, a weight sink, and accumulated gradients.
  Projection(const Context& context, const Logits& model, const Gradients& gradients = {},
             std::optional<DType>* round_to = nullptr);
  ~Projection();
  Projection(const Projection&) = delete;
  Projection& operator=(const Projection&) = delete;

  /// Returns a context with the given one's threads, kernels and ranks, and defaults for everything else.
  const Context& context() const;
  /// Returns the logits, with the sequences of the hidden states.
  Logits logits() const;
  /// Returns where to write the gradients of the logits, if any are wanted: over the logits, or to separate
  /// memory under a softcap, whose derivative is a function of the logits.
  Gradients d_logits() const;
  /// Computes the gradients of hidden states and head from d_logits().
  void backward();
  /// Returns the bytes of logits, gradients and scratch so far.
  size_t bytes() const;
  /// Turns the plan of the call on logits into the plan of the whole call: one pass, which keeps all logits.
  void complete(Plan& plan) const;

 private:
  struct Work;
  template <class Sum>
  struct WorkIn;
  std::unique_ptr<Work> work_;
};

/// As logitless::run(), with all logits in memory, a teacher's too. A reference model runs as it does there.
template <Task T>
typename T::Result run(const Context& context, const Logits& model, const T& task, const Gradients& gradients = {}) {
  T of_logits = task;
  std::optional<Projection> teacher;
  if constexpr (requires { task.teacher_round_logits_to; }) {
    if (task.teacher.hidden.given()) {
      teacher.emplace(context, task.teacher, Gradients(), &of_logits.teacher_round_logits_to);
      of_logits.teacher = Logits::given(teacher->logits().finished);
    }
  }
  Projection own(context, model, gradients, &of_logits.token.round_logits_to);
  typename T::Result result = logitless::run(own.context(), own.logits(), of_logits, own.d_logits());
  own.backward();
  own.complete(result.plan);
  if (teacher) result.plan.workspace_bytes += teacher->bytes();
  return result;
}

}  // namespace logitless::dense

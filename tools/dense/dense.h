// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// What the library is compared with: an LM head whose logits are all in memory. One product of all threads
// makes them, the library's own call on finished logits computes loss and dL/dlogits in their place, and
// two products lead back to the hidden states and the head.
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

/// The logits of hidden states and a head. Every row is computed, ignored ones too, as `lm_head` does.
class Projection {
 public:
  /// Makes the logits [N, V]: products, bias and softcap. `gradients` are written by backward(). `round_to`
  /// is the task's round_logits_to: with a softcap, which it comes before, logits are rounded here and it is
  /// emptied. What is given must outlive this. Throws InvalidInput where the library would, and for what this
  /// has not: hidden states whose sequences are apart, a LoRA's `states`, a weight sink and gradients that
  /// are added to.
  Projection(const Context& context, const Logits& model, const Gradients& gradients = {},
             std::optional<DType>* round_to = nullptr);
  ~Projection();
  Projection(const Projection&) = delete;
  Projection& operator=(const Projection&) = delete;

  /// The threads, kernels and ranks of the context that was given, with the defaults of everything else.
  const Context& context() const;
  /// The logits, in the sequences of the hidden states.
  Logits logits() const;
  /// Where their gradients are to be written, if any are wanted: in place of the logits, or apart from them
  /// under a softcap, whose derivative is a function of the logits.
  Gradients d_logits() const;
  /// Makes the gradients of hidden states and head from these.
  void backward();
  /// The bytes of logits, gradients and scratch so far.
  size_t bytes() const;
  /// Makes the plan of the call on the logits that of the whole call: one pass, which keeps all logits.
  void complete(Plan& plan) const;

 private:
  struct Work;
  template <class Sum>
  struct WorkIn;
  std::unique_ptr<Work> work_;
};

/// As logitless::run(), but with all logits in memory. A teacher's are in memory beside them; a reference's
/// model runs as it does there.
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

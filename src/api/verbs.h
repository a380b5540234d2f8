// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The four verbs of run.h, once for all tasks. Each task's file defines Steps<Task> and instantiates its
// verbs (LOGITLESS_VERBS). Steps<Task> holds the task and has
//
//     kRun, kForward         the columns of statistics that run() and forward() return
//     make_loss(call)        checks the task, gives it to the call, and returns the loss: a loss/ class, or
//                            a class that makes a result from statistics alone
//     prepare(call, loss)    runs before the loss is evaluated
//     backward(call, loss, forward, upstream)    computes the gradients
//     plan_parts(call, loss)    includes the plan of a part, for a prepare() that runs one; optional
//     teacher()              optional
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "api/call.h"
#include "core/checks.h"
#include "logitless/run.h"
#include "problem/token_problem.h"
#include "ranks/digests.h"
#include "stats/columns.h"
#include "stats/statistics.h"

namespace logitless::api {

template <Task T>
struct Steps;

/// Base of a task without a loss: its verbs return statistics.
struct NoLoss {};

template <class Loss>
TokenLoss* token_loss(Loss& loss) {
  if constexpr (std::is_base_of_v<TokenLoss, Loss>) {
    return &loss;
  } else if constexpr (std::is_base_of_v<NoLoss, Loss>) {
    return nullptr;
  } else {
    return loss.token_loss();
  }
}

template <Task T>
std::optional<Teacher> teacher_of(const Steps<T>& steps) {
  if constexpr (requires { steps.teacher(); }) {
    return steps.teacher();
  } else {
    return {};
  }
}

/// Checks that the sizes [B, T] of a task's two-axis tensors match the hidden states or logits.
template <class List, class Structure>
void check_task_tensors(List list, const Structure& tensors, const Logits& logits, std::string_view of = "") {
  const auto check = [&]<class T>(const Field& field, const T& member) {
    if constexpr (std::is_same_v<T, ConstTensor>) {
      if (member.axes != 2 || std::string_view(field.role.shape).find("[N]") == std::string_view::npos) return;
      core::check_batch({of, field.name}, {member.sizes[0], member.sizes[1]}, logits);
    } else if constexpr (std::is_same_v<T, SoftTargets>) {  // names without a prefix
      check_task_tensors(FieldsOf<T>(), member, logits);
    } else if constexpr (std::is_same_v<T, SetTeacher>) {
      check_task_tensors(FieldsOf<T>(), member, logits, field.name);
    }
  };
  visit_fields(list, check, tensors);
}

/// Returns a Loss, once its token weights are in the consistency check of ranks with the same tokens.
template <class Loss, class... Arguments>
Loss make_reduced_loss(const Call& call, Arguments&&... arguments) {
  Loss loss(std::forward<Arguments>(arguments)..., call.sequence_offsets(), call.problem(), call.totals());
  call.digest_tokens([&](ranks::Digests& digests) {
    digest_vector(digests, kTokenWeights.name, call.problem(), loss.token_weights());
  });
  return loss;
}

/// Returns the upstream number of a loss that takes only a single one.
inline double one_upstream(const char* name, const Upstream& upstream) {
  if (upstream.grads()) core::fail("upstream has gradients of statistics, but ", name, " is a loss");
  if (!upstream.is_each()) return upstream.one();
  if (upstream.each().size() != 1) {
    core::fail("upstream has ", upstream.each().size(), " entries but must have 1: ", name, " is one value");
  }
  return upstream.each()[0];
}

/// Computes the gradients of a loss whose forward() returned token gradients.
template <Task T>
Plan scaled_gradients(Call& call, const Forward<T>& forward, const Upstream& upstream) {
  const double one = one_upstream(T::kName, upstream);
  call.digest_tokens([&](ranks::Digests& digests) { digests.add("upstream", one); });
  return call.run_gradients(forward.stats, forward.grads, one);
}

/// Computes the gradients of a loss whose token gradients are not simply proportional to `upstream`:
/// evaluates the loss again from the statistics of forward(), without a logit. Checks that these have every
/// column that the loss needs.
template <Task T, class Loss>
Plan evaluated_gradients(Call& call, Loss& loss, const Forward<T>& forward, const Upstream& upstream) {
  const problem::TokenProblem& problem = call.problem();
  const TokenStats& stats = forward.stats;
  if (upstream.is_each()) {
    loss.set_upstream(upstream.each());
  } else {
    loss.set_upstream(one_upstream(T::kName, upstream));
  }
  call.digest_tokens([&](ranks::Digests& digests) {
    if (upstream.is_each() && upstream.each().size() != 1) {
      digest_vector(digests, "upstream", problem, upstream.each());
    } else {
      digests.add("upstream", one_upstream(T::kName, upstream));
    }
  });
  problem::check_pick_entries("forward.stats.logp", stats.logp.size(), problem);
  if (loss.gradients().lse) problem::check_entries("forward.stats.lse", stats.lse.size(), problem);
  if (loss.gradients().cross) problem::check_entries("forward.stats.cross", stats.cross.size(), problem);
  if (loss.gradients().outside) {
    problem::check_entries("forward.stats.outside", stats.outside.size(), problem);
    problem::check_entries("forward.stats.outside_max", stats.outside_max.size(), problem);
  }
  stats::Columns columns;
  stats::make_grads(problem, loss, columns);
  loss.evaluate(problem.active(), stats, columns.grads);
  return call.run_gradients(stats, columns.grads);
}

/// Returns work(call, steps, loss) for a call of the task, once it has ended on all ranks. The call reads
/// `also` in addition to its tensors: no output may overlap it.
template <Task T, class Work>
auto with_call(const Context& context, const Logits& logits, const T& task, const Gradients& gradients,
               std::span<const double> also, const Work& work) {
  const Steps<T> steps{task};
  const std::optional<Teacher> teacher = teacher_of(steps);
  Call whole(context, logits, teacher ? &*teacher : nullptr, gradients);
  return whole.complete([&](Call& call) {
    call.digest(T::kName, task);
    check_task_tensors(TensorsOf<T>(), task, logits);
    if (!also.empty()) call.reads(core::range_of("upstream", also.data(), also.size_bytes()));
    auto loss = steps.make_loss(call);
    return work(call, steps, loss);
  });
}

/// Throws InvalidInput if gradients are requested from a task without a loss.
template <class Loss>
void check_has_loss(const Loss&, const char* name, const Gradients& gradients) {
  if (!std::is_base_of_v<NoLoss, Loss> || !gradients.any()) return;
  core::fail("gradients are requested from ", name, ", which has no loss: use forward() and backward()");
}

}  // namespace logitless::api

namespace logitless {

template <Task T>
typename T::Result run(const Context& context, const Logits& logits, const T& task, const Gradients& gradients) {
  using Steps = api::Steps<T>;
  return api::with_call(context, logits, task, gradients, {}, [&](api::Call& call, const Steps& steps, auto& loss) {
    api::check_has_loss(loss, T::kName, gradients);
    steps.prepare(call, loss);
    stream::Outcome outcome = call.run(api::token_loss(loss), Steps::kRun);
    return loss.result(std::move(outcome.stats), outcome.plan);
  });
}

template <Task T>
Forward<T> forward(const Context& context, const Logits& logits, const T& task) {
  using Steps = api::Steps<T>;
  return api::with_call(
      context, logits, task, api::kNoGradients, {}, [&](api::Call& call, const Steps& steps, auto& loss) {
        stats::Returned kept = Steps::kForward;
        kept.expected = true;
        steps.prepare(call, loss);
        stream::Outcome outcome = call.run(api::token_loss(loss), kept);
        Forward<T> out{.result = loss.result(outcome.stats, outcome.plan), .stats = std::move(outcome.stats)};
        if (Steps::kForward.grads) out.grads = std::move(outcome.grads);
        return out;
      });
}

template <Task T>
Plan backward(const Context& context, const Logits& logits, const T& task, const Forward<T>& forward,
              const Upstream& upstream, const Gradients& gradients) {
  using Steps = api::Steps<T>;
  return api::with_call(
      context, logits, task, gradients, upstream.each(),
      [&](api::Call& call, const Steps& steps, auto& loss) { return steps.backward(call, loss, forward, upstream); });
}

template <Task T>
Plan plan(const Context& context, const Logits& logits, const T& task, const Gradients& gradients) {
  using Steps = api::Steps<T>;
  return api::with_call(context, logits, task, gradients, {}, [&](api::Call& call, const Steps& steps, auto& loss) {
    api::check_has_loss(loss, T::kName, gradients);
    if constexpr (requires { steps.plan_parts(call, loss); }) steps.plan_parts(call, loss);
    return call.plan(api::token_loss(loss), Steps::kRun);
  });
}

/// Instantiates the verbs of a task.
#define LOGITLESS_VERBS(Task)                                                                               \
  template Task::Result run(const Context&, const Logits&, const Task&, const Gradients&);                  \
  template Forward<Task> forward(const Context&, const Logits&, const Task&);                               \
  template Plan backward(const Context&, const Logits&, const Task&, const Forward<Task>&, const Upstream&, \
                         const Gradients&);                                                                 \
  template Plan plan(const Context&, const Logits&, const Task&, const Gradients&)

}  // namespace logitless

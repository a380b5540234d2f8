// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Calls whose parts are separate in tests: a source of logits, a batch, options, gradients. Each calls one of
// the four verbs of run.h on a task that is assembled here.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "core/fields.h"
#include "logitless/logitless.h"
#include "support/views.h"

namespace logitless::testing {

/// The tensors of a PolicyLoss.
struct PolicyBatch {
  Targets chosen_ids;
  ConstVector advantages, old_logps, ref_logps, sampling_logps, teacher_logps, scores;
  std::span<const uint8_t> mask;
  EntriesPer advantages_per = EntriesPer::kBySize;
  IdSets kept;
};

/// The tensors of a KtoLoss.
struct KtoBatch {
  Targets targets;
  std::span<const uint8_t> labels;
  Reference reference;
  ConstVector kl_logps, kl_ref_logps, sequence_weights, reward_targets;
};

/// Sets the tensors of a task from one input of a call.
void set_input(auto& task, const Targets& targets) { task.targets = targets; }
void set_input(auto& task, const SetTeacher& teacher) { task.teacher = teacher; }
void set_input(auto& task, const Reference& reference) {
  task.ref_logps = reference.logps;
  task.ref_logps_per = reference.logps_per;
  task.reference = logits_of(reference.hidden, reference.head);
}
inline void set_input(SoftCrossEntropy& task, const SoftTargets& targets) { task.targets = targets; }
inline void set_input(IdLogps& task, const IdSets& sets) { task.sets = sets; }
inline void set_input(Distillation& task, const Teacher& teacher) {
  task.teacher = logits_of(teacher);
  if (teacher.round_logits_to) task.teacher_round_logits_to = teacher.round_logits_to;
}
inline void set_input(PolicyLoss& task, const PolicyBatch& batch) {
  visit_fields(
      TensorsOf<PolicyLoss>(), [](const Field&, auto& to, const auto& from) { to = from; }, task, batch);
}
inline void set_input(KtoLoss& task, const KtoBatch& batch) {
  set_input(task, batch.targets);
  set_input(task, batch.reference);
  task.labels = batch.labels;
  task.kl_logps = batch.kl_logps, task.kl_ref_logps = batch.kl_ref_logps;
  task.sequence_weights = batch.sequence_weights, task.reward_targets = batch.reward_targets;
}

/// Returns the task with the tensors of a call.
template <class Task, class... Inputs>
Task with(Task task, const Inputs&... inputs) {
  (set_input(task, inputs), ...);
  return task;
}
/// Reuses the memory of lists, so that tests can count a call's own allocations.
template <class... Inputs>
const PreferenceLoss& with(const PreferenceLoss& options, const Inputs&... inputs) {
  thread_local PreferenceLoss task;
  task = options;
  (set_input(task, inputs), ...);
  return task;
}

/// Wraps the statistics of a forward half for backward().
inline const Forward<TokenStatistics>& forward_of(const TokenStats& stats) {
  thread_local Forward<TokenStatistics> left;
  left.result.stats = stats;
  return left;
}

/// The verbs of a task on matrices; calling the object is run(). `Inputs` are the task's tensors.
template <class Task, class... Inputs>
struct Verbs {
  auto operator()(const Context& context, const HiddenStates& hidden, const LmHead& head, const Inputs&... inputs,
                  const Task& options = {}, const Gradients& gradients = {}) const {
    return run(context, logits_of(hidden, head), with(options, inputs...), gradients_of(gradients, hidden, head));
  }
  auto operator()(const Context& context, const FinishedLogits& logits, const Inputs&... inputs,
                  const Task& options = {}, const LogitsGradient& d_logits = {}) const {
    return run(context, Logits::given(logits), with(options, inputs...), gradients_of(d_logits));
  }
  auto forward(const Context& context, const HiddenStates& hidden, const LmHead& head, const Inputs&... inputs,
               const Task& options = {}) const {
    return logitless::forward(context, logits_of(hidden, head), with(options, inputs...));
  }
  auto forward(const Context& context, const FinishedLogits& logits, const Inputs&... inputs,
               const Task& options = {}) const {
    return logitless::forward(context, Logits::given(logits), with(options, inputs...));
  }
  Plan backward(const Context& context, const HiddenStates& hidden, const LmHead& head, const Inputs&... inputs,
                const Task& options, const Forward<Task>& forward, const Upstream& upstream,
                const Gradients& gradients) const {
    return logitless::backward(context, logits_of(hidden, head), with(options, inputs...), forward, upstream,
                               gradients_of(gradients, hidden, head));
  }
  Plan backward(const Context& context, const FinishedLogits& logits, const Inputs&... inputs, const Task& options,
                const Forward<Task>& forward, const Upstream& upstream, const LogitsGradient& d_logits) const {
    return logitless::backward(context, Logits::given(logits), with(options, inputs...), forward, upstream,
                               gradients_of(d_logits));
  }
  Plan plan(const Context& context, const HiddenStates& hidden, const LmHead& head, const Inputs&... inputs,
            const Task& options = {}, const Gradients& gradients = {}) const {
    return logitless::plan(context, logits_of(hidden, head), with(options, inputs...),
                           gradients_of(gradients, hidden, head));
  }
  Plan plan(const Context& context, const FinishedLogits& logits, const Inputs&... inputs, const Task& options = {},
            const LogitsGradient& d_logits = {}) const {
    return logitless::plan(context, Logits::given(logits), with(options, inputs...), gradients_of(d_logits));
  }
};

inline constexpr Verbs<CrossEntropy, Targets> cross_entropy;
inline constexpr Verbs<SoftCrossEntropy, SoftTargets> soft_cross_entropy;
inline constexpr Verbs<Distillation, Teacher, Targets> distillation_loss;
inline constexpr Verbs<SetDistillation, SetTeacher, Targets> set_distillation_loss;
inline constexpr Verbs<PolicyLoss, PolicyBatch> policy_loss;
inline constexpr Verbs<KtoLoss, KtoBatch> kto_loss;
inline constexpr Verbs<PreferenceLoss, Targets, Reference> preference_loss;
inline constexpr Verbs<IdLogps, IdSets> id_logps;

inline TokenStats compute_token_stats(const Context& context, const HiddenStates& hidden, const LmHead& head,
                                      const Targets& targets, const TokenOptions& token = {},
                                      const StatsRequest& request = {}, Plan* plan = nullptr) {
  TokenStatisticsResult result = run(context, logits_of(hidden, head), TokenStatistics{targets, token, request}, {});
  if (plan) *plan = result.plan;
  return std::move(result.stats);
}
inline void backpropagate_token_grads(const Context& context, const HiddenStates& hidden, const LmHead& head,
                                      const Targets& targets, const TokenOptions& token, const StatsRequest& request,
                                      const TokenStats& stats, const TokenGrads& grads, const Gradients& gradients,
                                      Plan* plan = nullptr) {
  const Plan ran = backward(context, logits_of(hidden, head), TokenStatistics{targets, token, request},
                            forward_of(stats), grads, gradients_of(gradients, hidden, head));
  if (plan) *plan = ran;
}
inline Plan plan_token_stats(const Context& context, const HiddenStates& hidden, const LmHead& head,
                             const Targets& targets, const TokenOptions& token = {}, const StatsRequest& request = {}) {
  return plan(context, logits_of(hidden, head), TokenStatistics{targets, token, request});
}
inline TokenStats run_token_loss(const Context& context, const HiddenStates& hidden, const LmHead& head,
                                 const Targets& targets, const TokenOptions& token, TokenLoss& loss,
                                 const Gradients& gradients = {}, Plan* plan = nullptr) {
  TokenStatisticsResult result =
      run(context, logits_of(hidden, head), CustomLoss{targets, token, &loss}, gradients_of(gradients, hidden, head));
  if (plan) *plan = result.plan;
  return std::move(result.stats);
}
inline Plan plan_token_loss(const Context& context, const HiddenStates& hidden, const LmHead& head,
                            const Targets& targets, const TokenOptions& token, const TokenLoss& loss,
                            const Gradients& gradients = {}) {
  return plan(context, logits_of(hidden, head), CustomLoss{targets, token, const_cast<TokenLoss*>(&loss)},
              gradients_of(gradients, hidden, head));
}

inline TokenStats compute_token_stats(const Context& context, const FinishedLogits& logits, const Targets& targets,
                                      const TokenOptions& token = {}, const StatsRequest& request = {},
                                      Plan* plan = nullptr) {
  TokenStatisticsResult result = run(context, Logits::given(logits), TokenStatistics{targets, token, request});
  if (plan) *plan = result.plan;
  return std::move(result.stats);
}
inline void backpropagate_token_grads(const Context& context, const FinishedLogits& logits, const Targets& targets,
                                      const TokenOptions& token, const StatsRequest& request, const TokenStats& stats,
                                      const TokenGrads& grads, const LogitsGradient& d_logits, Plan* plan = nullptr) {
  const Plan ran = backward(context, Logits::given(logits), TokenStatistics{targets, token, request}, forward_of(stats),
                            grads, gradients_of(d_logits));
  if (plan) *plan = ran;
}
inline Plan plan_token_stats(const Context& context, const FinishedLogits& logits, const Targets& targets,
                             const TokenOptions& token = {}, const StatsRequest& request = {}) {
  return plan(context, Logits::given(logits), TokenStatistics{targets, token, request});
}
inline TokenStats run_token_loss(const Context& context, const FinishedLogits& logits, const Targets& targets,
                                 const TokenOptions& token, TokenLoss& loss, const LogitsGradient& d_logits = {},
                                 Plan* plan = nullptr) {
  TokenStatisticsResult result =
      run(context, Logits::given(logits), CustomLoss{targets, token, &loss}, gradients_of(d_logits));
  if (plan) *plan = result.plan;
  return std::move(result.stats);
}
inline Plan plan_token_loss(const Context& context, const FinishedLogits& logits, const Targets& targets,
                            const TokenOptions& token, const TokenLoss& loss, const LogitsGradient& d_logits = {}) {
  return plan(context, Logits::given(logits), CustomLoss{targets, token, const_cast<TokenLoss*>(&loss)},
              gradients_of(d_logits));
}

}  // namespace logitless::testing

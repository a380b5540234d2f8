// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Calls whose parts tests hold apart: a source of logits, what a batch has, options, gradients. Each is one
// of the four verbs of run.h on a task that is put together here.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "core/fields.h"
#include "logitless/logitless.h"
#include "support/views.h"

namespace logitless::testing {

/// What a batch has of a PolicyLoss.
struct PolicyBatch {
  Targets chosen_ids;
  ConstVector advantages, old_logps, ref_logps, sampling_logps, teacher_logps, scores;
  std::span<const uint8_t> mask;
  EntriesPer advantages_per = EntriesPer::kBySize;
  IdSets kept;
};
inline PolicyLoss with(PolicyLoss task, const PolicyBatch& batch) {
  visit_fields(
      TensorsOf<PolicyLoss>(), [](const Field&, auto& to, const auto& from) { to = from; }, task, batch);
  return task;
}

/// What a batch has of a KtoLoss.
struct KtoBatch {
  Targets targets;
  std::span<const uint8_t> labels;
  Reference reference;
  ConstVector kl_logps, kl_ref_logps, sequence_weights, reward_targets;
};
inline void set_teacher(Distillation& task, const Teacher& teacher) {
  task.teacher = logits_of(teacher);
  task.teacher_round_logits_to = teacher.round_logits_to;
}
inline void set_teacher(SetDistillation& task, const SetTeacher& teacher) { task.teacher = teacher; }
template <class T>
void set_reference(T& task, const Reference& reference) {
  task.ref_logps = reference.logps;
  task.ref_logps_per = reference.logps_per;
  task.reference = logits_of(reference.hidden, reference.head);
}
inline KtoLoss with(KtoLoss task, const KtoBatch& batch) {
  task.targets = batch.targets;
  task.labels = batch.labels;
  task.kl_logps = batch.kl_logps, task.kl_ref_logps = batch.kl_ref_logps;
  task.sequence_weights = batch.sequence_weights, task.reward_targets = batch.reward_targets;
  set_reference(task, batch.reference);
  return task;
}

/// Lists are assigned to memory that stays, so that tests can count what a call allocates.
inline const PreferenceLoss& with(const PreferenceLoss& options, const Targets& targets, const Reference& reference) {
  thread_local PreferenceLoss task;
  task = options;
  task.targets = targets;
  set_reference(task, reference);
  return task;
}

/// Does the same of what a forward half has left.
inline const Forward<TokenStatistics>& left_of(const TokenStats& stats) {
  thread_local Forward<TokenStatistics> left;
  left.result.stats = stats;
  return left;
}

inline auto cross_entropy(const Context& context, const HiddenStates& hidden, const LmHead& head,
                          const Targets& targets, const CrossEntropy& options = {}, const Gradients& gradients = {}) {
  CrossEntropy task = options;
  task.targets = targets;
  return run(context, logits_of(hidden, head), task, gradients_of(gradients, hidden, head));
}
inline Forward<CrossEntropy> cross_entropy_forward(const Context& context, const HiddenStates& hidden,
                                                   const LmHead& head, const Targets& targets, CrossEntropy task = {}) {
  task.targets = targets;
  return forward(context, logits_of(hidden, head), task);
}
inline Plan cross_entropy_backward(const Context& context, const HiddenStates& hidden, const LmHead& head,
                                   const Targets& targets, CrossEntropy task, const Forward<CrossEntropy>& forward,
                                   double upstream, const Gradients& gradients) {
  task.targets = targets;
  return backward(context, logits_of(hidden, head), task, forward, upstream, gradients_of(gradients, hidden, head));
}
inline Plan cross_entropy_backward(const Context& context, const HiddenStates& hidden, const LmHead& head,
                                   const Targets& targets, CrossEntropy task, const Forward<CrossEntropy>& forward,
                                   std::span<const double> upstream, const Gradients& gradients) {
  task.targets = targets;
  return backward(context, logits_of(hidden, head), task, forward, upstream, gradients_of(gradients, hidden, head));
}
inline Plan plan_cross_entropy(const Context& context, const HiddenStates& hidden, const LmHead& head,
                               const Targets& targets, CrossEntropy task = {}, const Gradients& gradients = {}) {
  task.targets = targets;
  return plan(context, logits_of(hidden, head), task, gradients_of(gradients, hidden, head));
}

inline auto cross_entropy(const Context& context, const FinishedLogits& logits, const Targets& targets,
                          const CrossEntropy& options = {}, const LogitsGradient& d_logits = {}) {
  CrossEntropy task = options;
  task.targets = targets;
  return run(context, Logits::given(logits), task, gradients_of(d_logits));
}
inline Forward<CrossEntropy> cross_entropy_forward(const Context& context, const FinishedLogits& logits,
                                                   const Targets& targets, CrossEntropy task = {}) {
  task.targets = targets;
  return forward(context, Logits::given(logits), task);
}
inline Plan cross_entropy_backward(const Context& context, const FinishedLogits& logits, const Targets& targets,
                                   CrossEntropy task, const Forward<CrossEntropy>& forward, double upstream,
                                   const LogitsGradient& d_logits) {
  task.targets = targets;
  return backward(context, Logits::given(logits), task, forward, upstream, gradients_of(d_logits));
}
inline Plan cross_entropy_backward(const Context& context, const FinishedLogits& logits, const Targets& targets,
                                   CrossEntropy task, const Forward<CrossEntropy>& forward,
                                   std::span<const double> upstream, const LogitsGradient& d_logits) {
  task.targets = targets;
  return backward(context, Logits::given(logits), task, forward, upstream, gradients_of(d_logits));
}
inline Plan plan_cross_entropy(const Context& context, const FinishedLogits& logits, const Targets& targets,
                               CrossEntropy task = {}, const LogitsGradient& d_logits = {}) {
  task.targets = targets;
  return plan(context, Logits::given(logits), task, gradients_of(d_logits));
}

inline auto soft_cross_entropy(const Context& context, const HiddenStates& hidden, const LmHead& head,
                               const SoftTargets& targets, SoftCrossEntropy task = {},
                               const Gradients& gradients = {}) {
  task.targets = targets;
  return run(context, logits_of(hidden, head), task, gradients_of(gradients, hidden, head));
}
inline Forward<SoftCrossEntropy> soft_cross_entropy_forward(const Context& context, const HiddenStates& hidden,
                                                            const LmHead& head, const SoftTargets& targets,
                                                            SoftCrossEntropy task = {}) {
  task.targets = targets;
  return forward(context, logits_of(hidden, head), task);
}
inline Plan soft_cross_entropy_backward(const Context& context, const HiddenStates& hidden, const LmHead& head,
                                        const SoftTargets& targets, SoftCrossEntropy task,
                                        const Forward<SoftCrossEntropy>& forward, double upstream,
                                        const Gradients& gradients) {
  task.targets = targets;
  return backward(context, logits_of(hidden, head), task, forward, upstream, gradients_of(gradients, hidden, head));
}
inline Plan soft_cross_entropy_backward(const Context& context, const HiddenStates& hidden, const LmHead& head,
                                        const SoftTargets& targets, SoftCrossEntropy task,
                                        const Forward<SoftCrossEntropy>& forward, std::span<const double> upstream,
                                        const Gradients& gradients) {
  task.targets = targets;
  return backward(context, logits_of(hidden, head), task, forward, upstream, gradients_of(gradients, hidden, head));
}
inline Plan plan_soft_cross_entropy(const Context& context, const HiddenStates& hidden, const LmHead& head,
                                    const SoftTargets& targets, SoftCrossEntropy task = {},
                                    const Gradients& gradients = {}) {
  task.targets = targets;
  return plan(context, logits_of(hidden, head), task, gradients_of(gradients, hidden, head));
}

inline auto soft_cross_entropy(const Context& context, const FinishedLogits& logits, const SoftTargets& targets,
                               SoftCrossEntropy task = {}, const LogitsGradient& d_logits = {}) {
  task.targets = targets;
  return run(context, Logits::given(logits), task, gradients_of(d_logits));
}
inline Forward<SoftCrossEntropy> soft_cross_entropy_forward(const Context& context, const FinishedLogits& logits,
                                                            const SoftTargets& targets, SoftCrossEntropy task = {}) {
  task.targets = targets;
  return forward(context, Logits::given(logits), task);
}
inline Plan soft_cross_entropy_backward(const Context& context, const FinishedLogits& logits,
                                        const SoftTargets& targets, SoftCrossEntropy task,
                                        const Forward<SoftCrossEntropy>& forward, double upstream,
                                        const LogitsGradient& d_logits) {
  task.targets = targets;
  return backward(context, Logits::given(logits), task, forward, upstream, gradients_of(d_logits));
}
inline Plan soft_cross_entropy_backward(const Context& context, const FinishedLogits& logits,
                                        const SoftTargets& targets, SoftCrossEntropy task,
                                        const Forward<SoftCrossEntropy>& forward, std::span<const double> upstream,
                                        const LogitsGradient& d_logits) {
  task.targets = targets;
  return backward(context, Logits::given(logits), task, forward, upstream, gradients_of(d_logits));
}
inline Plan plan_soft_cross_entropy(const Context& context, const FinishedLogits& logits, const SoftTargets& targets,
                                    SoftCrossEntropy task = {}, const LogitsGradient& d_logits = {}) {
  task.targets = targets;
  return plan(context, Logits::given(logits), task, gradients_of(d_logits));
}

inline auto distillation_loss(const Context& context, const HiddenStates& hidden, const LmHead& head,
                              const Teacher& teacher, const Targets& targets, Distillation task = {},
                              const Gradients& gradients = {}) {
  set_teacher(task, teacher), task.targets = targets;
  return run(context, logits_of(hidden, head), task, gradients_of(gradients, hidden, head));
}
inline Forward<Distillation> distillation_loss_forward(const Context& context, const HiddenStates& hidden,
                                                       const LmHead& head, const Teacher& teacher,
                                                       const Targets& targets, Distillation task = {}) {
  set_teacher(task, teacher), task.targets = targets;
  return forward(context, logits_of(hidden, head), task);
}
inline Plan distillation_loss_backward(const Context& context, const HiddenStates& hidden, const LmHead& head,
                                       const Teacher& teacher, const Targets& targets, Distillation task,
                                       const Forward<Distillation>& forward, double upstream,
                                       const Gradients& gradients) {
  set_teacher(task, teacher), task.targets = targets;
  return backward(context, logits_of(hidden, head), task, forward, upstream, gradients_of(gradients, hidden, head));
}
inline Plan distillation_loss_backward(const Context& context, const HiddenStates& hidden, const LmHead& head,
                                       const Teacher& teacher, const Targets& targets, Distillation task,
                                       const Forward<Distillation>& forward, std::span<const double> upstream,
                                       const Gradients& gradients) {
  set_teacher(task, teacher), task.targets = targets;
  return backward(context, logits_of(hidden, head), task, forward, upstream, gradients_of(gradients, hidden, head));
}
inline Plan plan_distillation_loss(const Context& context, const HiddenStates& hidden, const LmHead& head,
                                   const Teacher& teacher, const Targets& targets, Distillation task = {},
                                   const Gradients& gradients = {}) {
  set_teacher(task, teacher), task.targets = targets;
  return plan(context, logits_of(hidden, head), task, gradients_of(gradients, hidden, head));
}

inline auto distillation_loss(const Context& context, const FinishedLogits& logits, const Teacher& teacher,
                              const Targets& targets = {}, Distillation task = {},
                              const LogitsGradient& d_logits = {}) {
  set_teacher(task, teacher), task.targets = targets;
  return run(context, Logits::given(logits), task, gradients_of(d_logits));
}
inline Forward<Distillation> distillation_loss_forward(const Context& context, const FinishedLogits& logits,
                                                       const Teacher& teacher, const Targets& targets = {},
                                                       Distillation task = {}) {
  set_teacher(task, teacher), task.targets = targets;
  return forward(context, Logits::given(logits), task);
}
inline Plan distillation_loss_backward(const Context& context, const FinishedLogits& logits, const Teacher& teacher,
                                       const Targets& targets, Distillation task, const Forward<Distillation>& forward,
                                       double upstream, const LogitsGradient& d_logits) {
  set_teacher(task, teacher), task.targets = targets;
  return backward(context, Logits::given(logits), task, forward, upstream, gradients_of(d_logits));
}
inline Plan distillation_loss_backward(const Context& context, const FinishedLogits& logits, const Teacher& teacher,
                                       const Targets& targets, Distillation task, const Forward<Distillation>& forward,
                                       std::span<const double> upstream, const LogitsGradient& d_logits) {
  set_teacher(task, teacher), task.targets = targets;
  return backward(context, Logits::given(logits), task, forward, upstream, gradients_of(d_logits));
}
inline Plan plan_distillation_loss(const Context& context, const FinishedLogits& logits, const Teacher& teacher,
                                   const Targets& targets = {}, Distillation task = {},
                                   const LogitsGradient& d_logits = {}) {
  set_teacher(task, teacher), task.targets = targets;
  return plan(context, Logits::given(logits), task, gradients_of(d_logits));
}

inline auto set_distillation_loss(const Context& context, const HiddenStates& hidden, const LmHead& head,
                                  const SetTeacher& teacher, const Targets& targets = {}, SetDistillation task = {},
                                  const Gradients& gradients = {}) {
  set_teacher(task, teacher), task.targets = targets;
  return run(context, logits_of(hidden, head), task, gradients_of(gradients, hidden, head));
}
inline Forward<SetDistillation> set_distillation_loss_forward(const Context& context, const HiddenStates& hidden,
                                                              const LmHead& head, const SetTeacher& teacher,
                                                              const Targets& targets = {}, SetDistillation task = {}) {
  set_teacher(task, teacher), task.targets = targets;
  return forward(context, logits_of(hidden, head), task);
}
inline Plan set_distillation_loss_backward(const Context& context, const HiddenStates& hidden, const LmHead& head,
                                           const SetTeacher& teacher, const Targets& targets, SetDistillation task,
                                           const Forward<SetDistillation>& forward, double upstream,
                                           const Gradients& gradients) {
  set_teacher(task, teacher), task.targets = targets;
  return backward(context, logits_of(hidden, head), task, forward, upstream, gradients_of(gradients, hidden, head));
}
inline Plan set_distillation_loss_backward(const Context& context, const HiddenStates& hidden, const LmHead& head,
                                           const SetTeacher& teacher, const Targets& targets, SetDistillation task,
                                           const Forward<SetDistillation>& forward, std::span<const double> upstream,
                                           const Gradients& gradients) {
  set_teacher(task, teacher), task.targets = targets;
  return backward(context, logits_of(hidden, head), task, forward, upstream, gradients_of(gradients, hidden, head));
}
inline Plan plan_set_distillation_loss(const Context& context, const HiddenStates& hidden, const LmHead& head,
                                       const SetTeacher& teacher, const Targets& targets = {},
                                       SetDistillation task = {}, const Gradients& gradients = {}) {
  set_teacher(task, teacher), task.targets = targets;
  return plan(context, logits_of(hidden, head), task, gradients_of(gradients, hidden, head));
}

inline auto set_distillation_loss(const Context& context, const FinishedLogits& logits, const SetTeacher& teacher,
                                  const Targets& targets = {}, SetDistillation task = {},
                                  const LogitsGradient& d_logits = {}) {
  set_teacher(task, teacher), task.targets = targets;
  return run(context, Logits::given(logits), task, gradients_of(d_logits));
}
inline Forward<SetDistillation> set_distillation_loss_forward(const Context& context, const FinishedLogits& logits,
                                                              const SetTeacher& teacher, const Targets& targets = {},
                                                              SetDistillation task = {}) {
  set_teacher(task, teacher), task.targets = targets;
  return forward(context, Logits::given(logits), task);
}
inline Plan set_distillation_loss_backward(const Context& context, const FinishedLogits& logits,
                                           const SetTeacher& teacher, const Targets& targets, SetDistillation task,
                                           const Forward<SetDistillation>& forward, double upstream,
                                           const LogitsGradient& d_logits) {
  set_teacher(task, teacher), task.targets = targets;
  return backward(context, Logits::given(logits), task, forward, upstream, gradients_of(d_logits));
}
inline Plan set_distillation_loss_backward(const Context& context, const FinishedLogits& logits,
                                           const SetTeacher& teacher, const Targets& targets, SetDistillation task,
                                           const Forward<SetDistillation>& forward, std::span<const double> upstream,
                                           const LogitsGradient& d_logits) {
  set_teacher(task, teacher), task.targets = targets;
  return backward(context, Logits::given(logits), task, forward, upstream, gradients_of(d_logits));
}
inline Plan plan_set_distillation_loss(const Context& context, const FinishedLogits& logits, const SetTeacher& teacher,
                                       const Targets& targets = {}, SetDistillation task = {},
                                       const LogitsGradient& d_logits = {}) {
  set_teacher(task, teacher), task.targets = targets;
  return plan(context, Logits::given(logits), task, gradients_of(d_logits));
}

inline auto policy_loss(const Context& context, const HiddenStates& hidden, const LmHead& head,
                        const PolicyBatch& batch, PolicyLoss task = {}, const Gradients& gradients = {}) {
  task = with(task, batch);
  return run(context, logits_of(hidden, head), task, gradients_of(gradients, hidden, head));
}
inline Forward<PolicyLoss> policy_loss_forward(const Context& context, const HiddenStates& hidden, const LmHead& head,
                                               const PolicyBatch& batch, PolicyLoss task = {}) {
  task = with(task, batch);
  return forward(context, logits_of(hidden, head), task);
}
inline Plan policy_loss_backward(const Context& context, const HiddenStates& hidden, const LmHead& head,
                                 const PolicyBatch& batch, PolicyLoss task, const Forward<PolicyLoss>& forward,
                                 double upstream, const Gradients& gradients) {
  task = with(task, batch);
  return backward(context, logits_of(hidden, head), task, forward, upstream, gradients_of(gradients, hidden, head));
}
inline Plan plan_policy_loss(const Context& context, const HiddenStates& hidden, const LmHead& head,
                             const PolicyBatch& batch, PolicyLoss task = {}, const Gradients& gradients = {}) {
  task = with(task, batch);
  return plan(context, logits_of(hidden, head), task, gradients_of(gradients, hidden, head));
}

inline auto policy_loss(const Context& context, const FinishedLogits& logits, const PolicyBatch& batch,
                        PolicyLoss task = {}, const LogitsGradient& d_logits = {}) {
  task = with(task, batch);
  return run(context, Logits::given(logits), task, gradients_of(d_logits));
}
inline Forward<PolicyLoss> policy_loss_forward(const Context& context, const FinishedLogits& logits,
                                               const PolicyBatch& batch, PolicyLoss task = {}) {
  task = with(task, batch);
  return forward(context, Logits::given(logits), task);
}
inline Plan policy_loss_backward(const Context& context, const FinishedLogits& logits, const PolicyBatch& batch,
                                 PolicyLoss task, const Forward<PolicyLoss>& forward, double upstream,
                                 const LogitsGradient& d_logits) {
  task = with(task, batch);
  return backward(context, Logits::given(logits), task, forward, upstream, gradients_of(d_logits));
}
inline Plan plan_policy_loss(const Context& context, const FinishedLogits& logits, const PolicyBatch& batch,
                             PolicyLoss task = {}, const LogitsGradient& d_logits = {}) {
  task = with(task, batch);
  return plan(context, Logits::given(logits), task, gradients_of(d_logits));
}

inline auto kto_loss(const Context& context, const HiddenStates& hidden, const LmHead& head, const KtoBatch& batch,
                     KtoLoss task = {}, const Gradients& gradients = {}) {
  task = with(task, batch);
  return run(context, logits_of(hidden, head), task, gradients_of(gradients, hidden, head));
}
inline Forward<KtoLoss> kto_loss_forward(const Context& context, const HiddenStates& hidden, const LmHead& head,
                                         const KtoBatch& batch, KtoLoss task = {}) {
  task = with(task, batch);
  return forward(context, logits_of(hidden, head), task);
}
inline Plan kto_loss_backward(const Context& context, const HiddenStates& hidden, const LmHead& head,
                              const KtoBatch& batch, KtoLoss task, const Forward<KtoLoss>& forward, double upstream,
                              const Gradients& gradients) {
  task = with(task, batch);
  return backward(context, logits_of(hidden, head), task, forward, upstream, gradients_of(gradients, hidden, head));
}
inline Plan plan_kto_loss(const Context& context, const HiddenStates& hidden, const LmHead& head, const KtoBatch& batch,
                          KtoLoss task = {}, const Gradients& gradients = {}) {
  task = with(task, batch);
  return plan(context, logits_of(hidden, head), task, gradients_of(gradients, hidden, head));
}

inline auto kto_loss(const Context& context, const FinishedLogits& logits, const KtoBatch& batch, KtoLoss task = {},
                     const LogitsGradient& d_logits = {}) {
  task = with(task, batch);
  return run(context, Logits::given(logits), task, gradients_of(d_logits));
}
inline Forward<KtoLoss> kto_loss_forward(const Context& context, const FinishedLogits& logits, const KtoBatch& batch,
                                         KtoLoss task = {}) {
  task = with(task, batch);
  return forward(context, Logits::given(logits), task);
}
inline Plan kto_loss_backward(const Context& context, const FinishedLogits& logits, const KtoBatch& batch, KtoLoss task,
                              const Forward<KtoLoss>& forward, double upstream, const LogitsGradient& d_logits) {
  task = with(task, batch);
  return backward(context, Logits::given(logits), task, forward, upstream, gradients_of(d_logits));
}
inline Plan plan_kto_loss(const Context& context, const FinishedLogits& logits, const KtoBatch& batch,
                          KtoLoss task = {}, const LogitsGradient& d_logits = {}) {
  task = with(task, batch);
  return plan(context, Logits::given(logits), task, gradients_of(d_logits));
}

inline auto preference_loss(const Context& context, const HiddenStates& hidden, const LmHead& head,
                            const Targets& targets, const Reference& reference = {}, const PreferenceLoss& options = {},
                            const Gradients& gradients = {}) {
  const PreferenceLoss& task = with(options, targets, reference);
  return run(context, logits_of(hidden, head), task, gradients_of(gradients, hidden, head));
}
inline Forward<PreferenceLoss> preference_loss_forward(const Context& context, const HiddenStates& hidden,
                                                       const LmHead& head, const Targets& targets,
                                                       const Reference& reference = {},
                                                       const PreferenceLoss& options = {}) {
  const PreferenceLoss& task = with(options, targets, reference);
  return forward(context, logits_of(hidden, head), task);
}
inline Plan preference_loss_backward(const Context& context, const HiddenStates& hidden, const LmHead& head,
                                     const Targets& targets, const Reference& reference, const PreferenceLoss& options,
                                     const Forward<PreferenceLoss>& forward, double upstream,
                                     const Gradients& gradients) {
  const PreferenceLoss& task = with(options, targets, reference);
  return backward(context, logits_of(hidden, head), task, forward, upstream, gradients_of(gradients, hidden, head));
}
inline Plan plan_preference_loss(const Context& context, const HiddenStates& hidden, const LmHead& head,
                                 const Targets& targets, const Reference& reference = {},
                                 const PreferenceLoss& options = {}, const Gradients& gradients = {}) {
  const PreferenceLoss& task = with(options, targets, reference);
  return plan(context, logits_of(hidden, head), task, gradients_of(gradients, hidden, head));
}

inline auto preference_loss(const Context& context, const FinishedLogits& logits, const Targets& targets,
                            const Reference& reference = {}, const PreferenceLoss& options = {},
                            const LogitsGradient& d_logits = {}) {
  const PreferenceLoss& task = with(options, targets, reference);
  return run(context, Logits::given(logits), task, gradients_of(d_logits));
}
inline Forward<PreferenceLoss> preference_loss_forward(const Context& context, const FinishedLogits& logits,
                                                       const Targets& targets, const Reference& reference = {},
                                                       const PreferenceLoss& options = {}) {
  const PreferenceLoss& task = with(options, targets, reference);
  return forward(context, Logits::given(logits), task);
}
inline Plan preference_loss_backward(const Context& context, const FinishedLogits& logits, const Targets& targets,
                                     const Reference& reference, const PreferenceLoss& options,
                                     const Forward<PreferenceLoss>& forward, double upstream,
                                     const LogitsGradient& d_logits) {
  const PreferenceLoss& task = with(options, targets, reference);
  return backward(context, Logits::given(logits), task, forward, upstream, gradients_of(d_logits));
}
inline Plan plan_preference_loss(const Context& context, const FinishedLogits& logits, const Targets& targets,
                                 const Reference& reference = {}, const PreferenceLoss& options = {},
                                 const LogitsGradient& d_logits = {}) {
  const PreferenceLoss& task = with(options, targets, reference);
  return plan(context, Logits::given(logits), task, gradients_of(d_logits));
}

/// The log-probabilities of sets, and what their backward half needs.
struct SetLogps : IdLogpsResult {
  TokenStats stats;
};
inline SetLogps id_logps(const Context& context, const HiddenStates& hidden, const LmHead& head, const IdSets& sets,
                         IdLogps task = {}) {
  task.sets = sets;
  Forward<IdLogps> forward = logitless::forward(context, logits_of(hidden, head), task);
  return {std::move(forward.result), std::move(forward.stats)};
}
inline Plan id_logps_backward(const Context& context, const HiddenStates& hidden, const LmHead& head,
                              const IdSets& sets, IdLogps task, const SetLogps& forward,
                              std::span<const double> upstream, const Gradients& gradients) {
  task.sets = sets;
  return backward(context, logits_of(hidden, head), task, {forward, forward.stats, {}}, upstream,
                  gradients_of(gradients, hidden, head));
}
inline Plan plan_id_logps(const Context& context, const HiddenStates& hidden, const LmHead& head, const IdSets& sets,
                          IdLogps task = {}) {
  task.sets = sets;
  return plan(context, logits_of(hidden, head), task);
}

inline TokenStats compute_token_stats(const Context& context, const HiddenStates& hidden, const LmHead& head,
                                      const Targets& targets, const TokenOptions& token = {},
                                      const StatsRequest& request = {}, Plan* plan = nullptr) {
  TokenStatisticsResult result = run(context, logits_of(hidden, head), TokenStatistics{targets, token, request});
  if (plan) *plan = result.plan;
  return std::move(result.stats);
}
inline void backpropagate_token_grads(const Context& context, const HiddenStates& hidden, const LmHead& head,
                                      const Targets& targets, const TokenOptions& token, const StatsRequest& request,
                                      const TokenStats& stats, const TokenGrads& grads, const Gradients& gradients,
                                      Plan* plan = nullptr) {
  const Plan ran = backward(context, logits_of(hidden, head), TokenStatistics{targets, token, request}, left_of(stats),
                            grads, gradients_of(gradients, hidden, head));
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

inline SetLogps id_logps(const Context& context, const FinishedLogits& logits, const IdSets& sets, IdLogps task = {}) {
  task.sets = sets;
  Forward<IdLogps> forward = logitless::forward(context, Logits::given(logits), task);
  return {std::move(forward.result), std::move(forward.stats)};
}
inline Plan id_logps_backward(const Context& context, const FinishedLogits& logits, const IdSets& sets, IdLogps task,
                              const SetLogps& forward, std::span<const double> upstream,
                              const LogitsGradient& d_logits) {
  task.sets = sets;
  return backward(context, Logits::given(logits), task, {forward, forward.stats, {}}, upstream, gradients_of(d_logits));
}
inline Plan plan_id_logps(const Context& context, const FinishedLogits& logits, const IdSets& sets, IdLogps task = {}) {
  task.sets = sets;
  return plan(context, Logits::given(logits), task);
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
  const Plan ran = backward(context, Logits::given(logits), TokenStatistics{targets, token, request}, left_of(stats),
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

inline CrossEntropyResult dense_cross_entropy(const Context& context, const HiddenStates& hidden, const LmHead& head,
                                              const Targets& targets, const CrossEntropy& task = {},
                                              const Gradients& gradients = {}) {
  ContextOptions dense = context.options();
  dense.plan = PlanKind::kDense;
  return cross_entropy(Context(dense), hidden, head, targets, task, gradients);
}
inline std::vector<double> entropy_from_logits(const Context& context, const FinishedLogits& logits,
                                               const TokenOptions& token = {}, std::span<const double> upstream = {},
                                               const LogitsGradient& d_logits = {}) {
  const TokenStatistics task = {.token = token, .request = {.entropy = true}};
  const Forward<TokenStatistics> ran = forward(context, Logits::given(logits), task);
  if (d_logits.data) {
    const TokenGrads grads = {.logp = {}, .lse = {}, .entropy = {upstream.begin(), upstream.end()}, .cross = {}};
    backward(context, Logits::given(logits), task, ran, grads, gradients_of(d_logits));
  }
  return ran.result.stats.entropy;
}
inline size_t slice_bytes_per_token(DType hidden, const StatsRequest& request = {}) {
  return slice_bytes_per_token(hidden, TokenStatistics{.request = request});
}
inline std::vector<std::byte> token_stats_slice(const Context& context, const HiddenStates& hidden, const LmHead& head,
                                                const Targets& targets, const TokenOptions& token = {},
                                                const StatsRequest& request = {}) {
  return fold_slice(context, logits_of(hidden, head), TokenStatistics{targets, token, request});
}
inline std::vector<std::byte> cross_entropy_slice(const Context& context, const HiddenStates& hidden,
                                                  const LmHead& head, const Targets& targets, CrossEntropy task = {}) {
  task.targets = targets;
  return fold_slice(context, logits_of(hidden, head), task);
}

}  // namespace logitless::testing

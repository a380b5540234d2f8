// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The ten tasks. Each is one flat structure, with its options and the members of its batch, its list of
// fields, and four verbs. Records know nothing else about a task.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "logitless/fields.h"
#include "logitless/logits.h"
#include "logitless/slices.h"
#include "record/types.h"

namespace logitless {

// Lists of structures that have none in fields.h. The models in them are in record::Model.

template <class Visit, class... S>
void visit_fields(FieldsOf<IdSets>, const Visit& visit, S&&... s) {
  visit(Field("ids"), s.ids...);
  visit(Field("offsets"), s.offsets...);
  visit(Field("counts"), s.counts...);
}
template <class Visit, class... S>
void visit_fields(FieldsOf<SoftTargets>, const Visit& visit, S&&... s) {
  visit(Field("sets"), s.sets...);
  visit(Field("weights"), s.weights...);
  visit(Field("rows"), s.rows...);
  visit(Field("mask"), s.mask...);
}
template <class Visit, class... S>
void visit_fields(FieldsOf<Reference>, const Visit& visit, S&&... s) {
  visit(Field("logps"), s.logps...);
  visit(Field("logps_per"), s.logps_per...);
}
template <class Visit, class... S>
void visit_fields(FieldsOf<Teacher>, const Visit& visit, S&&... s) {
  visit(Field("round_logits_to"), s.round_logits_to...);
}
template <class Visit, class... S>
void visit_fields(FieldsOf<SetTeacher>, const Visit& visit, S&&... s) {
  visit(Field("sets"), s.sets...);
  visit(Field("logps"), s.logps...);
  visit(Field("outside_logps"), s.outside_logps...);
}

}  // namespace logitless

namespace logitless::record {

/// The source of a call's logits: hidden states and a head, or finished logits.
struct Source {
  HiddenStates hidden;
  LmHead head;
  logitless::Logits logits;
  bool finished = false;  ///< it is `logits`
};

/// Where the gradients go, for either source.
struct Outputs {
  Gradients gradients;
  LogitsGradient d_logits;
};

/// Calls use(outputs, source...).
template <class Use>
auto with(const Source& from, const Outputs& to, const Use& use) {
  return from.finished ? use(to.d_logits, from.logits) : use(to.gradients, from.hidden, from.head);
}
/// Calls use(source...).
template <class Use>
auto with(const Source& from, const Use& use) {
  return from.finished ? use(from.logits) : use(from.hidden, from.head);
}

/// Calls use(upstream) with a number or a span.
template <class Use>
auto with_upstream(double upstream, const Use& use) {
  return use(upstream);
}
template <class Use>
auto with_upstream(const Upstream& upstream, const Use& use) {
  return upstream.each.data() ? use(upstream.each) : use(upstream.value);
}

// The verbs of a loss of the public API. The last arguments are its functions' arguments between the source
// and the outputs.
#define LOGITLESS_RUN_AND_PLAN(Task, name, ...)                                                                        \
  inline auto run(const Context& context, const Source& from, const Task& task, const Outputs& to) {                   \
    return with(from, to, [&](const auto& out, const auto&... in) { return name(context, in..., __VA_ARGS__, out); }); \
  }                                                                                                                    \
  inline auto forward(const Context& context, const Source& from, const Task& task) {                                  \
    return with(from, [&](const auto&... in) { return name##_forward(context, in..., __VA_ARGS__); });                 \
  }                                                                                                                    \
  inline Plan plan(const Context& context, const Source& from, const Task& task, const Outputs& to) {                  \
    return with(from, to,                                                                                              \
                [&](const auto& out, const auto&... in) { return plan_##name(context, in..., __VA_ARGS__, out); });    \
  }
#define LOGITLESS_VERBS(Task, name, ...)                                                                         \
  LOGITLESS_RUN_AND_PLAN(Task, name, __VA_ARGS__)                                                                \
  inline Plan backward(const Context& context, const Source& from, const Task& task, const Task::Forward& left,  \
                       const Task::Above& upstream, const Outputs& to) {                                         \
    return with(from, to, [&](const auto& out, const auto&... in) {                                              \
      return with_upstream(                                                                                      \
          upstream, [&](auto above) { return name##_backward(context, in..., __VA_ARGS__, left, above, out); }); \
    });                                                                                                          \
  }

// kNeeds lists the keys that a task needs; "a|b" means one of the two. Above is the type of ∂L/∂loss.

struct CrossEntropy : CrossEntropyOptions {
  static constexpr const char* kName = "cross_entropy";
  static constexpr std::array kNeeds = {"targets"};
  using Forward = CrossEntropyForward;
  using Above = Upstream;
  Targets targets;
};
LOGITLESS_VERBS(CrossEntropy, cross_entropy, task.targets, task)
inline std::vector<std::byte> slice(const Context& context, const Source& from, const CrossEntropy& task) {
  return cross_entropy_slice(context, from.hidden, from.head, task.targets, task);
}

struct PolicyLoss : PolicyOptions, PolicyBatch {
  static constexpr const char* kName = "policy_loss";
  static constexpr std::array kNeeds = {"chosen_ids"};
  using Forward = PolicyForward;
  using Above = double;
};
LOGITLESS_VERBS(PolicyLoss, policy_loss, task, task)

struct PreferenceLoss : PreferenceOptions {
  static constexpr const char* kName = "preference_loss";
  static constexpr std::array kNeeds = {"targets"};
  using Forward = PreferenceForward;
  using Above = double;
  Targets targets;
  Reference reference;
};
LOGITLESS_VERBS(PreferenceLoss, preference_loss, task.targets, task.reference, task)

struct KtoLoss : KtoOptions, KtoBatch {
  static constexpr const char* kName = "kto_loss";
  static constexpr std::array kNeeds = {"targets", "reference.logps|reference.hidden"};
  using Forward = KtoForward;
  using Above = double;
};
LOGITLESS_VERBS(KtoLoss, kto_loss, task, task)

struct SoftCrossEntropy : SoftCrossEntropyOptions {
  static constexpr const char* kName = "soft_cross_entropy";
  static constexpr std::array kNeeds = {"sets.ids|rows"};
  using Forward = SoftCrossEntropyForward;
  using Above = Upstream;
  SoftTargets targets;
};
LOGITLESS_VERBS(SoftCrossEntropy, soft_cross_entropy, task.targets, task)

struct Distillation : DistillationOptions {
  static constexpr const char* kName = "distillation_loss";
  static constexpr std::array kNeeds = {"teacher.hidden|teacher.logits"};
  using Forward = DistillationForward;
  using Above = Upstream;
  Teacher teacher;
  Targets targets;
};
LOGITLESS_VERBS(Distillation, distillation_loss, task.teacher, task.targets, task)

struct SetDistillation : SetDistillationOptions {
  static constexpr const char* kName = "set_distillation_loss";
  static constexpr std::array kNeeds = {"teacher.sets.ids", "teacher.logps"};
  using Forward = SetDistillationForward;
  using Above = Upstream;
  SetTeacher teacher;
  Targets targets;
};
LOGITLESS_RUN_AND_PLAN(SetDistillation, set_distillation_loss, task.teacher, task.targets, task)
inline Plan backward(const Context& context, const Source& from, const SetDistillation& task,
                     const SetDistillationForward& left, const Upstream& upstream, const Outputs& to) {
  const auto above = upstream.each.data() ? upstream.each : std::span(&upstream.value, 1);
  return with(from, to, [&](const auto& out, const auto&... in) {
    return set_distillation_loss_backward(context, in..., task.teacher, task.targets, task, left, above, out);
  });
}

#undef LOGITLESS_VERBS
#undef LOGITLESS_RUN_AND_PLAN

struct IdLogps : IdLogpsOptions {
  static constexpr const char* kName = "id_logps";
  static constexpr std::array kNeeds = {"sets.ids"};
  struct Forward {
    logitless::IdLogps result;
  };
  using Above = std::span<const double>;
  IdSets sets;
};
inline IdLogps::Forward forward(const Context& context, const Source& from, const IdLogps& task) {
  return {with(from, [&](const auto&... in) { return id_logps(context, in..., task.sets, task); })};
}
inline Plan backward(const Context& context, const Source& from, const IdLogps& task, const IdLogps::Forward& left,
                     std::span<const double> upstream, const Outputs& to) {
  return with(from, to, [&](const auto& out, const auto&... in) {
    return id_logps_backward(context, in..., task.sets, task, left.result, upstream, out);
  });
}
inline Plan plan(const Context& context, const Source& from, const IdLogps& task, const Outputs&) {
  return with(from, [&](const auto&... in) { return plan_id_logps(context, in..., task.sets, task); });
}

/// Statistics, with the plan that ran.
struct Statistics {
  TokenStats stats;
  Plan plan;
};

struct TokenStatistics {
  static constexpr const char* kName = "token_stats";
  static constexpr std::array kNeeds = {"targets"};
  struct Forward {
    Statistics result;
  };
  using Above = TokenGrads;
  TokenOptions token;
  StatsRequest request;
  Targets targets;
};
inline TokenStatistics::Forward forward(const Context& context, const Source& from, const TokenStatistics& task) {
  TokenStatistics::Forward left;
  left.result.stats = with(from, [&](const auto&... in) {
    return compute_token_stats(context, in..., task.targets, task.token, task.request, &left.result.plan);
  });
  return left;
}
inline Plan backward(const Context& context, const Source& from, const TokenStatistics& task,
                     const TokenStatistics::Forward& left, const TokenGrads& upstream, const Outputs& to) {
  Plan ran;
  with(from, to, [&](const auto& out, const auto&... in) {
    backpropagate_token_grads(context, in..., task.targets, task.token, task.request, left.result.stats, upstream, out,
                              &ran);
  });
  return ran;
}
inline Plan plan(const Context& context, const Source& from, const TokenStatistics& task, const Outputs&) {
  return with(from, [&](const auto&... in) {
    return plan_token_stats(context, in..., task.targets, task.token, task.request);
  });
}
inline std::vector<std::byte> slice(const Context& context, const Source& from, const TokenStatistics& task) {
  return token_stats_slice(context, from.hidden, from.head, task.targets, task.token, task.request);
}

struct CustomLoss {
  static constexpr const char* kName = "custom_loss";
  static constexpr std::array kNeeds = {"targets"};
  using Forward = TokenStatistics::Forward;
  using Above = double;
  TokenOptions token;
  Targets targets;
  TokenLoss* loss = nullptr;
};
inline Statistics run(const Context& context, const Source& from, const CustomLoss& task, const Outputs& to) {
  Statistics out;
  out.stats = with(from, to, [&](const auto& outputs, const auto&... in) {
    return run_token_loss(context, in..., task.targets, task.token, *task.loss, outputs, &out.plan);
  });
  return out;
}
inline Plan plan(const Context& context, const Source& from, const CustomLoss& task, const Outputs& to) {
  return with(from, to, [&](const auto& out, const auto&... in) {
    return plan_token_loss(context, in..., task.targets, task.token, *task.loss, out);
  });
}

// The lists of the tasks.

template <class Visit, class... S>
void visit_fields(FieldsOf<CrossEntropy>, const Visit& visit, S&&... s) {
  visit(Field("targets"), s.targets...);
  logitless::visit_fields(FieldsOf<CrossEntropyOptions>(), visit, s...);
}
template <class Visit, class... S>
void visit_fields(FieldsOf<PolicyLoss>, const Visit& visit, S&&... s) {
  logitless::visit_fields(FieldsOf<PolicyBatch>(), visit, s...);
  logitless::visit_fields(FieldsOf<PolicyOptions>(), visit, s...);
}
template <class Visit, class... S>
void visit_fields(FieldsOf<PreferenceLoss>, const Visit& visit, S&&... s) {
  visit(Field("targets"), s.targets...);
  visit(Field("reference"), s.reference...);
  logitless::visit_fields(FieldsOf<PreferenceOptions>(), visit, s...);
}
template <class Visit, class... S>
void visit_fields(FieldsOf<KtoLoss>, const Visit& visit, S&&... s) {
  logitless::visit_fields(FieldsOf<KtoBatch>(), visit, s...);
  logitless::visit_fields(FieldsOf<KtoOptions>(), visit, s...);
}
template <class Visit, class... S>
void visit_fields(FieldsOf<SoftCrossEntropy>, const Visit& visit, S&&... s) {
  visit(Field("targets"), s.targets...);
  logitless::visit_fields(FieldsOf<SoftCrossEntropyOptions>(), visit, s...);
}
template <class Visit, class... S>
void visit_fields(FieldsOf<Distillation>, const Visit& visit, S&&... s) {
  visit(Field("targets"), s.targets...);
  visit(Field("teacher"), s.teacher...);
  logitless::visit_fields(FieldsOf<DistillationOptions>(), visit, s...);
}
template <class Visit, class... S>
void visit_fields(FieldsOf<SetDistillation>, const Visit& visit, S&&... s) {
  visit(Field("targets"), s.targets...);
  visit(Field("teacher"), s.teacher...);
  logitless::visit_fields(FieldsOf<SetDistillationOptions>(), visit, s...);
}
template <class Visit, class... S>
void visit_fields(FieldsOf<IdLogps>, const Visit& visit, S&&... s) {
  visit(Field("sets"), s.sets...);
  logitless::visit_fields(FieldsOf<IdLogpsOptions>(), visit, s...);
}
template <class Visit, class... S>
void visit_fields(FieldsOf<TokenStatistics>, const Visit& visit, S&&... s) {
  visit(Field("targets"), s.targets...);
  visit(Field("token"), s.token...);
  visit(Field("request"), s.request...);
}
template <class Visit, class... S>
void visit_fields(FieldsOf<CustomLoss>, const Visit& visit, S&&... s) {
  visit(Field("targets"), s.targets...);
  visit(Field("token"), s.token...);
}

}  // namespace logitless::record

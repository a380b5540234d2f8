// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The ten tasks: each is one flat structure of its options and of what its batch has, with its list, and the
// four verbs on it. Records know nothing else of a task.
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

// Lists of structures that fields.h has none of. Models stand in Model.

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

/// What the logits of a call come from: hidden states and a head, or finished logits.
struct Source {
  HiddenStates hidden;
  LmHead head;
  logitless::Logits logits;
  bool finished = false;  ///< it is `logits`
};

/// Where the gradients go, of either source.
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

/// Calls use(upstream), which is a number or a span.
template <class Use>
auto with_upstream(const Upstream& upstream, const Use& use) {
  return upstream.each.data() ? use(upstream.each) : use(upstream.value);
}

/// Returns `upstream` as one or as several numbers.
inline std::span<const double> numbers_of(const Upstream& upstream) {
  return upstream.each.data() ? upstream.each : std::span(&upstream.value, 1);
}

// kNeeds has the keys that a task cannot do without: of "a|b" one of the two. Above is the type of ∂L/∂loss.

struct CrossEntropy : CrossEntropyOptions {
  static constexpr const char* kName = "cross_entropy";
  static constexpr std::array kNeeds = {"targets"};
  using Forward = CrossEntropyForward;
  using Above = Upstream;
  Targets targets;
};
inline auto run(const Context& context, const Source& from, const CrossEntropy& task, const Outputs& to) {
  return with(from, to, [&](const auto& out, const auto&... in) {
    return cross_entropy(context, in..., task.targets, task, out);
  });
}
inline auto forward(const Context& context, const Source& from, const CrossEntropy& task) {
  return with(from, [&](const auto&... in) { return cross_entropy_forward(context, in..., task.targets, task); });
}
inline Plan backward(const Context& context, const Source& from, const CrossEntropy& task,
                     const CrossEntropyForward& left, const Upstream& upstream, const Outputs& to) {
  return with(from, to, [&](const auto& out, const auto&... in) {
    return with_upstream(upstream, [&](auto above) {
      return cross_entropy_backward(context, in..., task.targets, task, left, above, out);
    });
  });
}
inline Plan plan(const Context& context, const Source& from, const CrossEntropy& task, const Outputs& to) {
  return with(from, to, [&](const auto& out, const auto&... in) {
    return plan_cross_entropy(context, in..., task.targets, task, out);
  });
}
inline std::vector<std::byte> slice(const Context& context, const Source& from, const CrossEntropy& task) {
  return cross_entropy_slice(context, from.hidden, from.head, task.targets, task);
}

struct PolicyLoss : PolicyOptions, PolicyBatch {
  static constexpr const char* kName = "policy_loss";
  static constexpr std::array kNeeds = {"chosen_ids"};
  using Forward = PolicyForward;
  using Above = double;
};
inline auto run(const Context& context, const Source& from, const PolicyLoss& task, const Outputs& to) {
  return with(from, to,
              [&](const auto& out, const auto&... in) { return policy_loss(context, in..., task, task, out); });
}
inline auto forward(const Context& context, const Source& from, const PolicyLoss& task) {
  return with(from, [&](const auto&... in) { return policy_loss_forward(context, in..., task, task); });
}
inline Plan backward(const Context& context, const Source& from, const PolicyLoss& task, const PolicyForward& left,
                     double upstream, const Outputs& to) {
  return with(from, to, [&](const auto& out, const auto&... in) {
    return policy_loss_backward(context, in..., task, task, left, upstream, out);
  });
}
inline Plan plan(const Context& context, const Source& from, const PolicyLoss& task, const Outputs& to) {
  return with(from, to,
              [&](const auto& out, const auto&... in) { return plan_policy_loss(context, in..., task, task, out); });
}

struct PreferenceLoss : PreferenceOptions {
  static constexpr const char* kName = "preference_loss";
  static constexpr std::array kNeeds = {"targets"};
  using Forward = PreferenceForward;
  using Above = double;
  Targets targets;
  Reference reference;
};
inline auto run(const Context& context, const Source& from, const PreferenceLoss& task, const Outputs& to) {
  return with(from, to, [&](const auto& out, const auto&... in) {
    return preference_loss(context, in..., task.targets, task.reference, task, out);
  });
}
inline auto forward(const Context& context, const Source& from, const PreferenceLoss& task) {
  return with(from, [&](const auto&... in) {
    return preference_loss_forward(context, in..., task.targets, task.reference, task);
  });
}
inline Plan backward(const Context& context, const Source& from, const PreferenceLoss& task,
                     const PreferenceForward& left, double upstream, const Outputs& to) {
  return with(from, to, [&](const auto& out, const auto&... in) {
    return preference_loss_backward(context, in..., task.targets, task.reference, task, left, upstream, out);
  });
}
inline Plan plan(const Context& context, const Source& from, const PreferenceLoss& task, const Outputs& to) {
  return with(from, to, [&](const auto& out, const auto&... in) {
    return plan_preference_loss(context, in..., task.targets, task.reference, task, out);
  });
}

struct KtoLoss : KtoOptions, KtoBatch {
  static constexpr const char* kName = "kto_loss";
  static constexpr std::array kNeeds = {"targets", "reference.logps|reference.hidden"};
  using Forward = KtoForward;
  using Above = double;
};
inline auto run(const Context& context, const Source& from, const KtoLoss& task, const Outputs& to) {
  return with(from, to, [&](const auto& out, const auto&... in) { return kto_loss(context, in..., task, task, out); });
}
inline auto forward(const Context& context, const Source& from, const KtoLoss& task) {
  return with(from, [&](const auto&... in) { return kto_loss_forward(context, in..., task, task); });
}
inline Plan backward(const Context& context, const Source& from, const KtoLoss& task, const KtoForward& left,
                     double upstream, const Outputs& to) {
  return with(from, to, [&](const auto& out, const auto&... in) {
    return kto_loss_backward(context, in..., task, task, left, upstream, out);
  });
}
inline Plan plan(const Context& context, const Source& from, const KtoLoss& task, const Outputs& to) {
  return with(from, to,
              [&](const auto& out, const auto&... in) { return plan_kto_loss(context, in..., task, task, out); });
}

struct SoftCrossEntropy : SoftCrossEntropyOptions {
  static constexpr const char* kName = "soft_cross_entropy";
  static constexpr std::array kNeeds = {"sets.ids|rows"};
  using Forward = SoftCrossEntropyForward;
  using Above = Upstream;
  SoftTargets targets;
};
inline auto run(const Context& context, const Source& from, const SoftCrossEntropy& task, const Outputs& to) {
  return with(from, to, [&](const auto& out, const auto&... in) {
    return soft_cross_entropy(context, in..., task.targets, task, out);
  });
}
inline auto forward(const Context& context, const Source& from, const SoftCrossEntropy& task) {
  return with(from, [&](const auto&... in) { return soft_cross_entropy_forward(context, in..., task.targets, task); });
}
inline Plan backward(const Context& context, const Source& from, const SoftCrossEntropy& task,
                     const SoftCrossEntropyForward& left, const Upstream& upstream, const Outputs& to) {
  return with(from, to, [&](const auto& out, const auto&... in) {
    return with_upstream(upstream, [&](auto above) {
      return soft_cross_entropy_backward(context, in..., task.targets, task, left, above, out);
    });
  });
}
inline Plan plan(const Context& context, const Source& from, const SoftCrossEntropy& task, const Outputs& to) {
  return with(from, to, [&](const auto& out, const auto&... in) {
    return plan_soft_cross_entropy(context, in..., task.targets, task, out);
  });
}

struct Distillation : DistillationOptions {
  static constexpr const char* kName = "distillation_loss";
  static constexpr std::array kNeeds = {"teacher.hidden|teacher.logits"};
  using Forward = DistillationForward;
  using Above = Upstream;
  Teacher teacher;
  Targets targets;
};
inline auto run(const Context& context, const Source& from, const Distillation& task, const Outputs& to) {
  return with(from, to, [&](const auto& out, const auto&... in) {
    return distillation_loss(context, in..., task.teacher, task.targets, task, out);
  });
}
inline auto forward(const Context& context, const Source& from, const Distillation& task) {
  return with(from, [&](const auto&... in) {
    return distillation_loss_forward(context, in..., task.teacher, task.targets, task);
  });
}
inline Plan backward(const Context& context, const Source& from, const Distillation& task,
                     const DistillationForward& left, const Upstream& upstream, const Outputs& to) {
  return with(from, to, [&](const auto& out, const auto&... in) {
    return with_upstream(upstream, [&](auto above) {
      return distillation_loss_backward(context, in..., task.teacher, task.targets, task, left, above, out);
    });
  });
}
inline Plan plan(const Context& context, const Source& from, const Distillation& task, const Outputs& to) {
  return with(from, to, [&](const auto& out, const auto&... in) {
    return plan_distillation_loss(context, in..., task.teacher, task.targets, task, out);
  });
}

struct SetDistillation : SetDistillationOptions {
  static constexpr const char* kName = "set_distillation_loss";
  static constexpr std::array kNeeds = {"teacher.sets.ids", "teacher.logps"};
  using Forward = SetDistillationForward;
  using Above = Upstream;
  SetTeacher teacher;
  Targets targets;
};
inline auto run(const Context& context, const Source& from, const SetDistillation& task, const Outputs& to) {
  return with(from, to, [&](const auto& out, const auto&... in) {
    return set_distillation_loss(context, in..., task.teacher, task.targets, task, out);
  });
}
inline auto forward(const Context& context, const Source& from, const SetDistillation& task) {
  return with(from, [&](const auto&... in) {
    return set_distillation_loss_forward(context, in..., task.teacher, task.targets, task);
  });
}
inline Plan backward(const Context& context, const Source& from, const SetDistillation& task,
                     const SetDistillationForward& left, const Upstream& upstream, const Outputs& to) {
  return with(from, to, [&](const auto& out, const auto&... in) {
    return set_distillation_loss_backward(context, in..., task.teacher, task.targets, task, left, numbers_of(upstream),
                                          out);
  });
}
inline Plan plan(const Context& context, const Source& from, const SetDistillation& task, const Outputs& to) {
  return with(from, to, [&](const auto& out, const auto&... in) {
    return plan_set_distillation_loss(context, in..., task.teacher, task.targets, task, out);
  });
}

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

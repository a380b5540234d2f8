// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The losses as Python calls them: what each takes of the keywords, and the functions of the C++ API behind it.
#pragma once

#include <string>
#include <vector>

#include "logitless/error.h"
#include "logitless/logits.h"
#include "options.h"

namespace logitless::python {

// The gradient of a loss that is one number.
inline double one_upstream(const std::vector<double>& upstream, const char* loss) {
  if (upstream.size() == 1) return upstream[0];
  throw InvalidInput("upstream has " + std::to_string(upstream.size()) + " entries but must have 1: " + loss +
                     " is one value");
}

inline Targets take_targets(Keywords& keywords, Arrays& arrays) {
  const nb::handle targets = keywords.find("targets");
  if (!targets) throw InvalidInput("targets is missing");
  return arrays.targets(targets, "targets");
}

/// A loss reads its arguments from keywords and is run, planned, or run in halves. Each is described by a struct
/// with the same members.
struct CrossEntropy {
  static constexpr const char* kName = "cross_entropy";
  using Forward = Forward<CrossEntropy>;
  Targets targets;
  CrossEntropy options;

  CrossEntropy(Keywords& keywords, Arrays& arrays)
      : targets(take_targets(keywords, arrays)), options(take_fields<CrossEntropy>(keywords, arrays)) {}
  auto run(const Context& context, const auto& outputs, const auto&... source) const {
    return cross_entropy(context, source..., targets, options, outputs);
  }
  auto plan(const Context& context, const auto& outputs, const auto&... source) const {
    return plan_cross_entropy(context, source..., targets, options, outputs);
  }
  Forward forward(const Context& context, const auto&... source) const {
    return cross_entropy_forward(context, source..., targets, options);
  }
  Plan backward(const Context& context, const Forward& forward, const std::vector<double>& upstream,
                const auto& outputs, const auto&... source) const {
    return cross_entropy_backward(context, source..., targets, options, forward, std::span<const double>(upstream),
                                  outputs);
  }
};

struct Policy {
  static constexpr const char* kName = "policy_loss";
  using Forward = Forward<PolicyLoss>;
  PolicyBatch batch;
  PolicyLoss options;

  Policy(Keywords& keywords, Arrays& arrays)
      : batch(take_fields<PolicyBatch>(keywords, arrays)), options(take_fields<PolicyLoss>(keywords, arrays)) {}
  auto run(const Context& context, const auto& outputs, const auto&... source) const {
    return policy_loss(context, source..., batch, options, outputs);
  }
  auto plan(const Context& context, const auto& outputs, const auto&... source) const {
    return plan_policy_loss(context, source..., batch, options, outputs);
  }
  Forward forward(const Context& context, const auto&... source) const {
    return policy_loss_forward(context, source..., batch, options);
  }
  Plan backward(const Context& context, const Forward& forward, const std::vector<double>& upstream,
                const auto& outputs, const auto&... source) const {
    return policy_loss_backward(context, source..., batch, options, forward, one_upstream(upstream, kName), outputs);
  }
};

struct Preference {
  static constexpr const char* kName = "preference_loss";
  using Forward = Forward<PreferenceLoss>;
  Targets targets;
  Reference reference;
  PreferenceLoss options;

  Preference(Keywords& keywords, Arrays& arrays)
      : targets(take_targets(keywords, arrays)),
        reference(take_reference(keywords, arrays)),
        options(take_fields<PreferenceLoss>(keywords, arrays)) {}
  auto run(const Context& context, const auto& outputs, const auto&... source) const {
    return preference_loss(context, source..., targets, reference, options, outputs);
  }
  auto plan(const Context& context, const auto& outputs, const auto&... source) const {
    return plan_preference_loss(context, source..., targets, reference, options, outputs);
  }
  Forward forward(const Context& context, const auto&... source) const {
    return preference_loss_forward(context, source..., targets, reference, options);
  }
  Plan backward(const Context& context, const Forward& forward, const std::vector<double>& upstream,
                const auto& outputs, const auto&... source) const {
    return preference_loss_backward(context, source..., targets, reference, options, forward,
                                    one_upstream(upstream, kName), outputs);
  }
};

struct Kto {
  static constexpr const char* kName = "kto_loss";
  using Forward = Forward<KtoLoss>;
  KtoBatch batch;
  KtoLoss options;

  Kto(Keywords& keywords, Arrays& arrays)
      : batch(take_fields<KtoBatch>(keywords, arrays)), options(take_fields<KtoLoss>(keywords, arrays)) {}
  auto run(const Context& context, const auto& outputs, const auto&... source) const {
    return kto_loss(context, source..., batch, options, outputs);
  }
  auto plan(const Context& context, const auto& outputs, const auto&... source) const {
    return plan_kto_loss(context, source..., batch, options, outputs);
  }
  Forward forward(const Context& context, const auto&... source) const {
    return kto_loss_forward(context, source..., batch, options);
  }
  Plan backward(const Context& context, const Forward& forward, const std::vector<double>& upstream,
                const auto& outputs, const auto&... source) const {
    return kto_loss_backward(context, source..., batch, options, forward, one_upstream(upstream, kName), outputs);
  }
};

struct Distillation {
  static constexpr const char* kName = "distillation_loss";
  using Forward = Forward<Distillation>;
  Teacher teacher;
  Targets targets;
  Distillation options;

  Distillation() = default;
  Distillation(Keywords& keywords, Arrays& arrays)
      : teacher(take_teacher(keywords, arrays)), options(take_fields<Distillation>(keywords, arrays)) {
    take(keywords, arrays, "targets", targets);
  }
  auto run(const Context& context, const auto& outputs, const auto&... source) const {
    return distillation_loss(context, source..., teacher, targets, options, outputs);
  }
  auto plan(const Context& context, const auto& outputs, const auto&... source) const {
    return plan_distillation_loss(context, source..., teacher, targets, options, outputs);
  }
  Forward forward(const Context& context, const auto&... source) const {
    return distillation_loss_forward(context, source..., teacher, targets, options);
  }
  Plan backward(const Context& context, const Forward& forward, const std::vector<double>& upstream,
                const auto& outputs, const auto&... source) const {
    return distillation_loss_backward(context, source..., teacher, targets, options, forward,
                                      std::span<const double>(upstream), outputs);
  }
};

struct SoftCrossEntropy {
  static constexpr const char* kName = "soft_cross_entropy";
  using Forward = Forward<SoftCrossEntropy>;
  SoftTargets targets;
  SoftCrossEntropy options;

  SoftCrossEntropy() = default;
  SoftCrossEntropy(Keywords& keywords, Arrays& arrays);
  auto run(const Context& context, const auto& outputs, const auto&... source) const {
    return soft_cross_entropy(context, source..., targets, options, outputs);
  }
  auto plan(const Context& context, const auto& outputs, const auto&... source) const {
    return plan_soft_cross_entropy(context, source..., targets, options, outputs);
  }
  Forward forward(const Context& context, const auto&... source) const {
    return soft_cross_entropy_forward(context, source..., targets, options);
  }
  Plan backward(const Context& context, const Forward& forward, const std::vector<double>& upstream,
                const auto& outputs, const auto&... source) const {
    return soft_cross_entropy_backward(context, source..., targets, options, forward, std::span<const double>(upstream),
                                       outputs);
  }
};

struct SetDistillation {
  static constexpr const char* kName = "set_distillation_loss";
  using Forward = Forward<SetDistillation>;
  SetTeacher teacher;
  Targets targets;
  SetDistillation options;

  SetDistillation() = default;
  SetDistillation(Keywords& keywords, Arrays& arrays);
  auto run(const Context& context, const auto& outputs, const auto&... source) const {
    return set_distillation_loss(context, source..., teacher, targets, options, outputs);
  }
  auto plan(const Context& context, const auto& outputs, const auto&... source) const {
    return plan_set_distillation_loss(context, source..., teacher, targets, options, outputs);
  }
  Forward forward(const Context& context, const auto&... source) const {
    return set_distillation_loss_forward(context, source..., teacher, targets, options);
  }
  Plan backward(const Context& context, const Forward& forward, const std::vector<double>& upstream,
                const auto& outputs, const auto&... source) const {
    return set_distillation_loss_backward(context, source..., teacher, targets, options, forward,
                                          std::span<const double>(upstream), outputs);
  }
};

}  // namespace logitless::python

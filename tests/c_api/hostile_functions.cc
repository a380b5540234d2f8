// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "hostile_world.h"

namespace logitless::testing {
namespace {

logitless_status make_context(World& w) { return logitless_context_create(w.given.context_options, w.given.made); }

// Makes a context of spoilt options, and a call in it.
logitless_status call_in_context(World& w) {
  const logitless_status status = make_context(w);
  if (status != LOGITLESS_OK || !w.given.made) return status;
  return logitless_cross_entropy(w.made, w.given.source, w.given.targets, w.given.cross_entropy, w.given.gradients,
                                 w.given.cross_entropy_result, w.given.plan);
}

bool has_logits(Form form) { return form == Form::kLogits; }
bool has_hidden(Form form) { return form != Form::kLogits; }

}  // namespace

#define G w.given
#define COMMON G.context, G.source
const Function kFunctions[34] = {
    {"context_create", make_context},
    {"context", call_in_context, [](Form form) { return form != Form::kPacked; }},
    {"compute_token_stats",
     [](World& w) { return logitless_compute_token_stats(COMMON, G.targets, G.token, G.request, G.stats, G.plan); }},
    {"backpropagate_token_grads",
     [](World& w) {
       return logitless_backpropagate_token_grads(COMMON, G.targets, G.token, G.request, G.stats, G.grads, G.gradients,
                                                  G.plan);
     }},
    {"run_token_loss",
     [](World& w) {
       return logitless_run_token_loss(COMMON, G.targets, G.token, G.token_loss, G.gradients, G.stats, G.plan);
     }},
    {"plan_token_stats",
     [](World& w) { return logitless_plan_token_stats(COMMON, G.targets, G.token, G.request, G.plan); }},
    {"plan_token_loss",
     [](World& w) { return logitless_plan_token_loss(COMMON, G.targets, G.token, G.token_loss, G.gradients, G.plan); }},
    {"entropy_from_logits",
     [](World& w) {
       return logitless_entropy_from_logits(G.context, G.logits, G.token, G.upstream, G.gradients, G.entropy);
     },
     has_logits},
    {"environment_create",
     [](World& w) {
       logitless_environment* environment = nullptr;
       const logitless_status status = logitless_environment_create(G.context, &environment);
       logitless_environment_free(environment);
       return status;
     },
     has_hidden},
    {"cross_entropy",
     [](World& w) {
       return logitless_cross_entropy(COMMON, G.targets, G.cross_entropy, G.gradients, G.cross_entropy_result, G.plan);
     }},
    {"cross_entropy_forward",
     [](World& w) {
       return logitless_cross_entropy_forward(COMMON, G.targets, G.cross_entropy, G.cross_entropy_result, G.plan,
                                              G.left);
     }},
    {"plan_cross_entropy",
     [](World& w) { return logitless_plan_cross_entropy(COMMON, G.targets, G.cross_entropy, G.gradients, G.plan); }},
    {"policy_loss",
     [](World& w) {
       return logitless_policy_loss(COMMON, G.policy_batch, G.policy, G.gradients, G.policy_result, G.plan);
     }},
    {"policy_loss_forward",
     [](World& w) {
       return logitless_policy_loss_forward(COMMON, G.policy_batch, G.policy, G.policy_result, G.plan, G.left);
     }},
    {"plan_policy_loss",
     [](World& w) { return logitless_plan_policy_loss(COMMON, G.policy_batch, G.policy, G.gradients, G.plan); }},
    {"preference_loss",
     [](World& w) {
       return logitless_preference_loss(COMMON, G.targets, G.reference, G.preference, G.gradients, G.preference_result,
                                        G.plan);
     }},
    {"preference_loss_forward",
     [](World& w) {
       return logitless_preference_loss_forward(COMMON, G.targets, G.reference, G.preference, G.preference_result,
                                                G.plan, G.left);
     }},
    {"plan_preference_loss",
     [](World& w) {
       return logitless_plan_preference_loss(COMMON, G.targets, G.reference, G.preference, G.gradients, G.plan);
     }},
    {"kto_loss",
     [](World& w) { return logitless_kto_loss(COMMON, G.kto_batch, G.kto, G.gradients, G.kto_result, G.plan); }},
    {"kto_loss_forward",
     [](World& w) { return logitless_kto_loss_forward(COMMON, G.kto_batch, G.kto, G.kto_result, G.plan, G.left); }},
    {"plan_kto_loss",
     [](World& w) { return logitless_plan_kto_loss(COMMON, G.kto_batch, G.kto, G.gradients, G.plan); }},
    {"reference by a model",
     [](World& w) {
       w.reference.logps = {};
       w.reference.hidden = &w.hidden;
       w.reference.head = &w.head;
       return logitless_preference_loss(COMMON, G.targets, G.reference, G.preference, G.gradients, G.preference_result,
                                        G.plan);
     },
     has_hidden},
    {"soft_cross_entropy",
     [](World& w) {
       return logitless_soft_cross_entropy(COMMON, G.soft_targets, G.soft_cross_entropy, G.gradients,
                                           G.soft_cross_entropy_result, G.plan);
     }},
    {"soft_cross_entropy_forward",
     [](World& w) {
       return logitless_soft_cross_entropy_forward(COMMON, G.soft_targets, G.soft_cross_entropy,
                                                   G.soft_cross_entropy_result, G.plan, G.left);
     }},
    {"plan_soft_cross_entropy",
     [](World& w) {
       return logitless_plan_soft_cross_entropy(COMMON, G.soft_targets, G.soft_cross_entropy, G.gradients, G.plan);
     }},
    {"id_logps",
     [](World& w) { return logitless_id_logps(COMMON, G.sets, G.id_logps, G.logps, w.logp_count, G.plan, G.left); }},
    {"plan_id_logps", [](World& w) { return logitless_plan_id_logps(COMMON, G.sets, G.id_logps, G.plan); }},
    {"dense soft targets",
     [](World& w) {
       w.soft_targets.sets = nullptr;
       w.soft_targets.weights = {};
       if (!w.soft_targets.rows.data) {
         w.soft_targets.rows = {w.logits_data.data, LOGITLESS_FLOAT32, w.kTokens, w.kVocab, w.kVocab};
       }
       return logitless_soft_cross_entropy(COMMON, G.soft_targets, G.soft_cross_entropy, G.gradients,
                                           G.soft_cross_entropy_result, G.plan);
     }},
    {"distillation_loss",
     [](World& w) {
       return logitless_distillation_loss(COMMON, G.teacher, G.targets, G.distillation, G.gradients,
                                          G.distillation_result, G.plan);
     },
     has_hidden},
    {"distillation_loss_forward",
     [](World& w) {
       return logitless_distillation_loss_forward(COMMON, G.teacher, G.targets, G.distillation, G.distillation_result,
                                                  G.plan, G.left);
     },
     has_hidden},
    {"plan_distillation_loss",
     [](World& w) {
       return logitless_plan_distillation_loss(COMMON, G.teacher, G.targets, G.distillation, G.gradients, G.plan);
     },
     has_hidden},
    {"set_distillation_loss",
     [](World& w) {
       return logitless_set_distillation_loss(COMMON, G.set_teacher, G.targets, G.set_distillation, G.gradients,
                                              G.set_distillation_result, G.plan);
     }},
    {"set_distillation_loss_forward",
     [](World& w) {
       return logitless_set_distillation_loss_forward(COMMON, G.set_teacher, G.targets, G.set_distillation,
                                                      G.set_distillation_result, G.plan, G.left);
     }},
    {"plan_set_distillation_loss",
     [](World& w) {
       return logitless_plan_set_distillation_loss(COMMON, G.set_teacher, G.targets, G.set_distillation, G.gradients,
                                                   G.plan);
     }},
};

const Backward kBackward[8] = {
    {{"cross_entropy_backward",
      [](World& w) {
        return logitless_cross_entropy_backward(COMMON, G.targets, G.cross_entropy, G.forward, G.upstream,
                                                w.upstream_count, G.gradients, G.plan);
      }},
     kFunctions[10].call},
    {{"policy_loss_backward",
      [](World& w) {
        return logitless_policy_loss_backward(COMMON, G.policy_batch, G.policy, G.forward, w.upstream_value,
                                              G.gradients, G.plan);
      }},
     kFunctions[13].call},
    {{"preference_loss_backward",
      [](World& w) {
        return logitless_preference_loss_backward(COMMON, G.targets, G.reference, G.preference, G.forward,
                                                  w.upstream_value, G.gradients, G.plan);
      }},
     kFunctions[16].call},
    {{"kto_loss_backward",
      [](World& w) {
        return logitless_kto_loss_backward(COMMON, G.kto_batch, G.kto, G.forward, w.upstream_value, G.gradients,
                                           G.plan);
      }},
     kFunctions[19].call},
    {{"soft_cross_entropy_backward",
      [](World& w) {
        return logitless_soft_cross_entropy_backward(COMMON, G.soft_targets, G.soft_cross_entropy, G.forward,
                                                     G.upstream, w.upstream_count, G.gradients, G.plan);
      }},
     kFunctions[23].call},
    {{"id_logps_backward",
      [](World& w) {
        return logitless_id_logps_backward(COMMON, G.sets, G.id_logps, G.forward, G.upstream, w.upstream_of_sets,
                                           G.gradients, G.plan);
      }},
     kFunctions[25].call},
    {{"distillation_loss_backward",
      [](World& w) {
        return logitless_distillation_loss_backward(COMMON, G.teacher, G.targets, G.distillation, G.forward, G.upstream,
                                                    w.upstream_count, G.gradients, G.plan);
      },
      has_hidden},
     kFunctions[29].call},
    {{"set_distillation_loss_backward",
      [](World& w) {
        return logitless_set_distillation_loss_backward(COMMON, G.set_teacher, G.targets, G.set_distillation, G.forward,
                                                        G.upstream, w.upstream_count, G.gradients, G.plan);
      }},
     kFunctions[32].call},
};
#undef G
#undef COMMON

}  // namespace logitless::testing

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// XLA's calls of losses of whole distributions. Behind the arguments that all calls have stand, in this order:
//
//     soft_cross_entropy       ids, weights, probabilities, mask
//     id_logps                 ids
//     set_distillation_loss    ids, the teacher's log-probabilities there and outside
//     distillation_loss        the teacher's hidden states, weight and bias, its logits (either may be empty), and of
//                              its head the scales, the chosen entries, and the states and b of a LoRA
//
// and last, in a backward, the upstream gradient. It runs the forward half once more: XLA keeps arrays alone.
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "jax_call.h"
#include "losses.h"

namespace logitless::python {
namespace {

constexpr HeadPlaces kTeacherPlaces = {.weight = kMore + 1,
                                       .bias = kMore + 2,
                                       .scales = kMore + 4,
                                       .ids = kMore + 5,
                                       .lora_states = kMore + 6,
                                       .lora_b = kMore + 7};

template <class Loss>
Loss taken(const JaxCall& call);

template <>
SoftCrossEntropy taken(const JaxCall& call) {
  SoftCrossEntropy loss;
  const ffi::AnyBuffer mask = call.argument(kMore + 3);
  if (call.argument(kMore + 2).element_count() > 0) {
    loss.targets = SoftTargets(call.matrix(kMore + 2, "probabilities"));
  } else {
    loss.targets = SoftTargets(IdSets(call.ids(kMore)), call.vector(kMore + 1, "weights"));
  }
  loss.targets.mask = {static_cast<const uint8_t*>(mask.untyped_data()), mask.element_count()};
  loss.options = call.options<SoftCrossEntropy>();
  return loss;
}

template <>
SetDistillation taken(const JaxCall& call) {
  SetDistillation loss;
  loss.teacher.sets = IdSets(call.ids(kMore));
  loss.teacher.logps = call.vector(kMore + 1, "teacher_logps");
  loss.teacher.outside_logps = call.vector(kMore + 2, "teacher_outside_logps");
  loss.targets = call.targets;
  loss.options = call.options<SetDistillation>();
  return loss;
}

template <>
Distillation taken(const JaxCall& call) {
  Distillation loss;
  Teacher& teacher = loss.teacher;
  const ConstMatrix logits = call.matrix(kMore + 3, "teacher_logits");
  if (logits.cols > 0) {
    teacher.logits = FinishedLogits(logits.data, logits.dtype, 1, logits.rows, logits.cols);
  } else {
    teacher.hidden = HiddenStates(call.matrix(kMore, "teacher_hidden"), call.hidden.sequences);
    teacher.head = call.head_at(kTeacherPlaces, "teacher_");
  }
  call.read("teacher_round_logits_to", teacher.round_logits_to);
  loss.targets = call.targets;
  loss.options = call.options<Distillation>();
  return loss;
}

// Writes the loss, or that of each token where a column is wanted.
template <class Result>
void write_loss(const Result& result, bool per_token, ffi::AnyBuffer out) {
  write_column(per_token ? std::span<const double>(result.per_token_loss) : std::span(&result.loss, 1), out);
}

template <class Loss>
void run_loss(const JaxCall& call) {
  const auto loss = taken<Loss>(call);
  const bool per_token = loss.options.reduction == Reduction::kNone;
  write_loss(loss.run(call.context(), Gradients(), call.hidden, call.head), per_token, call.result(0));
}

template <class Loss>
void run_loss_grad(const JaxCall& call) {
  write_loss(taken<Loss>(call).run(call.context(), call.gradients(1), call.hidden, call.head), false, call.result(0));
}

template <class Loss>
void run_loss_backward(const JaxCall& call) {
  const auto loss = taken<Loss>(call);
  const Context context = call.context();
  const auto upstream = read_column<double>(call.last_argument());
  loss.backward(context, loss.forward(context, call.hidden, call.head), upstream, call.gradients(0), call.hidden,
                call.head);
}

void run_id_logps(const JaxCall& call) {
  const IdLogpsResult got =
      id_logps(call.context(), call.hidden, call.head, IdSets(call.ids(kMore)), call.options<IdLogps>());
  write_column(got.logps, call.result(0));
}

void run_id_logps_backward(const JaxCall& call) {
  const Context context = call.context();
  const IdSets sets(call.ids(kMore));
  const auto options = call.options<IdLogps>();
  const auto upstream = read_column<double>(call.last_argument());
  id_logps_backward(context, call.hidden, call.head, sets, options,
                    id_logps(context, call.hidden, call.head, sets, options), upstream, call.gradients(0));
}

void run_topk_logps(const JaxCall& call) {
  StatsRequest request;
  call.read("k", request.top_k);
  const TokenStats stats =
      compute_token_stats(call.context(), call.hidden, call.head, call.targets, call.options<TokenOptions>(), request);
  const ffi::AnyBuffer ids = call.result(0);
  auto* out = static_cast<int32_t*>(ids.untyped_data());
  for (const int64_t id : stats.top_ids) *out++ = static_cast<int32_t>(id);
  write_column(stats.top_logps, call.result(1));
}

LOGITLESS_HANDLER(k_soft_cross_entropy, run_loss<SoftCrossEntropy>);
LOGITLESS_HANDLER(k_soft_cross_entropy_grad, run_loss_grad<SoftCrossEntropy>);
LOGITLESS_HANDLER(k_soft_cross_entropy_backward, run_loss_backward<SoftCrossEntropy>);
LOGITLESS_HANDLER(k_set_distillation_loss, run_loss<SetDistillation>);
LOGITLESS_HANDLER(k_set_distillation_loss_grad, run_loss_grad<SetDistillation>);
LOGITLESS_HANDLER(k_set_distillation_loss_backward, run_loss_backward<SetDistillation>);
LOGITLESS_HANDLER(k_distillation_loss, run_loss<Distillation>);
LOGITLESS_HANDLER(k_distillation_loss_grad, run_loss_grad<Distillation>);
LOGITLESS_HANDLER(k_distillation_loss_backward, run_loss_backward<Distillation>);
LOGITLESS_HANDLER(k_id_logps, run_id_logps);
LOGITLESS_HANDLER(k_id_logps_backward, run_id_logps_backward);
LOGITLESS_HANDLER(k_topk_logps, run_topk_logps);

}  // namespace

std::vector<std::pair<const char*, XLA_FFI_Handler*>> distribution_handlers() {
  return {{"logitless_soft_cross_entropy", k_soft_cross_entropy},
          {"logitless_soft_cross_entropy_grad", k_soft_cross_entropy_grad},
          {"logitless_soft_cross_entropy_backward", k_soft_cross_entropy_backward},
          {"logitless_set_distillation_loss", k_set_distillation_loss},
          {"logitless_set_distillation_loss_grad", k_set_distillation_loss_grad},
          {"logitless_set_distillation_loss_backward", k_set_distillation_loss_backward},
          {"logitless_distillation_loss", k_distillation_loss},
          {"logitless_distillation_loss_grad", k_distillation_loss_grad},
          {"logitless_distillation_loss_backward", k_distillation_loss_backward},
          {"logitless_id_logps", k_id_logps},
          {"logitless_id_logps_backward", k_id_logps_backward},
          {"logitless_topk_logps", k_topk_logps}};
}

}  // namespace logitless::python

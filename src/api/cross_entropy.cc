// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "loss/cross_entropy.h"

#include "api/slices.h"
#include "api/verbs.h"

namespace logitless {

template <>
struct api::Steps<CrossEntropy> {
  static constexpr stats::Returned kRun = {};
  static constexpr stats::Returned kForward = {.stats = true};

  const CrossEntropy& task;

  // The loss keeps references to the call's problem and to the task.
  loss::CrossEntropyLoss make_loss(Call& call) const {
    loss::check_options(task);
    call.set_task({.options = task.token,
                   .request = loss::stats_request(task),
                   .picks = problem::target_picks(call.target_ids(task.targets, task.token)),
                   .cross = loss::cross(task)},
                  {core::range_of("targets", task.targets), core::range_of("token_weights", task.token_weights)});
    return make_reduced_loss<loss::CrossEntropyLoss>(call, task);
  }
  void prepare(const Call&, const loss::CrossEntropyLoss&) const {}
  Plan backward(Call& call, loss::CrossEntropyLoss& loss, const Forward<CrossEntropy>& forward,
                const Upstream& upstream) const {
    return evaluated_gradients(call, loss, forward, upstream);
  }
};

LOGITLESS_VERBS(CrossEntropy);
LOGITLESS_SLICES(CrossEntropy, loss::stats_request(task));

}  // namespace logitless

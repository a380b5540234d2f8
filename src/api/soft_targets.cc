// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "loss/soft_targets.h"

#include <utility>

#include "api/verbs.h"
#include "stats/statistics.h"

namespace logitless {

template <>
struct api::Steps<SoftCrossEntropy> {
  static constexpr stats::Returned kRun = {};
  static constexpr stats::Returned kForward = {.stats = true};

  const SoftCrossEntropy& task;

  // The loss keeps references to the call's problem and to the task.
  loss::SoftCrossEntropyLoss make_loss(Call& call) const {
    loss::check_options(task);
    loss::SoftRows rows =
        loss::check_soft_targets(task.targets, call.shape(), task.subtract_entropy, call.context().threads());
    problem::Task problem_task = {
        .options = task.token, .request = {.cross = rows.dense}, .picks = std::move(rows.picks)};
    if (rows.dense) problem_task.cross = std::move(rows.cross);
    core::Array<core::ByteRange> reads = loss::ranges_of(task.targets);
    reads.push_back(core::range_of("token_weights", task.token_weights));
    call.set_task(std::move(problem_task), std::move(reads));
    return make_reduced_loss<loss::SoftCrossEntropyLoss>(call, task, std::move(rows));
  }
  // Ranks with the same tokens must have the same targets.
  void prepare(const Call& call, loss::SoftCrossEntropyLoss& loss) const {
    call.digest_tokens([&](ranks::Digests& digests) {
      const loss::SoftRows& rows = loss.rows();
      if (rows.dense) {
        api::digest_vector(digests, "targets.rows", call.problem(), rows.masses);
      } else {
        digests.add_array("targets.weights", std::span(rows.weights));
      }
    });
  }
  Plan backward(Call& call, loss::SoftCrossEntropyLoss& loss, const Forward<SoftCrossEntropy>& forward,
                const Upstream& upstream) const {
    prepare(call, loss);
    return evaluated_gradients(call, loss, forward, upstream);
  }
};

LOGITLESS_VERBS(SoftCrossEntropy);

}  // namespace logitless

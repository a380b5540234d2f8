// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// What the public functions of a loss do stands here once, for all losses and both sources of logits.
//
// A batch holds what a caller gives a loss beside the tensors. Its class has
//
//     kName, options        of the loss
//     Loss, Forward         the TokenLoss, and what the forward half returns
//     kKept                 which columns the forward half leaves for the backward half
//     make_loss(call)       checks the batch and gives the call its task
//     prepare(call, loss)   does what must come before the loss is evaluated
//     plan_parts(call, loss)  where prepare() runs a part of the call: counts the plan of that part
#pragma once

#include <utility>

#include "api/call.h"
#include "logitless/plan.h"
#include "stats/columns.h"

namespace logitless::api {

template <class Batch>
auto run(Call whole, const Batch& batch) {
  return whole.complete([&](Call& call) {
    call.state(Batch::kName, batch.options);
    typename Batch::Loss loss = batch.make_loss(call);
    batch.prepare(call, loss);
    const stream::Ran ran = call.run(&loss);
    return loss.result(ran.stats, ran.plan);
  });
}

template <class Batch>
typename Batch::Forward run_forward(Call whole, const Batch& batch) {
  return whole.complete([&](Call& call) {
    call.state(Batch::kName, batch.options);
    typename Batch::Loss loss = batch.make_loss(call);
    stats::Returned kept = Batch::kKept;
    kept.expected = true;
    batch.prepare(call, loss);
    stream::Ran ran = call.run(&loss, kept);
    typename Batch::Forward out;
    out.result = loss.result(ran.stats, ran.plan);
    out.stats = std::move(ran.stats);
    if constexpr (Batch::kKept.grads) out.grads = std::move(ran.grads);
    return out;
  });
}

/// Does the backward half of a loss whose forward half left token gradients.
template <class Batch>
Plan run_backward(Call whole, const Batch& batch, const typename Batch::Forward& forward, double upstream) {
  return whole.complete([&](Call& call) {
    call.state(Batch::kName, batch.options);
    call.state_tokens([&](ranks::Statement& statement) { statement.say("upstream", upstream); });
    batch.make_loss(call);
    return call.run_gradients(forward.stats, forward.grads, upstream);
  });
}

template <class Batch>
Plan plan(Call whole, const Batch& batch) {
  return whole.complete([&](Call& call) {
    call.state(Batch::kName, batch.options);
    const typename Batch::Loss loss = batch.make_loss(call);
    if constexpr (requires { batch.plan_parts(call, loss); }) batch.plan_parts(call, loss);
    return call.plan(&loss);
  });
}

}  // namespace logitless::api

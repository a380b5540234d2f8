// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The handles that the C API gives out.
#pragma once

#include <memory>
#include <string>
#include <variant>

#include "c_api/status.h"
#include "logitless/context.h"
#include "logitless/cross_entropy.h"
#include "logitless/distillation.h"
#include "logitless/id_sets.h"
#include "logitless/plan.h"
#include "logitless/policy.h"
#include "logitless/preference.h"
#include "logitless/ranks.h"
#include "logitless/set_distillation.h"
#include "logitless/soft_targets.h"
#include "logitless/workspace.h"

namespace logitless::c_api {

/// A Communicator made of the caller's functions.
class CallbackCommunicator final : public Communicator {
 public:
  explicit CallbackCommunicator(const logitless_communicator& given) : given_(given) {}
  int rank() const override { return given_.rank; }
  int size() const override { return given_.size; }
  void all_gather(const void* mine, void* all, size_t bytes) override;
  void all_to_all(const void* mine, void* theirs, size_t bytes) override;

 private:
  logitless_communicator given_;
};

}  // namespace logitless::c_api

struct logitless_context {
  std::unique_ptr<logitless::c_api::CallbackCommunicator> vocab_ranks, data_ranks;
  logitless::Context context;
};

struct logitless_workspace {
  logitless::Workspace workspace;
};

struct logitless_forward {
  std::variant<logitless::Forward<CrossEntropy>, logitless::Forward<PolicyLoss>, logitless::Forward<PreferenceLoss>,
               logitless::Forward<KtoLoss>, logitless::Forward<SoftCrossEntropy>, logitless::IdLogpsResult,
               logitless::Forward<Distillation>, logitless::Forward<SetDistillation>>
      forward;
};

namespace logitless::c_api {

inline const Context& context_of(const logitless_context* context) { return there(context, "context").context; }

/// Returns what the forward half of this loss has left; throws InvalidInput where it is another loss's.
template <class Forward>
const Forward& forward_of(const logitless_forward* forward) {
  const auto* found = std::get_if<Forward>(&there(forward, "forward").forward);
  if (!found) core::fail("forward is what the forward half of another loss has left");
  return *found;
}

/// Writes the plan where it is wanted.
void write_plan(const Plan& plan, logitless_plan* out);

}  // namespace logitless::c_api

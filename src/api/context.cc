// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "logitless/context.h"

#include <omp.h>

#include <algorithm>
#include <utility>

#include "core/check_fields.h"
#include "core/checks.h"
#include "gemm/gemm.h"
#include "planning/context_state.h"

namespace logitless {
namespace {

std::string joined(const std::vector<std::string>& names) {
  std::string out = "auto";
  for (const std::string& name : names) out += ", " + name;
  return out;
}

}  // namespace

Context::Context(ContextOptions options) {
  using core::fail;
  core::check_fields(options);
  if (options.threads < 0) fail("threads = ", options.threads, " must be positive, or 0 for the OpenMP default");
  for (const auto& [name, edge] : {std::pair{"row_tile", options.row_tile}, std::pair{"vocab_tile", options.vocab_tile},
                                   std::pair{"row_block", options.row_block}}) {
    if (edge < 0) fail(name, " = ", edge, " must be positive, or 0 for automatic");
    if (edge > kMostTileEdge) fail(name, " = ", edge, " is above ", kMostTileEdge);
  }
  if (options.plan == PlanKind::kForwardOnly) {
    fail("plan = forward_only cannot be requested: calls without gradients run it");
  }
  auto state = std::make_shared<detail::ContextState>();
  state->kernels = kernels::find_kernels(options.simd_target);
  if (!state->kernels) {
    fail("simd_target = '", options.simd_target, "' is not one of this CPU's: ", joined(simd_targets()));
  }
  state->gemm = gemm::find_backend(options.gemm_backend);
  if (!state->gemm) {
    fail("gemm_backend = '", options.gemm_backend,
         "' is not available in this build on this CPU: ", joined(gemm_backends()));
  }
  state->simd_target = state->kernels->name;
  state->gemm_backend = state->gemm->name();
  state->options = std::move(options);
  state_ = std::move(state);
}

const detail::ContextState& detail::state_of(const Context& context) { return *context.state_; }

const ContextOptions& Context::options() const { return state_->options; }

int Context::threads() const {
  // A region inside the maximum number of active levels has one thread.
  if (omp_get_active_level() >= omp_get_max_active_levels()) return 1;
  const int wanted = state_->options.threads > 0 ? state_->options.threads : omp_get_max_threads();
  return std::max(1, std::min({wanted, omp_get_thread_limit(), state_->gemm->max_threads()}));
}

const std::string& Context::simd_target() const { return state_->simd_target; }
const std::string& Context::gemm_backend() const { return state_->gemm_backend; }

std::vector<std::string> gemm_backends() {
  std::vector<std::string> names;
  for (const std::string_view name : gemm::backend_names()) names.emplace_back(name);
  return names;
}

std::vector<std::string> simd_targets() {
  std::vector<std::string> names;
  for (const kernels::RowKernels* kernels : kernels::simd_kernels()) names.emplace_back(kernels->name);
  names.emplace_back(kernels::plain_kernels().name);
  return names;
}

}  // namespace logitless

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "c_api/context.h"

#include <cstddef>
#include <cstdio>
#include <list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "c_api/fields.h"
#include "c_api/inputs.h"
#include "c_api/structs.h"
#include "logitless/environment.h"

using namespace logitless;
using namespace logitless::c_api;

namespace logitless::c_api {

void write_plan(const Plan& plan, logitless_plan* out) {
  if (!out) return;
  check_size(out, "plan");
  logitless_plan value = {};
  value.kind = static_cast<int32_t>(plan.kind);
  value.tokens = plan.tokens;
  value.active_rows = plan.active_rows;
  value.hidden_size = plan.hidden_size;
  value.vocab_size = plan.vocab_size;
  value.row_tile = plan.row_tile;
  value.row_block = plan.row_block;
  value.vocab_tile = plan.vocab_tile;
  value.hidden_block = plan.hidden_block;
  value.chunk_rows = plan.chunk_rows;
  std::snprintf(value.gemm_library, sizeof value.gemm_library, "%s", plan.gemm_library.c_str());
  value.gradient_dtype = static_cast<int32_t>(plan.gradient_dtype);
  value.gradient_terms = plan.gradient_terms;
  value.threads = plan.threads;
  value.tiles_alive = plan.tiles_alive;
  value.workspace_bytes = plan.workspace_bytes;
  value.packed_bytes = plan.packed_bytes;
  value.least_workspace_bytes = plan.least_workspace_bytes;
  value.blas_bytes = plan.blas_bytes;
  value.kept_share = plan.kept_share;
  value.noise_estimate = plan.noise_estimate;
  value.d_hidden_bound = plan.d_hidden_bound;
  value.d_weight_bound = plan.d_weight_bound;
  std::snprintf(value.description, sizeof value.description, "%s", plan.describe().c_str());
  write(value, out);
}

namespace {

std::unique_ptr<CallbackCommunicator> communicator_of(const logitless_communicator* given, const char* name) {
  if (!given) return nullptr;
  const logitless_communicator in = read(given, name);
  if (!in.all_gather || !in.all_to_all) core::fail(name, " has no all_gather or no all_to_all");
  return std::make_unique<CallbackCommunicator>(in);
}

/// An environment with the texts that it points to.
struct KeptEnvironment : logitless_environment {
  explicit KeptEnvironment(const Context& context) : logitless_environment(), kept(describe_environment(context)) {
    visit_fields(
        FieldsOf<Environment>(), [this](const Field&, auto&& to, const auto& from) { keep(to, from); },
        static_cast<logitless_environment&>(*this), kept);
  }

 private:
  template <class Number>
  void keep(Number& to, const Number& from) {
    to = from;
  }
  void keep(const char*& to, const std::string& from) { to = from.c_str(); }
  template <class Data, class Count>
  void keep(const PointerAndCount<Data, Count>& to, const std::vector<std::string>& from) {
    auto& texts = lists.emplace_back();
    for (const std::string& text : from) texts.push_back(text.c_str());
    to.data = texts.data();
    to.count = texts.size();
  }

  Environment kept;
  std::list<std::vector<const char*>> lists;
};

// Returns names[index] as long as the process lives, or NULL.
const char* name_at(const std::vector<std::string>& names, size_t index) {
  return index < names.size() ? names[index].c_str() : nullptr;
}

}  // namespace

void CallbackCommunicator::all_gather(const void* mine, void* all, size_t bytes) {
  call_back("all_gather", [&] { return given_.all_gather(given_.user, mine, all, bytes); });
}
void CallbackCommunicator::all_to_all(const void* mine, void* theirs, size_t bytes) {
  call_back("all_to_all", [&] { return given_.all_to_all(given_.user, mine, theirs, bytes); });
}

}  // namespace logitless::c_api

void logitless_communicator_init(logitless_communicator* communicator, size_t size) { init(communicator, size); }
void logitless_plan_init(logitless_plan* plan, size_t size) { init(plan, size); }

const char* logitless_version(void) { return version(); }

const char* logitless_gemm_backend_name(size_t index) {
  const char* name = nullptr;
  guarded([&] {
    static const std::vector<std::string> names = gemm_backends();
    name = name_at(names, index);
  });
  return name;
}

const char* logitless_simd_target_name(size_t index) {
  const char* name = nullptr;
  guarded([&] {
    static const std::vector<std::string> names = simd_targets();
    name = name_at(names, index);
  });
  return name;
}

logitless_status logitless_context_create(const logitless_context_options* options, logitless_context** context) {
  return guarded([&] {
    const logitless_context_options in = read(options, "options");
    ContextOptions made = options_of(options);
    auto vocab_ranks = communicator_of(in.vocab_ranks, "vocab_ranks");
    auto data_ranks = communicator_of(in.data_ranks, "data_ranks");
    made.ranks.vocab = vocab_ranks.get();
    made.ranks.data = data_ranks.get();
    if (in.slice_vocab_size != 0 || in.slice_first != 0 || in.gathered || in.gathered_bytes != 0) {
      made.ranks.slice = VocabSlice{in.slice_first, in.slice_vocab_size,
                                    span_of(static_cast<const std::byte*>(in.gathered), in.gathered_bytes, "gathered")};
    }
    logitless_context*& out = there(context, "context");
    out = new logitless_context{std::move(vocab_ranks), std::move(data_ranks), Context(std::move(made))};
  });
}
void logitless_context_free(logitless_context* context) { delete context; }

int logitless_context_threads(const logitless_context* context) {
  int threads = 0;
  guarded([&] { threads = context_of(context).threads(); });
  return threads;
}
const char* logitless_context_simd_target(const logitless_context* context) {
  return context ? context->context.simd_target().c_str() : nullptr;
}
const char* logitless_context_gemm_backend(const logitless_context* context) {
  return context ? context->context.gemm_backend().c_str() : nullptr;
}

logitless_status logitless_workspace_create(logitless_workspace** workspace) {
  return guarded([&] {
    logitless_workspace*& out = there(workspace, "workspace");
    out = new logitless_workspace;
  });
}
void logitless_workspace_free(logitless_workspace* workspace) { delete workspace; }
size_t logitless_workspace_bytes(const logitless_workspace* workspace) {
  return workspace ? workspace->workspace.bytes() : 0;
}
void logitless_workspace_release(logitless_workspace* workspace) {
  if (workspace) workspace->workspace.release();
}

logitless_status logitless_environment_create(const logitless_context* context, logitless_environment** environment) {
  return guarded([&] {
    logitless_environment*& out = there(environment, "environment");
    out = new KeptEnvironment(context_of(context));
  });
}
void logitless_environment_free(logitless_environment* environment) {
  delete static_cast<KeptEnvironment*>(environment);
}

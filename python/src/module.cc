// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The module logitless._core: the C++ API with keyword arguments. The package beside it gives these functions
// their signatures.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <utility>

#include "arrays.h"
#include "communicator.h"
#include "logitless/blas.h"
#include "logitless/environment.h"
#include "logitless/error.h"
#include "logitless/logits.h"
#ifdef LOGITLESS_WITH_JAX
#include "jax.h"
#endif
#include "options.h"

namespace logitless::python {
namespace {

using namespace nb::literals;

nb::dict to_dict(const CrossEntropyMetrics& m) {
  nb::dict out;
  out["tokens"] = m.tokens;
  out["mean_nll"] = m.mean_nll;
  out["perplexity"] = m.perplexity;
  out["z_loss"] = m.z_loss;
  out["accuracy"] = m.accuracy;
  out["mean_entropy"] = m.mean_entropy;
  return out;
}

nb::dict to_dict(const PolicyMetrics& m) {
  nb::dict out;
  out["tokens"] = m.tokens;
  out["mean_ratio"] = m.mean_ratio;
  out["clip_fraction_low"] = m.clip_fraction_low;
  out["clip_fraction_high"] = m.clip_fraction_high;
  out["clip_fraction"] = m.clip_fraction;
  out["mean_kl"] = m.mean_kl;
  out["mean_entropy"] = m.mean_entropy;
  out["mean_logp"] = m.mean_logp;
  return out;
}

nb::dict to_dict(const PreferenceMetrics& m) {
  nb::dict out;
  out["pairs"] = m.pairs;
  out["tokens"] = m.tokens;
  out["chosen_reward"] = m.chosen_reward;
  out["rejected_reward"] = m.rejected_reward;
  out["margin"] = m.margin;
  out["accuracy"] = m.accuracy;
  out["chosen_logp"] = m.chosen_logp;
  out["rejected_logp"] = m.rejected_logp;
  out["nll"] = m.nll;
  out["mean_entropy"] = m.mean_entropy;
  return out;
}

nb::dict to_dict(const KtoMetrics& m) {
  nb::dict out;
  out["desirable"] = m.desirable;
  out["undesirable"] = m.undesirable;
  out["tokens"] = m.tokens;
  out["kl"] = m.kl;
  out["desirable_reward"] = m.desirable_reward;
  out["undesirable_reward"] = m.undesirable_reward;
  out["margin"] = m.margin;
  out["desirable_logp"] = m.desirable_logp;
  out["undesirable_logp"] = m.undesirable_logp;
  out["mean_entropy"] = m.mean_entropy;
  return out;
}

nb::dict to_dict(TokenStats&& stats) {
  nb::dict out;
  const bool no_tokens = stats.logp.empty();  // then every column is empty, whether it was asked for or not
  const auto add = [&](const char* name, auto& column) {
    if (no_tokens || !column.empty()) out[name] = to_numpy(std::move(column));
  };
  add("logp", stats.logp);
  add("lse", stats.lse);
  add("entropy", stats.entropy);
  add("cross", stats.cross);
  add("argmax", stats.argmax);
  add("rank", stats.rank);
  add("max_logit", stats.max_logit);
  add("log_sum", stats.log_sum);
  return out;
}

// Returns a result as Python sees it.
template <class Result>
nb::dict result_dict(Result&& result) {
  nb::dict out;
  out["loss"] = result.loss;
  out["per_token_logps"] = to_numpy(std::move(result.per_token_logps));
  if constexpr (requires { result.per_token_loss; }) {
    out["per_token_loss"] = to_numpy(std::move(result.per_token_loss));
  }
  if constexpr (requires { result.sequence_logps; }) {
    out["sequence_logps"] = to_numpy(std::move(result.sequence_logps));
  }
  if constexpr (requires { result.sequence_losses; }) {
    out["sequence_losses"] = to_numpy(std::move(result.sequence_losses));
  }
  out["metrics"] = to_dict(result.metrics);
  out["plan"] = std::move(result.plan);
  return out;
}

// The library works without Python's lock: other threads run, and a callback takes it again.
template <class Work>
auto unlocked(const Work& work) {
  const nb::gil_scoped_release release;
  return work();
}

// Runs work that writes outputs without Python's lock. What is an InvalidInput has written nothing.
template <class Work>
auto writing(const Arrays& arrays, const Work& work) {
  try {
    auto result = unlocked(work);
    arrays.tell_written();
    return result;
  } catch (const InvalidInput&) {
    throw;
  } catch (...) {
    arrays.tell_written();
    throw;
  }
}

// The gradient of a loss that is one number.
double one_upstream(const std::vector<double>& upstream, const char* loss) {
  if (upstream.size() == 1) return upstream[0];
  throw InvalidInput("upstream has " + std::to_string(upstream.size()) + " entries but must have 1: " + loss +
                     " is one value");
}

Targets take_targets(Keywords& keywords, Arrays& arrays) {
  const nb::handle targets = keywords.find("targets");
  if (!targets) throw InvalidInput("targets is missing");
  return arrays.targets(targets, "targets");
}

/// A loss reads its arguments from keywords and is run, planned, or run in halves. Each is described by a struct
/// with the same members.
struct CrossEntropy {
  static constexpr const char* kName = "cross_entropy";
  using Forward = CrossEntropyForward;
  Targets targets;
  CrossEntropyOptions options;

  CrossEntropy(Keywords& keywords, Arrays& arrays)
      : targets(take_targets(keywords, arrays)), options(take_cross_entropy_options(keywords, arrays)) {}
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
  using Forward = PolicyForward;
  PolicyBatch batch;
  PolicyOptions options;

  Policy(Keywords& keywords, Arrays& arrays)
      : batch(take_policy_batch(keywords, arrays)), options(take_policy_options(keywords, arrays)) {}
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
  using Forward = PreferenceForward;
  Targets targets;
  Reference reference;
  PreferenceOptions options;

  Preference(Keywords& keywords, Arrays& arrays)
      : targets(take_targets(keywords, arrays)),
        reference(take_reference(keywords, arrays)),
        options(take_preference_options(keywords, arrays)) {}
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
  using Forward = KtoForward;
  KtoBatch batch;
  KtoOptions options;

  Kto(Keywords& keywords, Arrays& arrays)
      : batch(take_kto_batch(keywords, arrays)), options(take_kto_options(keywords, arrays)) {}
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

/// The keywords of one call of a loss, read.
template <class Loss>
struct Read {
  Arrays arrays;
  Keywords keywords;
  CallTensors call;
  Loss loss;

  explicit Read(nb::dict given)
      : keywords(std::move(given), Loss::kName), call(keywords, arrays), loss(keywords, arrays) {
    keywords.check_all_known();
  }
};

template <class Loss>
void define_loss(nb::module_& m, const char* forward_name) {
  const std::string name = Loss::kName;
  nb::class_<typename Loss::Forward>(m, forward_name);
  m.def(name.c_str(), [](const Context& context, nb::dict keywords) {
    const Read<Loss> read(std::move(keywords));
    return result_dict(writing(read.arrays, [&] {
      return read.call.with(
          [&](const auto& outputs, const auto&... source) { return read.loss.run(context, outputs, source...); });
    }));
  });
  m.def(("plan_" + name).c_str(), [](const Context& context, nb::dict keywords) {
    const Read<Loss> read(std::move(keywords));
    return read.call.with(
        [&](const auto& outputs, const auto&... source) { return read.loss.plan(context, outputs, source...); });
  });
  m.def((name + "_forward").c_str(), [](const Context& context, nb::dict keywords) {
    const Read<Loss> read(std::move(keywords));
    auto forward = unlocked([&] {
      return read.call.with([&](const auto&, const auto&... source) { return read.loss.forward(context, source...); });
    });
    auto result = forward.result;  // what Python keeps; the backward half needs the rest
    return std::make_pair(result_dict(std::move(result)), std::move(forward));
  });
  m.def((name + "_backward").c_str(), [](const Context& context, nb::dict keywords,
                                         const typename Loss::Forward& forward, const std::vector<double>& upstream) {
    const Read<Loss> read(std::move(keywords));
    return writing(read.arrays, [&] {
      return read.call.with([&](const auto& outputs, const auto&... source) {
        return read.loss.backward(context, forward, upstream, outputs, source...);
      });
    });
  });
}

void define_token_stats(nb::module_& m) {
  nb::class_<TokenStats>(m, "TokenStats").def("columns", [](const TokenStats& stats) {
    TokenStats copy = stats;
    return to_dict(std::move(copy));
  });
  m.def("token_stats", [](const Context& context, nb::dict given) {
    Arrays arrays;
    Keywords keywords(std::move(given), "token_stats");
    const CallTensors call(keywords, arrays);
    const Targets targets = take_targets(keywords, arrays);
    const TokenOptions options = take_token_options(keywords, arrays);
    const StatsRequest request = take_request(keywords, arrays);
    keywords.check_all_known();
    return unlocked([&] {
      return call.with([&](const auto&, const auto&... source) {
        return compute_token_stats(context, source..., targets, options, request);
      });
    });
  });
  m.def("token_grads", [](const Context& context, nb::dict given, const TokenStats& stats, nb::dict given_grads) {
    Arrays arrays;
    Keywords keywords(std::move(given), "token_grads");
    const CallTensors call(keywords, arrays);
    const Targets targets = take_targets(keywords, arrays);
    const TokenOptions options = take_token_options(keywords, arrays);
    const StatsRequest request = take_request(keywords, arrays);
    keywords.check_all_known();
    Keywords columns(std::move(given_grads), "grads");
    TokenGrads grads;
    const auto take = [&](const char* name, std::vector<double>& out) {
      if (const nb::handle column = columns.find(name)) {
        const auto values = arrays.span<double>(column, name);
        out.assign(values.begin(), values.end());
      }
    };
    take("logp", grads.logp);
    take("lse", grads.lse);
    take("entropy", grads.entropy);
    take("cross", grads.cross);
    columns.check_all_known();
    return writing(arrays, [&] {
      Plan plan;
      call.with([&](const auto& outputs, const auto&... source) {
        backpropagate_token_grads(context, source..., targets, options, request, stats, grads, outputs, &plan);
      });
      return plan;
    });
  });
}

nb::dict environment_of(const Context& context) {
  const Environment e = describe_environment(context);
  nb::dict out;
  out["version"] = e.version;
  out["cpu"] = e.cpu;
  out["cores"] = e.cores;
  out["threads"] = e.threads;
  out["l1d_bytes"] = e.l1d_bytes;
  out["l2_bytes"] = e.l2_bytes;
  out["l3_bytes"] = e.l3_bytes;
  out["simd_target"] = e.simd_target;
  out["simd_targets"] = e.simd_targets;
  out["gemm_backend"] = e.gemm_backend;
  out["gemm_backends"] = e.gemm_backends;
  out["gemm_bf16"] = e.gemm_bf16;
  out["blas_config"] = e.blas_config;
  out["blas_core"] = e.blas_core;
  out["blas_threading"] = e.blas_threading;
  out["blas_max_threads"] = e.blas_max_threads;
  out["warnings"] = e.warnings;
  return out;
}

void define_context(nb::module_& m) {
  nb::class_<Workspace>(m, "Workspace", "Memory that calls use again.")
      .def(nb::init<>())
      .def_prop_ro("bytes", &Workspace::bytes)
      .def("release", &Workspace::release);
  nb::class_<PythonCommunicator>(m, "Communicator").def(nb::init<nb::object>());
  nb::class_<Context>(m, "Context")
      .def("__init__",
           [](Context* self, nb::dict given) {
             Keywords keywords(std::move(given), "Context");
             const ContextOptions options = take_context_options(keywords);
             keywords.check_all_known();
             new (self) Context(options);
           })
      .def_prop_ro("threads", &Context::threads)
      .def_prop_ro("simd_target", [](const Context& c) { return c.simd_target(); })
      .def_prop_ro("gemm_backend", [](const Context& c) { return c.gemm_backend(); })
      .def_prop_ro("blas_warning", &Context::blas_warning)
      .def("environment", &environment_of);
  nb::class_<Plan>(m, "Plan")
      .def_prop_ro("kind", [](const Plan& p) { return name_of(p.kind); })
      .def_ro("tokens", &Plan::tokens)
      .def_ro("active_rows", &Plan::active_rows)
      .def_ro("hidden_size", &Plan::hidden_size)
      .def_ro("vocab_size", &Plan::vocab_size)
      .def_ro("row_tile", &Plan::row_tile)
      .def_ro("row_block", &Plan::row_block)
      .def_ro("vocab_tile", &Plan::vocab_tile)
      .def_ro("chunk_rows", &Plan::chunk_rows)
      .def_ro("gemm_library", &Plan::gemm_library)
      .def_prop_ro("gradient_dtype", [](const Plan& p) { return name_of(p.gradient_dtype); })
      .def_ro("gradient_terms", &Plan::gradient_terms)
      .def_ro("threads", &Plan::threads)
      .def_ro("tiles_alive", &Plan::tiles_alive)
      .def_ro("workspace_bytes", &Plan::workspace_bytes)
      .def_ro("packed_bytes", &Plan::packed_bytes)
      .def_ro("least_workspace_bytes", &Plan::least_workspace_bytes)
      .def_ro("blas_bytes", &Plan::blas_bytes)
      .def("describe", &Plan::describe)
      .def("__repr__", [](const Plan& p) { return "<Plan: " + p.describe() + ">"; });
  m.def("use_best_blas_kernels", [] {
    const BlasKernels kernels = use_best_blas_kernels();
    return std::make_pair(std::string(name_of(kernels.outcome)), kernels.reason);
  });
  m.def("version", [] { return std::string(version()); });
}

}  // namespace
}  // namespace logitless::python

NB_MODULE(_core, m) {
  using namespace logitless::python;
  // A graph of PyTorch's that is alive when the interpreter ends is never taken apart (torch's PyNode gives its Python
  // object back only while Py_IsInitialized()), and so are the halves and functions of ours that it holds. nanobind
  // would report them as leaks of this module.
  nb::set_leak_warnings(false);
  // InvalidInput is a std::invalid_argument, which is Python's ValueError.
  define_context(m);
  define_token_stats(m);
  define_loss<CrossEntropy>(m, "CrossEntropyForward");
  define_loss<Policy>(m, "PolicyForward");
  define_loss<Preference>(m, "PreferenceForward");
  define_loss<Kto>(m, "KtoForward");
#ifdef LOGITLESS_WITH_JAX
  define_jax_targets(m);
#endif
}

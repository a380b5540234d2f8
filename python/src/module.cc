// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The module logitless._core: the C++ API with keyword arguments. The package beside it gives these functions
// their signatures.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <exception>
#include <memory>
#include <utility>

#include "arrays.h"
#include "caller_names.h"
#include "calls.h"
#include "communicator.h"
#include "logitless/environment.h"
#include "logitless/error.h"
#include "logitless/logits.h"
#ifdef LOGITLESS_WITH_JAX
#include "jax.h"
#endif
#include "losses.h"
#include "options.h"

namespace logitless::python {
namespace {

using namespace nb::literals;

// Returns copies of the columns, without expected rows, which are no column.
nb::dict to_dict(const TokenStats& stats) {
  nb::dict out;
  const bool no_tokens = stats.logp.empty();  // then every column is empty, whether it was asked for or not
  const auto add = [&](const Field& field, const auto& column) {
    if (no_tokens || !column.empty()) out[field.name] = to_numpy(std::remove_cvref_t<decltype(column)>(column));
  };
  visit_fields(FieldsOf<TokenStats>(), add, stats);
  return out;
}

// The arguments of token_stats, its plan and its gradients.
struct TokenStatsCall {
  static constexpr const char* kName = "token_stats";
  Targets targets;
  TokenOptions options;
  StatsRequest request;

  TokenStatsCall(Keywords& keywords, Arrays& arrays)
      : targets(take_targets(keywords, arrays)),
        options(take_fields<TokenOptions>(keywords, arrays)),
        request(take_fields<StatsRequest>(keywords, arrays)) {}
};

void define_token_stats(nb::module_& m) {
  nb::class_<TokenStats>(m, "TokenStats").def("columns", &to_dict);
  m.def("token_stats", [](const Context& context, nb::dict keywords) {
    const Read<TokenStatsCall> read(std::move(keywords), /*outputs=*/false);
    return unlocked([&] {
      return read.call.with([&](const auto&, const auto&... source) {
        return compute_token_stats(context, source..., read.loss.targets, read.loss.options, read.loss.request);
      });
    });
  });
  m.def("plan_token_stats", [](const Context& context, nb::dict keywords) {
    const Read<TokenStatsCall> read(std::move(keywords), /*outputs=*/false);
    return read.call.with([&](const auto&, const auto&... source) {
      return plan_token_stats(context, source..., read.loss.targets, read.loss.options, read.loss.request);
    });
  });
  m.def(
      "token_ids",
      [](nb::handle given, const std::string& name) {
        Arrays arrays;
        return arrays.token_ids(given, name.c_str());
      },
      nb::arg("given").none(), nb::arg("name"));
  m.def("top_overlaps", [](nb::handle a, nb::handle b, int64_t rows) {
    Arrays arrays;
    const auto a_ids = arrays.span<int64_t>(a, "a_ids"), b_ids = arrays.span<int64_t>(b, "b_ids");
    return to_numpy(unlocked([&] { return top_overlaps(a_ids, b_ids, rows); }));
  });
  m.def("top_unions", [](nb::handle a, nb::handle b, int64_t rows) {
    Arrays arrays;
    const auto a_ids = arrays.span<int64_t>(a, "a_ids"), b_ids = arrays.span<int64_t>(b, "b_ids");
    TopUnions unions = unlocked([&] { return top_unions(a_ids, b_ids, rows); });
    return nb::make_tuple(to_numpy(std::move(unions.ids)), to_numpy(std::move(unions.offsets)));
  });
  m.def("token_grads", [](const Context& context, nb::dict keywords, const TokenStats& stats, nb::dict given_grads) {
    const Read<TokenStatsCall> read(std::move(keywords));
    Arrays arrays;
    Keywords columns(std::move(given_grads), "grads");
    TokenGrads grads;
    const auto take_column = [&](const Field& field, std::vector<double>& out) {
      if (const nb::handle column = columns.find(field.name)) {
        const auto values = arrays.span<double>(column, field.name);
        out.assign(values.begin(), values.end());
      }
    };
    visit_fields(FieldsOf<TokenGrads>(), take_column, grads);
    columns.check_all_known();
    return writing(read.arrays, [&] {
      Plan plan;
      read.call.with([&](const auto& outputs, const auto&... source) {
        backpropagate_token_grads(context, source..., read.loss.targets, read.loss.options, read.loss.request, stats,
                                  grads, outputs, &plan);
      });
      return plan;
    });
  });
}

// How many numbers of a row a block has, and how many bytes.
nb::dict packing_blocks() {
  nb::dict out;
  for (const Packing packing : all_of<Packing>()) {
    const PackedBlock block = block_of(packing);
    out[name_of(packing)] = nb::make_tuple(block.numbers, block.bytes);
  }
  return out;
}

nb::dict environment_of(const Context& context) { return dict_of(describe_environment(context)); }

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
      .def_ro("kept_share", &Plan::kept_share)
      .def_ro("noise_estimate", &Plan::noise_estimate)
      .def_ro("d_hidden_bound", &Plan::d_hidden_bound)
      .def_ro("d_weight_bound", &Plan::d_weight_bound)
      .def("describe", &Plan::describe)
      .def("__repr__", [](const Plan& p) { return "<Plan: " + p.describe() + ">"; });
  m.def("packing_blocks", &packing_blocks);
  m.def("fields", &fields_of);
  m.def("texts", &texts_of);
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
  static PyObject* const invalid_input = PyErr_NewException("logitless._core.InvalidInput", PyExc_ValueError, nullptr);
  m.attr("InvalidInput") = nb::handle(invalid_input);
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const logitless::InvalidInput& error) {
      PyErr_SetString(invalid_input, with_caller_names(error.what()).c_str());
    }
  });
  define_context(m);
  define_token_stats(m);
  define_loss<CrossEntropy>(m, "Forward<CrossEntropy>");
  define_loss<Policy>(m, "Forward<PolicyLoss>");
  define_loss<Preference>(m, "Forward<PreferenceLoss>");
  define_loss<Kto>(m, "Forward<KtoLoss>");
  define_loss<Distillation>(m, "Forward<Distillation>");
  define_sets(m);
#ifdef LOGITLESS_WITH_JAX
  define_jax_targets(m);
#endif
}

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The module logitless._core: the C++ API with keyword arguments. The Python package adds signatures and
// documentation.
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
#include "jax.h"
#include "logitless/environment.h"
#include "logitless/error.h"
#include "tasks.h"

namespace logitless::python {
namespace {

using namespace nb::literals;

void define_ids(nb::module_& m) {
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
    const TopUnions unions = unlocked([&] { return top_unions(a_ids, b_ids, rows); });
    return nb::make_tuple(to_numpy(unions.ids), to_numpy(unions.offsets));
  });
}

// Returns {packing: (numbers, bytes)} of one block.
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
  nb::class_<Workspace>(m, "Workspace", "Memory that calls reuse.")
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
      .def_ro("stored_entries", &Plan::stored_entries)
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
  // PyTorch never frees an autograd graph that is still alive when the interpreter ends (its PyNode drops
  // Python objects only while Py_IsInitialized()), so our objects in that graph stay alive, too. nanobind
  // would report them as leaks.
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
  define_ids(m);
  for_each_task([&]<class Task> { define_task<Task>(m); });
  define_jax_targets(m);
}

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The calls that XLA makes on a CPU: handlers of its foreign function interface, which logitless.jax registers.
// Buffers are dense and row-major, and XLA's for as long as a call.
//
// All take the same arguments, in the order of Argument, of which those without an element are not given. Attributes
// are the fields of the options, by their names; those of the context begin with "context.".
#include "jax.h"

#include <algorithm>
#include <string>
#include <type_traits>

#include "jax_call.h"
#include "logitless/slices.h"
#include "options.h"

namespace logitless::python {
namespace {

constexpr StatsRequest kTokenRequest = {.entropy = true};

void run_cross_entropy(const JaxCall& call) {
  const double loss =
      cross_entropy(call.context(), call.hidden, call.head, call.targets, call.options<CrossEntropy>()).loss;
  write_column({&loss, 1}, call.result(0));
}

void run_cross_entropy_grad(const JaxCall& call) {
  const double loss = cross_entropy(call.context(), call.hidden, call.head, call.targets,
                                    call.options<CrossEntropy>(), call.gradients(1))
                          .loss;
  write_column({&loss, 1}, call.result(0));
}

void run_cross_entropy_slice(const JaxCall& call) {
  call.write_bytes(
      cross_entropy_slice(call.context(), call.hidden, call.head, call.targets, call.options<CrossEntropy>()),
      0);
}

void run_token_logps(const JaxCall& call) {
  const TokenStats stats = compute_token_stats(call.context(), call.hidden, call.head, call.targets,
                                               call.options<TokenOptions>(), kTokenRequest);
  write_column(stats.logp, call.result(0));
  write_column(stats.entropy, call.result(1));
}

void run_token_logps_grad(const JaxCall& call) {
  const Gradients outputs = call.gradients(0);
  TokenGrads grads;
  grads.logp = read_column<double>(call.argument(kMore));
  grads.entropy = read_column<double>(call.argument(kMore + 1));
  // An entropy that nobody uses has zeros, and needs none of what they are multiplied with.
  if (std::all_of(grads.entropy.begin(), grads.entropy.end(), [](double g) { return g == 0; })) grads.entropy.clear();
  const bool exact = outputs.backward.mode == BackwardMode::kExact;
  const Context context = call.context(exact && !outputs.wants_head() && grads.entropy.empty());
  const TokenOptions options = call.options<TokenOptions>();
  const TokenStats stats = compute_token_stats(context, call.hidden, call.head, call.targets, options, kTokenRequest);
  backpropagate_token_grads(context, call.hidden, call.head, call.targets, options, kTokenRequest, stats, grads,
                            outputs);
}

void run_token_logps_slice(const JaxCall& call) {
  call.write_bytes(token_stats_slice(call.context(), call.hidden, call.head, call.targets, call.options<TokenOptions>(),
                                     kTokenRequest),
                   0);
}

LOGITLESS_HANDLER(k_run_cross_entropy, run_cross_entropy);
LOGITLESS_HANDLER(k_run_cross_entropy_grad, run_cross_entropy_grad);
LOGITLESS_HANDLER(k_run_cross_entropy_slice, run_cross_entropy_slice);
LOGITLESS_HANDLER(k_run_token_logps, run_token_logps);
LOGITLESS_HANDLER(k_run_token_logps_grad, run_token_logps_grad);
LOGITLESS_HANDLER(k_run_token_logps_slice, run_token_logps_slice);

// Writes the fields of a structure as attributes: Python's bool, int, float and str.
template <class Structure>
void write_attributes(const Structure& options, const std::string& prefix, nb::dict& out) {
  const auto write = [&](const Field& field, const auto& member) {
    const auto put = [&](const auto& value) {
      using T = std::remove_cvref_t<decltype(value)>;
      const std::string name = prefix + field.name;
      if constexpr (std::is_enum_v<T>) {
        out[name.c_str()] = name_of(value);
      } else if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, std::string>) {
        out[name.c_str()] = value;
      }
    };
    if constexpr (requires { member.has_value(); }) {
      if (member) put(*member);
    } else {
      put(member);
    }
  };
  visit_flat(FieldsOf<Structure>(), write, options);
}

// What of a teacher's head is no array.
void take_teacher_head(Keywords& keywords, nb::dict& out) {
  Teacher teacher;
  keywords.take("teacher_layout", teacher.head.layout);
  keywords.take("teacher_softcap", teacher.head.softcap);
  keywords.take("teacher_round_logits_to", teacher.round_logits_to);
  out["teacher_layout"] = name_of(teacher.head.layout);
  out["teacher_softcap"] = teacher.head.softcap;
  if (teacher.round_logits_to) out["teacher_round_logits_to"] = name_of(*teacher.round_logits_to);
}

// Calls use.operator()<Options>() for the options of a task.
template <class Use>
void with_options(const std::string& task, const Use& use) {
  if (task == "cross_entropy") return use.template operator()<CrossEntropy>();
  if (task == "soft_cross_entropy") return use.template operator()<SoftCrossEntropy>();
  if (task == "id_logps") return use.template operator()<IdLogps>();
  if (task == "distillation_loss") return use.template operator()<Distillation>();
  if (task == "set_distillation_loss") return use.template operator()<SetDistillation>();
  use.template operator()<TokenOptions>();
}

}  // namespace

void define_jax_targets(nb::module_& m) {
  m.def("jax_targets", [] {
    nb::dict out;
    const auto add = [&](const char* name, XLA_FFI_Handler* handler) {
      out[name] = nb::capsule(reinterpret_cast<void*>(handler));
    };
    add("logitless_cross_entropy", k_run_cross_entropy);
    add("logitless_cross_entropy_grad", k_run_cross_entropy_grad);
    add("logitless_cross_entropy_slice", k_run_cross_entropy_slice);
    add("logitless_token_logps", k_run_token_logps);
    add("logitless_token_logps_grad", k_run_token_logps_grad);
    add("logitless_token_logps_slice", k_run_token_logps_slice);
    for (const auto& [name, handler] : distribution_handlers()) add(name, handler);
    return out;
  });
  // Returns the attributes of a call: options that are given, and the context's. Throws what a call would throw of
  // names and types.
  m.def(
      "jax_attributes",
      [](const std::string& task, nb::dict given, const Context* context) {
        Keywords keywords(std::move(given), task.c_str());
        Arrays arrays;
        nb::dict out;
        LmHead head;
        keywords.take("layout", head.layout);
        keywords.take("softcap", head.softcap);
        out["layout"] = name_of(head.layout);
        out["softcap"] = head.softcap;
        if (task == "distillation_loss") take_teacher_head(keywords, out);
        write_attributes(take_backward(keywords), "backward.", out);
        with_options(task, [&]<class Options> { write_attributes(take_fields<Options>(keywords, arrays), "", out); });
        keywords.check_all_known();
        if (context && (context->options().ranks.any() || context->options().workspace)) {
          throw InvalidInput("context has ranks or a workspace: XLA runs calls of several devices side by side");
        }
        if (context) write_attributes(context->options(), "context.", out);
        return out;
      },
      nb::arg("task"), nb::arg("given"), nb::arg("context").none());
  m.def("jax_slice_bytes", [](const std::string& task, bool in_double, nb::dict given) {
    const DType dtype = in_double ? DType::kFloat64 : DType::kFloat32;
    if (task != "cross_entropy") return slice_bytes_per_token(dtype, kTokenRequest);
    Keywords keywords(std::move(given), task.c_str());
    Arrays arrays;
    return slice_bytes_per_token(dtype, take_fields<CrossEntropy>(keywords, arrays));
  });
}

}  // namespace logitless::python

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Handlers of XLA's foreign function interface on CPUs. logitless.jax registers them. Buffers are dense and
// row-major; XLA owns them, and they are valid during the call.
//
// All handlers take the same arguments, in the order of the enum Argument. An argument without elements is
// not given. Attributes are the options, under the names of their fields, with the prefix "context." for the
// context's. A task's own arguments come last, in this order:
//
//     soft_cross_entropy       ids, weights, probabilities, mask
//     id_logps                 ids
//     set_distillation_loss    ids, the teacher's log-probabilities there and outside
//     distillation_loss        the teacher's hidden states, weight and bias; its logits (either may be empty); its
//                              head's scales, vocab_ids, and LoRA states and b
//
// The last argument of a backward handler is the upstream gradient.
#include "jax.h"

#include <algorithm>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include "jax_call.h"
#include "tasks.h"

namespace logitless::python {
namespace {

// Writes the loss, or one loss per token.
template <class Result>
void write_loss(const Result& result, bool per_token, const xla::Buffer& out) {
  write_column(per_token ? std::span<const double>(result.per_token_loss) : std::span(&result.loss, 1), out);
}

template <class Loss>
void run_loss(const JaxCall& call) {
  const auto task = call.task<Loss>();
  write_loss(run(call.context(), call.logits, task), task.reduction == Reduction::kNone, call.result(0));
}

template <class Loss>
void run_loss_grad(const JaxCall& call) {
  write_loss(run(call.context(), call.logits, call.task<Loss>(), call.gradients(1)), false, call.result(0));
}

// Runs the forward half again: XLA keeps only arrays between calls.
template <class Task>
void run_backward(const JaxCall& call) {
  const auto task = call.task<Task>();
  const Context context = call.context();
  const auto upstream = read_column<double>(call.last_argument());
  backward(context, call.logits, task, forward(context, call.logits, task), upstream, call.gradients(0));
}

void run_id_logps(const JaxCall& call) {
  write_column(run(call.context(), call.logits, call.task<IdLogps>()).logps, call.result(0));
}

StatsRequest token_request(bool square_sum) { return {.entropy = true, .square_sum = square_sum}; }

TokenStatistics token_statistics(const JaxCall& call) {
  auto task = call.task<TokenStatistics>();
  bool square_sum = false;
  call.read("square_sum", square_sum);
  task.request = token_request(square_sum);
  return task;
}

void run_token_logps(const JaxCall& call) {
  const TokenStats stats = run(call.context(), call.logits, token_statistics(call)).stats;
  write_column(stats.logp, call.result(0));
  write_column(stats.entropy, call.result(1));
  write_column(stats.lse, call.result(2));
  write_column(stats.square_sum, call.result(3));
}

void run_token_logps_grad(const JaxCall& call) {
  const Gradients outputs = call.gradients(0);
  TokenGrads grads;
  size_t next = kMore;
  for (auto* column : {&grads.logp, &grads.entropy, &grads.lse, &grads.square_sum}) {
    *column = read_column<double>(call.argument(next++));
  }
  // Statistics that the caller does not use have upstream gradients of zero: skip their gradients.
  for (auto* column : {&grads.entropy, &grads.lse, &grads.square_sum}) {
    if (std::all_of(column->begin(), column->end(), [](double g) { return g == 0; })) column->clear();
  }
  const bool exact = outputs.backward.mode == BackwardMode::kExact;
  const bool of_head = outputs.d_weight.given() || outputs.d_bias.given() || outputs.d_lora_b.given();
  const Context context = call.context(exact && !of_head && grads.entropy.empty() && grads.square_sum.empty());
  const TokenStatistics task = token_statistics(call);
  backward(context, call.logits, task, forward(context, call.logits, task), grads, outputs);
}

void run_topk_logps(const JaxCall& call) {
  const auto task = call.task<TokenStatistics>();
  const TokenStats stats = run(call.context(), call.logits, task).stats;
  const xla::Buffer& ids = call.result(0);
  std::copy(stats.top_ids.begin(), stats.top_ids.end(), static_cast<int32_t*>(ids.data));
  write_column(stats.top_logps, call.result(1));
}

void run_sample(const JaxCall& call) {
  auto task = call.task<TokenStatistics>();
  task.request.draw_seed = *static_cast<const int32_t*>(call.argument(kSeed).data);
  const TokenStats stats = run(call.context(), call.logits, task).stats;
  std::copy(stats.drawn_ids.begin(), stats.drawn_ids.end(), static_cast<int32_t*>(call.result(0).data));
  write_column(stats.drawn_logps, call.result(1));
}

template <auto task_of>
void run_slice(const JaxCall& call) {
  call.write_bytes(fold_slice(call.context(), call.logits, task_of(call)), 0);
}

// Returns the handlers, by the names under which they are registered with XLA.
nb::dict handlers() {
  nb::dict out;
  const auto add = [&](const std::string& name, xla::Error* (*made)(const xla::CallFrame*)) {
    out[("logitless_" + name).c_str()] = nb::capsule(reinterpret_cast<void*>(made));
  };
  for_each_task([&]<class Task> {
    const std::string name = Task::kName;
    if constexpr (requires(Task task) { task.reduction; }) {
      add(name, handler<run_loss<Task>>);
      add(name + "_grad", handler<run_loss_grad<Task>>);
      add(name + "_backward", handler<run_backward<Task>>);
    }
  });
  add("cross_entropy_slice", handler<run_slice<[](const JaxCall& call) { return call.task<CrossEntropy>(); }>>);
  add("id_logps", handler<run_id_logps>);
  add("id_logps_backward", handler<run_backward<IdLogps>>);
  add("token_logps", handler<run_token_logps>);
  add("token_logps_grad", handler<run_token_logps_grad>);
  add("token_logps_slice", handler<run_slice<token_statistics>>);
  add("topk_logps", handler<run_topk_logps>);
  add("sample", handler<run_sample>);
  return out;
}

// Writes the fields of a list as attributes, as Python's bool, int, float and str.
template <class List, class Structure>
void write_attributes(List list, const Structure& options, const std::string& prefix, nb::dict& out) {
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
  visit_flat(list, write, options);
}

// Writes a head's attributes: layout and softcap.
void take_head(Keywords& keywords, const std::string& prefix, nb::dict& out) {
  const std::string layout_name = prefix + "layout", softcap_name = prefix + "softcap";
  HeadLayout layout = HeadLayout::kVocabHidden;
  double softcap = LmHead().softcap;
  keywords.take(layout_name.c_str(), layout);
  keywords.take(softcap_name.c_str(), softcap);
  out[layout_name.c_str()] = name_of(layout);
  out[softcap_name.c_str()] = softcap;
}

}  // namespace

void define_jax_targets(nb::module_& m) {
  m.def("jax_targets", &handlers);
  // Returns the attributes of a call: the given options, and the context's. Throws what a call would throw
  // for a wrong name or type.
  m.def(
      "jax_attributes",
      [](const std::string& task, nb::dict given, const Context* context) {
        Keywords keywords(std::move(given), task.c_str());
        Arrays arrays;
        nb::dict out;
        take_head(keywords, "", out);
        if (task == "distillation_loss") take_head(keywords, "teacher_", out);
        write_attributes(FieldsOf<BackwardOptions>(), take_backward(keywords), "backward.", out);
        with_list(task == "token_logps" ? "token" : task, [&](auto list, auto& options) {
          take_fields(keywords, arrays, list, options);
          write_attributes(list, options, "", out);
        });
        keywords.check_all_known();
        if (context && (context->options().ranks.any() || context->options().workspace)) {
          throw InvalidInput("context has ranks or a workspace: XLA runs calls of several devices side by side");
        }
        if (context) write_attributes(FieldsOf<ContextOptions>(), context->options(), "context.", out);
        return out;
      },
      nb::arg("task"), nb::arg("given"), nb::arg("context").none());
  m.def("jax_slice_bytes", [](const std::string& task, bool in_double, nb::dict given) {
    const DType dtype = in_double ? DType::kFloat64 : DType::kFloat32;
    if (task != "cross_entropy") {
      return slice_bytes_per_token(dtype,
                                   TokenStatistics{.request = token_request(nb::cast<bool>(given["square_sum"]))});
    }
    Keywords keywords(std::move(given), task.c_str());
    Arrays arrays;
    CrossEntropy loss;
    take_fields(keywords, arrays, FieldsOf<CrossEntropy>(), loss);
    return slice_bytes_per_token(dtype, loss);
  });
}

}  // namespace logitless::python

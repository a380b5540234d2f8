// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Sets of token ids, and target distributions.
#include <memory>
#include <utility>

#include "calls.h"
#include "losses.h"

namespace logitless::python {
namespace {

// Takes ids, [E] with id_offsets or [N, K] with or without id_counts.
IdSets take_sets(Keywords& keywords, Arrays& arrays) {
  return take_sets(keywords, arrays, "ids", "id_offsets", "id_counts");
}

// Throws unless the argument is given.
nb::handle needed(Keywords& keywords, const char* name) {
  if (const nb::handle given = keywords.find(name)) return given;
  throw InvalidInput(std::string(name) + " is missing");
}

SoftTargets take_soft_targets(Keywords& keywords, Arrays& arrays) {
  const nb::handle weights = keywords.find("weights"), rows = keywords.find("probabilities");
  if (!rows && !(weights && keywords.find("ids"))) {
    throw InvalidInput("ids and weights are missing, or probabilities in their place");
  }
  SoftTargets out;
  out.sets = take_sets(keywords, arrays);
  if (weights) out.weights = arrays.entries(weights, "weights");
  if (rows) out.rows = arrays.matrix(rows, "probabilities");
  take(keywords, arrays, "mask", out.mask);
  return out;
}

SetTeacher take_set_teacher(Keywords& keywords, Arrays& arrays) {
  needed(keywords, "ids");
  SetTeacher out;
  out.sets = take_sets(keywords, arrays);
  out.logps = arrays.entries(needed(keywords, "teacher_logps"), "teacher_logps");
  take(keywords, arrays, "teacher_outside_logps", out.outside_logps);
  return out;
}

// The arguments of id_logps.
struct IdLogpsCall {
  static constexpr const char* kName = "id_logps";
  IdSets sets;
  IdLogps options;

  IdLogpsCall(Keywords& keywords, Arrays& arrays)
      : sets(take_sets(keywords, arrays)), options(take_fields<IdLogps>(keywords, arrays)) {
    needed(keywords, "ids");
  }
};

}  // namespace

SoftCrossEntropy::SoftCrossEntropy(Keywords& keywords, Arrays& arrays)
    : targets(take_soft_targets(keywords, arrays)), options(take_fields<SoftCrossEntropy>(keywords, arrays)) {}

SetDistillation::SetDistillation(Keywords& keywords, Arrays& arrays)
    : teacher(take_set_teacher(keywords, arrays)), options(take_fields<SetDistillation>(keywords, arrays)) {
  take(keywords, arrays, "targets", targets);
}

void define_sets(nb::module_& m) {
  define_loss<SoftCrossEntropy>(m, "Forward<SoftCrossEntropy>");
  define_loss<SetDistillation>(m, "Forward<SetDistillation>");
  nb::class_<IdLogpsResult>(m, "IdLogpsResult");
  m.def("id_logps", [](const Context& context, nb::dict keywords) {
    const Read<IdLogpsCall> read(std::move(keywords), /*outputs=*/false);
    IdLogpsResult forward = unlocked([&] {
      return read.call.with([&](const auto&, const auto&... source) {
        return id_logps(context, source..., read.loss.sets, read.loss.options);
      });
    });
    nb::dict out;
    // The backward half does not need them.
    nb::list shape;
    for (const int64_t axis : read.arrays.ids_shape()) shape.append(axis);
    out["logps"] = to_numpy(std::move(forward.logps)).attr("reshape")(nb::tuple(shape));
    out["plan"] = forward.plan;
    return std::make_pair(out, std::move(forward));
  });
  m.def("plan_id_logps", [](const Context& context, nb::dict keywords) {
    const Read<IdLogpsCall> read(std::move(keywords), /*outputs=*/false);
    return read.call.with([&](const auto&, const auto&... source) {
      return plan_id_logps(context, source..., read.loss.sets, read.loss.options);
    });
  });
  m.def(
      "id_logps_backward",
      [](const Context& context, nb::dict keywords, const IdLogpsResult& forward, nb::handle given) {
        Read<IdLogpsCall> read(std::move(keywords));
        const ConstVector entries = read.arrays.entries(given, "upstream");
        if (entries.dtype != DType::kFloat64) {
          throw InvalidInput(std::string("upstream is ") + name_of(entries.dtype) + ": it must be float64");
        }
        const std::span upstream(static_cast<const double*>(entries.data), static_cast<size_t>(entries.size));
        return writing(read.arrays, [&] {
          return read.call.with([&](const auto& outputs, const auto&... source) {
            return id_logps_backward(context, source..., read.loss.sets, read.loss.options, forward, upstream, outputs);
          });
        });
      },
      nb::arg("context"), nb::arg("arguments"), nb::arg("forward"), nb::arg("upstream").none());
}

}  // namespace logitless::python

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
  IdSets out;
  take(keywords, arrays, "ids", out.ids);
  take(keywords, arrays, "id_offsets", out.offsets);
  take(keywords, arrays, "id_counts", out.counts);
  return out;
}

// Takes an array of one or two axes as one row of entries.
ConstVector take_entries(Arrays& arrays, nb::handle given, const char* name) {
  if (nb::cast<int64_t>(given.attr("ndim")) < 2) return arrays.vector(given, name);
  const ConstMatrix rows = arrays.matrix(given, name);
  if (rows.rows > 1 && rows.stride != rows.cols) {
    throw InvalidInput(std::string(name) + " must be contiguous: its rows are " + std::to_string(rows.stride) +
                       " elements apart but have " + std::to_string(rows.cols));
  }
  return ConstVector(rows.data, rows.dtype, rows.rows * rows.cols);
}

SoftTargets take_soft_targets(Keywords& keywords, Arrays& arrays) {
  SoftTargets out;
  out.sets = take_sets(keywords, arrays);
  if (const nb::handle weights = keywords.find("weights")) out.weights = take_entries(arrays, weights, "weights");
  if (const nb::handle rows = keywords.find("probabilities")) out.rows = arrays.matrix(rows, "probabilities");
  take(keywords, arrays, "mask", out.mask);
  return out;
}

SetTeacher take_set_teacher(Keywords& keywords, Arrays& arrays) {
  SetTeacher out;
  out.sets = take_sets(keywords, arrays);
  const nb::handle logps = keywords.find("teacher_logps");
  if (!logps) throw InvalidInput("teacher_logps is missing");
  out.logps = take_entries(arrays, logps, "teacher_logps");
  take(keywords, arrays, "teacher_outside_logps", out.outside_logps);
  return out;
}

// The arguments of id_logps.
struct IdLogpsCall {
  static constexpr const char* kName = "id_logps";
  IdSets sets;
  IdLogpsOptions options;

  IdLogpsCall(Keywords& keywords, Arrays& arrays)
      : sets(take_sets(keywords, arrays)), options(take_fields<IdLogpsOptions>(keywords, arrays)) {}
};

}  // namespace

SoftCrossEntropy::SoftCrossEntropy(Keywords& keywords, Arrays& arrays)
    : targets(take_soft_targets(keywords, arrays)), options(take_fields<SoftCrossEntropyOptions>(keywords, arrays)) {}

SetDistillation::SetDistillation(Keywords& keywords, Arrays& arrays)
    : teacher(take_set_teacher(keywords, arrays)), options(take_fields<SetDistillationOptions>(keywords, arrays)) {
  take(keywords, arrays, "targets", targets);
}

void define_sets(nb::module_& m) {
  define_loss<SoftCrossEntropy>(m, "SoftCrossEntropyForward");
  define_loss<SetDistillation>(m, "SetDistillationForward");
  nb::class_<IdLogps>(m, "IdLogps");
  m.def("id_logps", [](const Context& context, nb::dict keywords) {
    const Read<IdLogpsCall> read(std::move(keywords));
    IdLogps forward = unlocked([&] {
      return read.call.with([&](const auto&, const auto&... source) {
        return id_logps(context, source..., read.loss.sets, read.loss.options);
      });
    });
    nb::dict out;
    // The backward half does not need them.
    out["logps"] = to_numpy(std::move(forward.logps));
    out["plan"] = forward.plan;
    return std::make_pair(out, std::move(forward));
  });
  m.def("plan_id_logps", [](const Context& context, nb::dict keywords) {
    const Read<IdLogpsCall> read(std::move(keywords));
    return read.call.with([&](const auto&, const auto&... source) {
      return plan_id_logps(context, source..., read.loss.sets, read.loss.options);
    });
  });
  m.def("id_logps_backward", [](const Context& context, nb::dict keywords, const IdLogps& forward, nb::handle given) {
    Arrays of_upstream;
    const std::span<const double> upstream = of_upstream.span<double>(given, "upstream");
    const Read<IdLogpsCall> read(std::move(keywords));
    return writing(read.arrays, [&] {
      return read.call.with([&](const auto& outputs, const auto&... source) {
        return id_logps_backward(context, source..., read.loss.sets, read.loss.options, forward, upstream, outputs);
      });
    });
  });
}

}  // namespace logitless::python

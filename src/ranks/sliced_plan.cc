// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "ranks/sliced_plan.h"

#include <algorithm>
#include <string>
#include <utility>

#include "planning/planner.h"
#include "problem/hidden_rows.h"
#include "ranks/slice.h"
#include "source/head.h"

namespace logitless::ranks {
namespace {

using problem::HiddenProblem;

// The input of the planner for all slices: the largest slice, with separate sums of d_hidden and the types
// that all ranks share. Its data pointers are placeholders that are never read or written.
struct Planned {
  HiddenProblem problem;
  planning::Computation computation;
  GradientMatrices outputs;

  Planned(const Cut& cut, const HiddenProblem& whole, const planning::Computation& wanted,
          const GradientMatrices& wanted_outputs)
      : problem(whole), computation(wanted) {
    const HeadTypes& types = cut.types;
    const auto dtype = [](int64_t type) { return static_cast<DType>(type); };
    const int64_t entries = problem.entries = cut.most_entries(), h = problem.hidden_size;
    const auto plan_head = [&](const HeadTypes::Of& given, problem::StatesAndHead& of) {
      const double softcap = of.head.softcap;
      of.head = HeadMatrices();
      of.head.softcap = softcap;
      of.head.layout = static_cast<HeadLayout>(given.layout);
      const source::Layout layout(of.head.layout);
      const int64_t width = of.hidden_size;
      if (given.packing >= 0) {
        of.head.packed = {this, static_cast<Packing>(given.packing), entries, width, {}, nullptr, given.group};
      } else {
        of.head.weight =
            ConstMatrix(this, dtype(given.weight), layout.rows(entries, width), layout.cols(entries, width));
      }
      if (given.ids >= 0) of.head.ids = {reinterpret_cast<const int64_t*>(this), static_cast<size_t>(entries)};
      if (given.bias >= 0) of.head.bias = ConstVector(this, dtype(given.bias), entries);
      if (given.lora_b >= 0) {
        if (given.lora_a >= 0) of.head.lora.a = ConstMatrix(this, dtype(given.lora_a), given.lora_rank, width);
        if (given.lora_states >= 0) {
          of.head.lora.states = ConstMatrix(this, dtype(given.lora_states), problem.tokens, given.lora_rank);
        }
        of.head.lora.b = ConstMatrix(this, dtype(given.lora_b), entries, given.lora_rank);
      }
    };
    plan_head(types.head, problem);
    if (problem.teacher) plan_head(types.teacher, *problem.teacher);
    const source::Layout layout(problem.head.layout);
    const int64_t rows = layout.rows(entries, h), cols = layout.cols(entries, h);
    computation.slices = cut.entries;
    if (types.d_weight >= 0) outputs.d_weight = Matrix(this, dtype(types.d_weight), rows, cols);
    if (types.d_bias >= 0) outputs.d_bias = Vector(this, dtype(types.d_bias), entries);
    if (types.d_lora_b >= 0) outputs.d_lora_b = Matrix(this, dtype(types.d_lora_b), entries, types.head.lora_rank);
    if (lora_part(problem, wanted_outputs).data) set_lora_sums(problem, this, outputs);
    if (types.weight_sink >= 0) outputs.weight_sink = [](int64_t, int64_t, const ConstMatrix&) {};
    outputs.backward = wanted_outputs.backward;
    outputs.d_weight_mode = wanted_outputs.d_weight_mode;
    outputs.d_bias_mode = wanted_outputs.d_bias_mode;
    outputs.d_lora_mode = wanted_outputs.d_lora_mode;
    if (wanted_outputs.wants_d_hidden()) set_sums(problem, this, outputs);
  }
};

std::string name_of_type(int64_t type) { return type < 0 ? "none" : name_of(static_cast<DType>(type)); }

// Compares the plan and the outputs of all ranks, and throws RankError if they differ.
void agree_on(const planning::RunPlan& run, const Cut& cut, const HiddenProblem& problem,
              const planning::Computation& computation, const GradientMatrices& outputs) {
  if (!cut.group->is_shared()) return;
  const Heads heads = {problem.head, problem.teacher ? &problem.teacher->head : nullptr};
  const HeadTypes types = problem.entries > 0 ? head_types(heads, outputs) : cut.types;
  const bool wants_d_hidden = computation.backward && outputs.wants_d_hidden();
  const bool sums = wants_d_hidden && !cut.own_d_hidden;
  Digests& digests = cut.group->digests();
  const auto is = [&](const char* name, std::string value) { digests.add(name, std::move(value)); };
  const auto wanted = [](bool value) { return std::string(value ? "requested" : "not requested"); };
  const auto head_is = [&](const char* name, const char* layout, const char* bias, const char* lora,
                           const HeadTypes::Of& of) {
    is(name, (of.packing < 0 ? name_of_type(of.weight) : name_of(static_cast<Packing>(of.packing))) +
                 (of.ids < 0 ? "" : " with vocab_ids"));
    is(layout, name_of(static_cast<HeadLayout>(of.layout)));
    is(bias, name_of_type(of.bias));
    if (of.lora_b < 0) return is(lora, "none");
    const bool states = of.lora_states >= 0;
    is(lora, (states ? "states of " : "") + name_of_type(states ? of.lora_states : of.lora_a) + " and " +
                 name_of_type(of.lora_b) + " of rank " + std::to_string(of.lora_rank));
  };
  head_is("weight", "the layout of weight", "bias", "lora", types.head);
  if (problem.teacher)
    head_is("teacher.head", "the layout of teacher.head", "teacher.head.bias", "teacher.head.lora", types.teacher);
  is("d_weight", name_of_type(types.d_weight));
  is("weight_sink", types.weight_sink < 0 ? "none" : "given");
  is("d_bias", name_of_type(types.d_bias));
  is("d_lora_b", name_of_type(types.d_lora_b));
  const Matrix& d_lora = lora_part(problem, outputs);
  const bool wants_lora = computation.backward && d_lora.data, sums_lora = wants_lora && !cut.own_d_hidden;
  is(problem.head.lora.has_states() ? "d_lora_states" : "d_lora_a",
     sums_lora ? name_of(d_lora.dtype) : wanted(wants_lora));
  is("d_lora_mode", sums_lora && outputs.d_lora_mode == WriteMode::kAccumulate ? "accumulate" : "overwrite");
  is("a forward pass", wanted(computation.forward));
  is("a gradient", wanted(computation.backward));
  is("d_hidden", sums ? name_of_type(static_cast<int64_t>(outputs.d_hidden.dtype)) : wanted(wants_d_hidden));
  is("d_hidden_mode", sums && outputs.d_hidden_mode == WriteMode::kAccumulate ? "accumulate" : "overwrite");
  const BackwardOptions backward = computation.approximates ? outputs.backward : BackwardOptions();
  visit_fields(
      FieldsOf<BackwardOptions>(),
      [&](const Field& field, const auto& value) { digests.add("backward." + std::string(field.name), value); },
      backward);
  digests.add("backward.mode of the plan", run.approximates ? backward.mode : BackwardOptions().mode);
  digests.add("plan", std::string(name_of(run.plan.kind)));
  digests.add("chunks", run.chunk_count());
  digests.add("row_tile", run.grid.row_tile);
  digests.add("vocab_tile", run.grid.vocab_tile);
  cut.group->barrier();
}

}  // namespace

planning::RunPlan choose_sliced_plan(const detail::ContextState& context, int threads, const Cut& cut,
                                     const HiddenProblem& problem, const planning::Computation& computation,
                                     const GradientMatrices& outputs) {
  const Planned planned(cut, problem, computation, outputs);
  planning::RunPlan run =
      planning::choose_plan(context, threads, planned.problem, planned.computation, planned.outputs);
  agree_on(run, cut, problem, computation, outputs);
  return run;
}

size_t least_sliced_workspace(const detail::ContextState& context, int threads, const Cut& cut,
                              const HiddenProblem& problem, const planning::Computation& computation,
                              const GradientMatrices& outputs) {
  const Planned planned(cut, problem, computation, outputs);
  return planning::least_workspace(context, threads, planned.problem, planned.computation, planned.outputs);
}

Plan plan_of_rank(const Cut& cut, const HiddenProblem& problem, const planning::RunPlan& run) {
  Plan plan = run.plan;
  plan.vocab_size = problem.entries;
  const std::span<const int64_t> own = cut.own();
  plan.workspace_bytes *=
      static_cast<size_t>(std::count_if(own.begin(), own.end(), [](int64_t entries) { return entries > 0; }));
  return plan;
}

}  // namespace logitless::ranks

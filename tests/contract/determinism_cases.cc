// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "determinism_cases.h"

#include <memory>

#include "support/every_task.h"
#include "support/testers.h"

namespace logitless::testing {

namespace {

using Cases = std::vector<DeterminismCase>;
constexpr PlanKind kPlansOfTargets[] = {PlanKind::kOnePass, PlanKind::kTwoPass, PlanKind::kExpectedRow};

void add(CrossEntropyTester tester, Cases& cases) {
  cases.push_back({"cross_entropy " + std::to_string(cases.size()),
                   [tester](int threads) mutable { return tester.threads(threads).run_once().bytes; },
                   [tester](int threads) mutable { return tester.threads(threads).planned(); }});
}

void add_cross_entropy(Cases& cases) {
  const auto add_plans = [&](CrossEntropyTester tester) {
    for (const PlanKind plan : kPlansOfTargets) {
      if (tester.can_run(plan)) add(tester.plan(plan), cases);
    }
    add(tester.plan(PlanKind::kAuto).gradients(true, false, false), cases);
    tester.gradients(true, true, true);
    add(tester.plan(PlanKind::kTwoPass).sink(), cases);
    add(tester.sink(false).plan(PlanKind::kAuto).form(Form::kSplit), cases);
  };
  // One row block and many tiles; many row blocks and one tile; several of both; and the default tile sizes.
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64}) {
    CrossEntropyTester tester;
    tester.dtype(dtype).hidden(530).vocab(1003).tokens(13).ignored(0.2).label_smoothing(0.1).z_loss(0.01).metrics();
    add_plans(tester.tiles(16, 48));
    add_plans(tester.hidden(33).vocab(45).tokens(301).layout(HeadLayout::kVocabHidden).tiles(16, 64));
    add_plans(tester.hidden(71).vocab(517).tokens(131).softcap(20).tiles(32, 96));
    add_plans(tester.tiles(0, 0).reduction(Reduction::kNone));
  }
  // Chunks of one pass, and the smallest budgets, which limit the number of live tiles.
  CrossEntropyTester tester;
  tester.hidden(71).vocab(517).tokens(131).tiles(16, 96);
  add(tester.plan(PlanKind::kOnePass).workspace(size_t{150} << 10), cases);
  add(tester.plan(PlanKind::kTwoPass).workspace(size_t{100} << 10), cases);
  tester.dtype(DType::kBFloat16).gradient_dtype(DType::kBFloat16).workspace(size_t{400} << 10);
  add(tester, cases);
  CrossEntropyTester packed;
  packed.hidden(71).vocab(517).packed({0, 81, 131}).shift().ignored(0.1).tiles(16, 96);
  for (const PlanKind plan : kPlansOfTargets) add(packed.plan(plan), cases);
  // Hidden states are a transpose, and their gradients a slice.
  CrossEntropyTester strided;
  strided.hidden(71).vocab(517).tokens(129).batch(3).ignored(0.1).tiles(16, 96).strided_targets();
  strided.hidden_rows(Rows::kTransposed).d_hidden_rows(Rows::kSlice);
  for (const PlanKind plan : kPlansOfTargets) add(strided.plan(plan), cases);
}

template <class Source>
struct TaskInputs {
  Source source;
  Batch batch;
};

// One call, and if `halves` also forward() and backward(), with all their results.
template <class Source, class Task>
DeterminismCase case_of(const std::shared_ptr<const TaskInputs<Source>>& given, const Task& task,
                        const ContextOptions& options, bool halves) {
  const auto context_of = [options](int threads) {
    ContextOptions own = options;
    own.threads = threads;
    return Context(own);
  };
  DeterminismCase out;
  out.bytes = [given, task, context_of, halves](int threads) {
    const Context context = context_of(threads);
    typename Source::Outputs at_once, apart;
    std::vector<std::byte> bytes = bytes_of(task.run(context, at_once.views()));
    const auto append = [&](const std::vector<std::byte>& more) {
      bytes.insert(bytes.end(), more.begin(), more.end());
    };
    if (halves) {
      const auto forward = task.forward(context);
      append(bytes_of(forward));
      if (context.options().plan != PlanKind::kOnePass) task.backward(context, forward, 0.5, apart.views());
    }
    append(bytes_of(at_once.values()));
    append(bytes_of(apart.values()));
    return bytes;
  };
  out.plan = [given, task, context_of](int threads) {
    typename Source::Outputs outputs;
    return task.plan(context_of(threads), outputs.views());
  };
  return out;
}

// Adds every task, in one call and in halves, and in the smallest budget: chunks of coupled rows.
template <class Source>
void add_every_task(const std::string& source_name, Cases& cases) {
  const auto given = std::make_shared<const TaskInputs<Source>>();
  visit_every_task(given->source, given->batch, [&](const auto& task) {
    for (const PlanKind plan : {PlanKind::kAuto, PlanKind::kOnePass, PlanKind::kTwoPass}) {
      if (cannot_run(task, plan)) continue;
      ContextOptions options;
      options.plan = plan;
      options.row_tile = options.row_block = 3;
      options.vocab_tile = 16;
      for (const bool tight : {false, true}) {
        cases.push_back(case_of(given, task, options, !tight));
        cases.back().name = "all columns of " + std::string(task.name) + source_name + " " + name_of(plan) +
                            (tight ? " tight " : " ") + std::to_string(cases.size() - 1);
        options.workspace_bytes = cases.back().plan(1).least_workspace_bytes;
      }
    }
  });
}

// Adds the task with draws, from all ids and from the largest logits.
template <class Source>
void add_draws(const std::string& source_name, Cases& cases) {
  const auto given = std::make_shared<const TaskInputs<Source>>();
  visit_every_task(given->source, given->batch, [&]<class Task>(const Task& task) {
    if constexpr (requires { task.request; }) {
      Task draws = task;
      draws.request.draws = 9, draws.request.draw_seed = 5;
      ContextOptions options;
      options.row_tile = options.row_block = 3;
      options.vocab_tile = 16;
      for (const int64_t top_k : {0, 3}) {
        draws.request.draw_top_k = top_k;
        cases.push_back(case_of(given, draws, options, true));
        cases.back().name = "draws" + source_name + " of top " + std::to_string(top_k);
      }
    }
  });
}

}  // namespace

std::vector<DeterminismCase> determinism_cases() {
  Cases cases;
  add_cross_entropy(cases);
  add_every_task<FromHidden>("", cases);
  add_every_task<FromLogits>(" of logits", cases);
  add_draws<FromHidden>("", cases);
  add_draws<FromLogits>(" of logits", cases);
  return cases;
}

uint64_t hash_of(const std::vector<std::byte>& bytes) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const std::byte byte : bytes) hash = (hash ^ static_cast<uint64_t>(byte)) * 0x100000001b3;
  return hash;
}

uint64_t hash_of_all_cases(int threads) {
  uint64_t hash = 0;
  for (const DeterminismCase& one : determinism_cases()) hash = hash * 31 + hash_of(one.bytes(threads));
  return hash;
}

}  // namespace logitless::testing

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "determinism_cases.h"

namespace logitless::testing {

std::vector<CrossEntropyTester> determinism_cases() {
  std::vector<CrossEntropyTester> cases;
  const auto add_plans = [&](CrossEntropyTester tester) {
    for (const PlanKind plan : {PlanKind::kOnePass, PlanKind::kTwoPass}) cases.push_back(tester.plan(plan));
    cases.push_back(tester.plan(PlanKind::kTwoPass).sink());
    cases.push_back(tester.sink(false).plan(PlanKind::kAuto).form(Form::kSplit));
  };
  // One row block and many tiles; many row blocks and one tile; several of both; the sizes the library chooses.
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64}) {
    CrossEntropyTester tester;
    tester.dtype(dtype).hidden(530).vocab(1003).tokens(13).ignored(0.2).label_smoothing(0.1).z_loss(0.01).metrics();
    add_plans(tester.tiles(16, 48));
    add_plans(tester.hidden(33).vocab(45).tokens(301).layout(HeadLayout::kVocabHidden).tiles(16, 64));
    add_plans(tester.hidden(71).vocab(517).tokens(131).softcap(20).tiles(32, 96));
    add_plans(tester.tiles(0, 0).reduction(Reduction::kNone));
  }
  // Chunks of one pass, and the smallest budgets, which cap how many tiles are alive.
  CrossEntropyTester tester;
  tester.hidden(71).vocab(517).tokens(131).tiles(16, 96);
  cases.push_back(tester.plan(PlanKind::kOnePass).workspace(size_t{150} << 10));
  cases.push_back(tester.plan(PlanKind::kTwoPass).workspace(size_t{100} << 10));
  cases.push_back(tester.dtype(DType::kBFloat16).gradient_dtype(DType::kBFloat16).workspace(size_t{400} << 10));
  // Hidden states in two matrices.
  CrossEntropyTester two;
  two.hidden(71).vocab(517).tokens(131).second(50).ignored(0.1).tiles(16, 96);
  for (const PlanKind plan : {PlanKind::kOnePass, PlanKind::kTwoPass}) cases.push_back(two.plan(plan));
  return cases;
}

uint64_t hash_of(const std::vector<std::byte>& bytes) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const std::byte byte : bytes) hash = (hash ^ static_cast<uint64_t>(byte)) * 0x100000001b3;
  return hash;
}

uint64_t hash_of_all_cases(int threads) {
  uint64_t hash = 0;
  for (CrossEntropyTester& tester : determinism_cases()) {
    hash = hash * 31 + hash_of(tester.threads(threads).run_once().bytes);
  }
  return hash;
}

}  // namespace logitless::testing

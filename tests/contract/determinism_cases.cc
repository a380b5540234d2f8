// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "determinism_cases.h"

#include <memory>

#include "support/every_task.h"
#include "support/logits_tester.h"
#include "support/policy_tester.h"
#include "support/preference_tester.h"

namespace logitless::testing {

namespace {

using Cases = std::vector<DeterminismCase>;
// Every loss can run the first two of these, and those of the logits' sums alone the third.
constexpr PlanKind kPlans[] = {PlanKind::kOnePass, PlanKind::kTwoPass};
constexpr PlanKind kPlansOfTargets[] = {PlanKind::kOnePass, PlanKind::kTwoPass, PlanKind::kExpectedRow};

template <class TesterType>
void add(const char* name, TesterType tester, Cases& cases) {
  cases.push_back({name + (" " + std::to_string(cases.size())),
                   [tester](int threads) mutable { return tester.threads(threads).run_once().bytes; },
                   [tester](int threads) mutable {
                     tester.threads(threads);
                     if constexpr (requires { tester.planned(); }) {
                       return tester.planned();
                     } else {
                       return tester.run_once().result.plan;
                     }
                   }});
}

void add_cross_entropy(Cases& cases) {
  const auto add_plans = [&](CrossEntropyTester tester) {
    for (const PlanKind plan : kPlansOfTargets) {
      if (tester.can_run(plan)) add("cross_entropy", tester.plan(plan), cases);
    }
    add("cross_entropy", tester.plan(PlanKind::kAuto).gradients(true, false, false), cases);
    tester.gradients(true, true, true);
    add("cross_entropy", tester.plan(PlanKind::kTwoPass).sink(), cases);
    add("cross_entropy", tester.sink(false).plan(PlanKind::kAuto).form(Form::kSplit), cases);
  };
  // These have one row block and many tiles; many row blocks and one tile; several of both; the sizes the
  // library chooses.
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64}) {
    CrossEntropyTester tester;
    tester.dtype(dtype).hidden(530).vocab(1003).tokens(13).ignored(0.2).label_smoothing(0.1).z_loss(0.01).metrics();
    add_plans(tester.tiles(16, 48));
    add_plans(tester.hidden(33).vocab(45).tokens(301).layout(HeadLayout::kVocabHidden).tiles(16, 64));
    add_plans(tester.hidden(71).vocab(517).tokens(131).softcap(20).tiles(32, 96));
    add_plans(tester.tiles(0, 0).reduction(Reduction::kNone));
  }
  // These have chunks of one pass, and the smallest budgets, which cap how many tiles are alive.
  CrossEntropyTester tester;
  tester.hidden(71).vocab(517).tokens(131).tiles(16, 96);
  add("cross_entropy", tester.plan(PlanKind::kOnePass).workspace(size_t{150} << 10), cases);
  add("cross_entropy", tester.plan(PlanKind::kTwoPass).workspace(size_t{100} << 10), cases);
  tester.dtype(DType::kBFloat16).gradient_dtype(DType::kBFloat16).workspace(size_t{400} << 10);
  add("cross_entropy", tester, cases);
  CrossEntropyTester packed;
  packed.hidden(71).vocab(517).packed({0, 81, 131}).shift().ignored(0.1).tiles(16, 96);
  for (const PlanKind plan : kPlansOfTargets) add("cross_entropy", packed.plan(plan), cases);
  // Hidden states are a transpose, and their gradients a slice.
  CrossEntropyTester strided;
  strided.hidden(71).vocab(517).tokens(129).batch(3).ignored(0.1).tiles(16, 96).strided_targets();
  strided.hidden_rows(Rows::kTransposed).d_hidden_rows(Rows::kSlice);
  for (const PlanKind plan : kPlansOfTargets) add("cross_entropy", strided.plan(plan), cases);
}

// Returns losses of one token, of a sequence and of the whole batch.
std::vector<PolicyTester> policy_losses(const PolicyTester& base) {
  std::vector<PolicyTester> testers(7, base);
  testers[0].loss_type(PolicyLossType::kGrpo).twist("token_truncate clip_max");
  testers[1].loss_type(PolicyLossType::kCispo).twist("beta with k3").twist("entropy bonus");
  testers[2].loss_type(PolicyLossType::kRloo).twist("sequence_mask clip_min clip_max");
  testers[3].loss_type(PolicyLossType::kVespo).twist("beta with k2, bias correction");
  testers[4].loss_type(PolicyLossType::kPpo).twist("top entropy quantile").twist("advantages per token");
  testers[5].loss_type(PolicyLossType::kGmpo).twist("trust region kl").twist("sampler penalty");
  testers[6].loss_type(PolicyLossType::kKlCov).twist("covariances").twist("second moments");
  return testers;
}

// Copies share the inputs that the first call made, so it comes before them.
void add_policy(Cases& cases) {
  PolicyTester base;
  base.packed({0, 31, 31, 47, 80}).hidden(70).vocab(401).tiles(16, 96);
  for (PolicyTester& tester : policy_losses(base)) {
    for (const PlanKind plan : kPlans) {
      add("policy_loss", tester.plan(plan).tightest_workspace(), cases);
      add("policy_loss", tester.workspace(size_t{64} << 20), cases);
    }
  }
}

// Losses are coupled not at all, by pair and by the batch; some have a reference that runs in the same call.
void add_preference(Cases& cases) {
  for (const PreferenceLossType loss : {PreferenceLossType::kSft, PreferenceLossType::kOrpo,
                                        PreferenceLossType::kSigmoid, PreferenceLossType::kAotUnpaired}) {
    PreferenceTester pairs;
    pairs.tokens(8 * 18).batch(8).hidden(33).vocab(317).tiles(16, 96).loss(loss);
    if (needs_reference(loss)) pairs.reference(ReferenceForm::kModel);
    pairs.run_once();
    for (const PlanKind plan : kPlans) {
      add("preference_loss", pairs.plan(plan).tightest_workspace(), cases);
      add("preference_loss", pairs.workspace(size_t{64} << 20), cases);
    }
  }
  for (const ReferenceForm form : {ReferenceForm::kTokens, ReferenceForm::kModel}) {
    KtoTester kto;
    kto.tokens(12 * 14).batch(12).hidden(33).vocab(317).tiles(16, 96).reference(form);
    kto.run_once();
    for (const PlanKind plan : kPlans) {
      add("kto_loss", kto.plan(plan).tightest_workspace(), cases);
      add("kto_loss", kto.workspace(size_t{64} << 20), cases);
    }
  }
}

void add_logits(Cases& cases) {
  const auto add_call = [&](const char* name, LogitsTester tester, LogitsRun (LogitsTester::*call)()) {
    cases.push_back({name + (" " + std::to_string(cases.size())),
                     [tester, call](int threads) mutable { return (tester.threads(threads).*call)().bytes; },
                     {}});
  };
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    LogitsTester tester;
    tester.dtype(dtype).tokens(131).vocab(517).ignored(0.2).label_smoothing(0.1).z_loss(0.01).finite_everywhere();
    tester.entropy_once();
    for (const int64_t rows : {0, 7}) {
      tester.tiles(rows, 96);
      add_call("cross_entropy of logits", tester, &LogitsTester::cross_entropy_once);
      add_call("cross_entropy of logits in place", LogitsTester(tester).in_place(), &LogitsTester::cross_entropy_once);
      add_call("run_token_loss of logits", tester, &LogitsTester::token_loss_once);
      add_call("run_token_loss of logits in groups", LogitsTester(tester).groups(), &LogitsTester::token_loss_once);
      add_call("entropy_from_logits", tester, &LogitsTester::entropy_once);
    }
    for (PolicyTester& policy : policy_losses(PolicyTester().from_logits().padded(5, 13).vocab(101).tiles(3, 48))) {
      add("policy_loss of logits", policy.dtype(dtype), cases);
    }
  }
}

// Every task there is, in one call and in halves, with everything that it returns.
template <class Source>
void add_every_task(const std::string& source_name, Cases& cases) {
  struct Given {
    Source source;
    Batch batch;
  };
  const auto given = std::make_shared<const Given>();
  visit_every_task(given->source, given->batch, [&](const auto& task) {
    for (const PlanKind plan : {PlanKind::kAuto, PlanKind::kOnePass, PlanKind::kTwoPass}) {
      if (cannot_run(task, plan)) continue;
      const auto context_of = [plan](int threads) {
        ContextOptions options;
        options.plan = plan;
        options.threads = threads;
        options.row_tile = options.row_block = 3;
        options.vocab_tile = 16;
        return Context(options);
      };
      const auto run = [given, task, plan, context_of](int threads) {
        const Context context = context_of(threads);
        typename Source::Outputs at_once, apart;
        std::vector<std::byte> bytes = bytes_of(task.run(context, at_once.views()));
        const auto append = [&](const std::vector<std::byte>& more) {
          bytes.insert(bytes.end(), more.begin(), more.end());
        };
        const auto forward = task.forward(context);
        append(bytes_of(forward));
        if (plan != PlanKind::kOnePass) task.backward(context, forward, 0.5, apart.views());
        append(bytes_of(at_once.values()));
        append(bytes_of(apart.values()));
        return bytes;
      };
      const auto planned = [given, task, context_of](int threads) {
        typename Source::Outputs outputs;
        return task.plan(context_of(threads), outputs.views());
      };
      const std::string name = "all columns of " + std::string(task.name) + source_name + " " + name_of(plan);
      cases.push_back({name + " " + std::to_string(cases.size()), run, planned});
    }
  });
}

}  // namespace

std::vector<DeterminismCase> determinism_cases() {
  Cases cases;
  add_cross_entropy(cases);
  add_policy(cases);
  add_preference(cases);
  add_logits(cases);
  add_every_task<FromHidden>("", cases);
  add_every_task<FromLogits>(" of logits", cases);
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

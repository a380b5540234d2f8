// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Heads with a LoRA have the gradients of the matrix that they stand for, in every task and plan.
#include <gtest/gtest.h>

#include <Eigen/Core>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "logitless/logitless.h"
#include "support/adapted_head.h"
#include "support/calls.h"
#include "support/every_task.h"
#include "support/views.h"

namespace logitless::testing {
namespace {

// Expected rows make the gradients of states, and tiles of gradients those of the head.
constexpr PlanKind kPlans[] = {PlanKind::kOnePass, PlanKind::kTwoPass, PlanKind::kExpectedRow};

TEST(Lora, EveryTaskAndPlanHasTheGradientsOfTheWholeMatrix) {
  constexpr int64_t kRank = 3;
  const AdaptedHead<float> adapted(kVocab, kHidden, kRank, 1.75);
  FromHead with, plain;
  with.given = adapted.head();
  plain.given = adapted.plain();
  const double tolerance = adapted.tolerance(states_of(with));
  const Batch batch;
  for (const double softcap : {0.0, 3.0}) {
    with.given.softcap = plain.given.softcap = softcap;
    with.given.bias = plain.given.bias = {with.bias.data(), kVocab};
    for (const PlanKind plan : kPlansOfGradients) {
      SCOPED_TRACE(std::string(name_of(plan)) + " softcap " + std::to_string(softcap));
      std::vector<AdaptedOutputs<float>> got, want;
      const auto run = [&](const FromHead& source, bool lora, std::vector<AdaptedOutputs<float>>& all) {
        visit_every_task(source, batch, [&](const auto& task) {
          if (cannot_run(task, plan)) return;
          const Context context(small_tiles(plan));
          AdaptedOutputs<float>& one = all.emplace_back(kTokens, kVocab, kHidden, kRank, 99.0F);
          task.run(context, one.views(lora));
          if (plan == PlanKind::kOnePass) return;
          AdaptedOutputs<float>& apart = all.emplace_back(kTokens, kVocab, kHidden, kRank, 99.0F);
          task.backward(context, task.forward(context), 1.0, apart.views(lora));
        });
      };
      run(with, true, got);
      run(plain, false, want);
      ASSERT_EQ(got.size(), want.size());
      for (size_t i = 0; i < got.size(); ++i) {
        SCOPED_TRACE(i);
        expect_near(got[i].d_hidden, want[i].d_hidden, tolerance, "d_hidden");
        expect_near(got[i].d_weight, want[i].d_weight, tolerance, "d_weight");
        expect_near(got[i].d_a, adapted.d_a(want[i].d_weight), tolerance, "d_lora_a");
        expect_near(got[i].d_b, adapted.d_b(want[i].d_weight), tolerance, "d_lora_b");
      }
    }
  }
}

struct Sizes {
  int64_t tokens, vocab, hidden, rank;
};

// In float64 nothing but the order of sums differs.
TEST(Lora, HasTheLossAndGradientsOfTheWholeMatrixInDouble) {
  for (const Sizes& of : {Sizes{257, 301, 33, 1}, Sizes{130, 517, 65, 8}, Sizes{70, 99, 130, 64}, Sizes{1, 1, 1, 1},
                          Sizes{200, 64, 530, 600}}) {
    for (const PlanKind plan : kPlans) {
      for (const bool accumulate : {false, true}) {
        SCOPED_TRACE(std::string(name_of(plan)) + " rank " + std::to_string(of.rank));
        const AdaptedHead<double> adapted(of.vocab, of.hidden, of.rank, 0.6);
        const MatrixOf<double> hidden = drawn<double>(of.tokens, of.hidden, 7, 0.3);
        const double tolerance = adapted.tolerance(hidden);
        std::vector<int64_t> targets;
        for (int64_t i = 0; i < of.tokens; ++i) targets.push_back(i % 7 == 3 ? -100 : (i * 31) % of.vocab);
        CrossEntropy options;
        options.label_smoothing = 0.1;
        options.z_loss = 0.01;
        const HiddenStates states(ConstMatrix(hidden.data(), of.tokens, of.hidden));
        const auto run = [&](const LmHead& head, bool lora, AdaptedOutputs<double>& outputs) {
          Gradients views = outputs.views(lora);
          if (accumulate) {
            views.d_hidden_mode = views.d_weight_mode = views.d_lora_mode = WriteMode::kAccumulate;
          }
          const Context context(small_tiles(plan));
          return cross_entropy(context, states, head, Targets(targets.data(), of.tokens), options, views).loss;
        };
        const double before = accumulate ? 0.25 : std::numeric_limits<double>::quiet_NaN();
        AdaptedOutputs<double> got(of.tokens, of.vocab, of.hidden, of.rank, before), want = got;
        const double loss = run(adapted.head(), true, got);
        EXPECT_NEAR(loss, run(adapted.plain(), false, want), tolerance * std::fabs(loss));
        MatrixOf<double> d_whole = want.d_weight;
        if (accumulate) d_whole.array() -= before;
        if (plan == PlanKind::kExpectedRow && of.vocab == 1) {
          // Rows of the head that smoothing weighs cancel, and leave the z-loss alone.
          const double cancelled = options.label_smoothing * tolerance * adapted.whole.norm();
          EXPECT_LE((got.d_hidden - want.d_hidden).norm(), cancelled);
          const double d_a = got.d_a(0, 0) - (accumulate ? before : 0);
          const double of_b = std::fabs(adapted.scale * adapted.b(0, 0)) * hidden.norm();
          EXPECT_NEAR(d_a, adapted.d_a(d_whole)(0, 0), options.label_smoothing * tolerance * of_b + 0x1p-52);
          continue;
        }
        expect_near(got.d_hidden, want.d_hidden, tolerance, "d_hidden");
        expect_near(got.d_weight, want.d_weight, tolerance, "d_weight");
        const auto added = [&](MatrixOf<double> gradient) {
          if (accumulate) gradient.array() += before;
          return gradient;
        };
        expect_near(got.d_a, added(adapted.d_a(d_whole)), tolerance, "d_lora_a");
        expect_near(got.d_b, added(adapted.d_b(d_whole)), tolerance, "d_lora_b");
      }
    }
  }
}

// Each gradient alone has the bits that it has beside the others.
TEST(Lora, EachGradientMayBeWantedAlone) {
  constexpr int64_t kRank = 5;
  const AdaptedHead<float> adapted(kVocab, kHidden, kRank, 2);
  const FromHidden source;
  const Batch batch;
  for (const PlanKind plan : {PlanKind::kAuto, PlanKind::kOnePass, PlanKind::kTwoPass}) {
    SCOPED_TRACE(name_of(plan));
    const auto run = [&](const auto& choose) {
      AdaptedOutputs<float> outputs(kTokens, kVocab, kHidden, kRank, 99.0F);
      Gradients views = outputs.views(true);
      choose(views);
      cross_entropy(Context(small_tiles(plan)), source.states(), adapted.head(), batch.targets(), {}, views);
      return outputs;
    };
    const AdaptedOutputs<float> all = run([](Gradients&) {});
    EXPECT_EQ(run([](Gradients& g) { g.d_hidden = g.d_weight = g.d_lora_b = {}; }).d_a, all.d_a);
    EXPECT_EQ(run([](Gradients& g) { g.d_hidden = g.d_weight = g.d_lora_a = {}; }).d_b, all.d_b);
    EXPECT_EQ(run([](Gradients& g) { g.d_weight = {}; }).d_hidden, all.d_hidden);
    // Of a frozen head and a frozen LoRA, auto makes expected rows.
    const AdaptedOutputs<float> alone = run([](Gradients& g) { g.d_weight = g.d_lora_a = g.d_lora_b = {}; });
    if (plan == PlanKind::kAuto) {
      expect_near(alone.d_hidden, all.d_hidden, adapted.tolerance(states_of(source)), "d_hidden");
    } else {
      EXPECT_EQ(alone.d_hidden, all.d_hidden);
    }
  }
}

// 16-bit tensors of a LoRA, and of its gradients, which are rounded once.
TEST(Lora, MayBeOfAnyTypeBesideTheWeight) {
  constexpr int64_t kRank = 4;
  AdaptedHead<float> adapted(kVocab, kHidden, kRank, 2);
  const std::vector<bfloat16> a = narrowed(adapted.a), b = narrowed(adapted.b);
  LmHead narrow = adapted.head();
  narrow.lora.a = {a.data(), kRank, kHidden};
  narrow.lora.b = {b.data(), kVocab, kRank};
  const FromHidden source;
  const double tolerance = adapted.tolerance(states_of(source));
  const Batch batch;
  const auto check = [&](const ContextOptions& options) {
    AdaptedOutputs<float> wide(kTokens, kVocab, kHidden, kRank, 99.0F), got = wide;
    std::vector<bfloat16> d_a(a.size()), d_b(b.size());
    cross_entropy(Context(options), source.states(), adapted.head(), batch.targets(), {}, wide.views(true));
    Gradients views = got.views(true);
    views.d_lora_a = {d_a.data(), kRank, kHidden};
    views.d_lora_b = {d_b.data(), kVocab, kRank};
    const Plan plan = cross_entropy(Context(options), source.states(), narrow, batch.targets(), {}, views).plan;
    expect_near(got.d_hidden, wide.d_hidden, tolerance, "d_hidden");
    expect_rounded(d_a, wide.d_a, tolerance);
    expect_rounded(d_b, wide.d_b, tolerance);
    return plan.kind;
  };
  for (const PlanKind plan : kPlans) {
    SCOPED_TRACE(name_of(plan));
    check(small_tiles(plan));
  }
  ContextOptions sliced = small_tiles(PlanKind::kTwoPass);
  sliced.ranks.slices = {40, kVocab - 40};
  check(sliced);
  // Their sums are small, and stand beside any plan.
  EXPECT_EQ(check(small_tiles(PlanKind::kAuto)), PlanKind::kOnePass);
}

// The same bits whatever the team, also where rows of hidden stand apart and some take no part.
TEST(Lora, BitsDoNotDependOnThreads) {
  constexpr int64_t kRows = 300, kVocabulary = 517, kWidth = 600, kRank = 9;
  const AdaptedHead<float> adapted(kVocabulary, kWidth, kRank, 0.5);
  const MatrixOf<float> hidden = drawn<float>(2 * kRows, kWidth, 8, 0.2);
  std::vector<int64_t> targets;
  for (int64_t i = 0; i < kRows; ++i) targets.push_back(i % 5 == 1 ? -100 : (i * 17) % kVocabulary);
  const HiddenStates states(hidden.data(), 3, kRows / 3, kWidth, 2 * kRows / 3 * kWidth, kWidth);
  for (const PlanKind plan : {PlanKind::kOnePass, PlanKind::kTwoPass, PlanKind::kExpectedRow}) {
    SCOPED_TRACE(name_of(plan));
    const auto run = [&](int threads) {
      AdaptedOutputs<float> outputs(kRows, kVocabulary, kWidth, kRank, 99.0F);
      ContextOptions options = small_tiles(plan, threads);
      options.row_tile = 48;
      options.vocab_tile = 128;
      const double loss = cross_entropy(Context(options), states, adapted.head(), Targets(targets.data(), 3, kRows / 3),
                                        {}, outputs.views(true))
                              .loss;
      return std::tuple(loss, outputs.d_hidden, outputs.d_weight, outputs.d_a, outputs.d_b);
    };
    const auto one = run(1);
    for (const int threads : {2, 3, 7}) EXPECT_TRUE(run(threads) == one) << threads;
  }
}

// The other heads: a vocabulary that is chosen, and a packed weight.
TEST(Lora, GoesWithChosenEntriesAndPackedWeights) {
  constexpr int64_t kLarger = 307, kRank = 3;
  std::vector<int64_t> ids;
  for (int64_t k = 0; k < kVocab; ++k) ids.push_back((k * 89 + 13) % kLarger);
  const AdaptedHead<float> larger(kLarger, kHidden, kRank, 1.5);
  AdaptedHead<float> chosen(kVocab, kHidden, kRank, 1.5);
  chosen.a = larger.a;
  std::vector<int8_t> integers(kLarger * kHidden);
  const std::vector<float> scales(kLarger, 0.0625F);
  for (size_t i = 0; i < integers.size(); ++i)
    integers[i] = static_cast<int8_t>(static_cast<int64_t>(i * 37 % 61) - 30);
  for (const bool packed : {false, true}) {
    LmHead head = larger.head();
    if (packed) {
      head.weight = {};
      head.packed.data = integers.data();
      head.packed.rows = kLarger;
      head.packed.cols = kHidden;
      head.packed.scales = scales.data();
    }
    head.ids = ids;
    for (int64_t k = 0; k < kVocab; ++k) {
      const int64_t id = ids[static_cast<size_t>(k)];
      chosen.b.row(k) = larger.b.row(id);
      chosen.weight.row(k) = larger.weight.row(id);
      for (int64_t h = 0; packed && h < kHidden; ++h) {
        chosen.weight(k, h) = static_cast<float>(integers[static_cast<size_t>(id * kHidden + h)]) * 0.0625F;
      }
    }
    const FromHidden source;
    const Batch batch;
    const auto run = [&](const LmHead& of) {
      AdaptedOutputs<float> outputs(kTokens, kVocab, kHidden, kRank, 99.0F);
      Gradients views = outputs.views(true);
      views.d_weight = {};
      cross_entropy(Context(small_tiles(PlanKind::kTwoPass)), source.states(), of, batch.targets(), {}, views);
      return std::tuple(outputs.d_hidden, outputs.d_a, outputs.d_b);
    };
    EXPECT_TRUE(run(head) == run(chosen.head()));
  }
}

// What is made of hidden states elsewhere: the gradients of a and of hidden follow from that of the states.
TEST(Lora, StatesMayBeGivenInPlaceOfA) {
  constexpr int64_t kRank = 3;
  const AdaptedHead<float> adapted(kVocab, kHidden, kRank, 1.5);
  const FromHidden source;
  const Batch batch;
  const MatrixOf<float> hidden = states_of(source);
  const double tolerance = adapted.tolerance(hidden);
  const MatrixOf<float> states = 1.5F * hidden * adapted.a.transpose();
  LmHead given = adapted.head();
  given.lora.a = {};
  given.lora.scale = 1;
  given.lora.states = {states.data(), kTokens, kRank};
  const auto check = [&](const ContextOptions& options, const auto& call) {
    for (const float before : {99.0F, 0.5F}) {
      AdaptedOutputs<float> want(kTokens, kVocab, kHidden, kRank, 99.0F), got = want;
      MatrixOf<float> d_states = MatrixOf<float>::Constant(kTokens, kRank, before);
      const Context context(options);
      call(context, adapted.head(), want.views(true));
      Gradients views = got.views(true);
      views.d_lora_a = {};
      views.d_lora_states = AdaptedOutputs<float>::view(d_states);
      if (before != 99.0F) views.d_lora_mode = WriteMode::kAccumulate;
      if (before != 99.0F) got.d_b.setZero();
      call(context, given, views);
      if (before != 99.0F) d_states.array() -= before;
      d_states *= 1.5F;
      expect_near(got.d_b, want.d_b, tolerance, "d_lora_b");
      expect_near<float>(d_states.transpose() * hidden, want.d_a, tolerance, "d_lora_a");
      expect_near<float>(got.d_hidden + d_states * adapted.a, want.d_hidden, tolerance, "d_hidden");
    }
  };
  const auto cross_entropies = [&](const Context& context, const LmHead& head, const Gradients& gradients) {
    cross_entropy(context, source.states(), head, batch.targets(), {}, gradients);
  };
  for (const PlanKind plan : kPlans) check(small_tiles(plan), cross_entropies);
  ContextOptions sliced = small_tiles(PlanKind::kTwoPass);
  sliced.ranks.slices = {40, kVocab - 40};
  check(sliced, cross_entropies);
  check(small_tiles(PlanKind::kAuto), [&](const Context& context, const LmHead& head, const Gradients& gradients) {
    SetDistillation options;
    options.outside = OutsideSet::kRenormalised;
    set_distillation_loss(context, source.states(), head, batch.set_teacher(), {}, options, gradients);
  });
}

// A teacher and a reference model may have one, too.
TEST(Lora, TeachersAndReferencesMayHaveOne) {
  const AdaptedHead<float> adapted(kVocab, kHidden, 3, 1.5);
  const FromHidden source;
  const double tolerance = adapted.tolerance(states_of(source));
  const Batch batch;
  Teacher with = batch.teacher(), plain = with;
  with.head = adapted.head();
  plain.head = adapted.plain();
  Distillation options;
  options.loss_type = Divergence::kJsd;
  for (const PlanKind plan : kPlansOfGradients) {
    SCOPED_TRACE(name_of(plan));
    const Context context(small_tiles(plan));
    const auto distil = [&](const Teacher& teacher) {
      FromHidden::Outputs outputs;
      distillation_loss(context, source.states(), source.head(), teacher, batch.targets(), options, outputs.views());
      return outputs.values();
    };
    const std::vector<float> got = distil(with), want = distil(plain);
    const auto flat = [](const std::vector<float>& values) -> MatrixOf<float> {
      return Eigen::Map<const MatrixOf<float>>(values.data(), 1, static_cast<int64_t>(values.size()));
    };
    expect_near(flat(got), flat(want), tolerance, "gradients");
    Reference reference = batch.reference_model(), of_whole = reference;
    reference.head = adapted.head();
    of_whole.head = adapted.plain();
    const auto loss = [&](const Reference& of) {
      return preference_loss(context, source.states(), source.head(), batch.targets(), of, {}).loss;
    };
    EXPECT_NEAR(loss(reference), loss(of_whole), kTime * tolerance * std::fabs(loss(of_whole)));
  }
}

// Rows over sets of token ids gather the head's rows, and a LoRA's beside them.
TEST(Lora, GoesWithSetsOfIds) {
  constexpr int64_t kRank = 3;
  const AdaptedHead<float> adapted(kVocab, kHidden, kRank, 1.25);
  const FromHidden source;
  const double tolerance = adapted.tolerance(states_of(source));
  const Batch batch;
  for (const OutsideSet outside : {OutsideSet::kRenormalised, OutsideSet::kTail}) {
    for (const double softcap : {0.0, 3.0}) {
      SetDistillation options;
      options.outside = outside;
      const auto run = [&](LmHead head, bool lora) {
        head.softcap = softcap;
        AdaptedOutputs<float> outputs(kTokens, kVocab, kHidden, kRank, 99.0F);
        set_distillation_loss(Context(small_tiles(PlanKind::kAuto)), source.states(), head, batch.set_teacher(), {},
                              options, outputs.views(lora));
        return outputs;
      };
      const AdaptedOutputs<float> got = run(adapted.head(), true), want = run(adapted.plain(), false);
      expect_near(got.d_hidden, want.d_hidden, tolerance, "d_hidden");
      expect_near(got.d_weight, want.d_weight, tolerance, "d_weight");
      expect_near(got.d_a, adapted.d_a(want.d_weight), tolerance, "d_lora_a");
      expect_near(got.d_b, adapted.d_b(want.d_weight), tolerance, "d_lora_b");
    }
  }
}

}  // namespace
}  // namespace logitless::testing

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Heads with a LoRA against the matrix W + scale · b · a that they stand for, whose gradient G [V, H] gives
// d_b = scale · G aᵀ and d_a = scale · bᵀ G.
#include <gtest/gtest.h>

#include <Eigen/Core>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "logitless/logitless.h"
#include "support/every_task.h"
#include "support/refusal.h"
#include "support/thread_ranks.h"

namespace logitless::testing {
namespace {

constexpr PlanKind kPlans[] = {PlanKind::kOnePass, PlanKind::kTwoPass, PlanKind::kDense};
template <class T>
using MatrixOf = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

ContextOptions options_of(PlanKind plan, int threads = 2) {
  ContextOptions options;
  options.plan = plan;
  options.threads = threads;
  options.row_tile = 8;
  options.vocab_tile = 32;
  return options;
}

template <class T>
MatrixOf<T> drawn(int64_t rows, int64_t cols, uint64_t seed, double scale = 1) {
  const std::vector<float> values = normal(static_cast<size_t>(rows * cols), seed, scale);
  return Eigen::Map<const MatrixOf<float>>(values.data(), rows, cols).cast<T>();
}

// A weight, its LoRA, and the matrix that both stand for.
template <class T>
struct Adapted {
  MatrixOf<T> weight, a, b, whole;
  double scale;

  Adapted(int64_t vocab, int64_t hidden, int64_t rank, double scale_, uint64_t seed = 60)
      : weight(drawn<T>(vocab, hidden, seed)),
        a(drawn<T>(rank, hidden, seed + 1, 0.5)),
        b(drawn<T>(vocab, rank, seed + 2, 0.5)),
        scale(scale_) {
    whole = (weight.template cast<double>() + scale * b.template cast<double>() * a.template cast<double>())
                .template cast<T>();
  }
  void give(LmHead& head) const {
    head.lora.a = {a.data(), a.rows(), a.cols()};
    head.lora.b = {b.data(), b.rows(), b.cols()};
    head.lora.scale = scale;
  }
  LmHead head() const {
    LmHead out(ConstMatrix(weight.data(), weight.rows(), weight.cols()));
    give(out);
    return out;
  }
  LmHead plain() const { return LmHead(ConstMatrix(whole.data(), whole.rows(), whole.cols())); }
  MatrixOf<T> d_a(const MatrixOf<T>& d_whole) const { return static_cast<T>(scale) * b.transpose() * d_whole; }
  MatrixOf<T> d_b(const MatrixOf<T>& d_whole) const { return static_cast<T>(scale) * d_whole * a.transpose(); }
};

template <class T>
struct Outputs {
  MatrixOf<T> d_hidden, d_weight, d_a, d_b;

  Outputs(int64_t tokens, int64_t vocab, int64_t hidden, int64_t rank, T value)
      : d_hidden(MatrixOf<T>::Constant(tokens, hidden, value)),
        d_weight(MatrixOf<T>::Constant(vocab, hidden, value)),
        d_a(MatrixOf<T>::Constant(rank, hidden, value)),
        d_b(MatrixOf<T>::Constant(vocab, rank, value)) {}

  static Matrix view(MatrixOf<T>& of) { return {of.data(), of.rows(), of.cols()}; }
  Gradients views(bool lora) {
    Gradients out;
    out.d_hidden = view(d_hidden);
    out.d_weight = view(d_weight);
    if (lora) out.d_lora_a = view(d_a);
    if (lora) out.d_lora_b = view(d_b);
    return out;
  }
};

template <class T>
void expect_near(const MatrixOf<T>& got, const MatrixOf<T>& want, double tolerance, const char* what) {
  const double scale = want.template cast<double>().norm();
  EXPECT_LE((got.template cast<double>() - want.template cast<double>()).norm(), tolerance * scale) << what;
}

// A source whose head is given.
struct FromHead : FromHidden {
  LmHead given;
  LmHead head() const { return given; }
  template <class Function, class... Arguments>
  auto call(Function&& function, const Context& context, Arguments&&... arguments) const {
    return function(context, states(), given, arguments...);
  }
};

TEST(Lora, EveryTaskAndPlanHasTheGradientsOfTheWholeMatrix) {
  constexpr int64_t kRank = 3;
  const Adapted<float> adapted(kVocab, kHidden, kRank, 1.75);
  FromHead with, plain;
  with.given = adapted.head();
  plain.given = adapted.plain();
  const Batch batch;
  for (const double softcap : {0.0, 3.0}) {
    with.given.softcap = plain.given.softcap = softcap;
    with.given.bias = plain.given.bias = {with.bias.data(), kVocab};
    for (const PlanKind plan : kPlans) {
      SCOPED_TRACE(std::string(name_of(plan)) + " softcap " + std::to_string(softcap));
      std::vector<Outputs<float>> got, want;
      const auto run = [&](const FromHead& source, bool lora, std::vector<Outputs<float>>& all) {
        visit_every_task(source, batch, [&](const auto& task) {
          if (cannot_run(task, plan)) return;
          const Context context(options_of(plan));
          Outputs<float>& one = all.emplace_back(kTokens, kVocab, kHidden, kRank, 99.0F);
          task.run(context, one.views(lora));
          if (plan == PlanKind::kOnePass) return;
          Outputs<float>& apart = all.emplace_back(kTokens, kVocab, kHidden, kRank, 99.0F);
          task.backward(context, task.forward(context), 1.0, apart.views(lora));
        });
      };
      run(with, true, got);
      run(plain, false, want);
      ASSERT_EQ(got.size(), want.size());
      for (size_t i = 0; i < got.size(); ++i) {
        SCOPED_TRACE(i);
        expect_near(got[i].d_hidden, want[i].d_hidden, 2e-5, "d_hidden");
        expect_near(got[i].d_weight, want[i].d_weight, 2e-5, "d_weight");
        expect_near(got[i].d_a, adapted.d_a(want[i].d_weight), 2e-5, "d_lora_a");
        expect_near(got[i].d_b, adapted.d_b(want[i].d_weight), 2e-5, "d_lora_b");
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
        const Adapted<double> adapted(of.vocab, of.hidden, of.rank, 0.6);
        const MatrixOf<double> hidden = drawn<double>(of.tokens, of.hidden, 7, 0.3);
        std::vector<int64_t> targets;
        for (int64_t i = 0; i < of.tokens; ++i) targets.push_back(i % 7 == 3 ? -100 : (i * 31) % of.vocab);
        CrossEntropyOptions options;
        options.label_smoothing = 0.1;
        options.z_loss = 0.01;
        const HiddenStates states(ConstMatrix(hidden.data(), of.tokens, of.hidden));
        const auto run = [&](const LmHead& head, bool lora, Outputs<double>& outputs) {
          Gradients views = outputs.views(lora);
          if (accumulate) {
            views.d_hidden_mode = views.d_weight_mode = views.d_lora_mode = WriteMode::kAccumulate;
          }
          const Context context(options_of(plan));
          return cross_entropy(context, states, head, Targets(targets.data(), of.tokens), options, views).loss;
        };
        const double before = accumulate ? 0.25 : std::numeric_limits<double>::quiet_NaN();
        Outputs<double> got(of.tokens, of.vocab, of.hidden, of.rank, before), want = got;
        const double loss = run(adapted.head(), true, got);
        EXPECT_NEAR(loss, run(adapted.plain(), false, want), 1e-12 * std::fabs(loss));
        MatrixOf<double> d_whole = want.d_weight;
        if (accumulate) d_whole.array() -= before;
        expect_near(got.d_hidden, want.d_hidden, 1e-12, "d_hidden");
        expect_near(got.d_weight, want.d_weight, 1e-12, "d_weight");
        const auto added = [&](MatrixOf<double> gradient) {
          if (accumulate) gradient.array() += before;
          return gradient;
        };
        expect_near(got.d_a, added(adapted.d_a(d_whole)), 1e-12, "d_lora_a");
        expect_near(got.d_b, added(adapted.d_b(d_whole)), 1e-12, "d_lora_b");
      }
    }
  }
}

// Each gradient alone has the bits that it has beside the others.
TEST(Lora, EachGradientMayBeWantedAlone) {
  constexpr int64_t kRank = 5;
  const Adapted<float> adapted(kVocab, kHidden, kRank, 2);
  const FromHidden source;
  const Batch batch;
  for (const PlanKind plan : {PlanKind::kAuto, PlanKind::kOnePass, PlanKind::kTwoPass, PlanKind::kDense}) {
    SCOPED_TRACE(name_of(plan));
    const auto run = [&](const auto& choose) {
      Outputs<float> outputs(kTokens, kVocab, kHidden, kRank, 99.0F);
      Gradients views = outputs.views(true);
      choose(views);
      cross_entropy(Context(options_of(plan)), source.states(), adapted.head(), batch.targets(), {}, views);
      return outputs;
    };
    const Outputs<float> all = run([](Gradients&) {});
    EXPECT_EQ(run([](Gradients& g) { g.d_hidden = g.d_weight = g.d_lora_b = {}; }).d_a, all.d_a);
    EXPECT_EQ(run([](Gradients& g) { g.d_hidden = g.d_weight = g.d_lora_a = {}; }).d_b, all.d_b);
    EXPECT_EQ(run([](Gradients& g) { g.d_weight = {}; }).d_hidden, all.d_hidden);
  }
}

// 16-bit tensors of a LoRA, and of its gradients, which are rounded once.
TEST(Lora, MayBeOfAnyTypeBesideTheWeight) {
  constexpr int64_t kRank = 4;
  const auto cast = [](float x) { return bfloat16{static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16)}; };
  const auto widen = [](bfloat16 x) { return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16); };
  Adapted<float> adapted(kVocab, kHidden, kRank, 2);
  std::vector<bfloat16> a, b;
  for (float& x : std::span(adapted.a.data(), static_cast<size_t>(adapted.a.size())))
    x = widen(a.emplace_back(cast(x)));
  for (float& x : std::span(adapted.b.data(), static_cast<size_t>(adapted.b.size())))
    x = widen(b.emplace_back(cast(x)));
  LmHead narrow = adapted.head();
  narrow.lora.a = {a.data(), kRank, kHidden};
  narrow.lora.b = {b.data(), kVocab, kRank};
  const FromHidden source;
  const Batch batch;
  for (const PlanKind plan : kPlans) {
    SCOPED_TRACE(name_of(plan));
    Outputs<float> wide(kTokens, kVocab, kHidden, kRank, 99.0F), got = wide;
    std::vector<bfloat16> d_a(a.size()), d_b(b.size());
    const Context context(options_of(plan));
    cross_entropy(context, source.states(), adapted.head(), batch.targets(), {}, wide.views(true));
    Gradients views = got.views(true);
    views.d_lora_a = {d_a.data(), kRank, kHidden};
    views.d_lora_b = {d_b.data(), kVocab, kRank};
    cross_entropy(context, source.states(), narrow, batch.targets(), {}, views);
    expect_near(got.d_hidden, wide.d_hidden, 1e-6, "d_hidden");
    for (size_t i = 0; i < d_a.size(); ++i) {
      EXPECT_NEAR(widen(d_a[i]), wide.d_a.data()[i], std::fabs(wide.d_a.data()[i]) / 250 + 1e-9);
    }
    for (size_t i = 0; i < d_b.size(); ++i) {
      EXPECT_NEAR(widen(d_b[i]), wide.d_b.data()[i], std::fabs(wide.d_b.data()[i]) / 250 + 1e-9);
    }
  }
}

// The same bits whatever the team, also where rows of hidden stand apart and some take no part.
TEST(Lora, BitsDoNotDependOnThreads) {
  constexpr int64_t kRows = 300, kVocabulary = 517, kWidth = 600, kRank = 9;
  const Adapted<float> adapted(kVocabulary, kWidth, kRank, 0.5);
  const MatrixOf<float> hidden = drawn<float>(2 * kRows, kWidth, 8, 0.2);
  std::vector<int64_t> targets;
  for (int64_t i = 0; i < kRows; ++i) targets.push_back(i % 5 == 1 ? -100 : (i * 17) % kVocabulary);
  const HiddenStates states(hidden.data(), 3, kRows / 3, kWidth, 2 * kRows / 3 * kWidth, kWidth);
  for (const PlanKind plan : {PlanKind::kOnePass, PlanKind::kTwoPass}) {
    SCOPED_TRACE(name_of(plan));
    const auto run = [&](int threads) {
      Outputs<float> outputs(kRows, kVocabulary, kWidth, kRank, 99.0F);
      ContextOptions options = options_of(plan, threads);
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
  const Adapted<float> larger(kLarger, kHidden, kRank, 1.5);
  Adapted<float> chosen(kVocab, kHidden, kRank, 1.5);
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
      Outputs<float> outputs(kTokens, kVocab, kHidden, kRank, 99.0F);
      Gradients views = outputs.views(true);
      views.d_weight = {};
      cross_entropy(Context(options_of(PlanKind::kTwoPass)), source.states(), of, batch.targets(), {}, views);
      return std::tuple(outputs.d_hidden, outputs.d_a, outputs.d_b);
    };
    EXPECT_TRUE(run(head) == run(chosen.head()));
  }
}

// What is made of hidden states elsewhere: the gradients of a and of hidden follow from that of the states.
TEST(Lora, StatesMayBeGivenInPlaceOfA) {
  constexpr int64_t kRank = 3;
  const Adapted<float> adapted(kVocab, kHidden, kRank, 1.5);
  const FromHidden source;
  const Batch batch;
  const MatrixOf<float> hidden = Eigen::Map<const MatrixOf<float>>(source.hidden.data(), kTokens, kHidden);
  const MatrixOf<float> states = 1.5F * hidden * adapted.a.transpose();
  LmHead given = adapted.head();
  given.lora.a = {};
  given.lora.scale = 1;
  given.lora.states = {states.data(), kTokens, kRank};
  const auto check = [&](const ContextOptions& options, const auto& call) {
    for (const float before : {99.0F, 0.5F}) {
      Outputs<float> want(kTokens, kVocab, kHidden, kRank, 99.0F), got = want;
      MatrixOf<float> d_states = MatrixOf<float>::Constant(kTokens, kRank, before);
      const Context context(options);
      call(context, adapted.head(), want.views(true));
      Gradients views = got.views(true);
      views.d_lora_a = {};
      views.d_lora_states = Outputs<float>::view(d_states);
      if (before != 99.0F) views.d_lora_mode = WriteMode::kAccumulate;
      if (before != 99.0F) got.d_b.setZero();
      call(context, given, views);
      if (before != 99.0F) d_states.array() -= before;
      d_states *= 1.5F;
      expect_near(got.d_b, want.d_b, 1e-5, "d_lora_b");
      expect_near<float>(d_states.transpose() * hidden, want.d_a, 1e-5, "d_lora_a");
      expect_near<float>(got.d_hidden + d_states * adapted.a, want.d_hidden, 1e-5, "d_hidden");
    }
  };
  const auto cross_entropies = [&](const Context& context, const LmHead& head, const Gradients& gradients) {
    cross_entropy(context, source.states(), head, batch.targets(), {}, gradients);
  };
  for (const PlanKind plan : kPlans) check(options_of(plan), cross_entropies);
  ContextOptions sliced = options_of(PlanKind::kTwoPass);
  sliced.ranks.slices = {40, kVocab - 40};
  check(sliced, cross_entropies);
  check(options_of(PlanKind::kAuto), [&](const Context& context, const LmHead& head, const Gradients& gradients) {
    SetDistillationOptions options;
    options.outside = OutsideSet::kRenormalised;
    set_distillation_loss(context, source.states(), head, batch.set_teacher(), {}, options, gradients);
  });
}

// A teacher and a reference model may have one, too.
TEST(Lora, TeachersAndReferencesMayHaveOne) {
  const Adapted<float> adapted(kVocab, kHidden, 3, 1.5);
  const FromHidden source;
  const Batch batch;
  Teacher with = batch.teacher(), plain = with;
  with.head = adapted.head();
  plain.head = adapted.plain();
  DistillationOptions options;
  options.divergence = Divergence::kJsd;
  for (const PlanKind plan : kPlans) {
    SCOPED_TRACE(name_of(plan));
    const Context context(options_of(plan));
    const auto distil = [&](const Teacher& teacher) {
      FromHidden::Outputs outputs;
      distillation_loss(context, source.states(), source.head(), teacher, batch.targets(), options, outputs.views());
      return outputs.values();
    };
    const std::vector<float> got = distil(with), want = distil(plain);
    for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 2e-6) << i;
    Reference reference = batch.reference_model(), of_whole = reference;
    reference.head = adapted.head();
    of_whole.head = adapted.plain();
    const auto loss = [&](const Reference& of) {
      return preference_loss(context, source.states(), source.head(), batch.targets(), of, {}).loss;
    };
    EXPECT_NEAR(loss(reference), loss(of_whole), 1e-5);
  }
}

// Rows over sets of token ids gather the head's rows, and a LoRA's beside them.
TEST(Lora, GoesWithSetsOfIds) {
  constexpr int64_t kRank = 3;
  const Adapted<float> adapted(kVocab, kHidden, kRank, 1.25);
  const FromHidden source;
  const Batch batch;
  for (const OutsideSet outside : {OutsideSet::kRenormalised, OutsideSet::kTail}) {
    for (const double softcap : {0.0, 3.0}) {
      SetDistillationOptions options;
      options.outside = outside;
      const auto run = [&](LmHead head, bool lora) {
        head.softcap = softcap;
        Outputs<float> outputs(kTokens, kVocab, kHidden, kRank, 99.0F);
        set_distillation_loss(Context(options_of(PlanKind::kAuto)), source.states(), head, batch.set_teacher(), {},
                              options, outputs.views(lora));
        return outputs;
      };
      const Outputs<float> got = run(adapted.head(), true), want = run(adapted.plain(), false);
      expect_near(got.d_hidden, want.d_hidden, 1e-5, "d_hidden");
      expect_near(got.d_weight, want.d_weight, 1e-5, "d_weight");
      expect_near(got.d_a, adapted.d_a(want.d_weight), 1e-5, "d_lora_a");
      expect_near(got.d_b, adapted.d_b(want.d_weight), 1e-5, "d_lora_b");
    }
  }
}

// Two ranks share a vocabulary, or the tokens of a batch: the gradients are those of one process.
TEST(Lora, RanksShareItsGradients) {
  constexpr int64_t kRank = 3, kRankTokens = kTokens / 2;
  const Adapted<float> adapted(kVocab, kHidden, kRank, 1.5);
  const FromHidden source;
  const Batch batch;
  CrossEntropyOptions sum;
  sum.reduction = Reduction::kSum;
  const std::vector<int64_t> cut = {40, kVocab - 40};
  for (const bool accumulate : {false, true}) {
    const auto modes = [&](Gradients& g) {
      if (accumulate) g.d_hidden_mode = g.d_weight_mode = g.d_lora_mode = WriteMode::kAccumulate;
    };
    Outputs<float> want(kTokens, kVocab, kHidden, kRank, 0.5F), sliced = want;
    Gradients views = want.views(true);
    modes(views);
    cross_entropy(Context(options_of(PlanKind::kTwoPass)), source.states(), adapted.head(), batch.targets(), sum,
                  views);
    const auto expect_want = [&](const Outputs<float>& got, int rank) {
      SCOPED_TRACE(rank);
      expect_near(got.d_hidden, want.d_hidden, 1e-5, "d_hidden");
      expect_near(got.d_a, want.d_a, 1e-5, "d_lora_a");
      expect_near(got.d_b, want.d_b, 1e-5, "d_lora_b");
    };

    ContextOptions slices = options_of(PlanKind::kTwoPass);
    slices.ranks.slices = cut;
    views = sliced.views(true);
    modes(views);
    cross_entropy(Context(slices), source.states(), adapted.head(), batch.targets(), sum, views);
    expect_want(sliced, -1);

    // Each rank has some vocabulary entries, all of d_hidden and d_a, and d_b of its own entries.
    ThreadGroup vocab(2);
    std::vector<Outputs<float>> of_rank(2, Outputs<float>(kTokens, kVocab, kHidden, kRank, 0.5F));
    for (const auto& error : run_ranks(2, [&](int rank) {
           const auto r = static_cast<size_t>(rank);
           ContextOptions options = options_of(PlanKind::kTwoPass);
           options.ranks.vocab = &vocab.of(rank);
           const int64_t first = rank == 0 ? 0 : cut[0];
           LmHead head(ConstMatrix(adapted.weight.data() + first * kHidden, cut[r], kHidden));
           adapted.give(head);
           head.lora.b = {adapted.b.data() + first * kRank, cut[r], kRank};
           Gradients outputs = of_rank[r].views(true);
           outputs.d_weight = {};
           outputs.d_lora_b = {of_rank[r].d_b.data() + first * kRank, cut[r], kRank};
           modes(outputs);
           cross_entropy(Context(options), source.states(), head, batch.targets(), sum, outputs);
         })) {
      EXPECT_EQ(message_of(error), "");
    }
    of_rank[0].d_b.bottomRows(cut[1]) = of_rank[1].d_b.bottomRows(cut[1]);
    of_rank[1].d_b = of_rank[0].d_b;
    for (int rank = 0; rank < 2; ++rank) {
      expect_want(of_rank[static_cast<size_t>(rank)], rank);
      EXPECT_TRUE(of_rank[static_cast<size_t>(rank)].d_a == sliced.d_a);
    }
    if (accumulate) continue;

    // Each rank has some tokens, and the sums of d_a and d_b.
    ThreadGroup data(2);
    std::vector<Outputs<float>> of_part(2, Outputs<float>(kRankTokens, kVocab, kHidden, kRank, 0.5F));
    for (const auto& error : run_ranks(2, [&](int rank) {
           ContextOptions options = options_of(PlanKind::kTwoPass);
           options.ranks.data = &data.of(rank);
           options.ranks.sum_d_weight = true;
           const HiddenStates part(source.hidden.data() + rank * kRankTokens * kHidden, kBatch / 2, kTime, kHidden);
           cross_entropy(Context(options), part, adapted.head(),
                         Targets(batch.ids.data() + rank * kRankTokens, kBatch / 2, kTime), sum,
                         of_part[static_cast<size_t>(rank)].views(true));
         })) {
      EXPECT_EQ(message_of(error), "");
    }
    for (const Outputs<float>& got : of_part) {
      expect_near(got.d_weight, want.d_weight, 1e-5, "d_weight");
      expect_near(got.d_a, want.d_a, 1e-5, "d_lora_a");
      expect_near(got.d_b, want.d_b, 1e-5, "d_lora_b");
    }
  }
}

TEST(Lora, SaysWhatIsWrong) {
  constexpr int64_t kRank = 3;
  const Adapted<float> adapted(kVocab, kHidden, kRank, 1);
  const FromHidden source;
  const Batch batch;
  const auto refused = [&](const std::string& why, const auto& set) {
    Outputs<float> outputs(kTokens, kVocab, kHidden, kRank, 99.0F);
    LmHead head = adapted.head();
    Gradients views = outputs.views(true);
    set(head, views);
    expect_invalid_input({why}, [&] { cross_entropy(Context(), source.states(), head, batch.targets(), {}, views); });
    EXPECT_EQ(outputs.d_hidden, (MatrixOf<float>::Constant(kTokens, kHidden, 99.0F)));
  };
  refused("lora.a has 6 columns but hidden has 7", [](LmHead& h, Gradients&) { h.lora.a.cols = 6; });
  refused("lora.b has 100 rows but the vocabulary has 101", [](LmHead& h, Gradients&) { h.lora.b.rows = 100; });
  refused("lora.b has 2 columns but lora.a has 3 rows", [](LmHead& h, Gradients&) { h.lora.b.cols = 2; });
  refused("lora.a.data is null", [](LmHead& h, Gradients&) { h.lora.a.data = nullptr; });
  refused("lora.scale = inf", [](LmHead& h, Gradients&) { h.lora.scale = std::numeric_limits<double>::infinity(); });
  refused("d_lora_a is [2, 7] but lora.a is [3, 7]", [](LmHead&, Gradients& g) { g.d_lora_a.rows = 2; });
  refused("d_lora_b is [101, 2] but lora.b is [101, 3]", [](LmHead&, Gradients& g) { g.d_lora_b.cols = 2; });
  refused("d_lora_a is set but the head has no lora.a", [](LmHead& h, Gradients&) { h.lora = {}; });
  const std::vector<float> states(kTokens * kRank);
  const auto with_states = [&](LmHead& h, Gradients& g) {
    h.lora.a = {};
    h.lora.states = {states.data(), kTokens, kRank};
    g.d_lora_a = {};
  };
  refused("lora.a and lora.states are both set", [&](LmHead& h, Gradients& g) {
    const ConstMatrix a = h.lora.a;
    with_states(h, g);
    h.lora.a = a;
  });
  refused("lora.states has 19 rows but hidden has 20", [&](LmHead& h, Gradients& g) {
    with_states(h, g);
    h.lora.states.rows = 19;
  });
  refused("lora.scale = 2 must be 1 with lora.states", [&](LmHead& h, Gradients& g) {
    with_states(h, g);
    h.lora.scale = 2;
  });
  refused("d_lora_a is set but the head has no lora.a", [&](LmHead& h, Gradients& g) {
    const Matrix d_a = g.d_lora_a;
    with_states(h, g);
    g.d_lora_a = d_a;
  });
  refused("overlap", [](LmHead&, Gradients& g) { g.d_lora_a.data = g.d_lora_b.data; });
  refused("backward.mode = sampled cannot run: the head has a LoRA",
          [](LmHead&, Gradients& g) { g.backward.mode = BackwardMode::kSampled; });
}

}  // namespace
}  // namespace logitless::testing

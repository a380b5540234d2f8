// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Ranks that have parts of a batch, and a grid of ranks that share the vocabulary too: losses, metrics and
// gradients are those of one process.
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "support/calls.h"
#include "support/every_task.h"
#include "support/thread_ranks.h"
#include "support/views.h"

namespace logitless::testing {
namespace {

// A call on some sequences of a batch, and some vocabulary entries of its head.
struct Part {
  FromHidden source;
  Batch batch;
  std::vector<int64_t> sequences;

  HiddenStates states() const { return {source.hidden.data(), static_cast<int64_t>(sequences.size()), kTime, kHidden}; }
  Targets targets() const { return {batch.ids.data(), static_cast<int64_t>(sequences.size()), kTime}; }
};

template <class T>
std::vector<T> rows_of(const std::vector<T>& all, const std::vector<int64_t>& sequences, int64_t per_sequence) {
  std::vector<T> out;
  for (const int64_t s : sequences) {
    const auto begin = all.begin() + s * per_sequence;
    out.insert(out.end(), begin, begin + per_sequence);
  }
  return out;
}

Part part_of(const std::vector<int64_t>& sequences, int64_t first_entry = 0, int64_t entries = kVocab) {
  Part part;
  part.sequences = sequences;
  part.source.hidden = rows_of(part.source.hidden, sequences, kTime * kHidden);
  part.source.first_entry = first_entry;
  part.source.entries = entries;
  Batch& b = part.batch;
  b.ids = rows_of(b.ids, sequences, kTime);
  b.mask = rows_of(b.mask, sequences, kTime);
  b.old_logps = rows_of(b.old_logps, sequences, kTime);
  b.ref_logps = rows_of(b.ref_logps, sequences, kTime);
  b.labels = rows_of(b.labels, sequences, 1);
  b.advantages = rows_of(b.advantages, sequences, 1);
  b.sums = rows_of(b.sums, sequences, 1);
  return part;
}

// What a call leaves: numbers of the whole batch, and its gradients.
struct Left {
  std::vector<double> numbers;
  std::vector<float> d_hidden, d_weight, d_bias;
};

using Call = std::function<std::vector<double>(const Context&, const Part&, const Gradients&)>;

struct Task {
  const char* name;
  bool pairs;  // the first half of the sequences stands beside the second
  Call call;
};

std::vector<Task> tasks() {
  std::vector<Task> out;
  for (const Reduction reduction : {Reduction::kMean, Reduction::kSum}) {
    out.push_back({"cross_entropy", false, [reduction](const Context& context, const Part& p, const Gradients& g) {
                     CrossEntropy options;
                     options.reduction = reduction;
                     options.label_smoothing = 0.1;
                     options.z_loss = 0.01;
                     options.dft = reduction == Reduction::kSum;
                     options.want_entropy = options.want_accuracy = true;
                     return numbers(cross_entropy(context, p.states(), p.source.head(), p.targets(), options, g));
                   }});
  }
  for (const PolicyLossType variant : all_of<PolicyLossType>()) {
    // These look at the whole batch, and are refused (rank_options_test.cc).
    if (variant == PolicyLossType::kClipCov || variant == PolicyLossType::kKlCov) continue;
    out.push_back({name_of(variant), false, [variant](const Context& context, const Part& p, const Gradients& g) {
                     PolicyLoss options;
                     options.loss_type = variant;
                     // The gradient of k2 is linear in the log-ratio. That of k3 holds its exponential, which
                     // is large for these inputs and multiplies the rounding of a log-probability.
                     options.kl_estimator = KlEstimator::kK2;
                     options.beta = 0.04;
                     if (variant != PolicyLossType::kTopr) options.entropy_bonus = 0.02;
                     if (variant == PolicyLossType::kDrGrpo) options.max_completion_length = 5;
                     const bool scored = variant == PolicyLossType::kTopr || variant == PolicyLossType::kGmpo;
                     if (variant == PolicyLossType::kGmpo) options.positive_nll_weight = 0.1;
                     if (variant == PolicyLossType::kGrpo) options.count_empty_sequences = false;
                     PolicyBatch batch;
                     if (scored) batch.scores = {p.batch.advantages.data(), static_cast<int64_t>(p.sequences.size())};
                     batch.chosen_ids = p.targets();
                     batch.advantages = {p.batch.advantages.data(), static_cast<int64_t>(p.sequences.size())};
                     batch.old_logps = {p.batch.old_logps.data(), static_cast<int64_t>(p.batch.old_logps.size())};
                     batch.ref_logps = {p.batch.ref_logps.data(), static_cast<int64_t>(p.batch.ref_logps.size())};
                     batch.mask = p.batch.mask;
                     return numbers(policy_loss(context, p.states(), p.source.head(), batch, options, g));
                   }});
  }
  out.push_back({"preference_loss", true, [](const Context& context, const Part& p, const Gradients& g) {
                   PreferenceLoss options;
                   options.loss_type = {PreferenceLossType::kSigmoid, PreferenceLossType::kSft};
                   options.loss_weights = {1, 0.5};
                   options.want_entropy = true;
                   Reference reference;
                   reference.logps = {p.batch.sums.data(), static_cast<int64_t>(p.batch.sums.size())};
                   return numbers(
                       preference_loss(context, p.states(), p.source.head(), p.targets(), reference, options, g));
                 }});
  out.push_back({"preference_loss with tails, weights and scores", true,
                 [](const Context& context, const Part& p, const Gradients& g) {
                   PreferenceLoss options;
                   options.loss_type = {PreferenceLossType::kSigmoidNorm, PreferenceLossType::kIpo};
                   options.f_divergence = FDivergence::kJs;
                   options.ld_alpha = 0.5;
                   options.use_weighting = true;
                   Reference reference;
                   reference.logps = {p.batch.ref_logps.data(), static_cast<int64_t>(p.batch.ref_logps.size())};
                   return numbers(
                       preference_loss(context, p.states(), p.source.head(), p.targets(), reference, options, g));
                 }});
  for (const KtoLossType loss : all_of<KtoLossType>()) {
    out.push_back({name_of(loss), false, [loss](const Context& context, const Part& p, const Gradients& g) {
                     KtoBatch batch;
                     batch.targets = p.targets();
                     batch.labels = p.batch.labels;
                     batch.reference.logps = {p.batch.sums.data(), static_cast<int64_t>(p.batch.sums.size())};
                     if (loss == KtoLossType::kKto) batch.kl_logps = batch.kl_ref_logps = batch.reference.logps;
                     const ConstVector advantages(p.batch.advantages.data(),
                                                  static_cast<int64_t>(p.batch.advantages.size()));
                     if (loss == KtoLossType::kA2po) batch.reward_targets = advantages;
                     KtoLoss options;
                     options.loss_type = loss;
                     options.want_entropy = true;
                     return numbers(kto_loss(context, p.states(), p.source.head(), batch, options, g));
                   }});
  }
  return out;
}

Left run(const Task& task, const ContextOptions& options, const Part& part) {
  const int64_t rows = static_cast<int64_t>(part.sequences.size()) * kTime, entries = part.source.entries;
  Left left;
  left.d_hidden.assign(static_cast<size_t>(rows * kHidden), 99.0F);
  left.d_weight.assign(static_cast<size_t>(entries * kHidden), 99.0F);
  left.d_bias.assign(static_cast<size_t>(entries), 99.0F);
  Gradients gradients;
  gradients.d_hidden = {left.d_hidden.data(), rows, kHidden};
  gradients.d_weight = {left.d_weight.data(), entries, kHidden};
  gradients.d_bias = {left.d_bias.data(), entries};
  left.numbers = task.call(Context(options), part, gradients);
  return left;
}

template <class T>
void expect_near(const std::vector<T>& got, const std::vector<T>& want, double bound, const char* what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(want[i]) && std::isnan(got[i])) continue;
    EXPECT_NEAR(got[i], want[i], bound * (1 + std::abs(want[i]))) << what << " " << i;
  }
}

TEST(DataRanks, HaveTheLossesOfOneProcess) {
  // Three ranks have one, two and one of four sequences.
  const std::vector<std::vector<int64_t>> cuts = {{0}, {1, 2}, {3}}, pair_cuts = {{0, 2}, {1, 3}};
  for (const Task& task : tasks()) {
    SCOPED_TRACE(task.name);
    const auto& parts = task.pairs ? pair_cuts : cuts;
    const int size = static_cast<int>(parts.size());
    const Part whole = part_of({0, 1, 2, 3});
    const Left one = run(task, {}, whole);
    ThreadGroup group(size);
    std::vector<Left> left(parts.size());
    const auto errors = run_ranks(size, [&](int rank) {
      ContextOptions options;
      options.threads = 1;
      options.ranks.data = &group.of(rank);
      options.ranks.sum_d_weight = true;
      left[static_cast<size_t>(rank)] = run(task, options, part_of(parts[static_cast<size_t>(rank)]));
    });
    for (size_t rank = 0; rank < parts.size(); ++rank) {
      ASSERT_EQ(message_of(errors[rank]), "");
      expect_near(left[rank].numbers, one.numbers, 1e-7, "numbers");
      expect_near(left[rank].d_hidden, rows_of(one.d_hidden, parts[rank], kTime * kHidden), 1e-6, "d_hidden");
      expect_near(left[rank].d_weight, one.d_weight, 1e-6, "d_weight");
      expect_near(left[rank].d_bias, one.d_bias, 1e-6, "d_bias");
      EXPECT_EQ(left[rank].d_weight, left[0].d_weight);
    }
  }
}

// Two by two ranks: each has half of the batch and a part of the vocabulary.
TEST(DataRanks, OfAGridShareTheVocabularyToo) {
  constexpr int64_t kFirst = 61;
  for (const Task& task : tasks()) {
    SCOPED_TRACE(task.name);
    const std::vector<std::vector<int64_t>> parts = {{0, 2}, {1, 3}};
    const Left one = run(task, {}, part_of({0, 1, 2, 3}));
    std::array<ThreadGroup, 2> of_batch = {ThreadGroup(2), ThreadGroup(2)}, of_vocab = {ThreadGroup(2), ThreadGroup(2)};
    std::vector<Left> left(4);
    const auto errors = run_ranks(4, [&](int rank) {
      const auto d = static_cast<size_t>(rank / 2), v = static_cast<size_t>(rank % 2);
      ContextOptions options;
      options.threads = 1;
      options.ranks.data = &of_batch[v].of(static_cast<int>(d));
      options.ranks.vocab = &of_vocab[d].of(static_cast<int>(v));
      options.ranks.sum_d_weight = true;
      left[static_cast<size_t>(rank)] =
          run(task, options, v == 0 ? part_of(parts[d], 0, kFirst) : part_of(parts[d], kFirst, kVocab - kFirst));
    });
    for (size_t rank = 0; rank < 4; ++rank) {
      ASSERT_EQ(message_of(errors[rank]), "");
      const int64_t first = rank % 2 == 0 ? 0 : kFirst, end = rank % 2 == 0 ? kFirst : kVocab;
      expect_near(left[rank].numbers, one.numbers, 1e-6, "numbers");
      expect_near(left[rank].d_hidden, rows_of(one.d_hidden, parts[rank / 2], kTime * kHidden), 1e-6, "d_hidden");
      expect_near(left[rank].d_weight, {one.d_weight.begin() + first * kHidden, one.d_weight.begin() + end * kHidden},
                  1e-6, "d_weight");
    }
  }
}

// A mistake on one rank of a grid reaches all four.
TEST(DataRanks, OfAGridEndTogether) {
  std::array<ThreadGroup, 2> of_batch = {ThreadGroup(2), ThreadGroup(2)}, of_vocab = {ThreadGroup(2), ThreadGroup(2)};
  // One rank is wrong, or two that share neither tokens nor vocabulary entries.
  for (const std::set<int>& wrong : {std::set<int>{0}, {1}, {2}, {3}, {0, 3}, {1, 2}}) {
    const auto errors = run_ranks(4, [&](int rank) {
      const auto d = static_cast<size_t>(rank / 2), v = static_cast<size_t>(rank % 2);
      ContextOptions options;
      options.ranks.data = &of_batch[v].of(static_cast<int>(d));
      options.ranks.vocab = &of_vocab[d].of(static_cast<int>(v));
      Part part = v == 0 ? part_of({0, 1}, 0, 61) : part_of({0, 1}, 61, kVocab - 61);
      if (wrong.count(rank) > 0) part.batch.ids[2] = kVocab;
      run(tasks()[0], options, part);
    });
    for (size_t rank = 0; rank < 4; ++rank) {
      const std::string message = message_of(errors[rank]), own = "targets[2] = 101 is outside [0, 101)";
      EXPECT_NE(message.find(own), std::string::npos) << rank << ": " << message;
      EXPECT_EQ(message.find(own) == 0, wrong.count(static_cast<int>(rank)) > 0) << message;
    }
  }
}

// A rank may have no token: it has nothing to give for each, and its reference's states have no row.
TEST(DataRanks, MayHaveNoToken) {
  const std::vector<std::vector<int64_t>> parts = {{0, 1, 2, 3}, {}};
  Task of_temperatures = {
      "cross_entropy", false, [](const Context& context, const Part& p, const Gradients& g) {
        const std::vector<double> temperatures(p.batch.ids.size(), 1.5);
        CrossEntropy options;
        options.token.temperatures = temperatures;
        return numbers(cross_entropy(context, p.states(), p.source.head(), p.targets(), options, g));
      }};
  Task with_model = {
      "preference_loss", true, [](const Context& context, const Part& p, const Gradients& g) {
        Reference reference;
        reference.hidden = p.states();
        reference.head = p.source.head();
        reference.head.bias = {};
        preference_loss.plan(context, p.states(), p.source.head(), p.targets(), reference, {}, g);
        return numbers(preference_loss(context, p.states(), p.source.head(), p.targets(), reference, {}, g));
      }};
  Task with_states = {"LoRA", false, [](const Context& context, const Part& p, const Gradients& g) {
                        constexpr int64_t kRank = 3;
                        const int64_t rows = static_cast<int64_t>(p.batch.ids.size());
                        const std::vector<float> states(p.batch.ids.size() * kRank, 0.5F), b(kVocab * kRank, 0.25F);
                        std::vector<float> d_states(kTokens * kRank);
                        LmHead head = p.source.head();
                        head.lora.states = {states.empty() ? nullptr : states.data(), rows, kRank};
                        head.lora.b = {b.data(), kVocab, kRank};
                        Gradients with_lora = g;
                        with_lora.d_lora_states = {d_states.data(), rows, kRank};
                        ContextOptions cut = context.options();
                        cut.ranks.slices = {40, kVocab - 40};
                        return numbers(cross_entropy(Context(cut), p.states(), head, p.targets(), {}, with_lora));
                      }};
  for (const Task& task : {of_temperatures, with_model, with_states}) {
    SCOPED_TRACE(task.name);
    const Left one = run(task, {}, part_of(parts[0]));
    ThreadGroup group(2);
    std::vector<Left> left(2);
    const auto errors = run_ranks(2, [&](int rank) {
      ContextOptions options;
      options.ranks.data = &group.of(rank);
      options.ranks.sum_d_weight = true;
      left[static_cast<size_t>(rank)] = run(task, options, part_of(parts[static_cast<size_t>(rank)]));
    });
    for (size_t rank = 0; rank < 2; ++rank) {
      ASSERT_EQ(message_of(errors[rank]), "");
      expect_near(left[rank].numbers, one.numbers, 1e-7, "numbers");
      expect_near(left[rank].d_weight, one.d_weight, 1e-6, "d_weight");
    }
  }
}

TEST(DataRanks, RefuseWhatIsOfAWholeBatch) {
  const std::pair<const char*, std::function<void(PolicyLoss&)>> cases[] = {
      {"top_entropy_quantile = 0.5", [](auto& o) { o.top_entropy_quantile = 0.5; }},
      {"loss_type = clip_cov", [](auto& o) { o.loss_type = PolicyLossType::kClipCov; }},
      {"loss_type = kl_cov", [](auto& o) { o.loss_type = PolicyLossType::kKlCov; }},
      {"m2_threshold = 0.25", [](auto& o) { o.m2_threshold = 0.25; }},
  };
  for (const auto& [what, set] : cases) {
    SCOPED_TRACE(what);
    ThreadGroup group(2);
    const auto errors = run_ranks(2, [&, &set = set](int rank) {
      ContextOptions options;
      options.ranks.data = &group.of(rank);
      const Part part = part_of({0, 1});
      PolicyLoss policy;
      set(policy);
      PolicyBatch batch;
      batch.chosen_ids = part.targets();
      batch.advantages = {part.batch.advantages.data(), 2};
      const ConstVector logps(part.batch.old_logps.data(), static_cast<int64_t>(part.batch.old_logps.size()));
      batch.old_logps = logps;
      if (policy.m2_threshold) batch.sampling_logps = logps;
      batch.mask = part.batch.mask;
      policy_loss(Context(options), part.states(), part.source.head(), batch, policy);
    });
    for (const auto& error : errors) {
      EXPECT_NE(message_of(error).find(std::string(what) + " is of a whole batch"), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace logitless::testing

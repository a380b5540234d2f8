// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Ranks with parts of a batch, and grids whose ranks share the vocabulary too. Drawn calls split neither
// pairs nor KTO's mismatched completions.
#include <gtest/gtest.h>

#include <array>
#include <set>
#include <string>
#include <vector>

#include "logitless/logitless.h"
#include "support/every_task.h"
#include "support/thread_ranks.h"

namespace logitless::testing {
namespace data_ranks_test {

template <class T>
std::vector<T> rows_of(const std::vector<T>& all, const std::vector<int64_t>& sequences, int64_t per_sequence) {
  std::vector<T> out;
  for (const int64_t s : sequences) {
    const auto begin = all.begin() + s * per_sequence;
    out.insert(out.end(), begin, begin + per_sequence);
  }
  return out;
}

// Some sequences of a batch, and some vocabulary entries of its head.
struct Part {
  explicit Part(const std::vector<int64_t>& sequences_, int64_t first_ = 0, int64_t entries_ = kVocab)
      : sequences(sequences_), count(static_cast<int64_t>(sequences.size())), first(first_), entries(entries_) {
    hidden = rows_of(whole.hidden, sequences, kTime * kHidden);
    ids = rows_of(batch.ids, sequences, kTime);
    ref_logps = rows_of(batch.ref_logps, sequences, kTime);
    sums = rows_of(batch.sums, sequences, 1);
    labels = rows_of(batch.labels, sequences, 1);
  }
  Logits logits(bool bias = true) const {
    logitless::LmHead head = {.weight = view(whole.weight.data() + first * kHidden, {entries, kHidden})};
    if (bias) head.bias = view(whole.bias.data() + first, {entries});
    return Logits::of(view(hidden.data(), {count, kTime, kHidden}), head);
  }
  PreferenceLoss preference() const { return {.targets = view(ids.data(), {count, kTime})}; }

  FromHidden whole;
  Batch batch;
  std::vector<int64_t> sequences;
  int64_t count, first, entries;
  std::vector<float> hidden, ref_logps, sums;
  std::vector<int64_t> ids;
  std::vector<uint8_t> labels;
};

// The results of a call: numbers for the whole batch, and its gradients.
struct Left {
  std::vector<double> numbers;
  std::vector<float> d_hidden, d_weight, d_bias;
};

template <class T>
Left run_part(const ContextOptions& options, const Part& part, const T& task) {
  Left left = {.numbers = {},
               .d_hidden = std::vector<float>(part.hidden.size(), 99),
               .d_weight = std::vector<float>(static_cast<size_t>(part.entries * kHidden), 99),
               .d_bias = std::vector<float>(static_cast<size_t>(part.entries), 99)};
  left.numbers = numbers(run(Context(options), part.logits(), task,
                             {.d_hidden = view(left.d_hidden.data(), {part.count, kTime, kHidden}),
                              .d_weight = view(left.d_weight.data(), {part.entries, kHidden}),
                              .d_bias = view(left.d_bias.data(), {part.entries})}));
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

// Runs the task of each part on its own rank, and compares with the task of the whole batch.
void expect_whole(const std::vector<std::vector<int64_t>>& parts, const auto& task_of) {
  const Part whole({0, 1, 2, 3});
  const Left one = run_part({}, whole, task_of(whole));
  ThreadGroup group(static_cast<int>(parts.size()));
  std::vector<Left> left(parts.size());
  const auto errors = run_ranks(static_cast<int>(parts.size()), [&](int rank) {
    ContextOptions options;
    options.threads = 1;
    options.ranks.data = &group.of(rank);
    options.ranks.sum_d_weight = true;
    const Part part(parts[static_cast<size_t>(rank)]);
    left[static_cast<size_t>(rank)] = run_part(options, part, task_of(part));
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

// The first half of the sequences is paired with the second. One rank has no tokens.
TEST(DataRanks, HaveTheLossesOfOneProcess) {
  const std::vector<std::vector<int64_t>> pairs = {{0, 2}, {}, {1, 3}};
  expect_whole(pairs, [](const Part& p) {
    PreferenceLoss task = p.preference();
    task.loss_type = {PreferenceLossType::kSigmoidNorm, PreferenceLossType::kIpo, PreferenceLossType::kSft};
    task.loss_weights = {1, 1, 0.5};
    task.f_divergence = FDivergence::kJs;
    task.ld_alpha = 0.5;
    task.want_entropy = true;
    task.ref_logps = p.ref_logps;
    return task;
  });
  expect_whole(pairs, [](const Part& p) {
    PreferenceLoss task = p.preference();
    task.use_weighting = true;
    task.reference = p.logits(false);
    return task;
  });
  expect_whole({{0}, {1, 2}, {}, {3}}, [](const Part& p) {
    return KtoLoss{.targets = view(p.ids.data(), {p.count, kTime}),
                   .labels = p.labels,
                   .ref_logps = p.sums,
                   .kl_logps = p.sums,
                   .kl_ref_logps = p.sums};
  });
}

// An error on one rank of a grid, or on two that share neither tokens nor vocabulary entries, reaches all
// four.
TEST(DataRanks, OfAGridEndTogether) {
  std::array<ThreadGroup, 2> of_batch = {ThreadGroup(2), ThreadGroup(2)}, of_vocab = {ThreadGroup(2), ThreadGroup(2)};
  for (const std::set<int>& wrong : {std::set<int>{0}, {1}, {2}, {3}, {0, 3}, {1, 2}}) {
    const auto errors = run_ranks(4, [&](int rank) {
      const auto d = static_cast<size_t>(rank / 2), v = static_cast<size_t>(rank % 2);
      ContextOptions options;
      options.ranks.data = &of_batch[v].of(static_cast<int>(d));
      options.ranks.vocab = &of_vocab[d].of(static_cast<int>(v));
      Part part({0, 1}, v == 0 ? 0 : 61, v == 0 ? 61 : kVocab - 61);
      if (wrong.contains(rank)) part.ids[2] = kVocab;
      PreferenceLoss task = part.preference();
      task.ref_logps = part.sums;
      run_part(options, part, task);
    });
    for (int rank = 0; rank < 4; ++rank) {
      const std::string message = message_of(errors[static_cast<size_t>(rank)]);
      const size_t at = message.find("targets[2] = 101 is outside [0, 101)");
      EXPECT_NE(at, std::string::npos) << rank << ": " << message;
      EXPECT_EQ(at == 0, wrong.contains(rank)) << message;
    }
  }
}

// rank_arguments_test.cc compares the arguments of ranks that share a vocabulary.
TEST(DataRanks, HaveTheSameHead) {
  std::vector<float> a(2 * kHidden, 0.5F), b(kVocab * 2, 0.25F), scales(kVocab, 0.5F);
  std::vector<int8_t> bytes(kVocab * kHidden, 3);
  std::vector<int64_t> ids(kVocab, 7);
  const auto expect_told = [&](const std::string& name, const auto& head_of, auto& values) {
    auto others = values;
    others[0] += 1;
    ThreadGroup group(2);
    const auto errors = run_ranks(2, [&](int rank) {
      ContextOptions options;
      options.ranks.data = &group.of(rank);
      const Part part({0, 1});
      Logits logits = part.logits(false);
      head_of(logits.head, rank == 0 ? values : others);
      run(Context(options), logits, CrossEntropy{.targets = view(part.ids.data(), {2, kTime})});
    });
    for (const auto& error : errors) {
      EXPECT_EQ(message_of(error),
                name + " must be the same on all ranks of ranks.data: the values of rank 0 and rank 1 differ");
    }
  };
  expect_told(
      "lora_a",
      [&](auto& head, const auto& of) {
        head.lora = {.a = view(of.data(), {2, kHidden}), .b = view(b.data(), {kVocab, 2})};
      },
      a);
  expect_told(
      "weight.ids", [](auto& head, const auto& of) { head.vocab_ids = of; }, ids);
  expect_told(
      "weight.scales",
      [&](auto& head, const auto& of) {
        head.weight = ConstTensor(bytes.data(), DType::kUInt8, {kVocab, kHidden});
        head.packing = Packing::kInt8;
        head.scales = view(of.data(), {kVocab, 1});
      },
      scales);
}

}  // namespace data_ranks_test
}  // namespace logitless::testing

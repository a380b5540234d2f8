// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Ranks with parts of a batch, and grids whose ranks share the vocabulary too. Drawn calls split neither
// pairs nor KTO's mismatched completions.
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
namespace data_ranks_test {

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

// The results of a call: numbers for the whole batch, and its gradients.
struct Left {
  std::vector<double> numbers;
  std::vector<float> d_hidden, d_weight, d_bias;
};

using Call = std::function<std::vector<double>(const Context&, const Part&, const Gradients&)>;

struct Task {
  const char* name;
  bool pairs;  // the first half of the sequences is paired with the second
  Call call;
};

std::vector<Task> tasks() {
  std::vector<Task> out;
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
  out.push_back({"kto_loss", false, [](const Context& context, const Part& p, const Gradients& g) {
                   KtoBatch batch;
                   batch.targets = p.targets();
                   batch.labels = p.batch.labels;
                   batch.reference.logps = {p.batch.sums.data(), static_cast<int64_t>(p.batch.sums.size())};
                   batch.kl_logps = batch.kl_ref_logps = batch.reference.logps;
                   KtoLoss options;
                   options.want_entropy = true;
                   return numbers(kto_loss(context, p.states(), p.source.head(), batch, options, g));
                 }});
  out.push_back(
      {"preference_loss with a reference model", true, [](const Context& context, const Part& p, const Gradients& g) {
         Reference reference;
         reference.hidden = p.states();
         reference.head = p.source.head();
         reference.head.bias = {};
         return numbers(preference_loss(context, p.states(), p.source.head(), p.targets(), reference, {}, g));
       }});
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
  // One rank has no tokens.
  const std::vector<std::vector<int64_t>> cuts = {{0}, {1, 2}, {}, {3}}, pair_cuts = {{0, 2}, {}, {1, 3}};
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

// An error on one rank of a grid reaches all four.
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

}  // namespace data_ranks_test
}  // namespace logitless::testing

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Ranks with parts of a batch sum d_weight while they compute the rest of it, if they have threads to spare.
// The result must have the bits of sums at the end.
#include <gtest/gtest.h>
#include <omp.h>

#include <array>
#include <bit>
#include <cstring>
#include <exception>
#include <random>
#include <stdexcept>
#include <vector>

#include "logitless/logitless.h"
#include "support/calls.h"
#include "support/thread_ranks.h"
#include "support/views.h"

namespace logitless::testing {
namespace early_sums_test {

constexpr int kRanks = 2;
// The first four messages hold the sums of 2,048 entries, or of 4,096 in bfloat16. Two threads are at most 32
// tiles of 64 entries ahead of the final entries, so these messages are sent before the last entries are
// begun.
constexpr int64_t kTokens = 40, kHidden = 1024, kVocab = 6400, kVocabTile = 64;
constexpr float kUntouched = 99;
constexpr uint16_t kUntouchedBits = 0x42c6;  // the same in bfloat16

std::vector<float> random_values(int64_t count, int seed) {
  std::mt19937 random(static_cast<uint32_t>(seed));
  std::normal_distribution<float> draw(0, 0.3F);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = draw(random);
  return values;
}

// The form of a call, and whether its sums start early if both ranks have at least two threads.
struct Case {
  const char* name;
  bool early;
  PlanKind plan = PlanKind::kTwoPass;
  bool narrow = false;  // head and d_weight in bfloat16
  bool halves = false;
  bool accumulate = false;    // and rows of d_weight are separated
  bool hidden_vocab = false;  // d_weight is [H, V], whose rows are not vocabulary entries
  bool empty_rank = false;    // the second rank ignores all of its tokens
  bool more_chunks = false;   // the budget of the second rank holds half of its rows
};

const std::vector<Case> kCases = {
    {"two pass", true},
    {"one pass", true, PlanKind::kOnePass},
    {.name = "bfloat16", .early = true, .narrow = true},
    {.name = "halves", .early = true, .halves = true},
    {.name = "accumulate", .early = true, .accumulate = true},
    {.name = "[H, V]", .early = false, .hidden_vocab = true},
    {.name = "a rank without rows", .early = true, .plan = PlanKind::kOnePass, .empty_rank = true},
    {.name = "chunks of two sizes", .early = false, .plan = PlanKind::kOnePass, .more_chunks = true},
};

// The head is the same on all ranks.
class Head {
 public:
  static const Head& instance() {
    static const Head head;
    return head;
  }
  LmHead view(const Case& of) const {
    const HeadLayout layout = of.hidden_vocab ? HeadLayout::kHiddenVocab : HeadLayout::kVocabHidden;
    const int64_t rows = of.hidden_vocab ? kHidden : kVocab, cols = of.hidden_vocab ? kVocab : kHidden;
    LmHead head(of.narrow ? ConstMatrix(narrow_weight_.data(), rows, cols) : ConstMatrix(weight_.data(), rows, cols));
    head.layout = layout;
    head.bias = {bias_.data(), kVocab};
    return head;
  }

 private:
  Head() {
    for (size_t i = 0; i < weight_.size(); ++i) {
      narrow_weight_[i].bits = static_cast<uint16_t>(std::bit_cast<uint32_t>(weight_[i]) >> 16);
    }
  }

  std::vector<float> weight_ = random_values(kVocab * kHidden, 3), bias_ = random_values(kVocab, 4);
  std::vector<bfloat16> narrow_weight_ = std::vector<bfloat16>(weight_.size());
};

// One rank of a call, and its results.
struct Rank {
  const Case& of;
  int number;
  int64_t stride;  // of d_weight
  std::vector<float> hidden;
  std::vector<int64_t> targets;
  std::vector<float> d_hidden, d_weight, d_bias;
  std::vector<bfloat16> narrow_d_weight;
  int early = 0;            // exchanges inside the parallel region in which threads of this rank compute
  bool before_end = false;  // at the first of them, the last row of d_weight was not begun

  Rank(const Case& of_, int number_)
      : of(of_),
        number(number_),
        stride(of.hidden_vocab ? kVocab
               : of.accumulate ? kHidden + 8
                               : kHidden),
        hidden(random_values(kTokens * kHidden, 10 + number)),
        d_hidden(hidden.size()),
        d_weight(static_cast<size_t>(kVocab * (kHidden + 8)), kUntouched),
        d_bias(kVocab),
        narrow_d_weight(static_cast<size_t>(kVocab * kHidden), bfloat16{kUntouchedBits}) {
    for (int64_t t = 0; t < kTokens; ++t) {
      targets.push_back(of.empty_rank && number == 1 ? -100 : (t * 797 + number * 101) % kVocab);
    }
  }

  void call(ContextOptions options) {
    options.plan = of.plan;
    options.vocab_tile = kVocabTile;
    const HiddenStates states(hidden.data(), 1, kTokens, kHidden);
    const Targets of_states(targets.data(), kTokens);
    const LmHead head = Head::instance().view(of);
    Gradients gradients;
    gradients.d_hidden = {d_hidden.data(), kTokens, kHidden};
    const int64_t rows = of.hidden_vocab ? kHidden : kVocab, cols = of.hidden_vocab ? kVocab : kHidden;
    if (of.narrow) {
      gradients.d_weight = {narrow_d_weight.data(), rows, cols};
    } else {
      gradients.d_weight = Matrix(d_weight.data(), rows, cols, stride);
    }
    if (of.accumulate) gradients.d_weight_mode = WriteMode::kAccumulate;
    gradients.d_bias = {d_bias.data(), kVocab};
    if (of.more_chunks && number == 1) {
      const Context one_thread({.threads = 1, .plan = of.plan, .vocab_tile = kVocabTile});
      const Plan whole = cross_entropy.plan(one_thread, states, head, of_states, {}, gradients);
      options.workspace_bytes = (whole.least_workspace_bytes + whole.workspace_bytes) / 2;
    }
    const Context context(options);
    if (!of.halves) {
      cross_entropy(context, states, head, of_states, {}, gradients);
      return;
    }
    const auto forward = cross_entropy.forward(context, states, head, of_states);
    cross_entropy.backward(context, states, head, of_states, {}, forward, 1.0, gradients);
  }

  bool last_row_is_untouched() const {
    if (of.narrow) return narrow_d_weight.back().bits == kUntouchedBits;
    return d_weight[static_cast<size_t>((kVocab - 1) * stride)] == kUntouched;
  }
};

struct Ran {
  std::vector<Rank> ranks;
  std::vector<std::exception_ptr> errors;
  int exchanges = 0;  // of rank 0
};

// Both ranks run the call; the second one throws at exchange number `dies_at`.
Ran run(const std::array<int, kRanks>& threads, const Case& of, int dies_at = -1) {
  ThreadGroup group(kRanks);
  Ran ran;
  for (int rank = 0; rank < kRanks; ++rank) ran.ranks.emplace_back(of, rank);
  Rank& first = ran.ranks[0];
  group.before_exchange = [&](int rank, int exchange) {
    if (rank == 1 && exchange == dies_at) {
      group.break_down();
      throw std::runtime_error("this rank has died");
    }
    if (rank != 0) return;
    ran.exchanges = exchange + 1;
    if (omp_get_level() > 0 && first.early++ == 0) first.before_end = first.last_row_is_untouched();
  };
  ran.errors = run_ranks(kRanks, [&](int rank) {
    const auto r = static_cast<size_t>(rank);
    ContextOptions options;
    options.threads = threads[r];
    options.ranks.data = &group.of(rank);
    options.ranks.sum_d_weight = true;
    ran.ranks[r].call(options);
  });
  return ran;
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

TEST(EarlySums, HaveTheBitsOfLateOnes) {
  for (const Case& of : kCases) {
    SCOPED_TRACE(of.name);
    const Ran late = run({1, 1}, of);
    // If one rank has no thread to spare, none of them sums early.
    const Ran mixed = run({3, 1}, of), early = run({2, 3}, of);
    for (const Ran* ran : {&late, &mixed, &early}) {
      for (size_t r = 0; r < kRanks; ++r) {
        EXPECT_EQ(message_of(ran->errors[r]), "");
        EXPECT_TRUE(same_bits(ran->ranks[r].d_weight, late.ranks[0].d_weight));
        EXPECT_TRUE(same_bits(ran->ranks[r].narrow_d_weight, late.ranks[0].narrow_d_weight));
        EXPECT_EQ(ran->ranks[r].d_bias, late.ranks[0].d_bias);
        EXPECT_EQ(ran->ranks[r].d_hidden, late.ranks[r].d_hidden);
      }
      EXPECT_EQ(ran->exchanges, late.exchanges);
    }
    EXPECT_EQ(late.ranks[0].early, 0);
    EXPECT_EQ(mixed.ranks[0].early, 0);
    EXPECT_EQ(early.ranks[0].before_end, of.early);
    // For each message, ranks agree, exchange parts, agree, and gather sums.
    EXPECT_GE(early.ranks[0].early, of.early ? 16 : 0);
    EXPECT_LE(early.ranks[0].early, of.early ? early.exchanges : 0);
  }
}

// If a rank dies during the sums, while threads of both ranks compute, the other one ends.
TEST(EarlySums, EndWhereOneDies) {
  const int exchanges = run({2, 2}, kCases[0]).exchanges;
  for (int dies_at = 0; dies_at < exchanges; dies_at += 4) {
    const Ran ran = run({2, 2}, kCases[0], dies_at);
    EXPECT_EQ(message_of(ran.errors[1]), "this rank has died") << dies_at;
    EXPECT_EQ(message_of(ran.errors[0]), "the group has broken down") << dies_at;
  }
}

}  // namespace early_sums_test
}  // namespace logitless::testing

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Ranks with parts of a batch sum d_weight while they compute the rest of it, if they have threads to spare.
// The result must have the bits of sums at the end.
#include <gtest/gtest.h>
#include <omp.h>

#include <array>
#include <cmath>
#include <cstring>
#include <exception>
#include <limits>
#include <map>
#include <random>
#include <stdexcept>
#include <utility>
#include <vector>

#include "logitless/logitless.h"
#include "support/calls.h"
#include "support/host_tensor.h"
#include "support/thread_ranks.h"
#include "support/views.h"

namespace logitless::testing {
namespace early_sums_test {

constexpr int kRanks = 2;
// The first four messages hold the sums of 2,048 entries, or of 4,096 in bfloat16. Two threads are at most 32
// tiles of 64 entries ahead of the final entries, so these messages are sent before the last entries are
// begun.
constexpr int64_t kTokens = 40, kHidden = 1024, kVocab = 6400, kVocabTile = 64;

// The form of a call, and whether its sums start early if both ranks have at least two threads.
struct Case {
  const char* name;
  bool early;
  PlanKind plan = PlanKind::kTwoPass;
  DType dtype = DType::kFloat32;  // of the head and d_weight
  bool halves = false;
  bool accumulate = false;    // and rows of d_weight are separated
  bool hidden_vocab = false;  // d_weight is [H, V], whose rows are not vocabulary entries
  bool empty_rank = false;    // the second rank ignores all of its tokens
  bool more_chunks = false;   // the budget of the second rank holds half of its rows
};

const std::vector<Case> kCases = {
    {"two pass", true},
    {"one pass", true, PlanKind::kOnePass},
    {.name = "bfloat16", .early = true, .dtype = DType::kBFloat16},
    {.name = "halves", .early = true, .halves = true},
    {.name = "accumulate", .early = true, .accumulate = true},
    {.name = "[H, V]", .early = false, .hidden_vocab = true},
    {.name = "a rank without rows", .early = true, .plan = PlanKind::kOnePass, .empty_rank = true},
    {.name = "chunks of two sizes", .early = false, .plan = PlanKind::kOnePass, .more_chunks = true},
};

HostTensor random_tensor(DType dtype, int64_t rows, int64_t cols, int seed) {
  std::mt19937 random(static_cast<uint32_t>(seed));
  std::normal_distribution<double> draw(0, 0.3);
  HostTensor tensor(dtype, rows, cols);
  for (int64_t i = 0; i < rows * cols; ++i) tensor.set(i / cols, i % cols, draw(random));
  return tensor;
}

// The head is the same on all ranks.
LmHead head_of(const Case& of) {
  static std::map<std::pair<DType, bool>, HostTensor> weights;
  HostTensor& weight = weights[{of.dtype, of.hidden_vocab}];
  const int64_t rows = of.hidden_vocab ? kHidden : kVocab, cols = of.hidden_vocab ? kVocab : kHidden;
  if (weight.rows() == 0) weight = random_tensor(of.dtype, rows, cols, 3);
  return LmHead(weight.view(), of.hidden_vocab ? HeadLayout::kHiddenVocab : HeadLayout::kVocabHidden);
}

// One rank of a call, and its results.
struct Rank {
  const Case& of;
  int number;
  LmHead head;
  HostTensor hidden, d_hidden{DType::kFloat32, kTokens, kHidden}, d_weight;
  std::vector<int64_t> targets;
  double untouched = std::numeric_limits<double>::quiet_NaN();  // the last element before the call
  int early = 0;            // exchanges inside the parallel region in which threads of this rank compute
  bool before_end = false;  // at the first of them, the last element was not begun

  Rank(const Case& of_, int number_)
      : of(of_),
        number(number_),
        head(head_of(of)),
        hidden(random_tensor(DType::kFloat32, kTokens, kHidden, 10 + number)),
        d_weight(of.dtype, head.weight.rows, head.weight.cols, of.accumulate ? 8 : 0) {
    for (int64_t t = 0; t < kTokens; ++t) {
      targets.push_back(of.empty_rank && number == 1 ? -100 : (t * 797 + number * 101) % kVocab);
    }
    if (!of.accumulate) return;
    for (int64_t i = 0; i < kVocab * kHidden; ++i) d_weight.set(i / kHidden, i % kHidden, untouched = 99);
  }

  void call(ContextOptions options) {
    options.plan = of.plan;
    options.vocab_tile = kVocabTile;
    const HiddenStates states(hidden.view());
    const Targets of_states(targets.data(), kTokens);
    Gradients gradients;
    gradients.d_hidden = d_hidden.output();
    gradients.d_weight = d_weight.output();
    if (of.accumulate) gradients.d_weight_mode = WriteMode::kAccumulate;
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

  bool last_element_is_untouched() const {
    const double last = d_weight.get(d_weight.rows() - 1, d_weight.cols() - 1);
    return last == untouched || std::isnan(last);
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
    if (omp_get_level() > 0 && first.early++ == 0) first.before_end = first.last_element_is_untouched();
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

bool same_bits(const HostTensor& a, const HostTensor& b) {
  return std::memcmp(a.bytes().data(), b.bytes().data(), a.bytes().size()) == 0;
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
        EXPECT_TRUE(same_bits(ran->ranks[r].d_hidden, late.ranks[r].d_hidden));
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

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// What `logitless tune` tries, and what a budget allows.
#include "cli/tune/rounds.h"

#include <gtest/gtest.h>

#include <set>

namespace logitless::cli {
namespace {

using io::Level;

TEST(TuneCandidates, SetEveryTunedKey) {
  const TuneCandidate candidate{PlanKind::kTwoPass, 256, 0};
  EXPECT_EQ(candidate.name(), "plan=two_pass row_tile=256");
  EXPECT_EQ(candidate.contender().assignments,
            (std::vector<std::string>{"kernel.plan=two_pass", "kernel.row_tile=256", "kernel.vocab_tile=auto"}));
  EXPECT_EQ(TuneCandidate{}.name(), "default");
  EXPECT_EQ(TuneCandidate{}.contender().assignments,
            (std::vector<std::string>{"kernel.plan=auto", "kernel.row_tile=auto", "kernel.vocab_tile=auto"}));
}

TEST(TuneCandidates, AreDifferentFitTheShapeAndAreNotTheDefault) {
  for (const Level level : {Level::kFused, Level::kLogits}) {
    for (const int64_t tokens : {1, 100, 4096}) {
      for (const int64_t vocab : {600, 5000, 151936}) {
        std::set<std::string> names;
        for (const TuneCandidate& candidate : tile_candidates(level, PlanKind::kTwoPass, tokens, vocab)) {
          EXPECT_TRUE(names.insert(candidate.name()).second) << candidate.name();
          EXPECT_LE(candidate.row_tile, tokens);
          EXPECT_LE(candidate.vocab_tile, vocab);
          EXPECT_TRUE(candidate.row_tile > 0 || candidate.vocab_tile > 0);
          EXPECT_EQ(candidate.plan, PlanKind::kTwoPass);
        }
        EXPECT_FALSE(names.empty());
      }
    }
  }
  EXPECT_TRUE(tile_candidates(Level::kFused, PlanKind::kAuto, 63, 511).empty());
}

TEST(TuneRounds, KeepWithinTheTime) {
  for (const double call_s : {1e-4, 0.01, 0.5, 7.0}) {
    for (const double seconds : {1.0, 20.0, 300.0, 5000.0}) {
      for (const int candidates : {1, 5, 40}) {
        const auto rounds = plan_rounds(call_s, seconds, candidates);
        EXPECT_EQ(rounds.has_value(), seconds >= least_seconds(call_s)) << call_s << " " << seconds;
        if (!rounds) continue;
        EXPECT_GE(rounds->candidates, 1);
        EXPECT_LE(rounds->candidates, candidates);
        EXPECT_GE(rounds->trial_turns, 1);
        EXPECT_GE(rounds->finalists, 1);
        EXPECT_LE(rounds->finalists, rounds->candidates);
        EXPECT_GE(rounds->final_turns, 3);
        const double calls =
            (rounds->candidates + 1.0) * rounds->trial_turns + (rounds->finalists + 1.0) * rounds->final_turns;
        EXPECT_LE(calls * call_s, seconds * (1 + 1e-9));
      }
    }
  }
}

TEST(TuneRounds, MoreTimeTriesMoreCandidatesAndTakesMoreTurns) {
  const auto scarce = plan_rounds(1, 30, 40), ample = plan_rounds(1, 600, 40);
  ASSERT_TRUE(scarce && ample);
  EXPECT_LT(scarce->candidates, 40);
  EXPECT_EQ(ample->candidates, 40);
  EXPECT_GT(ample->trial_turns, scarce->trial_turns);
  EXPECT_GT(ample->final_turns, scarce->final_turns);
  EXPECT_FALSE(plan_rounds(1, 600, 0));
}

}  // namespace
}  // namespace logitless::cli

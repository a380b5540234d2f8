// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Every option of every loss, one at a time with another value on one of three ranks: no rank returns a loss,
// and all of them name the option, both ranks and both values.
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "support/calls.h"
#include "support/option_cases.h"
#include "support/rank_of_task.h"
#include "support/thread_ranks.h"
#include "support/views.h"

namespace logitless::testing {
namespace rank_options_test {

enum class Split { kVocabulary, kBatch };

// Runs a case on three ranks, with the changed options on rank 1, and returns the exception of each.
template <class Options>
std::vector<std::exception_ptr> run_case(const OptionCase<Options>& one, const OptionBatch& batch, Split split) {
  ThreadGroup group(3);
  return run_ranks(3, [&](int rank) {
    const RankOfTask of_rank(kWorlds[2], static_cast<size_t>(rank));
    const FromHidden source = split == Split::kBatch ? FromHidden() : of_rank.source;
    ContextOptions options;
    if (split == Split::kBatch) {
      options.ranks.data = &group.of(rank);
    } else {
      options.ranks.vocab = &group.of(rank);
      options.ranks.slices = of_rank.slices;
    }
    FromHidden::Outputs outputs;
    OptionBatch own = batch;  // a teacher's head is split like the student's
    own.other.first_entry = source.first_entry;
    own.other.entries = source.entries;
    source.call(Verbs<Options>(), Context(options), own.task_of(rank == 1 ? one.changed : one.base),
                outputs.views(source.first_entry, source.entries));
  });
}

template <class Options>
void expect_noticed(Split split) {
  SCOPED_TRACE(Options::kName);
  const OptionBatch batch;
  const std::string group = split == Split::kBatch ? "ranks.data" : "ranks.vocab";
  int noticed = 0, cases = 0;
  for (const OptionCase<Options>& one : option_cases<Options>()) {
    SCOPED_TRACE(one.field + " = " + one.value);
    // These options need the whole batch.
    if (split == Split::kBatch && one.field.starts_with("cov_")) continue;
    // These belong to a rank's own tokens.
    if (split == Split::kBatch && one.field == "temperatures") continue;
    ++cases;
    const auto errors = run_case(one, batch, split);
    for (const auto& error : errors) ASSERT_TRUE(error) << "a rank returned";
    const std::string own = message_of(errors[1]);
    const std::string begin = one.field + " must be the same on all ranks of " + group + ": rank 0 has ";
    const bool refused = own.find(" must be the same on all ranks of ") == std::string::npos;
    // Rank 1 may also refuse what it refuses without ranks, or what needs the whole batch.
    if (split == Split::kVocabulary) {
      const bool needs_whole = own.find("cuts the vocabulary") != std::string::npos;
      EXPECT_EQ(refused, needs_whole || !batch.refusal(one.changed).empty()) << own;
    }
    // For an array, the message has the number of its values; for temperatures, only of tokens that are not
    // ignored.
    const bool is_array = one.field == "class_weights" || one.field == "temperatures";
    const std::string value = is_array ? " values" : one.value;
    if (refused) {
      EXPECT_THROW(std::rethrow_exception(errors[1]), InvalidInput) << own;
    } else {
      ++noticed;
      EXPECT_NE(own.find(is_array ? "none where rank 1 has " : " where rank 1 has " + value), std::string::npos) << own;
      EXPECT_TRUE(own.starts_with(begin) && own.ends_with(value)) << own;
    }
    for (const size_t other : {size_t{0}, size_t{2}}) {
      EXPECT_THROW(std::rethrow_exception(errors[other]), RankError);
      const std::string message = message_of(errors[other]);
      EXPECT_EQ(message, refused ? "rank 1 of " + group + ": " + own : own);
    }
  }
  EXPECT_GE(2 * noticed, cases);
}

TEST(RankOptions, OfEveryLossAreTheSameOnAllRanksOfAVocabulary) {
  AllTasks::each([]<class Task> {
    if constexpr (kHasLoss<Task>) expect_noticed<Task>(Split::kVocabulary);
  });
}

TEST(RankOptions, OfEveryLossAreTheSameOnAllRanksOfABatch) {
  AllTasks::each([]<class Task> {
    if constexpr (kHasLoss<Task>) expect_noticed<Task>(Split::kBatch);
  });
}

}  // namespace rank_options_test
}  // namespace logitless::testing

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "ranks/cut.h"

#include "core/checks.h"

namespace logitless::ranks {

Cut cut_of_slice(Group& group, const VocabSlice& slice, const HeadTypes& types) {
  if (types.entries == 0) core::fail("lm_head has no vocabulary entries");
  if (slice.first < 0 || slice.vocab_size < types.entries || slice.first > slice.vocab_size - types.entries) {
    core::fail("ranks.slice begins at ", slice.first, " and lm_head has ", types.entries,
               " vocabulary entries: this is no part of a vocabulary of ", slice.vocab_size);
  }
  Cut cut;
  cut.group = &group;
  cut.entries = {types.entries};
  cut.slices = {1};
  cut.types = types;
  cut.wants_gradients = types.wants_gradients != 0;
  cut.gathered = slice.gathered;
  return cut;
}

Cut agree_on_cut(Group& group, const Ranks& ranks, const HeadTypes& types) {
  core::Array<int64_t> mine(ranks.slices.begin(), ranks.slices.end());
  if (mine.empty()) mine = {types.entries};
  int64_t sum = 0;
  for (size_t s = 0; s < mine.size(); ++s) {
    if (mine[s] < 0) core::fail("ranks.slices[", s, "] = ", mine[s], " must not be negative");
    if (__builtin_add_overflow(sum, mine[s], &sum)) {
      core::fail("ranks.slices[", s, "] = ", mine[s], " makes a sum that does not fit 64 bits, but lm_head has ",
                 types.entries, " vocabulary entries");
    }
  }
  if (sum != types.entries) core::fail("ranks.slices has ", sum, " vocabulary entries but lm_head has ", types.entries);

  Cut cut;
  cut.group = &group;
  cut.own_d_hidden = ranks.own_d_hidden;
  cut.slices = group.all_gather(static_cast<int64_t>(mine.size()));
  const auto most = static_cast<size_t>(cut.most_slices());
  mine.resize(most, 0);
  core::Array<int64_t> all(most * static_cast<size_t>(group.size()));
  group.all_gather(std::span<const int64_t>(mine), std::span(all));
  for (size_t r = 0; r < cut.slices.size(); ++r) {
    const auto from = all.begin() + static_cast<ptrdiff_t>(r * most);
    cut.entries.insert(cut.entries.end(), from, from + static_cast<ptrdiff_t>(cut.slices[r]));
  }
  if (cut.most_entries() == 0) core::fail("lm_head has no vocabulary entries on any rank");
  int64_t whole = 0;
  for (const int64_t entries : cut.entries) {
    if (__builtin_add_overflow(whole, entries, &whole))
      core::fail("the vocabulary entries of all ranks do not fit 64 bits");
  }
  for (const HeadTypes& rank : group.all_gather(types)) {
    if (cut.types.entries == 0) cut.types = rank;
    cut.wants_gradients |= rank.wants_gradients != 0;
  }
  return cut;
}

}  // namespace logitless::ranks

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "ranks/cut.h"

#include "core/checks.h"

namespace logitless::ranks {

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
  for (const HeadTypes& rank : group.all_gather(types)) {
    if (cut.types.entries == 0) cut.types = rank;
    cut.wants_gradients |= rank.wants_gradients != 0;
  }
  return cut;
}

}  // namespace logitless::ranks

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Every task, run by one of several ranks that share its vocabulary.
#pragma once

#include <numeric>
#include <string>
#include <vector>

#include "support/every_task.h"

namespace logitless::testing {

/// Slices have different sizes, one is empty, and none ends at a tile's end.
inline const std::vector<int64_t> kCut = {40, 0, 37, 24};
/// The number of slices per rank, for each number of ranks.
inline const std::vector<std::vector<size_t>> kWorlds = {{4}, {2, 2}, {1, 2, 1}, {1, 1, 1, 1}, {0, 3, 1}};

/// The inputs of one rank.
struct RankOfTask {
  FromHidden source;
  Batch batch;
  std::vector<int64_t> slices;

  RankOfTask(const std::vector<size_t>& world, size_t rank) {
    const size_t first = std::accumulate(world.begin(), world.begin() + static_cast<ptrdiff_t>(rank), size_t{0});
    const auto begin = kCut.begin() + static_cast<ptrdiff_t>(first);
    slices.assign(begin, begin + static_cast<ptrdiff_t>(world[rank]));
    source.first_entry = std::accumulate(kCut.begin(), begin, int64_t{0});
    source.entries = std::accumulate(slices.begin(), slices.end(), int64_t{0});
    if (slices.empty()) slices = {0};
    batch.model.first_entry = source.first_entry;
    batch.model.entries = source.entries;
  }
};

/// Runs task number `number` of the list in one call and in halves, and returns all results.
inline std::vector<std::byte> run_rank(size_t number, const Context& context, const RankOfTask& given,
                                       FromHidden::Outputs& at_once, FromHidden::Outputs& apart) {
  const auto views = [&](FromHidden::Outputs& outputs) {
    return outputs.views(given.source.first_entry, given.source.entries);
  };
  std::vector<std::byte> returned;
  size_t k = 0;
  visit_every_task(given.source, given.batch, [&](const auto& task) {
    if (k++ != number) return;
    returned = bytes_of(task.run(context, views(at_once)));
    const auto forward = task.forward(context);
    const std::vector<std::byte> more = bytes_of(forward);
    returned.insert(returned.end(), more.begin(), more.end());
    if (context.options().plan != PlanKind::kOnePass) task.backward(context, forward, 0.5, views(apart));
  });
  return returned;
}

/// Returns the names of all tasks.
inline std::vector<std::string> task_names() {
  std::vector<std::string> names;
  const FromHidden source;
  const Batch batch;
  visit_every_task(source, batch, [&](const auto& task) { names.emplace_back(task.name); });
  return names;
}

}  // namespace logitless::testing

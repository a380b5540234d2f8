// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Compares the kernels for the largest logits with a sort, on every instruction set of this CPU, in memory of
// the exact size.
#include "kernels/top_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "row_kernel_calls.h"

namespace logitless::kernels {
namespace top_kernels_test {

// A row, and how many of its largest logits are wanted.
template <class T>
struct Row {
  std::vector<T> capped;
  int64_t count = 5;
};

template <class T>
std::vector<TopEntry> truth(const Row<T>& row, int64_t first_column) {
  std::vector<TopEntry> out;
  for (size_t v = 0; v < row.capped.size(); ++v) {
    if (!std::isnan(row.capped[v])) out.push_back({row.capped[v], first_column + static_cast<int64_t>(v)});
  }
  out.resize(std::max(out.size(), static_cast<size_t>(row.count)));
  std::sort(out.begin(), out.end(), [](const TopEntry& a, const TopEntry& b) { return comes_before(a, b); });
  out.resize(static_cast<size_t>(row.count));
  return out;
}

// Passes the parts of the row that end at `cuts` to the kernel, in order or in reverse.
template <class T>
std::vector<TopEntry> run(const TypedKernels<T>& kernels, const Row<T>& row, int64_t first_column,
                          std::vector<size_t> cuts, bool backwards, Flush flush) {
  const Guarded<TopEntry> entries(std::vector<TopEntry>(static_cast<size_t>(top_capacity(row.count))), flush);
  TopState state;
  const TopList list = {entries.data(), &state, row.count};
  std::vector<std::pair<size_t, size_t>> parts;
  size_t begin = 0;
  cuts.push_back(row.capped.size());
  for (const size_t end : cuts) {
    if (end > row.capped.size()) continue;
    parts.emplace_back(begin, end);
    begin = end;
  }
  if (backwards) std::reverse(parts.begin(), parts.end());
  for (const auto& [from, to] : parts) {
    const Guarded<T> part(std::vector<T>(row.capped.begin() + static_cast<ptrdiff_t>(from),
                                         row.capped.begin() + static_cast<ptrdiff_t>(to)),
                          flush);
    kernels.top({part.data(), static_cast<int64_t>(to - from), first_column + static_cast<int64_t>(from), list});
    EXPECT_LT(state.count, top_capacity(row.count)) << "the next entry has no room";
  }
  list.sort();
  std::vector<TopEntry> out(list.entries, list.entries + state.count);
  out.resize(static_cast<size_t>(row.count));
  return out;
}

template <class T>
void expect_truth(const TypedKernels<T>& kernels, const Row<T>& row) {
  const std::vector<TopEntry> want = truth(row, 100);
  for (const bool backwards : {false, true}) {
    for (const Flush flush : {Flush::kEnd, Flush::kBegin}) {
      const std::vector<TopEntry> got = run(kernels, row, 100, {0, 3, 70}, backwards, flush);
      for (size_t k = 0; k < want.size(); ++k) {
        EXPECT_EQ(got[k].id, want[k].id) << k << (backwards ? " backwards" : "");
        EXPECT_EQ(got[k].logit, want[k].logit) << k;
      }
    }
  }
}

template <class T>
void compare(const TypedKernels<T>& kernels) {
  std::mt19937 random(1);
  std::normal_distribution<double> normal(0, 4);
  for (const int64_t cols : {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 127, 128, 200, 1000}) {
    for (const int64_t count : {1, 2, 3, 5, 64, 256}) {
      SCOPED_TRACE(std::to_string(cols) + " columns, the largest " + std::to_string(count));
      for (const bool ties : {false, true}) {
        Row<T> row;
        row.count = count;
        for (int64_t v = 0; v < cols; ++v) {
          const double x = normal(random);
          row.capped.push_back(static_cast<T>(ties ? std::round(x / 4) : x));
        }
        expect_truth(kernels, row);
        std::sort(row.capped.begin(), row.capped.end());
        expect_truth(kernels, row);
        std::fill(row.capped.begin(), row.capped.end(), T{2});
        expect_truth(kernels, row);
      }
    }
  }
}

// Plants special values in every lane and in the scalar tail.
template <class T>
void plant_special_values(const TypedKernels<T>& kernels) {
  for (const double special : {kNan, kInf, -kInf, 100.0}) {
    for (size_t at = 0; at < 150; ++at) {
      Row<T> row;
      row.count = at % 3 == 0 ? 150 : 3;
      for (int v = 0; v < 150; ++v) row.capped.push_back(static_cast<T>(v % 11));
      row.capped[at] = static_cast<T>(special);
      SCOPED_TRACE("special " + std::to_string(special) + " at " + std::to_string(at));
      expect_truth(kernels, row);
    }
  }
}

class TopKernelTargets : public ::testing::TestWithParam<const RowKernels*> {};

TEST_P(TopKernelTargets, KeepWhatASortPutsFirst) {
  compare(GetParam()->f32);
  compare(GetParam()->f64);
}

TEST_P(TopKernelTargets, SeeASpecialLogitInEveryColumn) {
  plant_special_values(GetParam()->f32);
  plant_special_values(GetParam()->f64);
}

// Compares with a pick of fold().
template <class T>
void compare_capped(const RowKernels& kernels) {
  for (const T softcap : {T{0}, T{5}}) {
    for (const std::optional<DType> round_to : {std::optional<DType>(), std::optional(DType::kBFloat16)}) {
      Tile<T> tile;
      tile.rows = 39;
      tile.bias = true;
      tile.softcap = softcap;
      tile.round_to = round_to;
      tile.seed(3);
      const std::vector<double> picked = fold(kernels.typed<T>(), tile).picked;
      const std::vector<T> bias = sequence<T>(tile.cols, -1, 0.25);
      const TilePicks picks(tile.rows, tile.cols);
      for (int64_t r = 0; r < tile.rows; ++r) {
        std::vector<T> capped(static_cast<size_t>(tile.cols));
        kernels.typed<T>().cap({1, tile.cols, tile.cols, bias.data(), softcap, round_to},
                               tile.logits.data() + r * tile.stride(), capped.data());
        const auto at = picks.first_of(static_cast<size_t>(r));
        const int64_t column = picks.ids[at] - 100;
        if (column < 0 || column >= tile.cols) continue;
        EXPECT_EQ(static_cast<double>(capped[static_cast<size_t>(column)]), picked[at]) << column;
      }
    }
  }
}

TEST_P(TopKernelTargets, CapLogitsAsFoldsDo) {
  compare_capped<float>(*GetParam());
  compare_capped<double>(*GetParam());
}

std::vector<const RowKernels*> all_kernels() {
  std::vector<const RowKernels*> all = simd_kernels();
  all.push_back(&plain_kernels());
  return all;
}

INSTANTIATE_TEST_SUITE_P(AllTargets, TopKernelTargets, ::testing::ValuesIn(all_kernels()),
                         [](const auto& info) { return std::string(info.param->name); });

}  // namespace top_kernels_test
}  // namespace logitless::kernels

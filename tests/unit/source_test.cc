// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// A source of two products, as a head with a low-rank update has them, and the sinks of the second one. All
// numbers are small integers, so every sum is exact.
#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "core/arena.h"
#include "gemm/gemm.h"
#include "kernels/row_kernels.h"
#include "sink/hidden_sink.h"
#include "sink/weight_sink.h"
#include "source/reordered_states.h"
#include "source/source.h"
#include "support/host_tensor.h"
#include "support/views.h"

namespace logitless::testing {
namespace {

constexpr int64_t kRows = 9, kEntries = 7;
constexpr int64_t kCols[] = {5, 2};  // of the two products

class TwoProducts {
 public:
  TwoProducts(DType dtype, HeadLayout layout) : layout_(layout) {
    for (const int64_t cols : kCols) {
      states_.push_back(HostTensor(dtype, kRows, cols, 1));
      heads_.push_back(layout == HeadLayout::kVocabHidden ? HostTensor(dtype, kEntries, cols, 2)
                                                          : HostTensor(dtype, cols, kEntries, 2));
      fill(states_.back());
      fill(heads_.back());
    }
  }

  /// Returns the sum of both products, or that of the first with the second beside it.
  source::Source source(bool beside = false) const {
    core::Array<source::Product> products;
    for (size_t p = 0; p < 2; ++p) {
      products.push_back({source::States(problem::matrix_rows(states_[p].view())),
                          source::Head(LmHead(heads_[p].view(), layout_)), beside && p == 1 ? 1 : 0});
    }
    return source::Source(std::move(products));
  }

  double state(size_t p, int64_t row, int64_t c) const { return states_[p].get(row, c); }
  double weight(size_t p, int64_t entry, int64_t c) const {
    return layout_ == HeadLayout::kVocabHidden ? heads_[p].get(entry, c) : heads_[p].get(c, entry);
  }
  /// Returns the logit of one product.
  float logit_of(size_t p, int64_t row, int64_t entry) const {
    double sum = 0;
    for (int64_t c = 0; c < kCols[p]; ++c) sum += state(p, row, c) * weight(p, entry, c);
    return static_cast<float>(sum);
  }
  float logit(int64_t row, int64_t entry) const { return logit_of(0, row, entry) + logit_of(1, row, entry); }

 private:
  void fill(HostTensor& tensor) {
    std::uniform_int_distribution<int> numbers(-4, 4);
    for (int64_t i = 0; i < tensor.rows(); ++i) {
      for (int64_t j = 0; j < tensor.cols(); ++j) tensor.set(i, j, numbers(random_));
    }
  }

  std::mt19937 random_{7};
  HeadLayout layout_;
  std::vector<HostTensor> states_;
  std::vector<HostTensor> heads_;
};

// Takes memory as a call does: what take(arena) has measured.
class Memory {
 public:
  template <class Take>
  explicit Memory(const Take& take) : arena_(measured(take)) {
    take(arena_);
  }

 private:
  template <class Take>
  static size_t measured(const Take& take) {
    core::Arena arena;
    take(arena);
    return arena.peak();
  }

  core::Arena arena_;
};

// What products of at most `rows` rows take.
struct TileMemory {
  source::Scratch scratch;
  source::GatherBuffer room;

  void take(core::Arena& arena, const source::Source& source, const gemm::Backend& gemm, int64_t rows) {
    const auto bytes = [&](const source::ProductShape& p) { return gemm.scratch_bytes(p.m, p.n, p.k, p.a, p.b); };
    scratch = source.take_scratch(arena, source.most_of_logits(rows, kEntries, bytes), kEntries);
    room = source.take_gather_buffer(arena, rows);
  }
};

template <class Test>
void for_every_source(const Test& test) {
  for (const std::string_view name : gemm::backend_names()) {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
      for (const HeadLayout layout : {HeadLayout::kVocabHidden, HeadLayout::kHiddenVocab}) {
        SCOPED_TRACE(std::string(name) + ", " + std::string(name_of(dtype)) + ", " + std::string(name_of(layout)));
        test(*gemm::find_backend(name), TwoProducts(dtype, layout));
      }
    }
  }
}

const kernels::RowKernels& row_kernels() { return *kernels::find_kernels("auto"); }

TEST(Source, LogitsAreTheSumOfTwoProducts) {
  for_every_source([](const gemm::Backend& gemm, const TwoProducts& two) {
    const source::Source source = two.source();
    EXPECT_EQ(source.depth(), kCols[0] + kCols[1]);
    source::RowBlocks blocks;
    const std::vector<int64_t> run = {2, 3, 4}, apart = {0, 5, 8};
    append_row_blocks(run, 6, {}, blocks);
    append_row_blocks(apart, 6, {}, blocks);
    ASSERT_EQ(blocks.blocks.size(), 2U);
    ASSERT_FALSE(blocks.blocks[1].contiguous);
    // A row that stands alone leaves a hole before it.
    blocks.place = {0, 1, 2, 0, 2, 3};
    blocks.blocks[1].tile_rows = 4;
    TileMemory tiles;
    source::ReorderedStates reordered;
    const Memory memory([&](core::Arena& arena) {
      tiles.take(arena, source, gemm, 4);
      reordered = source::ReorderedStates(arena, source::ReorderedStates::bytes_of(source, gemm, blocks.blocks));
    });
    reordered.reorder(source, gemm, row_kernels(), 1, blocks, blocks.blocks, [&](size_t) { return tiles.room; });
    constexpr int64_t kFirst = 2, kCount = 4, kStride = 6;
    for (const bool use_reordered : {false, true}) {
      for (size_t b = 0; b < 2; ++b) {
        const source::RowBlock& block = blocks.blocks[b];
        const source::TileRows rows = {blocks, block, tiles.room,
                                       use_reordered ? reordered.of(static_cast<int64_t>(b)) : nullptr};
        source.gather(gemm, rows);
        std::vector<float> tile(static_cast<size_t>(block.tile_rows * kStride), 99);
        source.make_tile(rows, kFirst, kCount, tile.data(), kStride, {gemm, row_kernels(), tiles.scratch});
        for (int64_t r = 0; r < block.count; ++r) {
          const auto i = static_cast<size_t>(r);
          for (int64_t e = 0; e < kCount; ++e) {
            EXPECT_EQ(tile[static_cast<size_t>(blocks.places(block)[i] * kStride + e)],
                      two.logit(blocks.rows(block)[i], kFirst + e));
          }
        }
      }
    }
  });
}

TEST(Source, AllLogitsAreMadeAtOnce) {
  for_every_source([](const gemm::Backend& gemm, const TwoProducts& two) {
    const source::Source source = two.source();
    std::vector<int64_t> rows(kRows);
    std::iota(rows.begin(), rows.end(), 0);
    source::Scratch scratch;
    source::GatherBuffer room;
    const Memory memory([&](core::Arena& arena) {
      const size_t bytes = source.most_of_logits(
          kRows, kEntries, [&](const source::ProductShape& p) { return gemm.scratch_bytes(p.m, p.n, p.k, p.a, p.b); });
      scratch = source.take_scratch(arena, bytes, kEntries);
      room = source.take_gather_buffer(arena, kRows);
    });
    source.gather(rows, 1, room);
    for (const source::GatherBuffer& from : {source::GatherBuffer(), room}) {
      std::vector<float> logits(kRows * kEntries);
      source.make_logits(rows, from, 0, source.entries(), logits.data(), {gemm, row_kernels(), scratch});
      for (int64_t i = 0; i < kRows; ++i) {
        for (int64_t v = 0; v < kEntries; ++v) {
          EXPECT_EQ(logits[static_cast<size_t>(i * kEntries + v)], two.logit(i, v));
        }
      }
    }
  });
}

TEST(Source, ASecondHeadsLogitsStandBehindTheFirsts) {
  for_every_source([](const gemm::Backend& gemm, const TwoProducts& two) {
    const source::Source source = two.source(/*beside=*/true);
    ASSERT_EQ(source.sides(), 2);
    source::RowBlocks blocks;
    const std::vector<int64_t> rows = {0, 5, 8};
    append_row_blocks(rows, 6, {}, blocks);
    const source::RowBlock& block = blocks.blocks[0];
    TileMemory tiles;
    const Memory memory([&](core::Arena& arena) { tiles.take(arena, source, gemm, 3); });
    const source::TileRows tile_rows = {blocks, block, tiles.room};
    source.gather(gemm, tile_rows);
    const int64_t stride = kEntries + 1, side = block.tile_rows * stride;
    std::vector<float> tile(static_cast<size_t>(2 * side), 99);
    source.make_tile(tile_rows, 0, kEntries, tile.data(), stride, {gemm, row_kernels(), tiles.scratch});
    for (size_t r = 0; r < rows.size(); ++r) {
      for (int64_t v = 0; v < kEntries; ++v) {
        const auto at = static_cast<size_t>(blocks.places(block)[r] * stride + v);
        EXPECT_EQ(tile[at], two.logit_of(0, rows[r], v));
        EXPECT_EQ(tile[static_cast<size_t>(side) + at], two.logit_of(1, rows[r], v));
      }
    }
  });
}

TEST(Sink, TheSecondProductHasGradientsOfItsOwn) {
  for_every_source([](const gemm::Backend& gemm, const TwoProducts& two) {
    const source::Source source = two.source();
    const source::Product& second = source.products()[1];
    const int64_t cols = kCols[1];
    const std::vector<int64_t> rows = {1, 4, 5};  // gathered
    HostTensor gradients(DType::kFloat32, 3, kEntries, 0);
    for (int64_t r = 0; r < 3; ++r) {
      for (int64_t v = 0; v < kEntries; ++v) gradients.set(r, v, static_cast<double>(r + 2 * v - 5));
    }
    sink::Sizes sizes;
    sizes.part = {3, kEntries, 16, 16};
    sizes.rows = 3;
    sizes.entries = kEntries;
    sizes.scatter = true;
    std::vector<float> d_states(static_cast<size_t>(kRows * cols), 99), d_head(static_cast<size_t>(kEntries * cols));
    const source::Layout& layout = second.head.layout();
    sink::HiddenSink<float> hidden(row_kernels(), second.head,
                                   problem::matrix_rows(Matrix(d_states.data(), kRows, cols)), WriteMode::kOverwrite,
                                   sizes);
    const WeightGradientSink no_callback;
    sink::WeightSink<float> weight(row_kernels(), second,
                                   Matrix(d_head.data(), layout.rows(kEntries, cols), layout.cols(kEntries, cols)),
                                   WriteMode::kOverwrite, no_callback, sink::SumsIn::kOutput, sizes);
    // The same once more, summed apart from the output and in two parts.
    std::vector<float> d_head_apart(d_head.size());
    sizes.weight_tiles = 1;
    sink::WeightSink<float> weight_apart(
        row_kernels(), second, Matrix(d_head_apart.data(), layout.rows(kEntries, cols), layout.cols(kEntries, cols)),
        WriteMode::kOverwrite, no_callback, sink::SumsIn::kTiles, sizes);
    source::Scratch scratch;
    source::GatherBuffer room;
    const Memory memory([&](core::Arena& arena) {
      const size_t bytes = source.most_of_gradients(sizes.part, DType::kFloat32, [&](const source::ProductShape& p) {
        return gemm.scratch_bytes(p.m, p.n, p.k, p.a, p.b);
      });
      scratch = source.take_scratch(arena, bytes, kEntries);
      room = source.take_gather_buffer(arena, 3);
      hidden.take(arena);
      weight.take(arena);
      weight_apart.take(arena);
    });
    source.gather(rows, 1, room);
    sink::GradientPart part;
    part.terms[0] = {gradients.view().data, DType::kFloat32, gradients.view().stride, false};
    part.rows = rows;
    part.contiguous = false;
    part.gathered = room;
    part.entries = kEntries;
    const source::Multiplier multiply = {gemm, row_kernels(), scratch};
    ASSERT_EQ(hidden.splits(), 1);
    ASSERT_EQ(weight.splits(), 1);
    hidden.add(part, 0, /*first=*/true, 0, multiply);
    weight.add(part, 0, /*first=*/true, 0, multiply);
    weight_apart.add(part, 0, /*first=*/true, 0, multiply);
    weight_apart.finish_tile(0, kEntries, 1);
    EXPECT_EQ(d_head_apart, d_head);
    core::Array<bool> has_parts(kRows, false);
    for (const int64_t row : rows) has_parts[static_cast<size_t>(row)] = true;
    hidden.finish(has_parts, /*any=*/true);
    weight.finish(has_parts, /*any=*/true);
    for (int64_t c = 0; c < cols; ++c) {
      std::vector<double> expected(kRows, 0);
      for (size_t r = 0; r < rows.size(); ++r) {
        for (int64_t v = 0; v < kEntries; ++v) {
          expected[static_cast<size_t>(rows[r])] += gradients.get(static_cast<int64_t>(r), v) * two.weight(1, v, c);
        }
      }
      for (int64_t i = 0; i < kRows; ++i) {
        EXPECT_EQ(d_states[static_cast<size_t>(i * cols + c)], expected[static_cast<size_t>(i)]);
      }
      for (int64_t v = 0; v < kEntries; ++v) {
        double sum = 0;
        for (size_t r = 0; r < rows.size(); ++r) {
          sum += gradients.get(static_cast<int64_t>(r), v) * two.state(1, rows[r], c);
        }
        EXPECT_EQ(d_head[static_cast<size_t>(layout.offset(v, c, layout.cols(kEntries, cols)))], sum);
      }
    }
  });
}

}  // namespace
}  // namespace logitless::testing

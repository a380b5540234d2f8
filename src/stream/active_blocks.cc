// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "stream/active_blocks.h"

#include <algorithm>
#include <stdexcept>

#include "core/store.h"
#include "stats/row_gradients.h"

namespace logitless::stream {

namespace {

// Returns whether a row has a nonzero token gradient.
class HasGradient {
 public:
  HasGradient(const problem::TokenProblem& problem, const TokenGrads& grads) : problem_(problem), grads_(grads) {}
  bool operator()(int64_t row) const { return stats::has_gradient(problem_, grads_, row); }
  bool all(std::span<const int64_t> rows) const { return std::all_of(rows.begin(), rows.end(), *this); }

 private:
  const problem::TokenProblem& problem_;
  const TokenGrads& grads_;
};

// One pass: keeps the remaining rows in the tiles that store their logits.
void keep_tiles(const planning::RunPlan& run, size_t begin, size_t end, const HasGradient& kept, ActiveBlocks& out) {
  if (begin < end) out.chunk_begin = run.blocks.blocks[begin].tile_begin;
  for (size_t b = begin; b < end; ++b) {
    const planning::RowBlock& from = run.blocks.blocks[b];
    planning::RowBlock to;
    to.begin = static_cast<int64_t>(out.blocks.order.size());
    for (int64_t r = 0; r < from.count; ++r) {
      const auto i = static_cast<size_t>(from.begin + r);
      if (!kept(run.blocks.order[i])) continue;
      out.blocks.order.push_back(run.blocks.order[i]);
      out.blocks.place.push_back(run.blocks.place[i]);
    }
    to.count = static_cast<int64_t>(out.blocks.order.size()) - to.begin;
    if (to.count == 0) continue;
    to.contiguous = out.blocks.is_run(to.begin, to.count);
    out.blocks.blocks.push_back(to);
    out.tile_block.push_back(from);
  }
}

// Two pass: packs the remaining rows into as few tiles as possible. If the backend has row classes, a block
// without dropped rows stays as it is, and the rows of the other blocks are pooled.
void make_tiles(const planning::RunPlan& run, size_t begin, size_t end, const HasGradient& kept, ActiveBlocks& out) {
  const gemm::RowRule& rule = run.grid.row_rule;
  core::Array<int64_t> rows, classes;
  for (size_t b = begin; b < end; ++b) {
    const planning::RowBlock& from = run.blocks.blocks[b];
    if (rule.class_rows > 0 && kept.all(run.blocks.rows(from))) {
      append_block(run.blocks, from, out.blocks);
      continue;
    }
    for (int64_t r = 0; r < from.count; ++r) {
      const auto i = static_cast<size_t>(from.begin + r);
      if (!kept(run.blocks.order[i])) continue;
      rows.push_back(run.blocks.order[i]);
      classes.push_back(rule.class_of(run.blocks.place[i]));
    }
  }
  if (rows.empty()) return;
  if (rule.class_rows > 0) {
    append_classed_blocks(rows, classes, run.grid.row_tile, rule, out.blocks);
  } else {
    std::sort(rows.begin(), rows.end());
    append_row_blocks(rows, run.grid.row_tile, rule, out.blocks);
  }
}

}  // namespace

ActiveBlocks active_blocks(const problem::TokenProblem& problem, const planning::RunPlan& run, size_t begin, size_t end,
                           const TokenGrads& grads) {
  const HasGradient kept(problem, grads);
  ActiveBlocks out;
  out.blocks.breaks = run.blocks.breaks;
  const auto whole = std::span(run.blocks.blocks).subspan(begin, end - begin);
  const bool nothing_dropped = std::all_of(
      whole.begin(), whole.end(), [&](const planning::RowBlock& block) { return kept.all(run.blocks.rows(block)); });
  if (run.keeps_logits()) {
    keep_tiles(run, begin, end, kept, out);
  } else if (nothing_dropped) {
    for (const planning::RowBlock& block : whole) append_block(run.blocks, block, out.blocks);
    if (run.stored_tiles() > 0) out.tile_block.assign(whole.begin(), whole.end());
  } else {
    make_tiles(run, begin, end, kept, out);
  }
  if (!nothing_dropped && !out.empty() && !run.may_drop_rows) {
    throw std::logic_error("logitless: a loss dropped rows that it had promised to keep");
  }
  return out;
}

}  // namespace logitless::stream

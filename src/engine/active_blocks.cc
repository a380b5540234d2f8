// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "engine/active_blocks.h"

#include <algorithm>
#include <stdexcept>

#include "engine/row_gradients.h"

namespace logitless::engine {

ActiveBlocks active_blocks(const RunPlan& run, size_t begin, size_t end, const TokenGrads& grads) {
  ActiveBlocks out;
  if (begin == end) return out;
  const bool logits_stay = run.plan.kind == PlanKind::kOnePass;
  out.blocks.breaks = run.blocks.breaks;
  out.chunk_begin = run.blocks.blocks[begin].begin;
  bool dropped = false;
  for (size_t b = begin; b < end; ++b) {
    const RowBlock& from = run.blocks.blocks[b];
    RowBlock to;
    to.begin = static_cast<int64_t>(out.blocks.order.size());
    for (int64_t r = 0; r < from.count; ++r) {
      const int64_t row = run.blocks.order[static_cast<size_t>(from.begin + r)];
      if (!has_gradient(grads, row)) {
        dropped = true;
        continue;
      }
      out.blocks.order.push_back(row);
      out.tile_row.push_back(static_cast<int32_t>(r));
    }
    to.count = static_cast<int64_t>(out.blocks.order.size()) - to.begin;
    if (to.count == 0) continue;
    to.contiguous = out.blocks.is_run(to.begin, to.count);
    out.blocks.blocks.push_back(to);
    out.tile_block.push_back(from);
  }
  if (!dropped || out.empty()) return out;
  if (!run.gather) throw std::logic_error("logitless: a loss dropped rows that it had promised to keep");
  // Logits that are computed again can be cut afresh, so that few remaining rows make few full tiles.
  if (!logits_stay) {
    std::vector<int64_t> kept = std::move(out.blocks.order);
    std::sort(kept.begin(), kept.end());
    out.blocks = make_row_blocks(kept, run.grid.row_tile, run.blocks.breaks);
  }
  return out;
}

}  // namespace logitless::engine

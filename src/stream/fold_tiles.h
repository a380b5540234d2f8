// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// This is the source and the fold of tiles that are products: row blocks of hidden times tiles of the head.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "stats/statistics.h"
#include "stream/buffers.h"
#include "stream/pass.h"

namespace logitless::stream {

/// Overwrites `tile` with the raw logits [block.tile_rows, words] = hidden · head. `hidden` is a
/// tile_operand().
template <class Types>
void compute_logits(const Pass<Types>& pass, const RowBlock& block, const gemm::Operand& hidden, int64_t vocab_tile,
                    void* gemm_scratch, typename Types::Logit* tile);

/// Folds the tiles of blocks [begin, end), whose rows are `rows`, and hands their partial statistics to
/// `finish`. Where the logits stay, they are in pass.chunk afterwards.
template <class Types>
void fold_tiles(const Pass<Types>& pass, ForwardBuffers<Types>& buffers, size_t begin, size_t end,
                std::span<const int64_t> rows, const stats::Finisher& finish);

}  // namespace logitless::stream

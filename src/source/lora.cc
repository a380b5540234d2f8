// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "source/lora.h"

#include <omp.h>

#include <algorithm>

#include "core/parallel.h"
#include "core/store.h"
#include "core/views.h"
#include "source/source.h"

namespace logitless::source {
namespace {

using problem::HiddenProblem;
using problem::StatesAndHead;

// Rows per product. With H = 1,536 and float32 they are 768 KiB, which stay in L2.
constexpr int64_t kRows = 128;

// x aᵀ is computed like logits, by a source whose head is a.
Source source_of(const StatesAndHead& of) {
  core::Array<Product> products;
  products.push_back({States(problem::rows_of(of)), Head(HeadMatrices(of.head.lora.a))});
  return Source(std::move(products));
}

template <class Sum>
struct PerThread {
  GatherBuffer gathered;
  Scratch products;
  Sum* tile = nullptr;
};

template <class Sum>
core::Array<PerThread<Sum>> take_scratch(core::Arena& arena, const Source& source, const LoraTeam& team,
                                         int64_t tile_rows) {
  const int64_t rank = source.entries();
  const size_t gemm_bytes = source.most_of_logits(
      tile_rows, rank, [&](const ProductShape& p) { return team.gemm.scratch_bytes(p.m, p.n, p.k, p.a, p.b); });
  core::Array<PerThread<Sum>> threads(static_cast<size_t>(team.threads));
  for (PerThread<Sum>& mine : threads) {
    mine.gathered = source.take_gather_buffer(arena, tile_rows);
    mine.products = source.take_scratch(arena, gemm_bytes, rank);
    mine.tile = arena.take<Sum>(tile_rows * rank);
  }
  return threads;
}

// If `out` is null, this only takes the memory.
template <class Sum>
void make_states(core::Arena& arena, const HiddenProblem& problem, const StatesAndHead& of, const LoraTeam& team,
                 Sum* out) {
  const Source source = source_of(of);
  const int64_t rank = source.entries();
  const gemm::RowRule rule = source.row_rule(team.gemm, rank, kRows);
  const size_t mark = arena.mark();
  const auto threads = take_scratch<Sum>(arena, source, team, rule.padded(kRows));
  arena.rewind(mark);
  if (!out) return;
  const auto scale = static_cast<Sum>(of.head.lora.scale);
  const std::span<const int64_t> rows = problem.active();
  if (static_cast<int64_t>(rows.size()) < problem.tokens) std::fill_n(out, problem.tokens * rank, Sum{0});
  const RowBlocks blocks = make_row_blocks(rows, kRows, rule, source.breaks());
  const auto alone = team.gemm.single_threaded_region();
  core::parallel_for(team.threads, static_cast<int64_t>(blocks.blocks.size()), [&](int64_t b) {
    const PerThread<Sum>& mine = threads[static_cast<size_t>(omp_get_thread_num())];
    const RowBlock& block = blocks.blocks[static_cast<size_t>(b)];
    const TileRows tile = {blocks, block, mine.gathered};
    source.gather(team.gemm, tile);
    source.make_tile(tile, 0, rank, mine.tile, rank, Multiplier{team.gemm, team.kernels, mine.products});
    for (size_t r = 0; r < blocks.rows(block).size(); ++r) {
      const Sum* const from = mine.tile + blocks.places(block)[r] * rank;
      Sum* const to = out + blocks.rows(block)[r] * rank;
      for (int64_t k = 0; k < rank; ++k) to[k] = scale * from[k];
    }
  });
}

// Returns whether this file computes the states: there is a LoRA, and its states are not given.
bool makes_states(const StatesAndHead& of) { return of.head.lora.given() && !of.head.lora.has_states(); }

void make_states(core::Arena& arena, const HiddenProblem& problem, const StatesAndHead& of, const LoraTeam& team,
                 void* out) {
  if (!makes_states(of)) return;
  if (problem.in_double()) return make_states(arena, problem, of, team, static_cast<double*>(out));
  make_states(arena, problem, of, team, static_cast<float*>(out));
}

void* take_states(core::Arena& arena, const HiddenProblem& problem, const StatesAndHead& of) {
  if (!makes_states(of)) return nullptr;
  return arena.take_bytes(static_cast<size_t>(problem.tokens * of.head.lora.rank()) * size_of(problem.sum_type()));
}

problem::Rows<ConstMatrix> rows_of(const HiddenProblem& problem, const StatesAndHead& of, const void* made) {
  const LoraMatrices& lora = of.head.lora;
  if (lora.has_states()) return problem::matrix_rows(lora.states);
  return problem::matrix_rows(ConstMatrix(made, problem.sum_type(), problem.tokens, lora.rank()));
}

}  // namespace

LoraStates::LoraStates(core::Arena& arena, const HiddenProblem& problem, const LoraTeam& team)
    : call_states_(take_states(arena, problem, problem)),
      teacher_states_(problem.teacher ? take_states(arena, problem, *problem.teacher) : nullptr) {
  make_states(arena, problem, problem, team, call_states_);
  if (problem.teacher) make_states(arena, problem, *problem.teacher, team, teacher_states_);
}

problem::Rows<ConstMatrix> LoraStates::of_call(const HiddenProblem& problem) const {
  return rows_of(problem, problem, call_states_);
}
problem::Rows<ConstMatrix> LoraStates::of_teacher(const HiddenProblem& problem) const {
  return rows_of(problem, *problem.teacher, teacher_states_);
}

HeadMatrices lora_head(const HeadMatrices& head) {
  HeadMatrices out(head.lora.b);
  out.ids = head.ids;
  return out;
}

}  // namespace logitless::source

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "stream/plan.h"

#include <cstdio>
#include <limits>

#include "core/checks.h"
#include "core/integers.h"
#include "stream/buffers.h"
#include "stream/hidden_blocks.h"
#include "stream/row_groups.h"

namespace logitless {

const char* name_of(PlanKind kind) {
  switch (kind) {
    case PlanKind::kAuto:
      return "auto";
    case PlanKind::kForwardOnly:
      return "forward_only";
    case PlanKind::kOnePass:
      return "one_pass";
    case PlanKind::kTwoPass:
      return "two_pass";
    case PlanKind::kDense:
      return "dense";
  }
  return "unknown";
}

std::string Plan::describe() const {
  char text[256];
  if (active_rows == 0) return std::string(name_of(kind)) + ": no row takes part";
  const int used = std::snprintf(text, sizeof text, "%s: %lld of %lld rows in chunks of %lld, ", name_of(kind),
                                 static_cast<long long>(active_rows), static_cast<long long>(tokens),
                                 static_cast<long long>(chunk_rows));
  char* rest = text + used;
  const size_t left = sizeof text - static_cast<size_t>(used);
  const double mebibytes = static_cast<double>(workspace_bytes) / (1 << 20);
  if (row_block > 0) {
    std::snprintf(rest, left, "blocks of %lld, %.1f MiB workspace", static_cast<long long>(row_block), mebibytes);
  } else {
    std::snprintf(rest, left, "tiles %lld x %lld, %d alive, %.1f MiB workspace", static_cast<long long>(row_tile),
                  static_cast<long long>(vocab_tile), tiles_alive, mebibytes);
  }
  return text;
}

namespace stream {
namespace {

// This is the one table of block sizes.
constexpr int64_t kRowTile = 512;  // each element of the head that a GEMM packs then serves 512 multiply-adds
constexpr int64_t kTileElements =
    512 * 1024;  // 2 MiB of float32: with what the GEMM packs about a core's L2 and its share of L3
// Fewer rows get wider tiles up to here; beyond, the row kernels miss L1.
constexpr int64_t kMostVocabTile = 4096;
// A small call gets narrower tiles, so that there is work for several threads.
constexpr int64_t kFewestTiles = 8;
constexpr int64_t kLeastVocabTile = 512;  // down to here; below, a GEMM packs too much for what it computes
// A small budget gets smaller tiles down to 16 x 16, whose rows are a cache line.
constexpr int64_t kSmallestEdge = 16;
constexpr int64_t kHiddenBlock = 256;  // narrowest d_hidden and d_weight GEMM: below, packing costs too much
constexpr int64_t kGradientTasks =
    4;  // chains of d_hidden: these are a third of the work, so a dozen threads stay busy
// This many tasks, row blocks × segments, keep many threads even; each costs 56 bytes a row.
constexpr int64_t kForwardTasks = 128;
constexpr int64_t kMinChunkRows = 128;  // below, one pass writes d_weight so often that two pass is faster
constexpr int64_t kSlotsPerThread = 2;  // one tile is made while another one is used
// This many rows of finished logits are folded and turned into gradients in turn. They are few, because they
// are read again for their gradients and should still be in the core's cache then.
constexpr int64_t kSweepRows = 4;
// A one-pass chunk leaves room for the scratch of this many threads, if the budget allows it.
constexpr int64_t kPlannedTeam = 8;

using core::div_up;
using core::round_up;

// A stride that is a multiple of 1 KiB would put a column of the tile into a few cache sets.
int64_t padded_stride(int64_t cols) {
  const int64_t stride = round_up(cols, 16);
  return stride % 256 == 0 ? stride + 16 : stride;
}

// These are the largest tiles that a budget leaves room for, below those of the table.
struct TileCap {
  int64_t rows = kMostTileEdge;
  int64_t words = kMostTileEdge;
};

gemm::RowFamily logit_products(const HiddenProblem& problem, int64_t words) {
  const gemm::Operand head = head_operand(problem.head, 0, 0, /*hidden_first=*/true);
  return {words, problem.hidden_size, problem.hidden.dtype, head.dtype, head.transposed};
}

// This rule is asked for its row_step alone, which does not depend on the tiles.
gemm::RowRule any_row_rule(const gemm::Backend& gemm, const HiddenProblem& problem) {
  return gemm.row_rule(logit_products(problem, 1), 1);
}

// Sets the grid for blocks of `rows` of the `all_rows` that take part.
void set_grid(const detail::ContextState& context, const TileCap& cap, const HiddenProblem& problem, int64_t rows,
              int64_t all_rows, TileGrid& grid) {
  const ContextOptions& options = context.options;
  grid.vocab_size = problem.vocab_size;
  grid.hidden_size = problem.hidden_size;
  const int64_t step = any_row_rule(*context.gemm, problem).row_step;
  const int64_t most_rows = std::min(options.row_tile > 0 ? options.row_tile : round_up(kRowTile, step), cap.rows);
  grid.row_tile = std::clamp<int64_t>(rows, 1, most_rows);
  if (grid.row_tile < all_rows && options.row_tile == 0 && most_rows >= step) {
    // Blocks that follow one another need no rows of padding when each has whole steps.
    grid.row_tile = std::min(round_up(grid.row_tile, step), most_rows / step * step);
  }
  const int64_t widest = std::clamp(kTileElements / grid.row_tile / 64 * 64, kTileElements / kRowTile, kMostVocabTile);
  const int64_t share = round_up(div_up(grid.vocab_size * div_up(rows, grid.row_tile), kFewestTiles), 64);
  const int64_t vocab_tile = std::min(widest, std::max(share, kLeastVocabTile));
  grid.vocab_tile = std::min({options.vocab_tile > 0 ? options.vocab_tile : vocab_tile, cap.words, grid.vocab_size});
  grid.tile_stride = padded_stride(grid.vocab_tile);
}

// Sets the rule that holds for all tiles of the vocabulary, the last and narrower one too.
void set_row_rule(const gemm::Backend& gemm, const HiddenProblem& problem, TileGrid& grid) {
  const auto rule_of = [&](int64_t words) { return gemm.row_rule(logit_products(problem, words), grid.row_tile); };
  grid.row_rule = rule_of(grid.vocab_tile);
  const gemm::RowRule last = rule_of(grid.words(grid.vocab_tiles() - 1));
  grid.row_rule.least_rows = std::max(grid.row_rule.least_rows, last.least_rows);
  grid.tile_rows = grid.row_rule.padded(grid.row_tile);
}

// Sets what depends on how many blocks there are.
void set_splits(int64_t row_blocks, TileGrid& grid) {
  row_blocks = std::max<int64_t>(row_blocks, 1);
  const int64_t most_blocks = std::max<int64_t>(1, grid.hidden_size / kHiddenBlock);
  const auto split = [&](int64_t chains) {
    const int64_t blocks = std::clamp<int64_t>(div_up(kGradientTasks, chains), 1, most_blocks);
    return std::min(grid.hidden_size, round_up(div_up(grid.hidden_size, blocks), 16));
  };
  grid.hidden_block = split(row_blocks);
  grid.weight_block = split(grid.vocab_tiles());
  grid.segments = std::clamp<int64_t>(div_up(kForwardTasks, row_blocks), 1, grid.vocab_tiles());
}

void cut_chunks(int64_t most_rows, RunPlan& run) {
  run.chunks = {0};
  int64_t rows = 0;
  for (size_t b = 0; b < run.blocks.blocks.size(); ++b) {
    const int64_t count = run.blocks.blocks[b].count;
    if (rows > 0 && rows + count > most_rows) {
      run.chunks.push_back(b);
      rows = 0;
    }
    rows += count;
  }
  run.chunks.push_back(run.blocks.blocks.size());
}

void cut_chunks(const RowChunks& chunks, const RowBreaks& breaks, RunPlan& run) {
  run.chunks = {0};
  run.blocks.breaks = breaks;
  run.blocks.order.reserve(chunks.order.size());
  for (int64_t c = 0; c < chunks.count(); ++c) {
    append_row_blocks(chunks.rows(c), run.grid.row_tile, run.grid.row_rule, run.blocks);
    run.chunks.push_back(run.blocks.blocks.size());
  }
}

struct Planner {
  const detail::ContextState& context;
  int threads;
  const HiddenProblem& problem;
  const Work& work;
  const Gradients& outputs;
  std::span<const int64_t> rows;
  // This is true where d_weight takes all rows in one chunk: several chunks would add to it several times,
  // but a sink gets each tile once, and a narrow type is rounded once.
  bool one_chunk;
  RowGroups groups;  // of a loss that one pass may run
  size_t budget;     // that plans must fit in
  TileCap cap = {};

  int64_t count() const { return static_cast<int64_t>(rows.size()); }
  bool narrow_hidden() const {
    return work.backward && outputs.wants_d_hidden() && core::is_half(d_hidden_dtype(outputs));
  }

  // Decides everything of a plan but how many tiles are alive. Chunks of whole groups hold at most
  // `chunk_rows` rows, and other chunks hold that many in full tiles.
  RunPlan cut(PlanKind kind, int64_t chunk_rows) const {
    RunPlan run;
    const bool whole_groups = kind == PlanKind::kOnePass && groups.coupled() && chunk_rows < count();
    RowChunks chunks;
    if (whole_groups) {
      chunks = pack_groups(rows, groups, chunk_rows);
      chunk_rows = chunks.largest;
    }
    set_grid(context, cap, problem, std::min(count(), chunk_rows), count(), run.grid);
    if (kind == PlanKind::kOnePass && chunk_rows < count()) {
      const int64_t blocks = div_up(chunk_rows, run.grid.row_tile);
      const int64_t step = block_step(any_row_rule(*context.gemm, problem));
      run.grid.row_tile = std::min(run.grid.row_tile, round_up(div_up(chunk_rows, blocks), step));
      if (!whole_groups) chunk_rows = run.grid.row_tile * blocks;
    }
    set_row_rule(*context.gemm, problem, run.grid);
    if (whole_groups) {
      cut_chunks(chunks, row_breaks(problem), run);
    } else {
      run.blocks = make_row_blocks(rows, run.grid.row_tile, run.grid.row_rule, row_breaks(problem));
      cut_chunks(chunk_rows, run);
    }
    int64_t row_blocks = 0;
    for (size_t c = 0; c + 1 < run.chunks.size(); ++c) {
      const auto chunk = std::span(run.blocks.blocks).subspan(run.chunks[c], run.chunks[c + 1] - run.chunks[c]);
      if (chunk.empty()) continue;
      row_blocks = std::max(row_blocks, static_cast<int64_t>(chunk.size()));
      const int64_t tile_rows = chunk.back().tile_begin + chunk.back().tile_rows - chunk.front().tile_begin;
      run.chunk_tile_rows = std::max(run.chunk_tile_rows, tile_rows);
    }
    set_splits(row_blocks, run.grid);
    run.logits_stay = kind == PlanKind::kOnePass;
    run.may_drop_rows = work.may_drop_rows;
    run.gather = work.may_drop_rows || !run.blocks.all_contiguous();
    run.hidden_apart = narrow_hidden();
    run.scatter = run.gather || !stands_in_blocks(run.blocks);
    Plan& plan = run.plan;
    plan.kind = kind;
    plan.tokens = problem.tokens;
    plan.active_rows = count();
    plan.hidden_size = run.grid.hidden_size;
    plan.vocab_size = run.grid.vocab_size;
    plan.row_tile = run.grid.row_tile;
    plan.vocab_tile = run.grid.vocab_tile;
    plan.hidden_block = run.grid.hidden_block;
    plan.chunk_rows = std::min(chunk_rows, count());
    return run;
  }

  // Measures the run with a team of `team` threads, or fewer where there are not that many tiles.
  void set_team(int64_t team, int64_t tiles_alive, RunPlan& run) const {
    Plan& plan = run.plan;
    plan.tiles_alive = static_cast<int>(tiles_alive);
    plan.threads = static_cast<int>(std::min(team, tiles_alive));
    plan.workspace_bytes = measure_run(*context.gemm, problem, work, run, outputs);
    const TileGrid& grid = run.grid;
    const DType hidden = problem.hidden.dtype;
    const DType gradient = problem.in_double() ? DTypeOf<kernels::DoubleTiles::Gradient>::value
                                               : DTypeOf<kernels::FloatTiles::Gradient>::value;
    plan.blas_bytes =
        static_cast<size_t>(plan.threads) *
        std::max(context.gemm->packing_bytes(grid.row_tile, grid.vocab_tile, grid.hidden_size, hidden,
                                             problem.head.weight.dtype),
                 context.gemm->packing_bytes(grid.vocab_tile, grid.weight_block, grid.row_tile, gradient, hidden));
  }

  // Returns whether the rows of every block follow one another in d_hidden.
  bool stands_in_blocks(const RowBlocks& blocks) const {
    if (!work.backward || !outputs.wants_d_hidden()) return true;
    const RowBreaks breaks = d_hidden_breaks(problem, outputs);
    return std::all_of(blocks.blocks.begin(), blocks.blocks.end(), [&](const RowBlock& block) {
      return breaks.same_piece(blocks.rows(block).front(), blocks.rows(block).back());
    });
  }

  // Every tile that is added to what the caller's d_hidden holds rounds it once more; sums that stand apart
  // are added once.
  bool wants_sums_apart() const {
    return work.backward && outputs.wants_d_hidden() && outputs.d_hidden_mode == WriteMode::kAccumulate &&
           !narrow_hidden();
  }

  bool fits(const RunPlan& run) const { return run.plan.workspace_bytes <= budget; }

  // Plans as many tiles (in one pass: threads) as help and fit. The least is one; whether that fits is for
  // the caller to see.
  void fit_tiles(int64_t wanted, RunPlan& run) const {
    const int64_t tiles = run.grid.vocab_tiles() * std::max<int64_t>(1, static_cast<int64_t>(run.blocks.blocks.size()));
    int64_t alive = std::clamp<int64_t>(wanted, 1, tiles);
    set_team(threads, alive, run);
    while (!fits(run) && alive > 1) set_team(threads, --alive, run);
  }

  [[noreturn]] void too_small(const RunPlan& run) const {
    std::string why;
    if (run.plan.kind == PlanKind::kOnePass && one_chunk) {
      why = " (a weight_sink or a 16-bit d_weight takes all rows in one chunk)";
    } else if (run.plan.kind == PlanKind::kOnePass && groups.coupled()) {
      why = " (the loss couples " + std::to_string(groups.largest) + " rows, whose logits are kept together)";
    }
    core::fail("workspace_bytes = ", budget, " is too small: plan ", name_of(run.plan.kind), " with tiles of ",
               run.grid.row_tile, " x ", run.grid.vocab_tile, " needs at least ", run.plan.workspace_bytes, " bytes",
               why);
  }

  // Halves the longer edge that the caller has not fixed; returns false when both are as small as they get.
  bool halve_tiles() {
    TileGrid grid;
    set_grid(context, cap, problem, count(), count(), grid);
    const bool rows = context.options.row_tile == 0 && grid.row_tile > kSmallestEdge;
    const bool words = context.options.vocab_tile == 0 && grid.vocab_tile > kSmallestEdge;
    const auto half = [](int64_t edge) { return round_up(edge / 2, kSmallestEdge); };
    cap = {grid.row_tile, grid.vocab_tile};
    if (words && (!rows || cap.words >= cap.rows)) {
      cap.words = half(cap.words);
    } else if (rows) {
      cap.rows = half(cap.rows);
    }
    return rows || words;
  }

  // Makes the plan for tiles that are not above the cap.
  RunPlan make() const {
    if (!work.backward) return tiled(PlanKind::kForwardOnly);
    const PlanKind wanted = context.options.plan;
    if (!work.forward || wanted == PlanKind::kTwoPass) return tiled(PlanKind::kTwoPass);
    return wanted == PlanKind::kOnePass ? one_pass(1) : one_pass_or_two();
  }

  // Returns the first plan that fits, of those for the tiles of the table and then for smaller ones. A plan
  // is given up only where a single thread does not fit either, so that the choice does not depend on the
  // threads.
  RunPlan first_that_fits() {
    RunPlan run = make();
    while (!fits(run) && halve_tiles()) run = make();
    if (!fits(run)) too_small(least());
    return run;
  }

  // Returns, of all plans for tiles from those of the table to the smallest, the one that needs least: its
  // workspace is the least budget that is accepted.
  RunPlan least() const {
    Planner planner = *this;
    planner.budget = 0;
    planner.cap = {};
    RunPlan least = planner.make();
    while (planner.halve_tiles()) least = smaller(planner.make(), least);
    return least;
  }

  static const RunPlan& smaller(const RunPlan& a, const RunPlan& b) {
    return a.plan.workspace_bytes < b.plan.workspace_bytes ? a : b;
  }

  RunPlan tiled(PlanKind kind) const {
    RunPlan run = cut(kind, count());
    // Sums that stand apart decide about bits, so they are taken where a team of a fixed size finds room
    // beside them.
    if (wants_sums_apart()) {
      run.hidden_apart = true;
      set_team(kPlannedTeam, kSlotsPerThread * kPlannedTeam, run);
      run.hidden_apart = fits(run);
    }
    fit_tiles(kind == PlanKind::kTwoPass ? kSlotsPerThread * threads : threads, run);
    return run;
  }

  RunPlan one_pass_or_two() const {
    RunPlan one = one_pass(std::min(count(), kMinChunkRows));
    if (fits(one)) return one;
    RunPlan two = tiled(PlanKind::kTwoPass);
    return fits(two) ? two : smaller(one, two);
  }

  // Returns the plan with the fewest chunks of at least `least_rows`, equal as far as groups allow, that fits
  // beside the scratch of `team` threads; where there is none, it returns the plan that takes least.
  RunPlan chunked(int64_t least_rows, int64_t team, bool sums_apart) const {
    const auto in_chunks = [&](int64_t chunks) {
      RunPlan run = cut(PlanKind::kOnePass, std::max(least_rows, div_up(count(), chunks)));
      run.hidden_apart |= sums_apart;
      set_team(team, team, run);
      return run;
    };
    RunPlan whole = in_chunks(1);
    if (fits(whole) || one_chunk) return whole;
    int64_t too_few = 1;
    int64_t enough = std::max<int64_t>(1, div_up(count(), least_rows));
    RunPlan best = in_chunks(enough);
    if (!fits(best)) return smaller(best, whole);
    while (enough - too_few > 1) {
      const int64_t middle = too_few + (enough - too_few) / 2;
      RunPlan run = in_chunks(middle);
      if (fits(run)) {
        enough = middle;
        best = std::move(run);
      } else {
        too_few = middle;
      }
    }
    return best;
  }

  // Chunks decide about bits, so they are cut for a team of a fixed size, not for the one that happens to be
  // there.
  RunPlan one_pass(int64_t least_rows) const {
    least_rows = std::max(least_rows, groups.largest);
    RunPlan run = chunked(least_rows, kPlannedTeam, wants_sums_apart());
    if (!fits(run)) run = chunked(least_rows, 1, false);
    fit_tiles(threads, run);
    const int64_t tiles = div_up(run.plan.chunk_rows, run.grid.row_tile) * run.grid.vocab_tiles();
    run.plan.tiles_alive = static_cast<int>(std::clamp<int64_t>(tiles, 1, std::numeric_limits<int>::max()));
    return run;
  }
};

void check_one_pass(const ContextOptions& options, const Work& work) {
  if (options.plan == PlanKind::kOnePass && work.backward && !work.forward) {
    core::fail("plan = one_pass cannot run: gradients that come after the forward pass are a pass of their own");
  }
}

Planner make_planner(const detail::ContextState& context, int threads, const HiddenProblem& problem, const Work& work,
                     const Gradients& outputs) {
  const ContextOptions& options = context.options;
  // All rows that a forward pass had are cut as it cut them, so that those that are left find their places.
  std::span<const int64_t> rows = problem.active();
  if (!work.forward && work.kept_rows == 0) rows = {};
  check_one_pass(options, work);
  const bool one_chunk = problem.in_double() ? needs_weight_tiles<kernels::DoubleTiles::Sum>(outputs)
                                             : needs_weight_tiles<kernels::FloatTiles::Sum>(outputs);
  const bool may_keep_logits = work.forward && work.backward && options.plan != PlanKind::kTwoPass;
  return {context,
          threads,
          problem,
          work,
          outputs,
          rows,
          one_chunk,
          may_keep_logits ? make_row_groups(rows, work.groups) : RowGroups(),
          options.workspace_bytes};
}

}  // namespace

RunPlan choose_plan(const detail::ContextState& context, int threads, const HiddenProblem& problem, const Work& work,
                    const Gradients& outputs) {
  RunPlan run = make_planner(context, threads, problem, work, outputs).first_that_fits();
  if (!work.forward) run.plan.active_rows = work.kept_rows;
  return run;
}

size_t least_workspace(const detail::ContextState& context, int threads, const HiddenProblem& problem, const Work& work,
                       const Gradients& outputs) {
  return make_planner(context, threads, problem, work, outputs).least().plan.workspace_bytes;
}

Plan dense_plan(const detail::ContextState& context, int threads, const HiddenProblem& problem,
                const Gradients& outputs) {
  if (outputs.weight_sink) core::fail("weight_sink is set: plan dense has no tiles to hand out");
  Plan plan;
  plan.kind = PlanKind::kDense;
  plan.tokens = plan.row_tile = plan.chunk_rows = problem.tokens;
  plan.active_rows = static_cast<int64_t>(problem.active().size());
  plan.hidden_size = plan.hidden_block = problem.hidden_size;
  plan.vocab_size = plan.vocab_tile = problem.vocab_size;
  plan.threads = threads;
  plan.workspace_bytes = measure_dense(*context.gemm, problem, threads, outputs);
  return plan;
}

namespace {

// Decides everything of a plan but how many threads work.
SweepPlan cut_sweep(const detail::ContextState& context, const LogitsProblem& problem, const Work& work) {
  const ContextOptions& options = context.options;
  const bool coupled = !work.groups.empty();
  check_one_pass(options, work);
  if (options.plan == PlanKind::kOnePass && coupled) {
    core::fail("plan = one_pass cannot run: the loss couples rows, so all are read before a gradient is made");
  }
  SweepPlan run;
  run.all_rows_at_once =
      !work.forward || coupled || options.plan == PlanKind::kTwoPass || options.plan == PlanKind::kDense;
  Plan& plan = run.plan;
  plan.kind = !work.backward ? PlanKind::kForwardOnly : run.all_rows_at_once ? PlanKind::kTwoPass : PlanKind::kOnePass;
  plan.tokens = problem.tokens;
  plan.active_rows = static_cast<int64_t>(problem.active().size());
  plan.vocab_size = problem.vocab_size;
  plan.row_block = options.row_block > 0 ? options.row_block : kSweepRows;
  plan.vocab_tile = std::min(options.vocab_tile > 0 ? options.vocab_tile : kRowColumns, problem.vocab_size);
  plan.chunk_rows = run.all_rows_at_once ? plan.active_rows : plan.row_block;
  return run;
}

void set_team(int threads, const LogitsProblem& problem, SweepPlan& run) {
  run.plan.threads = threads;
  run.plan.workspace_bytes = measure_sweep(problem, run);
}

}  // namespace

SweepPlan choose_plan(const detail::ContextState& context, int threads, const LogitsProblem& problem,
                      const Work& work) {
  const size_t budget = context.options.workspace_bytes;
  SweepPlan run = cut_sweep(context, problem, work);
  // How many words a kernel takes at once decides about bits, so that stays, and threads are left out.
  for (int team = threads; team > 0; --team) {
    set_team(team, problem, run);
    if (run.plan.workspace_bytes <= budget) return run;
  }
  core::fail("workspace_bytes = ", budget, " is too small: plan ", name_of(run.plan.kind), " of finished logits, ",
             run.plan.vocab_tile, " words of a row at a time, needs at least ", run.plan.workspace_bytes, " bytes");
}

size_t least_workspace(const detail::ContextState& context, const LogitsProblem& problem, const Work& work) {
  SweepPlan run = cut_sweep(context, problem, work);
  set_team(1, problem, run);
  return run.plan.workspace_bytes;
}

}  // namespace stream
}  // namespace logitless

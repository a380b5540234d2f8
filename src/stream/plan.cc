// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "stream/plan.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "core/checks.h"
#include "core/integers.h"
#include "gemm/few_rows.h"
#include "stats/tile_kernels.h"
#include "stream/buffers.h"
#include "stream/hidden_blocks.h"
#include "stream/row_groups.h"

namespace logitless::stream {
namespace {

using core::div_up;
using core::round_up;

// In smaller chunks one pass writes d_weight so often that two pass is faster.
constexpr int64_t kMinChunkRows = 128;
// Logits that take no more than this stay in a cache until they are used again.
constexpr double kCachedBytes = 16 << 20;
// A thread makes one tile while another one is used; a thread that is alone uses each as it has made it, so
// that a second one would only take its place in L2.
int64_t slots_of(int64_t threads) { return threads == 1 ? 1 : 2 * threads; }
// A one-pass chunk leaves room for the scratch of this many threads, if the budget allows it.
constexpr int64_t kPlannedTeam = 8;

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
  const gemm::Backend& gemm;
  int threads;
  const HiddenProblem& problem;
  const Work& work;
  const Gradients& outputs;
  std::span<const int64_t> rows;
  // True where d_weight takes all rows in one chunk: several chunks would add to it several times,
  // but a sink gets each tile once, and a narrow type is rounded once.
  bool one_chunk;
  RowGroups groups;  // of a loss that one pass may run
  size_t budget;     // that plans must fit in
  TileCap cap = {};

  int64_t count() const { return static_cast<int64_t>(rows.size()); }
  bool narrow_hidden() const {
    return work.backward && outputs.wants_d_hidden() && stats::with_tile_types(problem, [&](auto types) {
             return core::is_narrow<typename decltype(types)::Sum>(d_hidden_dtype(outputs));
           });
  }

  // Decides everything of a plan but how many tiles are alive. Chunks of whole groups hold at most
  // `chunk_rows` rows, and other chunks hold that many in full tiles.
  RunPlan cut(PlanKind kind, int64_t chunk_rows) const {
    RunPlan run;
    run.gemm = &gemm;
    const bool whole_groups = kind == PlanKind::kOnePass && groups.coupled() && chunk_rows < count();
    RowChunks chunks;
    if (whole_groups) {
      chunks = pack_groups(rows, groups, chunk_rows);
      chunk_rows = chunks.largest;
    }
    set_grid(context.options, gemm, cap, problem, !work.backward, std::min(count(), chunk_rows), count(), run.grid);
    if (kind == PlanKind::kOnePass && chunk_rows < count()) {
      const int64_t blocks = div_up(chunk_rows, run.grid.row_tile);
      const int64_t step = block_step(any_row_rule(gemm, problem));
      run.grid.row_tile = std::min(run.grid.row_tile, round_up(div_up(chunk_rows, blocks), step));
      if (!whole_groups) chunk_rows = run.grid.row_tile * blocks;
    }
    set_row_rule(gemm, problem, run.grid);
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
    run.gradient_terms = gradient_terms(context, problem);
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
    set_arithmetic(gemm, problem, run.gradient_terms, plan);
    return run;
  }

  // Measures the run with a team of `team` threads, or fewer where there are not that many tiles.
  void set_team(int64_t team, int64_t tiles_alive, RunPlan& run) const {
    Plan& plan = run.plan;
    plan.tiles_alive = static_cast<int>(tiles_alive);
    plan.threads = static_cast<int>(std::min(team, tiles_alive));
    plan.workspace_bytes = measure_run(problem, work, run, outputs);
    const TileGrid& grid = run.grid;
    const DType gradient = stats::with_gradient_types(
        problem, run.gradient_terms, [](auto types) { return DTypeOf<typename decltype(types)::Gradient>::value; });
    plan.blas_bytes = static_cast<size_t>(plan.threads) *
                      packing_bytes(gemm, problem, gradient, {grid.row_tile, grid.vocab_tile, grid.hidden_size},
                                    grid.hidden_block, grid.weight_block);
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
    pack_hidden_if_it_fits(run);
  }

  void pack_hidden_if_it_fits(RunPlan& run) const {
    run.plan.packed_bytes = PackedHidden::most_bytes(problem, run);
    if (run.plan.packed_bytes == 0) return;
    set_team(threads, run.plan.tiles_alive, run);
    if (fits(run)) return;
    run.plan.packed_bytes = 0;
    set_team(threads, run.plan.tiles_alive, run);
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

  // Lowers the cap below the tiles of the plans so far; returns false where these are the smallest.
  bool halve_tiles() {
    TileGrid grid;
    set_grid(context.options, gemm, cap, problem, !work.backward, count(), count(), grid);
    return stream::halve_tiles(context.options, grid, cap);
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
      set_team(kPlannedTeam, slots_of(kPlannedTeam), run);
      run.hidden_apart = fits(run);
    }
    fit_tiles(kind == PlanKind::kTwoPass ? slots_of(threads) : threads, run);
    return run;
  }

  RunPlan one_pass_or_two() const {
    RunPlan one = one_pass(std::min(count(), kMinChunkRows));
    const bool one_fits = fits(one);
    if (one_fits && keeping_pays(one)) return one;
    RunPlan two = tiled(PlanKind::kTwoPass);
    if (fits(two)) return two;
    return one_fits ? one : smaller(one, two);
  }

  // Returns whether logits are sooner read than computed again. One that is kept is written, read as its
  // gradient is written in its place, and read by the products of that; caches take in what is written first.
  // Each chunk but one reads the head again, and reads and writes d_weight.
  bool keeping_pays(const RunPlan& one) const {
    const auto area = [](int64_t rows, int64_t columns) {
      return static_cast<double>(rows) * static_cast<double>(columns);
    };
    const double logits = area(count(), problem.entries);
    const auto logit_bytes = static_cast<double>(problem.in_double() ? sizeof(double) : sizeof(float));
    if (logit_bytes * area(one.plan.chunk_rows, problem.entries) <= kCachedBytes) return true;
    const double head = area(problem.hidden_size, problem.entries);
    double chunk_bytes = static_cast<double>(size_of(problem.head.weight.dtype)) * (1 + outputs.wants_d_hidden());
    if (outputs.d_weight.data) chunk_bytes += 2 * static_cast<double>(size_of(outputs.d_weight.dtype));
    const double bytes = 4 * logit_bytes * logits + static_cast<double>(one.chunks.size() - 2) * chunk_bytes * head;
    const double flops = 2 * logits * static_cast<double>(problem.hidden_size);
    return bytes * gemm.flops_per_byte(problem.hidden.dtype, problem.head.weight.dtype) <= flops;
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

Planner make_planner(const detail::ContextState& context, int threads, const HiddenProblem& problem, const Work& work,
                     const Gradients& outputs) {
  const ContextOptions& options = context.options;
  // All rows that a forward pass had are cut as it cut them, so that those that are left find their places.
  std::span<const int64_t> rows = problem.active();
  if (!work.forward && work.kept_rows == 0) rows = {};
  check_one_pass(options, work);
  const bool one_chunk = stats::with_tile_types(
      problem, [&](auto types) { return needs_weight_tiles<typename decltype(types)::Sum>(outputs); });
  const bool may_keep_logits = work.forward && work.backward && options.plan != PlanKind::kTwoPass;
  return {context,
          gemm::backend_for_rows(*context.gemm, static_cast<int64_t>(rows.size()), problem.hidden.dtype,
                                 problem.head.weight.dtype),
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

void check_one_pass(const ContextOptions& options, const Work& work) {
  if (options.plan == PlanKind::kOnePass && work.backward && !work.forward) {
    core::fail("plan = one_pass cannot run: gradients that come after the forward pass are a pass of their own");
  }
}

size_t packing_bytes(const gemm::Backend& gemm, const HiddenProblem& problem, DType gradient, const ProductSizes& sizes,
                     int64_t hidden_block, int64_t weight_block) {
  const DType hidden = problem.hidden.dtype, weight = problem.head.weight.dtype;
  const auto [rows, entries, depth] = sizes;
  const size_t d_weight = problem.head.layout == HeadLayout::kHiddenVocab
                              ? gemm.packing_bytes(weight_block, entries, rows, hidden, gradient)
                              : gemm.packing_bytes(entries, weight_block, rows, gradient, hidden);
  return std::max({gemm.packing_bytes(rows, entries, depth, hidden, weight),
                   gemm.packing_bytes(rows, hidden_block, entries, gradient, weight), d_weight});
}

int gradient_terms(const detail::ContextState& context, const HiddenProblem& problem) {
  const DType hidden = problem.hidden.dtype, weight = problem.head.weight.dtype;
  // Where a backend widens bfloat16, narrow gradients would lose digits and save nothing.
  if (hidden != DType::kBFloat16 || weight != DType::kBFloat16 || !context.gemm->reads(hidden, weight)) return 0;
  switch (context.options.gradient_precision) {
    case GradientPrecision::kNative:
      return 1;
    case GradientPrecision::kSplit:
      return 2;
    case GradientPrecision::kFloat32:
      break;
  }
  return 0;
}

void set_arithmetic(const gemm::Backend& gemm, const HiddenProblem& problem, int terms, Plan& plan) {
  plan.gemm_library = gemm.library_of(problem.hidden.dtype, problem.head.weight.dtype);
  plan.gradient_dtype = problem.in_double() ? DType::kFloat64 : terms > 0 ? DType::kBFloat16 : DType::kFloat32;
  plan.gradient_terms = std::max(1, terms);
}

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

}  // namespace logitless::stream

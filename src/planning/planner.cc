// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "planning/planner.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "core/checks.h"
#include "core/integers.h"
#include "planning/cutter.h"

namespace logitless::planning {
namespace {

using core::div_up;

// With smaller chunks one pass writes d_weight so often that two pass is faster.
constexpr int64_t kMinChunkRows = 128;
// One-pass chunks leave memory for the scratch of this many threads, if the budget allows it.
constexpr int64_t kPlannedTeam = 8;
// A thread computes one tile while another one is used. A single thread uses each tile right after computing
// it; a second tile would only displace it from L2.
int64_t slots_of(int64_t threads) { return threads == 1 ? 1 : 2 * threads; }

// Logits up to this size stay in a cache until they are used again.
constexpr double kCachedBytes = 16 << 20;

size_t logit_bytes(const source::Source& source) {
  return core::sums_in_double(source.states_type()) ? sizeof(double) : sizeof(float);
}
// Returns the bytes that a stored logit of each side moves: it is written, read and replaced by its gradient,
// and read by the gradient's products; caches fetch a line before it is written.
double moved_bytes(const source::Source& source) {
  return 4 * static_cast<double>(source.sides()) * static_cast<double>(logit_bytes(source));
}
// Returns the FLOP of computing the logits of all sides again, `times` times: for their gradients, and for a
// second walk.
double recomputed_flops(const source::Source& source, int times) {
  return 2 * times * static_cast<double>(source.depth());
}

// Returns whether storing and re-reading logits is cheaper than recomputing them. Each chunk except one reads
// the head again, and reads and writes d_weight.
bool storing_is_cheaper(const source::Source& source, const GradientMatrices& outputs, int times, const RunPlan& one) {
  const auto area = [](int64_t rows, int64_t columns) {
    return static_cast<double>(rows) * static_cast<double>(columns);
  };
  const double logits = area(one.plan.active_rows, source.entries());
  if (moved_bytes(source) / 4 * area(one.plan.chunk_rows, source.entries()) <= kCachedBytes) return true;
  double chunk_bytes = source.head_bytes(0) * outputs.wants_d_hidden();
  for (int64_t side = 0; side < source.sides(); ++side) chunk_bytes += source.head_bytes(side);
  if (outputs.d_weight.data || outputs.weight_sink) {
    const size_t element = one.weight_apart ? logit_bytes(source) : size_of(outputs.d_weight.dtype);
    chunk_bytes += 2 * static_cast<double>(element) * area(source.hidden_size(), source.entries());
  }
  const double bytes = moved_bytes(source) * logits + static_cast<double>(one.chunks.size() - 2) * chunk_bytes;
  const double flops_per_byte = one.gemm->costs(source.states_type(), source.head_type()).flops_per_byte;
  return bytes * flops_per_byte <= recomputed_flops(source, times) * logits;
}

// Searches the cuts of one call for the first that fits the budget.
class Planner {
 public:
  Planner(const detail::ContextState& context, int threads, const HiddenProblem& problem,
          const Computation& computation, const GradientMatrices& outputs)
      : requested_(context.options.plan),
        has_divergence_(problem.divergence.has_value()),
        needs_second_walk_(problem.request.rank),
        threads_(threads),
        computation_(computation),
        outputs_(outputs),
        cutter_(context, problem, computation, outputs),
        budget_(context.options.workspace_bytes) {
    check_one_pass(context.options, computation);
  }

  // Returns the first plan that fits, trying the tiles of the table first and then smaller ones. A plan is
  // rejected only if even a single thread does not fit, so that the choice does not depend on the threads.
  RunPlan first_that_fits() {
    RunPlan run = make();
    while (!fits(run) && cutter_.halve_tiles(cap_)) run = make();
    if (!fits(run)) too_small(least());
    return run;
  }

  // Returns the plan that approximates gradients, if it fits.
  std::optional<RunPlan> approximating() const {
    RunPlan run = tiled(PlanKind::kTwoPass, rows(), true);
    return fits(run) ? std::optional(std::move(run)) : std::nullopt;
  }

  // Returns the plan with the smallest workspace among all tile sizes from the table down to the smallest;
  // its workspace is the smallest accepted budget.
  RunPlan least() const {
    Planner planner = *this;
    planner.budget_ = 0;
    planner.cap_ = {};
    RunPlan least = planner.make();
    while (planner.cutter_.halve_tiles(planner.cap_)) least = smaller(planner.make(), least);
    return least;
  }

 private:
  int64_t rows() const { return cutter_.rows(); }

  // Returns the plan for tiles within the cap.
  RunPlan make() const {
    const auto with_tiles = [&] { return computation_.backward ? with_gradients() : without_gradients(); };
    if (!takes_expected_rows()) return with_tiles();
    RunPlan expected = tiled(PlanKind::kExpectedRow, rows());
    if (computation_.forward && computation_.backward && requested_ == PlanKind::kExpectedRow) return expected;
    return or_else(std::move(expected), with_tiles);
  }

  // Returns whether to compute d_hidden from expected rows, if the budget allows it. With gradients of the
  // head this would need as many products as two pass.
  bool takes_expected_rows() const {
    const bool is_cheaper = !computation_.forward || (!needs_second_walk_ && !outputs_.wants_head());
    return computation_.expected_rows && (is_cheaper || requested_ == PlanKind::kExpectedRow);
  }

  static const RunPlan& smaller(const RunPlan& a, const RunPlan& b) {
    return a.plan.workspace_bytes < b.plan.workspace_bytes ? a : b;
  }
  // Returns `run` if it fits, else other() if that fits, else the smaller of the two.
  template <class Other>
  RunPlan or_else(RunPlan run, const Other& other) const {
    if (fits(run)) return run;
    RunPlan second = other();
    return fits(second) ? second : smaller(run, second);
  }

  // Returns the plan that computes gradients for all vocabulary entries, tile by tile.
  RunPlan with_gradients() const {
    if (!computation_.forward || requested_ == PlanKind::kTwoPass) return tiled(PlanKind::kTwoPass, rows());
    return requested_ == PlanKind::kOnePass ? one_pass(1) : one_pass_or_two();
  }

  // Two heads need two passes over the logits: plan one pass stores the logits in between, if that pays.
  RunPlan without_gradients() const {
    if (!has_divergence_ || requested_ == PlanKind::kTwoPass) return forward_only();
    const bool requested = requested_ == PlanKind::kOnePass;
    RunPlan one = one_pass(requested ? 1 : std::min(rows(), kMinChunkRows));
    if (!requested && !storing_is_cheaper(cutter_.source(), outputs_, 1, one)) return forward_only();
    return or_else(std::move(one), [&] { return forward_only(); });
  }

  // Returns the plan with all rows in one chunk. If the lists of the largest logits do not fit, halves the
  // chunks until they do; if none fits, returns the smallest plan.
  RunPlan forward_only() const {
    RunPlan least = tiled(PlanKind::kForwardOnly, rows());
    if (!cutter_.makes_lists()) return least;
    int64_t chunk_rows = rows(), row_tile = least.grid.row_tile;
    while (!fits(least) && chunk_rows > row_tile) {
      chunk_rows = core::round_up(div_up(chunk_rows, 2), row_tile);
      const RunPlan run = tiled(PlanKind::kForwardOnly, chunk_rows);
      row_tile = run.grid.row_tile;
      least = smaller(run, least);
    }
    return least;
  }

  RunPlan tiled(PlanKind kind, int64_t chunk_rows, bool approximates = false) const {
    RunPlan run = cutter_.cut(kind, chunk_rows, cap_, approximates);
    // Whether sums are separate affects bits, so it is decided for a team of fixed size.
    if (cutter_.wants_sums_apart() && kind != PlanKind::kExpectedRow && !approximates) {
      run.hidden_apart = true;
      cutter_.set_team(kPlannedTeam, slots_of(kPlannedTeam), run);
      run.hidden_apart = fits(run);
    }
    fit_tiles(kind == PlanKind::kForwardOnly ? threads_ : slots_of(threads_), run);
    return run;
  }

  RunPlan one_pass_or_two() const {
    RunPlan one = one_pass(std::min(rows(), kMinChunkRows));
    const bool one_fits = fits(one);
    if (one_fits && storing_is_cheaper(cutter_.source(), outputs_, times_recomputed(), one)) return one;
    RunPlan two = tiled(PlanKind::kTwoPass, rows());
    if (!fits(two)) return one_fits ? one : smaller(one, two);
    store_what_fits(two);
    return two;
  }

  int times_recomputed() const { return has_divergence_ ? 2 : 1; }

  // Lets two pass store the logits of the vocabulary tiles that fit the budget, if that is cheaper than
  // recomputing them and saves at least a twentieth of the products.
  void store_what_fits(RunPlan& run) const {
    const source::Source& source = cutter_.source();
    const double flops_per_byte = run.gemm->costs(source.states_type(), source.head_type()).flops_per_byte;
    const int times = times_recomputed();
    if (rows() == 0 || run.may_drop_rows || !computation_.slices.empty()) return;
    if (moved_bytes(source) * flops_per_byte > recomputed_flops(source, times)) return;
    const auto tile_bytes =
        static_cast<size_t>(source.sides() * run.chunk_tile_rows * run.grid.tile_stride) * logit_bytes(source);
    const int64_t products = 1 + times + outputs_.wants_d_hidden() + outputs_.wants_head();
    const auto fit = static_cast<int64_t>((budget_ - run.plan.workspace_bytes) / std::max<size_t>(1, tile_bytes));
    run.spare_tiles = std::min(fit, run.grid.vocab_tiles());
    if (20 * times * run.spare_tiles < products * run.grid.vocab_tiles()) run.spare_tiles = 0;
    const auto measure = [&] { cutter_.set_team(threads_, run.plan.tiles_alive, run); };
    for (measure(); !fits(run); measure()) --run.spare_tiles;
  }

  // Returns the plan with the fewest chunks of at least `least_rows` rows, equal as far as groups allow, that
  // fits in `budget` together with the scratch of `team` threads; if none fits, the smallest plan.
  RunPlan chunked(int64_t least_rows, int64_t team, bool sums_apart, size_t budget) const {
    const auto fits = [budget](const RunPlan& run) { return run.plan.workspace_bytes <= budget; };
    const auto in_chunks = [&](int64_t chunks) {
      RunPlan run = cutter_.cut(PlanKind::kOnePass, std::max(least_rows, div_up(rows(), chunks)), cap_);
      run.hidden_apart |= sums_apart;
      cutter_.set_team(team, team, run);
      return run;
    };
    RunPlan whole = in_chunks(1);
    if (fits(whole)) return whole;
    int64_t too_few = 1;
    int64_t enough = std::max<int64_t>(1, div_up(rows(), least_rows));
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

  // Chunks affect bits, so they are cut for a team of fixed size, independent of the actual team.
  RunPlan one_pass(int64_t least_rows) const {
    least_rows = std::max(least_rows, cutter_.groups().largest);
    const auto of_team = [&](size_t budget) {
      return chunked(least_rows, kPlannedTeam, cutter_.wants_sums_apart(), budget);
    };
    const auto of_one = [&](size_t budget) { return chunked(least_rows, 1, false, budget); };
    RunPlan run = of_team(budget_);
    if (!fits(run)) {
      run = of_one(budget_);
    } else if (run.chunk_count() > 1) {
      // A budget that barely holds the team's scratch has little room for logits, and so means many chunks.
      // If one thread gets fewer chunks from the team's smallest budget, its plan is kept, so that a larger
      // budget never means more chunks.
      RunPlan before = of_one(of_team(0).plan.workspace_bytes);
      if (before.chunk_count() < run.chunk_count()) run = std::move(before);
    }
    fit_tiles(threads_, run);
    const int64_t tiles = div_up(run.plan.chunk_rows, run.grid.row_tile) * run.grid.vocab_tiles();
    run.plan.tiles_alive = static_cast<int>(std::clamp<int64_t>(tiles, 1, std::numeric_limits<int>::max()));
    return run;
  }

  // Sets the number of tiles (in one pass: of threads) to the largest that helps and fits, at least 1. The
  // caller checks whether that fits.
  void fit_tiles(int64_t wanted, RunPlan& run) const {
    const int64_t tiles = run.grid.vocab_tiles() * std::max<int64_t>(1, static_cast<int64_t>(run.blocks.blocks.size()));
    int64_t alive = std::clamp<int64_t>(wanted, 1, tiles);
    cutter_.set_team(threads_, alive, run);
    while (!fits(run) && alive > 1) cutter_.set_team(threads_, --alive, run);
    reorder_hidden_if_it_fits(run);
  }

  void reorder_hidden_if_it_fits(RunPlan& run) const {
    run.plan.packed_bytes = cutter_.reordered_bytes(run);
    if (run.plan.packed_bytes == 0) return;
    cutter_.set_team(threads_, run.plan.tiles_alive, run);
    if (fits(run)) return;
    run.plan.packed_bytes = 0;
    cutter_.set_team(threads_, run.plan.tiles_alive, run);
  }

  [[noreturn]] void too_small(const RunPlan& run) const {
    std::string why;
    if (run.plan.kind == PlanKind::kOnePass && cutter_.groups().coupled()) {
      why = " (the loss couples " + std::to_string(cutter_.groups().largest) + " rows, whose logits are kept together)";
    }
    core::fail("workspace_bytes = ", budget_, " is too small: plan ", name_of(run.plan.kind), " with tiles of ",
               run.grid.row_tile, " x ", run.grid.vocab_tile, " needs at least ", run.plan.workspace_bytes, " bytes",
               why);
  }

  bool fits(const RunPlan& run) const { return run.plan.workspace_bytes <= budget_; }

  const PlanKind requested_;
  const bool has_divergence_;
  const bool needs_second_walk_;  // in every plan, so stored logits save a product
  const int threads_;
  const Computation& computation_;
  const GradientMatrices& outputs_;
  const Cutter cutter_;
  size_t budget_;  // the limit of workspace_bytes
  TileCap cap_ = {};
};

}  // namespace

void check_one_pass(const ContextOptions& options, const Computation& computation) {
  if (options.plan == PlanKind::kOnePass && computation.backward && !computation.forward) {
    core::fail("plan = one_pass cannot run: backward() comes after the forward pass, so it is a second pass");
  }
}

RunPlan choose_plan(const detail::ContextState& context, int threads, const HiddenProblem& problem,
                    const Computation& computation, const GradientMatrices& outputs) {
  Planner planner(context, threads, problem, computation, outputs);
  std::optional<RunPlan> run;
  if (computation.approximates) run = planner.approximating();
  if (!run) run = planner.first_that_fits();
  if (!computation.forward) run->plan.active_rows = computation.kept_rows;
  return std::move(*run);
}

size_t least_workspace(const detail::ContextState& context, int threads, const HiddenProblem& problem,
                       const Computation& computation, const GradientMatrices& outputs) {
  return Planner(context, threads, problem, computation, outputs).least().plan.workspace_bytes;
}

}  // namespace logitless::planning

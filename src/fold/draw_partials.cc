// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "fold/draw_partials.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "fold/wire.h"
#include "stats/statistics.h"

namespace logitless::fold {

using kernels::DrawEntry;

namespace {

void store_draw(const problem::TokenProblem& problem, int64_t row, int64_t draw, const DrawEntry& best,
                TokenStats& stats) {
  const auto to = static_cast<size_t>(row * problem.request.draws + draw);
  const bool valid = !std::isnan(stats.max_logit[static_cast<size_t>(row)]) && is_taken(best);
  stats.drawn_ids[to] = valid ? best.id : -1;
  stats.drawn_logps[to] =
      valid ? stats::logp_of(problem, stats, row, best.logit) : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace

kernels::RowDraws row_draws(const problem::TokenProblem& problem, int64_t row, DrawEntry* best) {
  const StatsRequest& request = problem.request;
  return {{static_cast<uint64_t>(request.draw_seed), row}, problem.logit_temperature(row), request.draws, best};
}

void DrawPartials::load(int64_t place, DrawEntry* mine) const {
  const auto lock = locks_.lock(place);
  std::copy_n(best(place), draws_, mine);
}

void DrawPartials::merge(int64_t place, const DrawEntry* mine) const {
  const auto lock = locks_.lock(place);
  for (int64_t draw = 0; draw < draws_; ++draw) {
    DrawEntry& whole = best(place)[draw];
    if (comes_before(mine[draw], whole)) whole = mine[draw];
  }
}

void DrawPartials::take(core::Arena& arena, int64_t rows, int64_t) { entries_ = arena.take<DrawEntry>(rows * draws_); }

void DrawPartials::begin(int64_t place, int64_t rows) const { std::fill_n(best(place), rows * draws_, DrawEntry()); }

size_t DrawPartials::wire_bytes(int64_t) const {
  const size_t logit = problem_.in_double() ? sizeof(double) : sizeof(float);
  return static_cast<size_t>(draws_) * (logit + sizeof(int64_t));
}

std::byte* DrawPartials::put(int64_t, int64_t place, const stats::Columns&, std::byte* to) const {
  Writer write(to);
  for (int64_t draw = 0; draw < draws_; ++draw) {
    DrawEntry entry = best(place)[draw];
    visit_logit(problem_.in_double(), entry.logit, write);
    write(entry.id, int64_t());
  }
  return write.end();
}

std::byte* DrawPartials::put_empty(int64_t, std::byte* to) const {
  Writer write(to);
  for (int64_t draw = 0; draw < draws_; ++draw) {
    DrawEntry none;
    visit_logit(problem_.in_double(), none.logit, write);
    write(none.id, int64_t());
  }
  return write.end();
}

const std::byte* DrawPartials::join(int64_t row, int64_t place, bool first, const std::byte* from,
                                    stats::Columns&) const {
  if (first) begin(place, 1);
  const kernels::RowDraws of_row = row_draws(problem_, row, best(place));
  Reader read(from);
  for (int64_t draw = 0; draw < draws_; ++draw) {
    DrawEntry entry;
    visit_logit(problem_.in_double(), entry.logit, read);
    read(entry.id, int64_t());
    if (is_taken(entry)) of_row.offer(draw, entry.id, entry.logit);
  }
  return read.end();
}

void DrawPartials::finish(int64_t row, int64_t place, stats::Columns& columns) const {
  for (int64_t draw = 0; draw < draws_; ++draw) {
    store_draw(problem_, row, draw, best(place)[draw], columns.stats);
  }
}

int64_t TopDrawPartials::kept(int64_t row, const kernels::TopList& list) const {
  const int64_t most = std::min(problem_.request.draw_top_k, list.state->count);
  const double share = problem_.request.draw_top_p;
  if (share >= 1 || most == 0) return most;
  const auto mass = [&](int64_t k) {
    return std::exp((list.entries[k].logit - list.entries[0].logit) / problem_.logit_temperature(row));
  };
  double all = 0, sum = 0;
  for (int64_t k = 0; k < most; ++k) all += mass(k);
  for (int64_t k = 0; k < most; ++k) {
    sum += mass(k);
    if (sum >= share * all) return k + 1;
  }
  return most;
}

void TopDrawPartials::finish(int64_t row, int64_t place, stats::Columns& columns) const {
  const kernels::TopList list = top_.list(place);
  list.sort();
  const bool valid = !std::isnan(columns.stats.max_logit[static_cast<size_t>(row)]);
  const int64_t count = valid ? kept(row, list) : 0;
  std::array<DrawEntry, kMostTopK> best;
  const kernels::RowDraws of_row = row_draws(problem_, row, best.data());
  for (int64_t draw = 0; draw < of_row.draws; ++draw) {
    for (int64_t k = 0; k < count; ++k) of_row.offer(draw, list.entries[k].id, list.entries[k].logit);
    store_draw(problem_, row, draw, best[static_cast<size_t>(draw)], columns.stats);
  }
}

}  // namespace logitless::fold

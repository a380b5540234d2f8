// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "fold/top_partials.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "fold/wire.h"
#include "stats/statistics.h"

namespace logitless::fold {

using kernels::TopEntry;

void TopPartials::take(core::Arena& arena, int64_t rows, int64_t) {
  entries_ = arena.take<TopEntry>(rows * kernels::top_capacity(k_));
  states_ = arena.take<kernels::TopState>(rows);
  rows_ = rows;
}

void TopPartials::begin(int64_t place, int64_t rows) const { std::fill_n(states_ + place, rows, kernels::TopState()); }

void TopPartials::combine(int64_t, int64_t place) const { list(place).sort(); }

size_t TopPartials::wire_bytes(int64_t) const {
  const size_t logit = problem_.in_double() ? sizeof(double) : sizeof(float);
  return static_cast<size_t>(k_) * (logit + sizeof(int64_t));
}

std::byte* TopPartials::put_entries(const TopEntry* entries, int64_t count, std::byte* to) const {
  Writer write(to);
  for (int64_t i = 0; i < k_; ++i) {
    TopEntry entry = i < count ? entries[i] : TopEntry();
    visit_logit(problem_.in_double(), entry.logit, write);
    write(entry.id, int64_t());
  }
  return write.end();
}

std::byte* TopPartials::put(int64_t, int64_t place, const stats::Columns&, std::byte* to) const {
  const kernels::TopList list = this->list(place);
  list.sort();  // so that the bytes sent do not depend on the number of threads
  return put_entries(list.entries, list.state->count, to);
}

std::byte* TopPartials::put_empty(int64_t, std::byte* to) const { return put_entries(nullptr, 0, to); }

const std::byte* TopPartials::join(int64_t, int64_t place, bool first, const std::byte* from, stats::Columns&) const {
  if (first) begin(place, 1);
  Reader read(from);
  for (int64_t i = 0; i < k_; ++i) {
    TopEntry entry;
    visit_logit(problem_.in_double(), entry.logit, read);
    read(entry.id, int64_t());
    if (is_taken(entry)) list(place).offer(entry);
  }
  return read.end();
}

void TopPartials::finish(int64_t row, int64_t place, stats::Columns& columns) const {
  const kernels::TopList list = this->list(place);
  list.sort();
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  TokenStats& stats = columns.stats;
  const auto i = static_cast<size_t>(row);
  const bool valid = !std::isnan(stats.max_logit[i]);
  const int64_t top_k = problem_.request.top_k;
  for (int64_t k = 0; k < top_k; ++k) {
    const TopEntry entry = k < list.state->count ? list.entries[k] : TopEntry();
    const auto to = static_cast<size_t>(row * top_k + k);
    stats.top_ids[to] = valid && is_taken(entry) ? entry.id : -1;
    stats.top_logps[to] = valid ? stats::logp_of(problem_, stats, row, entry.logit) : kNan;
  }
}

}  // namespace logitless::fold

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "problem/id_sets.h"

#include <algorithm>
#include <string>
#include <utility>

#include "core/tensors.h"

namespace logitless::problem {
namespace {

using core::fail;

// The entries [begin, end) of one row.
struct RowEntries {
  int64_t begin = 0;
  int64_t end = 0;
};

void check_offsets(const IdSets& sets, int64_t entries, const Shape& shape, std::string_view name) {
  const std::span<const int64_t> offsets = sets.offsets;
  core::check_aligned(std::string(name) + ".offsets", offsets);
  if (!sets.counts.empty()) fail(name, ".offsets and ", name, ".counts are both set: counts are for ids of [N, K]");
  if (static_cast<int64_t>(offsets.size()) != shape.tokens + 1) {
    fail(name, ".offsets ", core::HasEntries(offsets.size()), " but must have ", shape.tokens + 1,
         ": one more than the rows of ", shape.rows_name);
  }
  if (offsets.front() != 0) fail(name, ".offsets[0] = ", offsets.front(), " must be 0");
  for (size_t row = 1; row < offsets.size(); ++row) {
    if (offsets[row] < offsets[row - 1]) {
      fail(name, ".offsets[", row, "] = ", offsets[row], " is below ", name, ".offsets[", row - 1,
           "] = ", offsets[row - 1]);
    }
  }
  if (offsets.back() != entries) {
    fail(name, ".offsets[", offsets.size() - 1, "] = ", offsets.back(), " must be the number of ", name, ".ids, ",
         entries);
  }
}

// Returns K of [N, K].
int64_t check_counts(const IdSets& sets, const Shape& shape, std::string_view name) {
  const ConstTensor& ids = sets.ids;
  // The number of entries per row comes from the shape; any size alone would be accepted.
  if (ids.count() > 0 && (ids.axes != 2 || ids.sizes[0] != shape.tokens)) {
    fail(name, ".ids has ", ids.axes == 2 ? ids.sizes[0] : ids.count(), ids.axes == 2 ? " rows" : " entries", " but ",
         shape.rows_name, " has ", shape.tokens, " rows: without ", name, ".offsets it is [N, K]");
  }
  const int64_t each = ids.axes == 2 ? ids.sizes[1] : 0;
  const std::span<const int64_t> counts = sets.counts;
  core::check_aligned(std::string(name) + ".counts", counts);
  if (!counts.empty() && static_cast<int64_t>(counts.size()) != shape.tokens) {
    fail(name, ".counts ", core::HasEntries(counts.size()), " but ", shape.rows_name, " has ", shape.tokens, " rows");
  }
  for (size_t row = 0; row < counts.size(); ++row) {
    if (counts[row] < 0 || counts[row] > each) {
      fail(name, ".counts[", row, "] = ", counts[row], " must be from 0 to K = ", each);
    }
  }
  return each;
}

// Appends the picks of a row.
void add_row(const Targets& ids, const Shape& shape, std::string_view name, int64_t row, const RowEntries& entries,
             core::Array<std::pair<int64_t, int64_t>>& scratch, SetPicks& out) {
  scratch.clear();
  for (int64_t entry = entries.begin; entry < entries.end; ++entry) {
    const int64_t id = ids[entry];
    if (id < 0 || id >= shape.vocab_size) {
      fail(name, ".ids of row ", row, ", entry ", entry - entries.begin, ", = ", id, " is outside [0, ",
           shape.vocab_size, ")");
    }
    scratch.emplace_back(id, entry);
  }
  if (!std::is_sorted(scratch.begin(), scratch.end())) std::sort(scratch.begin(), scratch.end());
  for (const auto& [id, entry] : scratch) {
    out.picks.ids.push_back(id);
    out.entries.push_back(entry);
  }
}

}  // namespace

void check_mask(std::span<const uint8_t> mask, int64_t rows, std::string_view rows_name) {
  if (!mask.empty() && static_cast<int64_t>(mask.size()) != rows) {
    fail("mask ", core::HasEntries(mask.size()), " but ", rows_name, " has ", rows, " rows");
  }
  core::check_flags("mask", mask);
}

SetPicks set_picks(const IdSets& sets, const Shape& shape, std::span<const uint8_t> mask, std::string_view name) {
  check_mask(mask, shape.tokens, shape.rows_name);
  const std::string ids_name = std::string(name) + ".ids";
  const Targets ids = core::targets_of(ids_name, sets.ids, token_ids("[entries] or [N, K]"));
  core::check_targets(ids_name, ids, ids.size, shape.rows_name);
  const bool by_offsets = !sets.offsets.empty();
  int64_t each = 0;
  if (by_offsets) {
    check_offsets(sets, ids.size, shape, name);
  } else {
    each = check_counts(sets, shape, name);
  }
  // Returns the entries of a row; empty if it is ignored.
  const auto entries_of = [&](int64_t row) -> RowEntries {
    const auto r = static_cast<size_t>(row);
    if (!mask.empty() && mask[r] == 0) return {};
    if (by_offsets) return {sets.offsets[r], sets.offsets[r + 1]};
    return {row * each, row * each + (sets.counts.empty() ? each : sets.counts[r])};
  };
  int64_t most = 0;
  for (int64_t row = 0; row < shape.tokens; ++row) most += entries_of(row).end - entries_of(row).begin;
  SetPicks out;
  out.picks.ids.reserve(static_cast<size_t>(most));
  out.entries.reserve(static_cast<size_t>(most));
  out.picks.offsets.reserve(static_cast<size_t>(shape.tokens + 1));
  out.picks.offsets.push_back(0);
  core::Array<std::pair<int64_t, int64_t>> scratch;
  for (int64_t row = 0; row < shape.tokens; ++row) {
    const RowEntries entries = entries_of(row);
    if (entries.end > entries.begin) {
      add_row(ids, shape, name, row, entries, scratch, out);
      out.picks.rows.push_back(row);
    }
    out.picks.offsets.push_back(static_cast<int64_t>(out.picks.ids.size()));
  }
  return out;
}

core::Array<core::ByteRange> ranges_of(const IdSets& sets) {
  return {core::range_of("sets.ids", sets.ids),
          core::range_of("sets.offsets", sets.offsets.data(), sets.offsets.size_bytes()),
          core::range_of("sets.counts", sets.counts.data(), sets.counts.size_bytes())};
}

}  // namespace logitless::problem

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "loss/sequences.h"

#include <cmath>
#include <utility>

#include "core/check_fields.h"
#include "core/views.h"

namespace logitless::loss {

using core::fail_if;
using core::HasEntries;

double SequenceTokens::total() const {
  double sum = 0;
  for (const int64_t count : counts) sum += static_cast<double>(count);
  return sum;
}

double SequenceTokens::sum(const std::vector<double>& values) const {
  double sum = 0;
  for (size_t row = 0; row < targets.size(); ++row) {
    if (is_active(row)) sum += values[row];
  }
  return sum;
}

SequenceTokens read_sequences(std::span<const int64_t> offsets, core::Array<int64_t> ids) {
  SequenceTokens out;
  out.targets = std::move(ids);
  out.sequence.resize(out.targets.size());
  out.counts.assign(offsets.size() - 1, 0);
  for (size_t s = 0; s < out.counts.size(); ++s) {
    for (auto row = static_cast<size_t>(offsets[s]); row < static_cast<size_t>(offsets[s + 1]); ++row) {
      out.sequence[row] = static_cast<int64_t>(s);
      out.counts[s] += out.is_active(row);
    }
  }
  return out;
}

bool is_per_token(std::string_view name, EntriesPer per, int64_t size, const SequenceTokens& tokens) {
  core::check_named("_per", per, name);
  if (per != EntriesPer::kBySize) {
    const bool by_token = per == EntriesPer::kToken;
    const int64_t wanted = by_token ? tokens.tokens() : tokens.sequences();
    if (size == wanted) return by_token;
    fail(name, " ", HasEntries(size), " but must have one per ", by_token ? "token" : "sequence", " (", wanted,
         "), as ", name, "_per says");
  }
  if (size != tokens.tokens() && size != tokens.sequences()) {
    fail(name, " ", HasEntries(size), " but must have one per sequence (", tokens.sequences(), ") or one per token (",
         tokens.tokens(), ")");
  }
  if (tokens.tokens() != tokens.sequences()) return size == tokens.tokens();
  for (size_t row = 0; row < tokens.sequence.size(); ++row) {
    fail_if(tokens.sequence[row] != static_cast<int64_t>(row), name, " has ", size,
            " entries, which may be per sequence or per token: set ", name, "_per");
  }
  return false;
}

double finite_entry(std::string_view name, const ConstVector& values, int64_t i, bool nan_allowed) {
  const double value = core::read(values, i);
  const bool allowed = std::isfinite(value) || (nan_allowed && std::isnan(value));
  fail_if(!allowed, name, "[", i, "] = ", value, " must be finite");
  return value;
}

core::Array<double> token_values(std::string_view name, const ConstTensor& given, const SequenceTokens& tokens,
                                 std::string_view rows_name, bool nan_allowed) {
  const ConstVector values = core::vector_of(name, given);
  fail_if(values.size != 0 && values.size != tokens.tokens(), name, " ", HasEntries(values.size), " but ", rows_name,
          " has ", tokens.tokens(), " rows");
  core::Array<double> out(static_cast<size_t>(values.size), 0);
  for (size_t row = 0; row < out.size(); ++row) {
    if (tokens.is_active(row)) out[row] = finite_entry(name, values, static_cast<int64_t>(row), nan_allowed);
  }
  return out;
}

core::Array<double> sequence_values(std::string_view name, const ConstTensor& given, const SequenceTokens& tokens,
                                    std::string_view reader) {
  const ConstVector values = core::vector_of(name, given);
  fail_if(values.size != tokens.sequences(), name, " ", HasEntries(values.size), " but ", reader,
          " needs one per sequence (", tokens.sequences(), ")");
  core::Array<double> out(tokens.counts.size(), 0);
  for (size_t s = 0; s < out.size(); ++s) {
    if (tokens.counts[s] != 0) out[s] = finite_entry(name, values, static_cast<int64_t>(s));
  }
  return out;
}

}  // namespace logitless::loss

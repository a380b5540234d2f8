// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "loss/sequences.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/checks.h"
#include "loss/batch.h"

namespace logitless::loss {

using core::fail;

namespace {

// The other form of a reference: hidden states and a head.
std::array<std::pair<std::string_view, const void*>, 4> parts_of_model(const Reference& reference) {
  return {{{"reference.hidden", reference.hidden.states.data},
           {"reference.hidden.second", reference.hidden.second.data},
           {"reference.head", reference.head.weight.data},
           {"reference.head.bias", reference.head.bias.data}}};
}

}  // namespace

void SequenceTokens::drop(int64_t s) {
  for (size_t i = 0; i < targets.size(); ++i) {
    if (sequence[i] == s) targets[i] = kNoTarget;
  }
  counts[static_cast<size_t>(s)] = 0;
}

TokenOptions SequenceTokens::options(const PreferenceTokenOptions& token) const {
  TokenOptions out;
  out.ignore_index = kNoTarget;
  out.temperature = token.temperature;
  out.temperature_meaning = token.temperature_meaning;
  out.round_logits_to = token.round_logits_to;
  return out;
}

SequenceTokens read_sequences(const std::vector<int64_t>& offsets, const Targets& targets,
                              const PreferenceTokenOptions& token, int64_t vocab_size) {
  const int64_t n = offsets.back();
  core::check_targets("targets", targets, n, "hidden");
  for (int64_t i = 0; i < n; ++i) {
    if (targets[i] != token.ignore_index && (targets[i] < 0 || targets[i] >= vocab_size)) {
      fail("targets[", i, "] = ", targets[i], " is outside [0, ", vocab_size, ") and is not ignore_index (",
           token.ignore_index, ")");
    }
  }
  SequenceTokens out;
  out.targets.assign(static_cast<size_t>(n), kNoTarget);
  out.sequence = sequence_of_rows(offsets);
  out.counts.assign(offsets.size() - 1, 0);
  const int64_t shift = token.shift ? 1 : 0;
  for (size_t s = 0; s + 1 < offsets.size(); ++s) {
    for (int64_t row = offsets[s]; row + shift < offsets[s + 1]; ++row) {
      if (targets[row + shift] == token.ignore_index) continue;
      out.targets[static_cast<size_t>(row)] = targets[row + shift];
      ++out.counts[s];
    }
  }
  return out;
}

bool is_given(const Reference& reference) {
  const auto parts = parts_of_model(reference);
  return reference.logps.size != 0 ||
         std::any_of(parts.begin(), parts.end(), [](const auto& part) { return part.second != nullptr; });
}

void check_reference(const Reference& reference, const SequenceTokens& tokens, const LmHead& head) {
  const ConstVector& logps = reference.logps;
  const int64_t n = tokens.tokens();
  if (logps.size != 0) {
    for (const auto& [name, data] : parts_of_model(reference)) {
      if (data) fail("reference.logps and ", name, " are both set: one of the two is enough");
    }
    core::check_vector("reference.logps", logps.data, logps.dtype, logps.size);
    is_per_token("reference.logps", reference.logps_per, logps.size, tokens.sequence, tokens.sequences());
  } else if (is_given(reference)) {
    if (reference.hidden.tokens() != n) {
      fail("reference.hidden has ", reference.hidden.tokens(), " rows but hidden has ", n);
    }
    if (reference.head.vocab_size() != head.vocab_size()) {
      fail("reference.head has ", reference.head.vocab_size(), " words but lm_head has ", head.vocab_size());
    }
  }
}

std::vector<double> reference_sums(const Context& context, const Reference& reference, const SequenceTokens& tokens,
                                   const PreferenceTokenOptions& token) {
  std::vector<double> sums(tokens.counts.size(), 0);
  if (tokens.tokens() == 0) return sums;
  const ConstVector& logps = reference.logps;
  if (logps.size != 0 &&
      !is_per_token("reference.logps", reference.logps_per, logps.size, tokens.sequence, tokens.sequences())) {
    for (int64_t s = 0; s < tokens.sequences(); ++s) {
      if (tokens.counts[static_cast<size_t>(s)] == 0) continue;
      sums[static_cast<size_t>(s)] = finite_entry("reference.logps", logps, s);
    }
    return sums;
  }
  TokenStats stats;
  if (logps.size == 0) {
    try {
      stats = compute_token_stats(context, reference.hidden, reference.head, Targets(tokens.targets),
                                  tokens.options(token));
    } catch (const InvalidInput& error) {
      fail("reference: ", error.what());
    }
  }
  for (int64_t row = 0; row < tokens.tokens(); ++row) {
    const auto i = static_cast<size_t>(row);
    if (tokens.targets[i] == kNoTarget) continue;
    sums[static_cast<size_t>(tokens.sequence[i])] +=
        logps.size == 0 ? stats.logp[i] : finite_entry("reference.logps", logps, row);
  }
  return sums;
}

std::vector<core::ByteRange> ranges_of(const Reference& reference) {
  std::vector<core::ByteRange> ranges =
      engine::ranges_of("reference.hidden", "reference.hidden.second", reference.hidden);
  ranges.insert(ranges.end(), {core::range_of("reference.logps", reference.logps),
                               core::range_of("reference.head", reference.head.weight),
                               core::range_of("reference.head.bias", reference.head.bias)});
  return ranges;
}

engine::Problem checked_problem(const HiddenStates& hidden, const LmHead& head, const Targets& targets,
                                const SequenceTokens& tokens, const PreferenceTokenOptions& token, StatsRequest request,
                                const Gradients& gradients, std::span<const core::ByteRange> extra) {
  engine::Problem problem = engine::make_problem(hidden, head, Targets(tokens.targets), tokens.options(token), request);
  engine::check_gradients(problem, targets, gradients);
  core::check_overlaps(engine::output_ranges(problem, gradients), extra);
  return problem;
}

}  // namespace logitless::loss

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "cli/tune/rounds.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

namespace logitless::cli {
namespace {

constexpr double kTrialShare = 0.6;  // of the time; the final has the rest
constexpr int kMostTrialTurns = 5;
constexpr int kMostFinalists = 3;
constexpr int kLeastFinalTurns = 3;  // a median and a spread
constexpr int kMostFinalTurns = 31;

// Likeliest first; 0 is the library's choice.
struct TileSizes {
  std::vector<int64_t> rows, columns;
  int64_t fewest_elements, most_elements;
};

// A tile is written and read back by the GEMMs and the row kernels: from an L1's to several L2s' size.
const TileSizes kFusedTiles = {{0, 512, 256, 1024, 128, 64}, {0, 1024, 2048, 512, 4096, 8192}, 1 << 15, 1 << 22};
// A block of finished rows is swept in pieces of so many columns, which stay in L1.
const TileSizes kLogitsTiles = {{0, 8, 2, 16, 1, 32, 64}, {0, 4096, 1024, 8192}, 1 << 10, 1 << 22};

std::vector<std::pair<std::string, std::string>> keys_of(const TuneCandidate& candidate) {
  const auto value_of = [](int64_t tile) { return tile > 0 ? std::to_string(tile) : "auto"; };
  return {{"plan", name_of(candidate.plan)},
          {"row_tile", value_of(candidate.row_tile)},
          {"vocab_tile", value_of(candidate.vocab_tile)}};
}

int whole(double value, int least, int most) {
  return static_cast<int>(std::clamp(std::floor(value), static_cast<double>(least), static_cast<double>(most)));
}

}  // namespace

std::string TuneCandidate::name() const {
  std::string name;
  for (const auto& [key, value] : keys_of(*this)) {
    if (value != "auto") name += (name.empty() ? "" : " ") + key + "=" + value;
  }
  return name.empty() ? "default" : name;
}

Contender TuneCandidate::contender() const {
  Contender contender{.name = name()};
  for (const auto& [key, value] : keys_of(*this)) contender.assignments.push_back("kernel." + key + "=" + value);
  return contender;
}

std::vector<TuneCandidate> tile_candidates(io::Level level, PlanKind plan, int64_t tokens, int64_t vocab_size) {
  const TileSizes& sizes = level == io::Level::kFused ? kFusedTiles : kLogitsTiles;
  std::vector<TuneCandidate> candidates;
  for (size_t sum = 1; sum < sizes.rows.size() + sizes.columns.size(); ++sum) {
    for (size_t r = 0; r < sizes.rows.size() && r <= sum; ++r) {
      if (sum - r >= sizes.columns.size()) continue;
      const int64_t rows = sizes.rows[r], columns = sizes.columns[sum - r];
      if (rows > tokens || columns > vocab_size) continue;
      const int64_t elements = rows * columns;  // 0 where one follows from the other
      if (elements > 0 && (elements < sizes.fewest_elements || elements > sizes.most_elements)) continue;
      candidates.push_back({plan, rows, columns});
    }
  }
  return candidates;
}

std::optional<TuneRounds> plan_rounds(double call_s, double seconds, int candidates) {
  const double trial_calls = kTrialShare * seconds / call_s, final_calls = (1 - kTrialShare) * seconds / call_s;
  if (candidates < 1 || trial_calls < 2 || final_calls < 2 * kLeastFinalTurns) return std::nullopt;
  TuneRounds rounds;
  rounds.candidates = whole(trial_calls - 1, 1, candidates);
  rounds.trial_turns = whole(trial_calls / (rounds.candidates + 1), 1, kMostTrialTurns);
  rounds.finalists = whole(final_calls / kLeastFinalTurns - 1, 1, std::min(kMostFinalists, rounds.candidates));
  rounds.final_turns = whole(final_calls / (rounds.finalists + 1), kLeastFinalTurns, kMostFinalTurns);
  return rounds;
}

double least_seconds(double call_s) {
  return call_s * std::max(2 / kTrialShare, 2 * kLeastFinalTurns / (1 - kTrialShare));
}

}  // namespace logitless::cli

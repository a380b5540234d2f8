// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// What `logitless tune` tries, and how much of it a budget of time allows.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/measure/turns.h"
#include "io/config.h"
#include "logitless/plan.h"

namespace logitless::cli {

/// Values of the kernel keys that are tuned; the default leaves all to the library.
struct TuneCandidate {
  PlanKind plan = PlanKind::kAuto;  ///< or kTwoPass: the plans that every loss can run
  int64_t row_tile = 0;             ///< kernel.row_tile; 0: auto
  int64_t vocab_tile = 0;           ///< kernel.vocab_tile; 0: auto

  bool operator==(const TuneCandidate&) const = default;
  /// "plan=two_pass row_tile=256", or "default".
  std::string name() const;
  /// The same as a contender, which sets all three keys.
  Contender contender() const;
};

/// Tile sizes for a plan, likeliest first, without those that the library chooses itself: rows no more than
/// `tokens` and columns no more than `vocab_size`, so many together as suit a core's caches.
std::vector<TuneCandidate> tile_candidates(io::Level level, PlanKind plan, int64_t tokens, int64_t vocab_size);

/// After the plans were tried: a trial of the candidates, then a final of the fastest ones. The default takes
/// part in both.
struct TuneRounds {
  int candidates = 0;  ///< of the trial, beside the default
  int trial_turns = 0;
  int finalists = 0;  ///< likewise
  int final_turns = 0;
};

/// How far `seconds` go where a call takes `call_s`; nothing where they do not reach for one candidate.
std::optional<TuneRounds> plan_rounds(double call_s, double seconds, int candidates);

/// The least that plan_rounds() needs.
double least_seconds(double call_s);

}  // namespace logitless::cli

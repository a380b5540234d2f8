// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Runs in child processes, so that each head's memory figures are its own, and what they report through a
// pipe.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "train.h"

/// One run as its process reported it.
struct RunRecord {
  std::vector<double> losses;
  TrainSummary summary;
  bool complete = false;  ///< the summary arrived
};

/// What a child does: trains, and writes each step and the summary to `descriptor`, one JSON object a line.
void train_and_record(const TrainOptions& options, int descriptor);

/// Starts this program again with `arguments` and "--record-fd N" added, and collects what it writes to N.
/// `on_step` is called for each step that arrives. Throws std::runtime_error when the child fails.
RunRecord run_in_child(const std::vector<std::string>& arguments,
                       const std::function<void(const StepReport&)>& on_step);

/// The two runs of a comparison are called what the option that tells them apart calls them.
struct RunNames {
  const char* first;
  const char* second;
};
inline constexpr RunNames kHeads = {"dense", "fused"};
inline constexpr RunNames kHeadOptimizers = {"separate", "fused"};

struct Verdict {
  double max_difference = 0;  ///< of the losses over all steps; NaN when one is
  bool same_bits = false;     ///< of all losses, and of all parameters after the last step
  bool same_cut = false;      ///< of the two plans
  bool judges_bits = false;   ///< as between two optimizers of one head: of equal plans the bits must be the same
  /// At equal numbers of steps max_difference <= kLossTolerance, and the bits are the same where they must be
  bool agrees = false;
  /// Both final losses are below the unigram entropy; true by itself below kJudgedSteps steps
  bool learns = false;
  static constexpr double kLossTolerance = 1e-4;
  static constexpr int kJudgedSteps = 200;
};

/// Of two heads: the losses agree within the tolerance.
Verdict judge(const RunRecord& first, const RunRecord& second);
/// Of two optimizers of one head: the bits must be the same, unless the plans were cut differently.
Verdict judge_optimizers(const RunRecord& first, const RunRecord& second);

/// Tells whether a single run learned; true by itself below Verdict::kJudgedSteps steps.
bool learns(const TrainSummary& summary, int steps);

void print_summary(const RunNames& names, const RunRecord& first, const RunRecord& second, const Verdict& verdict);
void print_summary(const TrainSummary& summary, HeadKind head);

/// Writes JSON files for scripts.
void write_json(const std::string& path, const TrainOptions& options, const RunNames& names, const RunRecord& first,
                const RunRecord& second, const Verdict& verdict);
void write_json(const std::string& path, const TrainOptions& options, const RunRecord& run);

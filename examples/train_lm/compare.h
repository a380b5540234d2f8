// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Runs in child processes, so that each head's memory is measured separately. The children report through a
// pipe.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "train.h"

/// One run as reported by its process.
struct RunRecord {
  std::vector<double> losses;
  TrainSummary summary;
  bool complete = false;  ///< the summary arrived
};

/// The child's part: trains, and writes each step and the summary to `descriptor`, one JSON object per line.
void train_and_record(const TrainOptions& options, int descriptor);

/// Restarts this program with `arguments` and "--record-fd N", and collects its output from N. Calls
/// `on_step` for each step that arrives. Throws std::runtime_error if the child fails.
RunRecord run_in_child(const std::vector<std::string>& arguments,
                       const std::function<void(const StepReport&)>& on_step);

/// The names of the two runs: the values of the option in which they differ.
struct RunNames {
  const char* first;
  const char* second;
};
inline constexpr RunNames kHeads = {"dense", "fused"};
inline constexpr RunNames kHeadOptimizers = {"separate", "fused"};

struct Verdict {
  double max_difference = 0;  ///< of the losses over all steps; NaN if any is
  /// True if all losses, and all parameters after the last step, have the same bits.
  bool same_bits = false;
  bool same_cut = false;  ///< true if both plans have the same tiles and chunks
  /// True for two optimizers of one head: with equal plans the bits must be the same.
  bool compares_bits = false;
  /// Both have the same number of steps, max_difference <= kLossTolerance, and required bits are the same
  bool agrees = false;
  /// Both final losses are below the unigram entropy; always true below kLearningSteps steps
  bool learns = false;
  static constexpr double kLossTolerance = 1e-4;
  static constexpr int kLearningSteps = 200;
};

/// Compares two heads: the losses must agree within the tolerance.
Verdict verdict_of(const RunRecord& first, const RunRecord& second);
/// Compares two optimizers of one head: the bits must be the same, unless the plans are cut differently.
Verdict verdict_of_optimizers(const RunRecord& first, const RunRecord& second);

/// Returns whether a single run learned; always true below Verdict::kLearningSteps steps.
bool learns(const TrainSummary& summary, int steps);

void print_summary(const RunNames& names, const RunRecord& first, const RunRecord& second, const Verdict& verdict);
void print_summary(const TrainSummary& summary, HeadKind head);

/// Writes JSON files for scripts.
void write_json(const std::string& path, const TrainOptions& options, const RunNames& names, const RunRecord& first,
                const RunRecord& second, const Verdict& verdict);
void write_json(const std::string& path, const TrainOptions& options, const RunRecord& run);

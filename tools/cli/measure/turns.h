// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The one way in which bench, compare and tune measure: in a process of its own contenders take turns, A B C
// A B C and so on, so that whatever slows the machine down slows all of them down. The request is a JSON
// object and the answer lines of JSON.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "cli/common/inputs.h"
#include "cli/measure/process.h"

namespace logitless::cli {

/// One way to run the task that a config describes.
struct Contender {
  std::string name;
  std::vector<std::string> assignments = {};  ///< on top of the config's settings
  bool dense = false;                         ///< plan dense instead of the config's
  bool forward_only = false;
  std::string error = {};  ///< of an earlier process, which ended by it: this one is not run again
};

/// The config that it runs with. Throws io::Error.
io::Config contender_config(std::vector<std::string> settings, const Contender& contender);

struct TurnsRequest {
  std::vector<std::string> settings;  ///< Config::settings
  std::vector<Contender> contenders = {};
  int warmup = 1;  ///< turns that are not timed
  int iters = 5;   ///< turns that are
  SeededValues values = SeededValues::kRandom;
  bool gemm_rate = true;  ///< at level fused a large GEMM takes its turn too

  /// Two contenders are held against each other: each keeps what it computed, and a failure of one ends both.
  bool compare = false;
  std::map<std::string, std::string> places = {};  ///< Config::places, for messages about real tensors
  TensorPaths tensors = {};                        ///< with `compare`; none: seeded
  std::string profile_path = {};                   ///< with `compare`: of --profile
  std::string output_path = {};  ///< with `compare`: where the first contender's results go; empty: nowhere
};

/// What the process does now: "drawing the inputs", "dense, turn 2 of 6"; and which share of its turns is
/// over.
using OnStep = std::function<void(const std::string& what, double share)>;

/// {"gemm_rate_flops": ..., "read_rate_bytes": ..., "contenders": [...]}, the first two only where they were
/// asked for, as a line of a benchmark's file holds them; each call's memory is counted above what was
/// resident before it. A contender that fails, or that its process dies of, has the status "error", and the
/// others are then measured without it. With `compare` there are "job", "has_bias", "differences" and "note"
/// as well, and a failure is thrown: as io::Error where the input is to blame, else as ChildFailure. Throws
/// Interrupted.
Json measure_turns(TurnsRequest request, const OnStep& on_step);

/// The hidden command of the process, and its whole life. Returns its exit status.
inline constexpr const char* kTurnsCommand = "run-turns";
int run_turns(const ChildEnds& ends);

/// What the process does; `on_turn` is called before each step with whose turn it is (empty: nobody's), what
/// is done, and which share of all turns is over. Throws what `compare` is to throw, and io::Error where
/// there are no inputs.
Json take_turns(
    const TurnsRequest& request,
    const std::function<void(const std::string& contender, const std::string& step, double share)>& on_turn);

/// The message, or words in its place where it is empty: a contender has failed where there is an error.
std::string failure_text(const std::string& message);
/// The line of a contender that did not run.
Json failed_contender(const std::string& name, const std::string& message);
inline constexpr const char* kOutOfMemory = "out of memory (an allocation failed)";

/// Runs a small call that brings up what every call needs once: the OpenMP team, the BLAS, the dispatch
/// tables.
void warm_up(const Context& context, DType dtype);

/// A job's shape and types as they travel in an answer.
Json job_json(const Job& job);
Job job_of(const Json& json);

}  // namespace logitless::cli

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Work in a child process: what it takes of memory is its own, and the command outlives it.
#pragma once

#include <functional>
#include <stdexcept>
#include <string>

#include "cli/common/output.h"

namespace logitless::cli {

/// A child process died or could not do its work; what() says which one and why.
class ChildFailure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// What the child does now: "drawing the inputs", "dense, turn 2 of 6".
using OnStep = std::function<void(const std::string& what)>;
/// The same in the child, with whose turn it is (empty: nobody's).
using OnTurn = std::function<void(const std::string& contender, const std::string& step)>;

/// What came of a child: a result, or why there is none.
struct Outcome {
  std::string result;     ///< as a line of JSON; empty where it failed
  std::string contender;  ///< whose turn it was then
  std::string why;
  bool died = false;       ///< else it has told what was wrong itself
  bool bad_input = false;  ///< the input is to blame
};

/// Does `work` in a fork of this process and returns what it returned. No OpenMP region may have run here:
/// its threads would be missing there. A child ends with this process: before it where SIGINT, SIGTERM or
/// SIGHUP ends this process, which wipes a drawn line then, too. A child that ends by SIGINT ends this
/// process alike. Throws ChildFailure if no process can be started.
Outcome run_apart(const std::function<Json(const OnTurn&)>& work, const OnStep& on_step);

/// From here on a read beyond the end of a mapped file calls `tell` with a line, and ends this process with
/// status 2, where the system would kill it without a word: somebody has cut the file short meanwhile.
void explain_bus_errors(void (*tell)(const std::string& line));

}  // namespace logitless::cli

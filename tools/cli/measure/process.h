// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Runs work in a child process, so that its memory is measured alone and the command outlives it.
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

/// The child's current step: "drawing the inputs", "dense, turn 2 of 6".
using OnStep = std::function<void(const std::string& what)>;
/// The same in the child, with the contender whose turn it is (empty: none).
using OnTurn = std::function<void(const std::string& contender, const std::string& step)>;

/// The result of a child, or why there is none.
struct Outcome {
  std::string result;     ///< one line of JSON; empty if the child failed
  std::string contender;  ///< whose turn it was last
  std::string why;
  bool died = false;       ///< it ended without saying why
  bool bad_input = false;  ///< the input caused it
};

/// Runs `work` in a fork of this process and returns its result. No OpenMP region may have run before: the
/// fork would lack its threads. The child never outlives this process. If SIGINT, SIGTERM or SIGHUP ends this
/// process, it ends the child first and wipes a drawn line. A child ended by SIGINT ends this process the
/// same way. Throws ChildFailure if no process can be started.
Outcome run_apart(const std::function<Json(const OnTurn&)>& work, const OnStep& on_step);

/// From here on, reading beyond the end of a mapped file (which was truncated meanwhile) calls `tell` with a
/// line and ends this process with status 2. Otherwise the system would kill it without a message.
void explain_bus_errors(void (*tell)(const std::string& line));

}  // namespace logitless::cli

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Child processes: this executable with a hidden command, which gets a request and writes an answer, both
// plain bytes.
#pragma once

#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace logitless::cli {

/// A child process died or could not do its work; what() says which one and why.
class ChildFailure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// SIGINT, SIGTERM or SIGHUP arrived while a child ran. The child is gone by then.
struct Interrupted {
  int signal;
};

/// What the command line of a hidden command holds.
struct ChildEnds {
  int parent = 0;    ///< process id
  int request = -1;  ///< descriptor of a file
  int answer = -1;   ///< descriptor of a pipe
};

/// Runs the hidden `command` in a new process and hands each piece of its answer to `receive` until it ends.
/// Returns what waitpid() says. Throws Interrupted, or ChildFailure where it cannot be started.
int run_child(const std::string& command, const std::string& request,
              const std::function<void(std::string_view)>& receive);

/// "was killed by signal 9 (Killed); ..."
std::string how_it_died(int status);

/// In a child, first of all: from here on it ends with its parent. Returns the request. Throws ChildFailure
/// where the parent is gone already.
std::string begin_child(const ChildEnds& ends);

/// In a child: sends a part of the answer. Throws ChildFailure where nobody reads it.
void send_answer(const ChildEnds& ends, std::string_view bytes);

/// From here on a read beyond the end of a mapped file calls `tell` with a line that names the file, and ends
/// this process with status 2, where the system would kill it without a word: somebody has cut the file short
/// meanwhile.
void explain_bus_errors(void (*tell)(const std::string& line));

}  // namespace logitless::cli

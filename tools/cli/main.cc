// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The `logitless` command: parses the arguments and turns what is thrown into one line and an exit status.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <string>

#include "cli/common/command_line.h"
#include "cli/common/failure.h"
#include "cli/common/output.h"
#include "cli/measure/process.h"

namespace logitless::cli {
namespace {

constexpr int kBadInput = 2;
constexpr int kFailure = 3;

// A file that is opened while a standard stream is closed would get its number, and what is meant for the
// stream would be written into the file. Writing to what stands there now fails, as it does to a closed
// stream.
void open_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(stream, F_GETFD) == -1) open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
}

int run_and_report(int argc, char** argv) try {
  return run_command_line(argc, argv, kBadInput);
} catch (const std::exception&) {
  const Failure failure = current_failure();
  complain(failure.what);
  return failure.bad_input ? kBadInput : kFailure;
}

}  // namespace
}  // namespace logitless::cli

int main(int argc, char** argv) {
  logitless::cli::open_standard_streams();
  signal(SIGXFSZ, SIG_IGN);  // A file that may grow no further is an error of the write, which is reported.
  logitless::cli::explain_bus_errors([](const std::string& text) {
    std::fprintf(stderr, "%slogitless: %s\n", isatty(STDERR_FILENO) ? "\r\033[K" : "", text.c_str());
  });
  return logitless::cli::run_and_report(argc, argv);
}

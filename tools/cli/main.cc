// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The `logitless` command: parses the arguments, and turns exceptions into one line and an exit status.
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

// If a standard stream is closed, the next file to be opened gets its number, and output meant for the stream
// would go into the file. /dev/null, opened here in the wrong direction, makes such output fail, as it does
// with a closed stream.
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
  signal(SIGXFSZ, SIG_IGN);  // hitting the file size limit becomes a write error, which is reported
  logitless::cli::explain_bus_errors([](const std::string& text) {
    std::fprintf(stderr, "%slogitless: %s\n", isatty(STDERR_FILENO) ? "\r\033[K" : "", text.c_str());
  });
  return logitless::cli::run_and_report(argc, argv);
}

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The `logitless` command: parses the arguments and turns what is thrown into one line and an exit status.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <string>

#include "cli/common/command_line.h"
#include "cli/common/output.h"
#include "cli/measure/process.h"
#include "io/error.h"
#include "logitless/error.h"

namespace logitless::cli {
namespace {

constexpr int kBadInput = 2;
constexpr int kFailure = 3;

int run(int argc, char** argv) {
  CommandLine line;
  add_bench(line);
  add_compare(line);
  add_compare_models(line);
  add_gradcheck(line);
  add_score(line);
  add_info(line);
  return line.run(argc, argv, kBadInput);
}

// A file that is opened while a standard stream is closed would get its number, and what is meant for the
// stream would be written into the file. Writing to what stands there now fails, as it does to a closed
// stream.
void open_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(stream, F_GETFD) == -1) open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
}

int run_and_report(int argc, char** argv) {
  int status = kFailure;
  try {
    return run(argc, argv);
  } catch (const io::Error& e) {
    status = kBadInput;
    complain(e.what());
  } catch (const InvalidInput& e) {
    status = kBadInput;
    complain(e.what());
  } catch (const std::bad_alloc&) {
    complain("out of memory");
  } catch (const std::exception& e) {
    complain(e.what());
  }
  return status;
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

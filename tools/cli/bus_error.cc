// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "cli/bus_error.h"

#include <signal.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <ios>
#include <sstream>
#include <string>

namespace logitless::cli {
namespace {

constexpr int kBadInput = 2;
constexpr int kFailure = 3;

// The file whose mapping holds the address, as the system names it; empty where /proc does not tell.
std::string file_mapped_at(uintptr_t address) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::istringstream fields(line);
    uintptr_t begin = 0, end = 0;
    char dash = 0;
    std::string permissions, offset, device, inode, path;
    fields >> std::hex >> begin >> dash >> end >> permissions >> offset >> device >> inode;
    if (address < begin || address >= end) continue;
    std::getline(fields >> std::ws, path);
    return path;
  }
  return "";
}

// The access that failed is a plain read of a tensor's bytes. This thread holds no lock then, neither the allocator's
// nor a stream's, so the handler may use both.
void explain(int signal, siginfo_t* info, void*) {
  if (info->si_code != BUS_ADRERR) {  // broken memory, for example
    ::signal(signal, SIG_DFL);
    raise(signal);
    return;
  }
  const std::string file = file_mapped_at(reinterpret_cast<uintptr_t>(info->si_addr));
  const bool is_shared_memory = file.starts_with("/memfd:");
  const std::string erase = isatty(STDERR_FILENO) ? "\r\033[K" : "";
  const std::string line = is_shared_memory ? "shared memory ran out"
                           : file.empty()   ? "an input file was cut short while it was read"
                                            : file + ": was cut short while it was read";
  std::fprintf(stderr, "%slogitless: %s\n", erase.c_str(), line.c_str());
  _exit(is_shared_memory ? kFailure : kBadInput);
}

}  // namespace

void explain_bus_errors() {
  struct sigaction action {};
  action.sa_sigaction = explain;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGBUS, &action, nullptr);
}

void leave_bus_errors() { signal(SIGBUS, SIG_DFL); }

}  // namespace logitless::cli

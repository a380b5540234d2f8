// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Draws calls for some time, and prints each that fails as C++ code:
//
//     fuzz_calls [--seconds S] [--calls N] [--seed N] [--from N] [--threads N] [--bits]
//
// --from starts at call N of the seed. With --bits it checks nothing, and prints a hash of the results and
// gradients of each call: run it before and after a change that must keep all bits, with OPENBLAS_CORETYPE
// for other kernels, and compare the outputs with diff. --threads N sets the threads (0: OpenMP chooses).
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "generator/drawn_call.h"

namespace {

using namespace logitless::testing;

// Repeatedly takes the first simpler call that still fails.
DrawnCall shrink(DrawnCall call) {
  for (bool simpler = true; simpler;) {
    simpler = false;
    for (const DrawnCall& next : simpler_calls(call)) {
      if (fault_of(next).empty()) continue;
      call = next;
      simpler = true;
      break;
    }
  }
  return call;
}

// A call that crashes is printed too.
std::string running;
extern "C" void print_running(int signal) {
  static constexpr char kText[] = "crashed:\n";
  if (write(STDOUT_FILENO, kText, sizeof kText - 1) < 0 || write(STDOUT_FILENO, running.data(), running.size()) < 0) {
    std::_Exit(3);
  }
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

std::string without_digits(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c < '0' || c > '9') out += c;
  }
  return out;
}

// FNV-1a.
uint64_t hash_of(const std::vector<std::byte>& bytes) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const std::byte byte : bytes) hash = (hash ^ static_cast<uint64_t>(byte)) * 0x100000001b3;
  return hash;
}

}  // namespace

int main(int count, char** arguments) {
  double seconds = 60;
  uint64_t seed = 1, from = 0, calls = UINT64_MAX;
  bool bits = false;
  std::optional<int64_t> threads;
  for (int i = 1; i < count; ++i) {
    const std::string name = arguments[i];
    if (i + 1 < count && name == "--seconds") {
      seconds = std::strtod(arguments[++i], nullptr);
    } else if (i + 1 < count && name == "--calls") {
      calls = std::strtoull(arguments[++i], nullptr, 10), seconds = 1e9;
    } else if (i + 1 < count && name == "--seed") {
      seed = std::strtoull(arguments[++i], nullptr, 10);
    } else if (i + 1 < count && name == "--from") {
      from = std::strtoull(arguments[++i], nullptr, 10);
    } else if (i + 1 < count && name == "--threads") {
      threads = std::strtoll(arguments[++i], nullptr, 10);
    } else if (name == "--bits") {
      bits = true;
    } else {
      std::cerr << "fuzz_calls: '" << name
                << "' is not --seconds S, --calls N, --seed N, --from N, --bits or --threads N\n";
      return 2;
    }
  }
  for (const int signal : {SIGSEGV, SIGABRT, SIGFPE, SIGBUS, SIGILL}) std::signal(signal, print_running);
  const auto start = std::chrono::steady_clock::now();
  const auto passed = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
  std::set<std::string> seen;  // prints each fault once
  uint64_t drawn = 0, refused = 0, failed = 0;
  for (; drawn < calls && passed() < seconds; ++drawn) {
    DrawnCall call = draw_call(seed * 1000003 + from + drawn);
    call.threads = threads.value_or(call.threads);
    running = code_of(call);
    if (bits) {
      std::cout << std::hex << hash_of(bytes_of_call(call)) << std::dec << " " << from + drawn << " " << call.task
                << '\n';
      continue;
    }
    const Verdict verdict = check(call);
    if (!verdict.refusal.empty()) ++refused;
    if (verdict.fault.empty()) continue;
    ++failed;
    if (!seen.insert(call.task + without_digits(verdict.fault).substr(0, 40)).second) continue;
    const DrawnCall least = shrink(call);
    std::cout << "call " << from + drawn << ": " << fault_of(least) << '\n' << code_of(least) << std::endl;
  }
  if (bits) return 0;
  std::cout << drawn << " calls in " << passed() << " s, " << refused << " refused, " << failed << " failed\n";
  return failed == 0 ? 0 : 1;
}

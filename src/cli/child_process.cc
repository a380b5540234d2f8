// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "cli/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "logitless/error.h"

extern char** environ;

namespace logitless::cli {
namespace {

constexpr int kWakeMilliseconds = 100;  // A signal between two looks at its note waits no longer than this.
constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};

volatile sig_atomic_t caught_signal = 0;

// While it lives, the signals that would end this process are noted instead, so that the child can be ended first.
class SignalNote {
 public:
  SignalNote() {
    caught_signal = 0;
    struct sigaction action {};
    action.sa_handler = [](int signal) { caught_signal = signal; };
    for (size_t i = 0; i < std::size(kSignals); ++i) {
      sigaction(kSignals[i], nullptr, &before_[i]);
      // A signal that the caller ignores (nohup) stays ignored.
      if (before_[i].sa_handler != SIG_IGN) sigaction(kSignals[i], &action, nullptr);
    }
  }
  ~SignalNote() {
    for (size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &before_[i], nullptr);
  }
  SignalNote(const SignalNote&) = delete;
  SignalNote& operator=(const SignalNote&) = delete;

 private:
  struct sigaction before_[std::size(kSignals)] = {};
};

const char* name_of_contender(const Job& job) { return job.dense ? "dense" : "fused"; }

// Descriptors that the child inherits under the same numbers. A dup2 onto itself clears close-on-exec (POSIX.1-2024,
// and glibc since 2.29).
std::vector<int> inherited(const Job& job) {
  std::vector<int> descriptors;
  if (job.settings) descriptors.push_back(job.settings.descriptor);
  for (const Region& region : job.tensors) {
    if (region) descriptors.push_back(region.descriptor);
  }
  return descriptors;
}

pid_t spawn(const Job& job, int job_descriptor, int outcome_descriptor) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  for (const int descriptor : inherited(job)) posix_spawn_file_actions_adddup2(&actions, descriptor, descriptor);
  posix_spawn_file_actions_adddup2(&actions, job_descriptor, job_descriptor);
  posix_spawn_file_actions_adddup2(&actions, outcome_descriptor, outcome_descriptor);
  // Standard output belongs to the report alone.
  posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);

  std::string arguments[] = {"logitless", "run-contender", std::to_string(job_descriptor),
                             std::to_string(outcome_descriptor)};
  char* argv[] = {arguments[0].data(), arguments[1].data(), arguments[2].data(), arguments[3].data(), nullptr};
  pid_t child = -1;
  const int status = posix_spawn(&child, "/proc/self/exe", &actions, nullptr, argv, environ);
  posix_spawn_file_actions_destroy(&actions);
  if (status != 0) {
    throw ChildFailure(std::string("the ") + name_of_contender(job) +
                       " process cannot be started: " + std::strerror(status));
  }
  return child;
}

int wait_for(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

// Reads until the child closes its end; true when a whole Outcome came.
bool read_outcome(int descriptor, pid_t child, Outcome& outcome) {
  char* bytes = reinterpret_cast<char*>(&outcome);
  size_t done = 0;
  while (true) {
    if (caught_signal != 0) {
      kill(child, SIGKILL);
      wait_for(child);
      throw Interrupted{caught_signal};
    }
    pollfd ready{descriptor, POLLIN, 0};
    if (poll(&ready, 1, kWakeMilliseconds) <= 0) continue;
    const ssize_t count = read(descriptor, bytes + done, sizeof(outcome) - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    done += static_cast<size_t>(count);
    if (done == sizeof(outcome)) return true;
  }
}

std::string how_it_died(int status) {
  if (!WIFSIGNALED(status)) return "ended early with exit status " + std::to_string(WEXITSTATUS(status));
  const int signal = WTERMSIG(status);
  std::string text = "was killed by signal " + std::to_string(signal) + " (" + strsignal(signal) + ")";
  if (signal == SIGKILL) text += "; most often that is the system, out of memory: choose a smaller seq_len";
  if (signal == SIGBUS) text += "; shared memory ran out, or an input file was cut short while it was read";
  return text;
}

struct Descriptor {
  int value = -1;
  ~Descriptor() { reset(); }
  void reset() {
    if (value >= 0) close(std::exchange(value, -1));
  }
};

}  // namespace

Outcome run_in_child(const Job& job) {
  SharedMemory job_memory("job", sizeof(Job));
  std::memcpy(job_memory.map_writable().data(), &job, sizeof(Job));
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw ChildFailure(std::string("no pipe: ") + std::strerror(errno));
  Descriptor from_child{ends[0]}, to_parent{ends[1]};

  const SignalNote note;
  const pid_t child = spawn(job, job_memory.region().descriptor, to_parent.value);
  to_parent.reset();
  Outcome outcome;
  const bool whole = read_outcome(from_child.value, child, outcome);
  const int status = wait_for(child);
  const std::string who = std::string("the ") + name_of_contender(job) + " process ";
  if (!whole) throw ChildFailure(who + how_it_died(status));
  if (outcome.status == OutcomeStatus::kInvalidInput) throw InvalidInput(outcome.message);
  if (outcome.status == OutcomeStatus::kFailed) throw ChildFailure(who + "failed: " + outcome.message);
  return outcome;
}

}  // namespace logitless::cli

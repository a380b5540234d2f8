// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "cli/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "cli/bus_error.h"
#include "cli/shared_memory.h"

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

struct Descriptor {
  int value = -1;
  ~Descriptor() { reset(); }
  void reset() {
    if (value >= 0) close(std::exchange(value, -1));
  }
};

// A process that is not left behind, whatever is thrown.
class Child {
 public:
  explicit Child(pid_t process) : process_(process) {}
  ~Child() {
    if (process_ < 0) return;
    kill(process_, SIGKILL);
    wait();
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  int wait() {
    int status = 0;
    while (waitpid(process_, &status, 0) < 0 && errno == EINTR) {
    }
    process_ = -1;
    return status;
  }

 private:
  pid_t process_;
};

// `descriptors` keep their numbers: a dup2 onto itself clears close-on-exec (POSIX.1-2024, and glibc since 2.29).
pid_t spawn(std::vector<std::string> arguments, std::span<const int> descriptors) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  for (const int descriptor : descriptors) posix_spawn_file_actions_adddup2(&actions, descriptor, descriptor);
  // Standard output belongs to the report alone.
  posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  pid_t child = -1;
  const int status = posix_spawn(&child, "/proc/self/exe", &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (status != 0 && access("/proc/self/exe", X_OK) != 0) {
    throw ChildFailure(
        "no process can be started: /proc is not mounted, and this command needs it to start itself "
        "again and to measure memory");
  }
  if (status != 0) throw ChildFailure(std::string("no process can be started: ") + std::strerror(status));
  return child;
}

// Until the child closes its end.
void receive_all(int descriptor, const std::function<void(std::string_view)>& receive) {
  char bytes[4096];
  while (true) {
    if (caught_signal != 0) throw Interrupted{caught_signal};
    pollfd ready{descriptor, POLLIN, 0};
    if (poll(&ready, 1, kWakeMilliseconds) <= 0) continue;
    const ssize_t count = read(descriptor, bytes, sizeof(bytes));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;
    receive({bytes, static_cast<size_t>(count)});
  }
}

}  // namespace

int run_child(const std::string& command, std::string_view request, std::span<const int> descriptors,
              const std::function<void(std::string_view)>& receive) {
  const SharedMemory memory("request", request.size());
  std::memcpy(memory.map_writable().data(), request.data(), request.size());
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw ChildFailure(std::string("no pipe: ") + std::strerror(errno));
  Descriptor from_child{ends[0]}, to_parent{ends[1]};

  const int request_descriptor = memory.region().descriptor;
  std::vector<int> inherited(descriptors.begin(), descriptors.end());
  inherited.insert(inherited.end(), {request_descriptor, to_parent.value});
  const SignalNote note;
  Child child(spawn({"logitless", command, std::to_string(getpid()), std::to_string(request_descriptor),
                     std::to_string(to_parent.value)},
                    inherited));
  to_parent.reset();
  receive_all(from_child.value, receive);
  const int status = child.wait();
  if (caught_signal != 0) throw Interrupted{caught_signal};
  // Ctrl-C reaches the child too, and it may have died before this process has seen the signal.
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGINT) throw Interrupted{SIGINT};
  return status;
}

std::string how_it_died(int status) {
  if (!WIFSIGNALED(status)) return "ended early with exit status " + std::to_string(WEXITSTATUS(status));
  const int signal = WTERMSIG(status);
  std::string text = "was killed by signal " + std::to_string(signal) + " (" + strsignal(signal) + ")";
  if (signal == SIGKILL) text += "; most often that is the system, out of memory: choose a smaller seq_len";
  if (signal == SIGBUS) text += "; shared memory ran out, or an input file was cut short while it was read";
  return text;
}

std::string begin_child(const ChildEnds& ends) {
  // The parent may be killed without a chance to stop this process.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  leave_bus_errors();
  if (getppid() != ends.parent) throw ChildFailure("this command is started by others");
  struct stat file {};
  std::string request;
  if (fstat(ends.request, &file) == 0) request.resize(static_cast<size_t>(file.st_size));
  if (pread(ends.request, request.data(), request.size(), 0) != static_cast<ssize_t>(request.size()) ||
      request.empty()) {
    throw ChildFailure("the request cannot be read");
  }
  return request;
}

void send_answer(const ChildEnds& ends, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(ends.answer, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) throw ChildFailure("the answer cannot be written");
    bytes.remove_prefix(static_cast<size_t>(written));
  }
}

}  // namespace logitless::cli

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "cli/measure/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <initializer_list>
#include <ios>
#include <sstream>
#include <utility>
#include <vector>

extern char** environ;

namespace logitless::cli {
namespace {

constexpr int kWakeMilliseconds = 100;  // A signal between two looks at its note waits no longer than this.
constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};

volatile sig_atomic_t caught_signal = 0;

// While it lives, the signals that would end this process are noted instead, so that the child can be ended
// first.
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

// `descriptors` keep their numbers: a dup2 onto itself clears close-on-exec (POSIX.1-2024, and glibc since
// 2.29).
pid_t spawn(std::vector<std::string> arguments, std::initializer_list<int> descriptors) {
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

constexpr int kBadInput = 2;

void (*tell_line)(const std::string&) = nullptr;

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

// The access that failed is a plain read of a tensor's bytes. This thread holds no lock then, neither the
// allocator's nor a stream's, so the handler may use both.
void explain(int signal, siginfo_t* info, void*) {
  if (info->si_code != BUS_ADRERR) {  // broken memory, for example
    ::signal(signal, SIG_DFL);
    raise(signal);
    return;
  }
  // Threads that read the same file fail together: one tells, and ends them all.
  static std::atomic_flag told;
  while (told.test_and_set()) pause();
  const std::string file = file_mapped_at(reinterpret_cast<uintptr_t>(info->si_addr));
  tell_line(file.empty() ? "an input file was cut short while it was read"
                         : file + ": was cut short while it was read");
  _exit(kBadInput);
}

}  // namespace

int run_child(const std::string& command, const std::string& request,
              const std::function<void(std::string_view)>& receive) {
  // Through a file without a name: a pipe would hold a long one back until the child reads it.
  const Descriptor file{memfd_create("logitless-request", MFD_CLOEXEC)};
  if (write(file.value, request.data(), request.size()) != static_cast<ssize_t>(request.size())) {
    throw ChildFailure(std::string("no process can be started: ") + std::strerror(errno));
  }
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw ChildFailure(std::string("no pipe: ") + std::strerror(errno));
  Descriptor from_child{ends[0]}, to_parent{ends[1]};
  const SignalNote note;
  Child child(spawn(
      {"logitless", command, std::to_string(getpid()), std::to_string(file.value), std::to_string(to_parent.value)},
      {file.value, to_parent.value}));
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
  return text;
}

std::string begin_child(const ChildEnds& ends) {
  // The parent may be killed without a chance to stop this process.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
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

void explain_bus_errors(void (*tell)(const std::string& line)) {
  tell_line = tell;
  struct sigaction action {};
  action.sa_sigaction = explain;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGBUS, &action, nullptr);
}

}  // namespace logitless::cli

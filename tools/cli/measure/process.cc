// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "cli/measure/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "cli/measure/one_call.h"
#include "io/error.h"
#include "logitless/error.h"

namespace logitless::cli {
namespace {

constexpr int kWakeMilliseconds = 100;  // A signal between two looks at its note waits no longer than this.
constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};
constexpr int kBadInput = 2;

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
  ~SignalNote() { end(); }
  SignalNote(const SignalNote&) = delete;
  SignalNote& operator=(const SignalNote&) = delete;

  void end() {
    for (size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &before_[i], nullptr);
  }

 private:
  struct sigaction before_[std::size(kSignals)] = {};
};

// While it lives, those signals wait: one that reaches the child before it has left its parent's note behind
// would be noted there and lost.
class SignalsHeld {
 public:
  SignalsHeld() {
    sigset_t held;
    sigemptyset(&held);
    for (const int signal : kSignals) sigaddset(&held, signal);
    pthread_sigmask(SIG_BLOCK, &held, &before_);
  }
  ~SignalsHeld() { end(); }
  SignalsHeld(const SignalsHeld&) = delete;
  SignalsHeld& operator=(const SignalsHeld&) = delete;

  void end() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
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

// Of this process, where it is a child: where its answer goes. A signal's handler needs to know.
int answer_end = -1;

void send(const Json& line) {
  const std::string text = line_of(line) + "\n";
  for (std::string_view rest = text; !rest.empty();) {
    const ssize_t written = write(answer_end, rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) _exit(1);  // Nobody reads it.
    rest.remove_prefix(static_cast<size_t>(written));
  }
}
void send_message(const std::string& message, bool bad_input) {
  send({{"message", message}, {"bad_input", bad_input}});
}

// All that the child does.
void do_work(const std::function<Json(const OnTurn&)>& work) try {
  const auto on_turn = [](const std::string& contender, const std::string& step, double share) {
    send({{"contender", contender}, {"step", step}, {"share", share}});
  };
  send({{"result", work(on_turn)}});
} catch (const std::bad_alloc&) {
  send_message(kOutOfMemory, false);
} catch (const io::Error& e) {
  send_message(e.what(), true);
} catch (const InvalidInput& e) {
  send_message(e.what(), true);
} catch (const std::exception& e) {
  send_message(e.what(), false);
}

[[noreturn]] void live_as_child(pid_t parent, const std::function<Json(const OnTurn&)>& work) {
  // The parent may be killed without a chance to stop this process.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  prctl(PR_SET_NAME, "logitless-turns");
  dup2(STDERR_FILENO, STDOUT_FILENO);  // Standard output belongs to the report alone.
  // The command has to live to tell that memory ran out.
  volunteer_when_memory_runs_out();
  explain_bus_errors([](const std::string& line) { send_message(line, true); });
  do_work(work);
  _exit(0);
}

void take_line(const Json& line, Outcome& outcome, const OnStep& on_step) {
  if (line.contains("step")) {
    outcome.contender = line["contender"];
    on_step(line["step"], line["share"]);
  } else if (line.contains("result")) {
    outcome.result = line_of(line["result"]);
  } else {
    outcome.why = line["message"];
    if (outcome.why.empty()) outcome.why = "failed without a message";
    outcome.bad_input = line["bad_input"];
  }
}

// Until the child closes its end.
void receive_all(int descriptor, Outcome& outcome, const OnStep& on_step) {
  std::string text;
  char bytes[4096];
  while (true) {
    if (caught_signal != 0) throw Interrupted{caught_signal};
    pollfd ready{descriptor, POLLIN, 0};
    if (poll(&ready, 1, kWakeMilliseconds) <= 0) continue;
    const ssize_t count = read(descriptor, bytes, sizeof(bytes));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;
    text.append(bytes, static_cast<size_t>(count));
    for (size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n')) {
      take_line(Json::parse(text.substr(0, end)), outcome, on_step);
      text.erase(0, end + 1);
    }
  }
}

std::string how_it_died(int status) {
  if (!WIFSIGNALED(status)) return "ended early with exit status " + std::to_string(WEXITSTATUS(status));
  const int signal = WTERMSIG(status);
  std::string text = "was killed by signal " + std::to_string(signal) + " (" + strsignal(signal) + ")";
  if (signal == SIGKILL) text += "; most often that is the system, out of memory: choose a smaller seq_len";
  return text;
}

struct Pipe {
  int read_end = -1, write_end = -1;

  Pipe() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) throw ChildFailure(std::string("no pipe: ") + std::strerror(errno));
    read_end = ends[0];
    write_end = ends[1];
  }
  ~Pipe() {
    close(read_end);
    close_write_end();
  }
  void close_write_end() {
    if (write_end >= 0) close(std::exchange(write_end, -1));
  }
};

void (*tell_line)(const std::string&) = nullptr;

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
  tell_line("an input file was cut short while it was read");
  _exit(kBadInput);
}

}  // namespace

Outcome run_apart(const std::function<Json(const OnTurn&)>& work, const OnStep& on_step) {
  if (access("/proc/self/status", R_OK) != 0) {
    throw ChildFailure("/proc is not mounted, and this command needs it to measure memory");
  }
  Pipe pipe;
  SignalNote note;
  SignalsHeld held;
  const pid_t parent = getpid(), process = fork();
  if (process < 0) throw ChildFailure(std::string("no process can be started: ") + std::strerror(errno));
  if (process == 0) {
    note.end();
    held.end();
    answer_end = pipe.write_end;
    live_as_child(parent, work);
  }
  held.end();
  Child child(process);
  pipe.close_write_end();
  Outcome outcome;
  receive_all(pipe.read_end, outcome, on_step);
  const int status = child.wait();
  if (caught_signal != 0) throw Interrupted{caught_signal};
  // Ctrl-C reaches the child too, and it may have died before this process has seen the signal.
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGINT) throw Interrupted{SIGINT};
  outcome.died = outcome.result.empty() && outcome.why.empty();
  if (outcome.died) outcome.why = how_it_died(status);
  return outcome;
}

void explain_bus_errors(void (*tell)(const std::string& line)) {
  tell_line = tell;
  struct sigaction action {};
  action.sa_sigaction = explain;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGBUS, &action, nullptr);
}

}  // namespace logitless::cli

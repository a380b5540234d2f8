// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "cli/measure/process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string_view>

#include "cli/common/failure.h"
#include "cli/measure/one_call.h"

namespace logitless::cli {
namespace {

constexpr int kBadInput = 2;

// Where the child sends its answer; -1 in the parent. It is global because a signal handler needs it.
int answer_end = -1;

void send(const Json& line) {
  const std::string text = line_of(line) + "\n";
  for (std::string_view rest = text; !rest.empty();) {
    const ssize_t written = write(answer_end, rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) _exit(1);  // the parent is gone
    rest.remove_prefix(static_cast<size_t>(written));
  }
}
void send_message(const std::string& message, bool bad_input) {
  send({{"message", message}, {"bad_input", bad_input}});
}

// Runs `work` in the child and sends its result or failure.
void do_work(const std::function<Json(const OnTurn&)>& work) try {
  const auto on_turn = [](const std::string& contender, const std::string& step) {
    send({{"contender", contender}, {"step", step}});
  };
  send({{"result", work(on_turn)}});
} catch (const std::exception&) {
  const Failure failure = current_failure();
  send_message(failure.what, failure.bad_input);
}

[[noreturn]] void live_as_child(pid_t parent, const std::function<Json(const OnTurn&)>& work) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  prctl(PR_SET_NAME, "logitless-turns");
  dup2(STDERR_FILENO, STDOUT_FILENO);  // standard output is for the report only
  // If memory runs out the child must die first, so that the command can report it.
  raise_oom_score();
  explain_bus_errors([](const std::string& line) { send_message(line, true); });
  do_work(work);
  _exit(0);
}

void take_line(const Json& line, Outcome& outcome, const OnStep& on_step) {
  if (line.contains("step")) {
    outcome.contender = line["contender"];
    on_step(line["step"]);
  } else if (line.contains("result")) {
    outcome.result = line_of(line["result"]);
  } else {
    outcome.why = line["message"];
    if (outcome.why.empty()) outcome.why = "failed without a message";
    outcome.bad_input = line["bad_input"];
  }
}

// Reads until the child closes its end. An unfinished last line is ignored.
void receive_all(int descriptor, Outcome& outcome, const OnStep& on_step) {
  const std::unique_ptr<FILE, int (*)(FILE*)> from(fdopen(descriptor, "r"), fclose);
  if (!from) throw ChildFailure(std::string("no pipe: ") + std::strerror(errno));
  char* line = nullptr;
  size_t size = 0;
  for (ssize_t count = 0; (count = getline(&line, &size, from.get())) > 0;) {
    if (line[count - 1] == '\n') take_line(Json::parse(line, line + count), outcome, on_step);
  }
  std::free(line);
}

std::string how_it_died(int status) {
  if (!WIFSIGNALED(status)) return "ended early with exit status " + std::to_string(WEXITSTATUS(status));
  const int signal = WTERMSIG(status);
  std::string text = "was killed by signal " + std::to_string(signal) + " (" + strsignal(signal) + ")";
  if (signal == SIGKILL) text += "; most often the system ran out of memory: choose a smaller seq_len";
  return text;
}

volatile pid_t child = 0;  // 0: none, or already ended
volatile sig_atomic_t on_terminal = 0;

// A signal handler: ends the child, wipes a drawn line, and ends this process by the same signal.
void end_by(int signal) {
  if (child > 0 && kill(child, SIGKILL) == 0) waitpid(child, nullptr, 0);
  constexpr std::string_view kWipe = "\r\033[K";
  if (on_terminal && write(STDERR_FILENO, kWipe.data(), kWipe.size()) < 0) on_terminal = 0;
  ::signal(signal, SIG_DFL);
  raise(signal);
}

void handle_signals() {
  on_terminal = isatty(STDERR_FILENO);
  struct sigaction action {};
  action.sa_handler = end_by;
  sigfillset(&action.sa_mask);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction before {};
    sigaction(signal, nullptr, &before);
    // A signal that the caller ignores (nohup) stays ignored.
    if (before.sa_handler != SIG_IGN) sigaction(signal, &action, nullptr);
  }
}

void (*tell_line)(const std::string&) = nullptr;

// The failed access is a plain read of a tensor's bytes. This thread holds no lock of the allocator or of a
// stream then, so the handler may use both.
void report_bus_error(int signal, siginfo_t* info, void*) {
  if (info->si_code != BUS_ADRERR) {  // for example broken memory
    ::signal(signal, SIG_DFL);
    raise(signal);
    return;
  }
  // Threads that read the same file fail together: the first one reports it and ends the process.
  static std::atomic_flag reported;
  while (reported.test_and_set()) pause();
  tell_line("an input file was cut short while it was read");
  _exit(kBadInput);
}

}  // namespace

Outcome run_apart(const std::function<Json(const OnTurn&)>& work, const OnStep& on_step) {
  if (access("/proc/self/status", R_OK) != 0) {
    throw ChildFailure("/proc is not mounted, and this command needs it to measure memory");
  }
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw ChildFailure(std::string("no pipe: ") + std::strerror(errno));
  handle_signals();
  sigset_t all, before;  // signals wait until the handler knows the child
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, &before);
  const pid_t parent = getpid(), process = fork();
  if (process == 0) {
    sigprocmask(SIG_SETMASK, &before, nullptr);
    answer_end = ends[1];
    live_as_child(parent, work);
  }
  child = process;
  sigprocmask(SIG_SETMASK, &before, nullptr);
  if (process < 0) throw ChildFailure(std::string("no process can be started: ") + std::strerror(errno));
  close(ends[1]);
  Outcome outcome;
  receive_all(ends[0], outcome, on_step);
  child = 0;  // once it is waited for, its number may be another process's
  int status = 0;
  while (waitpid(process, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGINT) end_by(SIGINT);
  outcome.died = outcome.result.empty() && outcome.why.empty();
  if (outcome.died) outcome.why = how_it_died(status);
  return outcome;
}

void explain_bus_errors(void (*tell)(const std::string& line)) {
  tell_line = tell;
  struct sigaction action {};
  action.sa_sigaction = report_bus_error;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGBUS, &action, nullptr);
}

}  // namespace logitless::cli

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The `logitless` command: parses the arguments and turns what is thrown into one line and an exit status.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <memory>
#include <sstream>
#include <string>

#include "cli/bench_point.h"
#include "cli/bus_error.h"
#include "cli/child_process.h"
#include "cli/command.h"
#include "cli/contender.h"
#include "cli/output_file.h"
#include "io/error.h"
#include "logitless/blas.h"
#include "logitless/environment.h"
#include "logitless/error.h"

namespace logitless::cli {
namespace {

constexpr int kBadInput = 2;
constexpr int kFailure = 3;

constexpr const char* kFooter = R"(Examples:
  logitless compare configs/tiny.yaml
  logitless bench configs/tiny.yaml --sweep seq_len=64,128,256 -o sweep.jsonl
  logitless report sweep.jsonl -o report.html
  logitless gradcheck configs/tiny.yaml
  logitless score configs/tiny.yaml -o scores.safetensors
  logitless tune configs/tiny.yaml -o profile.yaml
  logitless info
`logitless COMMAND --help` says more.)";

// A command that nobody types: this executable starts it for itself.
void add_child(CLI::App& app, Action& action, const char* name, int (*run)(const ChildEnds&)) {
  const auto ends = std::make_shared<ChildEnds>();
  CLI::App* child = app.add_subcommand(name);
  child->group("");
  child->add_option("parent", ends->parent)->required();
  child->add_option("request", ends->request)->required();
  child->add_option("answer", ends->answer)->required();
  child->callback([=, &action] { action = [=] { return run(*ends); }; });
}

// Of files: an unset variable of a script is not a wish for no file.
void refuse_empty_names(CLI::App& app) {
  for (CLI::App* command : app.get_subcommands({})) {
    for (CLI::Option* option : command->get_options()) {
      if (!option->get_type_name().starts_with("FILE") && !option->get_positional()) continue;
      option->check([](const std::string& name) { return name.empty() ? "must not be empty" : ""; });
    }
  }
}

int run(int argc, char** argv) {
  const BlasKernels blas = use_best_blas_kernels();
  CLI::App app("logitless: a language model's LM head fused with its loss, without ever holding the logits",
               "logitless");
  app.set_version_flag("--version", std::string("logitless ") + version());
  app.require_subcommand(1);
  app.footer(kFooter);
  Action action;
  add_bench(app, action);
  add_compare(app, action);
  add_gradcheck(app, action);
  add_score(app, action);
  add_report(app, action);
  add_tune(app, action);
  add_info(app, action, blas);
  add_completion(app, action);

  add_child(app, action, kContenderCommand, run_contender);
  add_child(app, action, kPointCommand, run_point);

  refuse_empty_names(app);

  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& e) {
    std::ostringstream text;
    const int status = app.exit(e, text, text);
    print(text.str());
    return status;
  } catch (const CLI::ParseError& e) {
    std::fprintf(stderr, "logitless: %s; see logitless --help\n", e.what());
    return kBadInput;
  }
  const int status = action();
  print("");  // Fails where anything could not be printed before.
  return status;
}

// A file that is opened while a standard stream is closed would get its number, and what is meant for the stream would
// be written into the file. Writing to what stands there now fails, as it does to a closed stream.
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
    std::fprintf(stderr, "logitless: %s\n", e.what());
  } catch (const InvalidInput& e) {
    status = kBadInput;
    std::fprintf(stderr, "logitless: %s\n", e.what());
  } catch (const Interrupted& interruption) {
    // Ends as the signal would have ended it, so that a shell loop around this command stops as well.
    signal(interruption.signal, SIG_DFL);
    raise(interruption.signal);
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "logitless: out of memory\n");
  } catch (const std::exception& e) {
    std::fprintf(stderr, "logitless: %s\n", e.what());
  }
  return status;
}

}  // namespace
}  // namespace logitless::cli

int main(int argc, char** argv) {
  logitless::cli::open_standard_streams();
  logitless::cli::explain_bus_errors();
  return logitless::cli::run_and_report(argc, argv);
}

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Distils a language model into a small student: from the text alone, or from the teacher's whole
// distribution, with or without the logits of both heads in memory.
#include <omp.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "compare.h"
#include "figures.h"
#include "student.h"
#include "teacher_file.h"

namespace {

using nlohmann::json;

constexpr double kMiB = 1024.0 * 1024.0;

constexpr const char* kHelp =
    "Distils a language model into a small student. TEACHER is a safetensors file with float32 hidden [N, H] and\n"
    "lm_head [V, H], and int32 or int64 ids [N + 1]: hidden row i has read the ids up to ids[i], and predicts\n"
    "ids[i + 1]. SmolLM2-135M on a text (examples/python/smollm2.py says what to install):\n\n"
    "    python examples/python/distil.py --save teacher.safetensors examples/data/kjv.txt\n"
    "    distil teacher.safetensors --head both\n\n"
    "A step learns from:\n\n"
    "    hard     the next token of the text, by cross_entropy()\n"
    "    fused    the teacher's whole distribution, by distillation_loss(), with no logits in memory\n"
    "    dense    the same, with the logits of both heads in memory\n\n"
    "The student trains on the first five sixths. Its cross-entropy on the last sixth is printed every 20 steps.\n";

struct CommandLine {
  std::string teacher;
  std::string head = "fused";
  DistilOptions distil;
  std::string json;
};

void declare(CLI::App& app, CommandLine& line) {
  app.get_formatter()->column_width(30);
  DistilOptions& distil = line.distil;
  const auto above_zero = [](const std::string& text) {
    return std::strtod(text.c_str(), nullptr) > 0 ? std::string() : "must be above 0, not " + text;
  };
  const auto not_negative = [](const std::string& text) {
    return std::strtod(text.c_str(), nullptr) >= 0 ? std::string() : "must not be negative, not " + text;
  };
  const auto add_number = [&](const char* name, auto& value, const char* help, const auto& check) {
    app.add_option(name, value, help)->check(check)->type_name("N")->capture_default_str();
  };
  app.add_option("teacher", line.teacher, "The teacher's hidden states and head")->required()->type_name("FILE");
  app.add_option("--head", line.head, "hard, fused, dense, or both: fused and dense, compared")
      ->check(CLI::IsMember({"hard", "fused", "dense", "both"}).description(""))
      ->type_name("NAME")
      ->capture_default_str();
  add_number("--steps", distil.steps, "Optimizer steps", above_zero);
  add_number("--batch-tokens", distil.batch_tokens, "Tokens per step", above_zero);
  add_number("--context", distil.context, "Tokens that the student sees", above_zero);
  add_number("--embedding", distil.embedding, "Size of a token's embedding", above_zero);
  add_number("--hidden", distil.hidden, "Size of the student's hidden state", above_zero);
  add_number("--lr", distil.learning_rate, "Learning rate", above_zero);
  add_number("--seed", distil.seed, "Seed of parameters and batches", not_negative);
  add_number("--threads", distil.threads, "Number of threads; 0 uses all that OpenMP offers", not_negative);
  add_number("--workspace", distil.workspace_mib, "MiB a fused head may allocate", above_zero);
  app.add_option("--json", line.json, "Write all figures for scripts, - = stdout")->type_name("FILE");
}

/// Returns the runs that --head asks for, in order.
std::vector<Objective> objectives_of(const std::string& head) {
  if (head == "both") return {Objective::kFused, Objective::kDense};
  if (head == "dense") return {Objective::kDense};
  return {head == "hard" ? Objective::kHard : Objective::kFused};
}

void print_validation(Objective objective, const DistilRun& run) {
  const Validation& last = run.validation.back();
  if (last.step == 0) {
    std::printf("%s\n%6s %12s %12s\n%6d %12s %12.6f\n", name_of(objective), "step", "loss", "validation", 0, "",
                last.loss);
  } else {
    std::printf("%6d %12.6f %12.6f\n", last.step, run.steps.back().loss, last.loss);
  }
  std::fflush(stdout);
}

void print_summary(const std::vector<Objective>& objectives, const std::vector<DistilRun>& runs, double teacher) {
  const auto row = [&](const char* what, int digits, auto figure) {
    std::printf("%-34s", what);
    for (const DistilRun& run : runs) std::printf(" %12.*f", digits, figure(run));
    std::printf("\n");
  };
  std::printf("\n%-34s", "");
  for (const Objective objective : objectives) std::printf(" %12s", name_of(objective));
  std::printf("\n");
  row("loss of the last step", 6, [](const DistilRun& run) { return run.steps.back().loss; });
  row("validation cross-entropy", 6, [](const DistilRun& run) { return run.validation.back().loss; });
  row("the teacher's own", 6, [&](const DistilRun&) { return teacher; });
  row("ms per step (median)", 1, [](const DistilRun& run) { return 1e3 * run.median_seconds(); });
  row("head and loss, ms per step", 1, [](const DistilRun& run) { return 1e3 * run.median_head_seconds(); });
  row("head's extra peak, MiB", 1, [](const DistilRun& run) { return run.head_extra_bytes / kMiB; });
  for (size_t i = 0; i < runs.size(); ++i) std::printf("%s: plan %s\n", name_of(objectives[i]), runs[i].plan.c_str());
}

json to_json(const DistilRun& run) {
  json seconds = json::array(), head_seconds = json::array(), validation = json::array();
  for (const StepReport& step : run.steps) {
    seconds.push_back(step.seconds);
    head_seconds.push_back(step.head_seconds);
  }
  for (const Validation& at : run.validation) validation.push_back({{"step", at.step}, {"loss", at.loss}});
  return {{"losses", run.losses()},
          {"validation", validation},
          {"seconds", seconds},
          {"head_seconds", head_seconds},
          {"median_seconds", run.median_seconds()},
          {"median_head_seconds", run.median_head_seconds()},
          {"head_extra_peak_bytes", run.head_extra_bytes},
          {"workspace_bytes", run.workspace_bytes},
          {"plan", run.plan}};
}

json base_json(const CommandLine& line, const TeacherFile& teacher) {
  const DistilOptions& options = line.distil;
  return {{"teacher", line.teacher},
          {"vocabulary", teacher.vocabulary()},
          {"teacher_hidden", teacher.hidden.cols()},
          {"trained_tokens", trained_tokens(teacher)},
          {"validation_tokens", teacher.tokens() - trained_tokens(teacher)},
          {"steps", options.steps},
          {"batch_tokens", options.batch_tokens},
          {"context", options.context},
          {"embedding", options.embedding},
          {"hidden", options.hidden},
          {"learning_rate", options.learning_rate},
          {"seed", options.seed},
          {"threads", omp_get_max_threads()}};
}

/// Trains one student, or trains two and compares them. Returns the exit status.
int run(const CommandLine& line) {
  const bool print = line.json != "-";  // with "-", stdout gets only the JSON object
  const TeacherFile teacher = read_teacher(line.teacher);
  if (line.distil.threads > 0) omp_set_num_threads(line.distil.threads);
  const std::vector<Objective> objectives = objectives_of(line.head);
  std::vector<DistilRun> runs;
  json figures = base_json(line, teacher);
  bool finite = true;
  for (const Objective objective : objectives) {
    runs.push_back(distil(teacher, line.distil, objective, [&](const DistilRun& so_far) {
      if (print) print_validation(objective, so_far);
    }));
    figures[name_of(objective)] = to_json(runs.back());
    finite = finite && std::isfinite(runs.back().validation.back().loss);
  }
  const double own_loss = teacher_loss(teacher, line.distil);
  figures["teacher_loss"] = own_loss;
  if (print) print_summary(objectives, runs, own_loss);

  bool agree = true;
  if (runs.size() == 2) {
    const double difference = largest_difference(runs[0].losses(), runs[1].losses());
    agree = difference <= Verdict::kLossTolerance;
    figures["max_loss_difference"] = difference;
    figures["loss_tolerance"] = Verdict::kLossTolerance;
    figures["agrees"] = agree;
    if (print) {
      std::printf("largest |loss difference| over %d steps: %.3e (tolerance %.0e): %s\n", line.distil.steps, difference,
                  Verdict::kLossTolerance, agree ? "the curves agree" : "THEY DIFFER");
    }
  }
  if (!line.json.empty()) write_json_file(line.json, figures);
  return agree && finite ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(kHelp, "distil");
  CommandLine line;
  declare(app, line);
  CLI11_PARSE(app, argc, argv);
  try {
    return run(line);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "distil: %s\n", error.what());
    return 1;
  }
}

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "compare.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "figures.h"

using nlohmann::json;

namespace {

constexpr double kMiB = 1024.0 * 1024.0;

json to_json(const TrainSummary& s) {
  return {{"text_tokens", s.text_tokens},
          {"vocabulary", s.vocabulary},
          {"unigram_entropy", s.unigram_entropy},
          {"final_loss", s.final_loss},
          {"tokens_per_second", s.tokens_per_second},
          {"head_milliseconds", s.head_milliseconds},
          {"peak_bytes", s.peak_bytes},
          {"gradient_bytes", s.gradient_bytes},
          {"head_extra_peak_bytes", s.head_extra_bytes},
          {"workspace_bytes", s.workspace_bytes},
          {"threads", s.threads},
          {"plan", s.plan},
          {"plan_kind", s.plan_kind},
          {"plan_cut", s.plan_cut},
          {"parameters_hash", s.parameters_hash}};
}

/// JSON has no NaN, so a NaN arrives as null.
double number(const json& value) {
  return value.is_number() ? value.get<double>() : std::numeric_limits<double>::quiet_NaN();
}

TrainSummary summary_from(const json& j) {
  TrainSummary s;
  s.text_tokens = j.at("text_tokens");
  s.vocabulary = j.at("vocabulary");
  s.unigram_entropy = number(j.at("unigram_entropy"));
  s.final_loss = number(j.at("final_loss"));
  s.tokens_per_second = number(j.at("tokens_per_second"));
  s.head_milliseconds = number(j.at("head_milliseconds"));
  s.peak_bytes = j.at("peak_bytes");
  s.gradient_bytes = j.at("gradient_bytes");
  s.head_extra_bytes = j.at("head_extra_peak_bytes");
  s.workspace_bytes = j.at("workspace_bytes");
  s.threads = j.at("threads");
  s.plan = j.at("plan");
  s.plan_kind = j.at("plan_kind");
  s.plan_cut = j.at("plan_cut");
  s.parameters_hash = j.at("parameters_hash");
  return s;
}

void take_line(const std::string& line, RunRecord& record, const std::function<void(const StepReport&)>& on_step) {
  const json j = json::parse(line);
  if (j.contains("summary")) {
    record.summary = summary_from(j.at("summary"));
    record.complete = true;
    return;
  }
  const StepReport report{j.at("step"), number(j.at("loss")), j.at("seconds"), j.at("head_seconds")};
  record.losses.push_back(report.loss);
  on_step(report);
}

[[noreturn]] void become_child(std::vector<std::string> arguments, int descriptor) {
  arguments.push_back("--record-fd");
  arguments.push_back(std::to_string(descriptor));
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  execv("/proc/self/exe", argv.data());
  std::perror("cannot start /proc/self/exe");
  _exit(127);
}

json base_json(const TrainOptions& options) {
  return {{"text", options.text},
          {"steps", options.steps},
          {"batch_tokens", options.batch_tokens},
          {"context", options.context},
          {"embedding", options.embedding},
          {"hidden", options.hidden},
          {"learning_rate", options.learning_rate},
          {"weight_decay", options.weight_decay},
          {"head_type", name_of(options.head_type)},
          {"gradient_precision", name_of(options.gradient_precision)},
          {"backward", name_of(options.backward.mode)},
          {"seed", options.seed}};
}

}  // namespace

void train_and_record(const TrainOptions& options, int descriptor) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(fdopen(descriptor, "w"), &std::fclose);
  if (!pipe) throw std::runtime_error("--record-fd is not an open file");
  const auto send = [&](const json& j) {
    std::fprintf(pipe.get(), "%s\n", j.dump().c_str());
    std::fflush(pipe.get());
  };
  const TrainSummary summary = train(options, [&](const StepReport& r) {
    send({{"step", r.step}, {"loss", r.loss}, {"seconds", r.seconds}, {"head_seconds", r.head_seconds}});
  });
  send({{"summary", to_json(summary)}});
}

RunRecord run_in_child(const std::vector<std::string>& arguments,
                       const std::function<void(const StepReport&)>& on_step) {
  int ends[2];
  if (pipe(ends) != 0) throw std::runtime_error("cannot create a pipe");
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("cannot start a child process");
  if (child == 0) {
    close(ends[0]);
    become_child(arguments, ends[1]);
  }
  close(ends[1]);

  RunRecord record;
  std::string buffer;
  char chunk[4096];
  for (ssize_t count; (count = read(ends[0], chunk, sizeof chunk)) > 0;) {
    buffer.append(chunk, static_cast<size_t>(count));
    for (size_t end; (end = buffer.find('\n')) != std::string::npos; buffer.erase(0, end + 1)) {
      take_line(buffer.substr(0, end), record, on_step);
    }
  }
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (!(WIFEXITED(status) && WEXITSTATUS(status) == 0 && record.complete)) {
    throw std::runtime_error("a training run in a child process failed");
  }
  return record;
}

Verdict verdict_of(const RunRecord& first, const RunRecord& second) {
  Verdict verdict;
  verdict.max_difference = largest_difference(first.losses, second.losses);
  verdict.same_bits = first.losses == second.losses && first.summary.parameters_hash == second.summary.parameters_hash;
  verdict.same_cut = first.summary.plan_cut == second.summary.plan_cut;
  verdict.agrees = first.losses.size() == second.losses.size() && verdict.max_difference <= Verdict::kLossTolerance;
  verdict.learns = learns(first.summary, static_cast<int>(first.losses.size())) &&
                   learns(second.summary, static_cast<int>(second.losses.size()));
  return verdict;
}

Verdict verdict_of_optimizers(const RunRecord& first, const RunRecord& second) {
  Verdict verdict = verdict_of(first, second);
  verdict.compares_bits = true;
  verdict.agrees = verdict.agrees && (verdict.same_bits || !verdict.same_cut);
  return verdict;
}

bool learns(const TrainSummary& summary, int steps) {
  return steps < Verdict::kLearningSteps || summary.final_loss < summary.unigram_entropy;
}

void print_summary(const RunNames& names, const RunRecord& first, const RunRecord& second, const Verdict& verdict) {
  const TrainSummary &a = first.summary, &b = second.summary;
  const auto row = [](const char* what, int digits, double of_first, double of_second) {
    std::printf("%-34s %12.*f %12.*f\n", what, digits, of_first, digits, of_second);
  };
  std::printf("\n%-34s %12s %12s\n", "", names.first, names.second);
  row("final loss (mean of last 20 steps)", 6, a.final_loss, b.final_loss);
  row("tokens/s", 0, a.tokens_per_second, b.tokens_per_second);
  row("head and loss, ms per step", 1, a.head_milliseconds, b.head_milliseconds);
  row("peak memory, MiB", 1, a.peak_bytes / kMiB, b.peak_bytes / kMiB);
  row("gradients held, MiB", 1, a.gradient_bytes / kMiB, b.gradient_bytes / kMiB);
  row("head's extra peak, MiB", 1, a.head_extra_bytes / kMiB, b.head_extra_bytes / kMiB);
  std::printf("plan: %s\n", b.plan.c_str());
  std::printf("text: %lld tokens, vocabulary %lld, unigram entropy %.6f nats per token\n",
              static_cast<long long>(b.text_tokens), static_cast<long long>(b.vocabulary), b.unigram_entropy);
  std::printf("largest |loss difference| over %zu steps: %.3e (tolerance %.0e): %s\n", second.losses.size(),
              verdict.max_difference, Verdict::kLossTolerance, verdict.agrees ? "the curves agree" : "THEY DIFFER");
  if (verdict.same_bits) {
    std::printf("all losses and all parameters have the same bits\n");
  } else if (verdict.compares_bits && verdict.same_cut) {
    std::printf("THE BITS DIFFER\n");
  } else if (verdict.compares_bits) {
    std::printf("the bits differ because the plans differ: %s | %s\n", a.plan_cut.c_str(), b.plan_cut.c_str());
  }
  if (!verdict.learns) std::printf("THE FINAL LOSS IS NOT BELOW THE UNIGRAM ENTROPY\n");
}

void print_summary(const TrainSummary& s, HeadKind head) {
  std::printf("\n%s head: final loss %.6f (mean of last 20 steps), unigram entropy %.6f nats per token\n",
              head == HeadKind::kDense ? "dense" : "fused", s.final_loss, s.unigram_entropy);
  std::printf("%.0f tokens/s, head and loss %.1f ms per step\n", s.tokens_per_second, s.head_milliseconds);
  std::printf("peak memory %.1f MiB, gradients held %.1f MiB, head's extra peak %.1f MiB\n", s.peak_bytes / kMiB,
              s.gradient_bytes / kMiB, s.head_extra_bytes / kMiB);
  std::printf("plan: %s\n", s.plan.c_str());
}

void write_json(const std::string& path, const TrainOptions& options, const RunNames& names, const RunRecord& first,
                const RunRecord& second, const Verdict& verdict) {
  json j = base_json(options);
  j[names.first] = to_json(first.summary);
  j[names.second] = to_json(second.summary);
  j["unigram_entropy"] = second.summary.unigram_entropy;
  j["max_loss_difference"] = verdict.max_difference;
  j["loss_tolerance"] = Verdict::kLossTolerance;
  j["same_bits"] = verdict.same_bits;
  j["agrees"] = verdict.agrees;
  j["learns"] = verdict.learns;
  j[names.first]["losses"] = first.losses;
  j[names.second]["losses"] = second.losses;
  write_json_file(path, j);
}

void write_json(const std::string& path, const TrainOptions& options, const RunRecord& run) {
  json j = base_json(options);
  const char* head = options.head == HeadKind::kDense ? "dense" : "fused";
  j[head] = to_json(run.summary);
  j[head]["losses"] = run.losses;
  j["unigram_entropy"] = run.summary.unigram_entropy;
  j["learns"] = learns(run.summary, static_cast<int>(run.losses.size()));
  write_json_file(path, j);
}

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Trains a small causal language model on a text file, with the dense head, the fused head, or both compared.
// The head is updated after its gradient is complete, within the head call, or both compared.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "compare.h"
#include "metrics.h"
#include "train.h"
#ifdef TRAIN_LM_WITH_MPI
#include "logitless/mpi.h"
#endif

namespace {

struct CommandLine {
  std::string head = "both";
  std::string head_optimizer = "separate";
  std::string plan = "auto";
  std::string head_type = "float32";
  std::string gradient_precision = "native";
  std::string backward = "exact";
  TrainOptions train;
  bool quiet = false;
  std::string json;
  std::string metrics;
  int record_fd = -1;  // set only in the child of a comparison
  std::string split = "none";
};

void declare(CLI::App& app, CommandLine& line) {
  // A child gets its parent's arguments followed by its own; the last value of an option counts.
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.get_formatter()->column_width(30);

  TrainOptions& train = line.train;
  train.text = TRAIN_LM_DEFAULT_TEXT;
  const auto above_zero = [](const std::string& text) {
    return std::strtod(text.c_str(), nullptr) > 0 ? std::string() : "must be above 0, not " + text;
  };
  const auto not_negative = [](const std::string& text) {
    return std::strtod(text.c_str(), nullptr) >= 0 ? std::string() : "must not be negative, not " + text;
  };
  const auto add_number = [&](const char* name, auto& value, const char* help, const auto& check) {
    app.add_option(name, value, help)->check(check)->type_name("N")->capture_default_str();
  };
  const auto add_choice = [&](const char* name, std::string& value, const std::vector<std::string>& choices,
                              const char* help) {
    app.add_option(name, value, help)
        ->check(CLI::IsMember(choices).description(""))
        ->type_name("NAME")
        ->capture_default_str();
  };
  add_choice("--head", line.head, {"dense", "fused", "both"}, "dense, fused, or both in two processes and compared");
  app.add_option("--text", train.text, "Text to train on")->check(CLI::ExistingFile.description(""))->type_name("FILE");
  add_number("--vocab-size", train.max_vocabulary, "Keep the most frequent words, others become <unk>; 0 keeps all",
             not_negative);
  add_number("--steps", train.steps, "Optimizer steps", above_zero);
  add_number("--batch-tokens", train.batch_tokens, "Tokens per step", above_zero);
  add_number("--context", train.context, "Words that predict the next one", above_zero);
  add_number("--embedding", train.embedding, "Size of a word's embedding", above_zero);
  add_number("--hidden", train.hidden, "Size of a hidden state", above_zero);
  add_number("--lr", train.learning_rate, "Peak learning rate", above_zero);
  add_number("--weight-decay", train.weight_decay, "AdamW's weight decay", not_negative);
  add_number("--seed", train.seed, "Seed of parameters and batches", not_negative);
  add_number("--threads", train.threads, "Number of threads; 0 uses all that OpenMP offers", not_negative);
  add_number("--workspace", train.workspace_mib, "MiB the fused head may allocate", above_zero);
  add_choice("--plan", line.plan, {"auto", "one_pass", "two_pass"}, "How the fused head runs");
  add_choice("--head-type", line.head_type, {"float32", "bfloat16"},
             "Type of the states and the weight that the head reads");
  add_choice("--gradient-precision", line.gradient_precision, {"native", "split", "float32"},
             "Precision of dL/dlogits, if a bfloat16 head is multiplied in bfloat16");
  add_choice("--backward", line.backward, {"exact", "sampled", "certified"},
             "The fused head's gradients: exact, an unbiased estimate from a random part, or all but the smallest");
  add_number("--noise", train.backward.noise, "Noise of sampled gradients, relative to exact ones", not_negative);
  add_number("--tolerance", train.backward.tolerance, "Probability that certified gradients may leave out",
             not_negative);
  add_choice("--head-optimizer", line.head_optimizer, {"separate", "fused", "both"},
             "AdamW gets the head's gradient as a whole, or tile by tile without a buffer, or both are compared");
#ifdef TRAIN_LM_WITH_MPI
  add_choice("--split", line.split, {"none", "vocab", "data"},
             "Under mpirun: ranks share the head's vocabulary, or the tokens of each batch");
#endif
  app.add_flag("--quiet", line.quiet, "Do not print the steps");
  app.add_option("--json", line.json, "Write a summary for scripts, - = stdout")->type_name("FILE");
  app.add_option("--metrics", line.metrics, "Write the figures of each step, one JSON object per line")
      ->type_name("FILE");
  app.add_option("--record-fd", line.record_fd)->group("");  // hidden
}

/// Returns whether to print a step: the first ones, then every tenth.
bool is_shown(int step, int steps) { return step <= 5 || step % 10 == 0 || step == steps; }

std::optional<MetricsFile> open_metrics(const CommandLine& line) {
  if (line.metrics.empty()) return std::nullopt;
  return MetricsFile(line.metrics);
}

int run_one(const CommandLine& line, bool print) {
  std::optional<MetricsFile> metrics = open_metrics(line);
  RunRecord run;
  if (print && !line.quiet) std::printf("%6s %12s %10s\n", "step", "loss", "tokens/s");
  run.summary = train(line.train, [&](const StepReport& report) {
    run.losses.push_back(report.loss);
    if (metrics) write_step(*metrics, "", report, line.train);
    if (!print || line.quiet || !is_shown(report.step, line.train.steps)) return;
    std::printf("%6d %12.6f %10.0f\n", report.step, report.loss, line.train.batch_tokens / report.seconds);
    std::fflush(stdout);
  });
  if (metrics) write_summary(*metrics, "", run.summary, line.train);
  if (print) print_summary(run.summary, line.train.head);
  if (!line.json.empty()) write_json(line.json, line.train, run);
  return learns(run.summary, line.train.steps) && std::isfinite(run.summary.final_loss) ? 0 : 1;
}

/// The two runs of a comparison: their names, and the arguments of each child.
struct Comparison {
  RunNames names;
  std::vector<std::string> first_arguments;
  std::vector<std::string> second_arguments;
  bool optimizers = false;
};

Comparison comparison_of(const CommandLine& line) {
  if (line.head_optimizer == "both") {
    return {kHeadOptimizers, {"--head-optimizer", "separate"}, {"--head-optimizer", "fused"}, true};
  }
  // A dense head has no tiles to pass to the optimizer.
  return {kHeads, {"--head", "dense", "--head-optimizer", "separate"}, {"--head", "fused"}};
}

int run_both(const CommandLine& line, const std::vector<std::string>& arguments, bool print) {
  const int steps = line.train.steps;
  std::optional<MetricsFile> metrics = open_metrics(line);
  const bool progress = !line.quiet && isatty(STDERR_FILENO);
  Comparison comparison = comparison_of(line);
  const std::string first_name = comparison.names.first, second_name = comparison.names.second;
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all = arguments;
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };

  // The second run comes first, because it fails at once if the workspace is too small.
  std::vector<StepReport> second_steps;
  const RunRecord second = run_in_child(with(comparison.second_arguments), [&](const StepReport& report) {
    second_steps.push_back(report);
    if (metrics) write_step(*metrics, second_name + "/", report, line.train);
    if (progress) {
      std::fprintf(stderr, "\r%s: step %d of %d, loss %.4f ", second_name.c_str(), report.step, steps, report.loss);
    }
  });
  if (progress) std::fprintf(stderr, "\r%60s\r", "");
  // A sink may force two pass where a call without it would run one pass in chunks, and different plans give
  // different bits.
  if (comparison.optimizers) {
    comparison.first_arguments.insert(comparison.first_arguments.end(), {"--plan", second.summary.plan_kind});
  }

  if (print && !line.quiet) {
    std::printf("%6s %15s %15s %12s %17s %17s\n", "step", (first_name + " loss").c_str(),
                (second_name + " loss").c_str(), "|difference|", (first_name + " tokens/s").c_str(),
                (second_name + " tokens/s").c_str());
  }
  const RunRecord first = run_in_child(with(comparison.first_arguments), [&](const StepReport& report) {
    if (metrics) write_step(*metrics, first_name + "/", report, line.train);
    if (!print || line.quiet || !is_shown(report.step, steps)) return;
    const StepReport& other = second_steps.at(static_cast<size_t>(report.step - 1));
    std::printf("%6d %15.6f %15.6f %12.2e %17.0f %17.0f\n", report.step, report.loss, other.loss,
                std::abs(report.loss - other.loss), line.train.batch_tokens / report.seconds,
                line.train.batch_tokens / other.seconds);
    std::fflush(stdout);
  });

  if (metrics) {
    write_summary(*metrics, second_name + "/", second.summary, line.train);
    write_summary(*metrics, first_name + "/", first.summary, line.train);
  }
  const Verdict verdict = comparison.optimizers ? verdict_of_optimizers(first, second) : verdict_of(first, second);
  if (print) print_summary(comparison.names, first, second, verdict);
  if (!line.json.empty()) write_json(line.json, line.train, comparison.names, first, second, verdict);
  return verdict.agrees && verdict.learns ? 0 : 1;
}

/// Converts the command line to the trainer's options, and refuses options that conflict.
void resolve(CommandLine& line) {
  TrainOptions& train = line.train;
  train.head = line.head == "dense" ? HeadKind::kDense : HeadKind::kFused;
  train.head_optimizer = line.head_optimizer == "fused" ? HeadOptimizer::kFused : HeadOptimizer::kSeparate;
  if (line.plan == "one_pass") train.plan = logitless::PlanKind::kOnePass;
  if (line.plan == "two_pass") train.plan = logitless::PlanKind::kTwoPass;
  if (line.head_type == "bfloat16") train.head_type = logitless::DType::kBFloat16;
  if (line.gradient_precision == "split") train.gradient_precision = logitless::GradientPrecision::kSplit;
  if (line.gradient_precision == "float32") train.gradient_precision = logitless::GradientPrecision::kFloat32;
  train.backward.mode = *logitless::named<logitless::BackwardMode>(line.backward);
  if (line.head_optimizer == "both" && line.head != "fused") {
    throw std::invalid_argument("--head-optimizer both: compares two runs of the fused head: give --head fused, not " +
                                line.head);
  }
  if (line.head != "both") check(train);
}

}  // namespace

#ifdef TRAIN_LM_WITH_MPI
/// Trains on all MPI ranks; the first one prints.
int run_on_ranks(CommandLine& line) {
  logitless::MpiCommunicator ranks(MPI_COMM_WORLD);
  if (line.head != "fused" || line.head_optimizer == "both") {
    throw std::invalid_argument("--split " + line.split + ": trains one fused head: give --head fused");
  }
  (line.split == "vocab" ? line.train.ranks.vocab : line.train.ranks.data) = &ranks;
  check(line.train);
  if (ranks.rank() > 0) line.json = line.metrics = "";
  return run_one(line, ranks.rank() == 0 && line.json != "-");
}
#endif

int main(int argc, char** argv) {
  CLI::App app("Trains a small causal language model with the dense or the fused LM head of logitless.", "train_lm");
  CommandLine line;
  declare(app, line);
  CLI11_PARSE(app, argc, argv);
  try {
    resolve(line);
    if (line.record_fd >= 0) {
      train_and_record(line.train, line.record_fd);
      return 0;
    }
#ifdef TRAIN_LM_WITH_MPI
    if (line.split != "none") {
      int provided = 0;
      MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
      const int result = run_on_ranks(line);
      MPI_Finalize();
      return result;
    }
#endif
    const bool print = line.json != "-";  // with "-", stdout gets only the JSON object
    if (line.head == "both" || line.head_optimizer == "both")
      return run_both(line, std::vector<std::string>(argv, argv + argc), print);
    return run_one(line, print);
  } catch (const logitless::InvalidInput& error) {
    // The options are valid, so the library can only refuse a budget that is too small for them.
    std::fprintf(stderr, "train_lm: --head-optimizer %s, --plan %s, --workspace %lld: %s\n",
                 line.head_optimizer.c_str(), line.plan.c_str(), static_cast<long long>(line.train.workspace_mib),
                 error.what());
    return 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "train_lm: %s\n", error.what());
    return 1;
  }
}

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Ratios of times: contenders take turns in one process (A B C A B C …), and the medians of their runs are divided.
// Only ratios are worth quoting: the machines that this runs on change their speed from minute to minute.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "contender.h"
#include "engine/context_state.h"
#include "logitless/logitless.h"
#include "logits.h"
#include "timing/large_gemm.h"

namespace {

using namespace logitless;
using namespace logitless::bench;

struct Shape {
  int64_t tokens = 2048;
  int64_t hidden = 1536;
  int64_t vocab = 151936;
  bool vocab_hidden = false;
  double ignored = 0;
};

/// Inputs and outputs of one head, allocated once for all contenders.
class Inputs {
 public:
  explicit Inputs(const Shape& shape) : shape_(shape) {
    hidden_.resize(static_cast<size_t>(shape.tokens * shape.hidden));
    weight_.resize(static_cast<size_t>(shape.hidden * shape.vocab));
    d_hidden_.assign(hidden_.size(), 0);
    d_weight_.assign(weight_.size(), 0);
    std::minstd_rand random(1);
    const auto fill = [&](std::vector<float>& to, float scale) {
      for (float& x : to) x = scale * (static_cast<float>(random() % 65536) / 32768 - 1);
    };
    fill(hidden_, 1.7f);
    fill(weight_, 4.0f / std::sqrt(static_cast<float>(shape.hidden)));
    std::uniform_int_distribution<int64_t> word(0, shape.vocab - 1);
    std::uniform_real_distribution<double> uniform(0, 1);
    for (int64_t i = 0; i < shape.tokens; ++i) {
      const int64_t target = word(random);
      all_.push_back(target);
      some_.push_back(uniform(random) < shape.ignored ? -100 : target);
    }
  }

  const Shape& shape() const { return shape_; }
  HiddenStates hidden(int64_t tokens) const { return HiddenStates(ConstMatrix(hidden_.data(), tokens, shape_.hidden)); }
  LmHead head() const {
    return shape_.vocab_hidden
               ? LmHead(ConstMatrix(weight_.data(), shape_.vocab, shape_.hidden), HeadLayout::kVocabHidden)
               : LmHead(ConstMatrix(weight_.data(), shape_.hidden, shape_.vocab), HeadLayout::kHiddenVocab);
  }
  Targets targets(int64_t tokens, bool some_ignored) const {
    return Targets((some_ignored ? some_ : all_).data(), tokens);
  }
  Gradients gradients(int64_t tokens) {
    Gradients out;
    out.d_hidden = Matrix(d_hidden_.data(), tokens, shape_.hidden);
    out.d_weight = shape_.vocab_hidden ? Matrix(d_weight_.data(), shape_.vocab, shape_.hidden)
                                       : Matrix(d_weight_.data(), shape_.hidden, shape_.vocab);
    return out;
  }

 private:
  Shape shape_;
  std::vector<float> hidden_, weight_, d_hidden_, d_weight_;
  std::vector<int64_t> all_, some_;
};

Context context_of(PlanKind plan, int threads, int64_t workspace_mib = 256) {
  ContextOptions options;
  options.plan = plan;
  options.threads = threads;
  options.workspace_bytes = static_cast<size_t>(workspace_mib) << 20;
  return Context(options);
}

enum class Job { kForward, kOnePass, kTwoPass, kDense };
constexpr const char* kJobNames[] = {"forward only", "one pass", "two pass", "dense"};

Contender job_of(Job job, Inputs& inputs, int64_t tokens, int threads, bool some_ignored = false) {
  const PlanKind plan = job == Job::kTwoPass   ? PlanKind::kTwoPass
                        : job == Job::kOnePass ? PlanKind::kOnePass
                                               : PlanKind::kAuto;
  Contender c;
  c.name = std::string(kJobNames[static_cast<int>(job)]) + (some_ignored ? ", some ignored" : "");
  const double products = job == Job::kForward ? 1 : job == Job::kTwoPass ? 4 : 3;
  c.flops =
      products * 2.0 * static_cast<double>(tokens * inputs.shape().hidden) * static_cast<double>(inputs.shape().vocab);
  c.run = [=, &inputs, context = context_of(plan, threads)] {
    const Gradients gradients = job == Job::kForward ? Gradients{} : inputs.gradients(tokens);
    const auto run = job == Job::kDense ? dense_cross_entropy : cross_entropy;
    run(context, inputs.hidden(tokens), inputs.head(), inputs.targets(tokens, some_ignored), {}, gradients);
  };
  return c;
}

Contender large_gemm(const Context& context) {
  const auto gemm = std::make_shared<timing::LargeGemm>(context, DType::kFloat32);
  return {"one large GEMM", [gemm] { gemm->run(); }, gemm->flops(), {}};
}

void run_plans(Inputs& inputs, int threads, int repeat) {
  const Context context = context_of(PlanKind::kAuto, threads);
  const int64_t tokens = inputs.shape().tokens;
  std::vector<Contender> c = {large_gemm(context)};
  for (const Job job : {Job::kDense, Job::kOnePass, Job::kTwoPass, Job::kForward}) {
    c.push_back(job_of(job, inputs, tokens, threads));
  }
  take_turns(c, repeat);
  std::printf("plans, %lld tokens, %d threads\n", static_cast<long long>(tokens), context.threads());
  const double rate = c[0].flops / c[0].median();
  for (const Contender& contender : c) print(contender, rate);
  print_ratio(c[2], c[1]);
  print_ratio(c[3], c[1]);
}

void run_threads(Inputs& inputs, int repeat) {
  for (const int64_t tokens : {int64_t{64}, int64_t{256}, inputs.shape().tokens}) {
    std::printf("1 thread against 2 threads, %lld tokens\n", static_cast<long long>(tokens));
    for (const Job job : {Job::kForward, Job::kOnePass, Job::kTwoPass}) {
      std::vector<Contender> c = {job_of(job, inputs, tokens, 1), job_of(job, inputs, tokens, 2)};
      c[0].name += ", 1 thread";
      c[1].name += ", 2 threads";
      const int runs = tokens <= 256 ? 2 * repeat + 1 : repeat;
      take_turns(c, runs);
      for (const Contender& contender : c) print(contender, 0);
      print_ratio(c[0], c[1]);
    }
  }
}

void run_ignored(Inputs& inputs, int threads, int repeat) {
  const int64_t tokens = inputs.shape().tokens;
  std::printf("%.0f%% of %lld targets ignored, against none\n", 100 * inputs.shape().ignored,
              static_cast<long long>(tokens));
  for (const Job job : {Job::kForward, Job::kOnePass, Job::kTwoPass}) {
    std::vector<Contender> c = {job_of(job, inputs, tokens, threads, true),
                                job_of(job, inputs, tokens, threads, false)};
    take_turns(c, repeat);
    for (const Contender& contender : c) print(contender, 0);
    print_ratio(c[0], c[1]);
  }
}

/// The row kernels' share of a tile: their time on one tile against that of the tile's GEMM, on one thread.
void run_rows(int64_t hidden, int repeat) {
  constexpr int64_t kRows = 256, kCols = 1024, kStride = kCols + 16;
  const Context context = context_of(PlanKind::kAuto, 1);
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> logits(kRows * kStride), scratch(kCols), scale(kRows, 1), x(kRows * hidden, 0.5f),
      w(kCols * hidden, 0.5f), tile(kRows * kStride);
  for (float& v : logits) v = normal(random);
  std::vector<int32_t> target(kRows, 3);
  std::vector<rows::RowStats> stats(kRows);
  std::vector<rows::RowGradient<float>> gradients(kRows);
  for (int64_t r = 0; r < kRows; ++r) {
    gradients[static_cast<size_t>(r)] = {.max = 12,
                                         .log_sum = 3,
                                         .inverse_temperature = 1,
                                         .softmax_term = 1,
                                         .target = 7,
                                         .source_row = static_cast<int32_t>(r)};
  }
  rows::FoldArgs<float> fold;
  fold.shape = {kRows, kCols, kStride, nullptr, 0, {}};
  fold.logits = logits.data();
  fold.inverse_temperature = scale.data();
  fold.target = target.data();
  fold.scratch = scratch.data();
  fold.stats = stats.data();
  rows::GradientArgs<float> gradient;
  gradient.shape = fold.shape;
  gradient.logits = gradient.out = logits.data();
  gradient.count = kRows;
  gradient.gradients = gradients.data();
  gradient.scratch = scratch.data();
  const auto& kernels = context.state().kernels->f32;
  std::vector<Contender> c(3);
  c[0] = {"GEMM of a tile",
          [&] {
            context.state().gemm->multiply({kRows,
                                            kCols,
                                            hidden,
                                            {x.data(), DType::kFloat32, hidden, false},
                                            {w.data(), DType::kFloat32, hidden, true},
                                            tile.data(),
                                            kStride,
                                            false},
                                           *context.state().kernels, nullptr);
          },
          0,
          {}};
  c[1] = {"fold", [&] { kernels.fold(fold); }, 0, {}};
  c[2] = {"gradient", [&] { kernels.gradient(gradient); }, 0, {}};
  take_turns(c, 50 * repeat);
  std::printf("row kernels (%s) on a tile of %lld x %lld, H = %lld\n", context.simd_target().c_str(),
              static_cast<long long>(kRows), static_cast<long long>(kCols), static_cast<long long>(hidden));
  for (const Contender& contender : c) print(contender, 0);
  const double g = c[0].median(), f = c[1].median(), b = c[2].median();
  std::printf("  share of the time: forward only %.3f, one pass %.3f, two pass %.3f\n", f / (g + f),
              (f + b) / (3 * g + f + b), (f + b) / (4 * g + f + b));
}

void print_machine() {
  const Environment machine = describe_environment(Context());
  std::printf("%s, BLAS core %s\n", machine.cpu.c_str(), machine.blas_core.c_str());
  for (const std::string& warning : machine.warnings) std::printf("warning: %s\n", warning.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  use_best_blas_kernels();
  CLI::App app("Interleaved ratios of times. Run it alone on the machine.");
  std::string what = "plans";
  Shape shape;
  shape.ignored = 0.6;
  int threads = 0, repeat = 3;
  app.add_option("what", what, "plans, threads, ignored, rows or logits")
      ->check(CLI::IsMember({"plans", "threads", "ignored", "rows", "logits"}));
  app.add_option("--tokens", shape.tokens)->check(CLI::PositiveNumber);
  app.add_option("--hidden", shape.hidden)->check(CLI::PositiveNumber);
  app.add_option("--vocab", shape.vocab)->check(CLI::PositiveNumber);
  app.add_flag("--vocab-hidden", shape.vocab_hidden, "the head is [V, H]");
  app.add_option("--ignored", shape.ignored, "share of ignored targets")->check(CLI::Range(0.0, 1.0));
  app.add_option("--threads", threads)->check(CLI::NonNegativeNumber);
  app.add_option("--repeat", repeat, "turns of each contender")->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  print_machine();
  if (what == "rows") {
    run_rows(shape.hidden, repeat);
    return 0;
  }
  if (what == "logits") {
    run_logits(shape.tokens, shape.vocab, threads, repeat);
    return 0;
  }
  Inputs inputs(shape);
  if (what == "plans") run_plans(inputs, threads, repeat);
  if (what == "threads") run_threads(inputs, repeat);
  if (what == "ignored") run_ignored(inputs, threads, repeat);
  return 0;
}

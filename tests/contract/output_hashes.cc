// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Prints one line per call, with its name and a hash of all its output bytes, over a few hundred calls:
// types, layouts, plans, losses, tiles, threads. Run it before and after a change that must keep all bits,
// with OPENBLAS_CORETYPE for other kernels, and compare the outputs with diff.
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "determinism_cases.h"
#include "logitless/logitless.h"
#include "support/calls.h"
#include "support/inputs.h"
#include "support/testers.h"

namespace logitless::testing {
namespace {

void print(const std::string& name, const std::vector<std::byte>& bytes) {
  std::printf("%016" PRIx64 " %s\n", hash_of(bytes), name.c_str());
}

template <class T>
void append(const std::vector<T>& values, std::vector<std::byte>& bytes) {
  const auto* first = reinterpret_cast<const std::byte*>(values.data());
  bytes.insert(bytes.end(), first, first + values.size() * sizeof(T));
}

const char* name_of_layout(HeadLayout layout) {
  return layout == HeadLayout::kHiddenVocab ? "hidden_vocab" : "vocab_hidden";
}

// Prints every plan of cross-entropy with every type and layout; also with dropped rows, and with narrow or
// accumulating outputs. `logps` receives the log-probabilities, which are printed as separate lines.
void print_cross_entropy(std::vector<std::pair<std::string, std::vector<std::byte>>>& logps) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kBFloat16, DType::kFloat16}) {
    for (const HeadLayout layout : {HeadLayout::kHiddenVocab, HeadLayout::kVocabHidden}) {
      for (const PlanKind plan : {PlanKind::kAuto, PlanKind::kOnePass, PlanKind::kTwoPass}) {
        const std::string call = std::string(name_of(dtype)) + " " + name_of_layout(layout) + " " + name_of(plan);
        const auto run = [&](const char* what, CrossEntropyTester tester) {
          tester.dtype(dtype).layout(layout).plan(plan).threads(2).finite_everywhere();
          const CrossEntropyRun made = tester.run_once();
          print("cross_entropy " + call + " " + what, made.bytes);
          append(made.result.per_token_logps, logps.emplace_back("per_token_logps " + call + " " + what, 0).second);
        };
        CrossEntropyTester base;
        base.tokens(83).vocab(1301).hidden(67).tiles(16, 96).ignored(0.2);
        run("plain", base);
        run("shift", CrossEntropyTester(base).packed({0, 31, 31, 70, 83}).shift());
        run("temperatures", CrossEntropyTester(base).temperatures().softcap(15).metrics());
        run("weights", CrossEntropyTester(base).class_weights().label_smoothing(0.1).z_loss(0.01));
        // backward() cannot run one pass.
        const Form form = plan == PlanKind::kOnePass ? Form::kFused : Form::kSplit;
        run("none", CrossEntropyTester(base).reduction(Reduction::kNone).form(form).upstream(form == Form::kSplit));
        run("accumulate", CrossEntropyTester(base).accumulate());
        run("padding", CrossEntropyTester(base).padding(3).bias(false));
        run("d_hidden", CrossEntropyTester(base).gradients(true, false, false));
        run("d_weight", CrossEntropyTester(base).gradients(false, true, true));
        run("library's tiles", CrossEntropyTester(base).tiles(0, 0));
        run("sink", CrossEntropyTester(base).sink());
        if (dtype != DType::kFloat64) run("narrow", CrossEntropyTester(base).gradient_dtype(dtype));
      }
    }
  }
}

// Prints the calls of token_stats.h: all statistics, and gradients of all of them.
void print_token_stats() {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kBFloat16}) {
    InputSpec spec;
    spec.dtype = dtype;
    spec.tokens = 75;
    spec.ignored = 0.2;
    spec.vocab = 700;
    spec.poison = false;
    RunSpec run;
    run.context.row_tile = 16;
    run.context.vocab_tile = 96;
    run.context.threads = 2;
    Inputs inputs(spec);
    GradientOutputs outputs(inputs, run);
    const Context context(run.context);
    const std::vector<float> weights = random_class_weights(spec.vocab, 3);
    const StatsRequest request = {
        .entropy = true, .cross = true, .argmax = true, .rank = true, .cross_weights = weights};
    const TokenStats stats =
        compute_token_stats(context, inputs.hidden_view(), inputs.head_view(), inputs.targets_view(), {}, request);
    const TokenGrads grads = {random_token_gradients(75, 1), random_token_gradients(75, 2),
                              random_token_gradients(75, 3), random_token_gradients(75, 4)};
    backpropagate_token_grads(context, inputs.hidden_view(), inputs.head_view(), inputs.targets_view(), {}, request,
                              stats, grads, outputs.gradients());
    std::vector<std::byte> bytes = outputs.bytes();
    for (const auto* values :
         {&stats.logp, &stats.lse, &stats.entropy, &stats.cross, &stats.max_logit, &stats.log_sum}) {
      append(*values, bytes);
    }
    append(stats.argmax, bytes);
    append(stats.rank, bytes);
    print(std::string("token_stats ") + name_of(dtype) + " " + "auto", bytes);
  }
}

}  // namespace
}  // namespace logitless::testing

int main() {
  using namespace logitless::testing;
  for (const int threads : {1, 3}) {
    for (const DeterminismCase& one : determinism_cases()) {
      print(one.name + " threads " + std::to_string(threads), one.bytes(threads));
    }
  }
  std::vector<std::pair<std::string, std::vector<std::byte>>> logps;
  print_cross_entropy(logps);
  print_token_stats();
  for (const auto& [name, bytes] : logps) print(name, bytes);
}

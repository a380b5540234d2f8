// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Predicts the memory of a call before anything is allocated: prints a Markdown table of the plans for a
// head. Without arguments it prints the table of docs/memory.md.
#include <sys/mman.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "logitless/logitless.h"

namespace {

using namespace logitless;

struct Head {
  std::string name;
  int64_t hidden_size = 0;
  int64_t vocab_size = 0;
};

struct Options {
  std::vector<Head> heads = {
      {"Qwen2.5-1.5B", 1536, 151936}, {"Llama-3-8B", 4096, 128256}, {"Gemma-2-2B", 2304, 256000}};
  std::vector<int64_t> tokens = {2048, 8192, 32768};
  DType dtype = DType::kFloat32;
  DType gradient_dtype = DType::kFloat32;
  int threads = 8;
  int64_t workspace_mib = 256;
};

/// Addresses without memory: a plan depends only on shapes and never reads a tensor's elements.
class Addresses {
 public:
  Addresses(int64_t elements, DType dtype) : bytes_(static_cast<size_t>(elements) * size_of(dtype)) {
    data_ = mmap(nullptr, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data_ == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "reserving addresses");
  }
  ~Addresses() { munmap(data_, bytes_); }
  Addresses(const Addresses&) = delete;
  Addresses& operator=(const Addresses&) = delete;
  void* data() const { return data_; }

 private:
  size_t bytes_;
  void* data_;
};

/// Inputs and outputs of one head at one number of tokens.
class Tensors {
 public:
  Tensors(const Options& options, const Head& head, int64_t tokens)
      : options_(options),
        head_(head),
        tokens_(tokens),
        hidden_(tokens * head.hidden_size, options.dtype),
        weight_(head.vocab_size * head.hidden_size, options.dtype),
        d_hidden_(tokens * head.hidden_size, options.gradient_dtype),
        d_weight_(head.vocab_size * head.hidden_size, options.gradient_dtype),
        targets_(static_cast<size_t>(tokens)) {}

  Plan plan(PlanKind kind) const {
    const int64_t h = head_.hidden_size, v = head_.vocab_size;
    Gradients gradients;
    if (kind != PlanKind::kForwardOnly) {
      gradients.d_hidden = Tensor(d_hidden_.data(), options_.gradient_dtype, {tokens_, h});
      gradients.d_weight = Tensor(d_weight_.data(), options_.gradient_dtype, {v, h});
    }
    ContextOptions options;
    options.threads = options_.threads;
    options.plan = kind == PlanKind::kForwardOnly ? PlanKind::kAuto : kind;
    options.workspace_bytes = static_cast<size_t>(options_.workspace_mib) << 20;
    const Logits logits = Logits::of(ConstTensor(hidden_.data(), options_.dtype, {tokens_, h}),
                                     ConstTensor(weight_.data(), options_.dtype, {v, h}));
    return logitless::plan(Context(options), logits, CrossEntropy{.targets = {targets_}}, gradients);
  }

 private:
  const Options& options_;
  const Head& head_;
  int64_t tokens_;
  Addresses hidden_, weight_, d_hidden_, d_weight_;
  std::vector<int64_t> targets_;
};

/// The size of all logits, which a dense head holds, in MiB.
std::string all_logits(const Options& options, const Head& head, int64_t tokens) {
  const size_t element = options.dtype == DType::kFloat64 ? sizeof(double) : sizeof(float);
  char text[64];
  std::snprintf(text, sizeof text, "%.1f",
                static_cast<double>(tokens) * static_cast<double>(head.vocab_size) * element / (1 << 20));
  return text;
}

/// The figure of a plan in MiB, or a dash if the plan does not fit the workspace.
std::string cell(const Tensors& tensors, PlanKind kind) {
  try {
    const Plan plan = tensors.plan(kind);
    char text[64];
    std::snprintf(text, sizeof text, "%.1f", static_cast<double>(plan.workspace_bytes) / (1 << 20));
    return kind == PlanKind::kOnePass ? text + (" (chunks of " + std::to_string(plan.chunk_rows) + ")") : text;
  } catch (const InvalidInput&) {
    return "–";
  }
}

void print_table(const Options& options) {
  std::printf("| head | tokens | dense | forward only | two pass | one pass |\n|---|---|---|---|---|---|\n");
  for (const Head& head : options.heads) {
    for (const int64_t tokens : options.tokens) {
      const Tensors tensors(options, head, tokens);
      std::printf("| %s | %lld | %s | %s | %s | %s |\n", head.name.c_str(), static_cast<long long>(tokens),
                  all_logits(options, head, tokens).c_str(), cell(tensors, PlanKind::kForwardOnly).c_str(),
                  cell(tensors, PlanKind::kTwoPass).c_str(), cell(tensors, PlanKind::kOnePass).c_str());
    }
  }
}

}  // namespace

int main(int argc, char** argv) try {
  CLI::App app("MiB that the plans of a head would take above its inputs and outputs; nothing is computed.");
  Options options;
  Head head;
  std::string dtype = "float32";
  bool narrow_gradients = false;
  auto* hidden = app.add_option("--hidden", head.hidden_size, "H")->check(CLI::PositiveNumber);
  auto* vocab = app.add_option("--vocab", head.vocab_size, "V")->check(CLI::PositiveNumber);
  hidden->needs(vocab);
  vocab->needs(hidden);
  app.add_option("--tokens", options.tokens, "numbers of tokens, one line each")->check(CLI::PositiveNumber);
  app.add_option("--dtype", dtype, "type of hidden states and head")
      ->check(CLI::IsMember({"float32", "bfloat16", "float16", "float64"}));
  app.add_flag("--narrow-gradients", narrow_gradients, "store gradients in --dtype instead of the type of the sums");
  app.add_option("--threads", options.threads)->check(CLI::PositiveNumber);
  app.add_option("--workspace", options.workspace_mib, "MiB that a call may take")->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  for (const DType type : {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64}) {
    if (dtype == name_of(type)) options.dtype = type;
  }
  const bool wide = options.dtype == DType::kFloat64;
  options.gradient_dtype = narrow_gradients ? options.dtype : wide ? DType::kFloat64 : DType::kFloat32;
  if (hidden->count() > 0) {
    head.name = std::to_string(head.vocab_size) + " x " + std::to_string(head.hidden_size);
    options.heads = {head};
  }
  print_table(options);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "plan_memory: %s\n", error.what());
  return 1;
}

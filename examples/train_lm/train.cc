// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "train.h"

#include <omp.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdio>
#include <optional>
#include <stdexcept>
#include <utility>

#include "dense/dense.h"
#include "figures.h"
#include "memory.h"

namespace {

double mean_of_last(const std::vector<double>& values, size_t count) {
  count = std::min(count, values.size());
  double sum = 0;
  for (size_t i = values.size() - count; i < values.size(); ++i) sum += values[i];
  return count > 0 ? sum / static_cast<double>(count) : 0;
}

logitless::ContextOptions context_options(const TrainOptions& options) {
  logitless::ContextOptions result;
  result.threads = options.threads;
  result.workspace_bytes = static_cast<size_t>(options.workspace_mib) << 20;
  result.plan = options.plan;
  result.gradient_precision = options.gradient_precision;
  result.ranks = options.ranks;
  result.ranks.sum_d_weight = true;
  return result;
}

/// Rounds to nearest, ties to even. The value must be finite.
logitless::bfloat16 rounded(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return {static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16)};
}

/// Returns the matrix in bfloat16, in memory that `copy` keeps.
logitless::ConstTensor rounded(const RowMatrix& matrix, std::vector<logitless::bfloat16>& copy) {
  copy.resize(static_cast<size_t>(matrix.size()));
  const float* from = matrix.data();
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < matrix.size(); ++i) copy[static_cast<size_t>(i)] = rounded(from[i]);
  return logitless::view(copy.data(), {matrix.rows(), matrix.cols()});
}

/// Returns [begin, end), this rank's share of `count` items.
std::pair<int64_t, int64_t> share_of(const logitless::Communicator& ranks, int64_t count) {
  const int64_t rank = ranks.rank(), size = ranks.size();
  return {count * rank / size, count * (rank + 1) / size};
}

/// Returns this rank's tokens of a batch.
Batch share_of(const logitless::Communicator& ranks, const Batch& batch) {
  const auto [begin, end] = share_of(ranks, batch.tokens());
  const int64_t words = batch.context_length;
  return {words,
          {batch.context.begin() + begin * words, batch.context.begin() + end * words},
          {batch.targets.begin() + begin, batch.targets.begin() + end}};
}

/// Sums a tensor over the ranks, in rank order.
void sum_over(logitless::Communicator& ranks, std::span<float> tensor) {
  std::vector<float> all(tensor.size() * static_cast<size_t>(ranks.size()));
  ranks.all_gather(tensor.data(), all.data(), tensor.size_bytes());
  for (size_t i = 0; i < tensor.size(); ++i) {
    tensor[i] = 0;
    for (size_t at = i; at < all.size(); at += tensor.size()) tensor[i] += all[at];
  }
}

std::string cut_of(const logitless::Plan& plan) {
  return std::string(name_of(plan.kind)) + ", " + std::to_string(plan.chunk_rows) + " rows at once, tiles " +
         std::to_string(plan.row_tile) + " x " + std::to_string(plan.vocab_tile);
}

/// Returns the FNV-1a hash (Fowler, Noll and Vo) of all bytes, as 16 digits.
std::string hash_of(Parameters& parameters) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const std::span<float> tensor : parameters.tensors()) {
    for (const std::byte byte : std::as_bytes(tensor)) hash = (hash ^ std::to_integer<uint64_t>(byte)) * 0x100000001b3u;
  }
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(hash));
  return digits;
}

}  // namespace

void check(const TrainOptions& options) {
  if (options.head == HeadKind::kDense && options.head_optimizer == HeadOptimizer::kFused) {
    throw std::invalid_argument(
        "--head-optimizer fused: needs --head fused, not dense, whose gradient is not finished tile by tile");
  }
  const logitless::Ranks& ranks = options.ranks;
  if (ranks.vocab && options.head == HeadKind::kDense) {
    throw std::invalid_argument("--split vocab: needs --head fused, not dense");
  }
  if (ranks.data && options.head_optimizer == HeadOptimizer::kFused) {
    throw std::invalid_argument("--split data: needs --head-optimizer separate: a rank's tiles are not summed");
  }
}

double learning_rate_at(int step, const TrainOptions& options) {
  constexpr int kWarmUp = 20;
  constexpr double kFloor = 0.1;
  if (step <= kWarmUp) return options.learning_rate * step / kWarmUp;
  const double progress = static_cast<double>(step - kWarmUp) / std::max(1, options.steps - kWarmUp);
  return options.learning_rate * std::max(kFloor, 1.0 - (1.0 - kFloor) * progress);
}

Trainer::Trainer(const ModelShape& shape, const TrainOptions& options)
    : options_(options),
      parameters_(initial_parameters(shape, options.seed)),
      gradients_(zero_gradients(shape, options.head_optimizer == HeadOptimizer::kSeparate)),
      adamw_(parameters_.tensors(), {.weight_decay = options.weight_decay}),
      trunk_(shape),
      context_(context_options(options)) {
  check(options);
  if (options.ranks.vocab) keep_own_entries();
  for (std::span<float> gradient : gradients_.tensors()) make_resident(gradient);
}

/// If ranks share the head, keeps only this rank's words.
void Trainer::keep_own_entries() {
  const auto [begin, end] = share_of(*options_.ranks.vocab, parameters_.head_weight.rows());
  for (Parameters* tensors : {&parameters_, &gradients_}) {
    tensors->head_weight = RowMatrix(tensors->head_weight.middleRows(begin, end - begin));
    tensors->head_bias = RowVector(tensors->head_bias.segment(begin, end - begin));
  }
  adamw_ = AdamW(parameters_.tensors(), {.weight_decay = options_.weight_decay});
}

/// The part to copy: the LM head, its loss and all gradients in one call.
double Trainer::run_head(const RowMatrix& hidden, const Batch& batch) {
  RowMatrix& weight = parameters_.head_weight;
  logitless::ConstTensor states = logitless::view(hidden.data(), {hidden.rows(), hidden.cols()});
  logitless::LmHead head{.weight = logitless::view(weight.data(), {weight.rows(), weight.cols()})};
  if (options_.head_type == logitless::DType::kBFloat16) {
    states = rounded(hidden, narrow_hidden_);
    head.weight = rounded(weight, narrow_weight_);
  }
  head.bias = logitless::view(parameters_.head_bias.data(), {parameters_.head_bias.size()});

  logitless::Gradients out;
  out.d_hidden = logitless::view(d_hidden_.data(), {d_hidden_.rows(), d_hidden_.cols()});
  out.d_bias = logitless::view(gradients_.head_bias.data(), {gradients_.head_bias.size()});
  if (options_.head_optimizer == HeadOptimizer::kFused) {
    // The call does not read these words of the head again, so they may change before it returns.
    out.weight_sink = [&](int64_t first, int64_t count, const logitless::ConstTensor& tile) {
      const float* rows = static_cast<const float*>(tile.data);
      for (int64_t r = 0; r < count; ++r) {
        adamw_.update(Parameters::kHeadWeight, (first + r) * weight.cols(),
                      {rows + r * tile.strides[0], static_cast<size_t>(tile.sizes[1])});
      }
    };
  } else {
    out.d_weight = logitless::view(gradients_.head_weight.data(), {weight.rows(), weight.cols()});
  }

  if (options_.head == HeadKind::kFused) {
    out.backward = options_.backward;
    out.backward.seed = static_cast<int64_t>(options_.seed) * 1'000'000 + step_;
  }

  const logitless::CrossEntropy task = {.targets = logitless::view(batch.targets.data(), {batch.tokens()})};
  const auto logits = logitless::Logits::of(states, head);
  const logitless::CrossEntropyResult result = options_.head == HeadKind::kFused
                                                   ? logitless::run(context_, logits, task, out)
                                                   : logitless::dense::run(context_, logits, task, out);
  plan_ = result.plan;
  return result.loss;
}

StepReport Trainer::step(const Batch& whole) {
  const auto start = std::chrono::steady_clock::now();
  logitless::Communicator* const ranks = options_.ranks.data;
  const Batch batch = ranks ? share_of(*ranks, whole) : whole;
  StepReport report;
  report.step = ++step_;
  adamw_.begin_step(learning_rate_at(step_, options_));

  const RowMatrix& hidden = trunk_.forward(parameters_, batch);
  d_hidden_.resize(hidden.rows(), hidden.cols());
  {
    std::optional<PeakMeter> meter;
    if (step_ == 1) {
      // The output must not count as the head's memory.
      make_resident({d_hidden_.data(), static_cast<size_t>(d_hidden_.size())});
      meter.emplace();
    }
    const auto head_start = std::chrono::steady_clock::now();
    report.loss = run_head(hidden, batch);
    report.head_seconds = seconds_since(head_start);
    if (meter) {
      head_extra_bytes_ = meter->extra_peak();
      earlier_peak_bytes_ = meter->peak_before();
    }
  }

  trunk_.backward(parameters_, batch, d_hidden_, gradients_);
  const auto gradients = gradients_.tensors();
  for (size_t tensor = 0; tensor < gradients.size(); ++tensor) {
    // The fused head's gradients have been summed within its call.
    const bool of_head = tensor == Parameters::kHeadWeight || tensor == Parameters::kHeadBias;
    if (ranks && !(of_head && options_.head == HeadKind::kFused)) sum_over(*ranks, gradients[tensor]);
  }
  for (size_t tensor = 0; tensor < gradients.size(); ++tensor) {
    // The sink has updated this tensor.
    if (tensor == Parameters::kHeadWeight && options_.head_optimizer == HeadOptimizer::kFused) continue;
    adamw_.update_all(tensor, gradients[tensor]);
  }
  report.seconds = seconds_since(start);
  return report;
}

int64_t Trainer::gradient_bytes() {
  size_t bytes = 0;
  for (const std::span<float> gradient : gradients_.tensors()) bytes += gradient.size_bytes();
  return static_cast<int64_t>(bytes);
}

int64_t Trainer::peak_bytes() const { return std::max(earlier_peak_bytes_, memory_bytes("VmHWM")); }

TrainSummary train(const TrainOptions& options, const std::function<void(const StepReport&)>& on_step) {
  if (options.threads > 0) omp_set_num_threads(options.threads);
  const Corpus corpus = load_corpus(options.text, options.max_vocabulary);
  ModelShape shape;
  shape.vocabulary = corpus.vocabulary.size();
  shape.context = options.context;
  shape.embedding = options.embedding;
  shape.hidden = options.hidden;

  BatchSampler sampler(corpus.ids, options.batch_tokens, options.context, options.seed);
  Trainer trainer(shape, options);
  std::vector<double> losses, seconds, head_seconds;
  for (int step = 1; step <= options.steps; ++step) {
    const StepReport report = trainer.step(sampler.next());
    losses.push_back(report.loss);
    seconds.push_back(report.seconds);
    head_seconds.push_back(report.head_seconds);
    on_step(report);
  }

  TrainSummary summary;
  summary.text_tokens = static_cast<int64_t>(corpus.ids.size());
  summary.vocabulary = shape.vocabulary;
  summary.unigram_entropy = unigram_entropy(corpus.ids, shape.vocabulary);
  summary.final_loss = mean_of_last(losses, 20);
  summary.tokens_per_second = static_cast<double>(options.batch_tokens) / median(seconds);
  summary.head_milliseconds = 1e3 * median(head_seconds);
  summary.peak_bytes = trainer.peak_bytes();
  summary.head_extra_bytes = trainer.head_extra_bytes();
  summary.workspace_bytes = static_cast<int64_t>(trainer.plan().workspace_bytes);
  summary.threads = omp_get_max_threads();
  const bool dense = options.head == HeadKind::kDense;
  summary.plan = dense ? "dense: all logits in memory" : trainer.plan().describe();
  summary.plan_kind = dense ? "dense" : name_of(trainer.plan().kind);
  summary.plan_cut = dense ? summary.plan : cut_of(trainer.plan());
  summary.gradient_bytes = trainer.gradient_bytes();
  summary.parameters_hash = hash_of(trainer.parameters());
  return summary;
}

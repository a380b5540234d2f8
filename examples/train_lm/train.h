// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The training loop, with either LM head: dense (all logits in memory) or fused (never).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "adamw.h"
#include "logitless/logitless.h"
#include "model.h"

enum class HeadKind { kDense, kFused };

/// When the head's weight is updated.
enum class HeadOptimizer {
  kSeparate,  ///< after the head call, from a [V, H] gradient, like every other tensor
  kFused,     ///< inside the head call, tile by tile as the gradient completes: no [V, H] gradient exists
};

struct TrainOptions {
  std::string text;
  int64_t max_vocabulary = 0;  ///< 0 keeps every word
  HeadKind head = HeadKind::kFused;
  HeadOptimizer head_optimizer = HeadOptimizer::kSeparate;
  int steps = 300;
  int64_t batch_tokens = 1024;
  int64_t context = 8;
  int64_t embedding = 64;
  int64_t hidden = 256;
  double learning_rate = 3e-3;
  double weight_decay = 0.01;
  uint64_t seed = 1;
  int threads = 0;             ///< 0: all that OpenMP offers
  int64_t workspace_mib = 16;  ///< the fused head's budget
  logitless::PlanKind plan = logitless::PlanKind::kAuto;
  /// bfloat16: the head gets copies of the states and of its weight. Their gradients stay float32, as do the
  /// parameters.
  logitless::DType head_type = logitless::DType::kFloat32;
  logitless::GradientPrecision gradient_precision = logitless::GradientPrecision::kNative;
  /// How the fused head computes gradients. Each step has its own seed.
  logitless::BackwardOptions backward = {};
  /// Ranks that share the head's words, or the tokens of each batch: at most one of the two communicators.
  logitless::Ranks ranks = {};
};

struct StepReport {
  int step = 0;  ///< from 1
  double loss = 0;
  double seconds = 0;       ///< of the whole step
  double head_seconds = 0;  ///< of the head and its loss, forward and backward
};

struct TrainSummary {
  int64_t text_tokens = 0;
  int64_t vocabulary = 0;
  double unigram_entropy = 0;    ///< nats per token
  double final_loss = 0;         ///< mean of the last 20 steps
  double tokens_per_second = 0;  ///< from the median step
  double head_milliseconds = 0;  ///< median
  int64_t peak_bytes = 0;        ///< of the process
  int64_t gradient_bytes = 0;    ///< of all gradients in memory
  int64_t head_extra_bytes = 0;  ///< peak of the first head call above the resident set right before it
  int64_t workspace_bytes = 0;   ///< from the plan
  int threads = 0;
  std::string plan;
  std::string plan_kind;  ///< the value of --plan
  /// The parts of the plan that affect bits: two runs with the same cut have the same losses to the last bit
  std::string plan_cut;
  std::string parameters_hash;  ///< of the bits of all parameters after the last step
};

/// Throws std::invalid_argument, naming the option and its value, if options conflict.
void check(const TrainOptions& options);

/// Linear warm-up over the first 20 steps, then a linear decay to a tenth at the last one.
double learning_rate_at(int step, const TrainOptions& options);

/// One model, its gradients and its optimizer. Public so that a test can take single steps.
class Trainer {
 public:
  /// Throws what check() throws.
  Trainer(const ModelShape& shape, const TrainOptions& options);

  /// Forward, backward and AdamW's update on one batch; the reported loss is from before the update.
  StepReport step(const Batch& batch);

  Parameters& parameters() { return parameters_; }
  const Parameters& gradients() const { return gradients_; }
  const logitless::Plan& plan() const { return plan_; }
  /// The rise of the resident set in the first step's head call.
  int64_t head_extra_bytes() const { return head_extra_bytes_; }
  /// The bytes of all gradients in memory.
  int64_t gradient_bytes();
  /// The largest resident set so far.
  int64_t peak_bytes() const;

 private:
  double run_head(const RowMatrix& hidden, const Batch& batch);
  void keep_own_entries();

  TrainOptions options_;
  Parameters parameters_;
  Parameters gradients_;
  AdamW adamw_;
  Trunk trunk_;
  RowMatrix d_hidden_;
  std::vector<logitless::bfloat16> narrow_hidden_, narrow_weight_;
  logitless::Context context_;
  logitless::Plan plan_;
  int step_ = 0;
  int64_t head_extra_bytes_ = 0;
  int64_t earlier_peak_bytes_ = 0;
};

/// Trains from scratch; `on_step` is called after every step.
TrainSummary train(const TrainOptions& options, const std::function<void(const StepReport&)>& on_step);

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// A student that learns from a teacher on a text. It shares its trunk, parameters and optimizer with
// train_lm.
#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "adamw.h"
#include "logitless/logitless.h"
#include "model.h"
#include "teacher_file.h"
#include "train.h"

/// The objective of a step, and how it is computed.
enum class Objective {
  kHard,   ///< the text's next token: cross-entropy, fused
  kFused,  ///< the teacher's whole distribution: KL(teacher || student), no logits in memory
  kDense,  ///< the same with the logits of both heads in memory
};
/// Returns the value of --head.
const char* name_of(Objective objective);

struct DistilOptions {
  int steps = 200;
  int64_t batch_tokens = 512;
  int64_t context = 4;
  int64_t embedding = 64;
  int64_t hidden = 192;
  double learning_rate = 2e-3;
  uint64_t seed = 1;
  int threads = 0;             ///< 0: all that OpenMP offers
  int64_t workspace_mib = 64;  ///< budget of a fused head
};

/// The student trains on the first five sixths of the text; the last sixth is only for validation.
int64_t trained_tokens(const TeacherFile& teacher);

/// The teacher's own cross-entropy on the last sixth.
double teacher_loss(const TeacherFile& teacher, const DistilOptions& options);

class Student {
 public:
  /// The teacher must outlive the student.
  Student(const TeacherFile& teacher, const DistilOptions& options, Objective objective);

  /// Forward, backward and AdamW's update on a batch of seeded positions; the reported loss is from before
  /// the update.
  StepReport step();

  /// Returns the cross-entropy on the text reserved for validation.
  double validation_loss() const;

  const logitless::Plan& plan() const { return plan_; }
  /// The rise of the resident set in the first step's head call.
  int64_t head_extra_bytes() const { return head_extra_bytes_; }

 private:
  Batch batch_at(const std::vector<int64_t>& positions) const;
  double run_head(const RowMatrix& hidden, const Batch& batch);

  const TeacherFile& teacher_;
  DistilOptions options_;
  Objective objective_;
  ModelShape shape_;
  std::mt19937_64 generator_;
  Parameters parameters_;
  Parameters gradients_;
  AdamW adamw_;
  Trunk trunk_;
  RowMatrix d_hidden_;
  RowMatrix teacher_hidden_;  // of the batch
  logitless::Context context_;
  logitless::Plan plan_;
  int step_ = 0;
  int64_t head_extra_bytes_ = 0;
};

struct Validation {
  int step = 0;  ///< steps before this validation
  double loss = 0;
};

/// The measurements of one run.
struct DistilRun {
  std::vector<StepReport> steps;
  std::vector<Validation> validation;
  int64_t head_extra_bytes = 0;
  int64_t workspace_bytes = 0;  ///< from the plan
  std::string plan;

  std::vector<double> losses() const;
  /// Medians over all steps except the first, which sets up memory.
  double median_seconds() const;
  double median_head_seconds() const;
};

/// Trains a student from scratch. Validates before the first step, after every 20 steps and after the last,
/// and each time calls `on_validation` with the run so far.
DistilRun distil(const TeacherFile& teacher, const DistilOptions& options, Objective objective,
                 const std::function<void(const DistilRun&)>& on_validation);

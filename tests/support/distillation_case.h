// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Calls of distillation_loss on seeded inputs, and how far they may be from the oracle.
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "logitless/distillation.h"
#include "oracle/distillation_oracle.h"
#include "support/divergence_cases.h"
#include "support/host_tensor.h"
#include "support/views.h"

namespace logitless::testing {

/// What a student or a teacher is made of.
struct ModelSpec {
  int64_t hidden = 24;
  DType dtype = DType::kFloat32;
  HeadLayout layout = HeadLayout::kVocabHidden;
  Rows rows = Rows::kFollowing;
  bool bias = true;
  double softcap = 0;
  double scale = 2;                       ///< about the size of its logits
  std::optional<int64_t> sequences = {};  ///< unset: those of the case
};

struct DistillationSpec {
  int64_t tokens = 24;
  int64_t sequences = 1;
  int64_t vocab = 131;
  bool targets = true;  ///< every fifth token takes no part
  ModelSpec student;
  ModelSpec teacher = {.hidden = 40, .scale = 3};
  uint64_t seed = 1;
};

/// A student or a teacher that owns its tensors.
struct Model {
  Model(const ModelSpec& spec, const DistillationSpec& of, std::mt19937_64& random);

  HiddenStates states() const;
  LmHead head() const;

  ModelSpec spec;
  int64_t sequences;
  HostTensor hidden, weight, bias;
};

/// The gradients of a student.
struct StudentGradients {
  explicit StudentGradients(const Model& student);
  Gradients views();
  std::vector<std::byte> bytes() const;

  HostTensor d_hidden, d_weight, d_bias;
  int64_t sequences;
  bool bias;
};

/// One call's inputs. Its options' temperatures are views of `temperatures`.
class DistillationCase {
 public:
  explicit DistillationCase(const DistillationSpec& spec);

  Targets targets_view() const;
  Teacher teacher_view() const { return {teacher.states(), teacher.head(), teacher_rounding}; }
  oracle::DistillationInputs inputs() const;
  /// Each token gets a temperature of its own.
  void set_temperatures();

  DistillationResult run(const Context& context, const Gradients& gradients = {}) const;

  DistillationSpec spec;
  std::mt19937_64 random;
  Model student, teacher;
  std::vector<int64_t> ids;
  std::vector<double> temperatures;
  std::optional<DType> teacher_rounding;
  Distillation options;
};

/// Options of a plan whose tiles are small, so that a small case has several of them.
inline ContextOptions small_tiles(PlanKind plan, int threads = 2) {
  ContextOptions options;
  options.plan = plan;
  options.threads = threads;
  options.row_tile = 8;
  options.vocab_tile = 48;
  options.gradient_precision = GradientPrecision::kFloat32;
  return options;
}

/// Bounds on |engine − oracle| of one call, by a running error analysis (distillation_case.cc).
struct DistillationBounds {
  std::vector<double> divergence, acceptance, logps, entropy, teacher_entropy, per_token_loss;
  oracle::MatrixXd d_hidden, d_weight;
  oracle::VectorXd d_bias;
};
/// `gradient_unit`: the relative error of dL/dlogits as the products read it, beyond rounding once to
/// float32.
DistillationBounds distillation_bounds(const DistillationCase& call, const oracle::DistillationTruth& truth,
                                       double gradient_unit = 0);

/// Expects all numbers of a result, and the gradients if there are any, within their bounds.
void expect_distilled(const DistillationCase& call, const DistillationResult& got, const StudentGradients* gradients,
                      double gradient_unit = 0);

}  // namespace logitless::testing

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The tensors of a drawn call's task, except its logits.
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include "generator/drawn_loss.h"
#include "generator/side.h"
#include "logitless/run.h"

namespace logitless::testing {

/// Draws a task's inputs. Set the options first, because they decide what it reads.
class TaskTensors {
 public:
  TaskTensors(const DrawnCall& call, Side& student, Random& random);

  void set(CrossEntropy& task);
  void set(PolicyLoss& task);
  void set(PreferenceLoss& task);
  void set(KtoLoss& task);
  void set(SoftCrossEntropy& task);
  void set(Distillation& task);
  void set(SetDistillation& task);
  void set(IdLogps& task);
  void set(TokenStatistics& task);
  void set(CustomLoss& task);

  /// Returns the task's reference or teacher, or null.
  Side* other() { return other_ ? &*other_ : nullptr; }
  /// Sets the task's view of it, with the vocabulary cut.
  void set_other(auto& task, int64_t first, int64_t count) {
    if constexpr (requires { task.reference; }) task.reference = other_->logits(first, count);
    if constexpr (std::is_same_v<std::remove_cvref_t<decltype(task)>, Distillation>) {
      task.teacher = other_->logits(first, count);
    }
  }
  /// Returns the temperatures of all rows, including ignored rows.
  std::span<const double> all_temperatures() const { return all_temperatures_; }
  bool unchanged() const;
  /// Sets ignored rows to NaN, on both sides, and their temperatures and weights.
  void poison_rows();

 private:
  ConstTensor ids_of(const std::vector<int64_t>& ids);
  ConstTensor draw_targets(const TokenOptions& token);
  /// Draws one number per token, or per sequence.
  ConstTensor numbers(int64_t count, double mean, double deviation);
  /// Draws log-probabilities close to a uniform distribution's.
  ConstTensor log_probabilities(double deviation, bool per_sequence = false);
  void set_token(TokenOptions& token);
  template <class Task>
  void set_reference(Task& task);
  IdSets draw_sets(bool distinct);
  IdSets draw_kept(const std::vector<int64_t>& chosen);
  Side& draw_other();
  GuardedTensor& numbers_of(const IdSets& sets);
  void for_each_id(const IdSets& sets, const std::function<void(int64_t entry, int64_t count)>& visit) const;
  int64_t draw_id();
  DType type_of_ids() const { return call_.ids32 ? DType::kInt32 : DType::kInt64; }
  std::span<const float> draw_weights();
  GuardedTensor& draw_factors(bool per_sequence);
  void set_token_weights(auto& task);
  std::span<const uint8_t> draw_mask();

  const DrawnCall& call_;
  Side& student_;
  Random& random_;
  std::deque<GuardedTensor> tensors_;
  std::deque<std::vector<int64_t>> places_;
  std::vector<double> temperatures_, all_temperatures_;
  std::vector<float> weights_;
  GuardedTensor* token_weights_ = nullptr;
  std::vector<uint8_t> mask_, labels_;
  std::vector<int64_t> labels_of_rows_;
  std::optional<Side> other_;
  std::optional<DrawnLoss> loss_;
};

}  // namespace logitless::testing

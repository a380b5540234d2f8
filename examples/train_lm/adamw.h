// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// AdamW (Loshchilov and Hutter 2019, "Decoupled Weight Decay Regularization", algorithm 2). It updates a
// tensor or a piece of one at a time, so that a gradient that arrives tile by tile needs no buffer.
#pragma once

#include <Eigen/Core>
#include <cstdint>
#include <span>
#include <vector>

#include "memory.h"

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.99;
  /// Larger than the usual 1e-8, because a gradient entry that consists of rounding error must not cause a
  /// full-sized step.
  double epsilon = 1e-6;
  /// A step scales every tensor by 1 − learning rate · weight_decay.
  double weight_decay = 0.01;
};

class AdamW {
 public:
  /// The tensors must outlive the optimizer. All of its memory is resident from the start.
  template <class Tensors>
  explicit AdamW(const Tensors& tensors, AdamWOptions options = {}) : options_(options) {
    for (std::span<float> values : tensors) {
      const auto size = static_cast<Eigen::Index>(values.size());
      states_.push_back({values, Eigen::ArrayXf::Zero(size), Eigen::ArrayXf::Zero(size)});
      make_resident({states_.back().first_moment.data(), values.size()});
      make_resident({states_.back().second_moment.data(), values.size()});
    }
  }

  /// Call once before the updates of a step.
  void begin_step(double learning_rate);

  /// Updates elements [first, first + gradient.size()) of a tensor. Each element must be updated once per
  /// step. The result does not depend on how the elements are divided into calls, down to the last bit.
  void update(size_t tensor, int64_t first, std::span<const float> gradient);

  /// Updates the whole tensor, with all threads.
  void update_all(size_t tensor, std::span<const float> gradient);

 private:
  struct State {
    std::span<float> values;
    Eigen::ArrayXf first_moment;
    Eigen::ArrayXf second_moment;
  };

  AdamWOptions options_;
  std::vector<State> states_;
  int step_ = 0;
  float decay_factor_ = 1;  // the factor by which weight decay scales a value
  float rate_ = 0;          // learning rate with the first moment's bias correction
  float second_scale_ = 0;  // the second moment's bias correction
};

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// AdamW (Loshchilov and Hutter 2019, "Decoupled Weight Decay Regularization", algorithm 2), one tensor or a
// piece of one at a time, so that a gradient that arrives tile by tile needs no buffer.
#pragma once

#include <Eigen/Core>
#include <cstdint>
#include <span>
#include <vector>

#include "memory.h"

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.99;
  /// Larger than the usual 1e-8: a gradient entry that is all rounding error must not become a full-sized
  /// step.
  double epsilon = 1e-6;
  double weight_decay = 0.01;  ///< of every tensor; times the learning rate it is what a step takes away
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

  /// Is called once before the updates of a step.
  void begin_step(double learning_rate);

  /// Updates the elements [first, first + gradient.size()) of a tensor. Every element once a step; how they
  /// are cut into calls does not change a bit of the result.
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
  float kept_ = 1;          // what the weight decay leaves of a value
  float rate_ = 0;          // learning rate with the first moment's bias correction
  float second_scale_ = 0;  // the second moment's bias correction
};

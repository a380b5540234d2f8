// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Adam (Kingma and Ba 2015, "Adam: A Method for Stochastic Optimization", algorithm 1), one tensor or a piece
// of one at a time, so that a gradient that arrives tile by tile needs no buffer.
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "memory.h"

struct AdamOptions {
  double beta1 = 0.9;
  double beta2 = 0.99;
  /// Larger than the usual 1e-8: a gradient entry that is all rounding error must not become a full-sized
  /// step.
  double epsilon = 1e-6;
};

class Adam {
 public:
  /// The tensors must outlive the optimizer. All of its memory is resident from the start.
  template <class Tensors>
  explicit Adam(const Tensors& tensors, AdamOptions options = {}) : options_(options) {
    for (std::span<float> values : tensors) {
      const auto size = static_cast<Eigen::Index>(values.size());
      states_.push_back({values, Eigen::ArrayXf::Zero(size), Eigen::ArrayXf::Zero(size)});
      make_resident({states_.back().first_moment.data(), values.size()});
      make_resident({states_.back().second_moment.data(), values.size()});
    }
  }

  /// Is called once before the updates of a step.
  void begin_step(double learning_rate) {
    ++step_;
    rate_ = static_cast<float>(learning_rate / (1.0 - std::pow(options_.beta1, step_)));
    second_scale_ = static_cast<float>(1.0 / (1.0 - std::pow(options_.beta2, step_)));
  }

  /// Updates the elements [first, first + gradient.size()) of a tensor. Every element once a step.
  void update(size_t tensor, int64_t first, std::span<const float> gradient) {
    State& state = states_[tensor];
    const auto size = static_cast<Eigen::Index>(gradient.size());
    const float beta1 = static_cast<float>(options_.beta1), beta2 = static_cast<float>(options_.beta2);
    const Eigen::Map<const Eigen::ArrayXf> g(gradient.data(), size);
    auto m = state.first_moment.segment(first, size);
    auto v = state.second_moment.segment(first, size);
    m += (1.0f - beta1) * (g - m);
    v += (1.0f - beta2) * (g.square() - v);
    Eigen::Map<Eigen::ArrayXf>(state.values.data() + first, size) -=
        rate_ * m / ((second_scale_ * v).sqrt() + static_cast<float>(options_.epsilon));
  }

  /// Updates the whole tensor, with all threads.
  void update_all(size_t tensor, std::span<const float> gradient) {
    // Four arrays of 16 KiB: they stay in L1 and L2 between the passes of update()
    constexpr int64_t kBlock = 4096;
    const int64_t size = static_cast<int64_t>(gradient.size());
#pragma omp parallel for schedule(static)
    for (int64_t first = 0; first < size; first += kBlock) {
      update(tensor, first, gradient.subspan(first, std::min(kBlock, size - first)));
    }
  }

 private:
  struct State {
    std::span<float> values;
    Eigen::ArrayXf first_moment;
    Eigen::ArrayXf second_moment;
  };

  AdamOptions options_;
  std::vector<State> states_;
  int step_ = 0;
  float rate_ = 0;          // learning rate with the first moment's bias correction
  float second_scale_ = 0;  // the second moment's bias correction
};

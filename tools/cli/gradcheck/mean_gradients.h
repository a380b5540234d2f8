// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Sampled gradients, averaged over seeds.
#pragma once

#include <cmath>
#include <map>
#include <vector>

#include "cli/common/task_call.h"
#include "oracle/oracle.h"

namespace logitless::cli {

/// Sampled gradients are right on average, so the mean of this many draws is compared. The error of the mean
/// is the spread of a draw divided by sqrt(kDraws); a bias of a quarter of the spread fails.
inline constexpr int kDraws = 64;
inline constexpr double kSpreads = 2;
inline constexpr double kNoiseRatio = 1.3;  ///< the noise that is asked for is itself estimated from a small sample

/// The mean of sampled gradients over seeds that follow one another.
class MeanGradients {
 public:
  MeanGradients(const TaskRun& call, const Job& job, const Context& context) : views(call.gradients) {
    for (const TensorId id : kIds) {
      means_[id].resize(static_cast<size_t>(job[id].count(size_of(job.gradient_dtype))));
      squares_[id] = 0;
    }
    for (int draw = 0; draw < kDraws; ++draw) {
      TaskRun one = call;
      one.gradients.backward.seed += draw;
      one.run(context);
      for (auto& [id, means] : means_) {
        for (size_t i = 0; i < means.size(); ++i) {  // Welford's sums: equal draws have a spread of exactly 0
          const double value = oracle::read_element(job[id].data, job.gradient_dtype, static_cast<int64_t>(i));
          const double difference = value - means[i];
          means[i] += difference / (draw + 1);
          squares_[id] += difference * (value - means[i]);
        }
      }
    }
    const auto show = [&](TensorId id, auto& view) {
      if (!view.data) return;
      view.data = means_[id].data();
      view.dtype = DType::kFloat64;
    };
    show(TensorId::kDHidden, views.d_hidden);
    show(TensorId::kDWeight, views.d_weight);
    show(TensorId::kDBias, views.d_bias);
    show(TensorId::kDLoraA, views.d_lora_a);
    show(TensorId::kDLoraB, views.d_lora_b);
  }

  /// The root of the mean of |g - mean|² over the draws g.
  double spread(TensorId id) const { return std::sqrt(squares_.at(id) / (kDraws - 1)); }

  GradientMatrices views;

 private:
  static constexpr TensorId kIds[] = {TensorId::kDHidden, TensorId::kDWeight, TensorId::kDBias, TensorId::kDLoraA,
                                      TensorId::kDLoraB};
  std::map<TensorId, std::vector<double>> means_;
  std::map<TensorId, double> squares_;
};

}  // namespace logitless::cli

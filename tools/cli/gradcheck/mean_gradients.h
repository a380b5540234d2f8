// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Averages sampled gradients over seeds.
#pragma once

#include <cmath>
#include <map>
#include <string>
#include <type_traits>
#include <vector>

#include "cli/common/task_call.h"
#include "core/fields.h"
#include "oracle/oracle.h"

namespace logitless::cli {

/// Sampled gradients are right on average, so the mean of this many draws is compared. The error of the mean
/// is the spread of a draw divided by sqrt(kDraws). A bias of a quarter of the spread fails.
inline constexpr int kDraws = 64;
inline constexpr double kSpreads = 2;
inline constexpr double kNoiseRatio = 1.3;  ///< the requested noise is itself estimated from a small sample

/// The mean of sampled gradients over consecutive seeds.
class MeanGradients {
 public:
  MeanGradients(const TaskRun& call, const Context& context) : views(call.gradients) {
    for (int draw = 0; draw < kDraws; ++draw) {
      TaskRun one = call;
      one.gradients.backward.seed += draw;
      one.run(context);
      for_each(call.gradients, [&](const char* name, const Tensor& gradient) { add(gradient, draw, sums_[name]); });
    }
    for_each(views, [&](const char* name, Tensor& view) {
      view.data = sums_[name].means.data();
      view.dtype = DType::kFloat64;
    });
  }

  /// Returns the root of the mean of |g - mean|² over the draws g.
  double spread(const std::string& name) const {
    const auto it = sums_.find(name);
    return it == sums_.end() ? 0 : std::sqrt(it->second.squares / (kDraws - 1));
  }

  Gradients views;

 private:
  struct Sums {
    std::vector<double> means;
    double squares = 0;
  };

  // Calls use(name, tensor) for each gradient that is given; all are dense.
  static void for_each(auto& gradients, const auto& use) {
    const auto visit = [&]<class T>(const Field& field, T& member) {
      if constexpr (std::is_same_v<std::remove_const_t<T>, Tensor>) {
        if (member.given()) use(field.name, member);
      }
    };
    visit_fields(FieldsOf<Gradients>(), visit, gradients);
  }
  static void add(const Tensor& gradient, int draw, Sums& sums) {
    sums.means.resize(static_cast<size_t>(gradient.count()));
    for (size_t i = 0; i < sums.means.size(); ++i) {  // Welford: equal draws have a spread of exactly 0
      const double value = oracle::read_element(gradient.data, gradient.dtype, static_cast<int64_t>(i));
      const double difference = value - sums.means[i];
      sums.means[i] += difference / (draw + 1);
      sums.squares += difference * (value - sums.means[i]);
    }
  }

  std::map<std::string, Sums> sums_;
};

}  // namespace logitless::cli

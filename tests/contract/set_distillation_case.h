// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// A few rows of logits, and a teacher that is known at sets of token ids.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "core/matrices.h"
#include "logitless/set_distillation.h"

namespace logitless::testing {

inline constexpr int64_t kN = 12, kV = 37;

struct SetCase {
  std::vector<double> logits;  // [N, V]
  std::vector<int64_t> offsets = {0}, ids, targets;
  std::vector<double> logps;  // of the teacher

  SetCase() {
    std::mt19937 random(3);
    std::normal_distribution<double> normal;
    for (int64_t i = 0; i < kN * kV; ++i) logits.push_back(2 * normal(random));
    for (int64_t row = 0; row < kN; ++row) {
      std::vector<int64_t> all(kV);
      std::vector<double> t(kV);
      double sum = 0;
      for (int64_t v = 0; v < kV; ++v) {
        all[v] = v;
        t[v] = logits[row * kV + v] / 2 + normal(random);
        sum += std::exp(t[v]);
      }
      std::shuffle(all.begin(), all.end(), random);
      const int64_t count = row == 4 ? 0 : 1 + row % 5 * 3;  // row 4 takes no part
      for (int64_t k = 0; k < count; ++k) {
        ids.push_back(all[k]);
        logps.push_back(t[all[k]] - std::log(sum));
      }
      offsets.push_back(static_cast<int64_t>(ids.size()));
      targets.push_back(row == 7 ? -100 : row % 2 ? all[0] : all[kV - 1]);  // in the set, or not
    }
  }
  SetTeacher teacher() const {
    SetTeacher out;
    out.sets = IdSets(Targets(std::span(ids)), offsets);
    out.logps = ConstVector(logps.data(), static_cast<int64_t>(logps.size()));
    return out;
  }
  Targets target_ids() const { return Targets(std::span(targets)); }
};

}  // namespace logitless::testing

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The properties of tasks that records need in addition to the lists of fields.h.
#pragma once

#include <array>
#include <type_traits>

#include "core/fields.h"
#include "logitless/run.h"
#include "record/types.h"

namespace logitless::record {

/// Returns the required keys of a task; "a|b" means one of the two.
template <Task T>
constexpr auto needs_of() {
  if constexpr (std::is_same_v<T, PolicyLoss>) {
    return std::array{"chosen_ids"};
  } else if constexpr (std::is_same_v<T, KtoLoss>) {
    return std::array{"targets", "ref_logps|reference.hidden"};
  } else if constexpr (std::is_same_v<T, SoftCrossEntropy>) {
    return std::array{"sets.ids|rows"};
  } else if constexpr (std::is_same_v<T, Distillation>) {
    return std::array{"teacher.hidden|teacher.logits"};
  } else if constexpr (std::is_same_v<T, SetDistillation>) {
    return std::array{"teacher.sets.ids", "teacher.logps"};
  } else if constexpr (std::is_same_v<T, IdLogps>) {
    return std::array{"sets.ids"};
  } else if constexpr (std::is_same_v<T, TokenStatistics>) {
    return std::array<const char*, 0>();
  } else {
    return std::array{"targets"};
  }
}

}  // namespace logitless::record

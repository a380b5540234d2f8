// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Every divergence, and the limits of those that have a parameter.
#pragma once

#include <string>
#include <vector>

#include "logitless/distillation.h"

namespace logitless::testing {

struct DivergenceCase {
  std::string name;
  Distillation options;
};
std::vector<DivergenceCase> divergence_cases();

}  // namespace logitless::testing

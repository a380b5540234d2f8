// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "logitless/token_stats.h"

namespace logitless {

TokenLoss::~TokenLoss() = default;

}  // namespace logitless

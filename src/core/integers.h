// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace logitless::core {

/// Returns a / b, rounded up, for any a >= 0 and b > 0.
constexpr int64_t div_up(int64_t a, int64_t b) { return a / b + (a % b != 0 ? 1 : 0); }
/// Returns the smallest multiple of b that is at least a; a >= 0, b > 0.
constexpr int64_t round_up(int64_t a, int64_t b) { return div_up(a, b) * b; }

}  // namespace logitless::core

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace logitless::bench {

/// Cross-entropy with gradient of float32 logits [1, tokens, vocab], for several row tiles, in place and into a buffer
/// of its own, against two sweeps and against what the memory alone takes.
void run_logits(int64_t tokens, int64_t vocab, int threads, int repeat);

}  // namespace logitless::bench

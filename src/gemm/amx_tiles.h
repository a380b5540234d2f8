// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Products of bfloat16 on the tile unit of a CPU with AMX (Intel, from Sapphire Rapids on). An
// operand is packed into panels of 32 rows of A, or columns of B, whose tiles the unit loads as they stand:
// 16 rows of 32 bfloat16 of A, 32 x 16 of B with pairs along the depth side by side
// (TDPBF16PS, Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2).
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__x86_64__) && defined(__linux__)
#define LOGITLESS_HAS_AMX 1
#endif

namespace logitless::gemm::amx {

/// The edges of what a panel is made of: a block of C is kPanel x kPanel, a step takes kStep of the depth.
inline constexpr int64_t kPanel = 32;
inline constexpr int64_t kStep = 32;
inline constexpr int64_t kStepElements = kPanel * kStep;  // of one panel

/// Where an operand's elements stand: element (i, p), with i along C's edge and p along the depth, is
/// data[i * edge + p * depth]. One of the two is 1.
struct View {
  const uint16_t* data = nullptr;
  int64_t edge = 0;
  int64_t depth = 0;
};

/// Asks the system once for the tile unit's state; returns whether the CPU has it and the process may use it.
bool available();

/// These pack `edges` (at most kPanel) x `depth` elements into [div_up(depth, kStep), kStepElements], with
/// zeros where there are none.
void pack_a(const View& view, int64_t edges, int64_t depth, uint16_t* panel);
void pack_b(const View& view, int64_t edges, int64_t depth, uint16_t* panel);

/// While this lives, the calling thread's tiles have the shapes that multiply() takes.
class Tiles {
 public:
  Tiles();
  ~Tiles();
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;
};

/// C [kPanel, kPanel] = A panel · B panel of `steps` steps, plus C itself when `accumulate`. Each element
/// adds up its products along the depth in order, a pair at a time: its bits depend on its row and column.
void multiply(const uint16_t* a, const uint16_t* b, int64_t steps, float* c, int64_t ldc, bool accumulate);

}  // namespace logitless::gemm::amx

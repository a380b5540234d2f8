// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// A tile unit is what multiplies small tiles of bfloat16 in a CPU, or plain C++ that does the same. An
// operand is packed for it into panels of 32 rows of A, or columns of B; how a panel holds a step of 32 along
// the depth is the unit's own affair.
#pragma once

#include <bit>
#include <cstdint>

namespace logitless::gemm::tiles {

/// The edges of what a panel is made of: a block of C is kPanel x kPanel, a step takes kStep of the depth.
inline constexpr int64_t kPanel = 32;
inline constexpr int64_t kStep = 32;
inline constexpr int64_t kStepElements = kPanel * kStep;  // of one panel

inline float widened_bfloat16(uint16_t x) { return std::bit_cast<float>(static_cast<uint32_t>(x) << 16); }

/// Where an operand's elements stand: element (i, p), with i along C's edge and p along the depth, is
/// data[i * edge + p * depth]. One of the two is 1.
struct View {
  const uint16_t* data = nullptr;
  int64_t edge = 0;
  int64_t depth = 0;
};

/// What a backend needs of a tile unit. A CPU's unit and the emulated one of the same name give the same
/// bytes and bits; every function is for calls from several threads at once.
struct TileUnit {
  const char* name;      // as a user reads it
  const char* variable;  // of the environment, that switches the unit off
  bool emulated;

  /// What Backend returns under these names for bfloat16.
  double flops_per_byte;
  int64_t few_rows;
  int64_t tile_entries;

  /// These pack `edges` (at most kPanel) x `depth` elements into [div_up(depth, kStep), kStepElements], with
  /// zeros where there are none. A panel begins at a cache line.
  void (*pack_a)(const View& view, int64_t edges, int64_t depth, uint16_t* panel);
  void (*pack_b)(const View& view, int64_t edges, int64_t depth, uint16_t* panel);

  /// The calling thread is ready for products from begin() to end().
  void (*begin)();
  void (*end)();

  /// C [kPanel, kPanel] = A panel · B panel of `steps` steps, plus C itself when `accumulate`. An element is
  /// the sum of its steps in their order, each of which the instruction sums: its bits depend on its row and
  /// column.
  void (*multiply)(const uint16_t* a, const uint16_t* b, int64_t steps, float* c, int64_t ldc, bool accumulate);
};

/// While this lives, the calling thread is ready for the unit's products.
class Ready {
 public:
  explicit Ready(const TileUnit& unit) : unit_(unit) { unit_.begin(); }
  ~Ready() { unit_.end(); }
  Ready(const Ready&) = delete;
  Ready& operator=(const Ready&) = delete;

 private:
  const TileUnit& unit_;
};

}  // namespace logitless::gemm::tiles

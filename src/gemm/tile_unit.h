// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// A tile unit multiplies small tiles of bfloat16. It is a part of the CPU, or plain C++ that computes the
// same. Its operands are reordered into panels of 32 rows of A or 32 columns of B. A panel is a sequence of
// steps of 32 along the depth, and each unit has its own order of elements within a step.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace logitless::gemm::tiles {

/// A block of C is kPanel x kPanel, and a step is kStep of the depth.
inline constexpr int64_t kPanel = 32;
inline constexpr int64_t kStep = 32;
inline constexpr int64_t kStepElements = kPanel * kStep;  // of one panel

/// The elements of an operand in memory: element (i, p), with i along C's edge and p along the depth, is
/// data[i * edge + p * depth]. One of the two strides is 1.
struct View {
  const uint16_t* data = nullptr;
  int64_t edge = 0;
  int64_t depth = 0;
};

/// A CPU's unit and its emulation write the same bytes in panels and the same bits in C. Several threads may
/// call the functions at once.
struct TileUnit {
  bool emulated;

  /// Reorder `edges` (at most kPanel) x `depth` elements into [div_up(depth, kStep), kStepElements], with
  /// zeros in the rest. A panel begins at a cache line.
  void (*reorder_a)(const View& view, int64_t edges, int64_t depth, uint16_t* panel);
  void (*reorder_b)(const View& view, int64_t edges, int64_t depth, uint16_t* panel);

  /// The calling thread may multiply only between begin() and end(). Null: it always may.
  void (*begin)();
  void (*end)();

  /// C [kPanel, kPanel] = A panel · B panel of `steps` steps, plus C itself if `accumulate`. An element is
  /// the sum of its steps in order, so its bits depend only on its row and column.
  void (*multiply)(const uint16_t* a, const uint16_t* b, int64_t steps, float* c, int64_t ldc, bool accumulate);
};

/// While this lives, the calling thread may multiply.
class Ready {
 public:
  explicit Ready(const TileUnit& unit) : unit_(unit) {
    if (unit_.begin) unit_.begin();
  }
  ~Ready() {
    if (unit_.end) unit_.end();
  }
  Ready(const Ready&) = delete;
  Ready& operator=(const Ready&) = delete;

 private:
  const TileUnit& unit_;
};

// For the emulations:

inline float widened_bfloat16(uint16_t x) { return std::bit_cast<float>(static_cast<uint32_t>(x) << 16); }

/// Returns x, or a zero of its sign for numbers below 2^-126.
inline float flushed(float x) { return std::abs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x; }

/// Copies a view into a panel. Element (i, p) of a step goes to offset place(i, p) of that step; elements
/// beyond `edges` or `depth` become 0.
template <class Place>
void reorder(const View& view, int64_t edges, int64_t depth, uint16_t* panel, const Place& place) {
  for (int64_t step = 0; step < depth; step += kStep, panel += kStepElements) {
    for (int64_t i = 0; i < kPanel; ++i) {
      for (int64_t p = 0; p < kStep; ++p) {
        const bool exists = i < edges && step + p < depth;
        panel[place(i, p)] = exists ? view.data[i * view.edge + (step + p) * view.depth] : uint16_t{0};
      }
    }
  }
}

}  // namespace logitless::gemm::tiles

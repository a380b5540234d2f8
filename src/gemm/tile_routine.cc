// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "gemm/tile_routine.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include "core/integers.h"
#include "gemm/amx_tiles.h"
#include "gemm/bfmmla_tiles.h"
#include "gemm/tile_unit.h"

namespace logitless::gemm {
namespace {

using core::div_up;
using core::round_up;
using tiles::kPanel;
using tiles::kStep;
using tiles::TileUnit;
using tiles::View;

// The largest depth of a panel: a panel of A and one of B (18 KiB each) stay in L1 with a block of C.
constexpr int64_t kMostDepth = 288;
// The largest number of elements of B that are reordered together: 768 KiB, which stay in L2 with a strip of
// C.
constexpr int64_t kMostElements = 384 * 1024;
// The smallest number of columns together: fewer would not be worth reordering the panels of A.
constexpr int64_t kLeastColumns = 128;
constexpr int64_t kBlockElements = kPanel * kPanel;

// Returns the depth of panels: the fewest equal ones that cover k, rounded up to whole steps.
int64_t panel_depth(int64_t k) { return round_up(div_up(k, div_up(k, kMostDepth)), kStep); }

int64_t panel_elements(int64_t depth) { return kPanel * round_up(depth, kStep); }

// Returns the columns of B that are reordered together, over the whole depth.
int64_t columns_together(int64_t n, int64_t k) {
  const int64_t most = std::max(kMostElements / round_up(k, kStep) / kPanel * kPanel, kLeastColumns);
  return std::min(round_up(n, kPanel), most);
}

// Upper bounds, which also hold for products with a smaller n or k.
int64_t a_elements(int64_t k) { return panel_elements(std::min(k, kMostDepth)); }
int64_t b_elements(int64_t n, int64_t k) {
  const int64_t depth = round_up(k, kStep);
  const int64_t most_columns = std::min(round_up(n, kPanel), kMostElements / kStep);
  return std::min(most_columns * depth, std::max(kMostElements, kLeastColumns * depth));
}

/// The scratch of a product.
struct Scratch {
  static constexpr size_t kAlignment = 64;

  uint16_t* a;   // a panel of panel_depth()
  uint16_t* b;   // the panels of columns_together()
  float* block;  // a whole block, for blocks that C's edge cuts

  static size_t bytes(int64_t n, int64_t k) {
    return static_cast<size_t>(a_elements(k) + b_elements(n, k)) * sizeof(uint16_t) +
           static_cast<size_t>(kBlockElements) * sizeof(float) + kAlignment;
  }

  Scratch(void* scratch, int64_t n, int64_t k) {
    size_t space = bytes(n, k);
    a = static_cast<uint16_t*>(std::align(kAlignment, space - kAlignment, scratch, space));
    b = a + a_elements(k);
    block = reinterpret_cast<float*>(b + b_elements(n, k));
  }
};

// Returns the view of A, or of B's transpose.
View view_of(const Operand& operand, bool transposed) {
  const auto* data = static_cast<const uint16_t*>(operand.data);
  return transposed ? View{data, 1, operand.stride} : View{data, operand.stride, 1};
}
View view_of_a(const Operand& a) { return view_of(a, a.transposed); }
View view_of_b(const Operand& b) { return view_of(b, !b.transposed); }

View at(const View& view, int64_t edge, int64_t depth) {
  return {view.data + edge * view.edge + depth * view.depth, view.edge, view.depth};
}

void copy_block(const float* from, int64_t from_stride, int64_t rows, int64_t columns, float* to, int64_t to_stride) {
  for (int64_t r = 0; r < rows; ++r) std::copy_n(from + r * from_stride, columns, to + r * to_stride);
}

void multiply_block(const TileUnit& unit, const uint16_t* a, const uint16_t* b, int64_t steps, int64_t rows,
                    int64_t columns, float* c, int64_t ldc, bool accumulate, float* block) {
  if (rows == kPanel && columns == kPanel) return unit.multiply(a, b, steps, c, ldc, accumulate);
  if (accumulate) copy_block(c, ldc, rows, columns, block, kPanel);
  unit.multiply(a, b, steps, block, kPanel, accumulate);
  copy_block(block, kPanel, rows, columns, c, ldc);
}

// Reorders columns [begin, begin + columns) of B: first the panels of the first depth, then of the next. B is
// read in memory order: one step of all panels at a time if rows of B are contiguous, else whole panels.
void reorder_columns(const TileUnit& unit, const Product<float>& p, int64_t begin, int64_t columns, uint16_t* out) {
  const View b = view_of_b(p.b);
  const int64_t most_depth = panel_depth(p.k);
  for (int64_t k = 0; k < p.k; k += most_depth) {
    const int64_t end = std::min(most_depth, p.k - k);
    const int64_t at_once = b.edge == 1 ? kStep : end;
    for (int64_t step = 0; step < end; step += at_once) {
      const int64_t depth = std::min(at_once, end - step);
      for (int64_t n = 0; n < columns; n += kPanel) {
        unit.reorder_b(at(b, begin + n, k + step), std::min(kPanel, columns - n), depth,
                       out + n / kPanel * panel_elements(end) + panel_elements(step));
      }
    }
    out += div_up(columns, kPanel) * panel_elements(end);
  }
}

// Returns the panel of the rows from m on, at depth k, if reorder_rows() wrote it; else null.
const uint16_t* reordered_panel(const Product<float>& p, int64_t m, int64_t k) {
  if (!p.a.reordered) return nullptr;
  return static_cast<const uint16_t*>(p.a.reordered) + m / kPanel * panel_elements(p.k) + panel_elements(k);
}

// Each panel of A is reordered just before its use, and stays in L1 while the panels of B are read from L2.
// Their strip of C stays in L2 until its sums are complete.
void multiply_tiles(const TileUnit& unit, const Product<float>& p, void* memory) {
  const tiles::Ready ready(unit);
  const View a = view_of_a(p.a);
  const Scratch scratch(memory, p.n, p.k);
  const int64_t most_depth = panel_depth(p.k);
  const int64_t most_columns = columns_together(p.n, p.k);
  for (int64_t column = 0; column < p.n; column += most_columns) {
    const int64_t columns = std::min(most_columns, p.n - column);
    reorder_columns(unit, p, column, columns, scratch.b);
    for (int64_t m = 0; m < p.m; m += kPanel) {
      const int64_t rows = std::min(kPanel, p.m - m);
      float* const strip = p.c + m * p.ldc + column;
      const uint16_t* b = scratch.b;
      for (int64_t k = 0; k < p.k; k += most_depth) {
        const int64_t depth = std::min(most_depth, p.k - k), steps = div_up(depth, kStep);
        const uint16_t* panel = reordered_panel(p, m, k);
        if (!panel) {
          unit.reorder_a(at(a, m, k), rows, depth, scratch.a);
          panel = scratch.a;
        }
        for (int64_t n = 0; n < columns; n += kPanel, b += panel_elements(depth)) {
          multiply_block(unit, panel, b, steps, rows, std::min(kPanel, columns - n), strip + n, p.ldc,
                         p.accumulate || k > 0, scratch.block);
        }
      }
    }
  }
}

class TileRoutine final : public Routine {
 public:
  /// `name` is the unit's name for the user.
  TileRoutine(const char* library, const char* name, const Costs& costs, const TileUnit& unit)
      : library_(library), name_(name), costs_(costs), unit_(unit) {}

  const char* library() const override { return library_; }
  std::string description() const override {
    return std::string("logitless (") + name_ + (unit_.emulated ? ", emulated)" : ")");
  }
  std::string warning() const override {
    if (!unit_.emulated) return "";
    return std::string("LOGITLESS_") + name_ +
           " is \"emulated\": slow C++ code, meant for tests, replaces the CPU's unit";
  }
  Costs costs() const override { return costs_; }

  // Elements of C share no sums.
  RowRule row_rule(int64_t, int64_t, bool, int64_t) const override { return {}; }
  size_t scratch_bytes(int64_t n, int64_t k) const override { return Scratch::bytes(n, k); }
  size_t internal_bytes(int64_t, int64_t, int64_t) const override { return 0; }

  size_t reordered_bytes(int64_t rows, int64_t depth) const override {
    return static_cast<size_t>(div_up(rows, kPanel) * panel_elements(depth)) * sizeof(uint16_t);
  }
  void reorder_rows(const Operand& a, int64_t rows, int64_t depth, void* to) const override {
    auto* panel = static_cast<uint16_t*>(to);
    for (int64_t m = 0; m < rows; m += kPanel, panel += panel_elements(depth)) {
      unit_.reorder_a(at(view_of_a(a), m, 0), std::min(kPanel, rows - m), depth, panel);
    }
  }
  void multiply(const Product<float>& p, void* scratch) const override { multiply_tiles(unit_, p, scratch); }

 private:
  const char* library_;
  const char* name_;
  Costs costs_;
  const TileUnit& unit_;
};

// Returns the unit that the environment variable allows, or null. cpu_unit() is only called if it may be
// used.
const TileUnit* chosen_unit(const char* variable, const TileUnit* (*cpu_unit)(), const TileUnit& emulated_unit) {
  const char* value = std::getenv(variable);
  const std::string_view setting = value ? value : "";
  if (setting == "emulated") return &emulated_unit;
  return setting != "0" ? cpu_unit() : nullptr;
}

}  // namespace

const Routine* amx_routine() {
  static const TileUnit* const unit = chosen_unit(
      "LOGITLESS_AMX", [] { return tiles::amx::is_cpu_unit_usable() ? tiles::amx::cpu_unit() : nullptr; },
      tiles::amx::emulated_unit());
  if (!unit) return nullptr;
  // 80: two cores do 1,600 GFLOP/s while memory moves 20 GB/s.
  static const TileRoutine routine("amx", "AMX", {80, 6, 512, 512, 4}, *unit);
  return &routine;
}

const Routine* bfmmla_routine() {
  static const TileUnit* const unit =
      chosen_unit("LOGITLESS_BFMMLA", tiles::bfmmla::cpu_unit, tiles::bfmmla::emulated_unit());
  if (!unit) return nullptr;
  // 16 is an estimate: a core does 32 FLOP per instruction and about two instructions per cycle.
  static const TileRoutine routine("bfmmla", "BFMMLA", {16, 8, 512, 512, 4}, *unit);
  return &routine;
}

}  // namespace logitless::gemm

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "gemm/tile_backend.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include "core/integers.h"
#include "core/views.h"
#include "gemm/amx_tiles.h"
#include "gemm/bfmmla_tiles.h"
#include "gemm/delegating.h"
#include "gemm/tile_unit.h"

namespace logitless::gemm {
namespace {

using core::div_up;
using core::round_up;
using tiles::kPanel;
using tiles::kStep;
using tiles::TileUnit;
using tiles::View;

// At most so many bfloat16 of each row of a panel of A and of one of B stand in L1 (18 KiB a panel), with the
// block of C between them.
constexpr int64_t kDepth = 288;
// So many bfloat16 of B are packed at once: three quarters of a MiB, which stay in L2 with a strip of C.
constexpr int64_t kPacked = 384 * 1024;
// Fewer columns would not be worth the panels of A that are packed for them.
constexpr int64_t kLeastColumns = 128;
constexpr int64_t kBlockElements = kPanel * kPanel;

// Parts of the depth are equal up to a step.
int64_t part_of(int64_t depth) { return round_up(div_up(depth, div_up(depth, kDepth)), kStep); }

int64_t panel_elements(int64_t depth) { return kPanel * round_up(depth, kStep); }

// So many columns of B are packed at once, over its whole depth.
int64_t packed_columns(int64_t n, int64_t k) {
  const int64_t most = std::max(kPacked / round_up(k, kStep) / kPanel * kPanel, kLeastColumns);
  return std::min(round_up(n, kPanel), most);
}

// These are at least what a product with a smaller n or k needs.
int64_t a_elements(int64_t k) { return panel_elements(std::min(k, kDepth)); }
int64_t b_elements(int64_t n, int64_t k) {
  const int64_t depth = round_up(k, kStep);
  const int64_t most_columns = std::min(round_up(n, kPanel), kPacked / kStep);
  return std::min(most_columns * depth, std::max(kPacked, kLeastColumns * depth));
}

/// What a product has in scratch.
struct Packed {
  static constexpr size_t kAlignment = 64;

  uint16_t* a;   // a panel of part_of()
  uint16_t* b;   // the panels of packed_columns()
  float* block;  // of C, where the edge of C is inside of it

  static size_t bytes(int64_t n, int64_t k) {
    return static_cast<size_t>(a_elements(k) + b_elements(n, k)) * sizeof(uint16_t) +
           static_cast<size_t>(kBlockElements) * sizeof(float) + kAlignment;
  }

  Packed(void* scratch, int64_t n, int64_t k) {
    size_t space = bytes(n, k);
    a = static_cast<uint16_t*>(std::align(kAlignment, space - kAlignment, scratch, space));
    b = a + a_elements(k);
    block = reinterpret_cast<float*>(b + b_elements(n, k));
  }
};

View view_of_a(const Operand& a) {
  const auto* data = static_cast<const uint16_t*>(a.data);
  return a.transposed ? View{data, 1, a.stride} : View{data, a.stride, 1};
}

View view_of_b(const Operand& b) {
  const auto* data = static_cast<const uint16_t*>(b.data);
  return b.transposed ? View{data, b.stride, 1} : View{data, 1, b.stride};
}

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

// Packs columns [begin, begin + columns) of B: the panels of the first part of the depth, then of the next.
// What it reads stands together: steps of all panels where rows of B do, else whole panels.
void pack_columns(const TileUnit& unit, const Product<float>& p, int64_t begin, int64_t columns, uint16_t* out) {
  const View b = view_of_b(p.b);
  const int64_t part = part_of(p.k);
  for (int64_t k = 0; k < p.k; k += part) {
    const int64_t end = std::min(part, p.k - k);
    const int64_t at_once = b.edge == 1 ? kStep : end;
    for (int64_t step = 0; step < end; step += at_once) {
      const int64_t depth = std::min(at_once, end - step);
      for (int64_t n = 0; n < columns; n += kPanel) {
        unit.pack_b(at(b, begin + n, k + step), std::min(kPanel, columns - n), depth,
                    out + n / kPanel * panel_elements(end) + panel_elements(step));
      }
    }
    out += div_up(columns, kPanel) * panel_elements(end);
  }
}

// Returns where pack_rows() has put the rows from m on, at depth k; null where it has not.
const uint16_t* panel_of_rows(const Product<float>& p, int64_t m, int64_t k) {
  if (!p.a.packed) return nullptr;
  return static_cast<const uint16_t*>(p.a.packed) + m / kPanel * panel_elements(p.k) + panel_elements(k);
}

// A panel of A is packed just before it is used, and stays in L1 while the panels of B come by from L2; the
// strip of C that both make stays in L2 until its sums are complete.
void multiply_tiles(const TileUnit& unit, const Product<float>& p, void* scratch) {
  const tiles::Ready ready(unit);
  const View a = view_of_a(p.a);
  const Packed packed(scratch, p.n, p.k);
  const int64_t part = part_of(p.k);
  const int64_t most_columns = packed_columns(p.n, p.k);
  for (int64_t column = 0; column < p.n; column += most_columns) {
    const int64_t columns = std::min(most_columns, p.n - column);
    pack_columns(unit, p, column, columns, packed.b);
    for (int64_t m = 0; m < p.m; m += kPanel) {
      const int64_t rows = std::min(kPanel, p.m - m);
      float* const strip = p.c + m * p.ldc + column;
      const uint16_t* b = packed.b;
      for (int64_t k = 0; k < p.k; k += part) {
        const int64_t depth = std::min(part, p.k - k), steps = div_up(depth, kStep);
        const uint16_t* panel = panel_of_rows(p, m, k);
        if (!panel) {
          unit.pack_a(at(a, m, k), rows, depth, packed.a);
          panel = packed.a;
        }
        for (int64_t n = 0; n < columns; n += kPanel, b += panel_elements(depth)) {
          multiply_block(unit, panel, b, steps, rows, std::min(kPanel, columns - n), strip + n, p.ldc,
                         p.accumulate || k > 0, packed.block);
        }
      }
    }
  }
}

// Returns what the environment leaves of the CPU's unit. cpu_unit() is null where there is none, and not
// called where the environment wants another.
const TileUnit* chosen_unit(const TileUnit* (*cpu_unit)(), const TileUnit& emulated_unit) {
  const char* value = std::getenv(emulated_unit.variable);
  const std::string_view setting = value ? value : "";
  if (setting == "emulated") return &emulated_unit;
  return setting != "0" ? cpu_unit() : nullptr;
}

class TileBackend final : public Delegating {
 public:
  using Delegating::multiply;

  TileBackend(const char* name, const TileUnit& unit) : Delegating(float32_backend()), name_(name), unit_(unit) {}

  const char* name() const override { return name_; }
  Description describe() const override {
    Description out = others_.describe();
    out.bf16 = std::string("logitless (") + unit_.name + ")";
    if (unit_.emulated) {
      out.warnings.push_back(std::string(unit_.variable) +
                             " is \"emulated\": C++ does the work of the CPU's unit, for tests, slowly");
    }
    return out;
  }
  bool reads(DType a, DType b) const override { return is_native(a, b) || others_.reads(a, b); }
  const char* library_of(DType a, DType b) const override {
    return is_native(a, b) ? name() : others_.library_of(a, b);
  }

  double flops_per_byte(DType a, DType b) const override {
    return is_native(a, b) ? unit_.flops_per_byte : others_.flops_per_byte(a, b);
  }
  int64_t few_rows(DType a, DType b) const override {
    return is_native(a, b) ? unit_.few_rows : others_.few_rows(a, b);
  }
  int64_t tile_entries(DType a, DType b, bool logits_stay) const override {
    return is_native(a, b) ? unit_.tile_entries : others_.tile_entries(a, b, logits_stay);
  }

  // Elements of C do not share sums.
  RowRule row_rule(const RowFamily& family, int64_t most_rows) const override {
    return is_native(family.a, family.b) ? RowRule() : others_.row_rule(family, most_rows);
  }

  size_t scratch_bytes(int64_t m, int64_t n, int64_t k, DType a, DType b) const override {
    return is_native(a, b) ? Packed::bytes(n, k) : others_.scratch_bytes(m, n, k, a, b);
  }

  size_t packed_rows_bytes(int64_t rows, int64_t depth, DType a, DType b) const override {
    if (!is_native(a, b)) return others_.packed_rows_bytes(rows, depth, a, b);
    return static_cast<size_t>(div_up(rows, kPanel) * panel_elements(depth)) * sizeof(uint16_t);
  }
  void pack_rows(const Operand& a, DType b, int64_t rows, int64_t depth, const kernels::RowKernels& kernels,
                 void* to) const override {
    if (!is_native(a.dtype, b)) return others_.pack_rows(a, b, rows, depth, kernels, to);
    auto* panel = static_cast<uint16_t*>(to);
    for (int64_t m = 0; m < rows; m += kPanel, panel += panel_elements(depth)) {
      unit_.pack_a(at(view_of_a(a), m, 0), std::min(kPanel, rows - m), depth, panel);
    }
  }

  void multiply(const Product<float>& p, const kernels::RowKernels& kernels, void* scratch) const override {
    if (!is_native(p.a.dtype, p.b.dtype)) return others_.multiply(p, kernels, scratch);
    if (!write_empty(p)) multiply_tiles(unit_, p, scratch);
  }

  size_t packing_bytes(int64_t m, int64_t n, int64_t k, DType a, DType b) const override {
    return is_native(a, b) ? 0 : others_.packing_bytes(m, n, k, a, b);
  }

 private:
  static bool is_native(DType a, DType b) { return a == DType::kBFloat16 && b == DType::kBFloat16; }

  const char* name_;
  const TileUnit& unit_;
};

const TileUnit* amx_unit() {
  static const TileUnit* const unit =
      chosen_unit([] { return amx::cpu_unit_available() ? amx::cpu_unit() : nullptr; }, amx::emulated_unit());
  return unit;
}

const TileUnit* bfmmla_unit() {
  static const TileUnit* const unit = chosen_unit(bfmmla::cpu_unit, bfmmla::emulated_unit());
  return unit;
}

}  // namespace

const Backend* amx_backend() {
  if (!amx_unit()) return nullptr;
  static const TileBackend backend("amx", *amx_unit());
  return &backend;
}

const Backend* bfmmla_backend() {
  if (!bfmmla_unit()) return nullptr;
  static const TileBackend backend("bfmmla", *bfmmla_unit());
  return &backend;
}

}  // namespace logitless::gemm

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Widens 16-bit operands panel by panel for routines that multiply float32.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/parallel.h"
#include "core/views.h"
#include "gemm/gemm.h"
#include "kernels/row_kernels.h"

namespace logitless::gemm {

// A panel is small enough to stay in L2 with the tile, and deep enough that reading and writing C once per
// panel costs little (256 multiply-adds per element).
inline constexpr int64_t kWidenDepth = 256;
// A panel has at most 2 MiB of float32. This is a multiple of every row step.
inline constexpr int64_t kWidenBreadth = 2016;

/// Returns whether routines read elements of this type directly; others are widened to float32.
inline bool is_wide(DType dtype) { return dtype == DType::kFloat32 || dtype == DType::kFloat64; }

/// Widens op(M)[row, row + rows) x [col, col + cols) into `scratch`, a dense float matrix with M's
/// transposition, and returns that. If M is wide, returns the block of M itself.
inline Operand widened(const Operand& m, int64_t row, int64_t col, int64_t rows, int64_t cols,
                       const kernels::RowKernels& kernels, float* scratch, int threads) {
  const int64_t stored_row = m.transposed ? col : row;
  const int64_t stored_col = m.transposed ? row : col;
  const void* first = core::element(m.data, m.dtype, stored_row * m.stride + stored_col);
  if (is_wide(m.dtype)) return {first, m.dtype, m.stride, m.transposed};
  const int64_t stored_rows = m.transposed ? cols : rows;
  const int64_t stored_cols = m.transposed ? rows : cols;
  core::parallel_ranges(threads, stored_rows, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      kernels.widen(core::element(first, m.dtype, r * m.stride), m.dtype, stored_cols, scratch + r * stored_cols);
    }
  });
  return {scratch, DType::kFloat32, stored_cols, m.transposed};
}

/// Returns how many floats of scratch multiply_widened() needs.
inline int64_t widened_elements(int64_t m, int64_t n, DType a, DType b) {
  const int64_t rows = (is_wide(a) ? 0 : std::min(m, kWidenBreadth)) + (is_wide(b) ? 0 : std::min(n, kWidenBreadth));
  return rows * kWidenDepth;
}

/// Computes the product by calling multiply(block) for blocks with float32 operands.
template <class Multiply>
void multiply_widened(const Product<float>& p, const kernels::RowKernels& kernels, void* scratch, int threads,
                      const Multiply& multiply) {
  if (is_wide(p.a.dtype) && is_wide(p.b.dtype)) {
    multiply(p);
    return;
  }
  float* a_panel = static_cast<float*>(scratch);
  float* b_panel = a_panel + (is_wide(p.a.dtype) ? 0 : std::min(p.m, kWidenBreadth) * kWidenDepth);
  for (int64_t n = 0; n < p.n; n += kWidenBreadth) {
    const int64_t n_size = std::min(kWidenBreadth, p.n - n);
    for (int64_t k = 0; k < p.k; k += kWidenDepth) {
      const int64_t k_size = std::min(kWidenDepth, p.k - k);
      const Operand b = widened(p.b, k, n, k_size, n_size, kernels, b_panel, threads);
      for (int64_t m = 0; m < p.m; m += kWidenBreadth) {
        const int64_t m_size = std::min(kWidenBreadth, p.m - m);
        const Operand a =
            p.a.reordered ? Operand{static_cast<const float*>(p.a.reordered) + m * p.k + k, DType::kFloat32, p.k, false}
                          : widened(p.a, m, k, m_size, k_size, kernels, a_panel, threads);
        multiply({m_size, n_size, k_size, a, b, p.c + m * p.ldc + n, p.ldc, p.accumulate || k > 0});
      }
    }
  }
}

/// Returns the rule of multiply_widened(); rule_of(n, k) is the rule of float32 products of these sizes.
template <class RuleOf>
RowRule widened_rule(const RowFamily& family, int64_t most_rows, const RuleOf& rule_of) {
  if (is_wide(family.a) && is_wide(family.b)) return rule_of(family.n, family.k);
  // The product is a sum of products of panels, and the rule must hold for each of them.
  RowRule rule;
  for (const int64_t n : {std::min(family.n, kWidenBreadth), family.n % kWidenBreadth}) {
    for (const int64_t k : {std::min(family.k, kWidenDepth), family.k % kWidenDepth}) {
      const RowRule panel = rule_of(n, k);
      rule = {panel.row_step, std::max(rule.least_rows, panel.least_rows), panel.class_rows};
    }
  }
  // All rows must be in panels of the same height.
  if (rule.padded(most_rows) > kWidenBreadth) rule.row_step = rule.least_rows = kWidenBreadth;
  return rule;
}

}  // namespace logitless::gemm

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "gemm/openblas_row_rule.h"

#include <strings.h>

#include <algorithm>

namespace logitless::gemm {
namespace {

struct CoreRows {
  std::string_view core;
  int64_t float_step;
  int64_t float_class_rows;
  int64_t double_step;
  bool small_products;  // small products take a path of their own, which sums in another order
};

// These were found by multiplying equal rows and comparing their products bit by bit; gemm_rows_test repeats
// that on the core that runs. The kernels of Haswell and Zen take twelve rows at a time and start the two
// halves at different vocabulary entries, so that the first and the last eight vocabulary entries of each
// panel are summed in two ways.
constexpr CoreRows kCores[] = {
    {"SapphireRapids", 4, 0, 12, true}, {"Cooperlake", 4, 0, 12, true}, {"SkylakeX", 4, 0, 12, true},
    {"Haswell", 12, 6, 4, false},       {"Zen", 12, 6, 4, false},       {"Sandybridge", 4, 0, 4, false},
    {"Nehalem", 8, 0, 8, false},        {"Prescott", 8, 0, 8, false},
};
// Every number of rows that a known kernel takes divides 48.
constexpr CoreRows kUnknown = {"", 48, 6, 48, true};

const CoreRows& rows_of(std::string_view core) {
  for (const CoreRows& known : kCores) {
    if (known.core.size() == core.size() && strncasecmp(known.core.data(), core.data(), core.size()) == 0) return known;
  }
  return kUnknown;
}

// Returns the most rows with which a product takes the path of small ones, as
// sgemm_small_kernel_permit_skylakex.c and its double twin decide it; their first operand is our B.
int64_t most_small_rows(int64_t n, int64_t k, bool b_transposed) {
  constexpr int64_t kMostProducts = 1'000'000;
  constexpr int64_t kMostElements = 1200;  // of the result, where B is transposed
  constexpr int64_t kLeastDepth = 32;      // the same
  const int64_t rows = kMostProducts / n / k;
  if (!b_transposed) return rows;
  return k < kLeastDepth ? 0 : std::min(rows, kMostElements / n);
}

}  // namespace

RowRule openblas_row_rule(std::string_view core, bool in_double, int64_t n, int64_t k, bool b_transposed,
                          int64_t most_rows) {
  const CoreRows& known = rows_of(core);
  RowRule rule;
  rule.row_step = in_double ? known.double_step : known.float_step;
  rule.class_rows = in_double ? 0 : known.float_class_rows;
  rule.least_rows = rule.row_step;
  if (known.small_products && n > 0 && k > 0) {
    // Either this keeps every product from being small, or all are small and nothing has to be avoided.
    const int64_t least = rule.padded(most_small_rows(n, k, b_transposed) + 1);
    if (least <= rule.padded(most_rows)) rule.least_rows = least;
  }
  return rule;
}

}  // namespace logitless::gemm

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "gemm/openblas_core.h"

#include <strings.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>

namespace logitless::gemm {
namespace {

using enum VectorLevel;

/// How many rows the kernels compute together.
struct Rows {
  int64_t float_step;
  int64_t float_class_rows;
  int64_t double_step;
  bool small_products;  // small products run on separate kernels, which sum in another order
};

// The steps of all known kernels divide 48.
constexpr Rows kUnknownRows = {48, 6, 48, true};
// These were found by multiplying equal rows and comparing the bits of their products; gemm_rows_test repeats
// that on the core that runs. The kernels of Haswell and Zen compute twelve rows at a time and start the two
// halves at different vocabulary entries, so the first and the last eight entries of each panel are summed in
// two ways.
constexpr Rows kPrescottRows = {8, 0, 8, false}, kSandybridgeRows = {4, 0, 4, false}, kHaswellRows = {12, 6, 4, false},
               kSkylakeRows = {4, 0, 12, true};

struct Core {
  const char* name;
  VectorLevel level;  // of the CPUs for which it is written
  Rows rows = kUnknownRows;
};

// All cores of x86-64 from OpenBLAS 0.3.21 to 0.3.30.
constexpr Core kCores[] = {
    {"Prescott", kSse, kPrescottRows},
    {"Atom", kSse},
    {"Core2", kSse},
    {"Penryn", kSse},
    {"Dunnington", kSse},
    {"Nehalem", kSse, kPrescottRows},
    {"Athlon", kSse},
    {"Opteron", kSse},
    {"Opteron_SSE3", kSse},
    {"Barcelona", kSse},
    {"Bobcat", kSse},
    {"Nano", kSse},
    {"Sandybridge", kAvx, kSandybridgeRows},
    {"Bulldozer", kAvx},
    {"Piledriver", kAvx},
    {"Steamroller", kAvx},
    {"Excavator", kAvx2},
    {"Haswell", kAvx2, kHaswellRows},
    {"Zen", kAvx2, kHaswellRows},
    {"SkylakeX", kAvx512, kSkylakeRows},
    {"Cooperlake", kAvx512, kSkylakeRows},
    {"SapphireRapids", kAvx512, kSkylakeRows},
};

const Core* find_core(std::string_view name) {
  const auto* found = std::find_if(std::begin(kCores), std::end(kCores), [&](const Core& core) {
    return name.size() == std::strlen(core.name) && strncasecmp(name.data(), core.name, name.size()) == 0;
  });
  return found == std::end(kCores) ? nullptr : found;
}

// Returns the most rows that OpenBLAS's small kernels take, by the rule in
// sgemm_small_kernel_permit_skylakex.c and its double twin. Their first operand is our B.
int64_t most_small_rows(int64_t n, int64_t k, bool b_transposed) {
  constexpr int64_t kMostProducts = 1'000'000;
  constexpr int64_t kMostElements = 1200;  // of the result, if B is transposed
  constexpr int64_t kLeastDepth = 32;      // if B is transposed
  const int64_t rows = kMostProducts / n / k;
  if (!b_transposed) return rows;
  return k < kLeastDepth ? 0 : std::min(rows, kMostElements / n);
}

std::string name_of(VectorLevel level) {
  constexpr const char* kNames[] = {"SSE", "AVX", "AVX2", "AVX-512"};
  return kNames[static_cast<int>(level)];
}

// Returns the core to set on a CPU of this level. Some versions refuse the names Cooperlake and
// SapphireRapids, which have SkylakeX's float64 kernels. Zen has Haswell's.
const char* best_core(VectorLevel cpu) {
  constexpr const char* kNames[] = {"Prescott", "Sandybridge", "Haswell", "SkylakeX"};
  return kNames[static_cast<int>(cpu)];
}

}  // namespace

std::optional<VectorLevel> cpu_vector_level() {
#if defined(__x86_64__)
  // These also check what the operating system saves (XGETBV).
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx")) return VectorLevel::kSse;
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return VectorLevel::kAvx;
  const bool all_of_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                             __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
                             __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("bmi") &&
                             __builtin_cpu_supports("bmi2");
  return all_of_avx512 ? VectorLevel::kAvx512 : VectorLevel::kAvx2;
#else
  return std::nullopt;
#endif
}

std::optional<VectorLevel> core_vector_level(std::string_view core) {
  const Core* known = find_core(core);
  return known ? std::optional(known->level) : std::nullopt;
}

bool is_narrower(std::string_view core, VectorLevel level) {
  const std::optional<VectorLevel> known = core_vector_level(core);
  return known && *known < level;
}

std::string narrow_core_warning(std::string_view core, std::optional<VectorLevel> cpu, std::string_view products) {
  if (!cpu || !is_narrower(core, *cpu)) return "";
  constexpr const char* kVariable = "OPENBLAS_CORETYPE";
  const std::string text = "OpenBLAS multiplies " + std::string(products) + " with its " + std::string(core) +
                           " kernels (" + name_of(*core_vector_level(core)) + "), but this CPU has " + name_of(*cpu) +
                           ": ";
  const std::string wide = std::string(kVariable) + "=" + best_core(*cpu);
  if (const char* asked = std::getenv(kVariable)) {
    return text + kVariable + "=" + asked + " is set; unset it, or set " + wide;
  }
  return text + "set " + wide + ", or install a newer OpenBLAS";
}

RowRule openblas_row_rule(std::string_view core, bool in_double, int64_t n, int64_t k, bool b_transposed,
                          int64_t most_rows) {
  const Core* known = find_core(core);
  const Rows rows = known ? known->rows : kUnknownRows;
  RowRule rule;
  rule.row_step = in_double ? rows.double_step : rows.float_step;
  rule.class_rows = in_double ? 0 : rows.float_class_rows;
  rule.least_rows = rule.row_step;
  if (rows.small_products && n > 0 && k > 0) {
    // Either no product is small, or all are.
    const int64_t least = rule.padded(most_small_rows(n, k, b_transposed) + 1);
    if (least <= rule.padded(most_rows)) rule.least_rows = least;
  }
  return rule;
}

}  // namespace logitless::gemm

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "gemm/openblas_core.h"

#include <strings.h>

#include <cstdlib>

namespace logitless::gemm {
namespace {

struct Core {
  const char* name;
  VectorLevel level;
};

// All cores of x86-64 from OpenBLAS 0.3.21 to 0.3.30, each with the generation of the CPUs that it
// is written for.
constexpr Core kCores[] = {
    {"Prescott", VectorLevel::kSse},      {"Atom", VectorLevel::kSse},
    {"Core2", VectorLevel::kSse},         {"Penryn", VectorLevel::kSse},
    {"Dunnington", VectorLevel::kSse},    {"Nehalem", VectorLevel::kSse},
    {"Athlon", VectorLevel::kSse},        {"Opteron", VectorLevel::kSse},
    {"Opteron_SSE3", VectorLevel::kSse},  {"Barcelona", VectorLevel::kSse},
    {"Bobcat", VectorLevel::kSse},        {"Nano", VectorLevel::kSse},
    {"Sandybridge", VectorLevel::kAvx},   {"Bulldozer", VectorLevel::kAvx},
    {"Piledriver", VectorLevel::kAvx},    {"Steamroller", VectorLevel::kAvx},
    {"Excavator", VectorLevel::kAvx2},    {"Haswell", VectorLevel::kAvx2},
    {"Zen", VectorLevel::kAvx2},          {"SkylakeX", VectorLevel::kAvx512},
    {"Cooperlake", VectorLevel::kAvx512}, {"SapphireRapids", VectorLevel::kAvx512},
};

std::string name_of(VectorLevel level) {
  constexpr const char* kNames[] = {"SSE", "AVX", "AVX2", "AVX-512"};
  return kNames[static_cast<int>(level)];
}

// Returns the core to ask for on a CPU of this level. Cooperlake and SapphireRapids have SkylakeX's float64
// kernels but are names that some versions refuse, and Zen has Haswell's.
const char* best_core(VectorLevel cpu) {
  constexpr const char* kNames[] = {"Prescott", "Sandybridge", "Haswell", "SkylakeX"};
  return kNames[static_cast<int>(cpu)];
}

}  // namespace

std::optional<VectorLevel> cpu_vector_level() {
#if defined(__x86_64__)
  // The compiler's own tests ask the operating system (XGETBV) as well.
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
  const std::string name(core);
  for (const Core& known : kCores) {
    if (strcasecmp(name.c_str(), known.name) == 0) return known.level;
  }
  return std::nullopt;
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

}  // namespace logitless::gemm

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The facts about OpenBLAS's kernels, and the warning if they are narrower than the CPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <vector>

#include "gemm/openblas_core.h"
#include "support/environment_variable.h"

namespace logitless::testing {
namespace blas_kernels_test {

using enum gemm::VectorLevel;

constexpr const char* kVariable = "OPENBLAS_CORETYPE";

TEST(BlasCores, LevelsOfAllCoresAreKnown) {
  const std::map<gemm::VectorLevel, std::vector<const char*>> cores = {
      {kSse,
       {"Prescott", "Atom", "Core2", "Penryn", "Dunnington", "Nehalem", "Athlon", "Opteron", "Opteron_SSE3",
        "Barcelona", "Bobcat", "Nano"}},
      {kAvx, {"Sandybridge", "Bulldozer", "Piledriver", "Steamroller"}},
      {kAvx2, {"Excavator", "Haswell", "Zen", "HASWELL", "zen"}},
      {kAvx512, {"SkylakeX", "Cooperlake", "SapphireRapids", "SKYLAKEX"}}};
  for (const auto& [level, names] : cores) {
    for (const char* name : names) EXPECT_EQ(gemm::core_vector_level(name), level) << name;
  }
  for (const char* name : {"", "Unknown", "generic", "NEOVERSEN1", "POWER9", "Zen6"}) {
    EXPECT_EQ(gemm::core_vector_level(name), std::nullopt) << name;
    EXPECT_FALSE(gemm::is_narrower(name, kAvx512)) << name;
  }
}

// Linux lists avx and avx512 only if it saves their registers, so the flags say what a process can use.
TEST(BlasCores, TheCpusLevelIsThatOfItsFlags) {
  std::ifstream file("/proc/cpuinfo");
  std::set<std::string> flags;
  for (std::string line; flags.empty() && std::getline(file, line);) {
    if (!line.starts_with("flags")) continue;
    std::istringstream words(line);
    for (std::string word; words >> word;) flags.insert(word);
  }
#if defined(__x86_64__)
  if (flags.empty()) GTEST_SKIP() << "/proc/cpuinfo has no flags";
  const auto has = [&](std::initializer_list<const char*> names) {
    return std::all_of(names.begin(), names.end(), [&](const char* name) { return flags.contains(name); });
  };
  gemm::VectorLevel level = kSse;
  if (has({"avx"})) level = kAvx;
  if (has({"avx", "avx2", "fma"})) level = kAvx2;
  if (has({"avx", "avx2", "fma", "avx512f", "avx512dq", "avx512bw", "avx512vl", "avx512cd"})) level = kAvx512;
  EXPECT_EQ(gemm::cpu_vector_level(), level);
#else
  EXPECT_EQ(gemm::cpu_vector_level(), std::nullopt);
#endif
}

TEST(BlasCores, TheWarningSaysWhatToDo) {
  const std::tuple<const char*, gemm::VectorLevel, const char*> cases[] = {
      {"Prescott", kAvx512,
       "OpenBLAS multiplies float64 with its Prescott kernels (SSE), but this CPU has AVX-512: set "
       "OPENBLAS_CORETYPE=SkylakeX, or "
       "install a newer OpenBLAS"},
      {"Sandybridge", kAvx2,
       "OpenBLAS multiplies float64 with its Sandybridge kernels (AVX), but this CPU has AVX2: set "
       "OPENBLAS_CORETYPE=Haswell, or "
       "install a newer OpenBLAS"},
      {"SkylakeX", kAvx512, ""},
      {"Generic", kAvx512, ""},
  };
  const EnvironmentVariable unset(kVariable, std::nullopt);
  for (const auto& [core, cpu, text] : cases) EXPECT_EQ(gemm::narrow_core_warning(core, cpu, "float64"), text);
  EXPECT_EQ(gemm::narrow_core_warning("Prescott", std::nullopt, "float64"), "") << "not an x86-64";
  const EnvironmentVariable set(kVariable, "Prescott");
  EXPECT_EQ(gemm::narrow_core_warning("Prescott", kAvx512, "float32 and float64"),
            "OpenBLAS multiplies float32 and float64 with its Prescott kernels (SSE), but this CPU has AVX-512: "
            "OPENBLAS_CORETYPE=Prescott is set; unset it, or set OPENBLAS_CORETYPE=SkylakeX");
}

}  // namespace blas_kernels_test
}  // namespace logitless::testing

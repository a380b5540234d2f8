// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Which kernels the BLAS runs: what is known of them, and what use_best_blas_kernels() does in each case.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <new>
#include <set>
#include <sstream>

#include "gemm/openblas_core.h"
#include "logitless/logitless.h"
#include "support/environment_variable.h"

namespace logitless::testing {
namespace {

using enum gemm::VectorLevel;

constexpr const char* kVariable = "OPENBLAS_CORETYPE";

// A BLAS that has some cores and chooses one as OpenBLAS does.
struct FakeBlas {
  std::optional<gemm::VectorLevel> cpu = kAvx512;
  std::string detected = "Prescott";
  std::set<std::string> cores = {"Prescott", "Nehalem", "Sandybridge", "Haswell", "SkylakeX"};
  std::function<bool()> multiplies_right = [] { return true; };
  std::string core = detected;
  int choices = 0;

  gemm::CoreSwitch core_switch() {
    core = detected;
    gemm::CoreSwitch out;
    out.cpu = cpu;
    out.core = [this] { return core; };
    out.quit = [this] { core = ""; };
    out.init = [this] {
      EXPECT_EQ(core, "") << "OpenBLAS ignores init() without quit()";
      const char* asked = getenv(kVariable);
      core = asked && cores.contains(asked) ? asked : detected;
      ++choices;
    };
    out.multiplies_right = [this] { return multiplies_right(); };
    return out;
  }
};

void expect_stays(FakeBlas& blas, BlasKernelsOutcome outcome, const std::string& reason) {
  const BlasKernels result = gemm::use_best_kernels(blas.core_switch());
  EXPECT_STREQ(name_of(result.outcome), name_of(outcome));
  EXPECT_EQ(result.reason, reason);
  EXPECT_EQ(result.before, blas.detected);
  EXPECT_EQ(result.after, blas.detected);
  EXPECT_EQ(blas.core, blas.detected);
}

class BlasCores : public ::testing::Test {
 private:
  // The suite may run under a core of the user's choice
  const EnvironmentVariable unset_{kVariable, std::nullopt};
};

TEST_F(BlasCores, LevelsOfAllCoresAreKnown) {
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
  }
}

// The kernel lists a flag where it supports the registers that go with it.
TEST_F(BlasCores, TheCpusLevelIsThatOfItsFlags) {
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

TEST_F(BlasCores, NarrowOnesAreSwitchedToTheCpus) {
  const std::tuple<const char*, gemm::VectorLevel, const char*> cases[] = {
      {"Prescott", kAvx512, "SkylakeX"}, {"Haswell", kAvx512, "SkylakeX"},  {"ZEN", kAvx512, "SkylakeX"},
      {"Nehalem", kAvx2, "Haswell"},     {"Sandybridge", kAvx2, "Haswell"}, {"Nehalem", kAvx, "Sandybridge"}};
  for (const auto& [detected, cpu, wanted] : cases) {
    FakeBlas blas{.cpu = cpu, .detected = detected};
    const BlasKernels result = gemm::use_best_kernels(blas.core_switch());
    EXPECT_STREQ(name_of(result.outcome), "switched") << detected;
    EXPECT_EQ(result.before, detected);
    EXPECT_EQ(result.after, wanted);
    EXPECT_EQ(blas.core, wanted);
    EXPECT_EQ(getenv(kVariable), nullptr);
  }
}

TEST_F(BlasCores, FittingOnesStay) {
  const std::pair<const char*, gemm::VectorLevel> cases[] = {
      {"SkylakeX", kAvx512}, {"Cooperlake", kAvx512}, {"SapphireRapids", kAvx512}, {"Cooperlake", kAvx2},
      {"Zen", kAvx2},        {"Excavator", kAvx2},    {"Bulldozer", kAvx},         {"Barcelona", kSse}};
  for (const auto& [detected, cpu] : cases) {
    FakeBlas blas{.cpu = cpu, .detected = detected};
    EXPECT_STREQ(name_of(gemm::use_best_kernels(blas.core_switch()).outcome), "fit") << detected;
    EXPECT_EQ(blas.core, detected);
    EXPECT_EQ(blas.choices, 0);
    EXPECT_EQ(gemm::core_warning(blas.core_switch()), "");
  }
}

TEST_F(BlasCores, TheUsersChoiceStays) {
  for (const char* asked : {"Prescott", "SkylakeX", "nobody", ""}) {
    const EnvironmentVariable variable(kVariable, asked);
    FakeBlas blas;
    expect_stays(blas, BlasKernelsOutcome::kUserChose,
                 "OPENBLAS_CORETYPE=" + std::string(asked) + " is set and obeyed");
    EXPECT_EQ(blas.choices, 0);
    EXPECT_STREQ(getenv(kVariable), asked);
  }
}

TEST_F(BlasCores, UnknownOnesStayWithoutAClaim) {
  FakeBlas blas{.detected = "Generic"};
  expect_stays(blas, BlasKernelsOutcome::kUnknown, "how wide kernels named Generic are is not known");
  EXPECT_EQ(gemm::core_warning(blas.core_switch()), "");
  FakeBlas arm{.cpu = std::nullopt, .detected = "Prescott"};
  expect_stays(arm, BlasKernelsOutcome::kUnknown, "only on x86-64 is it known which kernels a CPU can run");
  EXPECT_EQ(gemm::core_warning(arm.core_switch()), "");
  EXPECT_EQ(blas.choices + arm.choices, 0);
}

TEST_F(BlasCores, ALibraryWithOneCoreKeepsIt) {
  FakeBlas blas{.detected = "SANDYBRIDGE"};
  for (const bool has_quit : {false, true}) {
    gemm::CoreSwitch fixed = blas.core_switch();
    (has_quit ? fixed.init : fixed.quit) = nullptr;
    const BlasKernels result = gemm::use_best_kernels(fixed);
    EXPECT_STREQ(name_of(result.outcome), "fixed");
    EXPECT_EQ(result.after, "SANDYBRIDGE");
    EXPECT_EQ(gemm::core_warning(fixed),
              "the BLAS runs its SANDYBRIDGE kernels (AVX), but this CPU has AVX-512: it has no others; install an "
              "OpenBLAS that was built with DYNAMIC_ARCH");
  }
  EXPECT_EQ(blas.choices, 0);
}

TEST_F(BlasCores, FormerOnesComeBackWhereTheBestAreMissing) {
  FakeBlas blas{.cores = {"Prescott", "Haswell"}};
  expect_stays(blas, BlasKernelsOutcome::kFailed, "this BLAS has no SkylakeX kernels");
  EXPECT_EQ(getenv(kVariable), nullptr);
}

TEST_F(BlasCores, FormerOnesComeBackAfterAWrongProduct) {
  FakeBlas wrong{.multiplies_right = [] { return false; }};
  expect_stays(wrong, BlasKernelsOutcome::kFailed, "its SkylakeX kernels gave a wrong product");
  FakeBlas poor{.multiplies_right = []() -> bool { throw std::bad_alloc(); }};
  expect_stays(poor, BlasKernelsOutcome::kFailed, "the trial products found no memory");
  EXPECT_EQ(wrong.choices, 2);
  EXPECT_EQ(poor.choices, 2);
}

TEST_F(BlasCores, TheWarningSaysWhatToDo) {
  FakeBlas blas;
  EXPECT_EQ(gemm::core_warning(blas.core_switch()),
            "the BLAS runs its Prescott kernels (SSE), but this CPU has AVX-512: call "
            "logitless::use_best_blas_kernels() first thing in main(), or set OPENBLAS_CORETYPE=SkylakeX");
  const EnvironmentVariable variable(kVariable, "Prescott");
  EXPECT_EQ(gemm::core_warning(blas.core_switch()),
            "the BLAS runs its Prescott kernels (SSE), but this CPU has AVX-512: OPENBLAS_CORETYPE=Prescott is set and "
            "obeyed; unset it and call logitless::use_best_blas_kernels(), as the command does, or set SkylakeX");
}

TEST_F(BlasCores, TrialProductsOfThisMachineAreRight) { EXPECT_TRUE(gemm::openblas_core_switch().multiplies_right()); }

// What the probe prints, by name.
using Report = std::map<std::string, std::string>;

class BlasCoresOfAProcess : public BlasCores {
 protected:
  void SetUp() override {
    const gemm::CoreSwitch blas = gemm::openblas_core_switch();
    if (!blas.init) GTEST_SKIP() << "this BLAS has one set of kernels";
    if (blas.cpu.value_or(kSse) == kSse) GTEST_SKIP() << "this CPU has nothing above SSE";
    best_ = *blas.cpu == kAvx512 ? "SkylakeX" : *blas.cpu == kAvx2 ? "Haswell" : "Sandybridge";
    const char* const kNames[] = {"SSE", "AVX", "AVX2", "AVX-512"};
    has_ = "but this CPU has " + std::string(kNames[static_cast<int>(*blas.cpu)]) + ": ";
  }
  static Report probe(const std::string& begins_with, std::optional<std::string> asked = {}) {
    const EnvironmentVariable variable(kVariable, asked);
    FILE* command = popen((BLAS_KERNELS_PROBE_PATH " " + begins_with).c_str(), "r");
    if (!command) return {};
    std::string text;
    for (char buffer[256]; std::fgets(buffer, sizeof buffer, command);) text += buffer;
    EXPECT_EQ(pclose(command), 0) << text;
    Report report;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      report[line.substr(0, line.find('='))] = line.substr(line.find('=') + 1);
    }
    EXPECT_EQ(report["warning before"],
              report["warnings before"].find("kernels (") == std::string::npos ? "" : report["warnings before"]);
    EXPECT_EQ(report["loss before"], "1.945910");  // log(7)
    EXPECT_EQ(report["loss after"], "1.945910");
    EXPECT_EQ(report["large product"], "right");
    EXPECT_EQ(report["variable"], asked.value_or(""));
    return report;
  }

  std::string best_, has_;
};

// Nor does any call before it help itself: the Context and the loss leave the core as it is.
TEST_F(BlasCoresOfAProcess, AnUnknownCpuIsCured) {
  for (const std::string core : {"Prescott", "Nehalem", "Sandybridge", "Haswell"}) {
    if (*gemm::core_vector_level(core) >= *gemm::cpu_vector_level()) continue;
    SCOPED_TRACE(core);
    Report report = probe(core);
    EXPECT_EQ(report["core before"], core);
    EXPECT_NE(report["warning before"].find("runs its " + core + " kernels"), std::string::npos);
    EXPECT_NE(report["warning before"].find(has_ + "call logitless::use_best_blas_kernels()"), std::string::npos);
    EXPECT_EQ(report["outcome"], "switched") << report["reason"];
    EXPECT_EQ(report["before"], core);
    EXPECT_EQ(report["after"], best_);
    EXPECT_EQ(report["core after"], best_);
    EXPECT_EQ(report["warning after"], "");
    EXPECT_EQ(report["outcome again"], "fit");
  }
}

TEST_F(BlasCoresOfAProcess, TheUserIsObeyed) {
  Report report = probe("", "Prescott");
  EXPECT_EQ(report["outcome"], "user_chose");
  EXPECT_EQ(report["core before"], "Prescott");
  EXPECT_EQ(report["core after"], "Prescott");
  EXPECT_EQ(report["reason"], "OPENBLAS_CORETYPE=Prescott is set and obeyed");
  EXPECT_EQ(report["warning before"], report["warning after"]);
  EXPECT_NE(report["warning after"].find(has_ + "OPENBLAS_CORETYPE=Prescott is set and obeyed; unset it"),
            std::string::npos);
}

TEST_F(BlasCoresOfAProcess, AnotherChoiceOfTheUserThatFitsIsNoReasonToWarn) {
  Report report = probe("", best_);
  EXPECT_EQ(report["outcome"], "user_chose");
  EXPECT_EQ(report["core after"], best_);
  EXPECT_EQ(report["warning after"], "");
}

TEST_F(BlasCoresOfAProcess, ACoreThatFitsIsLeftAlone) {
  Report report = probe(best_);
  EXPECT_EQ(report["outcome"], "fit");
  EXPECT_EQ(report["core before"], best_);
  EXPECT_EQ(report["core after"], best_);
  EXPECT_EQ(report["warning before"], "");
}

}  // namespace
}  // namespace logitless::testing

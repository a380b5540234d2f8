// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// What `logitless info` and a comparison say of the BLAS's kernels.
#include <gtest/gtest.h>

#include "cli_fixture.h"
#include "gemm/openblas_core.h"
#include "support/environment_variable.h"

namespace logitless::testing {
namespace {

class InfoCliTest : public CliTest {
 protected:
  void SetUp() override {
    const gemm::CoreSwitch blas = gemm::openblas_core_switch();
    if (!blas.init) GTEST_SKIP() << "this BLAS has one set of kernels";
    if (blas.cpu.value_or(gemm::VectorLevel::kSse) < gemm::VectorLevel::kAvx2) GTEST_SKIP() << "this CPU is too old";
    const bool wide = *blas.cpu == gemm::VectorLevel::kAvx512;
    best_ = wide ? "SkylakeX" : "Haswell";
    level_ = wide ? "AVX-512" : "AVX2";
  }
  static std::string line_of(const std::string& text, const std::string& name) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with(name)) return line.substr(13);
    }
    return "";
  }
  static json parsed(const Finished& run) {
    EXPECT_EQ(run.exit_code(), 0) << run.err;
    EXPECT_EQ(run.err, "");
    return json::parse(run.out);
  }

  std::string best_, level_;
};

// Runs what it starts with an OpenBLAS that takes this CPU for a much older one.
class OlderBlas {
 private:
  EnvironmentVariable user_{"OPENBLAS_CORETYPE", std::nullopt};
  EnvironmentVariable core_{"OLDER_CORE", "Prescott"};
  EnvironmentVariable library_{"LD_PRELOAD", OLDER_CORE_PATH};
  EnvironmentVariable sanitizer_{"ASAN_OPTIONS", "verify_asan_link_order=0"};
};

TEST_F(InfoCliTest, SaysWhatTheCommandSwitched) {
  const OlderBlas older;
  const Finished text = run({"info"});
  EXPECT_EQ(text.exit_code(), 0) << text.err;
  EXPECT_EQ(line_of(text.out, "blas core"), best_ +
                                                ", switched from Prescott: the Prescott kernels (SSE) are narrower "
                                                "than this CPU (" +
                                                level_ + ")");
  EXPECT_FALSE(has(text.out, "kernels (SSE), but")) << text.out;
  const json e = parsed(run({"info", "--json"}));
  EXPECT_EQ(e["blas_core"], best_);
  EXPECT_EQ(e["blas_kernels"]["outcome"], "switched");
  EXPECT_EQ(e["blas_kernels"]["before"], "Prescott");
  EXPECT_EQ(e["blas_kernels"]["after"], best_);
}

TEST_F(InfoCliTest, SaysThatTheUserIsObeyed) {
  const EnvironmentVariable asked("OPENBLAS_CORETYPE", "Prescott");
  const Finished text = run({"info"});
  EXPECT_EQ(line_of(text.out, "blas core"), "Prescott, left as it was: OPENBLAS_CORETYPE=Prescott is set and obeyed");
  EXPECT_EQ(line_of(text.out, "warning"), "the BLAS runs its Prescott kernels (SSE), but this CPU has " + level_ +
                                              ": OPENBLAS_CORETYPE=Prescott is set and obeyed; unset it and call "
                                              "logitless::use_best_blas_kernels(), as the command does, or set " +
                                              best_);
  EXPECT_EQ(parsed(run({"info", "--json"}))["blas_kernels"]["outcome"], "user_chose");
}

TEST_F(InfoCliTest, SaysNothingOfACoreThatFits) {
  const EnvironmentVariable nobody("OPENBLAS_CORETYPE", std::nullopt);
  const json e = parsed(run({"info", "--json"}));
  for (const json& warning : e["warnings"]) EXPECT_FALSE(has(warning, "kernels (")) << warning;
  if (e["blas_kernels"]["outcome"] != "fit") GTEST_SKIP() << "this OpenBLAS does not know this CPU";
  EXPECT_EQ(line_of(run({"info"}).out, "blas core"), e["blas_core"]);
}

TEST_F(InfoCliTest, AComparisonRunsOnTheSwitchedKernels) {
  const OlderBlas older;
  const json r = report({"threads=1"});
  EXPECT_EQ(r["environment"]["blas_core"], best_);
}

TEST_F(InfoCliTest, AComparisonWarnsOfTheUsersNarrowKernels) {
  const EnvironmentVariable asked("OPENBLAS_CORETYPE", "Nehalem");
  const Finished text = compare({"threads=1"});
  EXPECT_EQ(text.exit_code(), 0) << text.err;
  EXPECT_TRUE(has(text.out, "warning: the BLAS runs its Nehalem kernels (SSE), but this CPU has " + level_));
}

}  // namespace
}  // namespace logitless::testing

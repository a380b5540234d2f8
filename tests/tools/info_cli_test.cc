// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The output of `logitless info` and of comparisons about the kernels for products.
#include <gtest/gtest.h>

#include <tuple>

#include "cli_fixture.h"
#include "gemm/openblas_core.h"
#include "support/environment_variable.h"

namespace logitless::testing {
namespace info_cli_test {

// OPENBLAS_CORETYPE=Prescott simulates an OpenBLAS that mistakes this CPU for a much older one.
class InfoCliTest : public CliTest {
 protected:
  void SetUp() override {
    const std::optional<gemm::VectorLevel> cpu = gemm::cpu_vector_level();
    if (cpu.value_or(gemm::VectorLevel::kSse) < gemm::VectorLevel::kAvx2) GTEST_SKIP() << "this CPU is too old";
    const EnvironmentVariable older("OPENBLAS_CORETYPE", "Prescott");
    if (facts()["blas_core"] != "Prescott") GTEST_SKIP() << "this BLAS has one set of kernels";
    level_ = *cpu == gemm::VectorLevel::kAvx512 ? "AVX-512" : "AVX2";
    best_ = *cpu == gemm::VectorLevel::kAvx512 ? "SkylakeX" : "Haswell";
  }
  static std::string line_of(const std::string& text, const std::string& name) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with(name)) return line.substr(13);
    }
    return "";
  }
  json facts() {
    const Finished run = CliTest::run({"info", "--json"});
    EXPECT_EQ(run.exit_code(), 0) << run.err;
    EXPECT_EQ(run.err, "");
    return json::parse(run.out);
  }
  std::string narrow(const std::string& products, const std::string& core) const {
    return "OpenBLAS multiplies " + products + " with its " + core + " kernels (SSE), but this CPU has " + level_ +
           ": OPENBLAS_CORETYPE=" + core + " is set; unset it, or set OPENBLAS_CORETYPE=" + best_;
  }

  std::string level_, best_;
};

TEST_F(InfoCliTest, Float32GoesToOneDnnWhereOpenBlasIsNarrower) {
  const EnvironmentVariable older("OPENBLAS_CORETYPE", "Prescott");
  const EnvironmentVariable whole("DNNL_MAX_CPU_ISA", std::nullopt), on("LOGITLESS_ONEDNN", std::nullopt);
  const json e = facts();
  if (!has(e["gemm_float32"], "oneDNN")) GTEST_SKIP() << "built without oneDNN";
  EXPECT_TRUE(has(e["gemm_float32"], "(" + level_ + ")"));
  const Finished text = run({"info"});
  EXPECT_EQ(line_of(text.out, "float32"), e["gemm_float32"]);
  EXPECT_EQ(line_of(text.out, "blas core"), "Prescott");
  EXPECT_EQ(line_of(text.out, "warning"), narrow("float64", "Prescott"));
  EXPECT_EQ(report(compare({"threads=1"}))["environment"]["gemm_float32"], e["gemm_float32"]);
}

TEST_F(InfoCliTest, WithoutOneDnnFloat32StaysWithOpenBlasAndIsWarnedOf) {
  const EnvironmentVariable older("OPENBLAS_CORETYPE", "Nehalem"), off("LOGITLESS_ONEDNN", "0");
  EXPECT_EQ(facts()["gemm_float32"], "OpenBLAS (Nehalem)");
  EXPECT_EQ(line_of(run({"info"}).out, "warning"), narrow("float32 and float64", "Nehalem"));
  EXPECT_TRUE(has(run(compare({"threads=1"})).out, "warning: " + narrow("float32 and float64", "Nehalem")));
  for (const json& name : facts()["gemm_backends"]) EXPECT_NE(name, "onednn");
}

TEST_F(InfoCliTest, NothingIsSaidOfACoreThatFits) {
  const EnvironmentVariable fits("OPENBLAS_CORETYPE", best_);
  const json e = facts();
  if (e["blas_core"] != best_) GTEST_SKIP() << "this OpenBLAS has no " << best_ << " kernels";
  EXPECT_EQ(e["gemm_float32"], "OpenBLAS (" + best_ + ")");
  for (const json& warning : e["warnings"]) EXPECT_FALSE(has(warning, "kernels (")) << warning;
}

TEST_F(CliTest, AnEmulatedTileUnitComesFirstAndIsWarnedOf) {
  for (const auto& [variable, backend, unit] :
       {std::tuple{"LOGITLESS_AMX", "amx", "AMX"}, std::tuple{"LOGITLESS_BFMMLA", "bfmmla", "BFMMLA"}}) {
    const EnvironmentVariable emulated(variable, "emulated");
    const Finished text = run({"info", "--json"});
    ASSERT_EQ(text.exit_code(), 0) << text.err;
    const json e = json::parse(text.out);
    EXPECT_EQ(e["gemm_backend"], backend);
    EXPECT_EQ(e["gemm_bf16"], std::string("logitless (") + unit + ", emulated)");
    EXPECT_TRUE(has(e["warnings"].dump(), std::string(variable) + " is \\\"emulated\\\"")) << e["warnings"];
  }
}

}  // namespace info_cli_test
}  // namespace logitless::testing

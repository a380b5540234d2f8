// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Parts of commands that their output does not show: seeded inputs, the end of a measuring process,
// statistics, units and tolerances.
#include <gtest/gtest.h>
#include <omp.h>
#include <signal.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "cli/common/inputs.h"
#include "cli/common/output.h"
#include "cli/measure/process.h"
#include "core/matrices.h"
#include "dense/large_gemm.h"
#include "io/error.h"
#include "io/seeded_inputs.h"
#include "io/tolerances.h"
#include "timing/statistics.h"

namespace logitless::cli {
namespace commands_test {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN(), kInfinity = std::numeric_limits<double>::infinity();

// Draws hit a share p of n tokens within 6 standard deviations; this fails for one seed in 10^9.
TEST(SeededInputs, ShareOfTargetsThatAreIgnored) {
  for (const double fraction : {0.0, 0.25, 1.0}) {
    const Inputs inputs = make_seeded_inputs(io::load_config(
        std::nullopt, std::vector<std::string>{"model={hidden_size: 4, vocab_size: 5000}", "seq_len=20000",
                                               "ignored_fraction=" + std::to_string(fraction), "ignore_index=-7"}));
    const auto targets = inputs.job["targets"].values<int32_t>();
    ASSERT_EQ(targets.size(), 20000u);
    const auto expect_share = [&](double p, const auto& counts) {
      const auto hits = static_cast<double>(std::ranges::count_if(targets, counts));
      EXPECT_NEAR(hits / 20000, p, 6 * std::sqrt(p * (1 - p) / 20000));
    };
    expect_share(fraction, [](int32_t target) { return target == -7; });
    expect_share((1 - fraction) / 2, [](int32_t target) { return target >= 0 && target < 2500; });
    expect_share((1 - fraction) / 2, [](int32_t target) { return target >= 2500 && target < 5000; });
  }
}

TEST(SeededInputs, AreTheSameForEveryNumberOfThreadsAndRoundToTheirType) {
  const int before = omp_get_max_threads();
  const auto head = [](int threads, bool turned, uint64_t seed = 5) {
    omp_set_num_threads(threads);
    std::vector<float> out(33 * 257);
    io::SeededNumbers(seed, "lm_head").fill(DType::kFloat32, 4, 257, 33, out.data(), turned);
    return out;
  };
  for (const bool turned : {false, true}) {
    for (const int threads : {2, 3, 7}) EXPECT_EQ(head(threads, turned), head(1, turned)) << threads;
  }
  EXPECT_NE(head(1, false, 1), head(1, false, 2));
  omp_set_num_threads(before);
  std::vector<float> narrow(64);
  std::vector<bfloat16> rounded(64);
  std::vector<double> wide(64);
  io::SeededNumbers(1, "hidden").fill(DType::kFloat32, 1, 8, 8, narrow.data());
  io::SeededNumbers(1, "hidden").fill(DType::kBFloat16, 1, 8, 8, rounded.data());
  io::SeededNumbers(1, "hidden").fill(DType::kFloat64, 1, 8, 8, wide.data());
  for (size_t i = 0; i < narrow.size(); ++i) {
    EXPECT_EQ(rounded[i].bits, io::to_bfloat16(narrow[i]).bits);
    EXPECT_EQ(wide[i], narrow[i]);
  }
}

TEST(RunApart, EveryEndOfAChildIsToldApart) {
  const auto nobody = [](const auto&) {};
  const Outcome silent = run_apart([](const OnTurn&) -> Json { throw std::runtime_error(""); }, nobody);
  EXPECT_EQ(silent.result, "");
  EXPECT_EQ(silent.why, "failed without a message");
  EXPECT_FALSE(silent.died || silent.bad_input);
  const auto die = [](const OnTurn& on_turn) -> Json {
    on_turn("dense", "dense, turn 1 of 2");
    raise(SIGKILL);
    return {};
  };
  const Outcome killed = run_apart(die, nobody);
  EXPECT_TRUE(killed.died);
  EXPECT_EQ(killed.contender, "dense");
  EXPECT_TRUE(killed.why.starts_with("was killed by signal 9")) << killed.why;
  const Outcome refused = run_apart([](const OnTurn&) -> Json { throw io::Error("no such file"); }, nobody);
  EXPECT_TRUE(refused.bad_input && !refused.died);
  EXPECT_EQ(refused.why, "no such file");
  EXPECT_EQ(run_apart([](const OnTurn&) { return Json{{"a", 1}}; }, nobody).result, "{\"a\":1}");
}

TEST(Units, FiguresReadAsPeopleWriteThem) {
  EXPECT_EQ(human_bytes(512), "512 B");
  EXPECT_EQ(human_bytes(9751757), "9.3 MiB");
  EXPECT_EQ(human_bytes(1245540516), "1.16 GiB");
  EXPECT_EQ(human_bytes(int64_t{1} << 62), "4194304.00 TiB");
  EXPECT_EQ(human_seconds(0), "0.00 µs");
  EXPECT_EQ(human_seconds(0.0857), "85.7 ms");
  EXPECT_EQ(human_seconds(0.0009999), "1.00 ms");
  EXPECT_EQ(human_seconds(0.9999), "1.00 s");
  EXPECT_EQ(human_seconds(9.999), "10.0 s");
  EXPECT_EQ(human_seconds(123.4), "123 s");
  EXPECT_EQ(time_ratio(1.006), "1.01×");
  EXPECT_EQ(time_ratio(0.0123), "0.012×");
  EXPECT_EQ(fixed(kInfinity, 2), "∞");
  EXPECT_EQ(fixed(kNaN, 2), "NaN");
  EXPECT_EQ(fixed(std::numeric_limits<double>::max(), 2).size(), 312u);
}

TEST(Statistics, MediansAndQuartilesLieBetweenNeighbours) {
  using namespace timing;
  EXPECT_EQ(median({3}), 3);
  EXPECT_EQ(median({4, 1, 3, 2}), 2.5);
  EXPECT_EQ(median({kInfinity, 1, 2}), 2);
  EXPECT_EQ(quantile({5, 1}, 1), 5);
  EXPECT_EQ(quantile({1, 2, 3, 4}, 0.75), 3.25);
  EXPECT_EQ(spread({7}), 0);
  EXPECT_EQ(spread({1, 9, 5, 3, 7}), 2);
}

TEST(LargeGemm, RunsInEveryType) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kBFloat16, DType::kFloat16}) {
    dense::LargeGemm gemm(Context({.threads = 1}), dtype);
    gemm.run();
    EXPECT_EQ(gemm.flops(), 2.0 * 1024 * 1024 * 2048);
  }
}

TEST(Tolerances, ADifferenceOfNaNFailsItsGate) {
  EXPECT_TRUE(io::make_gate("g", 1, 1).pass && io::make_gate("g", 0, 0).pass);
  for (const auto& [value, limit] :
       {std::pair(1.0000001, 1.0), {kNaN, 1.0}, {kNaN, kInfinity}, {0.0, kNaN}, {kInfinity, 1.0}}) {
    EXPECT_FALSE(io::make_gate("g", value, limit).pass) << value << " " << limit;
  }
}

TEST(Tolerances, FollowTheTypesAndTheSize) {
  const io::Tolerances single = io::tolerances_of(DType::kFloat32, DType::kFloat32);
  EXPECT_TRUE(single.loss_atol == 1e-5 && single.d_hidden_rel_l2 == 1e-5 && single.of_head_rel_l2 == 1e-5);
  EXPECT_EQ(io::tolerances_of(DType::kBFloat16, DType::kFloat32).of_head_rel_l2, 1e-5);
  EXPECT_NEAR(io::tolerances_of(DType::kBFloat16, DType::kBFloat16).of_head_rel_l2, std::sqrt(1e-5 / 128), 1e-6);
  EXPECT_LT(io::tolerances_of(DType::kFloat64, DType::kFloat64).loss_atol, 1e-11);

  const io::TensorSize size{.largest = 2, .norm = 8, .count = 1 << 20};
  const auto of = [&](DType inputs, DType gradients) { return io::tolerances_of_exact(inputs, gradients, size); };
  EXPECT_DOUBLE_EQ(of(DType::kFloat32, DType::kFloat32).max_abs, 2e-5);
  EXPECT_DOUBLE_EQ(of(DType::kFloat32, DType::kFloat32).rel_l2, 1e-5);
  EXPECT_LT(of(DType::kFloat32, DType::kFloat32).max_rel, 1e-4);
  EXPECT_LT(of(DType::kFloat64, DType::kFloat64).max_rel, 1e-11);
  EXPECT_EQ(of(DType::kBFloat16, DType::kFloat32).rel_l2, 1e-5);
  // Half the spacing of neighbours is added if the stored type is narrower, and of float16's subnormal
  // numbers.
  EXPECT_DOUBLE_EQ(of(DType::kBFloat16, DType::kBFloat16).max_abs, 2 * (1e-5 + 0x1p-8));
  EXPECT_DOUBLE_EQ(of(DType::kBFloat16, DType::kBFloat16).rel_l2, 1e-5 + 0x1p-8);
  EXPECT_DOUBLE_EQ(of(DType::kFloat16, DType::kFloat16).max_abs, 2 * (1e-5 + 0x1p-11) + 0x1p-25);
  EXPECT_DOUBLE_EQ(of(DType::kFloat16, DType::kFloat16).rel_l2, 1e-5 + 0x1p-11 + 0x1p-25 * 1024 / 8);
  EXPECT_DOUBLE_EQ(io::tolerances_of_exact(DType::kFloat32, DType::kFloat32, size, 3).rel_l2, 3e-5);
}

}  // namespace commands_test
}  // namespace logitless::cli

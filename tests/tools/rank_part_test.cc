// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The parts of a job for the ranks of `logitless compare`: which tokens each has, and what cannot be cut.
// tests/mpi compares the results of ranks and of one process.
#include "cli/ranks/part.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <numeric>

#include "cli/ranks/grid.h"
#include "io/safetensors.h"

namespace logitless::cli {
namespace rank_part_test {

using Settings = std::vector<std::string>;

io::Config config_of(Settings settings) {
  settings.insert(settings.begin(),
                  {"model={hidden_size: 3, vocab_size: 11, bias: true, lora: {rank: 2}}", "batch_size=6", "seq_len=5"});
  return io::load_config(std::nullopt, settings);
}

// Returns the parts of ranks with the same vocabulary entries, in order.
std::vector<RankPart> parts_of(const io::Config& config, const Job& whole) {
  std::vector<RankPart> parts;
  for (int data = 0; data < config.parallel.data; ++data) parts.push_back(part_of(config, whole, {0, data}));
  std::vector<int64_t> all;
  for (const RankPart& part : parts) all.insert(all.end(), part.tokens.begin(), part.tokens.end());
  std::ranges::sort(all);
  std::vector<int64_t> want(static_cast<size_t>(whole.tokens));
  std::iota(want.begin(), want.end(), int64_t{0});
  EXPECT_EQ(all, want) << "each token once";
  return parts;
}

// policy_loss also has ref_logps, but only one per token.
TEST(RankPart, AReferenceOfSequencesIsCutInSequences) {
  const std::string file = ::testing::TempDir() + "rank_part_test.safetensors";
  const std::vector<float> hidden(30 * 3, 0.5F), head(11 * 3, 0.25F), logps(6);
  const std::vector<int64_t> targets(30);
  const std::vector<uint8_t> labels = {1, 0, 1, 0, 1, 0};
  io::write_safetensors(file, std::vector<io::TensorToWrite>{{"hidden", "F32", {6, 5, 3}, hidden.data()},
                                                             {"lm_head", "F32", {11, 3}, head.data()},
                                                             {"targets", "I64", {6, 5}, targets.data()},
                                                             {"ref_logps", "F32", {6}, logps.data()},
                                                             {"labels", "U8", {6}, labels.data()}});
  for (const std::string task : {"preference_loss", "kto_loss"}) {
    const io::Config config = io::load_config(std::nullopt, Settings{"parallel.data=2", "task=" + task});
    TensorPaths paths;
    for (const char* name : {"hidden", "lm_head", "targets", "ref_logps"}) paths.specs[name] = file;
    if (task == "kto_loss") paths.specs["labels"] = file;
    EXPECT_EQ(read_inputs(config, paths).job["ref_logps"].axes, "B") << task;
  }
  std::filesystem::remove(file);
}

TEST(RankPart, PackedSequencesKeepTheirLengths) {
  for (const char* shift : {"shift=true", "shift=false"}) {
    const io::Config config = config_of({"parallel.data=2", shift});
    Inputs whole = make_seeded_inputs(config);
    whole.job.sequences = 3;
    whole.add_values("offsets", "S", std::vector<int64_t>{0, 4, 21, 30});
    const std::vector<RankPart> parts = parts_of(config, whole.job);
    const auto offsets = [&](size_t rank) {
      const Inputs own = inputs_of(whole.job, parts[rank]);
      const auto values = own.job["offsets"].values<int64_t>();
      return std::vector<int64_t>(values.begin(), values.end());
    };
    EXPECT_EQ(offsets(0), (std::vector<int64_t>{0, 4}));
    EXPECT_EQ(offsets(1), (std::vector<int64_t>{0, 17, 26}));
  }
}

TEST(RankPart, WhatCannotBeCutIsRefused) {
  const auto refusal = [](const Settings& settings, const char* name, const char* axes, int64_t count) -> std::string {
    const io::Config config = config_of(settings);
    Inputs whole = make_seeded_inputs(config);
    if (*name) whole.add_values(name, axes, std::vector<double>(static_cast<size_t>(count)));
    try {
      inputs_of(whole.job, part_of(config, whole.job, {0, 0}));
    } catch (const io::Error& e) {
      return e.what();
    }
    return "";
  };
  const Settings kto = {"parallel.vocab=2", "parallel.data=2", "task=kto_loss"};
  const std::string rule = ", but must have one for each of the ";
  EXPECT_EQ(refusal(kto, "old_logps", "N", 29), "--old-logps has 29 entries" + rule + "30 tokens");
  EXPECT_EQ(refusal(kto, "ref_logps", "B", 5), "--ref-logps has 5 entries" + rule + "6 sequences");
  EXPECT_EQ(refusal(kto, "bias", "V", 12), "--bias has 12 entries" + rule + "11 vocabulary entries");
  EXPECT_EQ(refusal(kto, "kl_ref_logps", "J", 7), "--kl-ref-logps has 7 entries" + rule + "6 entries of kl_logps");
  EXPECT_EQ(refusal(kto, "ref_logps", "B", 6), "");
  const std::string flag = "--set parallel.data = ";
  EXPECT_EQ(refusal({"parallel.data=31"}, "", "", 0), flag + "31: the batch has 30 tokens");
  EXPECT_EQ(refusal({"parallel.data=7", "shift=true"}, "", "", 0), flag + "7: the batch has 6 sequences");
  EXPECT_EQ(refusal({"parallel.data=4", "task=preference_loss"}, "", "", 0), flag + "4: the batch has 3 pairs");
  EXPECT_EQ(refusal({"parallel.data=30"}, "", "", 0), "");
}

}  // namespace rank_part_test
}  // namespace logitless::cli

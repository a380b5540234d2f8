// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The parts of a job for the ranks of `logitless compare`: together they are the whole job, without
// duplicates.
#include "cli/ranks/part.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
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

std::vector<int64_t> numbers_to(int64_t end, int64_t begin = 0) {
  std::vector<int64_t> out(static_cast<size_t>(end - begin));
  std::iota(out.begin(), out.end(), begin);
  return out;
}

// Returns the parts of ranks with the same vocabulary entries, in order.
std::vector<RankPart> parts_of(const io::Config& config, const Job& whole) {
  std::vector<RankPart> parts;
  for (int data = 0; data < config.parallel.data; ++data) parts.push_back(part_of(config, whole, {0, data}));
  std::vector<int64_t> all;
  for (const RankPart& part : parts) all.insert(all.end(), part.tokens.begin(), part.tokens.end());
  std::ranges::sort(all);
  EXPECT_EQ(all, numbers_to(whole.tokens)) << "each token once";
  return parts;
}

// Expects the entries of the axis that ranks share to be those of the part, and all of any other axis.
void expect_cut(const std::string& name, const JobTensor& whole, const JobTensor& own, const RankPart& part) {
  ASSERT_EQ(own.axes, whole.axes) << name;
  const size_t axis = whole.axes.find_first_of("NBVJ");
  size_t outer = 1, inner = size_of(whole.view.dtype);
  std::vector<int64_t> which = {0};
  for (size_t i = 0; i < whole.axes.size(); ++i) {
    const int64_t size = whole.view.sizes[i];
    if (i != axis) (i < axis && axis != std::string::npos ? outer : inner) *= static_cast<size_t>(size);
  }
  size_t count = 1;
  if (axis != std::string::npos) {
    const char what = whole.axes[axis];
    which = what == 'N'   ? part.tokens
            : what == 'B' ? part.sequences
            : what == 'V' ? numbers_to(part.first_entry + part.entries, part.first_entry)
                          : part.kl;
    count = static_cast<size_t>(whole.view.sizes[axis]);
  }
  ASSERT_EQ(own.bytes(), outer * which.size() * inner) << name;
  for (size_t o = 0; o < outer; ++o) {
    for (size_t k = 0; k < which.size(); ++k) {
      const std::byte* const from = whole.as_bytes().data() + (o * count + static_cast<size_t>(which[k])) * inner;
      ASSERT_EQ(std::memcmp(own.as_bytes().data() + (o * which.size() + k) * inner, from, inner), 0) << name;
    }
  }
}

TEST(RankPart, EveryTensorIsCutAndPutBack) {
  const Settings policy = {"parallel.data=4", "task=policy_loss", "policy_loss.beta=0.1", "ignored_fraction=0.3"};
  for (Settings settings :
       {Settings{"parallel.vocab=3"},
        {"parallel.vocab=3", "model.layout=hidden_vocab"},
        {"parallel.data=4", "temperature=[0.5, 2]"},
        {"parallel.vocab=2", "parallel.data=2", "task=preference_loss", "model.layout=hidden_vocab"},
        {"parallel.vocab=2", "parallel.data=2", "task=kto_loss"},
        policy}) {
    SCOPED_TRACE(settings.back());
    if (settings == policy) settings.push_back("policy_loss.advantages=token");
    const io::Config config = config_of(settings);
    const Inputs inputs = make_seeded_inputs(config);
    parts_of(config, inputs.job);
    Job outputs = inputs.job;
    const std::vector<Memory> memory = add_outputs(config, outputs);
    outputs.touch();
    // The inputs are used as outputs of the same shape.
    const std::pair<const char*, const char*> same_shapes[] = {{"d_hidden", "hidden"},
                                                               {"d_weight", "lm_head"},
                                                               {"d_bias", "bias"},
                                                               {"d_lora_a", "lora_a"},
                                                               {"d_lora_b", "lora_b"}};
    int64_t next = 0;
    for (int vocab = 0; vocab < config.parallel.vocab; ++vocab) {
      for (int data = 0; data < config.parallel.data; ++data) {
        const RankPart part = part_of(config, inputs.job, {vocab, data});
        EXPECT_EQ(part.first_entry, next);
        const Inputs own = inputs_of(inputs.job, part);
        EXPECT_EQ(own.job.vocab_size, part.entries);
        EXPECT_EQ(own.job.tensors.size(), inputs.job.tensors.size());
        for (const auto& [name, tensor] : inputs.job.tensors) expect_cut(name, tensor, own.job[name], part);
        for (const auto& [output, input] : same_shapes) put_output(output, part, own.job[input].as_bytes(), outputs);
        EXPECT_TRUE(config.runs<CrossEntropy>() || own.job.tokens == 5 * own.job.sequences);
        for (const int64_t sequence : part.sequences) {
          const bool has_its_other = std::ranges::count(part.sequences, (sequence + 3) % 6) == 1;
          EXPECT_TRUE(has_its_other || !config.runs<PreferenceLoss>());
        }
        if (data == config.parallel.data - 1) next += part.entries;
      }
    }
    EXPECT_EQ(next, 11);
    for (const auto& [output, input] : same_shapes) {
      EXPECT_TRUE(std::ranges::equal(outputs[output].as_bytes(), inputs.job[input].as_bytes())) << output;
    }
  }
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

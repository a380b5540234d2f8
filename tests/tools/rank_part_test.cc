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

io::Config config_of(std::vector<std::string> settings) {
  settings.insert(settings.begin(),
                  {"model={hidden_size: 3, vocab_size: 11, bias: true, lora: {rank: 2}}", "batch_size=6", "seq_len=5"});
  return io::load_config(std::nullopt, settings);
}

template <class T>
std::vector<T> values_of(const Job& job, const char* name) {
  const std::span<const T> values = job[name].values<T>();
  return {values.begin(), values.end()};
}

template <class T>
std::vector<T> picked(const std::vector<T>& from, const std::vector<int64_t>& which, int64_t row = 1) {
  std::vector<T> out;
  for (const int64_t i : which) out.insert(out.end(), from.begin() + i * row, from.begin() + (i + 1) * row);
  return out;
}

// Returns the parts of ranks with the same vocabulary entries, in order: each rank's tokens.
std::vector<RankPart> parts_of(const io::Config& config, const Job& whole) {
  std::vector<RankPart> parts;
  for (int data = 0; data < config.parallel.data; ++data) parts.push_back(part_of(config, whole, {0, data}));
  return parts;
}

void expect_each_token_once(const std::vector<RankPart>& parts, int64_t tokens) {
  std::vector<int64_t> all;
  for (const RankPart& part : parts) all.insert(all.end(), part.tokens.begin(), part.tokens.end());
  std::ranges::sort(all);
  std::vector<int64_t> want(static_cast<size_t>(tokens));
  std::iota(want.begin(), want.end(), int64_t{0});
  EXPECT_EQ(all, want);
}

TEST(RankPart, EntriesAreCutInEitherLayout) {
  for (const char* layout : {"vocab_hidden", "hidden_vocab"}) {
    const io::Config config = config_of({"parallel.vocab=3", std::string("model.layout=") + layout});
    const Inputs whole = make_seeded_inputs(config);
    const auto weight = values_of<float>(whole.job, "lm_head"), bias = values_of<float>(whole.job, "bias");
    const bool tall = whole.job.layout == HeadLayout::kVocabHidden;
    int64_t next = 0;
    for (int rank = 0; rank < 3; ++rank) {
      const RankPart part = part_of(config, whole.job, {rank, 0});
      ASSERT_EQ(part.first_entry, next);
      next += part.entries;
      const Inputs own = inputs_of(whole.job, part);
      EXPECT_EQ(own.job.vocab_size, part.entries);
      EXPECT_EQ(own.job.tokens, whole.job.tokens);
      EXPECT_EQ(values_of<float>(own.job, "hidden"), values_of<float>(whole.job, "hidden"));
      EXPECT_EQ(values_of<float>(own.job, "lora_a"), values_of<float>(whole.job, "lora_a"));
      std::vector<int64_t> entries(static_cast<size_t>(part.entries));
      std::iota(entries.begin(), entries.end(), part.first_entry);
      EXPECT_EQ(values_of<float>(own.job, "lora_b"), picked(values_of<float>(whole.job, "lora_b"), entries, 2));
      const auto own_weight = values_of<float>(own.job, "lm_head"), own_bias = values_of<float>(own.job, "bias");
      ASSERT_EQ(own_weight.size(), static_cast<size_t>(3 * part.entries));
      for (int64_t entry = 0; entry < part.entries; ++entry) {
        EXPECT_EQ(own_bias[static_cast<size_t>(entry)], bias[static_cast<size_t>(part.first_entry + entry)]);
        for (int64_t h = 0; h < 3; ++h) {
          const int64_t at = tall ? entry * 3 + h : h * part.entries + entry;
          const int64_t whole_at = tall ? (part.first_entry + entry) * 3 + h : h * 11 + part.first_entry + entry;
          EXPECT_EQ(own_weight[static_cast<size_t>(at)], weight[static_cast<size_t>(whole_at)]);
        }
      }
    }
    EXPECT_EQ(next, 11);
  }
}

TEST(RankPart, TokensThatNothingCouplesAreCutAnywhere) {
  const io::Config config = config_of({"parallel.data=4", "temperature=[0.5, 2]"});
  const Inputs whole = make_seeded_inputs(config);
  const std::vector<RankPart> parts = parts_of(config, whole.job);
  expect_each_token_once(parts, 30);
  for (const RankPart& part : parts) {
    EXPECT_GE(part.tokens.size(), 7u);
    const Inputs own = inputs_of(whole.job, part);
    EXPECT_EQ(own.job.sequences, 1);
    EXPECT_EQ(values_of<int32_t>(own.job, "targets"), picked(values_of<int32_t>(whole.job, "targets"), part.tokens));
    EXPECT_EQ(values_of<double>(own.job, "temperatures"),
              picked(values_of<double>(whole.job, "temperatures"), part.tokens));
    EXPECT_EQ(values_of<float>(own.job, "hidden"), picked(values_of<float>(whole.job, "hidden"), part.tokens, 3));
  }
}

TEST(RankPart, SequencesStayWhole) {
  for (const char* advantages : {"sequence", "token"}) {
    const io::Config config = config_of({"parallel.data=4", "task=policy_loss", "policy_loss.beta=0.1",
                                         "ignored_fraction=0.3", std::string("policy_loss.advantages=") + advantages});
    const Inputs whole = make_seeded_inputs(config);
    const std::vector<RankPart> parts = parts_of(config, whole.job);
    expect_each_token_once(parts, 30);
    for (const RankPart& part : parts) {
      const Inputs own = inputs_of(whole.job, part);
      EXPECT_EQ(own.job.tokens, 5 * own.job.sequences);
      const auto own_advantages = values_of<double>(own.job, "advantages");
      EXPECT_EQ(own_advantages,
                picked(values_of<double>(whole.job, "advantages"), *advantages == 't' ? part.tokens : part.sequences));
      for (const char* name : {"old_logps", "ref_logps"}) {
        EXPECT_EQ(values_of<double>(own.job, name), picked(values_of<double>(whole.job, name), part.tokens));
      }
      EXPECT_EQ(values_of<uint8_t>(own.job, "mask"), picked(values_of<uint8_t>(whole.job, "mask"), part.tokens));
    }
  }
}

// policy_loss also has ref_logps, but only one per token.
TEST(RankPart, AReferenceOfSequencesIsCutInSequences) {
  const std::string file = ::testing::TempDir() + "rank_part_test.safetensors";
  const std::vector<float> hidden(30 * 3, 0.5F), head(11 * 3, 0.25F), logps = {-1, -2, -3, -4, -5, -6};
  const std::vector<int64_t> targets(30);
  const std::vector<uint8_t> labels = {1, 0, 1, 0, 1, 0};
  const std::vector<io::TensorToWrite> tensors = {{"hidden", "F32", {6, 5, 3}, hidden.data()},
                                                  {"lm_head", "F32", {11, 3}, head.data()},
                                                  {"targets", "I64", {6, 5}, targets.data()},
                                                  {"ref_logps", "F32", {6}, logps.data()},
                                                  {"labels", "U8", {6}, labels.data()}};
  io::write_safetensors(file, tensors);
  for (const std::string task : {"preference_loss", "kto_loss"}) {
    const io::Config config =
        io::load_config(std::nullopt, std::vector<std::string>{"parallel.data=2", "task=" + task});
    TensorPaths paths;
    for (const char* name : {"hidden", "lm_head", "targets", "ref_logps"}) paths.specs[name] = file;
    if (task == "kto_loss") paths.specs["labels"] = file;
    const Inputs whole = read_inputs(config, paths);
    EXPECT_EQ(whole.job["ref_logps"].axes, "B") << task;
    for (const RankPart& part : parts_of(config, whole.job)) {
      EXPECT_EQ(values_of<double>(inputs_of(whole.job, part).job, "ref_logps"),
                picked(values_of<double>(whole.job, "ref_logps"), part.sequences))
          << task;
    }
  }
  std::filesystem::remove(file);
}

TEST(RankPart, ATensorOfAnotherLengthIsRefused) {
  const io::Config config = config_of({"parallel.vocab=2", "parallel.data=2", "task=kto_loss"});
  const auto refusal = [&](const char* name, const char* axes, int64_t count) -> std::string {
    Inputs whole = make_seeded_inputs(config);
    whole.add_values(name, axes, std::vector<double>(static_cast<size_t>(count)));
    try {
      inputs_of(whole.job, part_of(config, whole.job, {1, 1}));
    } catch (const io::Error& e) {
      return e.what();
    }
    return "";
  };
  const std::string rule = ", but must have one for each of the ";
  EXPECT_EQ(refusal("old_logps", "N", 29), "--old-logps has 29 entries" + rule + "30 tokens");
  EXPECT_EQ(refusal("ref_logps", "B", 5), "--ref-logps has 5 entries" + rule + "6 sequences");
  EXPECT_EQ(refusal("bias", "V", 12), "--bias has 12 entries" + rule + "11 vocabulary entries");
  EXPECT_EQ(refusal("kl_ref_logps", "J", 7), "--kl-ref-logps has 7 entries" + rule + "6 entries of kl_logps");
  EXPECT_EQ(refusal("ref_logps", "B", 6), "");
}

TEST(RankPart, PackedSequencesKeepTheirLengths) {
  for (const char* shift : {"shift=true", "shift=false"}) {
    const io::Config config = config_of({"parallel.data=2", shift});
    Inputs whole = make_seeded_inputs(config);
    whole.job.sequences = 3;
    whole.add_values("offsets", "S", std::vector<int64_t>{0, 4, 21, 30});
    const std::vector<RankPart> parts = parts_of(config, whole.job);
    expect_each_token_once(parts, 30);
    EXPECT_EQ(values_of<int64_t>(inputs_of(whole.job, parts[0]).job, "offsets"), (std::vector<int64_t>{0, 4}));
    EXPECT_EQ(values_of<int64_t>(inputs_of(whole.job, parts[1]).job, "offsets"), (std::vector<int64_t>{0, 17, 26}));
  }
}

TEST(RankPart, OutputsComeBackToTheirPlaces) {
  for (const char* layout : {"vocab_hidden", "hidden_vocab"}) {
    const io::Config config = config_of(
        {"parallel.vocab=2", "parallel.data=2", "task=preference_loss", std::string("model.layout=") + layout});
    const Inputs inputs = make_seeded_inputs(config);
    Job whole = inputs.job;
    const std::vector<Memory> memory = add_outputs(config, whole);
    whole.touch();
    // The inputs are used as outputs of the same shape.
    for (int rank = 0; rank < 4; ++rank) {
      const RankPart part = part_of(config, whole, {rank % 2, rank / 2});
      const Inputs own = inputs_of(inputs.job, part);
      const auto put = [&](const char* name, const char* from) {
        put_output(name, part, own.job[from].as_bytes(), whole);
      };
      put("d_hidden", "hidden");
      put("d_weight", "lm_head");
      put("d_bias", "bias");
      put("d_lora_a", "lora_a");
      put("d_lora_b", "lora_b");
    }
    EXPECT_EQ(values_of<float>(whole, "d_hidden"), values_of<float>(inputs.job, "hidden"));
    EXPECT_EQ(values_of<float>(whole, "d_weight"), values_of<float>(inputs.job, "lm_head"));
    EXPECT_EQ(values_of<float>(whole, "d_bias"), values_of<float>(inputs.job, "bias"));
    EXPECT_EQ(values_of<float>(whole, "d_lora_a"), values_of<float>(inputs.job, "lora_a"));
    EXPECT_EQ(values_of<float>(whole, "d_lora_b"), values_of<float>(inputs.job, "lora_b"));
  }
}

TEST(RankPart, FewerUnitsThanRanksAreRefused) {
  const auto message_of = [](const std::vector<std::string>& settings) -> std::string {
    const io::Config config = config_of(settings);
    try {
      part_of(config, make_seeded_inputs(config).job, {0, 0});
    } catch (const io::Error& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(message_of({"parallel.data=31"}), "--set parallel.data = 31: the batch has 30 tokens");
  EXPECT_EQ(message_of({"parallel.data=7", "shift=true"}), "--set parallel.data = 7: the batch has 6 sequences");
  EXPECT_EQ(message_of({"parallel.data=4", "task=preference_loss"}), "--set parallel.data = 4: the batch has 3 pairs");
  EXPECT_EQ(message_of({"parallel.data=30"}), "");
}

}  // namespace rank_part_test
}  // namespace logitless::cli

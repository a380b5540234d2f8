// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// What the ranks of `logitless compare` have of a job: together all of it, and each thing once.
#include "cli/ranks/part.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "cli/ranks/grid.h"

namespace logitless::cli {
namespace {

io::Config config_of(std::vector<std::string> settings) {
  settings.insert(settings.begin(),
                  {"model={hidden_size: 3, vocab_size: 11, bias: true, lora: {rank: 2}}", "batch_size=6", "seq_len=5"});
  return io::load_config(std::nullopt, settings);
}

template <class T>
std::vector<T> values_of(const Job& job, TensorId id) {
  return {job[id].as<T>(), job[id].as<T>() + job[id].count(sizeof(T))};
}

template <class T>
std::vector<T> picked(const std::vector<T>& from, const std::vector<int64_t>& which, int64_t row = 1) {
  std::vector<T> out;
  for (const int64_t i : which) out.insert(out.end(), from.begin() + i * row, from.begin() + (i + 1) * row);
  return out;
}

// Of ranks with the same vocabulary entries, in order: what each has of the tokens.
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
    const auto weight = values_of<float>(whole.job, TensorId::kWeight),
               bias = values_of<float>(whole.job, TensorId::kBias);
    const bool tall = whole.job.layout == HeadLayout::kVocabHidden;
    int64_t next = 0;
    for (int rank = 0; rank < 3; ++rank) {
      const RankPart part = part_of(config, whole.job, {rank, 0});
      ASSERT_EQ(part.first_entry, next);
      next += part.entries;
      const Inputs own = inputs_of(whole.job, part);
      EXPECT_EQ(own.job.vocab_size, part.entries);
      EXPECT_EQ(own.job.tokens, whole.job.tokens);
      EXPECT_EQ(values_of<float>(own.job, TensorId::kHidden), values_of<float>(whole.job, TensorId::kHidden));
      EXPECT_EQ(values_of<float>(own.job, TensorId::kLoraA), values_of<float>(whole.job, TensorId::kLoraA));
      std::vector<int64_t> entries(static_cast<size_t>(part.entries));
      std::iota(entries.begin(), entries.end(), part.first_entry);
      EXPECT_EQ(values_of<float>(own.job, TensorId::kLoraB),
                picked(values_of<float>(whole.job, TensorId::kLoraB), entries, 2));
      const auto own_weight = values_of<float>(own.job, TensorId::kWeight),
                 own_bias = values_of<float>(own.job, TensorId::kBias);
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
    EXPECT_EQ(values_of<int32_t>(own.job, TensorId::kTargets),
              picked(values_of<int32_t>(whole.job, TensorId::kTargets), part.tokens));
    EXPECT_EQ(values_of<double>(own.job, TensorId::kTemperatures),
              picked(values_of<double>(whole.job, TensorId::kTemperatures), part.tokens));
    EXPECT_EQ(values_of<float>(own.job, TensorId::kHidden),
              picked(values_of<float>(whole.job, TensorId::kHidden), part.tokens, 3));
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
      const auto own_advantages = values_of<double>(own.job, TensorId::kAdvantages);
      EXPECT_EQ(own_advantages, picked(values_of<double>(whole.job, TensorId::kAdvantages),
                                       *advantages == 't' ? part.tokens : part.sequences));
      for (const TensorId id : {TensorId::kOldLogps, TensorId::kRefLogps}) {
        EXPECT_EQ(values_of<double>(own.job, id), picked(values_of<double>(whole.job, id), part.tokens));
      }
      EXPECT_EQ(values_of<uint8_t>(own.job, TensorId::kMask),
                picked(values_of<uint8_t>(whole.job, TensorId::kMask), part.tokens));
    }
  }
}

TEST(RankPart, PairsStayTogether) {
  const io::Config config = config_of({"parallel.data=2", "task=preference_loss"});
  const Inputs whole = make_seeded_inputs(config);
  const std::vector<RankPart> parts = parts_of(config, whole.job);
  expect_each_token_once(parts, 30);
  EXPECT_EQ(parts[0].sequences, (std::vector<int64_t>{0, 3}));
  EXPECT_EQ(parts[1].sequences, (std::vector<int64_t>{1, 2, 4, 5}));
}

TEST(RankPart, MismatchedCompletionsAreShared) {
  const io::Config config = config_of({"parallel.data=4", "task=kto_loss"});
  const Inputs whole = make_seeded_inputs(config);
  std::vector<double> kl;
  std::vector<uint8_t> labels;
  for (const RankPart& part : parts_of(config, whole.job)) {
    const Inputs own = inputs_of(whole.job, part);
    for (const double value : values_of<double>(own.job, TensorId::kKlLogps)) kl.push_back(value);
    for (const uint8_t label : values_of<uint8_t>(own.job, TensorId::kLabels)) labels.push_back(label);
  }
  EXPECT_EQ(kl, values_of<double>(whole.job, TensorId::kKlLogps));
  EXPECT_EQ(labels, values_of<uint8_t>(whole.job, TensorId::kLabels));
}

TEST(RankPart, PackedSequencesKeepTheirLengths) {
  const io::Config config = config_of({"parallel.data=2", "shift=true"});
  Inputs whole = make_seeded_inputs(config);
  whole.job.sequences = 3;
  whole.add_values(TensorId::kOffsets, "offsets", std::vector<int64_t>{0, 4, 21, 30});
  const std::vector<RankPart> parts = parts_of(config, whole.job);
  expect_each_token_once(parts, 30);
  EXPECT_EQ(values_of<int64_t>(inputs_of(whole.job, parts[0]).job, TensorId::kOffsets), (std::vector<int64_t>{0, 4}));
  EXPECT_EQ(values_of<int64_t>(inputs_of(whole.job, parts[1]).job, TensorId::kOffsets),
            (std::vector<int64_t>{0, 17, 26}));
}

TEST(RankPart, OutputsComeBackToTheirPlaces) {
  for (const char* layout : {"vocab_hidden", "hidden_vocab"}) {
    const io::Config config = config_of(
        {"parallel.vocab=2", "parallel.data=2", "task=preference_loss", std::string("model.layout=") + layout});
    const Inputs inputs = make_seeded_inputs(config);
    Job whole = inputs.job;
    const std::vector<Memory> memory = add_outputs(config, whole);
    whole.touch();
    // The inputs stand for outputs of the same shape.
    for (int rank = 0; rank < 4; ++rank) {
      const RankPart part = part_of(config, whole, {rank % 2, rank / 2});
      const Inputs own = inputs_of(inputs.job, part);
      const auto put = [&](TensorId id, TensorId from) {
        put_output(id, part, {own.job[from].data, own.job[from].bytes}, whole);
      };
      put(TensorId::kDHidden, TensorId::kHidden);
      put(TensorId::kDWeight, TensorId::kWeight);
      put(TensorId::kDBias, TensorId::kBias);
      put(TensorId::kDLoraA, TensorId::kLoraA);
      put(TensorId::kDLoraB, TensorId::kLoraB);
    }
    EXPECT_EQ(values_of<float>(whole, TensorId::kDHidden), values_of<float>(inputs.job, TensorId::kHidden));
    EXPECT_EQ(values_of<float>(whole, TensorId::kDWeight), values_of<float>(inputs.job, TensorId::kWeight));
    EXPECT_EQ(values_of<float>(whole, TensorId::kDBias), values_of<float>(inputs.job, TensorId::kBias));
    EXPECT_EQ(values_of<float>(whole, TensorId::kDLoraA), values_of<float>(inputs.job, TensorId::kLoraA));
    EXPECT_EQ(values_of<float>(whole, TensorId::kDLoraB), values_of<float>(inputs.job, TensorId::kLoraB));
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

}  // namespace
}  // namespace logitless::cli

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// `logitless score` from a user's view: the file, the summary, and the effects of bad input.
#include <sys/stat.h>

#include <numbers>
#include <numeric>

#include "cli_fixture.h"
#include "gguf_bytes.h"
#include "logitless/version.h"

namespace logitless::testing {
namespace score_cli_test {

using Column = std::vector<double>;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
const std::vector<int> kTargets = {0, 1, 6, -100, 3, 2};  // of write_tensors()

// Returns the logits of a row of write_tensors().
Column logits_of(size_t row) {
  Column logits(7, 0.0);
  for (size_t v = 0; v < 7; ++v) {
    for (size_t h = 0; h < 5; ++h) {
      logits[v] += std::sin(static_cast<double>(row * 5 + h)) * std::cos(static_cast<double>(v * 5 + h));
    }
  }
  return logits;
}

class ScoreTest : public CliTest {
 protected:
  std::string output() const { return path("scores"); }
  Words score(const Words& arguments) const { return Words{"score", "-o", output()} + arguments; }
  Column column(const std::string& name) const { return numbers_of("scores", name); }

  // Compares the file and the summary of write_tensors(). Row i predicts kTargets[at[i]], or nothing if at[i]
  // is -1. Logits are five products of float32 numbers up to 1, of which only the inputs are rounded: errors
  // are below 20 · 2^-24.
  void expect_scores(const json& summary, const std::vector<int>& at, double temperature = 1,
                     const std::vector<size_t>& lengths = {6}) const {
    const Column logp = column("logp"), rank = column("rank"), argmax = column("argmax");
    const Column argmax_logp = column("argmax_logp"), entropy = column("entropy");
    double tokens = 0, nll = 0, entropies = 0, hits = 0, hits5 = 0;
    for (size_t i = 0; i < 6; ++i) {
      const int target = at[i] < 0 ? -100 : kTargets[static_cast<size_t>(at[i])];
      if (target < 0) {
        EXPECT_TRUE(std::isnan(logp[i]) && std::isnan(entropy[i]) && std::isnan(argmax_logp[i])) << i;
        EXPECT_TRUE(rank[i] == 0 && argmax[i] == -1) << i;
        continue;
      }
      Column logits = logits_of(i);
      double sum = 0, mean = 0;
      for (double& a : logits) sum += std::exp(a /= temperature);
      for (const double a : logits) mean += std::exp(a) / sum * a;
      const double own = logits[static_cast<size_t>(target)];
      const auto largest = std::max_element(logits.begin(), logits.end());
      EXPECT_NEAR(logp[i], own - std::log(sum), 2e-6) << i;
      EXPECT_NEAR(entropy[i], std::log(sum) - mean, 2e-6) << i;
      EXPECT_NEAR(argmax_logp[i], *largest - std::log(sum), 2e-6) << i;
      EXPECT_EQ(argmax[i], largest - logits.begin()) << i;
      EXPECT_EQ(rank[i], 1 + std::count_if(logits.begin(), logits.end(), [&](double a) { return a > own; })) << i;
      tokens += 1, nll -= logp[i], entropies += entropy[i], hits += rank[i] == 1, hits5 += rank[i] <= 5;
    }
    const Column sequence_logp = column("sequence_logp"), sequence_tokens = column("sequence_tokens");
    const Column greedy = column("sequence_is_greedy");
    ASSERT_EQ(sequence_logp.size(), lengths.size());
    size_t row = 0;
    for (size_t s = 0; s < lengths.size(); ++s) {
      double sum = 0, count = 0, greedy_count = 0;
      for (const size_t end = row + lengths[s]; row < end; ++row) {
        if (rank[row] > 0) sum += logp[row], count += 1, greedy_count += rank[row] == 1;
      }
      EXPECT_NEAR(sequence_logp[s], sum, 1e-12) << s;
      EXPECT_EQ(sequence_tokens[s], count) << s;
      EXPECT_EQ(greedy[s] != 0, greedy_count == count) << s;
    }
    EXPECT_EQ(summary["tokens"], static_cast<int>(tokens));
    EXPECT_EQ(summary["nan_tokens"], 0);
    for (const auto& [name, want] : {std::pair("cross_entropy", nll / tokens),
                                     {"perplexity", std::exp(nll / tokens)},
                                     {"bits_per_token", nll / tokens / std::numbers::ln2},
                                     {"mean_entropy", entropies / tokens},
                                     {"accuracy", hits / tokens},
                                     {"top5_accuracy", hits5 / tokens}}) {
      EXPECT_NEAR(summary[name].get<double>(), want, 1e-12 * (1 + want)) << name;
    }
  }
};

const Words kAll = {"--rank", "--entropy"};

TEST_F(ScoreTest, RealTensorsInEitherLayout) {
  for (const bool tall : {true, false}) {
    const json s = report(score(write_tensors(tall) + kAll));
    expect_scores(s, {0, 1, 2, 3, 4, 5});
    EXPECT_EQ(s["shape"]["layout"], tall ? "vocab_hidden" : "hidden_vocab");
  }
  const io::SafetensorsFile file(output());
  EXPECT_EQ(file.tensors().size(), 8u);
  EXPECT_EQ(file.find("argmax")->dtype + file.find("logp")->dtype + file.find("sequence_is_greedy")->dtype,
            "I64F64BOOL");
  expect_scores(report(score(write_tensors() + kAll + Words{"--set", "temperature=0.5"})), {0, 1, 2, 3, 4, 5}, 0.5);
}

TEST_F(ScoreTest, ShiftedRowsAreThoseOfHidden) {
  const Words shifted = score(write_tensors() + kAll + Words{"--set", "shift=true"});
  expect_scores(report(shifted), {1, 2, 3, 4, 5, -1});
  expect_scores(report(shifted + Words{"--lengths", path("states")}), {1, -1, 3, 4, 5, -1}, 1, {2, 4});
  expect_scores(report(shifted + Words{"--set", "batch_size=3"}), {1, -1, 3, -1, 5, -1}, 1, {2, 2, 2});
}

// If all targets are the most likely tokens the sequence is greedy; after changing one entry it is not.
TEST_F(ScoreTest, SequencesAreGreedyWhereEveryTargetIsTheArgmax) {
  Words tensors = write_tensors();
  tensors.back() = path("targets");
  std::vector<int64_t> argmax;
  for (size_t i = 0; i < 6; ++i) {
    const Column logits = logits_of(i);
    argmax.push_back(std::max_element(logits.begin(), logits.end()) - logits.begin());
  }
  for (const bool changed : {false, true}) {
    for (const bool shifted : {false, true}) {
      std::vector<int64_t> targets = argmax;
      if (shifted) std::rotate(targets.begin(), targets.end() - 1, targets.end());
      targets[0] = targets[3] = -100;
      if (changed) targets[4] = (targets[4] + 1) % 7;
      io::write_safetensors(path("targets"), std::vector<TensorToWrite>{{"targets", "I64", {6}, targets.data()}});
      const json s =
          report(score(tensors + Words{"--lengths", path("states"), "--set", shifted ? "shift=true" : "shift=false"}));
      EXPECT_EQ(column("sequence_is_greedy"), (Column{1, changed ? 0.0 : 1.0}));
      EXPECT_EQ(s["greedy_sequences"], changed ? 1 : 2);
      EXPECT_EQ(s["sequences"], 2);
    }
  }
}

// The argmax's log-probability, with a temperature that divides logits and with one that divides
// log-probabilities.
TEST_F(ScoreTest, TheArgmaxHasTheLogpOfATargetThatIsIt) {
  for (const char* meaning : {"temperature_meaning=scale_logits", "temperature_meaning=scale_logp"}) {
    for (const char* temperature : {"temperature=0.5", "temperature=[0.5, 2]"}) {
      // With five vocabulary entries, each is the target of many rows, and sometimes the most likely entry.
      report(score({kTiny, "--rank", "--set", "model.vocab_size=5", "--set", meaning, "--set", temperature}));
      const Column logp = column("logp"), argmax_logp = column("argmax_logp"), rank = column("rank");
      int hits = 0;
      for (size_t i = 0; i < logp.size(); ++i) {
        EXPECT_GE(argmax_logp[i], logp[i]) << i;
        if (rank[i] != 1) continue;
        ++hits;
        EXPECT_EQ(argmax_logp[i], logp[i]) << i;
      }
      EXPECT_GT(hits, 0) << meaning << " " << temperature;
    }
  }
}

TEST_F(ScoreTest, TheSummaryIsATableAndJson) {
  const Finished table = run(score({kTiny, "--rank", "--entropy", "--json", path("summary.json")}));
  EXPECT_EQ(table.exit_code(), 0) << table.err;
  for (const char* part :
       {"score, tiny: 134 tokens, hidden 96, vocab 2049, float32, vocab_hidden\n", "\ntokens           134 of 134\n",
        "\ncross-entropy    ", "\nperplexity       ", "\nbits per token   ", "\naccuracy         ",
        "\ntop-5 accuracy   ", "\nmean entropy     ", "\ntime             ", "\nworkspace        ",
        "\nplan             forward_only: 134 of 134 rows",
        ": logp, argmax, argmax_logp, rank, entropy [134]; "
        "sequence_logp, sequence_tokens, sequence_is_greedy [2]\n"}) {
    EXPECT_TRUE(has(table.out, part));
  }
  const json s = json::parse(read("summary.json"));
  EXPECT_GT(s["time_s"].get<double>(), 0);
  EXPECT_GT(s["workspace_bytes"].get<int64_t>(), 0);
  EXPECT_EQ(s["plan"], "forward_only");
  EXPECT_EQ(s["output"], output());
  EXPECT_EQ(s["environment"]["version"], LOGITLESS_VERSION_STRING);
  EXPECT_EQ(run(score({kTiny, "--quiet"})).out, "");
  // Config keys for losses and gradients apply to other commands.
  EXPECT_TRUE(has(s["keys_not_applied"].dump(), "label_smoothing"));
  EXPECT_TRUE(has(table.out, "label_smoothing"));
  EXPECT_EQ(report(score(write_tensors()))["keys_not_applied"], json::array());
}

TEST_F(ScoreTest, RowsThatAreNaNSaySo) {
  const json s = report(score(write_tensors(true, static_cast<float>(kNaN)) + kAll));  // row 1 of six
  EXPECT_TRUE(std::isnan(column("logp")[1]) && std::isnan(column("argmax_logp")[1]));
  EXPECT_TRUE(column("rank")[1] == 0 && column("argmax")[1] == -1);
  EXPECT_TRUE(std::isnan(column("sequence_logp")[0]));
  EXPECT_EQ(column("sequence_tokens"), Column{5});
  EXPECT_EQ(column("sequence_is_greedy"), Column{0});
  EXPECT_TRUE(s["tokens"] == 5 && s["nan_tokens"] == 1);
  EXPECT_TRUE(s["cross_entropy"].is_null() && s["mean_entropy"].is_null() && s["accuracy"].is_number());
  for (const size_t i : {0, 2, 4, 5}) EXPECT_LT(column("logp")[i], 0);
}

TEST_F(ScoreTest, BatchesWithoutAToken) {
  for (const char* setting : {"seq_len=0", "ignored_fraction=1"}) {
    const json s = report(score(kAll + Words{kTiny, "--set", setting}));
    EXPECT_EQ(column("sequence_tokens"), (Column{0, 0}));
    EXPECT_EQ(column("sequence_logp"), (Column{0, 0}));
    EXPECT_EQ(column("rank"), Column(column("rank").size(), 0));
    EXPECT_TRUE(s["sequences"] == 0 && s["tokens"] == 0);
    for (const char* key : {"cross_entropy", "perplexity", "bits_per_token", "accuracy", "top5_accuracy"}) {
      EXPECT_TRUE(s[key].is_null()) << setting << " " << key;
    }
  }
}

TEST_F(ScoreTest, TheLargestLogitsOfEachRow) {
  const Words tensors = write_tensors();
  const json s = report(score(tensors + Words{"--top-k", "3"}));
  const Column ids = numbers_of("scores", "top_ids", {6, 3}), logps = numbers_of("scores", "top_logps", {6, 3});
  const Column argmax = column("argmax"), argmax_logp = column("argmax_logp");
  double mass = 0;
  for (size_t i = 0; i < 6; ++i) {
    const double* const logp = &logps[3 * i];
    if (kTargets[i] < 0) {  // the row is ignored
      EXPECT_TRUE(ids[3 * i] == -1 && std::isnan(logp[0]) && std::isnan(logp[2]));
      continue;
    }
    mass += std::exp(logp[0]) + std::exp(logp[1]) + std::exp(logp[2]);
    EXPECT_EQ(ids[3 * i], argmax[i]);
    // Both are the logit's distance from the largest, which is 0, minus log_sum.
    EXPECT_EQ(logp[0], argmax_logp[i]);
    EXPECT_TRUE(logp[0] > logp[1] && logp[1] > logp[2]);
  }
  EXPECT_NEAR(s["mean_top_mass"].get<double>(), mass / 5, 1e-12);

  report(score(tensors + Words{"--set", "top_k=256"}));  // the most that there may be
  report(score(tensors + Words{"--set", "top_k=9"}));
  EXPECT_GE(numbers_of("scores", "top_ids", {6, 9})[6], 0);
  EXPECT_EQ(numbers_of("scores", "top_ids")[7], -1) << "the vocabulary has 7 entries";
  EXPECT_EQ(numbers_of("scores", "top_logps", {6, 9})[8], -std::numeric_limits<double>::infinity());
  report(score(tensors + Words{"--set", "top_k=9", "--top-k", "2"}));
  EXPECT_EQ(numbers_of("scores", "top_ids", {6, 2}).size(), 12U) << "the flag comes first";
}

TEST_F(ScoreTest, BadInputIsOneLineAndLeavesNothing) {
  const Words tensors = write_tensors(), out = {"-o", output()};
  const Words packed = out + tensors + Words{"--lengths", path("states")};
  std::filesystem::create_directory(path("x"));
  const std::vector<Refusal> refusals = {
      {{kTiny}, "--output is required"},
      {{kTiny, "-o", "-"}, "-o -: must be the name of a file"},
      {out + Words{kTiny, "--json", output()}, "is the file that -o names"},
      {Words{"-o", path("states")} + tensors, "states: is the file that --hidden names"},
      {Words{"-o", path("x/../head")} + tensors, "is the file that --lm-head names"},
      {out + Words{kTiny, "--set", "label_smoothing=0.1"}, "--set label_smoothing has no effect"},
      {out + Words{"--set", "task=kto_loss"}, "--set task is kto_loss, but score computes no loss"},
      {out + Words{"--set", "level=logits"}, "--set level is logits, but score takes hidden states"},
      {out, "model.hidden_size is not given"},
      {{write("own.yaml", "seed: 1"), "-o", path("own.yaml")}, "own.yaml: is the config"},
      {out + tensors + Words{"--set", "ignore_index=-1"}, "targets[3] = -100 is outside [0, 7)"},
      {out + tensors + Words{"--lengths", path("states") + ":short"}, "the lengths sum to 5"},
      {packed + Words{"--set", "batch_size=4"},
       "--set batch_size is 4, but the tensors have 2 sequences; correct it with --set batch_size=2"},
      {packed + Words{"--set", "seq_len=3"},
       "--set seq_len is 3, but --lengths " + path("states") + ": tensor lengths: lengths[0] = 2; leave seq_len out"},
      {out + tensors + Words{"--top-k", "0"}, "--top-k"},
      {out + tensors + Words{"--top-k", "257"}, "--top-k"},
      {out + tensors + Words{"--set", "top_k=257"}, "top_k must be"},
      {out + tensors + Words{"--set", "model.vocab_ids=[1, 7]"},
       "model.vocab_ids: entry 1 is 7, outside the head's 7 entries (ids begin at 0)"},
      {out + tensors + Words{"--set", "model.vocab_ids=3", "--vocab-ids", path("states") + ":lengths"},
       "model.vocab_ids is set, and --vocab-ids was given: use one of the two"},
  };
  const auto files = [&] { return std::distance(std::filesystem::directory_iterator(folder_), {}); };
  for (const std::string& before : {std::string(), std::string("what was there")}) {
    if (!before.empty()) write("scores", before);
    run({"score"});  // creates the files of standard output and error
    const auto count = files();
    expect_refusals(refusals, {"score"});
    EXPECT_EQ(files(), count);
    EXPECT_EQ(read("scores"), before);
  }
}

TEST_F(ScoreTest, AHeadOfAGgufFileIsReadAsItStands) {
  constexpr int64_t kTokens = 6, kVocab = 7, kHidden = 32;
  const GgufQ8Head head(kVocab);
  std::vector<float> hidden, bias;
  for (int i = 0; i < kTokens * kHidden; ++i) hidden.push_back(static_cast<float>(std::sin(0.7 * i)));
  for (int v = 0; v < kVocab; ++v) bias.push_back(0.25F * static_cast<float>(v));
  const std::vector<int64_t> targets = {0, 1, 6, 4, 3, 2};
  io::write_safetensors(path("model"),
                        std::vector<TensorToWrite>{{"hidden", "F32", {kTokens, kHidden}, hidden.data()},
                                                   {"lm_head", "F32", {kVocab, kHidden}, head.weight.data()},
                                                   {"targets", "I64", {kTokens}, targets.data()}});
  write("q8.gguf", head.file());
  write("biased.gguf", GgufBytes()
                           .architecture("qwen2")
                           .tensor("output.weight", {kHidden, kVocab}, 8, head.rows)
                           .floats("output.bias", {kVocab}, bias)
                           .bytes());
  const Words both = score({"--hidden", path("model"), "--targets", path("model"), "--lm-head"});
  const auto logps = [&](const std::string& name, const Words& settings) {
    report(both + Words{path(name)} + settings);
    return column("logp");
  };
  EXPECT_EQ(logps("q8.gguf", {}), logps("model", {"--set", "model.softcap=20"}));
  for (const char* softcap : {"model.softcap=5", "model.softcap=0"}) {
    EXPECT_EQ(logps("q8.gguf", {"--set", softcap}), logps("model", {"--set", softcap}));
  }
  // So is its bias, unless the config disables it.
  EXPECT_EQ(logps("biased.gguf", {"--set", "model.bias=true"}), logps("biased.gguf", {}));
  EXPECT_NE(logps("biased.gguf", {"--set", "model.bias=false"}), logps("biased.gguf", {}));
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  expect_refusals({{{path("q8.gguf") + ":blk.0"}, "has no tensor blk.0"},
                   {{path("pipe")}, "is not a regular file: tensors are read in place"},
                   {{path("q8.gguf"), "--set", "model.dtype=float64"}, "float64"},
                   {{path("q8.gguf"), "--set", "model.layout=hidden_vocab"},
                    "--set model.layout is hidden_vocab, but the head of a GGUF file is vocab_hidden"},
                   {{path("q8.gguf"), "--set", "model.bias=true"}, "model.bias is true: real tensors need --bias"}},
                  both);
}

}  // namespace score_cli_test
}  // namespace logitless::testing

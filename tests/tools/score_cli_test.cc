// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// `logitless score` from a user's view: the file, the summary, and the effects of bad input.
#include <sys/stat.h>

#include <cstring>
#include <numbers>

#include "cli_fixture.h"
#include "gguf_bytes.h"
#include "logitless/version.h"
#include "support/calls.h"

namespace logitless::testing {
namespace score_cli_test {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// The contents of a file of scores.
struct Scores {
  explicit Scores(const std::string& path) : file(path) {
    logp = read<double>("logp", "F64");
    argmax = read<int64_t>("argmax", "I64");
    argmax_logp = read<double>("argmax_logp", "F64");
    sequence_logp = read<double>("sequence_logp", "F64");
    sequence_tokens = read<int64_t>("sequence_tokens", "I64");
    greedy = read<uint8_t>("sequence_is_greedy", "BOOL");
    if (file.find("rank")) rank = read<int64_t>("rank", "I64");
    if (file.find("entropy")) entropy = read<double>("entropy", "F64");
    EXPECT_EQ(file.tensors().size(), 6u + (file.find("rank") != nullptr) + (file.find("entropy") != nullptr));
  }

  std::vector<double> logp, entropy, argmax_logp, sequence_logp;
  std::vector<int64_t> rank, argmax, sequence_tokens;
  std::vector<uint8_t> greedy;

 private:
  template <class T>
  std::vector<T> read(const char* name, const char* dtype) const {
    const io::Tensor* tensor = file.find(name);
    EXPECT_NE(tensor, nullptr) << name;
    if (!tensor) return {};
    EXPECT_EQ(tensor->dtype, dtype) << name;
    EXPECT_EQ(tensor->shape.size(), 1u) << name;
    std::vector<T> values(static_cast<size_t>(tensor->elements()));
    if (!values.empty()) std::memcpy(values.data(), tensor->data, tensor->bytes);
    return values;
  }
  io::SafetensorsFile file;
};

class ScoreTest : public CliTest {
 protected:
  std::string output() const { return path("scores.safetensors"); }
  Finished score(const std::vector<std::string>& arguments) const {
    std::vector<std::string> all = {"score", "-o", output()};
    all.insert(all.end(), arguments.begin(), arguments.end());
    return run(all);
  }
  /// Returns the summary of a run with all statistics, which must succeed.
  json full_summary(std::vector<std::string> arguments) const {
    arguments.insert(arguments.end(), {"--rank", "--entropy"});
    return summary(arguments);
  }
  /// Returns the summary of a run that must succeed.
  json summary(const std::vector<std::string>& arguments) const {
    std::vector<std::string> all = {"--json", "-"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    const Finished result = score(all);
    EXPECT_EQ(result.exit_code(), 0) << result.err;
    EXPECT_EQ(result.err, "");
    return json::parse(result.out, nullptr, false);
  }
  size_t files() const { return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder_), {})); }
};

// Scores of the fixture's tensors, computed here. Row i predicts targets[at[i]], or nothing if at[i] is -1.
// `lengths` are the lengths of the sequences.
struct Truth {
  explicit Truth(const std::vector<int>& at, double temperature = 1, const std::vector<size_t>& lengths = {6}) {
    const std::vector<int> targets = {0, 1, 6, -100, 3, 2};
    for (size_t i = 0; i < 6; ++i) {
      std::vector<double> logits(7, 0.0);
      for (size_t v = 0; v < 7; ++v) {
        for (size_t h = 0; h < 5; ++h) {
          logits[v] += std::sin(static_cast<double>(i * 5 + h)) * std::cos(static_cast<double>(v * 5 + h));
        }
        logits[v] /= temperature;
      }
      double sum = 0, mean = 0;
      for (const double a : logits) sum += std::exp(a);
      for (const double a : logits) mean += std::exp(a) / sum * a;
      const int target = at[i] < 0 ? -100 : targets[static_cast<size_t>(at[i])];
      const bool part = target >= 0;
      const double own = part ? logits[static_cast<size_t>(target)] : kNaN;
      logp.push_back(own - std::log(sum));
      entropy.push_back(part ? std::log(sum) - mean : kNaN);
      rank.push_back(part ? 1 + std::count_if(logits.begin(), logits.end(), [&](double a) { return a > own; }) : 0);
      const auto largest = std::max_element(logits.begin(), logits.end());
      argmax.push_back(part ? largest - logits.begin() : -1);
      argmax_logp.push_back(part ? *largest - std::log(sum) : kNaN);
      if (!part) continue;
      tokens += 1;
      cross_entropy -= logp.back();
      mean_entropy += entropy.back();
      accuracy += argmax.back() == target;
      top5 += rank.back() <= 5;
    }
    for (double* mean : {&cross_entropy, &mean_entropy, &accuracy, &top5}) *mean /= tokens;
    size_t row = 0;
    for (const size_t length : lengths) {
      sequence_logp.push_back(0);
      sequence_tokens.push_back(0);
      greedy.push_back(1);
      for (size_t end = row + length; row < end; ++row) {
        if (rank[row] == 0) continue;
        sequence_logp.back() += logp[row];
        sequence_tokens.back() += 1;
        if (rank[row] != 1) greedy.back() = 0;
      }
    }
  }

  // Five products of float32 numbers up to 1, of which only the inputs are rounded: errors are below 20 ·
  // 2^-24.
  void expect(const Scores& got, const json& summary) const {
    for (size_t i = 0; i < 6; ++i) {
      EXPECT_EQ(std::isnan(got.logp[i]), std::isnan(logp[i])) << i;
      EXPECT_EQ(std::isnan(got.entropy[i]), std::isnan(entropy[i])) << i;
      if (std::isnan(logp[i])) continue;
      EXPECT_NEAR(got.logp[i], logp[i], 2e-6) << i;
      EXPECT_NEAR(got.entropy[i], entropy[i], 2e-6) << i;
      EXPECT_NEAR(got.argmax_logp[i], argmax_logp[i], 2e-6) << i;
    }
    for (size_t s = 0; s < sequence_logp.size(); ++s) EXPECT_NEAR(got.sequence_logp[s], sequence_logp[s], 12e-6) << s;
    EXPECT_EQ(got.sequence_logp.size(), sequence_logp.size());
    EXPECT_EQ(got.sequence_tokens, sequence_tokens);
    EXPECT_EQ(got.greedy, greedy);
    EXPECT_EQ(got.rank, rank);
    EXPECT_EQ(got.argmax, argmax);
    EXPECT_EQ(summary["tokens"], static_cast<int>(tokens));
    EXPECT_EQ(summary["nan_tokens"], 0);
    EXPECT_NEAR(summary["cross_entropy"].get<double>(), cross_entropy, 2e-6);
    EXPECT_NEAR(summary["perplexity"].get<double>() / std::exp(cross_entropy), 1, 2e-6);
    EXPECT_NEAR(summary["bits_per_token"].get<double>(), cross_entropy / std::numbers::ln2, 3e-6);
    EXPECT_NEAR(summary["mean_entropy"].get<double>(), mean_entropy, 2e-6);
    EXPECT_EQ(summary["accuracy"].get<double>(), accuracy);
    EXPECT_EQ(summary["top5_accuracy"].get<double>(), top5);
  }

  std::vector<double> logp, entropy, argmax_logp, sequence_logp;
  std::vector<int64_t> rank, argmax, sequence_tokens;
  std::vector<uint8_t> greedy;
  double tokens = 0, cross_entropy = 0, mean_entropy = 0, accuracy = 0, top5 = 0;
};

TEST_F(ScoreTest, RealTensorsInEitherLayout) {
  for (const bool tall : {true, false}) {
    const json s = full_summary(write_tensors(tall));
    Truth({0, 1, 2, 3, 4, 5}).expect(Scores(output()), s);
    EXPECT_EQ(s["shape"]["layout"], tall ? "vocab_hidden" : "hidden_vocab");
  }
  const json s = full_summary(write_tensors(true) + std::vector<std::string>{"--set", "temperature=0.5"});
  Truth({0, 1, 2, 3, 4, 5}, 0.5).expect(Scores(output()), s);
}

TEST_F(ScoreTest, ShiftedRowsAreThoseOfHidden) {
  const std::vector<std::string> shifted = write_tensors(true) + std::vector<std::string>{"--set", "shift=true"};
  json s = full_summary(shifted);
  Truth({1, 2, 3, 4, 5, -1}).expect(Scores(output()), s);
  s = full_summary(shifted + std::vector<std::string>{"--lengths", path("states")});
  Truth({1, -1, 3, 4, 5, -1}, 1, {2, 4}).expect(Scores(output()), s);
  s = full_summary(shifted + std::vector<std::string>{"--set", "batch_size=3"});
  Truth({1, -1, 3, -1, 5, -1}, 1, {2, 2, 2}).expect(Scores(output()), s);
}

// If all targets are the most likely tokens the sequence is greedy; after changing one entry it is not.
TEST_F(ScoreTest, SequencesAreGreedyWhereEveryTargetIsTheArgmax) {
  const std::vector<std::string> tensors = write_tensors(true);
  summary(tensors);
  const std::vector<int64_t> argmax = Truth({0, 1, 2, 4, 4, 5}).argmax;
  for (const bool changed : {false, true}) {
    std::vector<int64_t> targets = argmax;
    targets[0] = targets[3] = -100;
    if (changed) targets[4] = (targets[4] + 1) % 7;
    const std::vector<io::TensorToWrite> written = {{"targets", "I64", {6}, targets.data()}};
    io::write_safetensors(path("targets"), written);
    std::vector<std::string> arguments = {tensors.begin(), tensors.end() - 1};
    const json s = summary(arguments + std::vector<std::string>{path("targets"), "--lengths", path("states")});
    const Scores scores(output());
    EXPECT_EQ(scores.sequence_tokens, (std::vector<int64_t>{1, 3}));
    EXPECT_EQ(scores.greedy, (std::vector<uint8_t>{1, !changed}));
    EXPECT_EQ(scores.sequence_logp[0], scores.logp[1]);
    EXPECT_EQ(scores.argmax_logp[1], scores.logp[1]);
    EXPECT_EQ(s["sequences"], 2);
    EXPECT_EQ(s["greedy_sequences"], changed ? 1 : 2);
    // The same for next positions: the last row of each sequence has none.
    for (size_t i = 0; i + 1 < 6; ++i) targets[i + 1] = argmax[i];
    if (changed) targets[4] = (targets[4] + 1) % 7;
    io::write_safetensors(path("targets"), written);
    summary(arguments + std::vector<std::string>{path("targets"), "--lengths", path("states"), "--set", "shift=true"});
    EXPECT_EQ(Scores(output()).greedy, (std::vector<uint8_t>{1, !changed}));
  }
}

// The argmax's log-probability, with a temperature that divides logits and with one that divides
// log-probabilities.
TEST_F(ScoreTest, TheArgmaxHasTheLogpOfATargetThatIsIt) {
  for (const char* meaning : {"temperature_meaning=scale_logits", "temperature_meaning=scale_logp"}) {
    for (const char* temperature : {"temperature=0.5", "temperature=[0.5, 2]"}) {
      // With five vocabulary entries, each is the target of many rows, and sometimes the most likely entry.
      summary({kTiny, "--rank", "--set", "model.vocab_size=5", "--set", meaning, "--set", temperature});
      const Scores scores(output());
      int hits = 0;
      for (size_t i = 0; i < scores.logp.size(); ++i) {
        EXPECT_GE(scores.argmax_logp[i], scores.logp[i]) << i;
        if (scores.rank[i] != 1) continue;
        ++hits;
        EXPECT_EQ(scores.argmax_logp[i], scores.logp[i]) << i;
      }
      EXPECT_GT(hits, 0) << meaning << " " << temperature;
    }
  }
}

TEST_F(ScoreTest, TheSummaryIsATableAndJson) {
  const Finished table = score({kTiny, "--rank", "--entropy", "--json", path("summary.json")});
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
  EXPECT_EQ(score({kTiny, "--quiet"}).out, "");
  // Config keys for losses and gradients apply to other commands.
  EXPECT_TRUE(has(s["keys_not_applied"].dump(), "label_smoothing"));
  EXPECT_TRUE(has(table.out, "label_smoothing"));
  EXPECT_EQ(summary(write_tensors(true))["keys_not_applied"], json::array());
}

TEST_F(ScoreTest, RowsThatAreNaNSaySo) {
  const json s = full_summary(write_tensors(true, static_cast<float>(kNaN)));  // row 1 of six
  const Scores scores(output());
  EXPECT_TRUE(std::isnan(scores.logp[1]));
  EXPECT_EQ(scores.rank[1], 0);
  EXPECT_EQ(scores.argmax[1], -1);
  EXPECT_TRUE(std::isnan(scores.argmax_logp[1]));
  EXPECT_TRUE(std::isnan(scores.sequence_logp[0]));
  EXPECT_EQ(scores.sequence_tokens[0], 5);
  EXPECT_EQ(scores.greedy[0], 0);
  EXPECT_EQ(s["tokens"], 5);
  EXPECT_EQ(s["nan_tokens"], 1);
  EXPECT_TRUE(s["cross_entropy"].is_null());
  EXPECT_TRUE(s["mean_entropy"].is_null());
  EXPECT_TRUE(s["accuracy"].is_number());
  for (const size_t i : {0, 2, 4, 5}) EXPECT_LT(scores.logp[i], 0);
}

TEST_F(ScoreTest, BatchesWithoutAToken) {
  for (const char* setting : {"seq_len=0", "ignored_fraction=1"}) {
    const json s = full_summary({kTiny, "--set", setting});
    const Scores scores(output());
    EXPECT_EQ(scores.sequence_tokens, (std::vector<int64_t>{0, 0}));
    EXPECT_EQ(scores.sequence_logp, (std::vector<double>{0, 0}));
    EXPECT_EQ(s["sequences"], 0);
    EXPECT_EQ(scores.rank, std::vector<int64_t>(scores.rank.size(), 0));
    EXPECT_EQ(s["tokens"], 0);
    for (const char* key : {"cross_entropy", "perplexity", "bits_per_token", "accuracy", "top5_accuracy"}) {
      EXPECT_TRUE(s[key].is_null()) << setting << " " << key;
    }
  }
}

TEST_F(ScoreTest, BadInputIsOneLineAndLeavesNothing) {
  const std::vector<std::string> tensors = write_tensors(true);
  const std::vector<std::string> packed = tensors + std::vector<std::string>{"--lengths", path("states")};
  const std::vector<std::string> out = {"-o", output()};
  struct Case {
    std::vector<std::string> arguments;
    std::string message;
  };
  const std::vector<Case> cases = {
      {{kTiny}, "--output is required"},
      {{kTiny, "-o", "-"}, "-o -: must be the name of a file"},
      {out + std::vector<std::string>{kTiny, "--json", output()}, "is the file that -o names"},
      {std::vector<std::string>{"-o", path("states")} + tensors, "states: is the file that --hidden names"},
      {std::vector<std::string>{"-o", path("x/../head")} + tensors, "is the file that --lm-head names"},
      {out + std::vector<std::string>{kTiny, "--set", "label_smoothing=0.1"}, "--set label_smoothing has no effect"},
      {out + std::vector<std::string>{"--set", "task=kto_loss"}, "--set task is kto_loss, but score computes no loss"},
      {out + std::vector<std::string>{"--set", "level=logits"}, "--set level is logits, but score takes hidden states"},
      {out, "model.hidden_size is not given"},
      {{write("own.yaml", "seed: 1"), "-o", path("own.yaml")}, "own.yaml: is the config"},
      {out + tensors + std::vector<std::string>{"--set", "ignore_index=-1"}, "targets[3] = -100 is outside [0, 7)"},
      {out + tensors + std::vector<std::string>{"--lengths", path("states") + ":short"}, "the lengths sum to 5"},
      {out + packed + std::vector<std::string>{"--set", "batch_size=4"},
       "--set batch_size is 4, but the tensors have 2 sequences; correct it with --set batch_size=2"},
      {out + packed + std::vector<std::string>{"--set", "seq_len=3"},
       "--set seq_len is 3, but --lengths " + path("states") + ": tensor lengths: lengths[0] = 2; leave seq_len out"},
  };
  std::filesystem::create_directory(path("x"));
  for (const std::string& before : {std::string(), std::string("what was there")}) {
    if (!before.empty()) write("scores.safetensors", before);
    score({});  // creates the files of standard output and error
    const size_t count = files();
    for (const Case& c : cases) {
      const Finished result = run(std::vector<std::string>{"score"} + c.arguments);
      EXPECT_EQ(result.exit_code(), 2) << c.message;
      EXPECT_EQ(result.out, "") << c.message;
      EXPECT_TRUE(has(result.err, c.message));
      EXPECT_TRUE(is_one_line(result.err)) << result.err;
      EXPECT_EQ(files(), count) << c.message;
      EXPECT_EQ(read("scores.safetensors"), before) << c.message;
    }
  }
}

TEST_F(ScoreTest, AHeadOfAGgufFileIsReadAsItStands) {
  constexpr int64_t kTokens = 6, kVocab = 7, kHidden = 32;
  const GgufQ8Head head(kVocab);
  std::vector<float> hidden, bias;
  for (int i = 0; i < kTokens * kHidden; ++i) hidden.push_back(static_cast<float>(std::sin(0.7 * i)));
  for (int v = 0; v < kVocab; ++v) bias.push_back(0.25F * static_cast<float>(v));
  const std::vector<int64_t> targets = {0, 1, 6, -100, 3, 2};
  const std::vector<io::TensorToWrite> tensors = {{"hidden", "F32", {kTokens, kHidden}, hidden.data()},
                                                  {"lm_head", "F32", {kVocab, kHidden}, head.weight.data()},
                                                  {"targets", "I64", {kTokens}, targets.data()}};
  io::write_safetensors(path("model"), tensors);
  write("q8.gguf", head.file());
  write("biased.gguf", GgufBytes()
                           .architecture("qwen2")
                           .tensor("output.weight", {kHidden, kVocab}, 8, head.rows)
                           .floats("output.bias", {kVocab}, bias)
                           .bytes());
  const std::vector<std::string> both = {"--hidden", path("model"), "--targets", path("model"), "--lm-head"};
  // Compares bytes, because an ignored row is NaN.
  const auto logps = [&](const std::string& name, const std::vector<std::string>& settings) {
    std::vector<std::string> all = both + std::vector<std::string>{path(name)};
    for (const std::string& setting : settings) all = all + std::vector<std::string>{"--set", setting};
    full_summary(all);
    const std::vector<double> values = Scores(output()).logp;
    return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(double));
  };
  EXPECT_EQ(logps("q8.gguf", {}), logps("model", {"model.softcap=20"}));
  for (const char* softcap : {"model.softcap=5", "model.softcap=0"}) {
    EXPECT_EQ(logps("q8.gguf", {softcap}), logps("model", {softcap}));
  }
  // So is its bias, unless the config disables it.
  EXPECT_EQ(logps("biased.gguf", {"model.bias=true"}), logps("biased.gguf", {}));
  EXPECT_NE(logps("biased.gguf", {"model.bias=false"}), logps("biased.gguf", {}));
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  const std::string layout = "--set model.layout is hidden_vocab, but the head of a GGUF file is vocab_hidden";
  for (const auto& [words, why] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{path("q8.gguf") + ":blk.0"}, "has no tensor blk.0"},
           {{path("pipe")}, "is not a regular file: tensors are read in place"},
           {{path("q8.gguf"), "--set", "model.dtype=float64"}, "float64"},
           {{path("q8.gguf"), "--set", "model.layout=hidden_vocab"}, layout},
           {{path("q8.gguf"), "--set", "model.bias=true"}, "model.bias is true: real tensors need --bias"}}) {
    const Finished finished = score(both + words);
    EXPECT_EQ(finished.exit_code(), 2);
    EXPECT_TRUE(has(finished.err, why)) << finished.err;
    EXPECT_TRUE(is_one_line(finished.err)) << finished.err;
  }
}

TEST_F(ScoreTest, SaysWhichEntryAHeadHasNot) {
  const std::vector<std::string> tensors = write_tensors(true);
  const Finished none = score(tensors + std::vector<std::string>{"--set", "model.vocab_ids=[1, 7]"});
  EXPECT_EQ(none.exit_code(), 2);
  EXPECT_TRUE(has(none.err, "model.vocab_ids: entry 1 is 7, outside the head's 7 entries (ids begin at 0)"))
      << none.err;
  const Finished twice = score(
      tensors + std::vector<std::string>{"--set", "model.vocab_ids=3", "--vocab-ids", path("states") + ":lengths"});
  EXPECT_TRUE(has(twice.err, "model.vocab_ids is set, and --vocab-ids was given: use one of the two")) << twice.err;
}

}  // namespace score_cli_test
}  // namespace logitless::testing

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// `logitless compare-models`: its figures compared with float64 logits, its output, and bad input.
#include <cmath>
#include <numeric>

#include "cli_fixture.h"
#include "gguf_bytes.h"

namespace logitless::testing {
namespace compare_models_cli_test {

constexpr size_t kTokens = 6, kWide = 5, kNarrow = 3, kVocab = 7;
const std::vector<int64_t> kTargets = {0, 1, 6, -100, 3, 2};
constexpr size_t kPoisoned = 4;  // one of every kTokens, which `fewer` ignores too

// A model on the text.
struct Model {
  size_t width;
  std::vector<float> hidden, head, bias;

  Model(size_t width_, double at, size_t tokens = kTokens) : width(width_) {
    for (size_t i = 0; i < tokens * width; ++i) hidden.push_back(static_cast<float>(2 * std::sin(at + double(i))));
    for (size_t i = 0; i < kVocab * width; ++i) head.push_back(static_cast<float>(std::cos(at + double(i))));
    for (size_t v = 0; v < kVocab; ++v) bias.push_back(static_cast<float>(0.1 * at * double(v % 3)));
  }
  std::vector<double> logps(size_t token) const {
    std::vector<double> out(kVocab);
    for (size_t v = 0; v < kVocab; ++v) {
      out[v] = static_cast<double>(bias[v]);
      for (size_t h = 0; h < width; ++h) {
        out[v] += static_cast<double>(hidden[token * width + h]) * static_cast<double>(head[v * width + h]);
      }
    }
    double sum = 0;
    for (const double x : out) sum += std::exp(x);
    for (double& x : out) x -= std::log(sum);
    return out;
  }
};

class CompareModelsTest : public CliTest {
 protected:
  const Model model_{kWide, 0.3}, base_{kNarrow, 1.7};

  void write_model(const std::string& name, const Model& of, bool tall = true) const {
    std::vector<float> head = of.head;
    std::vector<int64_t> shape = {kVocab, static_cast<int64_t>(of.width)};
    if (!tall) {
      std::swap(shape[0], shape[1]);
      for (size_t v = 0; v < kVocab; ++v) {
        for (size_t h = 0; h < of.width; ++h) head[h * kVocab + v] = of.head[v * of.width + h];
      }
    }
    const auto tokens = static_cast<int64_t>(of.hidden.size() / of.width);
    std::vector<int64_t> targets, fewer;
    for (size_t i = 0; i < of.hidden.size() / of.width; ++i) {
      targets.push_back(kTargets[i % kTokens]);
      fewer.push_back(i % kTokens == kPoisoned ? -100 : targets.back());
    }
    const std::vector<TensorToWrite> tensors = {
        {"hidden", "F32", {tokens, static_cast<int64_t>(of.width)}, of.hidden.data()},
        {"lm_head", "F32", shape, head.data()},
        {"bias", "F32", {kVocab}, of.bias.data()},
        {"targets", "I64", {tokens}, targets.data()},
        {"fewer", "I64", {tokens}, fewer.data()}};
    io::write_safetensors(path(name), tensors);
  }
  void write_both() const {
    write_model("model", model_);
    write_model("base", base_, /*tall=*/false);
  }
  Words arguments() const {
    return {"compare-models",           "--hidden",       path("model") + ":hidden", "--lm-head",
            path("model") + ":lm_head", "--bias",         path("model") + ":bias",   "--base-hidden",
            path("base") + ":hidden",   "--base-lm-head", path("base") + ":lm_head", "--base-bias",
            path("base") + ":bias"};
  }
  Words with_targets(const std::string& tensor = "targets") const {
    return arguments() + Words{"--targets", path("base") + ":" + tensor};
  }
};

TEST_F(CompareModelsTest, FiguresAreThoseOfLogits) {
  write_both();
  const json got = report(with_targets() + Words{"-o", path("tokens")});
  std::vector<double> kl, ratio, change;
  double same = 0, model_nll = 0, base_nll = 0;
  for (size_t i = 0; i < kTokens; ++i) {
    if (kTargets[i] < 0) continue;
    const std::vector<double> s = model_.logps(i), t = base_.logps(i);
    double sum = 0;
    for (size_t v = 0; v < kVocab; ++v) sum += std::exp(t[v]) * (t[v] - s[v]);
    kl.push_back(sum);
    same += std::max_element(s.begin(), s.end()) - s.begin() == std::max_element(t.begin(), t.end()) - t.begin();
    const auto target = static_cast<size_t>(kTargets[i]);
    model_nll -= s[target] / 5;
    base_nll -= t[target] / 5;
    ratio.push_back(t[target] - s[target]);
    change.push_back(std::exp(s[target]) - std::exp(t[target]));
  }
  const auto mean = [](const std::vector<double>& x) { return std::accumulate(x.begin(), x.end(), 0.0) / 5; };
  const auto error = [&](const std::vector<double>& x) {
    double squares = 0;
    for (const double value : x) squares += std::pow(value - mean(x), 2);
    return std::sqrt(squares / 4 / 5);
  };
  EXPECT_EQ(got["tokens"], 5);
  EXPECT_NEAR(got["kl"]["mean"], mean(kl), 1e-6);
  EXPECT_NEAR(got["kl"]["standard_error"], error(kl), 1e-6);
  std::sort(kl.begin(), kl.end());
  EXPECT_NEAR(got["kl"]["percentiles"]["median"], kl[2], 1e-6);
  EXPECT_NEAR(got["kl"]["percentiles"]["p90"], 0.4 * kl[3] + 0.6 * kl[4], 1e-6);
  EXPECT_NEAR(got["kl"]["percentiles"]["max"], kl[4], 1e-6);
  EXPECT_NEAR(got["same_top"]["share"], same / 5, 1e-12);
  EXPECT_NEAR(std::log(got["perplexity"]["model"].get<double>()), model_nll, 1e-6);
  EXPECT_NEAR(std::log(got["perplexity"]["base"].get<double>()), base_nll, 1e-6);
  EXPECT_NEAR(got["perplexity"]["log_ratio"], mean(ratio), 1e-6);
  EXPECT_NEAR(got["perplexity"]["log_ratio_standard_error"], error(ratio), 1e-6);
  EXPECT_NEAR(got["probability_change"]["mean"], mean(change), 1e-6);

  EXPECT_EQ(io::SafetensorsFile(path("tokens")).tensors().size(), 4U);
  EXPECT_NEAR(numbers_of("tokens", "logp")[0], model_.logps(0)[0], 1e-6);
  EXPECT_TRUE(std::isnan(numbers_of("tokens", "kl")[3]));
}

TEST_F(CompareModelsTest, TokensThatAreNaNAreCountedAndLeftOut) {
  constexpr size_t kTimes = 20;
  Model model(kWide, 0.3, kTimes * kTokens), base(kNarrow, 1.7, kTimes * kTokens);
  for (size_t i = 0; i < kTimes; ++i) {
    const size_t row = i * kTokens + kPoisoned;
    (i % 2 ? model.hidden[row * kWide] : base.hidden[row * kNarrow]) = std::nanf("");
  }
  write_model("model", model);
  write_model("base", base);
  const Finished finished = run(with_targets() + Words{"--json", path("json")});
  ASSERT_EQ(finished.exit_code(), 0) << finished.err;
  EXPECT_TRUE(has(finished.out, "NaN tokens, left out       20\n"));
  const json got = json::parse(read("json"));
  const json want = report(with_targets("fewer"));
  EXPECT_EQ(got["tokens"], 100);
  EXPECT_EQ(got["nan_tokens"], kTimes);
  EXPECT_EQ(want["tokens"], 80);
  EXPECT_EQ(want["nan_tokens"], 0);
  EXPECT_GT(want["kl"]["percentiles"]["max"], want["kl"]["percentiles"]["min"]);
  for (const char* figures : {"kl", "same_top", "perplexity", "probability_change"}) {
    EXPECT_EQ(got[figures], want[figures]) << figures;
  }
  const json all = report(arguments());
  EXPECT_EQ(all["tokens"], 120);
  EXPECT_EQ(all["nan_tokens"], kTimes);
}

TEST_F(CompareModelsTest, AHeadOfAGgufFileIsReadAsItStands) {
  const GgufQ8Head head(kVocab);
  std::vector<float> hidden;
  for (size_t i = 0; i < kTokens * 32; ++i) hidden.push_back(static_cast<float>(std::sin(0.7 * double(i))));
  const std::vector<TensorToWrite> tensors = {{"hidden", "F32", {kTokens, 32}, hidden.data()},
                                              {"lm_head", "F32", {kVocab, 32}, head.weight.data()}};
  io::write_safetensors(path("model"), tensors);
  const auto most = [&](const Words& softcap) -> double {
    return report(Words{"compare-models", "--hidden", path("model") + ":hidden", "--base-hidden",
                        path("model") + ":hidden", "--base-lm-head", path("model") + ":lm_head", "--lm-head",
                        path("q8.gguf")} +
                  softcap)["kl"]["percentiles"]["max"];
  };
  for (const char* name : {"output.weight", "token_embd.weight"}) {
    write("q8.gguf", head.file(name));
    EXPECT_EQ(most({"--base-softcap", "20"}), 0);
    EXPECT_EQ(most({"--softcap", "0"}), 0) << "0 takes the file's softcap away";
    EXPECT_GT(most({}), 0);
  }
}

TEST_F(CompareModelsTest, BadInputIsALine) {
  write_both();
  const std::vector<float> few(4 * kWide);
  io::write_safetensors(path("short"), std::vector<TensorToWrite>{{"hidden", "F32", {4, kWide}, few.data()}});
  const Words good = arguments() + Words{"-o", path("tokens")};
  Words other_head = good, short_states = good;
  other_head[4] = path("base") + ":lm_head";
  short_states[2] = path("short");
  expect_refusals({{good + Words{"--targets", path("absent")}, "absent: cannot be opened"},
                   {other_head, "neither dimension is 5, the number of columns of the hidden states"},
                   {good + Words{"--softcap", "-1"}, "softcap = -1 must be"},
                   {short_states, "teacher.hidden has 6 rows but hidden has 4"}});
  EXPECT_FALSE(std::filesystem::exists(path("tokens")));
}

}  // namespace compare_models_cli_test
}  // namespace logitless::testing

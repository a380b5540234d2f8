// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The commands on heads with a LoRA, from a config or saved by PEFT.
#include <cmath>
#include <numeric>
#include <set>

#include "cli_fixture.h"
#include "peft_adapter.h"

namespace logitless::testing {
namespace lora_cli_test {

constexpr int64_t kHidden = 5, kVocab = 7;  // the sizes of write_tensors()

class LoraCliTest : public CliTest {
 protected:
  std::vector<double> logps(const Words& arguments) const {
    report(Words{"score", "-o", path("scores")} + arguments);
    return numbers_of("scores", "logp");
  }
  // Two sums of some ten products of numbers near 1, in float32: 100 units of roundoff.
  static void expect_near(const std::vector<double>& got, const std::vector<double>& want) {
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_TRUE(std::isnan(want[i]) ? std::isnan(got[i])
                                      : std::abs(got[i] - want[i]) <= 100 * 0x1p-24 * (1 + std::abs(want[i])))
          << i << ": " << got[i] << ", " << want[i];
    }
  }
  // Writes the head of write_tensors() plus scale · b a.
  std::string write_merged(const PeftAdapter& adapter, double scale) const {
    std::vector<float> merged(kVocab * kHidden);
    for (int64_t v = 0; v < kVocab; ++v) {
      for (int64_t h = 0; h < kHidden; ++h) {
        const auto i = static_cast<size_t>(v * kHidden + h);
        merged[i] = static_cast<float>(std::cos(static_cast<double>(i)) + adapter.at(scale, v, h));
      }
    }
    io::write_safetensors(path("merged"),
                          std::vector<TensorToWrite>{{"lm_head", "F32", {kVocab, kHidden}, merged.data()}});
    return path("merged");
  }
};

TEST_F(LoraCliTest, CompareHoldsItsGradientsToThoseOfDense) {
  const auto with = [&](const std::string& lora) { return report(compare({"model.lora={" + lora + "}"})); };
  const json plain = report(compare({})), two = with("rank: 3, scale: 2");
  EXPECT_EQ(two["shape"]["lora_rank"], 3);
  EXPECT_EQ(two["gates"].size(), plain["gates"].size() + 2);
  for (const char* name : {"d_lora_a_rel_l2", "d_lora_b_rel_l2"}) {
    EXPECT_TRUE(two["diff"][name].is_number());
    EXPECT_FALSE(plain["diff"].contains(name));
  }
  // Every member of the section changes the loss.
  std::set<double> losses = {plain["dense"]["loss"], two["dense"]["loss"]};
  for (const char* lora : {"rank: 4, scale: 2", "rank: 3, scale: 1", "rank: 3, scale: 2, dtype: bfloat16"}) {
    losses.insert(with(lora)["dense"]["loss"].get<double>());
  }
  EXPECT_EQ(losses.size(), 5u);
  EXPECT_EQ(with("rank: 3, scale: 0")["dense"]["loss"], plain["dense"]["loss"]);
  EXPECT_TRUE(has(run(compare({"model.lora.rank=3"})).out, "vocab 2049, LoRA of rank 3, float32"));
  EXPECT_EQ(run(compare({"model.lora.rank=3", "tolerances.d_lora_b_rel_l2=0"})).exit_code(), 1);
}

TEST_F(LoraCliTest, BadSettingsSayWhatIsWrong) {
  expect_refusals(
      {{compare({"model.lora.scale=2"}), "--set model.lora.scale needs model.lora.rank: the head has no LoRA"},
       {compare({"model.lora.rank=100000000000"}), "choose a smaller shape"},
       {compare({"gradients.d_lora_a=true"}), "--set gradients.d_lora_a needs a LoRA"},
       // What the library refuses.
       {compare({"model.lora.rank=3", "model.lora.dtype=float64"}), "float64 cannot be mixed with other types"},
       {compare({"model.lora.rank=3", "backward.mode=sampled"}),
        "backward.mode = sampled cannot run: the head has a LoRA, and the noise of its gradients is not estimated: "
        "give backward.theta"},
       {{"gradcheck", config_named("gradcheck/cross_entropy-logits-tiny"), "--set", "model.lora.rank=3"},
        "model.lora.rank needs level fused: logits are final"}});
}

TEST_F(LoraCliTest, ScoresOfAnAdapterAreThoseOfTheMergedHead) {
  for (const bool tall : {true, false}) {
    Words tensors = write_tensors(tall);
    for (const json& members : {json::object(), json({{"use_rslora", true}}), json({{"lora_alpha", -7}})}) {
      const PeftAdapter adapter = PeftAdapter(kHidden, kVocab).with(members);
      const std::string lora = adapter.save(folder_ / "adapter");
      const double scale = members.contains("use_rslora") ? 3 / std::sqrt(2.0) : members.empty() ? 1.5 : -3.5;
      Words merged = tensors;
      merged[3] = write_merged(adapter, scale);
      for (const Words& more : {Words{}, Words{"--bias", path("states"), "--set", "model.softcap=3"},
                                Words{"--set", "model.vocab_ids=[6, 0, 1, 2, 3, 2, 2]"}}) {
        const std::vector<double> got = logps(tensors + Words{"--lora", lora} + more);
        expect_near(got, logps(merged + more));
        EXPECT_GT(std::fabs(got[0] - logps(tensors + more)[0]), 1e-2);
      }
    }
  }
}

TEST_F(LoraCliTest, AdaptersOfAnyTypeAreRead) {
  const Words tensors = write_tensors();
  PeftAdapter adapter(kHidden, kVocab);
  std::vector<float16> a;
  std::vector<bfloat16> b;
  for (float& x : adapter.a) x = io::to_float(a.emplace_back(io::to_float16(x)));
  for (float& x : adapter.b) x = io::to_float(b.emplace_back(io::to_bfloat16(x)));
  Words merged = tensors;
  merged[3] = write_merged(adapter, 1.5);
  const std::vector<double> want = logps(merged);
  adapter.a.clear(), adapter.b.clear();
  const std::string lora = adapter.with_tensor({adapter.module + "lora_A.weight", "F16", {2, kHidden}, a.data()})
                               .with_tensor({adapter.module + "lora_B.weight", "BF16", {kVocab, 2}, b.data()})
                               .save(folder_ / "adapter");
  for (const char* dtype : {"model.dtype=float32", "model.dtype=float64"}) {
    expect_near(logps(tensors + Words{"--lora", lora, "--set", dtype}), want);
  }
  // Config keys about the LoRA must agree with it; the dtype converts it.
  expect_near(logps(tensors + Words{"--lora", lora, "--set", "model.lora={rank: 2, scale: 1.5, dtype: float32}"}),
              want);
}

TEST_F(LoraCliTest, CompareWritesTheGradientsOfAnAdapter) {
  const PeftAdapter adapter(kHidden, kVocab);
  const Words with = write_tensors(false) + Words{"--lora", adapter.save(folder_ / "adapter")};
  EXPECT_EQ(report(Words{"gradcheck"} + with)["checks"][0]["shape"]["lora_rank"], 2);
  report(Words{"compare", "-o", path("results")} + with);
  // a and b occur only as their product, so sum(d_a * a) equals sum(d_b * b).
  const std::vector<double> d_a = numbers_of("results", "d_lora_a", {2, kHidden});
  const std::vector<double> d_b = numbers_of("results", "d_lora_b", {kVocab, 2});
  const double by_a = std::inner_product(d_a.begin(), d_a.end(), adapter.a.begin(), 0.0);
  EXPECT_GT(std::fabs(by_a), 1e-2);
  EXPECT_NEAR(by_a, std::inner_product(d_b.begin(), d_b.end(), adapter.b.begin(), 0.0), 1e-5);
}

TEST_F(LoraCliTest, ModelsAreComparedWithTheirAdapters) {
  write_tensors();
  const PeftAdapter adapter(kHidden, kVocab);
  const std::string lora = adapter.save(folder_ / "adapter"), merged = write_merged(adapter, 1.5), head = path("head");
  const auto divergence = [&](const Words& more) -> double {
    return report(Words{"compare-models", "--hidden", path("states"), "--base-hidden", path("states")} +
                  more)["kl"]["mean"];
  };
  const double want = divergence({"--lm-head", merged, "--base-lm-head", head});
  EXPECT_GT(want, 0.1);
  EXPECT_NEAR(divergence({"--lm-head", head, "--lora", lora, "--base-lm-head", head}), want, 1e-5);
  EXPECT_NEAR(divergence({"--lm-head", merged, "--base-lm-head", head, "--base-lora", lora + ":lm_head"}), 0, 1e-5);
}

TEST_F(LoraCliTest, BadAdaptersSayWhatIsWrongAndNothingIsWritten) {
  const Words score = Words{"score", "-o", path("none")} + write_tensors();
  PeftAdapter adapter(kHidden, kVocab);
  const std::string lora = adapter.save(folder_ / "adapter");
  const std::string config = lora + "/adapter_config.json", weights = lora + "/adapter_model.safetensors";
  const std::string config_before = read("adapter/adapter_config.json");
  const Words models = {"compare-models", "--lora",         lora,         "--hidden",
                        path("states"),   "--lm-head",      path("head"), "--base-hidden",
                        path("states"),   "--base-lm-head", path("head"), "-o"};
  const std::string input = "the file that --lora names";
  expect_refusals({
      {score + Words{"--lora", path("absent")}, "--lora " + path("absent") + ": cannot be opened: No such file"},
      {{"score", "-o", path("none"), kTiny, "--lora", lora}, "--lora requires --hidden"},
      {score + Words{"--lora", lora + ":embed_out"}, "has no LoRA of embed_out, but of lm_head, q_proj"},
      {score + Words{"--lora", lora, "--set", "model.lora.rank=3"},
       "model.lora.rank is 3, but the adapter of --lora " + lora + " has 2 rows of lora_A"},
      {score + Words{"--lora", lora, "--set", "model.lora.scale=1"},
       "model.lora.scale is 1, but the adapter of --lora " + lora + " has 1.5"},
      {score + Words{"--set", "model.lora.rank=2"}, "model.lora.rank is set: real tensors need --lora FILE"},
      {models + Words{config}, input},
      {models + Words{weights}, input},
      {Words{"score", "-o", weights, "--lora", lora} + write_tensors(), input},
  });
  EXPECT_EQ(read("adapter/adapter_config.json"), config_before);
  adapter.with({{"use_dora", true}}).save(folder_ / "adapter");
  expect_refusals({{score + Words{"--lora", lora}, "use_dora is true"}});
  EXPECT_FALSE(std::filesystem::exists(path("none")));
}

}  // namespace lora_cli_test
}  // namespace logitless::testing

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The commands on heads with a LoRA, from a config or saved by PEFT.
#include <cmath>
#include <cstring>
#include <numeric>
#include <set>

#include "cli_fixture.h"
#include "gguf_bytes.h"
#include "io/config.h"
#include "peft_adapter.h"

namespace logitless::testing {
namespace lora_cli_test {

using Words = std::vector<std::string>;

constexpr int64_t kTokens = 6, kHidden = 5, kVocab = 7;  // the sizes of write_tensors()

std::vector<float> floats_of(const io::Tensor* tensor) {
  std::vector<float> values(static_cast<size_t>(tensor->elements()));
  io::convert_floats(*tensor, DType::kFloat32, values.data());
  return values;
}

class LoraCliTest : public CliTest {
 protected:
  json summary_of(const Words& arguments) const {
    const Finished finished = run(arguments + Words{"--json", "-"});
    EXPECT_EQ(finished.exit_code(), 0) << finished.err;
    return json::parse(finished.out, nullptr, false);
  }
  void expect_refusal(const Words& arguments, const std::string& why) const {
    const Finished finished = run(arguments);
    EXPECT_EQ(finished.exit_code(), 2) << why;
    EXPECT_TRUE(has(finished.err, why));
    EXPECT_TRUE(is_one_line(finished.err)) << finished.err;
  }
  // Returns the scores of the given tensors.
  std::vector<double> logps(const Words& arguments) const {
    const Finished finished = run(Words{"score", "-o", path("scores"), "--quiet"} + arguments);
    EXPECT_EQ(finished.exit_code(), 0) << finished.err;
    if (finished.exit_code() != 0) return {};
    const io::SafetensorsFile file(path("scores"));
    std::vector<double> out(static_cast<size_t>(file.find("logp")->elements()));
    std::memcpy(out.data(), file.find("logp")->data, out.size() * sizeof(double));
    return out;
  }
  // Two sums of some ten products of numbers near 1, in float32: 100 units of roundoff.
  static void expect_near(const std::vector<double>& got, const std::vector<double>& want) {
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) {
      if (std::isnan(want[i])) {
        EXPECT_TRUE(std::isnan(got[i]));
      } else {
        EXPECT_NEAR(got[i], want[i], 100 * 0x1p-24 * (1 + std::fabs(want[i]))) << i;
      }
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
  const json with = report({"model.lora={rank: 3, scale: 2}"}), without = report({});
  EXPECT_EQ(with["shape"]["lora_rank"], 3);
  EXPECT_FALSE(without["shape"].contains("lora_rank"));
  EXPECT_FALSE(without["diff"].contains("d_lora_a_rel_l2"));
  EXPECT_EQ(with["gates"].size(), without["gates"].size() + 2);
  for (const char* name : {"d_lora_a_rel_l2", "d_lora_b_rel_l2"}) EXPECT_TRUE(with["diff"][name].is_number());
  EXPECT_TRUE(report({"model.lora.rank=3", "gradients.d_lora_a=false"})["diff"]["d_lora_a_rel_l2"].is_null());

  std::set<double> losses = {without["dense"]["loss"], with["dense"]["loss"]};
  losses.insert(report({"model.lora={rank: 4, scale: 2}"})["dense"]["loss"].get<double>());
  losses.insert(report({"model.lora={rank: 3, scale: 1}"})["dense"]["loss"].get<double>());
  losses.insert(report({"model.lora={rank: 3, scale: 2, dtype: bfloat16}"})["dense"]["loss"].get<double>());
  EXPECT_EQ(losses.size(), 5u);
  EXPECT_EQ(report({"model.lora={rank: 3, scale: 0}"})["dense"]["loss"], without["dense"]["loss"]);
  EXPECT_TRUE(has(compare({"model.lora.rank=3"}).out, "vocab 2049, LoRA of rank 3, float32"));
  EXPECT_EQ(compare({"model.lora.rank=3", "tolerances.d_lora_b_rel_l2=0", "model.dtype=float32"}).exit_code(), 1);
}

TEST_F(LoraCliTest, BadSettingsSayWhatIsWrong) {
  const auto refused = [&](const Words& settings, const std::string& why, const std::string& command = "compare") {
    Words arguments = {command, kTiny};
    for (const std::string& setting : settings) arguments = arguments + Words{"--set", setting};
    expect_refusal(arguments, why);
  };
  refused({"model.lora.rank=-1"}, "--set model.lora.rank must be an integer from 0");
  refused({"model.lora.r=3"}, "--set model.lora.r is not a known key; did you mean model.lora.rank?");
  refused({"model.lora.scale=2"}, "--set model.lora.scale needs model.lora.rank: the head has no LoRA");
  refused({"model.lora.rank=100000000000"}, "choose a smaller shape");
  refused({"gradients.d_lora_a=true"}, "--set gradients.d_lora_a needs a LoRA");
  // What the library refuses.
  refused({"model.lora.rank=3", "model.lora.dtype=float64"}, "float64 cannot be mixed with other types");
  refused({"model.lora.rank=3", "backward.mode=sampled"},
          "backward.mode = sampled cannot run: the head has a LoRA, and the noise of its gradients is not estimated: "
          "give backward.theta");
  expect_refusal({"gradcheck", config_named("gradcheck/cross_entropy-logits-tiny"), "--set", "model.lora.rank=3"},
                 "model.lora.rank needs level fused: logits are final");
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
  const Words tensors = write_tensors(true);
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
  const Words tensors = write_tensors(false);
  const PeftAdapter adapter(kHidden, kVocab);
  const Words with = tensors + Words{"--lora", adapter.save(folder_ / "adapter")};
  EXPECT_EQ(summary_of(Words{"gradcheck"} + with)["checks"][0]["shape"]["lora_rank"], 2);
  summary_of(Words{"compare", "-o", path("results")} + with);
  const io::SafetensorsFile results(path("results"));
  EXPECT_EQ(results.tensors().size(), 5u);
  ASSERT_TRUE(results.find("d_lora_a") && results.find("d_lora_b"));
  EXPECT_EQ(results.find("d_lora_a")->shape, (std::vector<int64_t>{2, kHidden}));
  EXPECT_EQ(results.find("d_lora_b")->shape, (std::vector<int64_t>{kVocab, 2}));
  // a and b occur only as their product, so sum(d_a * a) equals sum(d_b * b).
  const std::vector<float> d_a = floats_of(results.find("d_lora_a")), d_b = floats_of(results.find("d_lora_b"));
  const double by_a = std::inner_product(d_a.begin(), d_a.end(), adapter.a.begin(), 0.0);
  EXPECT_GT(std::fabs(by_a), 1e-2);
  EXPECT_NEAR(by_a, std::inner_product(d_b.begin(), d_b.end(), adapter.b.begin(), 0.0), 1e-5);
}

TEST_F(LoraCliTest, ModelsAreComparedWithTheirAdapters) {
  const Words tensors = write_tensors(true);
  const PeftAdapter adapter(kHidden, kVocab);
  const std::string lora = adapter.save(folder_ / "adapter"), merged = write_merged(adapter, 1.5);
  const auto divergence = [&](const Words& more) {
    return summary_of(Words{"compare-models", "--hidden", path("states"), "--base-hidden", path("states")} +
                      more)["kl"]["mean"]
        .get<double>();
  };
  const std::string head = path("head");
  const double want = divergence({"--lm-head", merged, "--base-lm-head", head});
  EXPECT_GT(want, 0.1);
  EXPECT_NEAR(divergence({"--lm-head", head, "--lora", lora, "--base-lm-head", head}), want, 1e-5);
  EXPECT_NEAR(divergence({"--lm-head", merged, "--base-lm-head", head, "--base-lora", lora}), 0, 1e-5);
  EXPECT_NEAR(divergence({"--lm-head", head, "--lora", lora, "--base-lm-head", head, "--base-lora", lora + ":lm_head"}),
              0, 1e-12);
}

TEST_F(LoraCliTest, BadAdaptersSayWhatIsWrongAndNothingIsWritten) {
  const Words tensors = write_tensors(true);
  PeftAdapter adapter(kHidden, kVocab);
  const std::string lora = adapter.save(folder_ / "adapter");
  const Words score = Words{"score", "-o", path("none")} + tensors, with = score + Words{"--lora", lora};
  expect_refusal(score + Words{"--lora", path("absent")},
                 "--lora " + path("absent") + ": cannot be opened: No such file");
  expect_refusal({"score", "-o", path("none"), kTiny, "--lora", lora}, "--lora requires --hidden");
  expect_refusal(score + Words{"--lora", lora + ":embed_out"}, "has no LoRA of embed_out, but of lm_head, q_proj");
  expect_refusal(with + Words{"--set", "model.lora.rank=3"},
                 "model.lora.rank is 3, but the adapter of --lora " + lora + " has 2 rows of lora_A");
  expect_refusal(with + Words{"--set", "model.lora.scale=1"},
                 "model.lora.scale is 1, but the adapter of --lora " + lora + " has 1.5");
  expect_refusal(score + Words{"--set", "model.lora.rank=2"}, "model.lora.rank is set: real tensors need --lora FILE");
  for (const char* file : {"adapter_config.json", "adapter_model.safetensors"}) {
    const std::string before = read("adapter/" + std::string(file));
    expect_refusal(Words{"score", "-o", lora + "/" + file, "--lora", lora} + tensors, "the file that --lora names");
    expect_refusal(Words{"compare-models", "-o", lora + "/" + file, "--lora", lora, "--hidden", path("states"),
                         "--lm-head", path("head"), "--base-hidden", path("states"), "--base-lm-head", path("head")},
                   "the file that --lora names");
    EXPECT_EQ(read("adapter/" + std::string(file)), before);
  }
  adapter.with({{"use_dora", true}}).save(folder_ / "adapter");
  expect_refusal(with, "use_dora is true");
  EXPECT_FALSE(std::filesystem::exists(path("none")));
}

}  // namespace lora_cli_test
}  // namespace logitless::testing

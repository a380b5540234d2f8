// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// `logitless score --top-k`: the largest logits of each row in the file of scores.
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "cli_fixture.h"

namespace logitless::testing {
namespace score_top_k_test {

class ScoreTopKTest : public CliTest {
 protected:
  std::string output() const { return path("scores.safetensors"); }
  Finished score(const std::vector<std::string>& arguments) const {
    return run(std::vector<std::string>{"score", "-o", output(), "--json", "-"} + write_tensors(true) + arguments);
  }
  /// Returns the values of a tensor in the file of scores, which must have this shape.
  template <class T>
  std::vector<T> read_scores(const char* name, const char* dtype, const std::vector<int64_t>& shape) const {
    const io::SafetensorsFile file(output());
    const io::Tensor* tensor = file.find(name);
    EXPECT_NE(tensor, nullptr) << name;
    if (!tensor) return {};
    EXPECT_EQ(tensor->dtype, dtype) << name;
    EXPECT_EQ(std::vector<int64_t>(tensor->shape.begin(), tensor->shape.end()), shape) << name;
    std::vector<T> values(static_cast<size_t>(tensor->elements()));
    if (!values.empty()) std::memcpy(values.data(), tensor->data, tensor->bytes);
    return values;
  }
};

TEST_F(ScoreTopKTest, TheLargestLogitsOfEachRow) {
  const Finished result = score({"--top-k", "3"});
  ASSERT_EQ(result.exit_code(), 0) << result.err;
  const auto ids = read_scores<int64_t>("top_ids", "I64", {6, 3});
  const auto logps = read_scores<double>("top_logps", "F64", {6, 3});
  const auto argmax = read_scores<int64_t>("argmax", "I64", {6});
  const auto argmax_logp = read_scores<double>("argmax_logp", "F64", {6});
  double mass = 0;
  int tokens = 0;
  for (size_t i = 0; i < 6; ++i) {
    for (size_t k = 3 * i; k < 3 * i + 3; ++k) {
      if (argmax[i] < 0) {  // the row is ignored
        EXPECT_EQ(ids[k], -1);
        EXPECT_TRUE(std::isnan(logps[k]));
      } else {
        mass += std::exp(logps[k]);
      }
    }
    if (argmax[i] < 0) continue;
    ++tokens;
    EXPECT_EQ(ids[3 * i], argmax[i]);
    // Both are the logit's distance from the largest, which is 0, minus log_sum.
    EXPECT_EQ(logps[3 * i], argmax_logp[i]);
    EXPECT_GT(logps[3 * i], logps[3 * i + 1]);
    EXPECT_GT(logps[3 * i + 1], logps[3 * i + 2]);
  }
  EXPECT_EQ(tokens, 5);
  EXPECT_NEAR(json::parse(result.out)["mean_top_mass"].get<double>(), mass / tokens, 1e-12);
}

TEST_F(ScoreTopKTest, TheConfigMayAskForThem) {
  EXPECT_EQ(score({"--set", "top_k=256"}).exit_code(), 0) << "the most that there may be";
  ASSERT_EQ(score({"--set", "top_k=9"}).exit_code(), 0);
  const auto ids = read_scores<int64_t>("top_ids", "I64", {6, 9});
  const auto logps = read_scores<double>("top_logps", "F64", {6, 9});
  EXPECT_GE(ids[6], 0);
  EXPECT_EQ(ids[7], -1) << "the vocabulary has 7 entries";
  EXPECT_EQ(logps[8], -std::numeric_limits<double>::infinity());
  ASSERT_EQ(score({"--set", "top_k=9", "--top-k", "2"}).exit_code(), 0);
  EXPECT_EQ(read_scores<int64_t>("top_ids", "I64", {6, 2}).size(), 12U) << "the flag comes first";
}

TEST_F(ScoreTopKTest, WrongCountsAreRefused) {
  for (const char* wrong : {"0", "257", "-1", "x"}) {
    EXPECT_EQ(score({"--top-k", wrong}).exit_code(), 2) << wrong;
    EXPECT_FALSE(std::filesystem::exists(output()));
  }
  const Finished result = score({"--set", "top_k=257"});
  EXPECT_EQ(result.exit_code(), 2);
  EXPECT_TRUE(has(result.err, "top_k must be"));
}

}  // namespace score_top_k_test
}  // namespace logitless::testing

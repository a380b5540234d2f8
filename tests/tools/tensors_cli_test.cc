// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The command on tensors in files: what it reads and what it writes.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "cli_fixture.h"

namespace logitless::testing {
namespace tensors_cli_test {

class TensorsCliTest : public CliTest {
 protected:
  json fused(const Words& arguments) const { return report(Words{"compare"} + arguments)["fused"]; }
};

TEST_F(TensorsCliTest, EitherLayoutAndAnotherTypeGiveTheLoss) {
  const json tall = report(Words{"compare"} + write_tensors(true));
  EXPECT_EQ(tall["shape"],
            json({{"tokens", 6}, {"hidden", 5}, {"vocab", 7}, {"dtype", "float32"}, {"layout", "vocab_hidden"}}));
  EXPECT_EQ(tall["details"]["dense_metrics"]["tokens"], 5);
  const double loss = tall["dense"]["loss"];
  const json wide = report(Words{"compare"} + write_tensors(false));
  EXPECT_EQ(wide["shape"]["layout"], "hidden_vocab");
  EXPECT_NEAR(wide["dense"]["loss"].get<double>(), loss, 1e-6);
  const json rounded = report(Words{"compare", "--set", "model.dtype=bfloat16"} + write_tensors(true));
  EXPECT_EQ(rounded["shape"]["dtype"], "bfloat16");
  EXPECT_NEAR(rounded["dense"]["loss"].get<double>(), loss, 0.05);
  EXPECT_NE(rounded["dense"]["loss"], loss);
}

TEST_F(TensorsCliTest, LengthsAndBiasCount) {
  const Words base = write_tensors();
  EXPECT_NE(fused(base + Words{"--bias", path("states")})["loss"], fused(base)["loss"]);
  // Of the targets 0 1 6 -100 3 2, a shift drops the first one of each sequence; the fourth is always
  // ignored.
  const std::pair<Words, int> cases[] = {{{}, 4},                             // [0] 1 6 -100 3 2
                                         {{"--lengths", path("states")}, 3},  // [0] 1 | [6] -100 3 2
                                         {{"--set", "batch_size=2", "--lengths", path("states")}, 3},
                                         {{"--set", "batch_size=3"}, 2}};  // [0] 1 | [6] -100 | [3] 2
  for (const auto& [more, tokens] : cases) {
    const json r = report(Words{"compare", "--set", "shift=true"} + base + more);
    EXPECT_EQ(r["details"]["fused_metrics"]["tokens"], tokens);
  }
}

TEST_F(TensorsCliTest, RealTensorsMayBeBatched) {
  const Words flat = write_tensors();
  const io::SafetensorsFile file(path("states"));
  const auto as = [&](const char* name, const char* of, std::vector<int64_t> shape) {
    return TensorToWrite{name, file.find(of)->dtype, shape, file.find(of)->data};
  };
  const std::vector<TensorToWrite> tensors = {as("hidden", "hidden", {3, 2, 5}), as("targets", "targets", {3, 2}),
                                              as("other", "targets", {2, 3}), as("pair", "hidden", {2, 3, 5})};
  const std::string batched = path("batched");
  io::write_safetensors(batched, tensors);
  const Words call = {"--set", "shift=true", "--hidden", batched, "--lm-head", path("head"), "--targets"};
  const json truth = fused(Words{"--set", "shift=true", "--set", "batch_size=3"} + flat);
  for (const std::string& targets : {batched, path("states")}) {
    EXPECT_EQ(fused(call + Words{targets})["loss"], truth["loss"]);
  }
  const Words pairs = {"compare",
                       "--lm-head",
                       path("head"),
                       "--set",
                       "task=preference_loss",
                       "--set",
                       "preference_loss.loss_type=simpo"};
  report(pairs + Words{"--hidden", batched + ":pair", "--targets", batched + ":other"});
  expect_refusals(
      {{Words{"compare"} + call + Words{batched + ":other"},
        "tensor other [2, 3]: must have one entry for each of the 6 rows of hidden [3, 2, 5]"},
       {Words{"compare"} + call + Words{batched, "--set", "batch_size=2"}, "tensor hidden [3, 2, 5] holds 3 sequences"},
       {pairs + Words{"--hidden", batched + ":hidden", "--targets", batched + ":targets"},
        "hidden holds 3 sequences: pairs need an even number"}});
}

TEST_F(TensorsCliTest, TensorsThatDisagreeAreBadInput) {
  expect_refusals(
      {{{"--set", "model.vocab_size=8"}, "--set model.vocab_size is 8, but the tensors have 7 vocabulary entries"},
       {{"--set", "seq_len=7"}, "--set seq_len is 7, but the tensors have 6 tokens per sequence"},
       {{"--set", "batch_size=4"}, "6 tokens are not a multiple of it"},
       {{"--set", "model.layout=hidden_vocab"}, "--set model.layout is hidden_vocab, so "},
       {{"--set", "model.bias=true"}, "need --bias FILE"},
       {{"--set", "model.bias=false", "--bias", path("states")}, "is false, but --bias was given"},
       {{"--lengths", path("states") + ":short"}, "tensor short: the lengths sum to 5, but hidden has 6 rows"},
       {{"--lengths", path("states") + ":targets"}, "tensor targets: lengths[2] = 6"},
       // Errors that only the library can detect are reported from the contender's process as bad input too.
       {{"--set", "ignore_index=-1"}, "targets[3] = -100"}},
      Words{"compare"} + write_tensors());
}

// A library error about a tensor begins with the flag and the file.
TEST_F(TensorsCliTest, ARefusedTensorIsNamedByItsFlag) {
  const std::vector<int32_t> stray = {0, 1, 7, 2, 3, 2};
  const std::vector<uint8_t> flags = {2}, mask = {1, 1, 1, 0, 1, 1};
  const std::vector<float> numbers = {1, 2, std::numeric_limits<float>::quiet_NaN(), 4, 5, 6}, hidden(30, 0.5F);
  const std::vector<TensorToWrite> tensors = {
      {"stray", "I32", {6}, stray.data()},   {"flags", "U8", {1}, flags.data()},
      {"mask", "U8", {6}, mask.data()},      {"short", "U8", {5}, mask.data()},
      {"turned", "U8", {3, 2}, mask.data()}, {"nan", "F32", {6}, numbers.data()},
      {"one", "F32", {1}, numbers.data()},   {"batched", "F32", {2, 3, 5}, hidden.data()}};
  const std::string file = path("more");
  io::write_safetensors(file, tensors);
  const Words model = write_tensors();
  const Words targets = {"--targets", file + ":stray"}, head = {"--lm-head", path("head")};
  const Words with_stray = Words{"--hidden", path("states")} + head + targets;
  const std::string outside = "--targets " + file + ":stray: targets[2] = 7 is outside [0, 7)";
  expect_refusals({
      {Words{"compare", "--set", "task=policy_loss", "--advantages", file + ":one", "--mask", file + ":short"} + model,
       "--mask " + file + ":short: mask has 5 entries but hidden has 6 rows"},
      {Words{"compare", "--set", "task=policy_loss", "--advantages", file + ":nan", "--mask", file + ":mask"} + model,
       "--advantages " + file + ":nan: advantages[2] = nan must be finite"},
      {Words{"compare", "--set", "task=kto_loss", "--labels", file + ":flags", "--ref-logps", file + ":one"} + model,
       "--labels " + file + ":flags: labels[0] = 2 must be 0 or 1"},
      {Words{"compare", "--set", "task=policy_loss", "--hidden", file + ":batched", "--targets", path("states"),
             "--mask", file + ":turned", "--advantages", file + ":one"} +
           head,
       "--mask " + file + ": tensor turned [3, 2]: must be [2, 3]"},
      {Words{"compare"} + with_stray, outside},
      {Words{"gradcheck"} + with_stray, outside},
      {Words{"score", "-o", path("out")} + with_stray, outside},
  });
}

// Teachers and sets of ids from files determine the loss, which must equal the reference's.
TEST_F(TensorsCliTest, TensorsOfTeachersAndSets) {
  const Words tensors = write_tensors();
  std::vector<float> states(18), head(21), bias(7, 0.5f), rows(42), values(12);
  for (size_t i = 0; i < states.size(); ++i) states[i] = std::cos(3 * static_cast<float>(i));
  for (size_t i = 0; i < head.size(); ++i) head[i] = std::sin(2 * static_cast<float>(i));
  const std::vector<int64_t> ids = {0, 3, 1, 2, 6, 5, 4, 0, 3, 1, 2, 6}, counts = {2, 2, 2, 0, 2, 1};
  const std::vector<int32_t> targets = {0, 1, 6, -100, 3, 2};
  for (size_t i = 0; i < targets.size(); ++i) {
    if (targets[i] >= 0) rows[i * 7 + static_cast<size_t>(targets[i])] = 1;
    values[2 * i] = 0.5f, values[2 * i + 1] = 0.25f;
  }
  std::vector<float> logps(12);
  std::transform(values.begin(), values.end(), logps.begin(), [](float x) { return std::log(x); });
  const std::vector<TensorToWrite> of_teacher = {{"teacher_hidden", "F32", {6, 3}, states.data()},
                                                 {"teacher_lm_head", "F32", {7, 3}, head.data()},
                                                 {"teacher_bias", "F32", {7}, bias.data()},
                                                 {"short", "F32", {3, 3}, states.data()}};
  const std::vector<TensorToWrite> of_sets = {
      {"set_ids", "I64", {6, 2}, ids.data()},       {"set_counts", "I64", {6}, counts.data()},
      {"set_values", "F32", {6, 2}, values.data()}, {"logps", "F32", {6, 2}, logps.data()},
      {"half", "F32", {6, 1}, values.data()},       {"soft_rows", "F32", {6, 7}, rows.data()}};
  const std::string teacher = path("teacher"), sets = path("sets");
  io::write_safetensors(teacher, of_teacher);
  io::write_safetensors(sets, of_sets);
  const auto words = [&](const char* command, const char* task) {
    return Words{command, "--set", std::string("task=") + task} + tensors;
  };
  const auto loss = [&](const char* task, const Words& more) {
    report(words("gradcheck", task) + more);
    return report(words("compare", task) + more)["fused"]["loss"].get<double>();
  };
  const Words taught = {"--teacher-hidden", teacher, "--teacher-lm-head", teacher};
  const Words itself = {"--teacher-hidden", path("states") + ":hidden", "--teacher-lm-head", path("head")};
  // Its gradient is 0 up to rounding, so relative errors are meaningless.
  const Finished same = run(words("compare", "distillation_loss") + itself + Words{"--json", "-"});
  EXPECT_EQ(json::parse(same.out)["fused"]["loss"], 0) << same.err;
  const double of_other = loss("distillation_loss", taught);
  EXPECT_GT(of_other, 0.01);
  // A bias that is the same for all entries does not change the distribution.
  EXPECT_NEAR(loss("distillation_loss", taught + Words{"--teacher-bias", teacher}), of_other, 1e-6);
  const Words given = {"--set-ids", sets};
  const Words weighed = given + Words{"--set-values", sets + ":set_values"};
  const Words counted = {"--set-counts", sets + ":set_counts"};
  EXPECT_NE(loss("soft_cross_entropy", weighed), loss("soft_cross_entropy", weighed + counted));
  EXPECT_NE(loss("id_logps", weighed), loss("id_logps", weighed + counted));
  EXPECT_GT(loss("set_distillation_loss", given + Words{"--set-values", sets + ":logps"}), 0.01);
  // Rows with a 1 at the target are equivalent to the target. The row of the fourth token, which
  // cross-entropy ignores, is 0.
  const double one_hot = loss("soft_cross_entropy", {"--soft-rows", sets});
  EXPECT_NEAR(one_hot * 6, loss("cross_entropy", {}) * 5, 1e-5);

  const auto refused = [&](const char* task, const Words& more, const std::string& message) {
    expect_refusals({{words("compare", task) + more, message}});
  };
  refused("distillation_loss", {}, "task distillation_loss on real tensors needs --teacher-hidden");
  refused("cross_entropy", taught, "--teacher-hidden was given, but task cross_entropy has no use");
  refused("distillation_loss", {"--teacher-hidden", teacher + ":short", "--teacher-lm-head", teacher},
          "tensor short [3, 3]: must have one row for each of the 6 rows of hidden");
  refused("soft_cross_entropy", given + Words{"--set-values", sets + ":half"},
          "--set-values has 6 entries, but --set-ids has 12");
  const Words dense = {"--soft-rows", sets + ":soft_rows"};
  refused("soft_cross_entropy", dense + counted, "--soft-rows and --set-counts were given");
  refused("soft_cross_entropy", dense + Words{"--set-values", sets + ":set_values"},
          "--soft-rows and --set-values were given");
}

TEST_F(TensorsCliTest, CompareWritesWhatTheFusedPathComputed) {
  for (const bool tall : {true, false}) {
    const json r =
        report(Words{"compare", "-o", path("results"), "--bias", path("states") + ":bias"} + write_tensors(tall));
    EXPECT_EQ(io::SafetensorsFile(path("results")).tensors().size(), 4u);
    EXPECT_EQ(numbers_of("results", "loss")[0], r["fused"]["loss"]);
    EXPECT_EQ(numbers_of("results", "d_bias", {7}).size(), 7u);
    // Hidden states and head occur only as their product, so sum(d_hidden * hidden) equals sum(d_weight *
    // weight).
    const auto product = [](const std::vector<double>& a, const std::vector<double>& b) {
      return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
    };
    const double by_hidden = product(numbers_of("results", "d_hidden", {6, 5}), numbers_of("states", "hidden"));
    EXPECT_GT(std::abs(by_hidden), 1e-2);
    const std::vector<int64_t> shape = tall ? std::vector<int64_t>{7, 5} : std::vector<int64_t>{5, 7};
    EXPECT_NEAR(by_hidden, product(numbers_of("results", "d_weight", shape), numbers_of("head", "lm_head")), 1e-5);
  }
}

}  // namespace tensors_cli_test
}  // namespace logitless::testing

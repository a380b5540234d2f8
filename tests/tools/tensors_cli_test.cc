// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The command on tensors in files: what it reads and what it writes.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "cli_fixture.h"

namespace logitless::testing {
namespace tensors_cli_test {

TEST_F(CliTest, RealTensorsInEitherLayoutGiveTheSameLoss) {
  const std::vector<std::string> tall = write_tensors(true);
  const Finished first = run(std::vector<std::string>{"compare", "--json", "-"} + tall);
  ASSERT_EQ(first.exit_code(), 0) << first.err;
  const json a = json::parse(first.out);
  EXPECT_EQ(a["shape"],
            json({{"tokens", 6}, {"hidden", 5}, {"vocab", 7}, {"dtype", "float32"}, {"layout", "vocab_hidden"}}));
  EXPECT_EQ(a["details"]["dense_metrics"]["tokens"], 5);

  const Finished second = run(std::vector<std::string>{"compare", "--json", "-"} + write_tensors(false));
  ASSERT_EQ(second.exit_code(), 0) << second.err;
  const json b = json::parse(second.out);
  EXPECT_EQ(b["shape"]["layout"], "hidden_vocab");
  EXPECT_NEAR(b["dense"]["loss"].get<double>(), a["dense"]["loss"].get<double>(), 1e-6);

  const Finished rounded =
      run(std::vector<std::string>{"compare", "--json", "-", "--set", "model.dtype=bfloat16"} + tall);
  ASSERT_EQ(rounded.exit_code(), 0) << rounded.err;
  const json c = json::parse(rounded.out);
  EXPECT_EQ(c["shape"]["dtype"], "bfloat16");
  EXPECT_NEAR(c["dense"]["loss"].get<double>(), a["dense"]["loss"].get<double>(), 0.05);
  EXPECT_NE(c["dense"]["loss"], a["dense"]["loss"]);
}

TEST_F(CliTest, LengthsAndBiasOfRealTensorsCount) {
  const std::vector<std::string> base = std::vector<std::string>{"compare", "--json", "-"} + write_tensors(true);
  const auto loss = [&](const std::vector<std::string>& more) {
    const Finished result = run(base + more);
    EXPECT_EQ(result.exit_code(), 0) << result.err;
    return json::parse(result.out)["fused"];
  };
  const auto tokens = [&](const std::vector<std::string>& more) {
    return json::parse(run(base + more).out)["details"]["fused_metrics"]["tokens"].get<int>();
  };
  EXPECT_NE(loss({"--bias", path("states")})["loss"], loss({})["loss"]);
  // Of the targets 0 1 6 -100 3 2, a shift drops the first one of each sequence; the fourth is always
  // ignored.
  EXPECT_EQ(tokens({"--set", "shift=true"}), 4);                               // [0] 1 6 -100 3 2
  EXPECT_EQ(tokens({"--set", "shift=true", "--lengths", path("states")}), 3);  // [0] 1 | [6] -100 3 2
  EXPECT_EQ(tokens({"--set", "shift=true", "--set", "batch_size=2", "--lengths", path("states")}), 3);
  EXPECT_EQ(tokens({"--set", "shift=true", "--set", "batch_size=3"}), 2);  // [0] 1 | [6] -100 | [3] 2
}

TEST_F(CliTest, RealTensorsMayBeBatched) {
  const std::vector<std::string> flat = write_tensors(true);
  const io::SafetensorsFile file(path("states"));
  const auto as = [&](const char* name, const char* of, std::vector<int64_t> shape) {
    return io::TensorToWrite{name, file.find(of)->dtype, shape, file.find(of)->data};
  };
  const std::vector<io::TensorToWrite> batched = {as("hidden", "hidden", {3, 2, 5}), as("targets", "targets", {3, 2}),
                                                  as("other", "targets", {2, 3}), as("pair", "hidden", {2, 3, 5})};
  io::write_safetensors(path("batched"), batched);
  const auto call = [&](const std::string& targets, const std::vector<std::string>& more) {
    return run(std::vector<std::string>{"compare", "--json", "-", "--set", "shift=true", "--hidden", path("batched"),
                                        "--lm-head", path("head"), "--targets", targets} +
               more);
  };
  const std::vector<std::string> flat_call = {"compare", "--json", "-", "--set", "shift=true", "--set", "batch_size=3"};
  const json truth = json::parse(run(flat_call + flat).out);
  for (const std::string& targets : {path("batched"), path("states")}) {
    const Finished result = call(targets, {});
    ASSERT_EQ(result.exit_code(), 0) << result.err;
    EXPECT_EQ(json::parse(result.out)["fused"]["loss"], truth["fused"]["loss"]);
  }
  EXPECT_TRUE(has(call(path("batched") + ":other", {}).err,
                  "tensor other [2, 3]: must have one entry for each of the 6 rows of hidden [3, 2, 5]"));
  EXPECT_TRUE(has(call(path("batched"), {"--set", "batch_size=2"}).err, "tensor hidden [3, 2, 5] holds 3 sequences"));
  const auto pairs = [&](const std::string& hidden, const std::string& targets) {
    return run({"compare", "--hidden", path("batched") + hidden, "--lm-head", path("head"), "--targets",
                path("batched") + targets, "--set", "task=preference_loss", "--set",
                "preference_loss.loss_type=simpo"});
  };
  EXPECT_EQ(pairs(":pair", ":other").exit_code(), 0) << pairs(":pair", ":other").err;
  EXPECT_TRUE(has(pairs(":hidden", ":targets").err, "hidden holds 3 sequences: pairs need an even number"));
}

TEST_F(CliTest, RealTensorsThatDisagreeAreBadInput) {
  const std::vector<std::string> base = std::vector<std::string>{"compare"} + write_tensors(true);
  const auto error = [&](const std::vector<std::string>& more) {
    const Finished result = run(base + more);
    EXPECT_EQ(result.exit_code(), 2);
    EXPECT_EQ(result.out, "");
    EXPECT_TRUE(is_one_line(result.err)) << result.err;
    return result.err;
  };
  EXPECT_TRUE(has(error({"--set", "model.vocab_size=8"}),
                  "--set model.vocab_size is 8, but the tensors have 7 vocabulary entries"));
  EXPECT_TRUE(has(error({"--set", "seq_len=7"}), "--set seq_len is 7, but the tensors have 6 tokens per sequence"));
  EXPECT_TRUE(has(error({"--set", "batch_size=4"}), "6 tokens are not a multiple of it"));
  EXPECT_TRUE(has(error({"--set", "model.layout=hidden_vocab"}), "--set model.layout is hidden_vocab, so "));
  EXPECT_TRUE(has(error({"--set", "model.bias=true"}), "need --bias FILE"));
  EXPECT_TRUE(has(error({"--set", "model.bias=false", "--bias", path("states")}), "is false, but --bias was given"));
  EXPECT_TRUE(has(error({"--lengths", path("states") + ":short"}),
                  "tensor short: the lengths sum to 5, but hidden has 6 rows"));
  EXPECT_TRUE(has(error({"--lengths", path("states") + ":targets"}), "tensor targets: lengths[2] = 6"));
  // Errors that only the library can detect are reported from the contender's process as bad input too.
  EXPECT_TRUE(has(error({"--set", "ignore_index=-1"}), "targets[3] = -100"));
}

// A library error about a tensor begins with the flag and the file.
TEST_F(CliTest, ARefusedTensorIsNamedByItsFlag) {
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
  const std::vector<std::string> model = write_tensors(true);
  const std::vector<std::string> targets = {"--targets", file + ":stray"}, head = {"--lm-head", path("head")};
  const std::vector<std::string> with_stray = std::vector<std::string>{"--hidden", path("states")} + head + targets;
  const std::string outside = "--targets " + file + ":stray: targets[2] = 7 is outside [0, 7)";
  const std::pair<std::vector<std::string>, std::string> cases[] = {
      {std::vector<std::string>{"compare", "--set", "task=policy_loss", "--advantages", file + ":one", "--mask",
                                file + ":short"} +
           model,
       "--mask " + file + ":short: mask has 5 entries but hidden has 6 rows"},
      {std::vector<std::string>{"compare", "--set", "task=policy_loss", "--advantages", file + ":nan", "--mask",
                                file + ":mask"} +
           model,
       "--advantages " + file + ":nan: advantages[2] = nan must be finite"},
      {std::vector<std::string>{"compare", "--set", "task=kto_loss", "--labels", file + ":flags", "--ref-logps",
                                file + ":one"} +
           model,
       "--labels " + file + ":flags: labels[0] = 2 must be 0 or 1"},
      {std::vector<std::string>{"compare", "--set", "task=policy_loss", "--hidden", file + ":batched", "--targets",
                                path("states"), "--mask", file + ":turned", "--advantages", file + ":one"} +
           head,
       "--mask " + file + ": tensor turned [3, 2]: must be [2, 3]"},
      {std::vector<std::string>{"compare"} + with_stray, outside},
      {std::vector<std::string>{"gradcheck"} + with_stray, outside},
      {std::vector<std::string>{"score", "-o", path("out")} + with_stray, outside},
  };
  for (const auto& [words, message] : cases) {
    const Finished result = run(words);
    EXPECT_EQ(result.exit_code(), 2);
    EXPECT_TRUE(is_one_line(result.err)) << result.err;
    EXPECT_TRUE(has(result.err, message)) << result.err;
  }
}

// Teachers and sets of ids from files determine the loss, which must equal the reference's.
TEST_F(CliTest, TensorsOfTeachersAndSets) {
  const std::vector<std::string> tensors = write_tensors(true);
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
  const auto call = [&](const char* command, const char* task, const std::vector<std::string>& more) {
    return run(std::vector<std::string>{command, "--set", std::string("task=") + task} + tensors + more);
  };
  const auto loss = [&](const char* task, const std::vector<std::string>& more) {
    const Finished checked = call("gradcheck", task, more);
    EXPECT_EQ(checked.exit_code(), 0) << task << '\n' << checked.out << checked.err;
    const Finished result = call("compare", task, more + std::vector<std::string>{"--json", "-"});
    EXPECT_EQ(result.exit_code(), 0) << result.err;
    return json::parse(result.out)["fused"]["loss"].get<double>();
  };
  const std::vector<std::string> taught = {"--teacher-hidden", teacher, "--teacher-lm-head", teacher};
  const std::vector<std::string> itself = {"--teacher-hidden", path("states") + ":hidden", "--teacher-lm-head",
                                           path("head")};
  // Its gradient is 0 up to rounding, so relative errors are meaningless.
  const Finished same = call("compare", "distillation_loss", itself + std::vector<std::string>{"--json", "-"});
  EXPECT_EQ(json::parse(same.out)["fused"]["loss"], 0) << same.err;
  const double of_other = loss("distillation_loss", taught);
  EXPECT_GT(of_other, 0.01);
  // A bias that is the same for all entries does not change the distribution.
  EXPECT_NEAR(loss("distillation_loss", taught + std::vector<std::string>{"--teacher-bias", teacher}), of_other, 1e-6);
  const std::vector<std::string> given = {"--set-ids", sets};
  const std::vector<std::string> weighed = given + std::vector<std::string>{"--set-values", sets + ":set_values"};
  const std::vector<std::string> counted = {"--set-counts", sets + ":set_counts"};
  EXPECT_NE(loss("soft_cross_entropy", weighed), loss("soft_cross_entropy", weighed + counted));
  EXPECT_NE(loss("id_logps", weighed), loss("id_logps", weighed + counted));
  EXPECT_GT(loss("set_distillation_loss", given + std::vector<std::string>{"--set-values", sets + ":logps"}), 0.01);
  // Rows with a 1 at the target are equivalent to the target. The row of the fourth token, which
  // cross-entropy ignores, is 0.
  const double one_hot = loss("soft_cross_entropy", {"--soft-rows", sets});
  EXPECT_NEAR(one_hot * 6, loss("cross_entropy", {}) * 5, 1e-5);

  const auto error = [&](const char* task, const std::vector<std::string>& more) {
    const Finished result = call("compare", task, more);
    EXPECT_EQ(result.exit_code(), 2);
    EXPECT_TRUE(is_one_line(result.err)) << result.err;
    return result.err;
  };
  EXPECT_TRUE(has(error("distillation_loss", {}), "task distillation_loss on real tensors needs --teacher-hidden"));
  EXPECT_TRUE(has(error("cross_entropy", taught), "--teacher-hidden was given, but task cross_entropy has no use"));
  EXPECT_TRUE(has(error("distillation_loss", {"--teacher-hidden", teacher + ":short", "--teacher-lm-head", teacher}),
                  "tensor short [3, 3]: must have one row for each of the 6 rows of hidden"));
  EXPECT_TRUE(has(error("soft_cross_entropy", given + std::vector<std::string>{"--set-values", sets + ":half"}),
                  "--set-values has 6 entries, but --set-ids has 12"));
  const std::vector<std::string> dense = {"--soft-rows", sets + ":soft_rows"};
  EXPECT_TRUE(has(error("soft_cross_entropy", dense + counted), "--soft-rows and --set-counts were given"));
  EXPECT_TRUE(has(error("soft_cross_entropy", dense + std::vector<std::string>{"--set-values", sets + ":set_values"}),
                  "--soft-rows and --set-values were given"));
}

TEST_F(CliTest, CompareWritesWhatTheFusedPathComputed) {
  for (const bool tall : {true, false}) {
    const std::vector<std::string> tensors =
        write_tensors(tall) + std::vector<std::string>{"--bias", path("states") + ":bias"};
    const Finished result = run(std::vector<std::string>{"compare"} + tensors +
                                std::vector<std::string>{"-o", path("results"), "--json", "-"});
    EXPECT_EQ(result.exit_code(), 0);
    const io::SafetensorsFile results(path("results")), states(path("states")), head(path("head"));
    EXPECT_EQ(results.tensors().size(), 4u);
    double loss = 0;
    std::memcpy(&loss, results.find("loss")->data, sizeof(loss));
    EXPECT_EQ(loss, json::parse(result.out)["fused"]["loss"].get<double>());
    // Hidden states and head occur only as their product, so sum(d_hidden * hidden) equals sum(d_weight *
    // weight).
    const auto product = [](const io::Tensor* a, const io::Tensor* b) {
      EXPECT_EQ(a->shape, b->shape);
      std::vector<float> left(static_cast<size_t>(a->elements())), right(left.size());
      io::convert_floats(*a, DType::kFloat32, left.data());
      io::convert_floats(*b, DType::kFloat32, right.data());
      return std::inner_product(left.begin(), left.end(), right.begin(), 0.0);
    };
    const double by_hidden = product(results.find("d_hidden"), states.find("hidden"));
    EXPECT_GT(std::abs(by_hidden), 1e-2);
    EXPECT_NEAR(by_hidden, product(results.find("d_weight"), head.find("lm_head")), 1e-5);
    EXPECT_EQ(results.find("d_bias")->shape, std::vector<int64_t>{7});
  }
}

}  // namespace tensors_cli_test
}  // namespace logitless::testing

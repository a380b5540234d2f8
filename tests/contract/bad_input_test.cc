// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Every kind of bad input: the message names argument, value and rule, and nothing has been written.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "support/calls.h"
#include "support/refusal.h"
#include "support/testers.h"
#include "support/views.h"

namespace logitless::testing {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// A good call of every function, for a case to spoil. 6 tokens, 5 vocabulary entries, H = 4.
struct Call {
  static constexpr int64_t kTokens = 6, kVocab = 5, kHidden = 4;

  static InputSpec spec() {
    InputSpec spec;
    spec.tokens = kTokens;
    spec.vocab = kVocab;
    spec.hidden = kHidden;
    return spec;
  }
  Call() : inputs(spec()), outputs(inputs, {}), before(outputs.bytes()) {
    hidden = inputs.hidden_view();
    head = inputs.head_view();
    targets = inputs.targets_view();
    gradients = outputs.gradients();
  }

  Inputs inputs;
  GradientOutputs outputs;
  std::vector<std::byte> before;
  HiddenStates hidden;
  LmHead head;
  Targets targets;
  Gradients gradients;
  CrossEntropy options;
  ContextOptions context;
  // What spans of a case point to.
  std::vector<double> doubles;
  std::vector<float> floats;
  std::vector<int64_t> integers;
};

using BadCase = testing::BadCase<Call>;

// `function` refuses the call with all parts in one line, and leaves the outputs as they were.
void expect_refused(const Call& call, const std::vector<std::string>& parts, const std::function<void()>& function) {
  expect_invalid_input(parts, function);
  EXPECT_TRUE(call.outputs.bytes() == call.before) << "an output was written";
}

std::function<void(Call&)> offsets_of(std::vector<int64_t> offsets) {
  return [offsets](Call& c) { c.hidden.offsets = c.integers = offsets; };
}

std::function<void(Call&)> targets_of(std::vector<int64_t> ids) {
  return [ids](Call& c) { c.targets = Targets(std::span<const int64_t>(c.integers = ids)); };
}

void expect_refused_everywhere(const std::vector<BadCase>& cases) {
  for (const BadCase& bad : cases) {
    SCOPED_TRACE(bad.name);
    Call call;
    bad.spoil(call);
    const Context context(call.context);
    expect_refused(call, bad.parts,
                   [&] { cross_entropy(context, call.hidden, call.head, call.targets, call.options, call.gradients); });
    expect_refused(call, bad.parts, [&] {
      cross_entropy.plan(context, call.hidden, call.head, call.targets, call.options, call.gradients);
    });
  }
}

TEST(BadInput, TheCallThatTheCasesSpoilIsGood) {
  Call call;
  EXPECT_NO_THROW(cross_entropy(Context(), call.hidden, call.head, call.targets, call.options, call.gradients));
  EXPECT_FALSE(call.outputs.bytes() == call.before);
}

TEST(BadInput, Pointers) {
  expect_refused_everywhere({
      {"hidden", [](Call& c) { c.hidden.states.data = nullptr; }, {"hidden", "null"}},
      {"weight", [](Call& c) { c.head.weight.data = nullptr; }, {"weight", "null"}},
      {"targets", [](Call& c) { c.targets.data64 = nullptr; }, {"targets", "null"}},
      {"bias", [](Call& c) { c.head.bias.data = nullptr; }, {"bias", "null"}},
  });
}

TEST(BadInput, TypesThatLogitsAreNotRoundedTo) {
  expect_refused_everywhere({
      {"float32",
       [](Call& c) { c.options.token.round_logits_to = DType::kFloat32; },
       {"round_logits_to", "float32", "bfloat16 or float16"}},
      {"float64",
       [](Call& c) { c.options.token.round_logits_to = DType::kFloat64; },
       {"round_logits_to", "float64", "bfloat16 or float16"}},
  });
}

TEST(BadInput, Shapes) {
  const auto head_of = [](HeadLayout layout, int64_t rows, int64_t cols) {
    return [=](Call& c) {
      c.head.layout = layout;
      c.head.weight.rows = rows;
      c.head.weight.cols = c.head.weight.stride = cols;
    };
  };
  expect_refused_everywhere({
      {"H of hidden_vocab", head_of(HeadLayout::kHiddenVocab, 3, 5), {"weight is [5, 3] but hidden has 4 columns"}},
      {"H of vocab_hidden", head_of(HeadLayout::kVocabHidden, 5, 3), {"weight is [5, 3] but hidden has 4 columns"}},
      {"H = 0", [](Call& c) { c.hidden.states.cols = c.head.weight.rows = 0; }, {"hidden", "0", "positive"}},
      {"V = 0", [](Call& c) { c.head.weight.cols = 0; }, {"weight", "0", "positive"}},
      {"negative tokens", [](Call& c) { c.hidden.states.rows = c.targets.size = -1; }, {"hidden", "-1", "negative"}},
      {"targets", [](Call& c) { c.targets.size = 5; }, {"targets has 5", "6"}},
      {"bias", [](Call& c) { c.head.bias.size = 4; }, {"bias has 4", "5"}},
      {"class_weights",
       [](Call& c) {
         c.options.class_weights = c.floats = {1, 2};
       },
       {"class_weights", "2", "5"}},
      {"temperatures",
       [](Call& c) {
         c.options.token.temperatures = c.doubles = {1, 2, 3};
       },
       {"temperatures", "3", "6"}},
      {"batch", [](Call& c) { c.hidden.sequences = 4; }, {"targets has 6 entries but hidden has 4 rows"}},
      {"no sequence", [](Call& c) { c.hidden.sequences = 0; }, {"targets has 6 entries but hidden has 0 rows"}},
      {"fewer than no sequence", [](Call& c) { c.hidden.sequences = -1; }, {"hidden.sizes[0] = -1 is negative"}},
      {"too many sequences without rows",
       [](Call& c) {
         c.hidden.states.rows = 0;
         c.hidden.sequences = std::numeric_limits<int64_t>::max();
       },
       {"sequences = 9223372036854775807", "2147483647"}},
      {"first offset", offsets_of({1, 6}), {"offsets[0] = 1", "0"}},
      {"falling offset", offsets_of({0, 4, 3, 6}), {"offsets[2] = 3", "4"}},
      {"last offset", offsets_of({0, 4, 7}), {"offsets[2] = 7", "6"}},
      {"d_hidden", [](Call& c) { c.gradients.d_hidden.rows = 5; }, {"d_hidden is [5, 4]", "[6, 4]"}},
      {"d_weight",
       [](Call& c) { c.gradients.d_weight = Matrix(c.gradients.d_weight.data, DType::kFloat32, 5, 4); },
       {"d_weight is [5, 4]", "[4, 5]"}},
      {"d_bias", [](Call& c) { c.gradients.d_bias.size = 4; }, {"d_bias has 4", "5"}},
      {"d_bias without a bias", [](Call& c) { c.head.bias = {}; }, {"d_bias", "no bias"}},
  });
}

TEST(BadInput, Strides) {
  expect_refused_everywhere({
      {"hidden", [](Call& c) { c.hidden.states.stride = 3; }, {"hidden", "stride", "3", "4"}},
      {"weight", [](Call& c) { c.head.weight.stride = 4; }, {"weight", "stride", "4", "5"}},
      {"d_hidden", [](Call& c) { c.gradients.d_hidden.stride = 0; }, {"d_hidden", "stride", "0", "4"}},
      {"d_weight", [](Call& c) { c.gradients.d_weight.stride = 1; }, {"d_weight", "stride", "1", "5"}},
  });
}

TEST(BadInput, Targets) {
  expect_refused_everywhere({
      {"V", targets_of({0, 1, 5, 0, 1, 2}), {"targets[2] = 5", "[0, 5)", "ignore_index (-100)"}},
      {"negative shift", [](Call& c) { c.options.token.shift = -1; }, {"shift = -1", "at least 0"}},
      {"negative", targets_of({0, 1, 2, 0, 1, -1}), {"targets[5] = -1", "[0, 5)", "ignore_index (-100)"}},
      {"-100 under another ignore_index",
       [](Call& c) {
         c.options.token.ignore_index = -1;
         c.targets = Targets(std::span<const int64_t>(c.integers = {-1, -100, 2, 0, 1, 1}));
       },
       {"targets[1] = -100", "[0, 5)", "ignore_index (-1)"}},
      {"beyond 32 bits",
       [](Call& c) {
         c.targets = Targets(std::span<const int64_t>(c.integers = {int64_t{1} << 32, 0, 0, 0, 0, 0}));
       },
       {"targets[0] = 4294967296", "[0, 5)"}},
  });
}

TEST(BadInput, Numbers) {
  std::vector<BadCase> cases;
  const auto add = [&](const std::string& name, const std::vector<double>& values, auto set) {
    for (const double value : values) {
      cases.push_back({name + " " + std::to_string(value), [=](Call& c) { set(c, value); }, {name}});
    }
  };
  const std::vector<double> not_positive = {0, -1, kNaN, kInfinity};
  add("temperature", not_positive, [](Call& c, double x) { c.options.token.temperature = x; });
  add("temperatures[4]", not_positive,
      [](Call& c, double x) { c.options.token.temperatures = c.doubles = {1, 1, 1, 1, x, 1}; });
  add("softcap", {-1, kNaN, kInfinity, -kInfinity}, [](Call& c, double x) { c.head.softcap = x; });
  add("label_smoothing", {-0.1, 1.1, kNaN}, [](Call& c, double x) { c.options.label_smoothing = x; });
  add("z_loss", {-1, kNaN, kInfinity}, [](Call& c, double x) { c.options.z_loss = x; });
  add("class_weights[3]", {-1, kNaN, kInfinity}, [](Call& c, double x) {
    c.options.class_weights = c.floats = {1, 1, 1, static_cast<float>(x), 1};
  });
  add("loss_scale", {kNaN, kInfinity, -kInfinity}, [](Call& c, double x) { c.options.loss_scale = x; });
  add("num_items_in_batch", not_positive, [](Call& c, double x) { c.options.num_items_in_batch = x; });
  expect_refused_everywhere(cases);
  expect_refused_everywhere({
      {"temperature",
       [](Call& c) { c.options.token.temperature = -1.5; },
       {"temperature = -1.5", "a finite number above 0"}},
      {"smoothing", [](Call& c) { c.options.label_smoothing = 1.25; }, {"label_smoothing = 1.25", "from 0 to 1"}},
      {"z_loss", [](Call& c) { c.options.z_loss = -0.5; }, {"z_loss = -0.5", "finite"}},
  });
}

TEST(BadInput, Types) {
  expect_refused_everywhere({
      {"float64 hidden",
       [](Call& c) {
         c.hidden.states.dtype = DType::kFloat64;
         c.hidden.states.cols = c.head.weight.rows = 2;
         c.gradients = {};
       },
       {"float64", "float32"}},
      {"float64 bias",
       [](Call& c) { c.head.bias = ConstVector(c.hidden.states.data, DType::kFloat64, 5); },
       {"bias", "float64", "float32"}},
      {"float64 d_hidden",
       [](Call& c) { c.gradients.d_hidden.dtype = DType::kFloat64; },
       {"d_hidden", "float64", "float32"}},
      {"bfloat16 d_weight",
       [](Call& c) { c.gradients.d_weight.dtype = DType::kBFloat16; },
       {"d_weight", "bfloat16", "float32"}},
      {"bfloat16 d_bias",
       [](Call& c) { c.gradients.d_bias.dtype = DType::kBFloat16; },
       {"d_bias", "bfloat16", "float32"}},
  });
}

TEST(BadInput, ValuesThatAreNoEnumerators) {
  expect_refused_everywhere({
      {"hidden", [](Call& c) { c.hidden.states.dtype = DType{9}; }, {"hidden.dtype = 9"}},
      {"weight", [](Call& c) { c.head.weight.dtype = DType{9}; }, {"weight.dtype = 9"}},
      {"bias", [](Call& c) { c.head.bias.dtype = DType{-1}; }, {"bias.dtype = -1"}},
      {"reduction", [](Call& c) { c.options.reduction = Reduction{7}; }, {"reduction = 7"}},
      {"meaning",
       [](Call& c) { c.options.token.temperature_meaning = TemperatureMeaning{9}; },
       {"temperature_meaning = 9"}},
      {"mode", [](Call& c) { c.gradients.d_weight_mode = WriteMode{9}; }, {"d_weight_mode = 9"}},
      {"backward", [](Call& c) { c.gradients.backward.mode = BackwardMode{9}; }, {"backward.mode = 9"}},
  });
}

TEST(BadInput, Overlaps) {
  const auto data_of = [](const ConstMatrix& matrix) { return const_cast<void*>(matrix.data); };
  expect_refused_everywhere({
      {"d_hidden over hidden",
       [=](Call& c) { c.gradients.d_hidden.data = data_of(c.hidden.states); },
       {"d_hidden", "overlaps", "hidden"}},
      {"d_weight over weight",
       [=](Call& c) { c.gradients.d_weight.data = data_of(c.head.weight); },
       {"d_weight", "overlaps", "weight"}},
      {"d_bias over bias",
       [](Call& c) { c.gradients.d_bias.data = const_cast<void*>(c.head.bias.data); },
       {"d_bias", "overlaps", "bias"}},
      {"d_bias in the last elements of hidden",
       [](Call& c) {
         c.gradients.d_bias.data = static_cast<float*>(const_cast<void*>(c.hidden.states.data)) + 6 * 4 - 5;
       },
       {"d_bias", "overlaps", "hidden"}},
      {"d_bias in d_hidden",
       [](Call& c) { c.gradients.d_bias.data = c.gradients.d_hidden.data; },
       {"d_bias", "overlaps", "d_hidden"}},
      {"d_weight in d_hidden",
       [](Call& c) { c.gradients.d_weight.data = c.gradients.d_hidden.data; },
       {"d_weight", "overlaps", "d_hidden"}},
      {"d_hidden over targets",
       [](Call& c) { c.gradients.d_hidden.data = const_cast<int64_t*>(c.targets.data64); },
       {"d_hidden", "overlaps", "targets"}},
      {"d_bias over class_weights",
       [](Call& c) {
         c.options.class_weights = c.floats = std::vector<float>(5, 1.0f);
         c.gradients.d_bias.data = c.floats.data();
       },
       {"d_bias", "overlaps", "class_weights"}},
      {"d_hidden over temperatures",
       [](Call& c) {
         c.options.token.temperatures = c.doubles = std::vector<double>(12, 1.0);
         c.options.token.temperatures = c.options.token.temperatures.first(6);
         c.gradients.d_hidden.data = c.doubles.data();
       },
       {"d_hidden", "overlaps", "temperatures"}},
      {"d_hidden over offsets",
       [](Call& c) {
         c.integers = std::vector<int64_t>(12, 0);
         c.integers[1] = 6;
         c.hidden.offsets = std::span<const int64_t>(c.integers).first(2);
         c.gradients.d_hidden.data = c.integers.data();
       },
       {"d_hidden", "overlaps", "offsets"}},
  });
}

TEST(BadInput, UpstreamThatAnOutputOverlaps) {
  Call call;
  call.options.reduction = Reduction::kNone;
  const Forward<CrossEntropy> forward =
      cross_entropy.forward(Context(), call.hidden, call.head, call.targets, call.options);
  std::vector<double> upstream(12, 1.0);
  call.gradients.d_hidden.data = upstream.data();
  expect_refused(call, {"d_hidden", "overlaps", "upstream"}, [&] {
    cross_entropy.backward(Context(), call.hidden, call.head, call.targets, call.options, forward,
                           std::span<const double>(upstream).first(6), call.gradients);
  });
  EXPECT_EQ(upstream, std::vector<double>(12, 1.0));
}

TEST(BadInput, WeightSink) {
  Call call;
  call.gradients.weight_sink = [](int64_t, int64_t, ConstMatrix) { FAIL() << "called"; };
  const Context context;
  expect_refused(call, {"d_weight", "weight_sink"},
                 [&] { cross_entropy(context, call.hidden, call.head, call.targets, call.options, call.gradients); });
}

TEST(BadInput, WorkspaceTooSmallSaysHowMuchIsNeeded) {
  for (const PlanKind plan : {PlanKind::kAuto, PlanKind::kOnePass, PlanKind::kTwoPass}) {
    for (const bool sink : {false, true}) {
      CrossEntropyTester tester = CrossEntropyTester().tokens(130).tiles(16, 64).threads(3).sink(sink).plan(plan);
      tester.tightest_workspace().matches_oracle();
      const size_t least = tester.run_spec().context.workspace_bytes;
      for (const size_t less : {size_t{1000}, least - 1}) {
        expect_invalid_input({"workspace_bytes = " + std::to_string(less) + " is too small: plan ",
                              " needs at least " + std::to_string(least) + " bytes"},
                             [&] { tester.workspace(less).run_once(); });
      }
    }
  }
}

TEST(BadInput, PlansThatCannotRun) {
  // Rows in several chunks feed a sink, or a bf16 gradient, through sums of all entries: here 469 KiB.
  CrossEntropyTester tester;
  tester.tokens(300).vocab(2000).hidden(60).tiles(16, 64).plan(PlanKind::kOnePass).workspace(size_t{400} << 10);
  EXPECT_NO_THROW(tester.run_once());
  EXPECT_THROW(tester.sink().run_once(), InvalidInput);
  tester.sink(false).dtype(DType::kBFloat16).gradient_dtype(DType::kBFloat16);
  EXPECT_THROW(tester.run_once(), InvalidInput);
  EXPECT_NO_THROW(tester.plan(PlanKind::kAuto).run_once());
}

TEST(BadInput, Contexts) {
  const auto expect_refused_options = [](const std::function<void(ContextOptions&)>& spoil,
                                         const std::vector<std::string>& parts) {
    ContextOptions options;
    spoil(options);
    expect_refused(Call(), parts, [&] { Context context(options); });
  };
  expect_refused_options([](auto& o) { o.threads = -2; }, {"threads = -2"});
  expect_refused_options([](auto& o) { o.row_tile = -1; }, {"row_tile = -1"});
  expect_refused_options([](auto& o) { o.row_block = -1; }, {"row_block = -1"});
  expect_refused_options([](auto& o) { o.vocab_tile = -7; }, {"vocab_tile = -7"});
  expect_refused_options([](auto& o) { o.gemm_backend = "abacus"; }, {"gemm_backend", "abacus", gemm_backends()[0]});
  expect_refused_options([](auto& o) { o.simd_target = "MMX"; }, {"simd_target", "MMX", simd_targets()[0], "plain"});
  expect_refused_options([](auto& o) { o.plan = PlanKind::kForwardOnly; }, {"plan", "forward_only"});
  expect_refused_options([](auto& o) { o.plan = PlanKind{9}; }, {"plan = 9"});
  expect_refused_options([](auto& o) { o.gradient_precision = GradientPrecision{9}; }, {"gradient_precision = 9"});
}

TEST(BadInput, SplitCalls) {
  Call call;
  const Context context;
  const auto backward = [&](const Forward<CrossEntropy>& forward, std::vector<double> upstream) {
    return [&call, &context, &forward, upstream] {
      cross_entropy.backward(context, call.hidden, call.head, call.targets, call.options, forward,
                             std::span<const double>(upstream), call.gradients);
    };
  };
  Forward<CrossEntropy> forward = cross_entropy.forward(context, call.hidden, call.head, call.targets, call.options);
  expect_refused(call, {"upstream", "2", "1"}, backward(forward, {1, 2}));
  expect_refused(call, {"upstream", "0"}, backward(forward, {}));
  call.options.reduction = Reduction::kNone;
  expect_refused(call, {"upstream", "2", "6"}, backward(forward, {1, 2}));
  // Finite wherever a row takes part, as every other number that a caller hands over.
  std::vector<double> upstream(6, 1.0);
  for (const double bad : {kNaN, kInfinity, -kInfinity}) {
    upstream[4] = bad;
    expect_refused(call, {"upstream[4] = ", "finite"}, backward(forward, upstream));
    call.options.reduction = Reduction::kMean;
    expect_refused(call, {"upstream = ", "finite"}, backward(forward, {bad}));
    call.options.reduction = Reduction::kNone;
  }
  call.options.z_loss = 0.1;  // whose gradient needs lse
  Forward<CrossEntropy> other = forward;
  other.stats.lse.resize(3);
  expect_refused(call, {"lse", "3", "6"}, backward(other, std::vector<double>(6, 1.0)));
  other = forward;
  other.stats.log_sum.clear();
  expect_refused(call, {"log_sum is not given", "6"}, backward(other, std::vector<double>(6, 1.0)));
  call.options.label_smoothing = 0.1;  // whose loss needs the cross statistic
  other = forward;
  other.stats.cross.assign(2, -1.0);
  expect_refused(call, {"cross", "2", "6"}, backward(other, std::vector<double>(6, 1.0)));
  call.options.token.temperature = 0;
  expect_refused(call, {"temperature = 0"},
                 [&] { cross_entropy.forward(context, call.hidden, call.head, call.targets, call.options); });
}

TEST(BadInput, TokenStatsAndGradients) {
  Call call;
  const Context context;
  StatsRequest request;
  const auto stats_of = [&] { return compute_token_stats(context, call.hidden, call.head, call.targets, {}, request); };
  const TokenStats stats = stats_of();
  TokenGrads grads;
  const auto backward = [&] {
    backpropagate_token_grads(context, call.hidden, call.head, call.targets, {}, request, stats, grads, call.gradients);
  };
  grads.logp = {1, 2};
  expect_refused(call, {"logp", "2", "6"}, backward);
  grads = {};
  grads.cross.assign(7, 1);
  expect_refused(call, {"cross", "7", "6"}, backward);
  grads = {};
  grads.entropy.assign(6, 1);  // whose gradient needs the entropy, which was not asked for
  expect_refused(call, {"entropy"}, backward);

  for (const float bad : {-1.0f, std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    const std::vector<float> cross = {1, bad, 1, 1, 1};
    request.cross_weights = cross;
    expect_refused(call, {"cross_weights[1]", "finite"}, stats_of);
  }
  const std::vector<float> three(3, 1.0f);
  request.cross_weights = three;
  expect_refused(call, {"cross", "3", "5"}, stats_of);
}

}  // namespace
}  // namespace logitless::testing

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Rows with any number of picks, through every order of work, and against float64: a loss of the
// log-probabilities of a list of token ids in each row.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "api/call.h"
#include "source/head.h"
#include "support/calls.h"
#include "support/host_tensor.h"
#include "support/thread_ranks.h"
#include "support/views.h"

namespace logitless::testing {
namespace {

constexpr int64_t kN = 150, kH = 40, kV = 700;

enum class From { kTiles, kHalves, kSlices, kRanks, kGathered, kLogits };

struct Case {
  From from = From::kTiles;
  DType dtype = DType::kFloat32;
  PlanKind plan = PlanKind::kTwoPass;
  TemperatureMeaning meaning = TemperatureMeaning::kScaleLogits;
  size_t workspace = size_t{64} << 20;
  bool argmax = false;
};

// The loss Σ_k γ_k log p(id_k) + Σ_i (α_i entropy_i + β_i lse_i + δ_i outside_i): outside is the
// log-probability of what is in no list.
struct Given {
  problem::RowPicks picks;
  std::vector<double> gamma, alpha, beta, delta, temperatures;

  Given() {
    std::mt19937 random(5);
    std::uniform_int_distribution<int64_t> id(0, kV - 1);
    std::normal_distribution<double> normal;
    picks.offsets.push_back(0);
    for (int64_t row = 0; row < kN; ++row) {
      const bool active = row % 11 != 3, zero = row % 13 == 5;
      int64_t count = row % 5;            // 0: rows that are active through entropy or lse alone
      if (!active && row % 2) count = 0;  // other rows that take no part have picks all the same
      if (row == 40) count = 300;
      std::vector<int64_t> ids;
      for (int64_t k = 0; k < count; ++k) ids.push_back(id(random));
      if (count > 2) ids[1] = ids[0];                 // a duplicate
      if (count == 4 && row % 2) ids = {7, 7, 7, 7};  // nothing but one id
      if (count == 2) ids = {0, kV - 1};
      std::sort(ids.begin(), ids.end());
      picks.ids.insert(picks.ids.end(), ids.begin(), ids.end());
      picks.offsets.push_back(static_cast<int64_t>(picks.ids.size()));
      if (active) picks.rows.push_back(row);
      for (int64_t k = 0; k < count; ++k) gamma.push_back(zero ? 0 : normal(random));
      alpha.push_back(zero ? 0 : row % 2 ? normal(random) : 0);
      beta.push_back(zero ? 0 : row % 3 ? normal(random) : 0);
      delta.push_back(zero ? 0 : row % 4 ? normal(random) : 0);
      temperatures.push_back(0.5 + 0.01 * static_cast<double>(row));
    }
  }
};

// At most `count` rows have a pick.
Given few_picks(int64_t count) {
  Given out;
  out.gamma.clear();
  out.picks.ids.clear();
  out.picks.offsets = {0};
  for (int64_t row = 0; row < kN; ++row) {
    if (row % 11 != 3 && static_cast<int64_t>(out.gamma.size()) < count) {
      out.picks.ids.push_back(row);
      out.gamma.push_back(1);
    }
    out.picks.offsets.push_back(static_cast<int64_t>(out.gamma.size()));
  }
  return out;
}

class ListLoss final : public TokenLoss {
 public:
  ListLoss(const Given& given, bool argmax) : given_(given), argmax_(argmax) {}
  StatsRequest needs() const override {
    StatsRequest request;
    request.entropy = true;
    request.argmax = argmax_;
    request.outside = true;
    return request;
  }
  GradsFilled gradients() const override { return {.lse = true, .entropy = true, .outside = true}; }
  void evaluate(std::span<const int64_t> rows, const TokenStats& stats, TokenGrads& grads) override {
    for (const int64_t row : rows) {
      const auto i = static_cast<size_t>(row);
      for (int64_t k = given_.picks.offsets[i]; k < given_.picks.offsets[i + 1]; ++k) {
        const auto pick = static_cast<size_t>(k);
        value += given_.gamma[pick] * stats.logp[pick];
        grads.logp[pick] = given_.gamma[pick];
      }
      value += given_.alpha[i] * stats.entropy[i] + given_.beta[i] * stats.lse[i] + given_.delta[i] * stats.outside[i];
      grads.entropy[i] = given_.alpha[i];
      grads.lse[i] = given_.beta[i];
      grads.outside[i] = given_.delta[i];
    }
  }
  double value = 0;

 private:
  const Given& given_;
  bool argmax_;
};

struct Tensors {
  HostTensor hidden, weight, bias, logits;

  explicit Tensors(const Case& c)
      : hidden(c.dtype, kN, kH, 3), weight(c.dtype, kV, kH, 1), bias(c.dtype, 1, kV), logits(c.dtype, kN, kV) {
    std::mt19937 random(6);
    std::normal_distribution<double> normal;
    for (HostTensor* t : {&hidden, &weight, &bias, &logits}) {
      const double scale = t == &weight ? 0.5 : t == &logits ? 3 : 1;
      for (int64_t r = 0; r < t->rows(); ++r) {
        for (int64_t j = 0; j < t->cols(); ++j) t->set(r, j, scale * normal(random));
      }
    }
  }
  LmHead head() const {
    LmHead out(weight.view());
    out.bias = bias.vector_view();
    out.softcap = 30;
    return out;
  }
};

// Everything that comes out, in float64.
struct Out {
  double loss = 0;
  std::vector<double> logp, d_hidden, d_weight, d_bias, d_logits;
};

Out reference(const Case& c, const Given& given, const Tensors& t) {
  Out out;
  out.logp.resize(given.picks.ids.size());
  out.d_hidden.resize(kN * kH);
  out.d_weight.resize(kV * kH);
  out.d_bias.resize(kV);
  out.d_logits.resize(kN * kV);
  const bool finished = c.from == From::kLogits;
  for (const int64_t row : given.picks.rows) {
    const auto i = static_cast<size_t>(row);
    std::vector<double> cap(kV), log_p(kV), g(kV);
    const double temperature = given.temperatures[i];
    const bool of_logits = c.meaning == TemperatureMeaning::kScaleLogits;
    const double t_logit = of_logits ? temperature : 1, t_logp = of_logits ? 1 : temperature;
    for (int64_t v = 0; v < kV; ++v) {
      double raw = finished ? t.logits.get(row, v) : t.bias.get(0, v);
      for (int64_t h = 0; h < kH && !finished; ++h) raw += t.hidden.get(row, h) * t.weight.get(v, h);
      cap[v] = finished ? raw : 30 * std::tanh(raw / 30);
    }
    const double max = *std::max_element(cap.begin(), cap.end());
    double sum = 0, entropy = 0, all = 0;
    for (int64_t v = 0; v < kV; ++v) sum += std::exp((cap[v] - max) / t_logit);
    for (int64_t v = 0; v < kV; ++v) {
      log_p[v] = (cap[v] - max) / t_logit - std::log(sum);
      entropy -= std::exp(log_p[v]) * log_p[v];
    }
    for (int64_t k = given.picks.offsets[i]; k < given.picks.offsets[i + 1]; ++k) {
      const int64_t id = given.picks.ids[k];
      out.logp[k] = log_p[id] / t_logp;
      out.loss += given.gamma[k] * out.logp[k];
      g[id] += given.gamma[k] / t_logp;
      all += given.gamma[k] / t_logp;
    }
    out.loss += given.alpha[i] * entropy + given.beta[i] * (max / t_logit + std::log(sum));
    double outside = 0;
    std::vector<bool> picked(kV);
    for (int64_t k = given.picks.offsets[i]; k < given.picks.offsets[i + 1]; ++k) picked[given.picks.ids[k]] = true;
    for (int64_t v = 0; v < kV; ++v) outside += picked[v] ? 0 : std::exp(log_p[v]);
    out.loss += given.delta[i] * std::log(outside);
    for (int64_t v = 0; v < kV; ++v) {
      const double p = std::exp(log_p[v]);
      double d = g[v] - p * all + given.beta[i] * p - given.alpha[i] * p * (log_p[v] + entropy);
      d += given.delta[i] * ((picked[v] ? 0 : p / outside) - p);
      d /= t_logit;
      if (!finished) d *= 1 - (cap[v] / 30) * (cap[v] / 30);
      out.d_logits[row * kV + v] = d;
      out.d_bias[v] += d;
      for (int64_t h = 0; h < kH; ++h) {
        out.d_hidden[row * kH + h] += d * t.weight.get(v, h);
        out.d_weight[v * kH + h] += d * t.hidden.get(row, h);
      }
    }
  }
  return out;
}

std::vector<double> values(const HostTensor& t) {
  std::vector<double> out;
  for (int64_t r = 0; r < t.rows(); ++r) {
    for (int64_t j = 0; j < t.cols(); ++j) out.push_back(t.get(r, j));
  }
  return out;
}

ContextOptions options_of(const Case& c, int threads) {
  ContextOptions options;
  options.threads = threads;
  options.plan = c.plan;
  options.workspace_bytes = c.workspace;
  if (c.from != From::kLogits) {
    options.row_tile = 32;
    options.vocab_tile = 64;
  }
  return options;
}

problem::Task task_of(const Case& c, const Given& given, const ListLoss& loss) {
  TokenOptions options;
  options.temperatures = given.temperatures;
  options.temperature_meaning = c.meaning;
  problem::RowPicks picks = given.picks;
  return {.options = options, .request = loss.needs(), .picks = std::move(picks)};
}

// The forward half, and then the backward half from what it left.
Out run_halves(const Context& context, const Tensors& t, const LmHead& head, const Gradients& outputs, const Case& c,
               const Given& given) {
  ListLoss loss(given, c.argmax);
  const Logits logits = logits_of(t.hidden.view(), head);
  const logitless::Gradients to = gradients_of(outputs, logits);
  api::Call first(context, logits, nullptr, api::kNoGradients);
  first.set_task(task_of(c, given, loss));
  stream::Outcome outcome = first.run(&loss, {.stats = true, .grads = true});
  api::Call second(context, logits, nullptr, to);
  second.set_task(task_of(c, given, loss));
  Out out;
  second.run_gradients(outcome.stats, outcome.grads, 1.0);
  out.loss = loss.value;
  out.logp = outcome.stats.logp;
  return out;
}

Out run_call(api::Call whole, const Case& c, const Given& given) {
  return whole.complete([&](api::Call& call) {
    ListLoss loss(given, c.argmax);
    call.digest("picks");
    call.set_task(task_of(c, given, loss));
    const stream::Outcome outcome = call.run(&loss);
    Out out;
    out.loss = loss.value;
    out.logp.assign(outcome.stats.logp.begin(), outcome.stats.logp.end());
    return out;
  });
}

Out run(const Case& c, const Given& given, const Tensors& t, int threads) {
  ContextOptions options = options_of(c, threads);
  const int64_t cut = 333;
  const DType sums = c.dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
  HostTensor d_hidden(sums, kN, kH), d_weight(sums, kV, kH), d_bias(sums, 1, kV);
  if (c.from == From::kLogits) {
    HostTensor d_logits(sums, kN, kV);
    const FinishedLogits logits(t.logits.view().data, c.dtype, 1, kN, kV);
    const Context context(options);
    const auto outputs = gradients_of(LogitsGradient(d_logits.output().data, sums, 1, kN, kV));
    Out out = run_call(api::Call(context, Logits::given(logits), nullptr, outputs), c, given);
    out.d_logits = values(d_logits);
    return out;
  }
  const auto outputs_of = [&](int64_t first, int64_t count, HostTensor& to_hidden) {
    Gradients out;
    out.d_hidden = to_hidden.output();
    out.d_weight = source::Layout(HeadLayout::kVocabHidden).entries_of(d_weight.output(), first, count);
    out.d_bias = source::entries_of(d_bias.vector_output(), first, count);
    return out;
  };
  Out out;
  if (c.from == From::kRanks) {
    ThreadGroup group(2);
    std::vector<HostTensor> of_rank;
    for (int r = 0; r < 2; ++r) of_rank.push_back(HostTensor(sums, kN, kH));
    std::vector<Out> outs(2);
    const auto errors = run_ranks(2, [&](int rank) {
      const auto r = static_cast<size_t>(rank);
      ContextOptions mine = options;
      mine.ranks.vocab = &group.of(rank);
      const Context context(mine);
      const int64_t first = rank ? cut : 0, count = rank ? kV - cut : cut;
      const LmHead head = source::slice(t.head(), first, count);
      const Logits logits = logits_of(t.hidden.view(), head);
      const auto outputs = gradients_of(outputs_of(first, count, of_rank[r]), logits);
      outs[r] = run_call(api::Call(context, logits, nullptr, outputs), c, given);
    });
    for (const auto& error : errors) EXPECT_EQ(message_of(error), "");
    EXPECT_EQ(outs[0].logp, outs[1].logp);
    out = outs[0];
    d_hidden = of_rank[0];
  } else if (c.from == From::kGathered) {
    // Two slices that meet nobody: the bytes of each first, then the call of each with all bytes.
    std::vector<std::byte> gathered;
    std::vector<double> sum(kN * kH);
    for (const bool gather : {true, false}) {
      for (const bool second : {false, true}) {
        const int64_t first = second ? cut : 0, count = second ? kV - cut : cut;
        ContextOptions mine = options;
        mine.ranks.slice = VocabSlice{first, kV, {}};
        if (!gather) mine.ranks.slice->gathered = gathered;
        const Context context(mine);
        const LmHead head = source::slice(t.head(), first, count);
        if (gather) {
          api::Call call(context, logits_of(t.hidden.view(), head), nullptr, api::kNoGradients);
          ListLoss loss(given, c.argmax);
          call.set_task(task_of(c, given, loss));
          const std::vector<std::byte> bytes = call.fold_slice();
          gathered.insert(gathered.end(), bytes.begin(), bytes.end());
          continue;
        }
        const Logits logits = logits_of(t.hidden.view(), head);
        const auto outputs = gradients_of(outputs_of(first, count, d_hidden), logits);
        out = run_call(api::Call(context, logits, nullptr, outputs), c, given);
        const std::vector<double> part = values(d_hidden);
        for (size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
      }
    }
    out.d_hidden = sum;
  } else {
    if (c.from == From::kSlices) options.ranks.slices = {cut, 0, kV - cut};
    const Context context(options);
    const LmHead head = t.head();
    const Gradients outputs = outputs_of(0, kV, d_hidden);
    const Logits logits = logits_of(t.hidden.view(), head);
    const auto to = gradients_of(outputs, logits);
    out = c.from == From::kHalves ? run_halves(context, t, head, outputs, c, given)
                                  : run_call(api::Call(context, logits, nullptr, to), c, given);
  }
  if (out.d_hidden.empty()) out.d_hidden = values(d_hidden);
  out.d_weight = values(d_weight);
  out.d_bias = values(d_bias);
  return out;
}

// The largest difference, as a part of the largest value.
double error_of(const std::vector<double>& got, const std::vector<double>& truth) {
  EXPECT_EQ(got.size(), truth.size());
  double most = 0, error = 0;
  for (size_t i = 0; i < truth.size(); ++i) {
    most = std::max(most, std::abs(truth[i]));
    const double here = std::abs(got[i] - truth[i]);
    error = std::isnan(here) ? here : std::max(error, here);
    if (std::isnan(error)) break;
  }
  return most > 0 ? error / most : error;
}

void check(const char* name, const Case& c, const Given& given = {}) {
  const Tensors tensors(c);
  const Out truth = reference(c, given, tensors);
  std::vector<Out> outs;
  for (const int threads : {1, 3}) {
    outs.push_back(run(c, given, tensors, threads));
    const Out& out = outs.back();
    const double loss = std::abs(out.loss - truth.loss) / std::abs(truth.loss);
    const double logp = error_of(out.logp, truth.logp);
    const bool finished = c.from == From::kLogits;
    const double a = finished ? error_of(out.d_logits, truth.d_logits) : error_of(out.d_hidden, truth.d_hidden);
    const double b = finished ? 0 : error_of(out.d_weight, truth.d_weight);
    const double d = finished ? 0 : error_of(out.d_bias, truth.d_bias);
    // Sums of 700 terms lose some ten eps of the type of the gradients; what is wrong differs by far more.
    const double bound = c.dtype == DType::kFloat64 ? 1e-13 : c.dtype == DType::kFloat32 ? 5e-6 : 1e-2;
    for (const double error : {loss, logp, a, b, d}) EXPECT_LT(error, bound) << name;
  }
  EXPECT_EQ(outs[0].logp, outs[1].logp);
  EXPECT_EQ(outs[0].d_hidden, outs[1].d_hidden);
  EXPECT_EQ(outs[0].d_weight, outs[1].d_weight);
  EXPECT_EQ(outs[0].d_logits, outs[1].d_logits);
}

TEST(Picks, Tiles) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kBFloat16}) {
    check("two pass", {.dtype = dtype});
    check("one pass", {.dtype = dtype, .plan = PlanKind::kOnePass});
  }
  check("one pass, chunks", {.plan = PlanKind::kOnePass, .workspace = 420000});
  check("two pass, scale_logp", {.meaning = TemperatureMeaning::kScaleLogp});
}
TEST(Picks, Slices) {
  check("slices, two pass", {.from = From::kSlices});
  check("slices, one pass", {.from = From::kSlices, .plan = PlanKind::kOnePass});
  check("slices, f64", {.from = From::kSlices, .dtype = DType::kFloat64});
  check("slices, argmax", {.from = From::kSlices, .argmax = true});
}
TEST(Picks, Ranks) {
  check("gathered", {.from = From::kGathered, .plan = PlanKind::kAuto});
  check("ranks, two pass", {.from = From::kRanks});
  check("ranks, one pass", {.from = From::kRanks, .plan = PlanKind::kOnePass});
}
TEST(Picks, Halves) { check("halves", {.from = From::kHalves}); }
TEST(Picks, FewPicks) {
  for (const int64_t count : {0, 1, 40}) {
    check("few picks", {}, few_picks(count));
    check("few picks, slices", {.from = From::kSlices}, few_picks(count));
  }
  check("few picks, ranks", {.from = From::kRanks}, few_picks(40));
}
TEST(Picks, FinishedLogits) {
  check("logits, two walks", {.from = From::kLogits});
  check("logits, one walk", {.from = From::kLogits, .plan = PlanKind::kOnePass});
}

}  // namespace
}  // namespace logitless::testing

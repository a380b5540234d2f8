// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Losses against golden values of TRL and Liger-Kernel (tests/golden/README.md): the public call on a file's
// logits in float64.
#include <algorithm>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "golden.h"
#include "logitless/logitless.h"

namespace logitless::testing {
namespace losses_golden_test {

// The files hold ten digits, and six for gradients by logits.
constexpr double kDigits = 1e-8, kGradientDigits = 1e-6;

template <class T>
ConstTensor vector_view(const std::vector<T>& values) {
  return values.empty() ? ConstTensor() : view(values.data(), {static_cast<int64_t>(values.size())});
}

// The logits of a file.
struct Rows {
  std::vector<double> logits;
  int64_t sequences, time, vocab;

  explicit Rows(const json& values)
      : logits(flat(values)),
        sequences(static_cast<int64_t>(values.size())),
        time(static_cast<int64_t>(values[0].size())),
        vocab(static_cast<int64_t>(values[0][0].size())) {}

  Logits given() const { return Logits::given(view(logits.data(), {sequences, time, vocab})); }
};

// Returns ∂loss/∂logits from the gradients by log-probabilities and by entropies.
std::vector<double> through_statistics(const Rows& rows, const std::vector<int64_t>& ids, double temperature,
                                       const json& expected) {
  const std::vector<double> d_logp = flat(expected.at("d_logps"));
  const std::vector<double> d_entropy =
      expected.contains("d_entropies") ? flat(expected.at("d_entropies")) : std::vector<double>(d_logp.size());
  const auto vocab = static_cast<size_t>(rows.vocab);
  std::vector<double> out(rows.logits.size());
  for (size_t i = 0; i < d_logp.size(); ++i) {
    if (d_logp[i] == 0 && d_entropy[i] == 0) continue;
    const double* const a = &rows.logits[i * vocab];
    double sum = 0, entropy = 0;
    for (size_t v = 0; v < vocab; ++v) sum += std::exp(a[v] / temperature);
    const auto log_p = [&](size_t v) { return a[v] / temperature - std::log(sum); };
    for (size_t v = 0; v < vocab; ++v) entropy -= std::exp(log_p(v)) * log_p(v);
    for (size_t v = 0; v < vocab; ++v) {
      const double p = std::exp(log_p(v)), own = static_cast<int64_t>(v) == ids[i] ? 1 : 0;
      out[i * vocab + v] = (d_logp[i] * (own - p) - d_entropy[i] * p * (log_p(v) + entropy)) / temperature;
    }
  }
  return out;
}

// The file has integers times a unit; an empty row is zeros.
void expect_d_logits(const std::vector<double>& got, const json& expected, size_t vocab) {
  const double unit = expected.at("unit").get<double>();
  std::vector<double> want;
  for (const json& sequence : expected.at("values")) {
    for (const json& row : sequence) {
      std::vector<double> values = flat(row);
      values.resize(vocab);
      for (const double value : values) want.push_back(value * unit);
    }
  }
  ASSERT_EQ(got.size(), want.size());
  double error = 0, norm = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    error += (got[i] - want[i]) * (got[i] - want[i]);
    norm += want[i] * want[i];
  }
  EXPECT_TRUE(std::sqrt(error) <= kGradientDigits * std::sqrt(norm)) << std::sqrt(error / norm);
}

// Adds the numbers of a result by their names.
template <class T>
void keep_columns(const T& from, std::map<std::string, std::vector<double>>& out) {
  const auto keep = [&]<class Member>(const Field& field, const Member& member) {
    if constexpr (std::is_arithmetic_v<Member>) {
      out[field.name] = {static_cast<double>(member)};
    } else if constexpr (requires { member.begin(); }) {
      out[field.name].assign(member.begin(), member.end());
    } else {
      keep_columns(member, out);
    }
  };
  visit_fields(FieldsOf<T>(), keep, from);
}

// Compares all numbers of a case, under both plans and with tiles that divide none of the dimensions.
template <class Task>
void expect_case(const json& inputs, const json& c, const Task& task, const std::vector<int64_t>& ids) {
  const Rows rows(inputs.at("logits"));
  const json& expected = c.at("expected");
  std::vector<double> d_logits(rows.logits.size(), std::numeric_limits<double>::quiet_NaN());
  const Context context({.row_tile = 5, .vocab_tile = 4, .row_block = 5});
  const auto result =
      run(context, rows.given(), task, {.d_logits = view(d_logits.data(), {rows.sequences, rows.time, rows.vocab})});
  std::map<std::string, std::vector<double>> got;
  keep_columns(result, got);
  json want = expected;
  const json metrics = want.value("metrics", json::object());
  for (const auto& [name, value] : metrics.items()) {
    expect_all_near(name, got.at(name), flat(value), kDigits, kDigits);
  }
  for (const auto& [ours, theirs] :
       {std::pair("per_token_divergence", "divergences"), {"per_token_acceptance", "overlaps"}}) {
    if (want.contains(theirs)) want[ours] = want.at(theirs);
  }
  for (const char* name : {"loss", "per_token_loss", "per_token_divergence", "per_token_acceptance", "sequence_logps",
                           "sequence_losses"}) {
    if (want.contains(name)) expect_all_near(name, got.at(name), flat(want.at(name)), kDigits);
  }
  const auto vocab = static_cast<size_t>(rows.vocab);
  expect_d_logits(d_logits, expected.at("d_logits"), vocab);
  for (size_t i = 0; i < d_logits.size(); ++i) {
    ASSERT_TRUE(!std::isnan(rows.logits[i]) || d_logits[i] == 0) << "row " << i / vocab << " is ignored";
  }
  if (expected.contains("d_logps")) {
    expect_all_near("d_logits", d_logits, through_statistics(rows, ids, task.token.temperature, expected), kDigits);
  }
}

template <class Check>
void expect_every_case(const Golden& golden, const Check& check) {
  for (const auto& [name, c] : golden.cases) {
    SCOPED_TRACE(name);
    check(c);
  }
}

TEST(LossesGolden, Policies) {
  const Golden golden("policy.json");
  const json& inputs = golden.inputs;
  const auto ids = flat<int64_t>(inputs.at("chosen_ids"));
  const auto mask = flat<uint8_t>(inputs.at("mask"));
  expect_every_case(golden, [&](const json& c) {
    const auto given = [&](const char* name) {
      return c.at(name).get<bool>() ? flat(inputs.at(name)) : std::vector<double>();
    };
    const auto advantages = flat(inputs.at(c.at("advantages").get<std::string>()));
    const auto old = given("old_logps"), ref = given("ref_logps"), sampling = given("sampling_logps");
    auto task = read_options<PolicyLoss>(c.at("options"));
    task.want_entropy = true;
    task.chosen_ids = vector_view(ids);
    task.mask = mask;
    task.advantages = vector_view(advantages);
    task.old_logps = vector_view(old);
    task.ref_logps = vector_view(ref);
    task.sampling_logps = vector_view(sampling);
    expect_case(inputs, c, task, ids);
  });
}

TEST(LossesGolden, PairsAndSingleSequences) {
  const Golden golden("preference.json");
  const json& inputs = golden.inputs;
  const auto ids = flat<int64_t>(inputs.at("targets"));
  expect_every_case(golden, [&](const json& c) {
    std::vector<double> ref;
    const std::string kind = c.at("reference");
    if (kind != "none") ref = flat(inputs.at(kind == "token" ? "ref_logps" : "ref_sequence_logps"));
    const auto expect = [&](auto task) {
      task.want_entropy = true;
      task.targets = vector_view(ids);
      task.ref_logps = vector_view(ref);
      expect_case(inputs, c, task, ids);
    };
    if (c.at("kind") != "kto") {
      auto task = read_options<PreferenceLoss>(c.at("options"));
      task.loss_type.clear();
      for (const json& one : c.at("terms")) {
        assign(task.loss_type.emplace_back(), one.at("loss"));
        task.loss_weights.push_back(one.value("weight", 1.0));
      }
      return expect(task);
    }
    auto task = read_options<KtoLoss>(c.at("options"));
    const auto labels = flat<uint8_t>(c.at("labels"));
    std::vector<double> kl, kl_ref;
    if (c.at("kl") != "none") kl = flat(inputs.at("kl_logps")), kl_ref = flat(inputs.at("kl_ref_logps"));
    if (c.at("kl") == "negative") std::swap(kl, kl_ref);
    task.labels = labels;
    task.kl_logps = vector_view(kl);
    task.kl_ref_logps = vector_view(kl_ref);
    expect(task);
  });
}

TEST(LossesGolden, Distillation) {
  const Golden golden("distillation.json");
  const auto ids = flat<int64_t>(golden.inputs.at("targets"));
  const Rows teacher(golden.inputs.at("teacher_logits"));
  expect_every_case(golden, [&](const json& c) {
    auto task = read_options<logitless::Distillation>(c.at("options"));
    task.teacher = teacher.given();
    task.targets = vector_view(ids);
    expect_case(golden.inputs, c, task, ids);
  });
}

TEST(LossesGolden, HoldEveryKindOfLoss) {
  std::set<std::string> held;
  const auto hold = [&](const json& names) {
    if (names.is_string()) held.insert(names.get<std::string>());
    if (names.is_array() && names.size() == 1) held.insert(names[0].get<std::string>());
  };
  for (const char* file : {"policy.json", "policy_projects.json", "preference_projects.json", "distillation.json"}) {
    for (const auto& [name, c] : Golden(file).cases) hold(c.at("options").value("loss_type", json("grpo")));
  }
  for (const auto& [name, c] : Golden("preference.json").cases) {
    if (c.contains("terms") && c.at("terms").size() == 1) hold(c.at("terms")[0].at("loss"));
  }
  const auto expect_all = [&]<class Enum>(const Enum&) {
    for (const Enum one : all_of<Enum>()) EXPECT_TRUE(held.contains(name_of(one))) << name_of(one);
  };
  expect_all(PolicyLossType());
  expect_all(PreferenceLossType());
  expect_all(Divergence());
}

}  // namespace losses_golden_test
}  // namespace logitless::testing

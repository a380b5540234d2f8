// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Policy and preference losses against golden values of TRL and Liger-Kernel (tests/golden/README.md). Each
// case runs twice:
//   statistics   the loss on float64 log-probabilities and entropies: ∂loss/∂logp and ∂loss/∂H to eight digits
//   fused        the public call on float32 hidden states that are the logits, with an identity as the head, so that
//                d_hidden is ∂loss/∂logits
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "api/reference.h"
#include "logitless/logits.h"
#include "logitless/policy.h"
#include "logitless/preference.h"
#include "loss/kto.h"
#include "loss/policy.h"
#include "loss/preference.h"
#include "support/compare.h"

namespace logitless::testing {
namespace {

using nlohmann::json;

// The files hold ten digits, of gradients by logits six.
constexpr double kDigits = 1e-8;
// Of the fused path. Statistics of 11 words with logits below 8 have float32 errors of a few units of 2^-24
// times 8.
constexpr double kRelative = 1e-5;
constexpr double kLogpError = 1e-6;

// A file of golden values.
struct Golden {
  json inputs;
  std::map<std::string, json> cases;

  explicit Golden(const std::string& name) {
    std::ifstream file(GOLDEN_FOLDER "/" + name);
    const json all = json::parse(file);
    inputs = all.at("inputs");
    for (const json& c : all.at("cases")) cases[c.at("name").get<std::string>()] = c;
  }
  std::vector<std::string> names(const std::function<bool(const json&)>& wanted) const {
    std::vector<std::string> out;
    for (const auto& [name, c] : cases) {
      if (wanted(c)) out.push_back(name);
    }
    return out;
  }
};

const Golden& policy_golden() {
  static const Golden golden("policy.json");
  return golden;
}
const Golden& preference_golden() {
  static const Golden golden("preference.json");
  return golden;
}

// Nested arrays as one vector; null is NaN.
template <class T = double>
void append(const json& value, std::vector<T>& out) {
  if (value.is_array()) {
    for (const json& element : value) append(element, out);
  } else {
    out.push_back(value.is_null() ? std::numeric_limits<T>::quiet_NaN() : value.get<T>());
  }
}
template <class T = double>
std::vector<T> flat(const json& value) {
  std::vector<T> out;
  append(value, out);
  return out;
}

void assign(double& to, const json& value) { to = value.get<double>(); }
void assign(int64_t& to, const json& value) { to = value.get<int64_t>(); }
void assign(bool& to, const json& value) { to = value.get<bool>(); }
template <class T>
void assign(std::optional<T>& to, const json& value) {
  if (value.is_null()) {
    to.reset();
  } else {
    assign(to.emplace(), value);
  }
}
// An enumeration from a name. Its values are 0, 1, ... up to the last one.
template <class Enum>
Enum parse(const json& value, Enum last) {
  for (int i = 0; i <= static_cast<int>(last); ++i) {
    if (value == name_of(static_cast<Enum>(i))) return static_cast<Enum>(i);
  }
  throw std::invalid_argument("no such name: " + value.dump());
}
void assign(PolicyVariant& to, const json& value) { to = parse(value, all_policy_variants().back()); }
void assign(KlEstimator& to, const json& value) { to = parse(value, KlEstimator::kK3); }
void assign(ImportanceLevel& to, const json& value) { to = parse(value, ImportanceLevel::kSequence); }
void assign(SamplerCorrection& to, const json& value) { to = parse(value, SamplerCorrection::kSequenceMask); }

#define OPTION(name) \
  if (key == #name) return assign(options.name, value)

void set_option(PolicyOptions& options, const std::string& key, const json& value) {
  OPTION(variant);
  OPTION(importance_sampling_level);
  OPTION(epsilon_low);
  OPTION(epsilon_high);
  OPTION(delta);
  OPTION(log_ratio_clamp);
  OPTION(beta);
  OPTION(kl_estimator);
  OPTION(use_bias_correction_kl);
  OPTION(entropy_bonus);
  OPTION(top_entropy_quantile);
  OPTION(off_policy_mask_threshold);
  OPTION(sampler_correction);
  OPTION(sampler_clip_min);
  OPTION(sampler_clip_max);
  OPTION(num_items_in_batch);
  OPTION(max_completion_length);
  OPTION(sapo_temperature_pos);
  OPTION(sapo_temperature_neg);
  OPTION(vespo_k_pos);
  OPTION(vespo_lambda_pos);
  OPTION(vespo_k_neg);
  OPTION(vespo_lambda_neg);
  OPTION(loss_scale);
  if (key == "temperature") return assign(options.token.temperature, value);
  throw std::invalid_argument("no such option: " + key);
}

void set_option(PreferenceOptions& options, const std::string& key, const json& value) {
  OPTION(beta);
  OPTION(label_smoothing);
  OPTION(average_log_prob);
  OPTION(discopop_tau);
  OPTION(simpo_gamma);
  OPTION(nll_weight);
  OPTION(loss_scale);
  if (key == "temperature") return assign(options.token.temperature, value);
  throw std::invalid_argument("no such option: " + key);
}

void set_option(KtoOptions& options, const std::string& key, const json& value) {
  OPTION(beta);
  OPTION(desirable_weight);
  OPTION(undesirable_weight);
  OPTION(average_log_prob);
  OPTION(loss_scale);
  if (key == "temperature") return assign(options.token.temperature, value);
  throw std::invalid_argument("no such option: " + key);
}

#undef OPTION

template <class Options>
Options read_options(const json& values) {
  Options options;
  options.want_entropy = true;
  for (const auto& [key, value] : values.items()) set_option(options, key, value);
  return options;
}

// The logits of a file as hidden states, and exact statistics of the words they are asked for.
struct Tokens {
  int64_t batch = 0, length = 0, vocab = 0;
  std::vector<double> logits;
  std::vector<float> hidden, identity, d_hidden;
  std::vector<int64_t> rows;  // that take part
  TokenStats stats;

  Tokens(const json& values, const std::vector<int64_t>& words, double temperature,
         const std::function<bool(int64_t)>& takes_part)
      : batch(static_cast<int64_t>(values.size())),
        length(static_cast<int64_t>(values[0].size())),
        vocab(static_cast<int64_t>(values[0][0].size())),
        logits(flat(values)),
        hidden(logits.begin(), logits.end()),
        identity(static_cast<size_t>(vocab * vocab)),
        d_hidden(hidden.size(), std::numeric_limits<float>::quiet_NaN()) {
    for (int64_t v = 0; v < vocab; ++v) identity[static_cast<size_t>(v * vocab + v)] = 1;
    stats.logp.assign(static_cast<size_t>(tokens()), 0);
    stats.entropy = stats.logp;
    for (int64_t row = 0; row < tokens(); ++row) {
      if (!takes_part(row)) continue;
      rows.push_back(row);
      add_statistics(static_cast<size_t>(row), static_cast<size_t>(words[static_cast<size_t>(row)]), temperature);
    }
  }

  void add_statistics(size_t row, size_t word, double temperature) {
    const auto words = static_cast<size_t>(vocab);
    const double* const a = &logits[row * words];
    double sum = 0;
    for (size_t v = 0; v < words; ++v) sum += std::exp(a[v] / temperature);
    for (size_t v = 0; v < words; ++v) {
      const double log_p = a[v] / temperature - std::log(sum);
      stats.entropy[row] -= std::exp(log_p) * log_p;
      if (v == word) stats.logp[row] = log_p;
    }
  }

  int64_t tokens() const { return batch * length; }
  std::vector<int64_t> offsets() const {
    std::vector<int64_t> out;
    for (int64_t s = 0; s <= batch; ++s) out.push_back(s * length);
    return out;
  }
  TokenGrads zero_grads() const {
    return {.logp = std::vector<double>(stats.logp.size()),
            .lse = {},
            .entropy = std::vector<double>(stats.logp.size()),
            .prior = {}};
  }
  HiddenStates hidden_states() const { return {ConstMatrix(hidden.data(), tokens(), vocab), batch}; }
  LmHead head() const { return {ConstMatrix(identity.data(), vocab, vocab), HeadLayout::kHiddenVocab}; }
  Gradients gradients() {
    Gradients out;
    out.d_hidden = Matrix(d_hidden.data(), tokens(), vocab);
    return out;
  }
  // Log-probabilities of a sequence add up: no reward, log ratio or mean is further off than this.
  double largest_sum() const {
    double largest = 1;
    for (const double logp : stats.logp) largest = std::max(largest, static_cast<double>(length) * std::abs(logp));
    return largest;
  }
};

double norm(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return std::sqrt(sum);
}

// Within `relative` of the largest; a NaN that is wanted stands for anything.
void expect_all_near(const std::string& what, const std::vector<double>& got, const std::vector<double>& want,
                     double relative) {
  ASSERT_EQ(got.size(), want.size()) << what;
  double largest = 0;
  for (const double value : want) largest = std::fmax(largest, std::abs(value));
  for (size_t i = 0; i < want.size(); ++i) {
    if (!std::isnan(want[i])) expect_near(what + "[" + std::to_string(i) + "]", got[i], want[i], relative * largest);
  }
}

// Relative L2 error of d_hidden, and exact zeros where a token takes no part.
void expect_d_hidden(const Tokens& tokens, const json& expected) {
  const double unit = expected.at("unit").get<double>();
  const auto words = static_cast<size_t>(tokens.vocab);
  std::vector<double> want;
  for (const json& sequence : expected.at("values")) {
    for (const json& row : sequence) {
      std::vector<double> values = flat(row);
      values.resize(words);
      for (const double value : values) want.push_back(value * unit);
    }
  }
  ASSERT_EQ(want.size(), tokens.d_hidden.size());
  std::vector<double> difference(want.size());
  for (size_t i = 0; i < want.size(); ++i) difference[i] = tokens.d_hidden[i] - want[i];
  const double error = norm(difference) / norm(want);
  EXPECT_TRUE(error <= kRelative) << "d_hidden: relative L2 error " << error;
  for (int64_t row = 0; row < tokens.tokens(); ++row) {
    if (std::binary_search(tokens.rows.begin(), tokens.rows.end(), row)) continue;
    for (size_t v = 0; v < words; ++v) EXPECT_EQ(tokens.d_hidden[static_cast<size_t>(row) * words + v], 0) << row;
  }
}

// What a float32 error of each log-probability can do to the loss, to first order: Σ |∂loss/∂logp_i| |logp_i|
// ulps.
double loss_tolerance(const Tokens& tokens, const json& expected) {
  const std::vector<double> d_logps = flat(expected.at("d_logps"));
  double floor = 0;
  for (size_t i = 0; i < d_logps.size(); ++i) {
    floor += kLogpError * std::abs(d_logps[i]) * (1 + std::abs(tokens.stats.logp[i]));
  }
  return std::max(floor, kRelative * std::abs(expected.at("loss").get<double>()));
}

void expect_metrics(const std::map<std::string, double>& got, const json& want, double relative, double floor) {
  std::set<std::string> names;
  for (const auto& [name, value] : want.items()) {
    names.insert(name);
    ASSERT_TRUE(got.contains(name)) << name;
    const double number = value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
    expect_near(name, got.at(name), number, relative * std::abs(number) + floor);
  }
  for (const auto& [name, value] : got) EXPECT_TRUE(names.contains(name)) << name << " is not in the file";
}

std::map<std::string, double> as_map(const PolicyMetrics& m) {
  return {{"tokens", static_cast<double>(m.tokens)},  {"mean_ratio", m.mean_ratio},
          {"clip_fraction_low", m.clip_fraction_low}, {"clip_fraction_high", m.clip_fraction_high},
          {"clip_fraction", m.clip_fraction},         {"mean_kl", m.mean_kl},
          {"mean_entropy", m.mean_entropy},           {"mean_logp", m.mean_logp}};
}

std::map<std::string, double> as_map(const PreferenceMetrics& m) {
  return {{"pairs", static_cast<double>(m.pairs)},
          {"tokens", static_cast<double>(m.tokens)},
          {"chosen_reward", m.chosen_reward},
          {"rejected_reward", m.rejected_reward},
          {"margin", m.margin},
          {"accuracy", m.accuracy},
          {"chosen_logp", m.chosen_logp},
          {"rejected_logp", m.rejected_logp},
          {"nll", m.nll},
          {"mean_entropy", m.mean_entropy}};
}

std::map<std::string, double> as_map(const KtoMetrics& m) {
  return {{"desirable", static_cast<double>(m.desirable)},
          {"undesirable", static_cast<double>(m.undesirable)},
          {"tokens", static_cast<double>(m.tokens)},
          {"kl", m.kl},
          {"desirable_reward", m.desirable_reward},
          {"undesirable_reward", m.undesirable_reward},
          {"margin", m.margin},
          {"desirable_logp", m.desirable_logp},
          {"undesirable_logp", m.undesirable_logp},
          {"mean_entropy", m.mean_entropy}};
}

// Everything that results have in common. `d_hidden` of `tokens` is compared when the fused path ran.
template <class Result>
void expect_result(const Result& got, const json& expected, const Tokens& tokens, bool fused) {
  const double loss = expected.at("loss").get<double>();
  expect_near("loss", got.loss, loss, fused ? loss_tolerance(tokens, expected) : kDigits * std::abs(loss));
  const double floor = fused ? kLogpError * tokens.largest_sum() : kDigits;
  expect_metrics(as_map(got.metrics), expected.at("metrics"), fused ? kRelative : kDigits, floor);
  if (!fused) return;
  for (const int64_t row : tokens.rows) {
    const double logp = tokens.stats.logp[static_cast<size_t>(row)];
    expect_near("per_token_logps[" + std::to_string(row) + "]", got.per_token_logps[static_cast<size_t>(row)], logp,
                kLogpError * (1 + std::abs(logp)));
  }
  expect_d_hidden(tokens, expected.at("d_logits"));
}

// Runs `call` under both plans that a loss with gradients has.
void for_each_plan(const std::function<void(const Context&)>& call) {
  for (const PlanKind kind : {PlanKind::kOnePass, PlanKind::kTwoPass}) {
    SCOPED_TRACE(name_of(kind));
    ContextOptions options;
    options.plan = kind;
    call(Context(options));
  }
}

class PolicyGoldenTest : public ::testing::TestWithParam<std::string> {
 protected:
  PolicyGoldenTest()
      : options_(read_options<PolicyOptions>(case_.at("options"))),
        ids_(flat<int64_t>(inputs_.at("chosen_ids"))),
        mask_(flat<uint8_t>(inputs_.at("mask"))),
        advantages_(flat(inputs_.at(case_.at("advantages").get<std::string>()))),
        old_(optional("old_logps")),
        ref_(optional("ref_logps")),
        sampling_(optional("sampling_logps")),
        tokens_(inputs_.at("logits"), ids_, options_.token.temperature,
                [&](int64_t row) { return mask_[static_cast<size_t>(row)] != 0; }) {
    batch_.chosen_ids = Targets(std::span<const int64_t>(ids_));
    batch_.mask = mask_;
    batch_.advantages = view(advantages_);
    batch_.old_logps = view(old_);
    batch_.ref_logps = view(ref_);
    batch_.sampling_logps = view(sampling_);
  }

  static ConstVector view(const std::vector<double>& values) {
    return values.empty() ? ConstVector() : ConstVector(values.data(), static_cast<int64_t>(values.size()));
  }
  std::vector<double> optional(const std::string& name) const {
    return case_.at(name).get<bool>() ? flat(inputs_.at(name)) : std::vector<double>();
  }

  const json& inputs_ = policy_golden().inputs;
  const json& case_ = policy_golden().cases.at(GetParam());
  const json& expected_ = case_.at("expected");
  const PolicyOptions options_;
  const std::vector<int64_t> ids_;
  const std::vector<uint8_t> mask_;
  const std::vector<double> advantages_, old_, ref_, sampling_;
  Tokens tokens_;
  PolicyBatch batch_;
};

TEST_P(PolicyGoldenTest, Statistics) {
  loss::PolicyLoss loss(batch_, options_, tokens_.offsets(), tokens_.vocab);
  TokenGrads grads = tokens_.zero_grads();
  loss.evaluate(tokens_.rows, tokens_.stats, grads);
  const PolicyResult result = loss.result(tokens_.stats, {});
  expect_result(result, expected_, tokens_, false);
  expect_all_near("per_token_loss", result.per_token_loss, flat(expected_.at("per_token_loss")), kDigits);
  expect_all_near("d_logps", grads.logp, flat(expected_.at("d_logps")), kDigits);
  EXPECT_EQ(loss.gradients().entropy, expected_.contains("d_entropies"));
  if (expected_.contains("d_entropies")) {
    expect_all_near("d_entropies", grads.entropy, flat(expected_.at("d_entropies")), kDigits);
  }
}

TEST_P(PolicyGoldenTest, Fused) {
  for_each_plan([&](const Context& context) {
    const PolicyResult result =
        policy_loss(context, tokens_.hidden_states(), tokens_.head(), batch_, options_, tokens_.gradients());
    expect_result(result, expected_, tokens_, true);
    expect_all_near("per_token_loss", result.per_token_loss, flat(expected_.at("per_token_loss")), kRelative);
  });
}

// The same from the logits themselves, in tiles that divide nothing.
TEST_P(PolicyGoldenTest, FromLogits) {
  const Context context({.row_tile = 5, .vocab_tile = 4, .row_block = 5});
  const Logits logits(tokens_.hidden.data(), tokens_.batch, tokens_.length, tokens_.vocab);
  const LogitsGradient dlogits(tokens_.d_hidden.data(), tokens_.batch, tokens_.length, tokens_.vocab);
  const PolicyResult result = policy_loss(context, logits, batch_, options_, dlogits);
  expect_result(result, expected_, tokens_, true);
  expect_all_near("per_token_loss", result.per_token_loss, flat(expected_.at("per_token_loss")), kRelative);
}

// What pairs and KTO have in common.
template <class Options>
class SequencesGoldenTest : public ::testing::TestWithParam<std::string> {
 protected:
  SequencesGoldenTest()
      : options_(read_options<Options>(case_.at("options"))),
        words_(flat<int64_t>(inputs_.at("targets"))),
        tokens_(inputs_.at("logits"), words_, options_.token.temperature,
                [&](int64_t row) { return takes_part(row); }) {
    const std::string kind = case_.at("reference");
    if (kind != "none") ref_ = flat(inputs_.at(kind == "token" ? "ref_logps" : "ref_sequence_logps"));
    reference_.logps = ConstVector(ref_.data(), static_cast<int64_t>(ref_.size()));
  }

  // The target is a word, and the sequence has a result.
  bool takes_part(int64_t row) const {
    const auto s = static_cast<size_t>(row) / inputs_.at("targets")[0].size();
    return words_[static_cast<size_t>(row)] >= 0 && !expected_.at("sequence_logps")[s].is_null();
  }
  Targets targets() const { return Targets(std::span<const int64_t>(words_)); }

  template <class Loss>
  void expect_token_grads(Loss& loss) {
    if (!ref_.empty()) {
      loss.set_reference(api::reference_sums(Context(), reference_, loss.tokens(), options_.token));
    }
    TokenGrads grads = tokens_.zero_grads();
    loss.evaluate(tokens_.rows, tokens_.stats, grads);
    const auto result = loss.result(tokens_.stats, {});
    expect_result(result, expected_, tokens_, false);
    expect_all_near("sequence_logps", result.sequence_logps, flat(expected_.at("sequence_logps")), kDigits);
    expect_all_near("d_logps", grads.logp, flat(expected_.at("d_logps")), kDigits);
  }
  loss::SequenceTokens sequence_tokens() const {
    TokenOptions options;
    options.ignore_index = options_.token.ignore_index;
    options.shift = options_.token.shift;
    return loss::read_sequences(tokens_.offsets(),
                                problem::resolve_words(targets(), options, tokens_.offsets(), tokens_.vocab, "hidden"));
  }

  const json& inputs_ = preference_golden().inputs;
  const json& case_ = preference_golden().cases.at(GetParam());
  const json& expected_ = case_.at("expected");
  Options options_;
  const std::vector<int64_t> words_;
  Tokens tokens_;
  std::vector<double> ref_;
  Reference reference_;
};

class PreferenceGoldenTest : public SequencesGoldenTest<PreferenceOptions> {
 protected:
  PreferenceGoldenTest() {
    options_.terms.clear();
    for (const json& term : case_.at("terms")) {
      options_.terms.push_back({parse(term.at("loss"), all_preference_losses().back()), term.value("weight", 1.0)});
    }
  }
};

TEST_P(PreferenceGoldenTest, Statistics) {
  loss::PairLoss loss(options_, sequence_tokens());
  expect_token_grads(loss);
}

TEST_P(PreferenceGoldenTest, Fused) {
  for_each_plan([&](const Context& context) {
    const PreferenceResult result = preference_loss(context, tokens_.hidden_states(), tokens_.head(), targets(),
                                                    reference_, options_, tokens_.gradients());
    expect_result(result, expected_, tokens_, true);
    expect_all_near("sequence_logps", result.sequence_logps, flat(expected_.at("sequence_logps")), kRelative);
  });
}

class KtoGoldenTest : public SequencesGoldenTest<KtoOptions> {
 protected:
  KtoGoldenTest() : labels_(flat<uint8_t>(case_.at("labels"))) {
    const std::string kind = case_.at("kl");
    if (kind != "none") {
      kl_ = flat(inputs_.at(kind == "positive" ? "kl_logps" : "kl_ref_logps"));
      kl_ref_ = flat(inputs_.at(kind == "positive" ? "kl_ref_logps" : "kl_logps"));
    }
    batch_.targets = targets();
    batch_.labels = labels_;
    batch_.reference = reference_;
    batch_.kl_logps = ConstVector(kl_.data(), static_cast<int64_t>(kl_.size()));
    batch_.kl_ref_logps = ConstVector(kl_ref_.data(), static_cast<int64_t>(kl_ref_.size()));
  }

  const std::vector<uint8_t> labels_;
  std::vector<double> kl_, kl_ref_;
  KtoBatch batch_;
};

TEST_P(KtoGoldenTest, Statistics) {
  loss::KtoLoss loss(options_, batch_, sequence_tokens());
  expect_token_grads(loss);
}

TEST_P(KtoGoldenTest, Fused) {
  for_each_plan([&](const Context& context) {
    const KtoResult result =
        kto_loss(context, tokens_.hidden_states(), tokens_.head(), batch_, options_, tokens_.gradients());
    expect_result(result, expected_, tokens_, true);
    expect_all_near("sequence_losses", result.sequence_losses, flat(expected_.at("sequence_losses")), kRelative);
    expect_all_near("sequence_logps", result.sequence_logps, flat(expected_.at("sequence_logps")), kRelative);
  });
}

std::string case_name(const ::testing::TestParamInfo<std::string>& info) { return info.param; }
bool is_kto(const json& c) { return c.at("kind") == "kto"; }

INSTANTIATE_TEST_SUITE_P(Golden, PolicyGoldenTest,
                         ::testing::ValuesIn(policy_golden().names([](const json&) { return true; })), case_name);
INSTANTIATE_TEST_SUITE_P(Golden, PreferenceGoldenTest,
                         ::testing::ValuesIn(preference_golden().names(std::not_fn(is_kto))), case_name);
INSTANTIATE_TEST_SUITE_P(Golden, KtoGoldenTest, ::testing::ValuesIn(preference_golden().names(is_kto)), case_name);

TEST(GoldenFilesTest, HoldEveryPolicyVariant) {
  std::set<std::string> held;
  for (const auto& [name, c] : policy_golden().cases) held.insert(c.at("options").value("variant", "grpo"));
  for (const PolicyVariant variant : all_policy_variants()) EXPECT_TRUE(held.contains(name_of(variant)));
  EXPECT_EQ(held.size(), all_policy_variants().size());
}

TEST(GoldenFilesTest, HoldEveryPreferenceLossAlone) {
  std::set<std::string> held;
  for (const auto& [name, c] : preference_golden().cases) {
    if (!is_kto(c) && c.at("terms").size() == 1) held.insert(c.at("terms")[0].at("loss").get<std::string>());
  }
  for (const PreferenceLoss loss : all_preference_losses()) EXPECT_TRUE(held.contains(name_of(loss)));
  EXPECT_EQ(held.size(), all_preference_losses().size());
}

TEST(GoldenFilesTest, HoldKto) { EXPECT_FALSE(preference_golden().names(is_kto).empty()); }

}  // namespace
}  // namespace logitless::testing

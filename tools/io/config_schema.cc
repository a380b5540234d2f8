// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The schema of a config: every key, its rule and where it goes.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "io/config.h"
#include "io/config_value.h"
#include "logitless/context.h"

namespace logitless::io {
namespace {

constexpr int64_t kAnyLow = std::numeric_limits<int64_t>::min();
constexpr int64_t kAnyHigh = std::numeric_limits<int64_t>::max();
constexpr int64_t kMaxRanks = 4096;             // Of a product of two that an int holds.
constexpr int64_t kMaxSize = int64_t{1} << 40;  // Far above any tensor; products of sizes stay countable.

const Interval kPositive{.low = 0, .open_low = true, .text = "a finite number above 0"};
const Interval kNotNegative{.low = 0, .text = "a finite number of at least 0"};
const Interval kShare{.low = 0, .high = 1, .text = "a number from 0 to 1"};
const Interval kFinite{.text = "a finite number"};
const Interval kPositiveShare{.low = 0, .high = 1, .open_low = true, .text = "a number above 0 and up to 1"};
const Interval kLogRatio{.low = 0, .high = 300, .open_low = true, .text = "a number above 0 and up to 300, or none"};
const Interval kSoftcap{.low = 0, .text = "a finite number above 0, or 0 for none"};

// Makes rules of the keys in a section: each stores what `read` makes of the value in a member of what
// `members` lead to.
auto section(const std::string& prefix, auto... members) {
  return [=](const char* key, auto member, auto read) {
    return KeyRule{prefix + key,
                   [=](Config& config, const ConfigValue& value) { (config.*....*members).*member = read(value); }};
  };
}

template <class T = int64_t>
auto integer(int64_t low, int64_t high = kAnyHigh) {
  return [=](const ConfigValue& value) { return static_cast<T>(read_integer(value, low, high)); };
}

auto number(const Interval& interval) {
  return [=](const ConfigValue& value) { return read_number(value, interval); };
}

template <class T>
auto choice(std::vector<std::pair<std::string, T>> choices) {
  return [=](const ConfigValue& value) { return read_choice<T>(value, choices); };
}

template <class T, class Values = std::vector<T>>
auto named(const Values& values) {
  return [values = std::vector<T>(std::begin(values), std::end(values))](const ConfigValue& value) {
    return read_named<T>(value, values);
  };
}

// A name the library offers at run time, or auto.
auto offered(const std::vector<std::string>& names) {
  std::vector<std::pair<std::string, std::string>> choices = {{"auto", "auto"}};
  for (const std::string& name : names) choices.emplace_back(name, name);
  return choice<std::string>(std::move(choices));
}

template <class T = int64_t, class Read>
auto auto_or(Read read) {
  return [=](const ConfigValue& value) -> T { return is_auto(value) ? T{0} : static_cast<T>(read(value)); };
}

// The bare word `none`, or a value.
template <class Read>
auto none_or(Read read) {
  return [=](const ConfigValue& value) -> std::optional<decltype(read(value))> {
    if (value.node.IsScalar() && value.node.Scalar() == "none") return std::nullopt;
    return read(value);
  };
}

// A value, or a list of them.
template <class Read>
auto list_of(const Read& read, const char* text) {
  return [=](const ConfigValue& value) {
    std::vector<decltype(read(value))> list;
    if (!value.node.IsSequence()) return list = {read(value)};
    for (const auto& node : value.node) list.push_back(read({value.key, value.place, node}));
    if (list.empty()) value.reject(text);
    return list;
  };
}

std::optional<size_t> read_workspace(const ConfigValue& value) {
  return is_auto(value) ? std::nullopt : std::optional(read_bytes(value, true));
}

TemperatureConfig read_temperature(const ConfigValue& value) {
  Interval positive = kPositive;
  positive.text = "a finite number above 0, or a list [low, high] of two";
  if (!value.node.IsSequence()) {
    const double scalar = read_number(value, positive);
    return {scalar, scalar};
  }
  if (value.node.size() != 2) value.reject(positive.text);
  const TemperatureConfig range{read_number({value.key, value.place, value.node[0]}, positive),
                                read_number({value.key, value.place, value.node[1]}, positive)};
  if (!(range.low < range.high)) value.reject("a list [low, high] with low below high");
  return range;
}

// The table itself.
std::vector<KeyRule> build_schema() {
  using C = Config;
  using M = ModelConfig;
  using K = KernelConfig;
  using G = GradientConfig;
  using P = PolicyOptions;
  using Q = PreferenceOptions;
  using Kto = KtoOptions;
  using T = ToleranceConfig;
  using enum SamplerCorrection;
  const auto root = section(""), metrics = section("metrics.");
  const auto model = section("model.", &C::model);
  const auto policy = section("policy.", &C::policy, &PolicyConfig::options);
  const auto policy_batch = section("policy.", &C::policy);
  const auto preference = section("preference.", &C::preference);
  const auto kto = section("kto.", &C::kto, &KtoConfig::options);
  const auto kernel = section("kernel.", &C::kernel);
  const auto parallel = section("parallel.", &C::parallel);
  const auto gradients = section("gradients.", &C::gradients);
  const auto tolerances = section("tolerances.", &C::tolerances);
  const auto read_loss = named<PreferenceLoss>(all_preference_losses());
  const auto read_term = [=](const ConfigValue& value) { return PreferenceTerm{read_loss(value), 1.0}; };
  return {
      root("task", &C::task, named<Task>({Task::kCrossEntropy, Task::kGrpo, Task::kDpo, Task::kKto})),
      root("level", &C::level, named<Level>({Level::kFused, Level::kLogits})),
      model("name", &M::name, read_text),
      model("hidden_size", &M::hidden_size, integer(1, kMaxSize)),
      model("vocab_size", &M::vocab_size, integer(1, kMaxSize)),
      model("layout", &M::layout, named<HeadLayout>(kLayouts)),
      model("dtype", &M::dtype, named<DType>(kDTypes)),
      model("softcap", &M::softcap, number(kSoftcap)),
      model("bias", &M::bias, read_bool),
      root("batch_size", &C::batch_size, integer(1, kMaxSize)),
      root("seq_len", &C::seq_len, integer(0, kMaxSize)),
      root("seed", &C::seed, integer(0)),
      root("threads", &C::threads, auto_or<int>(integer(1, 4096))),
      root("ignore_index", &C::ignore_index, integer(kAnyLow)),
      root("ignored_fraction", &C::ignored_fraction, number(kShare)),
      root("temperature", &C::temperature, read_temperature),
      root("temperature_meaning", &C::temperature_meaning,
           choice<TemperatureMeaning>(
               {{"scale_logits", TemperatureMeaning::kScaleLogits}, {"scale_logp", TemperatureMeaning::kScaleLogp}})),
      root("round_logits_to", &C::round_logits_to, none_or(named<DType>({DType::kBFloat16, DType::kFloat16}))),
      root("reduction", &C::reduction,
           choice<Reduction>({{"mean", Reduction::kMean}, {"sum", Reduction::kSum}, {"none", Reduction::kNone}})),
      root("label_smoothing", &C::label_smoothing, number(kShare)),
      root("z_loss", &C::z_loss, number(kNotNegative)),
      root("class_weights", &C::class_weights, read_bool),
      root("loss_scale", &C::loss_scale, number(kFinite)),
      root("normaliser", &C::normaliser, number(kPositive)),
      root("shift", &C::shift, read_bool),
      metrics("accuracy", &C::accuracy, read_bool),
      metrics("entropy", &C::entropy, read_bool),
      policy("variant", &P::variant, named<PolicyVariant>(all_policy_variants())),
      policy("importance_sampling_level", &P::importance_sampling_level,
             named<ImportanceLevel>({ImportanceLevel::kToken, ImportanceLevel::kSequence})),
      policy("epsilon_low", &P::epsilon_low, number(kShare)),
      policy("epsilon_high", &P::epsilon_high, number(kNotNegative)),
      policy("delta", &P::delta, none_or(number(kPositive))),
      policy("log_ratio_clamp", &P::log_ratio_clamp, none_or(number(kLogRatio))),
      policy("beta", &P::beta, number(kNotNegative)),
      policy("kl_estimator", &P::kl_estimator,
             named<KlEstimator>({KlEstimator::kK1, KlEstimator::kK2, KlEstimator::kK3})),
      policy("use_bias_correction_kl", &P::use_bias_correction_kl, read_bool),
      policy("entropy_bonus", &P::entropy_bonus, number(kFinite)),
      policy("top_entropy_quantile", &P::top_entropy_quantile, number(kPositiveShare)),
      policy("off_policy_mask_threshold", &P::off_policy_mask_threshold, none_or(number(kFinite))),
      policy("sampler_correction", &P::sampler_correction,
             named<SamplerCorrection>({kNone, kTokenTruncate, kTokenMask, kSequenceTruncate, kSequenceMask})),
      policy("sampler_clip_min", &P::sampler_clip_min, none_or(number(kNotNegative))),
      policy("sampler_clip_max", &P::sampler_clip_max, none_or(number(kPositive))),
      policy("num_items_in_batch", &P::num_items_in_batch, none_or(number(kPositive))),
      policy("max_completion_length", &P::max_completion_length, none_or(integer(1, kMaxSize))),
      policy("sapo_temperature_pos", &P::sapo_temperature_pos, number(kPositive)),
      policy("sapo_temperature_neg", &P::sapo_temperature_neg, number(kPositive)),
      policy("vespo_k_pos", &P::vespo_k_pos, number(kFinite)),
      policy("vespo_lambda_pos", &P::vespo_lambda_pos, number(kFinite)),
      policy("vespo_k_neg", &P::vespo_k_neg, number(kFinite)),
      policy("vespo_lambda_neg", &P::vespo_lambda_neg, number(kFinite)),
      policy_batch("advantages", &PolicyConfig::advantage_per_token,
                   choice<bool>({{"sequence", false}, {"token", true}})),
      policy_batch("on_policy", &PolicyConfig::on_policy, read_bool),
      policy_batch("log_ratio_deviation", &PolicyConfig::log_ratio_deviation, number(kNotNegative)),
      preference("losses", &Q::terms, list_of(read_term, "the name of a loss, or a list of them")),
      section("preference.")("loss_weights", &C::preference_weights,
                             list_of(number(kFinite), "a finite number, or a list of them")),
      preference("beta", &Q::beta, number(kPositive)),
      preference("label_smoothing", &Q::label_smoothing, number(kShare)),
      preference("average_log_prob", &Q::average_log_prob, read_bool),
      preference("discopop_tau", &Q::discopop_tau, number(kPositive)),
      preference("simpo_gamma", &Q::simpo_gamma, number(kFinite)),
      preference("nll_weight", &Q::nll_weight, number(kNotNegative)),
      kto("beta", &Kto::beta, number(kPositive)),
      kto("desirable_weight", &Kto::desirable_weight, number(kNotNegative)),
      kto("undesirable_weight", &Kto::undesirable_weight, number(kNotNegative)),
      kto("average_log_prob", &Kto::average_log_prob, read_bool),
      section("kto.", &C::kto)("kl_baseline", &KtoConfig::kl_baseline, read_bool),
      kernel("block_size", &K::block_size, auto_or(integer(1, kMaxSize))),
      kernel("time_block", &K::time_block, auto_or(integer(1, kMaxSize))),
      kernel("bwd_impl", &K::dense_backward, choice<bool>({{"fused", false}, {"dense", true}})),
      kernel("plan", &K::plan, named<PlanKind>(kPlans)),
      kernel("workspace", &K::workspace_bytes, read_workspace),
      kernel("in_place", &K::in_place, read_bool),
      kernel("gemm_backend", &K::gemm_backend, offered(gemm_backends())),
      kernel("gradient_precision", &K::gradient_precision, named<GradientPrecision>(kPrecisions)),
      kernel("simd_target", &K::simd_target, offered(simd_targets())),
      parallel("vocab", &ParallelConfig::vocab, integer<int>(1, kMaxRanks)),
      parallel("data", &ParallelConfig::data, integer<int>(1, kMaxRanks)),
      gradients("d_hidden", &G::d_hidden, read_bool),
      gradients("d_weight", &G::d_weight, read_bool),
      gradients("d_bias", &G::d_bias, read_bool),
      gradients("dtype", &G::float32, choice<bool>({{"same", false}, {"float32", true}})),
      tolerances("loss_atol", &T::loss_atol, number(kNotNegative)),
      tolerances("losses_rel_l2", &T::losses_rel_l2, number(kNotNegative)),
      tolerances("d_hidden_rel_l2", &T::d_hidden_rel_l2, number(kNotNegative)),
      tolerances("d_weight_rel_l2", &T::d_weight_rel_l2, number(kNotNegative)),
      tolerances("d_bias_rel_l2", &T::d_bias_rel_l2, number(kNotNegative)),
      tolerances("dlogits_max_abs", &T::dlogits_max_abs, number(kNotNegative)),
      tolerances("dlogits_max_rel", &T::dlogits_max_rel, number(kNotNegative)),
      tolerances("dlogits_rel_l2", &T::dlogits_rel_l2, number(kNotNegative)),
      tolerances("logp_max_abs", &T::logp_max_abs, number(kNotNegative)),
  };
}

size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row[b.size()];
}

std::string last_part(const std::string& key) { return key.substr(key.rfind('.') + 1); }

}  // namespace

const char* name_of(Task task) {
  static constexpr const char* kNames[] = {"cross_entropy", "grpo", "dpo", "kto"};
  return kNames[static_cast<size_t>(task)];
}

const char* name_of(Level level) { return level == Level::kFused ? "fused" : "logits"; }

const std::vector<KeyRule>& config_schema() {
  static const std::vector<KeyRule> schema = build_schema();
  return schema;
}

bool is_section(const std::string& name) {
  return std::any_of(config_schema().begin(), config_schema().end(),
                     [&](const KeyRule& r) { return r.key.starts_with(name + "."); });
}

std::string suggestion_for(const std::string& key) {
  constexpr size_t kLongestSlip = 100;
  if (key.size() > kLongestSlip) return "";  // The distance below takes time in proportion.
  std::string best;
  size_t best_distance = std::numeric_limits<size_t>::max();
  const auto consider = [&](const std::string& known) {
    // The right word in the wrong section is as good as a small slip.
    const size_t distance = last_part(known) == last_part(key) ? 1 : edit_distance(key, known);
    if (distance < best_distance) {
      best = known;
      best_distance = distance;
    }
  };
  for (const KeyRule& r : config_schema()) {
    consider(r.key);
    if (r.key.find('.') != std::string::npos) consider(r.key.substr(0, r.key.find('.')));
  }
  return best_distance <= std::max<size_t>(2, key.size() / 4) ? "; did you mean " + best + "?" : "";
}

}  // namespace logitless::io

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The schema of a config: every key, its rule, and the member that it sets.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include "core/fields.h"
#include "io/config.h"
#include "io/config_value.h"
#include "logitless/context.h"

namespace logitless::io {
namespace {

constexpr int64_t kAnyLow = std::numeric_limits<int64_t>::min();
constexpr int64_t kAnyHigh = std::numeric_limits<int64_t>::max();
constexpr int64_t kMaxRanks = 4096;             // an int holds the product of two
constexpr int64_t kMaxSize = int64_t{1} << 40;  // far above any tensor's size

const Interval kSoftcap{.text = "a finite number above 0, or 0 for none", .low = 0};

template <class T>
std::string section_of() {
  return std::string(T::kName) + ".";
}

// Returns a function that makes rules for the keys of a section. Each rule stores read(value) in `member` of
// the structure that `members` lead to.
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

// Accepts the names that the library offers at run time, or auto.
auto offered(const std::vector<std::string>& names) {
  std::vector<std::pair<std::string, std::string>> choices = {{"auto", "auto"}};
  for (const std::string& name : names) choices.emplace_back(name, name);
  return choice<std::string>(std::move(choices));
}

template <class T = int64_t, class Read>
auto auto_or(Read read) {
  return [=](const ConfigValue& value) -> T { return is_auto(value) ? T{0} : static_cast<T>(read(value)); };
}

// Accepts the bare word `none`, or a value.
template <class Read>
auto none_or(Read read) {
  return [=](const ConfigValue& value) -> std::optional<decltype(read(value))> {
    if (value.node.IsScalar() && value.node.Scalar() == "none") return std::nullopt;
    return read(value);
  };
}

// Accepts a value, or a list of values.
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

size_t read_workspace(const ConfigValue& value) {
  return is_auto(value) ? ContextOptions().workspace_bytes : read_bytes(value);
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

// True for the types of options that have a key. Token options have rules of their own. Arrays are seeded, or
// come with the tensors.

template <class T>
inline constexpr bool kHasKey = !std::is_same_v<T, TokenOptions> && !std::is_same_v<T, std::span<const float>> &&
                                !std::is_same_v<T, std::span<const double>>;

void read_option(const ConfigValue& value, const Field&, bool& to) { to = read_bool(value); }
void read_option(const ConfigValue& value, const Field& field, double& to) { to = read_number(value, field.range); }
void read_option(const ConfigValue& value, const Field& field, int64_t& to) {
  // shift also takes true and false, for 1 and 0.
  if (std::string_view(field.name) == "shift" && is_bool(value)) {
    to = read_bool(value) ? 1 : 0;
    return;
  }
  const bool any = field.range.low < 0;
  to = read_integer(value, any ? kAnyLow : static_cast<int64_t>(field.range.low), any ? kAnyHigh : kMaxSize);
}
template <Named Enum>
void read_option(const ConfigValue& value, const Field&, Enum& to) {
  to = read_named<Enum>(value, all_of<Enum>());
}
void read_option(const ConfigValue& value, const Field&, std::optional<DType>& to) {
  to = none_or(named<DType>({DType::kBFloat16, DType::kFloat16}))(value);
}
template <class T>
void read_option(const ConfigValue& value, const Field& field, std::optional<T>& to) {
  const std::string text = std::string(field.range.text) + ", or none";
  Interval range = field.range;
  range.text = text.c_str();
  const Field or_none(field.name, range);
  to = none_or([&](const ConfigValue& given) {
    T number{};
    read_option(given, or_none, number);
    return number;
  })(value);
}
template <class T>
void read_option(const ConfigValue& value, const Field& field, std::vector<T>& to) {
  const auto read_entry = [&](const ConfigValue& given) {
    T entry{};
    read_option(given, field, entry);
    return entry;
  };
  to = list_of(read_entry, Named<T> ? "a name, or a list of them" : "a number, or a list of them")(value);
}

// Adds a rule per field of a structure. Options that every task has are at the root of a config.
template <class Structure, class Find>
void add_fields(const std::string& section, const Find& find, std::vector<KeyRule>& rules) {
  const auto add = [&](const Field& field, const auto& member) {
    if constexpr (kHasKey<std::remove_cvref_t<decltype(member)>>) {
      const std::string_view name = field.name;
      const bool of_all_tasks = name == "loss_scale" || name == "want_entropy";
      if (of_all_tasks && !section.empty()) return;
      const std::string key =
          name.starts_with("want_") ? "metrics." + std::string(name.substr(5)) : section + field.name;
      rules.push_back({key, [find, name](Config& config, const ConfigValue& value) {
                         const auto read = [&](const Field& one, auto& to) {
                           if constexpr (kHasKey<std::remove_cvref_t<decltype(to)>>) {
                             if (name == one.name) read_option(value, one, to);
                           }
                         };
                         visit_fields(FieldsOf<Structure>(), read, find(config));
                       }});
    }
  };
  visit_fields(FieldsOf<Structure>(), add, Structure());
}

// Builds the table.
std::vector<KeyRule> build_schema() {
  using C = Config;
  using M = ModelConfig;
  using L = LoraConfig;
  using K = ContextOptions;
  using G = GradientConfig;
  const auto root = section("");
  const auto model = section("model.", &C::model);
  const auto lora = section("model.lora.", &C::model, &M::lora);
  const auto policy_batch = section(section_of<PolicyLoss>(), &C::policy);
  const auto teacher = section("teacher.", &C::teacher);
  const auto sets = section("sets.", &C::sets);
  const auto kernel = section("kernel.", &C::kernel);
  const auto parallel = section("parallel.", &C::parallel);
  const auto gradients = section("gradients.", &C::gradients);
  std::vector<std::pair<std::string, std::string>> tasks;
  for_each_task([&]<class Task> { tasks.emplace_back(Task::kName, Task::kName); });
  std::vector<KeyRule> rules = {
      root("task", &C::task, choice<std::string>(tasks)),
      root("level", &C::level, named<Level>({Level::kFused, Level::kLogits})),
      model("name", &M::name, read_text),
      model("hidden_size", &M::hidden_size, integer(1, kMaxSize)),
      model("vocab_size", &M::vocab_size, integer(1, kMaxSize)),
      model("layout", &M::layout, named<HeadLayout>(all_of<HeadLayout>())),
      model("dtype", &M::dtype, named<DType>(kFloatTypes)),
      model("softcap", &M::softcap, number(kSoftcap)),
      model("bias", &M::bias, read_bool),
      model("packing", &M::packing, none_or(named<Packing>({Packing::kInt8}))),
      model("vocab_ids", &M::vocab_ids, list_of(integer(0, kMaxSize), "an integer, or a list of them")),
      lora("rank", &L::rank, integer(0, kMaxSize)),
      lora("scale", &L::scale, number(kFinite)),
      lora("dtype", &L::dtype, named<DType>(kFloatTypes)),
      root("batch_size", &C::batch_size, integer(1, kMaxSize)),
      root("seq_len", &C::seq_len, integer(0, kMaxSize)),
      root("seed", &C::seed, integer(0)),
      section("", &C::kernel)("threads", &K::threads, auto_or<int>(integer(1, 4096))),
      root("ignored_fraction", &C::ignored_fraction, number(kShare)),
      root("class_weights", &C::class_weights, read_bool),
      root("token_weights", &C::token_weights, read_bool),
      root("top_k", &C::top_k, integer(0, kMostTopK)),
      policy_batch("advantages", &PolicyConfig::advantage_per_token,
                   choice<bool>({{"sequence", false}, {"token", true}})),
      policy_batch("on_policy", &PolicyConfig::on_policy, read_bool),
      policy_batch("log_ratio_deviation", &PolicyConfig::log_ratio_deviation, number(kNotNegative)),
      section(section_of<KtoLoss>(), &C::kto)("kl_baseline", &KtoConfig::kl_baseline, read_bool),
      teacher("hidden_size", &TeacherConfig::hidden_size, integer(1, kMaxSize)),
      teacher("dtype", &TeacherConfig::dtype, named<DType>(kFloatTypes)),
      teacher("softcap", &TeacherConfig::softcap, number(kSoftcap)),
      teacher("bias", &TeacherConfig::bias, read_bool),
      sets("ids", &SetsConfig::ids, integer(0, kMaxSize)),
      sets("dense", &SetsConfig::dense, read_bool),
      kernel("row_tile", &K::row_tile, auto_or(integer(1, kMaxSize))),
      kernel("vocab_tile", &K::vocab_tile, auto_or(integer(1, kMaxSize))),
      kernel("plan", &K::plan,
             named<PlanKind>({PlanKind::kAuto, PlanKind::kOnePass, PlanKind::kTwoPass, PlanKind::kExpectedRow})),
      kernel("workspace", &K::workspace_bytes, read_workspace),
      section("kernel.")("in_place", &C::in_place, read_bool),
      kernel("gemm_backend", &K::gemm_backend, offered(gemm_backends())),
      kernel("gradient_precision", &K::gradient_precision, named<GradientPrecision>(all_of<GradientPrecision>())),
      kernel("simd_target", &K::simd_target, offered(simd_targets())),
      parallel("vocab", &ParallelConfig::vocab, integer<int>(1, kMaxRanks)),
      parallel("data", &ParallelConfig::data, integer<int>(1, kMaxRanks)),
      gradients("d_hidden", &G::d_hidden, read_bool),
      gradients("d_weight", &G::d_weight, read_bool),
      gradients("d_bias", &G::d_bias, read_bool),
      gradients("d_lora_a", &G::d_lora_a, read_bool),
      gradients("d_lora_b", &G::d_lora_b, read_bool),
      gradients("dtype", &G::float32, choice<bool>({{"same", false}, {"float32", true}})),
  };
  for (const std::string name : kToleranceNames) {
    rules.push_back({"tolerances." + name, [name](Config& config, const ConfigValue& value) {
                       config.tolerances[name] = read_number(value, kNotNegative);
                     }});
  }
  add_fields<TokenOptions>(
      "", [](Config & config) -> auto& { return std::get<CrossEntropy>(config.tasks).token; }, rules);
  add_fields<BackwardOptions>(
      "backward.", [](Config & config) -> auto& { return config.backward; }, rules);
  for_each_task([&]<class Task> {
    const bool at_root = std::is_same_v<Task, CrossEntropy>;
    add_fields<Task>(
        at_root ? "" : section_of<Task>(), [](Config & config) -> auto& { return std::get<Task>(config.tasks); },
        rules);
  });
  // A temperature may also be a range that each token draws from.
  std::erase_if(rules, [](const KeyRule& rule) { return rule.key == "temperature"; });
  rules.push_back(root("temperature", &C::temperature, read_temperature));
  return rules;
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

const char* name_of(Level level) { return level == Level::kFused ? "fused" : "logits"; }

const std::vector<KeyRule>& config_schema() {
  static const std::vector<KeyRule> schema = build_schema();
  return schema;
}

bool is_section(const std::string& name) {
  return std::any_of(config_schema().begin(), config_schema().end(),
                     [&](const KeyRule& r) { return r.key.starts_with(name + "."); });
}

std::string suggestion_among(const std::vector<std::string>& names, const std::string& word) {
  constexpr size_t kLongestSlip = 100;
  if (word.size() > kLongestSlip) return "";  // edit_distance() would take long
  const std::string* best = nullptr;
  size_t best_distance = std::max<size_t>(2, word.size() / 4) + 1;
  for (const std::string& name : names) {
    // The right word in the wrong section counts as a single typo.
    const size_t distance = last_part(name) == last_part(word) ? 1 : edit_distance(word, name);
    if (distance >= best_distance) continue;
    best = &name;
    best_distance = distance;
  }
  return best ? "; did you mean " + *best + "?" : "";
}

}  // namespace logitless::io

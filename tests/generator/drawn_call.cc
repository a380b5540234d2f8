// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "generator/drawn_call.h"

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <type_traits>

#include "core/field_text.h"
#include "logitless/run.h"
#include "support/option_cases.h"

namespace logitless::testing {
namespace {

using Option = std::pair<std::string, std::string>;
/// Options that have an effect: a field with a value other than its default, and the other fields that it
/// needs.
using Choices = std::vector<std::vector<Option>>;

template <class T>
std::vector<Option> texts_of(const T& options) {
  std::vector<Option> texts;
  const auto add = [&](const Field& field, const auto& value) {
    if (field.role.elements == 0) texts.emplace_back(field.name, text_of(value));
  };
  visit_flat(FieldsOf<T>(), add, options);
  return texts;
}

template <class T>
Choices choices_of_task() {
  const std::vector<Option> by_default = texts_of(T());
  Choices choices;
  const std::set<std::string> without_use = refused(T());
  for (const OptionCase<T>& one : option_cases<T>()) {
    if (without_use.contains(one.field + " = " + one.value)) continue;
    std::vector<Option> changed = texts_of(one.changed);
    std::erase_if(changed, [&](const Option& text) { return std::ranges::find(by_default, text) != by_default.end(); });
    if (!changed.empty()) choices.push_back(std::move(changed));
  }
  return choices;
}

const std::map<std::string, Choices>& all_choices() {
  static const std::map<std::string, Choices> all = [] {
    std::map<std::string, Choices> made;
    AllTasks::each([&]<class T>() { made[T::kName] = choices_of_task<T>(); });
    return made;
  }();
  return all;
}

// Returns the value of a field as code.
template <class T>
std::string code_of_value(const std::string& field, const T& value) {
  if constexpr (std::is_same_v<T, std::optional<Packing>>) {
    return "named<Packing>(\"" + text_of(value) + "\")";
  } else if constexpr (Named<T>) {
    return "*named<decltype(call." + field + ")>(\"" + std::string(name_of(value)) + "\")";
  } else {
    return text_of(value);
  }
}

// Removes settings that the library always refuses, so that most calls run.
void make_consistent(DrawnCall& call) {
  const bool wide = call.states == DType::kFloat64;
  for (DType* type : {&call.head, &call.lora}) {
    if (wide || *type == DType::kFloat64) *type = wide ? call.states : DType::kFloat32;
  }
  if (call.packing && (wide || call.finished)) call.packing = {};
  if (call.packing) {
    call.head_transposed = call.d_weight = call.sink = false;
    if (!has_scales_apart(*call.packing)) call.hidden = std::max<int64_t>(64, block_of(*call.packing).numbers);
    if (call.packing == Packing::kNf4) call.hidden = (call.hidden + 3) / 4 * 4;
    const bool whole = call.packing == Packing::kInt8 || call.packing == Packing::kQ8_0;
    if (!whole && call.values == Values::kWhole) call.values = Values::kNormal;
  }
  if (call.finished) {
    call.lora_rank = 0, call.softcap = 0;
    call.vocab_ids = call.bias = call.head_transposed = false;
    call.slices = call.vocab_ranks = 1;
    call.backward = BackwardMode::kExact;
    call.model_as_reference = call.teacher_logits = false;
    if (call.task == Distillation::kName) call.packed = false;
    if (call.plan == PlanKind::kExpectedRow) call.plan = PlanKind::kAuto;
  } else {
    call.in_place = false;
    if (call.values == Values::kMasked) call.bias = true, call.softcap = 0;
  }
  if (call.lora_rank == 0) call.lora_states = false;
  // Pairs cannot be split between ranks, and neither can KTO's mismatched completions.
  const bool pairs = call.task == PreferenceLoss::kName;
  if (pairs || call.sequences == 1 || (call.task == KtoLoss::kName && call.mask)) call.data_ranks = 1;
  // The noise of a draw belongs to a row's position on its rank.
  const auto draws = [](const Option& option) { return option.first.starts_with("draw"); };
  if (std::ranges::any_of(call.options, draws)) call.data_ranks = 1;
  if (call.data_ranks > 1) call.sink = false;
  // An empty list of ids would mean all entries.
  if (call.vocab_ranks > 1 && call.vocab_ids) call.slices = 1;
  if (call.task == PreferenceLoss::kName && call.sequences == 1) call.sequences = 2;
  const bool no_loss = call.task == IdLogps::kName || call.task == TokenStatistics::kName;
  if (no_loss) call.halves = true;
  if (call.halves && call.plan == PlanKind::kOnePass) call.plan = PlanKind::kAuto;
  if (call.kept) call.slices = call.vocab_ranks = 1;
  // With only two tokens, or a single advantage, all covariances are equal, and rounding decides the choice.
  const auto chooses = [](const Option& option) { return option.second.ends_with("_cov"); };
  if (std::ranges::any_of(call.options, chooses)) {
    call.mask = false, call.per_token = true, call.values = Values::kNormal;
    call.time = std::max<int64_t>(call.time, 3);
  }
  // If two numbers are equal up to rounding, rounding decides which is larger. This happens for logits at the
  // cap, for probabilities of equal logits or logits with an offset, and for entropies near 0.
  const bool compares = call.task == Distillation::kName || call.task == SetDistillation::kName;
  if ((compares && call.values == Values::kLarge) || (pairs && call.values == Values::kOffset)) call.softcap = 0;
  const bool near = call.values == Values::kOffset || call.values == Values::kTies || call.values == Values::kWhole;
  if (compares && near) call.values = Values::kNormal;
  const auto sorts = [](const Option& option) { return option.first == "top_entropy_quantile"; };
  if (std::ranges::any_of(call.options, sorts)) call.values = Values::kNormal;
  // The largest float16 is 65504.
  const Option halves = {"round_logits_to", "float16"};
  if (call.values == Values::kOffset && std::ranges::find(call.options, halves) != call.options.end()) {
    call.values = Values::kNormal;
  }
  // Segments are skipped only in a large vocabulary with few likely entries.
  if (call.backward != BackwardMode::kExact && call.seed % 4 == 0) {
    call.vocab = 2049, call.values = Values::kCertain, call.softcap = 0;
  }
  // Keep other sizes small for a large vocabulary.
  if (call.vocab > 300 && call.tokens() > 16) call.time = 3;
}

}  // namespace

DrawnCall draw_call(uint64_t random) {
  std::mt19937_64 draw(random);
  const auto below = [&](size_t count) { return static_cast<size_t>(draw() % count); };
  DrawnCall call;
  call.seed = draw() % 1000;
  const auto& tasks = all_choices();
  const auto& [task, choices] = *std::next(tasks.begin(), static_cast<ptrdiff_t>(below(tasks.size())));
  call.task = task;
  std::map<std::string, std::string> options;
  for (size_t count = below(4); count > 0; --count) {
    for (const auto& [name, text] : choices[below(choices.size())]) options[name] = text;
  }
  call.options.assign(options.begin(), options.end());
  // With few non-default fields a call reaches the engine; with many, features are combined.
  const size_t share = 1 + below(5);
  visit_fields(call, [&]<class T>(const char*, T& member, std::initializer_list<T> values) {
    if (below(12) < share) member = values.begin()[below(values.size())];
  });
  make_consistent(call);
  return call;
}

std::vector<DrawnCall> simpler_calls(const DrawnCall& call) {
  std::vector<DrawnCall> simpler;
  if (call.task != DrawnCall().task && call.options.empty()) {
    simpler.push_back(call);
    simpler.back().task = DrawnCall().task;
  }
  for (size_t i = 0; i < call.options.size(); ++i) {
    simpler.push_back(call);
    simpler.back().options.erase(simpler.back().options.begin() + static_cast<ptrdiff_t>(i));
  }
  if (call.seed != 1) {
    simpler.push_back(call);
    simpler.back().seed = 1;
  }
  DrawnCall copy = call;
  visit_fields(copy, [&]<class T>(const char*, T& member, std::initializer_list<T> values) {
    const T now = member;
    for (const T& value : values) {
      if (value == now) break;
      member = value;
      simpler.push_back(copy);
    }
    member = now;
  });
  return simpler;
}

std::string code_of(const DrawnCall& call) {
  std::string code = "DrawnCall call;\n";
  const auto line = [&](const std::string& name, const std::string& value) {
    code += "call." + name + " = " + value + ";\n";
  };
  if (call.task != DrawnCall().task) line("task", '"' + call.task + '"');
  if (!call.options.empty()) {
    std::string list;
    for (const auto& [name, text] : call.options)
      list += (list.empty() ? "{{\"" : ", {\"") + name + "\", \"" + text + "\"}";
    line("options", list + "}");
  }
  if (call.seed != 1) line("seed", std::to_string(call.seed));
  DrawnCall copy = call;
  visit_fields(copy, [&]<class T>(const char* name, T& member, std::initializer_list<T> values) {
    if (member == *values.begin()) return;
    line(name, code_of_value(name, member));
  });
  return code + "EXPECT_EQ(fault_of(call), \"\");\n";
}

}  // namespace logitless::testing

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Keyword arguments of Python become the structs of the C++ API.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <limits>
#include <optional>
#include <string>
#include <type_traits>

#include "arrays.h"
#include "logitless/context.h"
#include "logitless/cross_entropy.h"
#include "logitless/policy.h"
#include "logitless/preference.h"
#include "logitless/token_stats.h"
#include "logitless/workspace.h"

namespace logitless::python {

/// The names of what the C++ API has no names for, in the order of their enumerators.
const char* name_of(HeadLayout layout);
const char* name_of(Reduction reduction);
const char* name_of(TemperatureMeaning meaning);
const char* name_of(EntriesPer entries);
using logitless::name_of;

/// Reads keyword arguments by name. One that nobody has asked for is a TypeError.
class Keywords {
 public:
  /// `of` names what the keywords belong to.
  Keywords(nb::dict given, const char* of) : given_(std::move(given)), of_(of) {}

  /// Returns the argument, or nothing where it is left out or None.
  nb::handle find(const char* key);

  template <class T>
  void take(const char* key, T& out) {
    if (const nb::handle value = find(key)) out = cast<T>(key, value);
  }
  template <class T>
  void take(const char* key, std::optional<T>& out) {
    if (const nb::handle value = find(key)) out = cast<T>(key, value);
  }
  /// For a bound that None takes away: left out it stays as it is.
  void take_bound(const char* key, std::optional<double>& out);
  /// Takes the name of one of the enumerators up to `last`.
  template <class Enum>
  void take_name(const char* key, Enum& out, Enum last);

  /// Throws a TypeError that names an argument which was not asked for.
  void check_all_known() const;

 private:
  template <class T>
  T cast(const char* key, nb::handle value) const {
    T out;
    if (nb::try_cast(value, out)) return out;
    const bool is_int = PyLong_Check(value.ptr());
    if constexpr (std::is_floating_point_v<T>) {
      if (is_int) refuse_int(key, value, "no float is as large");
    } else if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
      using Limits = std::numeric_limits<T>;
      if (is_int) {
        refuse_int(key, value,
                   "it must be from " + std::to_string(Limits::min()) + " to " + std::to_string(Limits::max()));
      }
    }
    refuse(key, value, type_name<T>());
  }
  // How Python calls what an argument must be.
  template <class T>
  static const char* type_name() {
    if constexpr (std::is_same_v<T, bool>) return "a bool";
    if constexpr (std::is_integral_v<T>) return "an int";
    if constexpr (std::is_floating_point_v<T>) return "a float";
    if constexpr (std::is_same_v<T, std::string>) return "a str";
    if constexpr (std::is_same_v<T, std::vector<int64_t>>) return "a list of ints of 64 bits";
    return nullptr;
  }
  [[noreturn]] void refuse(const char* key, nb::handle value, const char* wanted) const;
  [[noreturn]] void refuse_int(const char* key, nb::handle value, const std::string& rule) const;
  [[noreturn]] static void refuse_name(const char* key, const std::string& value, const std::string& known);

  nb::dict given_;
  const char* of_;
  std::vector<std::string> known_;
};

template <class Enum>
void Keywords::take_name(const char* key, Enum& out, Enum last) {
  std::string name;
  const nb::handle value = find(key);
  if (!value) return;
  name = cast<std::string>(key, value);
  std::string known;
  for (int i = 0; i <= static_cast<int>(last); ++i) {
    const char* one = name_of(static_cast<Enum>(i));
    if (name == one) {
      out = static_cast<Enum>(i);
      return;
    }
    known += std::string(i ? ", " : "") + one;
  }
  refuse_name(key, name, known);
}

TokenOptions take_token_options(Keywords& keywords, Arrays& arrays);
StatsRequest take_request(Keywords& keywords, Arrays& arrays);
CrossEntropyOptions take_cross_entropy_options(Keywords& keywords, Arrays& arrays);
PolicyOptions take_policy_options(Keywords& keywords, Arrays& arrays);
PreferenceOptions take_preference_options(Keywords& keywords, Arrays& arrays);
KtoOptions take_kto_options(Keywords& keywords, Arrays& arrays);
ContextOptions take_context_options(Keywords& keywords);
PolicyBatch take_policy_batch(Keywords& keywords, Arrays& arrays);
KtoBatch take_kto_batch(Keywords& keywords, Arrays& arrays);
/// Takes ref_logps, or ref_hidden and a head whose names begin with ref_.
Reference take_reference(Keywords& keywords, Arrays& arrays);
/// Takes weight, layout, bias and softcap, under names that begin with `prefix`. Tells whether the weight is a
/// transposed view.
LmHead take_head(Keywords& keywords, Arrays& arrays, const char* prefix, bool* transposed);

/// What a loss is taken of, and where its gradients go.
class CallTensors {
 public:
  /// Takes hidden, hidden_second, offsets, weight, layout, bias and softcap, or logits; and d_hidden,
  /// d_hidden_second, d_weight, d_bias, weight_sink and accumulate, or d_logits.
  CallTensors(Keywords& keywords, Arrays& arrays);

  /// Calls use(outputs, source...).
  template <class Use>
  auto with(const Use& use) const {
    return logits_ ? use(d_logits_, *logits_) : use(gradients_, hidden_, head_);
  }

 private:
  HiddenStates hidden_;
  LmHead head_;
  std::optional<Logits> logits_;
  Gradients gradients_;
  LogitsGradient d_logits_;
};

}  // namespace logitless::python

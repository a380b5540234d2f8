// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Keyword arguments of Python become the structs of the C++ API.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include "arrays.h"
#include "core/fields.h"
#include "core/matrices.h"
#include "logitless/logits.h"
#include "logitless/workspace.h"

namespace logitless::python {

/// Reads keyword arguments by name. One that nobody has asked for is a TypeError.
class Keywords {
 public:
  /// `of` names what the keywords belong to.
  Keywords(const nb::dict& given, const char* of);

  /// Returns the argument, or nothing where it is left out or None.
  nb::handle find(const char* key);

  /// Takes the argument where there is one: a name for an enumerator, a list, or a single entry, for a vector.
  template <class T>
  void take(const char* key, T& out) {
    if (const nb::handle value = find(key)) out = cast<T>(key, value);
  }
  /// None unsets it; left out it stays as it is.
  template <class T>
  void take(const char* key, std::optional<T>& out) {
    const Given* given = ask(key);
    if (!given) return;
    out = given->value.is_none() ? std::nullopt : std::optional<T>(cast<T>(key, given->value));
  }

  /// Throws a TypeError that names an argument which was not asked for.
  void check_all_known() const;

 private:
  struct Given {
    nb::object name;
    std::string_view text;  // of name
    nb::object value;
    bool known = false;  // somebody has asked for it
  };
  // Returns the argument, None included, and marks it as known.
  const Given* ask(const char* key);
  template <class T>
  T cast(const char* key, nb::handle value) const;
  // How Python calls what an argument must be.
  template <class T>
  static const char* type_name() {
    if constexpr (std::is_same_v<T, bool>) return "a bool";
    if constexpr (std::is_integral_v<T>) return "an int";
    if constexpr (std::is_floating_point_v<T>) return "a float";
    if constexpr (std::is_same_v<T, std::string>) return "a str";
    if constexpr (std::is_same_v<T, std::vector<int64_t>>) return "a list of ints of 64 bits";
    if constexpr (std::is_same_v<T, std::vector<double>>) return "a list of floats";
    if constexpr (std::is_same_v<T, Workspace*>) return "a logitless.Workspace";
    return nullptr;
  }
  [[noreturn]] void refuse(const char* key, nb::handle value, const char* wanted) const;
  [[noreturn]] void refuse_int(const char* key, nb::handle value, const std::string& rule) const;
  [[noreturn]] static void refuse_name(const char* key, const std::string& value, const std::string& known);

  std::vector<Given> given_;  // few: a call asks for more names than it is given
  const char* of_;
};

template <class T>
inline constexpr bool kIsVector = false;
template <class T>
inline constexpr bool kIsVector<std::vector<T>> = true;

template <class T>
T Keywords::cast(const char* key, nb::handle value) const {
  if constexpr (Named<T>) {
    const auto name = cast<std::string>(key, value);
    if (const std::optional<T> found = named<T>(name)) return *found;
    std::string known;
    for (const char* one : kNamesOf<T>) known += std::string(known.empty() ? "" : ", ") + one;
    refuse_name(key, name, known);
  } else if constexpr (kIsVector<T>) {
    using Entry = typename T::value_type;
    T out;
    if constexpr (Named<Entry>) {
      if (nb::isinstance<nb::str>(value)) return {cast<Entry>(key, value)};
      if (!nb::isinstance<nb::iterable>(value)) refuse(key, value, "a name, or a list of names");
      for (const nb::handle entry : value) out.push_back(cast<Entry>(key, entry));
    } else {
      if (Entry one{}; nb::try_cast(value, one)) return {one};
      if (!nb::try_cast(value, out)) refuse(key, value, type_name<T>());
    }
    return out;
  } else {
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
}

/// Takes arrays: what is left out, or None, is an empty one.
inline void take(Keywords& keywords, Arrays& arrays, const char* key, ConstTensor& out, bool has_ids = false) {
  const nb::handle value = keywords.find(key);
  if (!value) return;
  out = has_ids ? arrays.targets(value, key) : arrays.tensor(value, key, kVector);
  if (out.count() == 0) arrays.mark_empty(key);
}
template <class T>
void take(Keywords& keywords, Arrays& arrays, const char* key, std::span<const T>& out) {
  const nb::handle value = keywords.find(key);
  if (!value) return;
  out = arrays.span<T>(value, key);
  if (out.empty()) arrays.mark_empty(key);
}
/// Takes sets of token ids, [E] with offsets or [N, K] with or without counts: ids, id_offsets and id_counts for the
/// key "sets", and <key>_ids, <key>_offsets and <key>_counts for another one.
void take(Keywords& keywords, Arrays& arrays, const char* key, IdSets& out);
/// Takes ids and weights, or probabilities; and mask.
void take(Keywords& keywords, Arrays& arrays, const char* key, SoftTargets& out);
/// Takes ids, teacher_logps and teacher_outside_logps.
void take(Keywords& keywords, Arrays& arrays, const char* key, SetTeacher& out);
/// Takes, for the key "reference", ref_hidden and a head whose names begin with ref_; else teacher_hidden,
/// teacher_weight and what else belongs to that head, or teacher_logits.
void take(Keywords& keywords, Arrays& arrays, const char* key, Logits& out);
/// Takes anything else.
template <class T>
void take(Keywords& keywords, Arrays&, const char* key, T& out) {
  keywords.take(key, out);
}

/// Visits the tensors of a task, as the library's function of this name visits options.
template <class Task, class Visit, class... S>
void visit_flat(TensorsOf<Task> list, const Visit& visit, S&&... s) {
  visit_fields(list, visit, s...);
}

/// Takes the fields of a list, those of its token options among the others.
template <class List, class Structure>
void take_fields(Keywords& keywords, Arrays& arrays, List list, Structure& out) {
  visit_flat(
      list,
      [&]<class T>(const Field& field, T& member) {
        if constexpr (std::is_same_v<T, ConstTensor>) {
          take(keywords, arrays, field.name, member, field.role.takes(DType::kInt64));
        } else {
          take(keywords, arrays, field.name, member);
        }
      },
      out);
}

/// Takes the fields of a context, and its communicators.
ContextOptions take_context_options(Keywords& keywords);

/// Returns a dict of a structure's fields.
template <class Structure>
nb::dict dict_of(const Structure& from) {
  nb::dict out;
  visit_fields(
      FieldsOf<Structure>(), [&](const Field& field, const auto& value) { out[field.name] = value; }, from);
  return out;
}

/// Takes weight, bias, softcap, packing, scales, vocab_ids, lora_a, lora_b, lora_scale and lora_states, under
/// names that begin with `prefix`.
LmHead take_head(Keywords& keywords, Arrays& arrays, const std::string& prefix);

/// Takes how gradients are made: backward, noise, theta, tolerance and seed.
BackwardOptions take_backward(Keywords& keywords);

/// What a task is of, and where its gradients go.
struct CallTensors {
  Logits logits;
  Gradients gradients;
};

/// Takes hidden, offsets and what take_head() takes, or logits; and what take_backward() takes, so that a forward can
/// be given the arguments of its backward. With `outputs` it also takes d_hidden, d_weight, d_bias, d_lora_a, d_lora_b,
/// d_lora_states, weight_sink and accumulate, or d_logits.
CallTensors take_tensors(Keywords& keywords, Arrays& arrays, bool outputs);

}  // namespace logitless::python

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Reads Python's keyword arguments into the structures of the C++ API.
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

/// Reads keyword arguments by name. check_all_known() throws a TypeError for an argument that was never read.
class Keywords {
 public:
  /// `of` is the name of the function, for messages.
  Keywords(const nb::dict& given, const char* of);

  /// Returns the argument, or an invalid handle if it is missing or None.
  nb::handle find(const char* key);

  /// Sets `out` if the argument is given. An enumerator is given by its name, a vector by a list or a single
  /// entry.
  template <class T>
  void take(const char* key, T& out) {
    if (const nb::handle value = find(key)) out = cast<T>(key, value);
  }
  /// The same for an optional: None resets it, and a missing argument leaves it unchanged.
  template <class T>
  void take(const char* key, std::optional<T>& out) {
    const Given* given = ask(key);
    if (!given) return;
    out = given->value.is_none() ? std::nullopt : std::optional<T>(cast<T>(key, given->value));
  }

  /// Throws a TypeError for an argument that was never read.
  void check_all_known() const;

 private:
  struct Given {
    nb::object name;
    std::string_view text;  // of name
    nb::object value;
    bool known = false;  // it was read
  };
  // Returns the argument, None included, and marks it as known.
  const Given* ask(const char* key);
  template <class T>
  T cast(const char* key, nb::handle value) const;
  // Returns Python's name of the type, for messages.
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

  std::vector<Given> given_;  // few, so searched linearly: a call asks for more names than are given
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
      if (is_int) refuse_int(key, value, "it is too large for a float");
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

/// The overloads of take() read one field each. A missing array, or None, stays not given.
inline void take(Keywords& keywords, Arrays& arrays, const char* key, ConstTensor& out, const Role& role = {}) {
  const nb::handle value = keywords.find(key);
  if (!value) return;
  const bool batched = std::string_view(role.shape).find("[B, T]") != std::string_view::npos;
  out = role.takes(DType::kInt64) ? arrays.targets(value, key) : arrays.tensor(value, key, batched ? kTokens : kVector);
  if (out.count() == 0) arrays.mark_empty(key);
}
template <class T>
void take(Keywords& keywords, Arrays& arrays, const char* key, std::span<const T>& out) {
  const nb::handle value = keywords.find(key);
  if (!value) return;
  out = arrays.span<T>(value, key);
  if (out.empty()) arrays.mark_empty(key);
}
/// Sets of token ids, [E] with offsets or [N, K] with or without counts. The arguments are ids, id_offsets
/// and id_counts for the key "sets", and <key>_ids, <key>_offsets and <key>_counts for other keys.
void take(Keywords& keywords, Arrays& arrays, const char* key, IdSets& out);
/// ids and weights, or probabilities; and mask.
void take(Keywords& keywords, Arrays& arrays, const char* key, SoftTargets& out);
/// ids, teacher_logps and teacher_outside_logps.
void take(Keywords& keywords, Arrays& arrays, const char* key, SetTeacher& out);
/// For the key "reference": ref_hidden and the arguments of a head with prefix ref_. Otherwise
/// teacher_logits, or teacher_hidden and the arguments of a head with prefix teacher_.
void take(Keywords& keywords, Arrays& arrays, const char* key, Logits& out);
/// Any other field.
template <class T>
void take(Keywords& keywords, Arrays&, const char* key, T& out) {
  keywords.take(key, out);
}

/// Visits the tensors of a task; the library's visit_flat() visits options.
template <class Task, class Visit, class... S>
void visit_flat(TensorsOf<Task> list, const Visit& visit, S&&... s) {
  visit_fields(list, visit, s...);
}

/// Takes all fields of a list, including the nested token options.
template <class List, class Structure>
void take_fields(Keywords& keywords, Arrays& arrays, List list, Structure& out) {
  visit_flat(
      list,
      [&]<class T>(const Field& field, T& member) {
        if constexpr (std::is_same_v<T, ConstTensor>) {
          take(keywords, arrays, field.name, member, field.role);
        } else {
          take(keywords, arrays, field.name, member);
        }
      },
      out);
}

/// Takes the options of a context, including its communicators.
ContextOptions take_context_options(Keywords& keywords);

/// Returns a dict of a structure's fields.
template <class Structure>
nb::dict dict_of(const Structure& from) {
  nb::dict out;
  visit_fields(
      FieldsOf<Structure>(), [&](const Field& field, const auto& value) { out[field.name] = value; }, from);
  return out;
}

/// Takes weight, bias, softcap, packing, scales, vocab_ids, lora_a, lora_b, lora_scale and lora_states, each
/// with `prefix`.
LmHead take_head(Keywords& keywords, Arrays& arrays, const std::string& prefix);

/// Takes backward, noise, theta, tolerance and seed.
BackwardOptions take_backward(Keywords& keywords);

/// The logits of a task, and the outputs for its gradients.
struct CallTensors {
  Logits logits;
  Gradients gradients;
};

/// Takes hidden, offsets and the arguments of take_head(), or logits. Also calls take_backward(), so that a
/// forward half accepts the arguments of its backward half. With `outputs` it takes d_hidden, d_weight,
/// d_bias, d_lora_a, d_lora_b, d_lora_states, weight_sink and accumulate, or d_logits.
CallTensors take_tensors(Keywords& keywords, Arrays& arrays, bool outputs);

}  // namespace logitless::python

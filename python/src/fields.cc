// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Lists of fields as Python dicts, for the package's signatures and for tests.
#include <concepts>

#include "core/field_text.h"
#include "core/tensors.h"
#include "tasks.h"

namespace logitless::python {
namespace {

// Describes a field by its type and default.
nb::dict described(const char* type, nb::object by_default) {
  nb::dict out;
  out["type"] = type;
  out["default"] = by_default;
  return out;
}
nb::dict describe(bool value) { return described("bool", nb::cast(value)); }
nb::dict describe(double value) { return described("float", nb::cast(value)); }
template <std::integral T>
nb::dict describe(T value) {
  return described("int", nb::cast(value));
}
nb::dict describe(const std::string& value) { return described("str", nb::cast(value)); }
template <Named Enum>
nb::dict describe(Enum value) {
  nb::dict out = described("name", nb::cast(name_of(value)));
  out["choices"] = nb::cast(std::vector<std::string>(choices_of<Enum>().begin(), choices_of<Enum>().end()));
  return out;
}
template <class T>
nb::dict describe(const std::optional<T>& value) {
  nb::dict out = describe(value.value_or(T()));
  if (!value) out["default"] = nb::none();
  out["optional"] = true;
  return out;
}
template <class T>
nb::dict describe(const std::vector<T>& values) {
  nb::dict out = describe(T());
  nb::list defaults;
  for (const T& value : values) defaults.append(describe(value)["default"]);
  out["default"] = defaults;
  out["list"] = true;
  return out;
}
nb::dict describe(const Workspace*) { return described("Workspace", nb::none()); }

// The prefix of the arguments that a structure is split into; null for a type that is a single argument.
template <class T>
constexpr const char* kPrefixOf = nullptr;
template <>
constexpr const char* kPrefixOf<IdSets> = "id_";  // of the field "sets"; another field's prefix is its name
template <>
constexpr const char* kPrefixOf<SoftTargets> = "";
template <>
constexpr const char* kPrefixOf<SetTeacher> = "teacher_";

// Describes an array by its kind of elements. _signatures.py defines the kinds.
nb::dict described_array(const Role& role) {
  const char* kind = role.takes(DType::kInt64)      ? "ids array"
                     : role.takes(DType::kBFloat16) ? "numbers array"
                     : role.takes(DType::kFloat32)  ? "float32 array"
                     : role.takes(DType::kFloat64)  ? "float64 array"
                                                    : "flags array";
  nb::dict out = described(kind, nb::none());
  out["shape"] = role.shape;
  return out;
}
template <class T>
nb::dict described_member(const Field& field, const T& member) {
  if constexpr (requires { describe(member); }) {
    return describe(member);
  } else {
    return described_array(field.role);
  }
}

// Adds the arguments of a field, under the names that take() reads.
template <class T>
void add_arguments(nb::dict& out, const Field& field, const T& member, const std::string& prefix = "") {
  const std::string_view name = field.name;
  if constexpr (kPrefixOf<T> != nullptr) {
    const bool own = !std::is_same_v<T, IdSets> || name == "sets";
    const std::string begin = own ? kPrefixOf<T> : field.name + std::string("_");
    const auto add = [&](const Field& part, const auto& of_part) {
      add_arguments(out, part.or_meaning(field.meaning), of_part, begin);
    };
    visit_fields(FieldsOf<T>(), add, member);
  } else if constexpr (std::is_same_v<T, Logits>) {
    return;  // _signatures.py adds the arguments of models
  } else {
    nb::dict one = described_member(field, member);
    one["range"] = field.range.text;
    one["meaning"] = field.meaning;
    const std::string key = name == "rows" ? "probabilities" : prefix + field.name;
    out[key == "id_ids" ? "ids" : key.c_str()] = one;
  }
}

}  // namespace

nb::dict fields_of(const std::string& name) {
  nb::dict out;
  const auto add = [&](const Field& field, const auto& member) { add_arguments(out, field, member); };
  with_list(name, [&](auto list, auto& structure) { visit_flat(list, add, structure); });
  return out;
}

nb::dict texts_of(const std::string& name, nb::dict given) {
  nb::dict out;
  const auto say = [&](const Field& field, const auto& value) {
    if constexpr (requires { text_of(value); }) out[field.name] = text_of(value);
  };
  with_list(name, [&](auto list, auto& structure) {
    Arrays arrays;
    Keywords keywords(given, name.c_str());
    take_fields(keywords, arrays, list, structure);
    visit_flat(list, say, structure);
    keywords.check_all_known();
  });
  return out;
}

}  // namespace logitless::python

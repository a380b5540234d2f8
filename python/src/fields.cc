// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The lists of fields as dicts, for the package's signatures and for tests.
#include <concepts>

#include "core/field_text.h"
#include "tasks.h"

namespace logitless::python {
namespace {

// Describes a field: the type of its values, and what it is by default.
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
  out["choices"] = nb::cast(std::vector<std::string>(kNamesOf<Enum>.begin(), kNamesOf<Enum>.end()));
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
// Arrays, and what a call refers to.
template <class T>
nb::dict describe(const std::span<const T>&) {
  return described(std::is_same_v<T, float>    ? "float32 array"
                   : std::is_same_v<T, double> ? "float64 array"
                                               : "array",
                   nb::none());
}
nb::dict describe(const ConstVector&) { return described("array", nb::none()); }
nb::dict describe(const Targets&) { return described("array", nb::none()); }
nb::dict describe(const IdSets&) { return described("sets", nb::none()); }
nb::dict describe(const Reference&) { return described("reference", nb::none()); }
nb::dict describe(const Workspace*) { return described("Workspace", nb::none()); }

}  // namespace

nb::dict fields_of(const std::string& name) {
  nb::dict out;
  const auto add = [&](const Field& field, const auto& member) {
    nb::dict one = describe(member);
    one["range"] = field.range.text;
    out[field.name] = one;
  };
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

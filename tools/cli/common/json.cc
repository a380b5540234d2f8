// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "cli/common/json.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace logitless::cli {

/// To and from the library's values.
struct JsonLibrary {
  using Value = nlohmann::ordered_json;

  static Value from(const Json& json) {
    const auto convert = [](const auto& value) -> Value {
      using T = std::decay_t<decltype(value)>;
      if constexpr (std::is_same_v<T, std::monostate>) {
        return nullptr;
      } else if constexpr (std::is_same_v<T, Json::Array>) {
        Value array = Value::array();
        for (const Json& item : value) array.push_back(from(item));
        return array;
      } else if constexpr (std::is_same_v<T, Json::Object>) {
        Value object = Value::object();
        for (const Json::Member& member : value) object[member.name] = from(member.value);
        return object;
      } else {
        return value;
      }
    };
    return std::visit(convert, json.value_);
  }

  static Json to(const Value& value) {
    if (value.is_boolean()) return value.get<bool>();
    if (value.is_number_integer()) return value.get<int64_t>();
    if (value.is_number()) return value.get<double>();
    if (value.is_string()) return value.get<std::string>();
    if (value.is_array()) {
      Json array = Json::Array();
      for (const Value& item : value) array.push_back(to(item));
      return array;
    }
    if (!value.is_object()) return {};
    Json object = Json::object();
    for (const auto& [name, member] : value.items()) object[name] = to(member);
    return object;
  }

  static std::string text(const Json& json, int indent) {
    return from(json).dump(indent, ' ', false, Value::error_handler_t::replace);
  }

  template <class T>
  static const T& get(const Json& json) {
    if (const T* value = std::get_if<T>(&json.value_)) return *value;
    throw std::runtime_error("JSON of another type was expected: " + json.line());
  }
};

namespace {

const Json* find(const Json::Object& members, const std::string& name) {
  const auto it = std::ranges::find(members, name, &Json::Member::name);
  return it == members.end() ? nullptr : &it->value;
}

}  // namespace

Json Json::parse(const std::string& text) { return JsonLibrary::to(nlohmann::ordered_json::parse(text)); }

std::string Json::line() const { return JsonLibrary::text(*this, -1); }

std::string Json::page() const { return JsonLibrary::text(*this, 2) + "\n"; }

void Json::push_back(Json item) {
  if (std::holds_alternative<std::monostate>(value_)) value_ = Array();
  std::get<Array>(value_).push_back(std::move(item));
}

Json& Json::operator[](const std::string& name) {
  if (std::holds_alternative<std::monostate>(value_)) value_ = Object();
  auto& members = std::get<Object>(value_);
  if (const Json* member = find(members, name)) return const_cast<Json&>(*member);
  members.push_back({name, {}});
  return members.back().value;
}

void Json::update(const Json& other) {
  for (const Member& member : other.members()) (*this)[member.name] = member.value;
}

const Json& Json::operator[](const std::string& name) const {
  if (const Json* member = find(members(), name)) return *member;
  throw std::runtime_error("JSON without " + name + ": " + line());
}

bool Json::has(const std::string& name) const { return find(members(), name) != nullptr; }
const Json::Array& Json::items() const { return JsonLibrary::get<Array>(*this); }
const Json::Object& Json::members() const { return JsonLibrary::get<Object>(*this); }
const std::string& Json::text() const { return JsonLibrary::get<std::string>(*this); }
int64_t Json::integer() const { return JsonLibrary::get<int64_t>(*this); }
bool Json::flag() const { return JsonLibrary::get<bool>(*this); }

double Json::number() const {
  if (std::holds_alternative<std::monostate>(value_)) return std::numeric_limits<double>::quiet_NaN();
  if (const auto* whole = std::get_if<int64_t>(&value_)) return static_cast<double>(*whole);
  return JsonLibrary::get<double>(*this);
}

std::vector<std::string> Json::texts() const {
  std::vector<std::string> all;
  for (const Json& item : items()) all.push_back(item.text());
  return all;
}

}  // namespace logitless::cli

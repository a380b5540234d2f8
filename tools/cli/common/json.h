// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace logitless::cli {

/// A JSON value whose members keep their order. The JSON library, which takes seconds to compile, is seen by json.cc
/// alone.
class Json {
 public:
  struct Member;
  using Array = std::vector<Json>;
  using Object = std::vector<Member>;

  Json();  ///< null
  template <std::integral T>
  Json(T value);
  Json(double value);  ///< is written as null where it is not finite, which JSON has not
  Json(const char* value);
  Json(std::string value);
  Json(Array items);
  template <class T>
  Json(const std::vector<T>& items);
  Json(std::initializer_list<Member> members);
  static Json object();

  /// Throws std::runtime_error where the text is no JSON.
  static Json parse(const std::string& text);
  /// Without line breaks. Texts from the machine or a config need not be UTF-8: a replaced letter is better than no
  /// report.
  std::string line() const;
  /// Indented, with a newline at the end.
  std::string page() const;

  /// Adds to an array, or turns null into one.
  void push_back(Json item);
  /// The member of this name; a new null one where there is none.
  Json& operator[](const std::string& name);
  /// Adds members, or replaces those of the same names.
  void update(const Json& other);

  /// What a value is read by. A mistake throws std::runtime_error: it was written by this same program.
  const Json& operator[](const std::string& name) const;
  bool has(const std::string& name) const;
  const Array& items() const;
  const Object& members() const;
  const std::string& text() const;
  std::vector<std::string> texts() const;
  double number() const;  ///< NaN of null
  int64_t integer() const;
  bool flag() const;

 private:
  friend struct JsonLibrary;
  std::variant<std::monostate, bool, int64_t, double, std::string, Array, Object> value_;
};

struct Json::Member {
  std::string name;
  Json value;
};

inline Json::Json() = default;
template <std::integral T>
Json::Json(T value) {
  if constexpr (std::same_as<T, bool>) {
    value_ = value;
  } else {
    value_ = static_cast<int64_t>(value);
  }
}
template <class T>
Json::Json(const std::vector<T>& items) : value_(Array(items.begin(), items.end())) {}
inline Json::Json(double value) : value_(value) {}
inline Json::Json(const char* value) : value_(std::string(value)) {}
inline Json::Json(std::string value) : value_(std::move(value)) {}
inline Json::Json(Array items) : value_(std::move(items)) {}
inline Json::Json(std::initializer_list<Member> members) : value_(Object(members)) {}
inline Json Json::object() { return Json(std::initializer_list<Member>{}); }

}  // namespace logitless::cli

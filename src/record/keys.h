// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Members of structures, set by name. A structure's list (fields.h) defines names and ranges; types.h
// implements each type of member.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/field.h"
#include "core/tensors.h"

namespace logitless::record {

/// The value of a key or a result.
using Value = std::variant<int64_t, double, std::string_view, Tensor>;

struct Key;

/// Operations on a member of one type.
struct Type {
  std::string (*kind)(const Key& key);                 ///< e.g. "an integer of at least 1"
  void (*assign)(const Key& key, const Value& value);  ///< throws InvalidInput for a value that the key does not accept
  void (*reset)(const Key& key);                       ///< sets the member to its default
  std::string (*default_text)(const Key& key);         ///< "" for a tensor
};

/// A member that can be set by name.
struct Key {
  std::string name;
  Interval range;  ///< of a number
  Role role;       ///< of a tensor
  const char* meaning;
  void* member;
  const void* by_default;  ///< a member of the same type with the default value
  const Type* type;
  bool is_set = false;
};

/// Returns "; did you mean a or b?" with the names that are close to `name`, or "".
std::string near_names(std::string_view name, const std::vector<std::string>& names);
/// Returns " — " and the sentence, or "" if it is empty.
std::string dashed(const char* meaning);

/// The keys of one owner. The structures must outlive the object.
class Keys {
 public:
  explicit Keys(std::string owner) : owner_(std::move(owner)) {}

  /// Adds a member of a type supported by types.h.
  template <class T>
  void add(std::string name, T& member, const T& by_default, const Field& field = Field(""));
  /// Adds all members of a structure with a list, nested structures included. `meaning` describes
  /// members without a sentence of their own.
  template <class Structure>
  void add_all(Structure& structure, const Structure& by_default, const std::string& prefix = "",
               const char* meaning = "");

  /// Throws InvalidInput, and changes nothing, for an unknown key or a value that it does not accept.
  void set(std::string_view name, const Value& value);
  void unset(std::string_view name);
  bool has(std::string_view name) const;
  /// Returns a flag that is true while the key is set. The reference is valid until another key is added.
  const bool& is_set(std::string_view name) { return find(name).is_set; }
  /// Returns whether the key takes a per-token tensor.
  bool is_of_tokens(std::string_view name) {
    return std::string_view(find(name).role.shape).find("[N]") != std::string_view::npos;
  }
  const std::string& owner() const { return owner_; }
  /// Returns one line per key. Keys with a non-empty need(name) come first, with that text.
  std::string describe(const std::function<std::string(std::string_view)>& need) const;

 private:
  Key& find(std::string_view name);

  std::string owner_;
  std::vector<Key> keys_;
};

}  // namespace logitless::record

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Members of structures, set by name. A structure's list (fields.h) gives the names and ranges; types.h has
// the code for each type of member.
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

using core::Role;

/// The value of a key or a result.
using Value = std::variant<int64_t, double, std::string_view, Tensor>;

struct Key;

/// Operations on a member of one type.
struct Type {
  std::string (*kind)(const Key& key);                 ///< e.g. "an integer of at least 1"
  void (*assign)(const Key& key, const Value& value);  ///< throws InvalidInput for a wrong value
  void (*reset)(const Key& key);                       ///< gives the member its default
  std::string (*default_text)(const Key& key);         ///< "" of a tensor
};

/// A member that can be set by name.
struct Key {
  std::string name;
  Interval range;  ///< of a number
  Role role;       ///< of a tensor
  const char* meaning;
  void* member;
  const void* by_default;  ///< a member of this type that holds the default
  const Type* type;
  bool is_set = false;
};

/// Returns "; did you mean a or b?" with the names that are close to `name`, or "".
std::string near_names(std::string_view name, const std::vector<std::string>& names);
/// Returns " — " and the sentence, or "" for none.
std::string dashed(const char* meaning);

/// The keys of one owner, whose structures must outlive them.
class Keys {
 public:
  explicit Keys(std::string owner) : owner_(std::move(owner)) {}

  /// Adds a member of a type of types.h. `role` is that of its type by default, with the field's shape.
  template <class T>
  void add(std::string name, T& member, const T& by_default, const Field& field = Field(""), const Role& role = {});
  /// Adds all members of a structure that has a list, and the members of structures in it. `meaning` is for a
  /// member without a sentence.
  template <class Structure>
  void add_all(Structure& structure, const Structure& by_default, const std::string& prefix = "",
               const char* meaning = "");

  /// Throws InvalidInput, and changes nothing, if there is no such key or it does not accept the value.
  void set(std::string_view name, const Value& value);
  void unset(std::string_view name);
  bool has(std::string_view name) const;
  /// Returns the flag that tells whether the key is set. It is valid until another key is added.
  const bool& is_set(std::string_view name) { return find(name).is_set; }
  /// Tells whether the key takes a tensor with an entry for each token.
  bool is_of_tokens(std::string_view name) {
    return std::string_view(find(name).role.shape).find("[N]") != std::string_view::npos;
  }
  const std::string& owner() const { return owner_; }
  /// Returns a line for each key. Keys for which need(name) is not empty come first, with that text.
  std::string describe(const std::function<std::string(std::string_view)>& need) const;

 private:
  Key& find(std::string_view name);

  std::string owner_;
  std::vector<Key> keys_;
};

}  // namespace logitless::record

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// A rank states what it was given, in the vocabulary entries of its user. Ranks compare digests of their
// statements in every exchange, and read each other's text where they differ.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "core/store.h"
#include "logitless/field_text.h"

namespace logitless::ranks {

/// Hashes `bytes` bytes, which need no alignment.
uint64_t digest_of(const void* data, size_t bytes, uint64_t seed = 0);

/// Values with an entry a token or a vocabulary entry. They are compared by a digest; where it
/// differs, ranks look for the first entry that does. What its functions read lives as long as the statement.
struct Entries {
  int64_t size = 0;
  std::function<uint64_t(int64_t)> bits;        ///< of an entry: they are equal where entries are
  std::function<std::string(int64_t)> name_of;  ///< of an entry: "class_weights[3]"
  std::function<std::string(int64_t)> text;     ///< of an entry; null where its value says nothing to a user

  uint64_t digest(int64_t begin, int64_t end) const;
};

/// A Statement is a list of names and values, in the same order on all ranks.
class Statement {
 public:
  /// Adds one. Messages join the two by `verb`.
  void say(std::string name, std::string value, std::string_view verb = " = ");
  template <class T>
  requires requires(const T& value) { text_of(value); }
  void say(std::string name, const T& value) { say(std::move(name), text_of(value)); }
  /// Adds entries, by their number and their digest.
  void say(std::string name, Entries entries);

  /// Returns a digest of all that was said.
  uint64_t digest() const { return digest_; }
  /// Returns a line of text for each name and value.
  std::string lines() const;
  /// Returns the entries of line `line`, or null where it has none.
  const Entries* entries(size_t line) const;

  /// Forgets what is said while it lives.
  class Scope {
   public:
    explicit Scope(Statement& statement)
        : statement_(statement), items_(statement.items_.size()), digest_(statement.digest_) {}
    ~Scope() {
      while (statement_.items_.size() > items_) statement_.items_.pop_back();
      statement_.digest_ = digest_;
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Statement& statement_;
    size_t items_;
    uint64_t digest_;
  };

 private:
  struct Item {
    std::string name;
    std::string_view verb;
    std::string value;
    uint64_t digest = 0;  // of the entries
    Entries entries = {};
  };
  void add(Item item);

  core::Array<Item> items_;
  uint64_t digest_ = 0;
};

/// Says where the lines of two statements part first.
struct Parting {
  size_t line = 0;
  bool in_entries = false;  // what a user can read of the line is the same
};
Parting first_parting(std::string_view mine, std::string_view theirs);

/// Returns a line of a statement, without its end; what is shown of it; and the number of its entries.
std::string_view line_of(std::string_view lines, size_t line);
std::string text_of_line(std::string_view line);
int64_t entry_count(std::string_view line);

/// Says how two lines differ: "reduction = sum here, where rank 1 has mean". Ranks that were given different
/// options have lines of different names: "lora.states is float32 here, and lora.a is float32 on rank 1".
std::string difference(std::string_view mine, std::string_view theirs, int their_rank);

}  // namespace logitless::ranks

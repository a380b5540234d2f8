// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// How partials travel between ranks.
#pragma once

#include <cstddef>
#include <cstring>

namespace logitless::fold {

// These write and read numbers one after the other, in the type of their second argument.
class Writer {
 public:
  explicit Writer(std::byte* to) : to_(to) {}
  template <class Value, class As>
  void operator()(const Value& value, As as) {
    as = static_cast<As>(value);
    std::memcpy(to_, &as, sizeof as);
    to_ += sizeof as;
  }
  std::byte* end() const { return to_; }

 private:
  std::byte* to_;
};
class Reader {
 public:
  explicit Reader(const std::byte* from) : from_(from) {}
  template <class Value, class As>
  void operator()(Value& value, As as) {
    std::memcpy(&as, from_, sizeof as);
    value = as;
    from_ += sizeof as;
  }
  const std::byte* end() const { return from_; }

 private:
  const std::byte* from_;
};

}  // namespace logitless::fold

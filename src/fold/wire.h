// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The format in which partials are sent between ranks.
#pragma once

#include <cstddef>
#include <cstring>

namespace logitless::fold {

/// Write and read numbers consecutively, in the type of their second argument.
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

/// Visits a logit in the type of the sums.
template <class Visit>
void visit_logit(bool in_double, double& value, Visit& visit) {
  if (in_double) return visit(value, double());
  visit(value, float());
}

}  // namespace logitless::fold

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Calls of the C API whose keys are set from C++ structures: tasks, views and gradients.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "logitless/c_api.h"
#include "record/types.h"
#include "support/views.h"

namespace logitless::testing {

inline logitless_tensor tensor(const void* data, int32_t dtype, std::vector<int64_t> sizes,
                               std::vector<int64_t> strides = {}) {
  logitless_tensor out = {const_cast<void*>(data), dtype, static_cast<int32_t>(sizes.size()), {}, {}};
  std::copy(sizes.begin(), sizes.end(), out.sizes);
  std::copy(strides.begin(), strides.end(), out.strides);
  return out;
}
inline logitless_tensor c_tensor(const ConstTensor& t) {
  logitless_tensor out = {const_cast<void*>(t.data), static_cast<int32_t>(t.dtype), t.axes, {}, {}};
  std::copy(t.sizes.begin(), t.sizes.end(), out.sizes);
  std::copy(t.strides.begin(), t.strides.end(), out.strides);
  return out;
}
template <class T>
logitless_tensor span_tensor(std::span<const T> values) {
  const int32_t dtype = std::is_same_v<T, float>     ? LOGITLESS_FLOAT32
                        : std::is_same_v<T, double>  ? LOGITLESS_FLOAT64
                        : std::is_same_v<T, int64_t> ? LOGITLESS_INT64
                                                     : LOGITLESS_UINT8;
  return tensor(values.data(), dtype, {static_cast<int64_t>(values.size())});
}
class CCall {
 public:
  /// `setters_may_fail`: setters may return an error; the next verb must then fail too.
  explicit CCall(const std::string& task, const logitless_context* context = nullptr, bool setters_may_fail = false)
      : call_(logitless_call_new(context, task.c_str())), setters_may_fail_(setters_may_fail) {
    EXPECT_NE(call_, nullptr) << logitless_last_error();
  }
  ~CCall() { logitless_call_free(call_); }
  CCall(const CCall&) = delete;
  CCall& operator=(const CCall&) = delete;
  operator logitless_call*() const { return call_; }

  // Set a key from a C++ member. An empty view sets nothing.

  void put(const std::string& name, const logitless_tensor& value) {
    expect_ok(logitless_set_tensor(call_, name.c_str(), &value));
  }
  void put(const std::string& name, bool value) { expect_ok(logitless_set_integer(call_, name.c_str(), value)); }
  void put(const std::string& name, int64_t value) { expect_ok(logitless_set_integer(call_, name.c_str(), value)); }
  void put(const std::string& name, double value) { expect_ok(logitless_set_number(call_, name.c_str(), value)); }
  void put_text(const std::string& name, const std::string& value) {
    expect_ok(logitless_set_text(call_, name.c_str(), value.c_str()));
  }
  template <Named Enum>
  void put(const std::string& name, Enum value) {
    put_text(name, name_of(value));
  }
  template <class T>
  void put(const std::string& name, const std::optional<T>& value) {
    value ? put(name, *value) : put_text(name, "none");
  }
  template <class T>
  void put(const std::string& name, const std::vector<T>& list) {
    put_text(name, text_of(list));
  }
  template <class T>
  void put(const std::string& name, const std::span<const T>& values) {
    if (values.data()) put(name, span_tensor(values));
  }
  void put(const std::string& name, const ConstTensor& t) {
    if (t.given()) put(name, c_tensor(t));
  }
  void put(const std::string&, const Logits&) {}  // set by give()

  /// Sets the fields that differ from their defaults.
  template <class Structure>
  void put_fields(const std::string& prefix, const Structure& from) {
    const auto put_field = [&](const Field& field, const auto& value, const auto& by_default) {
      if constexpr (requires { text_of(value); }) {
        if (text_of(value) == text_of(by_default)) return;
      }
      put(prefix + field.name, value);
    };
    visit_fields(FieldsOf<Structure>(), put_field, from, Structure());
  }
  /// Sets all members of a task, or of a nested structure.
  template <class Structure>
  void give(const Structure& structure, const std::string& prefix = "") {
    const auto put_member = [&]<class T>(const Field& field, const T& member) {
      const std::string name = prefix + field.name;
      if constexpr (record::kIsFlat<T>) {
        give(member, prefix);
      } else if constexpr (requires {
                             visit_fields(
                                 FieldsOf<T>(), [](const Field&, auto&) {}, member);
                           }) {
        give(member, name + ".");
      } else {
        put(name, member);
      }
    };
    record::visit_members<Structure>(put_member, structure);
    if constexpr (requires { structure.reference; }) give(structure.reference, "reference.");
    if constexpr (requires { structure.teacher.finished; }) give(structure.teacher, "teacher.");
  }
  void give(const Logits& from, const std::string& prefix = "") { put_fields(prefix, from); }
  void give(const logitless::Gradients& to, const Logits& from) {
    if (from.is_given()) return put("d_logits", to.d_logits);
    put_fields("", to);
    const auto put_backward = [&](const Field& field, const auto& value) {
      put(std::string(field.name) == "mode" ? "backward_mode" : field.name, value);
    };
    visit_fields(FieldsOf<BackwardOptions>(), put_backward, to.backward);
  }

 private:
  void expect_ok(logitless_status status) const {
    if (setters_may_fail_) return;
    EXPECT_EQ(status, LOGITLESS_OK) << logitless_last_error();
  }

  logitless_call* call_;
  bool setters_may_fail_;
};

}  // namespace logitless::testing

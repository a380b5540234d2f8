// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Calls of the C API, filled from the structures of C++: tasks, views and gradients.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "c_api/call.h"
#include "logitless/c_api.h"
#include "record/record_of.h"

namespace logitless::testing {

inline logitless_tensor tensor(const void* data, int32_t dtype, std::vector<int64_t> sizes,
                               std::vector<int64_t> strides = {}) {
  logitless_tensor out = {const_cast<void*>(data), dtype, static_cast<int32_t>(sizes.size()), {}, {}};
  std::copy(sizes.begin(), sizes.end(), out.sizes);
  std::copy(strides.begin(), strides.end(), out.strides);
  return out;
}
template <class AnyMatrix>
logitless_tensor matrix_tensor(const AnyMatrix& m) {
  return tensor(m.data, static_cast<int32_t>(m.dtype), {m.rows, m.cols}, {m.stride, 1});
}
template <class AnyVector>
logitless_tensor vector_tensor(const AnyVector& v) {
  return tensor(v.data, static_cast<int32_t>(v.dtype), {v.size});
}
inline logitless_tensor transposed(logitless_tensor t) {
  std::swap(t.sizes[0], t.sizes[1]);
  std::swap(t.strides[0], t.strides[1]);
  return t;
}
template <class T>
logitless_tensor span_tensor(std::span<const T> values) {
  const int32_t dtype = std::is_same_v<T, float>     ? LOGITLESS_FLOAT32
                        : std::is_same_v<T, double>  ? LOGITLESS_FLOAT64
                        : std::is_same_v<T, int64_t> ? LOGITLESS_INT64
                                                     : LOGITLESS_UINT8;
  return tensor(values.data(), dtype, {static_cast<int64_t>(values.size())});
}
/// Of logits, hidden states and their gradients: [B, T, last].
inline logitless_tensor batched(const void* data, DType dtype, int64_t batch, int64_t time, int64_t last,
                                int64_t batch_stride, int64_t row_stride) {
  return tensor(data, static_cast<int32_t>(dtype), {batch, time, last}, {batch_stride, row_stride, 1});
}
inline logitless_tensor logits_tensor(const auto& l) {
  return batched(l.data, l.dtype, l.batch, l.time, l.vocab, l.batch_stride, l.row_stride);
}

class CCall {
 public:
  explicit CCall(const std::string& task, const logitless_context* context = nullptr)
      : call_(logitless_call_new(context, task.c_str())) {
    EXPECT_NE(call_, nullptr) << logitless_last_error();
  }
  ~CCall() { logitless_call_free(call_); }
  CCall(const CCall&) = delete;
  CCall& operator=(const CCall&) = delete;
  operator logitless_call*() const { return call_; }

  template <class Task>
  const Task& task() const {
    return static_cast<const record::RecordOf<Task>&>(*call_->record).task();
  }

  // These set a key from a member of C++. An empty view sets nothing.

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
  void put(const std::string& name, const ConstVector& vector) {
    if (vector.data) put(name, vector_tensor(vector));
  }
  void put(const std::string& name, const ConstMatrix& matrix) {
    if (matrix.data) put(name, matrix_tensor(matrix));
  }
  void put(const std::string& name, const Targets& t) {
    if (!t.data32 && !t.data64) return;
    const void* data = t.data32 ? static_cast<const void*>(t.data32) : t.data64;
    const int32_t dtype = t.data32 ? LOGITLESS_INT32 : LOGITLESS_INT64;
    const auto whole = t.time == 0 ? tensor(data, dtype, {t.size}, {t.stride})
                                   : tensor(data, dtype, {t.size / t.time, t.time}, {t.batch_stride, t.stride});
    put(name, whole);
  }
  void put(const std::string& name, const HiddenStates& h) {
    const ConstMatrix& s = h.states;
    if (!s.data) return;
    if (h.sequences == 1 && !h.batch_stride) {
      put(name, matrix_tensor(s));
    } else {
      const int64_t time = s.rows / h.sequences;
      put(name,
          batched(s.data, s.dtype, h.sequences, time, s.cols, h.batch_stride.value_or(time * s.stride), s.stride));
    }
    put(name.substr(0, name.size() - 6) + "offsets", h.offsets);
  }
  void put(const std::string& prefix, const LmHead& head) {
    const bool turned = head.layout == HeadLayout::kHiddenVocab;
    if (head.weight.data) {
      put(prefix + "weight", turned ? transposed(matrix_tensor(head.weight)) : matrix_tensor(head.weight));
    }
    if (head.packed.given()) {
      const PackedMatrix& p = head.packed;
      const PackedBlock block = block_of(p.packing);
      put(prefix + "weight", tensor(p.data, LOGITLESS_UINT8, {p.rows, p.cols / block.numbers * block.bytes}));
      put(prefix + "packing", p.packing);
      put(prefix + "group", p.group);
      const int64_t groups = p.group == 0 ? 1 : p.cols / p.group;
      if (p.scales) put(prefix + "scales", tensor(p.scales, LOGITLESS_FLOAT32, {p.rows, groups}));
    }
    put(prefix + "bias", head.bias);
    if (head.softcap != 0) put(prefix + "softcap", head.softcap);
    put(prefix + "ids", head.ids);
    put(prefix + "lora_a", head.lora.a);
    put(prefix + "lora_b", head.lora.b);
    put(prefix + "lora_states", head.lora.states);
    if (head.lora.scale != 1) put(prefix + "lora_scale", head.lora.scale);
  }
  void put(const std::string& prefix, const Gradients& g, HeadLayout layout) {
    if (g.d_hidden.data) {
      const int64_t step = g.d_hidden_batch_stride.value_or(0);
      const Matrix& m = g.d_hidden;
      if (step == 0) put(prefix + "d_hidden", matrix_tensor(m));
      if (step != 0)
        put(prefix + "d_hidden", batched(m.data, m.dtype, sequences, m.rows / sequences, m.cols, step, m.stride));
    }
    const auto d_weight = matrix_tensor(g.d_weight);
    if (g.d_weight.data) put(prefix + "d_weight", layout == HeadLayout::kHiddenVocab ? transposed(d_weight) : d_weight);
    if (g.d_bias.data) put(prefix + "d_bias", vector_tensor(g.d_bias));
    if (g.d_lora_a.data) put(prefix + "d_lora_a", matrix_tensor(g.d_lora_a));
    if (g.d_lora_b.data) put(prefix + "d_lora_b", matrix_tensor(g.d_lora_b));
    if (g.d_lora_states.data) put(prefix + "d_lora_states", matrix_tensor(g.d_lora_states));
    put(prefix + "d_hidden_mode", g.d_hidden_mode), put(prefix + "d_weight_mode", g.d_weight_mode);
    put(prefix + "d_bias_mode", g.d_bias_mode), put(prefix + "d_lora_mode", g.d_lora_mode);
    const auto put_backward = [&](const Field& field, const auto& value) {
      put(std::string(field.name) == "mode" ? "backward_mode" : field.name, value);
    };
    visit_fields(FieldsOf<BackwardOptions>(), put_backward, g.backward);
  }
  /// Sets all members of a task, or of a structure in it.
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
    if constexpr (requires { structure.reference; }) {
      if (structure.reference.hidden.states.data) {
        put("reference.hidden", structure.reference.hidden), put("reference.", structure.reference.head);
      }
    }
    if constexpr (requires { structure.teacher.logits; }) {
      put("teacher.hidden", structure.teacher.hidden), put("teacher.", structure.teacher.head);
      if (structure.teacher.has_logits()) put("teacher.logits", logits_tensor(structure.teacher.logits));
    }
  }
  void give(const Logits& from) {
    if (from.is_given) {
      put("logits", logits_tensor(from.finished));
    } else {
      put("hidden", from.hidden), put("", from.head);
    }
  }
  void give(const Gradients& to, const Logits& from) {
    sequences = from.hidden.sequences;
    if (!from.is_given) put("", to, from.head.layout);
    if (to.d_logits.data) put("d_logits", logits_tensor(to.d_logits));
  }

  int64_t sequences = 1;  ///< of d_hidden

 private:
  static void expect_ok(logitless_status status) { EXPECT_EQ(status, LOGITLESS_OK) << logitless_last_error(); }

  logitless_call* call_;
};

}  // namespace logitless::testing

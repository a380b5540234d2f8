// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// This turns what C hands over into what the C++ API takes.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "c_api/structs.h"
#include "logitless/logits.h"
#include "logitless/tensors.h"
#include "logitless/token_stats.h"

namespace logitless::c_api {

template <>
logitless_hidden_states defaults();
template <>
logitless_lm_head defaults();

/// Throws InvalidInput where the value is none of the enumeration's.
template <Named Enum>
Enum enumerator(int32_t value, const char* name) {
  constexpr auto count = static_cast<int32_t>(kNamesOf<Enum>.size());
  if (value < 0 || value >= count) core::fail(name, " = ", value, " is none of 0 to ", count - 1);
  return static_cast<Enum>(value);
}

DType dtype_of(int32_t dtype, const char* name);
/// Returns [data, data + size); throws InvalidInput where it is said to have entries, and is NULL, where it
/// does not stand where its elements may, and for more entries than any list of a call has.
template <class T>
std::span<const T> span_of(const T* data, size_t size, const char* name) {
  if (!data && size > 0) core::fail(name, " is NULL, but is said to have ", size, " entries");
  constexpr size_t kMost = std::numeric_limits<int32_t>::max();
  if (size > kMost) core::fail(name, " is said to have ", size, " entries, which is above ", kMost);
  check_place(data, name);
  return {data, data ? size : 0};
}

ConstVector vector_of(const logitless_const_vector& in, const char* name);
HiddenStates hidden_of(const logitless_hidden_states& in, const char* name);
LmHead head_of(const logitless_lm_head& in, const char* name);
Targets targets_of(const logitless_targets* in, const char* name);
IdSets sets_of(const logitless_id_sets* in, const char* name);
SoftTargets soft_targets_of(const logitless_soft_targets* in);
SetTeacher set_teacher_of(const logitless_set_teacher* in);
/// Without targets all rows take part.
Targets optional_targets(const logitless_targets* in);

/// What a loss is taken of, and where its gradients go.
class CallTensors {
 public:
  /// Throws InvalidInput where `source` is neither or both, and where the gradients are those of the other.
  CallTensors(const logitless_source* source, const logitless_gradients* gradients);

  /// Returns N, and the sequences of all its rows.
  int64_t tokens() const { return logits_ ? logits_->tokens() : hidden_.tokens(); }
  int64_t sequences() const;
  /// Returns how many elements the expected rows of the call have, which there are of products alone.
  int64_t expected_elements() const {
    if (logits_) return 0;
    int64_t width = hidden_.hidden_size();
    if (__builtin_add_overflow(width, head_.lora.rank(), &width)) {
      width = std::numeric_limits<int64_t>::max();
    }
    return logitless::detail::saturated_product(tokens(), width);
  }
  bool in_double() const { return hidden_.states.dtype == DType::kFloat64; }
  /// Calls use(outputs, source...), where the source is hidden states and a head, or finished logits.
  template <class Use>
  auto with(const Use& use) const {
    return logits_ ? use(d_logits_, *logits_) : use(gradients_, hidden_, head_);
  }

 private:
  HiddenStates hidden_;
  LmHead head_;
  std::optional<FinishedLogits> logits_;
  Gradients gradients_;
  LogitsGradient d_logits_;
};

/// Returns logits that are asked for by themselves.
FinishedLogits logits_of(const logitless_logits* in, const char* name = "logits");
/// Throws InvalidInput where gradients of hidden states or a head are wanted, of which there are none.
void check_of_logits_alone(const logitless_gradients& in);
/// Returns where the gradient of `logits` goes.
LogitsGradient d_logits_of(const logitless_gradients& in, const FinishedLogits& logits);

}  // namespace logitless::c_api

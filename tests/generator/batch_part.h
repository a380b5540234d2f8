// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The tokens of a call that belong to one of several data ranks.
#pragma once

#include <string_view>
#include <type_traits>
#include <vector>

#include "core/fields.h"
#include "generator/guarded_tensor.h"
#include "logitless/run.h"

namespace logitless::testing {

/// Some of the sequences of a call. Must outlive the views that it returns.
class BatchPart {
 public:
  BatchPart(const DrawnCall& call, const std::vector<int64_t>& offsets, int64_t first, int64_t count)
      : call_(call),
        first_(first),
        count_(count),
        first_row_(offsets[static_cast<size_t>(first)]),
        rows_(offsets[static_cast<size_t>(first + count)] - first_row_) {
    for (int64_t s = first; s <= first + count; ++s) offsets_.push_back(offsets[static_cast<size_t>(s)] - first_row_);
  }

  int64_t rows() const { return rows_; }
  /// Cuts rows of tokens, [N, ...] or [B, T, ...]; axis 0 has sequences if `of_sequences`.
  template <class Void>
  BasicTensor<Void> cut(BasicTensor<Void> tensor, bool of_sequences) const {
    return of_sequences ? cut_axis(tensor, first_, count_) : cut_axis(tensor, first_row_, rows_);
  }
  template <class T>
  std::span<T> cut(std::span<T> entries, bool of_sequences = false) const {
    if (entries.empty()) return entries;
    return entries.subspan(static_cast<size_t>(of_sequences ? first_ : first_row_),
                           static_cast<size_t>(of_sequences ? count_ : rows_));
  }
  Logits cut(Logits logits) const {
    logits.hidden = cut(logits.hidden, logits.hidden.axes == 3);
    logits.finished = cut(logits.finished, logits.finished.axes == 3);
    logits.head.lora.states = cut(logits.head.lora.states, false);
    if (!logits.offsets.empty()) logits.offsets = offsets_;
    return logits;
  }
  logitless::Gradients cut(logitless::Gradients gradients) const {
    gradients.d_hidden = cut(gradients.d_hidden, gradients.d_hidden.axes == 3);
    gradients.d_logits = cut(gradients.d_logits, gradients.d_logits.axes == 3);
    gradients.d_lora_states = cut(gradients.d_lora_states, false);
    return gradients;
  }
  /// Cuts a task. Call it once per part.
  template <Task T>
  T cut_task(T task) {
    task.token.temperatures = cut(task.token.temperatures);
    visit_fields(
        TensorsOf<T>(), [&](const Field& field, auto& member) { cut_member(field, member); }, task);
    return task;
  }

 private:
  template <class M>
  void cut_member(const Field& field, M& member) {
    const std::string_view shape = field.role.shape;
    const bool either = shape == "[B] or [N]";
    const bool of_sequences = shape == "[B]" || (either && !call_.per_token);
    if constexpr (std::is_same_v<M, ConstTensor>) {
      member = cut(member, of_sequences || (member.axes == 2 && shape == "[N] or [B, T]"));
    } else if constexpr (std::is_same_v<M, std::span<const uint8_t>>) {
      member = cut(member, of_sequences);
    } else if constexpr (std::is_same_v<M, Logits>) {
      member = cut(member);
    } else if constexpr (std::is_same_v<M, IdSets>) {
      cut_sets(member, {});
    } else if constexpr (std::is_same_v<M, SoftTargets>) {
      if (member.sets.ids.given()) cut_sets(member.sets, {&member.weights});
      member.rows = cut(member.rows, false);
      member.mask = cut(member.mask);
    } else if constexpr (std::is_same_v<M, SetTeacher>) {
      cut_sets(member.sets, {&member.logps});
    }
  }
  void cut_sets(IdSets& sets, std::initializer_list<ConstTensor*> beside) {
    if (sets.offsets.empty()) {
      sets.ids = cut(sets.ids, false);
      sets.counts = cut(sets.counts);
      for (ConstTensor* const numbers : beside) *numbers = cut(*numbers, false);
      return;
    }
    const auto row = [&](int64_t i) { return sets.offsets[static_cast<size_t>(first_row_ + i)]; };
    const int64_t first = row(0), entries = row(rows_) - first;
    for (int64_t i = 0; i <= rows_; ++i) entries_.push_back(row(i) - first);
    sets.ids = cut_axis(sets.ids, first, entries);
    for (ConstTensor* const numbers : beside) *numbers = cut_axis(*numbers, first, entries);
    sets.offsets = entries_;
  }

  const DrawnCall& call_;
  int64_t first_, count_, first_row_, rows_;
  std::vector<int64_t> offsets_, entries_;
};

}  // namespace logitless::testing

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "core/matrices.h"
#include "core/views.h"
#include "kernels/row_kernels.h"
#include "sink/sink.h"
#include "sink/store_sums.h"

namespace logitless::sink {

/// d_bias (+)= the column sums of the gradients, summed over the rows.
template <class Sum>
class BiasSink final : public Sink<Sum> {
 public:
  BiasSink(const kernels::RowKernels& kernels, const Vector& out, WriteMode mode)
      : Sink<Sum>(ChainOf::kVocabTile),
        kernels_(kernels),
        out_(out),
        mode_(mode),
        apart_(core::is_narrow<Sum>(out.dtype)) {}

  void take_lasting(core::Arena& arena) override {
    if (apart_) sums_ = arena.take<Sum>(out_.size);
  }

  void add(const GradientPart& part, int64_t, bool first, int, const source::Multiplier&) override {
    Sum* to = (apart_ ? sums_ : static_cast<Sum*>(out_.data)) + part.first_entry;
    const bool adds = !first || (!apart_ && mode_ == WriteMode::kAccumulate);
    const auto rows = static_cast<int64_t>(part.rows.size());
    part.for_each_term([&](const gemm::Operand& gradients, bool first_term) {
      const bool accumulate = !first_term || adds;
      if constexpr (sizeof(Sum) == sizeof(float)) {
        if (gradients.dtype == DType::kBFloat16) {
          return kernels_.bf16.add_column_sums(static_cast<const bfloat16*>(gradients.data), gradients.stride, rows,
                                               part.entries, accumulate, to);
        }
      }
      kernels_.typed<Sum>().add_column_sums(static_cast<const Sum*>(gradients.data), gradients.stride, rows,
                                            part.entries, accumulate, to);
    });
    if constexpr (sizeof(Sum) == sizeof(float)) {
      if (part.residuals.columns) kernels_.typed<Sum>().add(part.residuals.columns, part.entries, to);
    }
  }

  void finish(const core::Array<bool>&, bool any) override {
    if (!any) {
      if (mode_ == WriteMode::kOverwrite) core::fill_zero(out_);
    } else if (apart_) {
      store_sums(kernels_, sums_, out_.size, mode_, out_.data, out_.dtype);
    }
  }

 private:
  const kernels::RowKernels& kernels_;
  const Vector out_;
  const WriteMode mode_;
  const bool apart_;
  Sum* sums_ = nullptr;  // [entries] if apart_, else null
};

}  // namespace logitless::sink

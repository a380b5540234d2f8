// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The sum of d_hidden over the slices of a vocabulary, here and on other ranks.
#pragma once

#include <cstdint>
#include <memory>

#include "core/arena.h"
#include "core/store.h"
#include "kernels/row_kernels.h"
#include "logitless/tensors.h"
#include "problem/hidden_problem.h"
#include "problem/hidden_rows.h"
#include "ranks/cut.h"

namespace logitless::ranks {

/// A slice's own gradient of hidden states is sums [N, H], in float32 or float64. HiddenSums says where they
/// stand, and adds those of all slices up, in their order.
class HiddenSums {
 public:
  /// Everything that is given must outlive this.
  HiddenSums(const kernels::RowKernels& kernels, const Cut& cut, const problem::HiddenProblem& problem,
             const Gradients& outputs);

  /// Lets d_hidden of `outputs`, those of this rank's slice `slice`, be its sums.
  void give(size_t slice, Gradients& outputs);
  /// Sums over all slices and, where ranks share d_hidden, over these, and writes the caller's d_hidden.
  void finish(int threads) const;

 private:
  template <class Sum>
  void finish_as(int threads) const;
  template <class Sum>
  void sum_over_group(int threads) const;
  template <class Sum>
  void load(int64_t row, int64_t slice, Sum* to) const;
  void* output(int64_t row) const { return out_.place(row).data; }

  const kernels::RowKernels& kernels_;
  const Cut& cut_;
  const problem::HiddenProblem& problem_;
  const Gradients& outputs_;
  const problem::Rows<Matrix> out_;  // d_hidden
  // The sums of a rank's only slice may stand in d_hidden, where this is one matrix of their type.
  bool in_place_;
  struct Sums {
    std::shared_ptr<core::Arena> arena;
    const void* data = nullptr;  // null where a slice has no vocabulary entries
  };
  core::Array<Sums> slices_;  // where the sums do not stand in d_hidden
};

}  // namespace logitless::ranks

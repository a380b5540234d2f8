// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "ranks/batch_sums.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "core/checks.h"
#include "core/integers.h"
#include "core/store.h"
#include "core/views.h"
#include "plan/context_state.h"
#include "ranks/row_sums.h"
#include "sink/store_sums.h"

namespace logitless::ranks {
namespace {

// Sums the rows of what a gradient of the head holds over the ranks of a batch.
void sum_rows(const Context& context, Group& group, bool in_double, const Matrix& out) {
  if (out.rows == 0 || out.cols == 0) return;
  const kernels::RowKernels& kernels = *detail::state_of(context).kernels;
  const core::Array<int64_t> parts(static_cast<size_t>(group.size()), 1);
  const auto row_of = [&](int64_t row) { return core::element(out.data, out.dtype, row * out.stride); };
  const auto row_bytes = static_cast<size_t>(out.cols) * size_of(out.dtype);
  const auto element = static_cast<int64_t>(size_of(out.dtype));
  // What a rank holds travels as it stands, and so do the sums, which are rounded once.
  const auto sum = [&]<class Sum>(const kernels::TypedKernels<Sum>& table) {
    const auto load = [&](int64_t row, int64_t, std::byte* to) { std::memcpy(to, row_of(row), row_bytes); };
    const auto add = [&](const std::byte* from, Sum* to) {
      if (!core::is_narrow<Sum>(out.dtype)) return table.add(reinterpret_cast<const Sum*>(from), out.cols, to);
      if constexpr (sizeof(Sum) == sizeof(float)) {
        constexpr int64_t kWide = 512;
        alignas(64) Sum wide[kWide];
        for (int64_t c = 0; c < out.cols; c += kWide) {
          const int64_t count = std::min(kWide, out.cols - c);
          kernels.widen(from + c * element, out.dtype, count, wide);
          table.add(wide, count, to + c);
        }
      }
    };
    const auto finish = [&](const Sum* sums, std::byte* to) {
      sink::store_sums(kernels, sums, out.cols, WriteMode::kOverwrite, to, out.dtype);
    };
    const auto store = [&](const std::byte* from, int64_t row) { std::memcpy(row_of(row), from, row_bytes); };
    sum_over_ranks<Sum>(group, parts, out.rows, out.cols, {element, element}, context.threads(), load, add, finish,
                        store, out.stride == out.cols ? static_cast<std::byte*>(out.data) : nullptr);
  };
  in_double ? sum(kernels.f64) : sum(kernels.f32);
}

// Each message goes to its ranks, and their sums come back.
int64_t exchanges_of(const Group& group, const Matrix& out) {
  if (out.rows == 0 || out.cols == 0) return 0;
  const int64_t row_bytes = out.cols * static_cast<int64_t>(size_of(out.dtype));
  return 2 * core::div_up(out.rows, group.size() * rows_of_message(group.size(), 1, out.rows, row_bytes));
}

}  // namespace

void check_sums(const Gradients& outputs, const Shared& shared) {
  if (!shared.weight_ranks || !outputs.weight_sink) return;
  core::fail("weight_sink is set and ranks.sum_d_weight too: a sink gets this rank's part");
}

void sum_over_batch(const Context& context, const problem::HiddenProblem& problem, const Gradients& outputs,
                    const Shared& shared) {
  if (!shared.weight_ranks) return;
  Group& group = *shared.weight_ranks;
  const Matrix weight = outputs.d_weight.data ? core::with_used_stride(outputs.d_weight) : Matrix();
  const Vector bias = outputs.d_bias.data ? outputs.d_bias : Vector();
  const Matrix lora_a = outputs.d_lora_a.data ? core::with_used_stride(outputs.d_lora_a) : Matrix();
  const Matrix lora_b = outputs.d_lora_b.data ? core::with_used_stride(outputs.d_lora_b) : Matrix();
  const std::array<int64_t, 10> sizes = {weight.rows,
                                         weight.cols,
                                         static_cast<int64_t>(weight.dtype),
                                         bias.size,
                                         bias.data ? static_cast<int64_t>(bias.dtype) : -1,
                                         lora_a.rows,
                                         static_cast<int64_t>(lora_a.dtype),
                                         lora_b.rows,
                                         lora_b.cols,
                                         static_cast<int64_t>(lora_b.dtype)};
  for (const auto& others : group.all_gather(sizes)) {
    if (others == sizes) continue;
    throw RankError("the ranks of ranks.data do not sum the same: d_weight is [" + std::to_string(sizes[0]) + ", " +
                    std::to_string(sizes[1]) + "] here and [" + std::to_string(others[0]) + ", " +
                    std::to_string(others[1]) + "] on another rank, d_bias " + std::to_string(sizes[3]) + " and " +
                    std::to_string(others[3]) + ", d_lora_a of rank " + std::to_string(sizes[5]) + " and " +
                    std::to_string(others[5]) + ", d_lora_b of " + std::to_string(sizes[7]) + " entries and " +
                    std::to_string(others[7]) + ", or their types differ");
  }
  // A vector is rows, of which each rank sums some.
  constexpr int64_t kRow = 1024;
  const int64_t whole = bias.size / kRow * kRow;
  const Matrix sums[] = {weight, lora_a, lora_b, Matrix(bias.data, bias.dtype, whole / kRow, kRow),
                         Matrix(core::element(bias.data, bias.dtype, whole), bias.dtype, 1, bias.size - whole)};
  // Ranks of a grid meet in every exchange, and those with other vocabulary entries may have more of them.
  int64_t exchanges = 0;
  for (const Matrix& out : sums) exchanges += exchanges_of(group, out);
  const int64_t most = group.most_before(exchanges);
  for (const Matrix& out : sums) sum_rows(context, group, problem.in_double(), out);
  for (; exchanges < most; ++exchanges) group.sit_out();
}

}  // namespace logitless::ranks

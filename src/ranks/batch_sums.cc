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
#include "planning/context_state.h"
#include "ranks/row_sums.h"
#include "sink/store_sums.h"

namespace logitless::ranks {
namespace {

// Sums the rows of the next message of `out` with at most `threads` threads. Both a rank's rows and their
// sums are sent in the output's type; sums are computed in Sum and rounded once.
template <class Sum>
void sum_next(const kernels::RowKernels& kernels, const Matrix& out, int threads, RowSums& sums) {
  const auto row_of = [&](int64_t row) { return core::element(out.data, out.dtype, row * out.stride); };
  const auto row_bytes = static_cast<size_t>(out.cols) * size_of(out.dtype);
  const auto element = static_cast<int64_t>(size_of(out.dtype));
  const kernels::TypedKernels<Sum>& table = kernels.typed<Sum>();
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
  const auto finish = [&](const Sum* from, std::byte* to) {
    sink::store_sums(kernels, from, out.cols, WriteMode::kOverwrite, to, out.dtype);
  };
  const auto store = [&](const std::byte* from, int64_t row) { std::memcpy(row_of(row), from, row_bytes); };
  sums.next<Sum>(threads, load, add, finish, store,
                 out.stride == out.cols ? static_cast<std::byte*>(out.data) : nullptr);
}

// Counts two exchanges per message: one sends the parts, one returns the sums.
int64_t exchanges_of(const Group& group, const Matrix& out) {
  if (out.rows == 0 || out.cols == 0) return 0;
  const int64_t row_bytes = out.cols * static_cast<int64_t>(size_of(out.dtype));
  return 2 * core::div_up(out.rows, group.size() * rows_of_message(group.size(), 1, out.rows, row_bytes));
}

}  // namespace

void check_sums(const GradientMatrices& outputs, const Shared& shared) {
  if (!shared.weight_ranks || !outputs.weight_sink) return;
  core::fail("weight_sink and ranks.sum_d_weight are both set: a sink receives only this rank's part");
}

BatchSums::BatchSums(const Context& context, const problem::HiddenProblem& problem, const GradientMatrices& outputs,
                     const Shared& shared, int64_t early_chunks)
    : context_(context), group_(shared.weight_ranks), in_double_(problem.in_double()), threads_(context.threads()) {
  if (!group_) return;
  const Matrix weight = outputs.d_weight.data ? core::with_used_stride(outputs.d_weight) : Matrix();
  const Vector bias = outputs.d_bias.data ? outputs.d_bias : Vector();
  const Matrix lora_a = outputs.d_lora_a.data ? core::with_used_stride(outputs.d_lora_a) : Matrix();
  const Matrix lora_b = outputs.d_lora_b.data ? core::with_used_stride(outputs.d_lora_b) : Matrix();
  const auto state = [&](const char* name, const Matrix& out) {
    group_->digests().add(
        name, !out.data ? std::string("none") : text_of(std::array{out.rows, out.cols}) + " " + name_of(out.dtype));
  };
  state("d_weight", weight);
  state("d_bias", Matrix(bias.data, bias.dtype, 1, bias.size));
  state("d_lora_a", lora_a);
  state("d_lora_b", lora_b);
  early_ = early_chunks > 0;
  for (const int64_t chunks : group_->all_gather(early_chunks)) early_ &= chunks == early_chunks;
  // A vector becomes rows of kRow elements, so that each rank sums some of them.
  constexpr int64_t kRow = 1024;
  const int64_t whole = bias.size / kRow * kRow;
  outputs_ = {weight, lora_a, lora_b, Matrix(bias.data, bias.dtype, whole / kRow, kRow),
              Matrix(core::element(bias.data, bias.dtype, whole), bias.dtype, 1, bias.size - whole)};
}

void BatchSums::reached(int64_t entries) {
  // The rank that arrives first waits for the others, for up to the time of one of their tasks. So each
  // meeting sends several messages.
  constexpr int64_t kMessages = 4;
  if (output_ == 0) advance(entries, kMessages, 1);
}

void BatchSums::finish() {
  if (!group_) return;
  // In a grid of ranks, every exchange also synchronises the other dimension, where ranks with other
  // vocabulary entries may have more exchanges.
  int64_t exchanges = 0;
  for (const Matrix& out : outputs_) exchanges += exchanges_of(*group_, out);
  const int64_t most = group_->most_before(exchanges);
  while (output_ < outputs_.size()) advance(outputs_[output_].rows, 1, threads_);
  for (; exchanges < most; ++exchanges) group_->skip_exchange();
}

void BatchSums::advance(int64_t end, int64_t at_least, int threads) {
  const Matrix& out = outputs_[output_];
  if (out.rows > 0 && out.cols > 0) {
    if (!sums_) {
      const core::Array<int64_t> parts(static_cast<size_t>(group_->size()), 1);
      const auto element = static_cast<int64_t>(size_of(out.dtype));
      sums_.emplace(*group_, parts, out.rows, out.cols, SumWire{element, element},
                    in_double_ ? sizeof(double) : sizeof(float), threads_);
    }
    const kernels::RowKernels& kernels = *detail::state_of(context_).kernels;
    while (!sums_->done() && sums_->end_of(at_least) <= end) {
      for (int64_t i = 0; i < at_least && !sums_->done(); ++i) {
        in_double_ ? sum_next<double>(kernels, out, threads, *sums_) : sum_next<float>(kernels, out, threads, *sums_);
      }
    }
    if (!sums_->done()) return;
    sums_.reset();
  }
  ++output_;
}

}  // namespace logitless::ranks

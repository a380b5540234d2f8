// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "ranks/hidden_sums.h"

#include <algorithm>
#include <cstring>

#include "core/views.h"
#include "ranks/row_sums.h"
#include "ranks/slice.h"
#include "sink/hidden_sink.h"
#include "sink/store_sums.h"

namespace logitless::ranks {

using problem::HiddenProblem;

HiddenSums::HiddenSums(const kernels::RowKernels& kernels, const Cut& cut, const HiddenProblem& problem,
                       const Gradients& outputs)
    : kernels_(kernels),
      cut_(cut),
      problem_(problem),
      outputs_(outputs),
      out_(problem::d_hidden_rows(problem, outputs)),
      slices_(cut.own().size()) {
  const std::span<const int64_t> own = cut.own();
  in_place_ = outputs.d_hidden.data && own.size() == 1 && own[0] > 0 && out_.dtype == sum_type(problem) &&
              outputs.d_hidden_mode == WriteMode::kOverwrite && out_.is_matrix();
}

void HiddenSums::give(size_t slice, Gradients& outputs) {
  if (in_place_) {
    outputs.d_hidden = outputs_.d_hidden;
  } else if (outputs_.wants_d_hidden()) {
    const size_t bytes = static_cast<size_t>(problem_.tokens * problem_.hidden_size) * size_of(sum_type(problem_));
    core::Arena measured;
    measured.take_bytes(bytes);
    Sums& sums = slices_[slice];
    sums.arena = core::make_shared<core::Arena>(measured.peak());
    void* data = sums.arena->take_bytes(bytes);
    sums.data = data;
    set_sums(problem_, data, outputs);
  }
}

void HiddenSums::finish(int threads) const {
  if (!outputs_.wants_d_hidden()) return;
  problem_.in_double() ? finish_as<double>(threads) : finish_as<float>(threads);
}

// Copies the sums of a row over the vocabulary entries of a slice.
template <class Sum>
void HiddenSums::load(int64_t row, int64_t slice, Sum* to) const {
  const int64_t h = problem_.hidden_size;
  if (in_place_) return static_cast<void>(std::copy_n(static_cast<const Sum*>(output(row)), h, to));
  const auto* sums = static_cast<const Sum*>(slices_[static_cast<size_t>(slice)].data);
  if (!sums) return static_cast<void>(std::fill_n(to, h, Sum{0}));
  std::copy_n(sums + row * h, h, to);
}

template <class Sum>
void HiddenSums::finish_as(int threads) const {
  if (!in_place_) {
    sink::clear_other_rows(out_, outputs_.d_hidden_mode, [&](int64_t row) { return problem_.takes_part(row); });
  }
  if (!cut_.own_d_hidden && cut_.group->size() > 1) return sum_over_group<Sum>(threads);
  if (in_place_) return;
  const int64_t h = problem_.hidden_size;
  core::Array<Sum> part(static_cast<size_t>(h)), total(static_cast<size_t>(h));
  for (const int64_t row : problem_.active()) {
    std::fill(total.begin(), total.end(), Sum{0});
    for (size_t s = 0; s < slices_.size(); ++s) {
      load(row, static_cast<int64_t>(s), part.data());
      kernels_.typed<Sum>().add(part.data(), h, total.data());
    }
    sink::store_sums(kernels_, total.data(), h, outputs_.d_hidden_mode, output(row), out_.dtype);
  }
}

// Sums travel as they are stored, where storing them is all that becomes of them.
template <class Sum>
void HiddenSums::sum_over_group(int threads) const {
  const int64_t h = problem_.hidden_size;
  const std::span<const int64_t> rows = problem_.active();
  const DType dtype = out_.dtype;
  const bool stored = outputs_.d_hidden_mode == WriteMode::kOverwrite;
  const size_t bytes = stored ? size_of(dtype) : sizeof(Sum);
  const auto row_of = [&](int64_t i) { return rows[static_cast<size_t>(i)]; };
  const auto load_part = [&](int64_t i, int64_t s, std::byte* to) { load(row_of(i), s, reinterpret_cast<Sum*>(to)); };
  const auto add = [&](const std::byte* from, Sum* to) {
    kernels_.typed<Sum>().add(reinterpret_cast<const Sum*>(from), h, to);
  };
  const auto finish = [&](const Sum* sums, std::byte* to) {
    if (stored) return sink::store_sums(kernels_, sums, h, WriteMode::kOverwrite, to, dtype);
    std::memcpy(to, sums, static_cast<size_t>(h) * bytes);
  };
  const auto store = [&](const std::byte* from, int64_t i) {
    void* to = output(row_of(i));
    if (stored) return static_cast<void>(std::memcpy(to, from, static_cast<size_t>(h) * bytes));
    sink::store_sums(kernels_, reinterpret_cast<const Sum*>(from), h, WriteMode::kAccumulate, to, dtype);
  };
  sum_over_ranks<Sum>(*cut_.group, cut_.slices, static_cast<int64_t>(rows.size()), h,
                      {sizeof(Sum), static_cast<int64_t>(bytes)}, threads, load_part, add, finish, store);
}

}  // namespace logitless::ranks

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "ranks/slice_sums.h"

#include <algorithm>
#include <cstring>

#include "core/views.h"
#include "ranks/row_sums.h"
#include "sink/hidden_sink.h"
#include "sink/store_sums.h"

namespace logitless::ranks {

SliceSums::SliceSums(const kernels::RowKernels& kernels, const Cut& cut, const problem::Rows<Matrix>& out,
                     WriteMode mode, DType sums)
    : kernels_(kernels), cut_(cut), out_(out), mode_(mode), type_(sums), slices_(cut.own().size()) {
  const std::span<const int64_t> own = cut.own();
  in_place_ = out.matrix.data && own.size() == 1 && own[0] > 0 && out.dtype == sums && mode == WriteMode::kOverwrite &&
              out.is_matrix();
}

void* SliceSums::take(size_t slice) {
  const size_t bytes = static_cast<size_t>(out_.count * out_.cols) * size_of(type_);
  core::Arena measured;
  measured.take_bytes(bytes);
  Sums& sums = slices_[slice];
  sums.arena = core::make_shared<core::Arena>(measured.peak());
  sums.data = sums.arena->take_bytes(bytes);
  return sums.data;
}

void SliceSums::finish(std::span<const int64_t> rows, int threads) const {
  if (!wanted()) return;
  type_ == DType::kFloat64 ? finish_as<double>(rows, threads) : finish_as<float>(rows, threads);
}

// Copies the row sums of one slice.
template <class Sum>
void SliceSums::load(int64_t row, int64_t slice, Sum* to) const {
  const int64_t h = out_.cols;
  if (in_place_) return static_cast<void>(std::copy_n(static_cast<const Sum*>(output(row)), h, to));
  const auto* sums = static_cast<const Sum*>(slices_[static_cast<size_t>(slice)].data);
  if (!sums) return static_cast<void>(std::fill_n(to, h, Sum{0}));
  std::copy_n(sums + row * h, h, to);
}

template <class Sum>
void SliceSums::finish_as(std::span<const int64_t> rows, int threads) const {
  if (!in_place_) {
    core::Array<bool> has_sums(static_cast<size_t>(out_.count), false);
    for (const int64_t row : rows) has_sums[static_cast<size_t>(row)] = true;
    sink::clear_other_rows(out_, mode_, [&](int64_t row) { return has_sums[static_cast<size_t>(row)]; });
  }
  if (!cut_.own_d_hidden && cut_.group->size() > 1) return sum_over_group<Sum>(rows, threads);
  if (in_place_) return;
  const int64_t h = out_.cols;
  core::Array<Sum> part(static_cast<size_t>(h)), total(static_cast<size_t>(h));
  for (const int64_t row : rows) {
    std::fill(total.begin(), total.end(), Sum{0});
    for (size_t s = 0; s < slices_.size(); ++s) {
      load(row, static_cast<int64_t>(s), part.data());
      kernels_.typed<Sum>().add(part.data(), h, total.data());
    }
    sink::store_sums(kernels_, total.data(), h, mode_, output(row), out_.dtype);
  }
}

// Totals are sent in the output's type if they overwrite the output, else in Sum.
template <class Sum>
void SliceSums::sum_over_group(std::span<const int64_t> rows, int threads) const {
  const int64_t h = out_.cols;
  const DType dtype = out_.dtype;
  const bool stored = mode_ == WriteMode::kOverwrite;
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
  RowSums sums(*cut_.group, cut_.slices, static_cast<int64_t>(rows.size()), h,
               {sizeof(Sum), static_cast<int64_t>(bytes)}, sizeof(Sum), threads);
  while (!sums.done()) sums.next<Sum>(threads, load_part, add, finish, store);
}

}  // namespace logitless::ranks

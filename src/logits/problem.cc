// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "logits/problem.h"

#include <limits>
#include <string>

#include "core/batched_rows.h"
#include "core/checks.h"
#include "core/views.h"

namespace logitless::logits {
namespace {

using core::fail;

template <class View>
core::BatchedRows rows_of(const View& view) {
  return {view.batch, view.time, view.vocab, view.batch_stride, view.row_stride};
}

// Shape, strides and pointer of the logits or of their gradient.
template <class View>
void check_view(std::string_view name, const View& view) {
  if (view.batch < 0) fail(name, ".batch = ", view.batch, " is negative");
  if (view.time < 0) fail(name, ".time = ", view.time, " is negative");
  if (view.vocab <= 0) fail(name, ".vocab = ", view.vocab, " must be positive");
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  if (view.vocab > kMost) fail(name, ".vocab = ", view.vocab, " is above ", kMost);
  if (view.row_stride < view.vocab) {
    fail(name, ".row_stride = ", view.row_stride, " is shorter than a row of ", view.vocab, " elements");
  }
  if (view.batch > 1 && view.time > 0 && view.batch_stride < view.vocab) {
    fail(name, ".batch_stride = ", view.batch_stride, " is shorter than a row of ", view.vocab, " elements");
  }
  int64_t tokens;
  if (__builtin_mul_overflow(view.batch, view.time, &tokens) || rows_of(view).extent() < 0) {
    fail(name, " of [", view.batch, ", ", view.time, ", ", view.vocab, "] with strides ", view.batch_stride, " and ",
         view.row_stride, " does not fit 64-bit offsets");
  }
  if (tokens > 0 && !view.data) fail(name, ".data is null");
  if (reinterpret_cast<uintptr_t>(view.data) % size_of(view.dtype) != 0) {
    fail(name, ".data = ", view.data, " is not aligned to its element type ", name_of(view.dtype));
  }
}

template <class View>
core::ByteRange range_of(std::string_view name, const View& view) {
  return core::range_of(name, view.data, view.dtype, rows_of(view));
}

bool is_in_place(const Problem& problem) {
  const Logits& in = problem.logits;
  const LogitsGradient& out = problem.dlogits;
  return in.data == out.data && in.dtype == out.dtype && (in.time < 2 || in.row_stride == out.row_stride) &&
         (in.batch < 2 || in.batch_stride == out.batch_stride);
}

void check_dlogits(const Problem& problem, std::vector<core::ByteRange> reads) {
  const Logits& in = problem.logits;
  const LogitsGradient& out = problem.dlogits;
  if (!out.data) return;
  check_view("dlogits", out);
  if (out.batch != in.batch || out.time != in.time || out.vocab != in.vocab) {
    fail("dlogits is [", out.batch, ", ", out.time, ", ", out.vocab, "] but logits is [", in.batch, ", ", in.time, ", ",
         in.vocab, "]");
  }
  const DType sums = in.dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
  if (out.dtype != sums && out.dtype != in.dtype) {
    fail("dlogits is ", name_of(out.dtype), " but must be ", name_of(sums), " or logits's type, ", name_of(in.dtype));
  }
  core::check_rows_apart("dlogits.batch_stride", "row_stride", rows_of(out));
  if (!is_in_place(problem)) reads.push_back(range_of("logits", in));
  const core::ByteRange writes[] = {output_range(out)};
  core::check_overlaps(writes, reads);
}

Problem unresolved(const Logits& logits, const TokenOptions& options, StatsRequest request,
                   const LogitsGradient& dlogits) {
  Problem problem;
  problem.logits = logits;
  problem.dlogits = dlogits;
  check_view("logits", logits);
  problem.options = options;
  problem.request = request;
  problem.tokens = logits.tokens();
  problem.vocab_size = logits.vocab;
  problem.dtype = logits.dtype;
  problem.rows_name = "logits";
  return problem;
}

}  // namespace

const void* Problem::row(int64_t row) const {
  return core::element(logits.data, logits.dtype, rows_of(logits).offset(row));
}

void* Problem::gradient_row(int64_t row) const {
  return core::element(dlogits.data, dlogits.dtype, rows_of(dlogits).offset(row));
}

std::vector<int64_t> checked_sequence_offsets(const Logits& logits) {
  check_view("logits", logits);
  std::vector<int64_t> offsets;
  for (int64_t b = 0; b <= logits.batch; ++b) offsets.push_back(b * logits.time);
  return offsets;
}

core::ByteRange output_range(const LogitsGradient& dlogits) { return range_of("dlogits", dlogits); }

Problem make_problem(const Logits& logits, const Targets& targets, const TokenOptions& options, StatsRequest request,
                     const LogitsGradient& dlogits, std::string_view prior_name) {
  Problem problem = unresolved(logits, options, request, dlogits);
  problem.prior_name = prior_name;
  resolve_tokens(problem, targets, checked_sequence_offsets(logits));
  check_dlogits(problem, reads_of(problem, targets));
  return problem;
}

Problem make_problem(const Logits& logits, const TokenOptions& options, StatsRequest request,
                     std::span<const double> upstream, const LogitsGradient& dlogits) {
  Problem problem = unresolved(logits, options, request, dlogits);
  resolve_tokens(problem);
  std::vector<core::ByteRange> reads = reads_of(problem, {});
  reads.push_back(core::range_of("upstream", upstream.data(), upstream.size_bytes()));
  check_dlogits(problem, std::move(reads));
  return problem;
}

}  // namespace logitless::logits

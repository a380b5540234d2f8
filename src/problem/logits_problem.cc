// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "problem/logits_problem.h"

#include <limits>
#include <string>

#include "core/batched_rows.h"
#include "core/checks.h"
#include "core/store.h"
#include "core/views.h"

namespace logitless::problem {
namespace {

using core::fail;

template <class View>
core::BatchedRows rows_of(const View& view) {
  return {view.batch, view.time, view.vocab, view.batch_stride, view.row_stride};
}

// Checks shape, strides and pointer of the logits or of their gradient.
template <class View>
void check_view(std::string_view name, const View& view) {
  if (view.batch < 0) fail(name, ".batch = ", view.batch, " is negative");
  if (view.time < 0) fail(name, ".time = ", view.time, " is negative");
  if (view.vocab <= 0) fail(name, ".vocab = ", view.vocab, " must be positive");
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  if (view.vocab > kMost) fail(name, ".vocab = ", view.vocab, " is above ", kMost);
  if (view.batch > kMost) fail(name, ".batch = ", view.batch, " is above ", kMost);
  if (view.time > kMost) fail(name, ".time = ", view.time, " is above ", kMost);
  core::check_strides(name, {name, "batch_stride"}, {name, "row_stride"}, rows_of(view));
  const int64_t tokens = view.batch * view.time;
  if (tokens > kMost) fail(name, " of ", view.batch, " times ", view.time, " rows has more than ", kMost);
  if (tokens == 0) check_empty_sequences({name, "batch"}, view.batch);
  if (tokens > 0 && !view.data) fail(name, ".data is null");
  core::check_aligned(name, view.data, size_of(view.dtype), name_of(view.dtype));
}

bool is_in_place(const FinishedLogits& in, const LogitsGradient& out) {
  return in.data == out.data && in.dtype == out.dtype && (in.time < 2 || in.row_stride == out.row_stride) &&
         (in.batch < 2 || in.batch_stride == out.batch_stride);
}

}  // namespace

const void* logits_row(const FinishedLogits& logits, int64_t row) {
  return core::element(logits.data, logits.dtype, rows_of(logits).offset(row));
}

void* dlogits_row(const LogitsGradient& dlogits, int64_t row) {
  return core::element(dlogits.data, dlogits.dtype, rows_of(dlogits).offset(row));
}

LogitsTensors check_tensors(const FinishedLogits& logits, std::span<const int64_t> offsets) {
  check_view("logits", logits);
  LogitsTensors tensors = {{logits, offsets, {}}};
  Shape& shape = tensors.shape;
  shape.tokens = logits.tokens();
  shape.vocab_size = shape.entries = logits.vocab;
  shape.dtype = logits.dtype;
  shape.rows_name = shape.vocab_name = "logits";
  if (!offsets.empty()) {
    tensors.sequence_offsets = packed_offsets(offsets, shape.tokens, "logits");
    return tensors;
  }
  tensors.sequence_offsets.reserve(static_cast<size_t>(logits.batch + 1));
  for (int64_t b = 0; b <= logits.batch; ++b) tensors.sequence_offsets.push_back(b * logits.time);
  return tensors;
}

void check_teacher_logits(const TeacherMatrices& teacher, const Shape& shape, bool may_be_empty) {
  const FinishedLogits& logits = teacher.logits;
  if (!may_be_empty || logits.vocab != 0) check_view("teacher.logits", logits);
  if (logits.tokens() != shape.tokens) {
    fail("teacher.logits has ", logits.tokens(), " rows but ", shape.rows_name, " has ", shape.tokens);
  }
  if (logits.vocab != shape.entries) {
    fail("teacher.logits has ", logits.vocab, " vocabulary entries but ", shape.vocab_name, " has ", shape.entries,
         ": student and teacher must share one vocabulary");
  }
  check_sum_type("teacher.logits", logits.dtype, shape.dtype, shape.rows_name);
}

void add_teacher(const TeacherMatrices& teacher, LogitsTensors& tensors) {
  if (!teacher.has_logits()) {
    fail("teacher has no logits: if the student's logits are finished, the teacher's must be too");
  }
  check_teacher_logits(teacher, tensors.shape, false);
  tensors.operands.teacher_logits = teacher.logits;
}

core::ByteRange range_of(std::string_view name, const FinishedLogits& logits) {
  return core::range_of(name, logits.data, logits.dtype, rows_of(logits));
}

core::Array<core::ByteRange> reads_of(const LogitsProblem& problem, const LogitsGradient& dlogits) {
  core::Array<core::ByteRange> reads = reads_of(static_cast<const TokenProblem&>(problem));
  reads.push_back(core::range_of("offsets", problem.offsets.data(), problem.offsets.size_bytes()));
  if (!is_in_place(problem.logits, dlogits)) reads.push_back(range_of("logits", problem.logits));
  if (problem.teacher_logits) reads.push_back(range_of("teacher.logits", *problem.teacher_logits));
  return reads;
}

core::Array<core::ByteRange> writes_of(const LogitsProblem&, const LogitsGradient& dlogits) {
  return {core::range_of("d_logits", dlogits.data, dlogits.dtype, rows_of(dlogits))};
}

void check_outputs(const LogitsProblem& problem, const LogitsGradient& out) {
  const FinishedLogits& in = problem.logits;
  if (!out.data) return;
  check_view("d_logits", out);
  if (out.batch != in.batch || out.time != in.time || out.vocab != in.vocab) {
    fail("d_logits is [", out.batch, ", ", out.time, ", ", out.vocab, "] but logits is [", in.batch, ", ", in.time,
         ", ", in.vocab, "]");
  }
  check_output_type("d_logits", out.dtype, in.dtype, "logits");
  core::check_rows_apart("d_logits.batch_stride", "row_stride", rows_of(out));
}

}  // namespace logitless::problem

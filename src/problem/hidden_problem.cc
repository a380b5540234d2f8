// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "problem/hidden_problem.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/check_fields.h"
#include "core/checks.h"
#include "core/packed.h"
#include "core/store.h"
#include "core/views.h"

namespace logitless::problem {
namespace {

using core::fail;

// Checks a packed weight.
void check_packed(const HeadMatrices& head) {
  const PackedMatrix& packed = head.packed;
  core::check_packed("weight", packed);
}

void check_ids(const HeadMatrices& head) {
  core::check_aligned("vocab_ids", head.ids);
  const auto count = static_cast<int64_t>(head.ids.size());
  if (count > core::kMostRows) fail("vocab_ids has ", count, " entries, which is above ", core::kMostRows);
  for (size_t k = 0; k < head.ids.size(); ++k) {
    if (head.ids[k] >= 0 && head.ids[k] < head.stored_entries()) continue;
    fail("vocab_ids[", k, "] = ", head.ids[k], " is outside [0, ", head.stored_entries(), ")");
  }
}

void check_lora(const HeadMatrices& head, const ConstMatrix& hidden, int64_t tokens, bool may_be_empty) {
  const LoraMatrices& lora = head.lora;
  if (!lora.given()) return;
  if (lora.has_states()) {
    const ConstMatrix& states = lora.states;
    core::check_matrix("lora_states", states.data, states.rows, states.cols, states.stride);
    if (lora.a.data) fail("lora_a and lora_states are both set: states replace hidden · aᵀ");
    if (states.rows != tokens) fail("lora_states has ", states.rows, " rows but hidden has ", tokens);
    if (lora.scale != 1) fail("lora_scale = ", lora.scale, " must be 1 with lora_states: scale the states instead");
    check_sum_type("lora_states", states.dtype, hidden.dtype, "hidden");
  } else {
    core::check_matrix("lora_a", lora.a.data, lora.a.rows, lora.a.cols, lora.a.stride);
    if (lora.a.rows == 0) fail("lora_a.rows = 0 must be positive");
    if (lora.a.cols != hidden.cols) fail("lora_a has ", lora.a.cols, " columns but hidden has ", hidden.cols);
    check_sum_type("lora_a", lora.a.dtype, hidden.dtype, "hidden");
  }
  if (lora.b.rows != head.stored_entries()) {
    fail("lora_b has ", lora.b.rows, " rows but the vocabulary has ", head.stored_entries());
  }
  if (!may_be_empty || lora.b.rows > 0) {
    core::check_matrix("lora_b", lora.b.data, lora.b.rows, lora.b.cols, lora.b.stride);
    if (lora.b.cols != lora.rank()) {
      fail("lora_b has ", lora.b.cols, " columns but lora_", lora.has_states() ? "states" : "a", " has ", lora.rank(),
           lora.has_states() ? " columns" : " rows");
    }
    check_sum_type("lora_b", lora.b.dtype, hidden.dtype, "hidden");
  }
  core::check_field("lora_scale", kFinite, lora.scale);
  if (!core::sums_in_double(hidden.dtype) && std::abs(lora.scale) > std::numeric_limits<float>::max()) {
    fail("lora_scale = ", lora.scale, " does not fit in float32, the type of the sums");
  }
}

void check_head(const HeadMatrices& head, const ConstMatrix& hidden, int64_t tokens, bool may_be_empty) {
  if (head.hidden_size() == 0 && head.stored_entries() == 0) fail("weight is not given");
  if (head.packed.given()) {
    check_packed(head);
    if (head.packed.rows == 0 && !may_be_empty) fail("weight.rows = 0 must be positive");
    if (core::sums_in_double(hidden.dtype)) {
      fail("hidden is float64, but weight is packed (", name_of(head.packed.packing),
           "), which needs float32, bfloat16 or float16");
    }
  } else {
    if (!may_be_empty || head.vocab_size() != 0) {
      core::check_matrix("weight", head.weight.data, head.weight.rows, head.weight.cols, head.weight.stride);
      if (head.weight.rows == 0) fail("weight.rows = 0 must be positive");
    }
    check_sum_type("weight", head.weight.dtype, hidden.dtype, "hidden");
  }
  check_ids(head);
  if (head.hidden_size() != hidden.cols) {
    fail("weight is [", head.stored_entries(), ", ", head.hidden_size(), "] but hidden has ", hidden.cols,
         " columns: weight is [V, H], and hidden [N, H]");
  }
  if (head.bias.data || head.bias.size != 0) {
    if (head.bias.size != head.stored_entries()) {
      fail("bias ", core::HasEntries(head.bias.size), " but the vocabulary has ", head.stored_entries());
    }
    check_sum_type("bias", head.bias.dtype, hidden.dtype, "hidden");
  }
  if (head.softcap != 0) check_scale("softcap", head.softcap, hidden.dtype);
  check_lora(head, hidden, tokens, may_be_empty);
}

// Checks both strides of hidden states, or of their gradient; messages call the tensor `name`.
void check_places(std::string_view name, core::MemberName batch_stride, core::MemberName row_stride,
                  const core::BatchedRows& places) {
  core::check_strides(name, batch_stride, row_stride, places);
  core::check_blas_stride(row_stride, places);
}

void refuse_packed(std::string_view stride_name, const std::optional<int64_t>& stride) {
  if (!stride) return;
  fail(stride_name, " = ", *stride, " is set but offsets is not empty: packed sequences are contiguous");
}

core::BatchedRows places_of(const HiddenStates& hidden) {
  const ConstMatrix& states = hidden.states;
  return core::batched_rows(states.rows, states.cols, states.stride, hidden.sequences, hidden.batch_stride);
}

void check_places(const HiddenStates& hidden) {
  check_places("hidden", "hidden.batch_stride", "hidden.stride", places_of(hidden));
}

// Returns the given offsets of the sequences, or computes them from equal lengths.
core::Array<int64_t> sequence_offsets(const HiddenStates& hidden) {
  const int64_t tokens = hidden.tokens();
  if (hidden.offsets.empty()) {
    constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
    if (hidden.sequences > kMost) fail("sequences = ", hidden.sequences, " is above ", kMost);
    if (tokens == 0 && hidden.sequences >= 0) {  // [0, T, H] is a legal empty batch
      check_empty_sequences("sequences", hidden.sequences);
      return core::Array<int64_t>(static_cast<size_t>(hidden.sequences + 1), 0);
    }
    if (hidden.sequences < 0) fail("sequences = ", hidden.sequences, " is negative");
    if (hidden.sequences == 0) fail("sequences = 0 must be positive: hidden has ", tokens, " rows");
    if (tokens % hidden.sequences != 0) {
      fail("hidden has ", tokens, " rows, which is not a multiple of its ", hidden.sequences, " sequences");
    }
    core::Array<int64_t> offsets(static_cast<size_t>(hidden.sequences + 1));
    for (int64_t s = 0; s <= hidden.sequences; ++s) {
      offsets[static_cast<size_t>(s)] = s * (tokens / hidden.sequences);
    }
    check_places(hidden);
    return offsets;
  }
  check_places(HiddenStates(hidden.states));
  refuse_packed("hidden.batch_stride", hidden.batch_stride);
  return packed_offsets(hidden.offsets, tokens, "hidden");
}

void check_output_shape(std::string_view name, const Matrix& out, const ConstMatrix& in, std::string_view input_name) {
  core::check_sizes(name, out.data, out.rows, out.cols);
  if (out.rows != in.rows || out.cols != in.cols) {
    fail(name, " is [", out.rows, ", ", out.cols, "] but ", input_name, " is [", in.rows, ", ", in.cols, "]");
  }
  check_output_type(name, out.dtype, in.dtype, input_name);
}

void check_d_hidden(const HiddenProblem& problem, const GradientMatrices& outputs) {
  if (!outputs.d_hidden.data) return;
  check_output_shape("d_hidden", outputs.d_hidden, problem.hidden, "hidden");
  if (problem.sequences == 0 && problem.tokens > 0) {
    refuse_packed("d_hidden_batch_stride", outputs.d_hidden_batch_stride);
  }
  const core::BatchedRows places = d_hidden_places(problem, outputs);
  check_places("d_hidden", "d_hidden_batch_stride", "d_hidden.stride", places);
  core::check_rows_apart("d_hidden_batch_stride", "d_hidden.stride", places);
}

}  // namespace

core::ByteRange range_of(std::string_view name, const HiddenStates& hidden) {
  return core::range_of(name, hidden.states.data, hidden.states.dtype, places_of(hidden));
}

core::BatchedRows d_hidden_places(const HiddenProblem& problem, const GradientMatrices& outputs) {
  const Matrix& out = outputs.d_hidden;
  return core::batched_rows(out.rows, out.cols, out.stride, problem.sequences, outputs.d_hidden_batch_stride);
}

core::Array<core::ByteRange> writes_of(const HiddenProblem& problem, const GradientMatrices& outputs) {
  const Matrix& d_hidden = outputs.d_hidden;
  return {core::range_of("d_hidden", d_hidden.data, d_hidden.dtype, d_hidden_places(problem, outputs)),
          core::range_of("d_weight", outputs.d_weight),
          core::range_of("d_bias", outputs.d_bias),
          core::range_of("d_lora_a", outputs.d_lora_a),
          core::range_of("d_lora_b", outputs.d_lora_b),
          core::range_of("d_lora_states", outputs.d_lora_states)};
}

namespace {

// Copies the elements `ids` of a vector.
std::shared_ptr<const core::Array<std::byte>> chosen(const ConstVector& vector, std::span<const int64_t> ids) {
  const size_t bytes = size_of(vector.dtype);
  auto out = core::make_shared<core::Array<std::byte>>(ids.size() * bytes);
  for (size_t k = 0; k < ids.size(); ++k) {
    std::memcpy(out->data() + k * bytes, core::element(vector.data, vector.dtype, ids[k]), bytes);
  }
  return out;
}

}  // namespace

HiddenTensors check_tensors(const HiddenStates& hidden, const HeadMatrices& head, bool may_be_empty) {
  const ConstMatrix& states = hidden.states;
  if (!states.data && states.rows == 0 && states.cols == 0) fail("hidden is not given");
  core::check_sizes("hidden", states.data, states.rows, states.cols);
  check_head(head, states, hidden.tokens(), may_be_empty);
  HiddenTensors tensors;
  tensors.sequence_offsets = sequence_offsets(hidden);
  Shape& shape = tensors.shape;
  shape.tokens = hidden.tokens();
  shape.vocab_size = shape.entries = head.vocab_size();
  shape.dtype = states.dtype;
  StatesAndHead& operands = tensors.operands;
  operands.hidden = states;
  operands.sequences = hidden.offsets.empty() ? hidden.sequences : 0;
  operands.offsets = hidden.offsets;
  operands.hidden_places = places_of(hidden);
  operands.head = head;
  operands.head.weight = core::with_used_stride(head.weight);
  operands.head.lora.a = core::with_used_stride(head.lora.a);
  operands.head.lora.b = core::with_used_stride(head.lora.b);
  operands.head.lora.states = core::with_used_stride(head.lora.states);
  operands.given_bias = head.bias;
  if (head.bias.data && !head.ids.empty()) {
    operands.chosen_bias = chosen(head.bias, head.ids);
    operands.head.bias = {operands.chosen_bias->data(), head.bias.dtype, head.vocab_size()};
  }
  operands.hidden_size = hidden.hidden_size();
  return tensors;
}

void add_teacher(const TeacherMatrices& teacher, bool may_be_empty, HiddenTensors& tensors) {
  if (teacher.has_logits()) {
    check_teacher_logits(teacher, tensors.shape, may_be_empty);
    tensors.operands.teacher_logits = teacher.logits;
    return;
  }
  HiddenTensors teacher_tensors;
  try {
    teacher_tensors = check_tensors(teacher.hidden, teacher.head, may_be_empty);
  } catch (const InvalidInput& error) {
    fail("teacher: ", error.what());
  }
  const Shape &shape = tensors.shape, &of_teacher = teacher_tensors.shape;
  if (of_teacher.tokens != shape.tokens) {
    fail("teacher.hidden has ", of_teacher.tokens, " rows but ", shape.rows_name, " has ", shape.tokens);
  }
  if (of_teacher.entries != shape.entries) {
    fail("teacher.weight has ", of_teacher.entries, " vocabulary entries but weight has ", shape.entries,
         ": student and teacher must share one vocabulary");
  }
  check_sum_type("teacher.hidden", of_teacher.dtype, shape.dtype, shape.rows_name);
  tensors.operands.teacher = static_cast<const StatesAndHead&>(teacher_tensors.operands);
}

namespace {

// Appends the memory of states and head.
void append_reads(const StatesAndHead& of, const std::array<std::string_view, 4>& names,
                  core::Array<core::ByteRange>& reads) {
  reads.push_back(core::range_of(names[0], of.hidden.data, of.hidden.dtype, of.hidden_places));
  reads.push_back(core::range_of(names[1], of.offsets.data(), of.offsets.size_bytes()));
  problem::append_reads(of.head, of.given_bias, names[2], names[3], reads);
}

}  // namespace

void append_reads(const HeadMatrices& head, const ConstVector& bias, std::string_view name, std::string_view bias_name,
                  core::Array<core::ByteRange>& reads) {
  reads.push_back(core::range_of(name, head.weight));
  if (head.packed.given()) {
    reads.push_back(core::range_of(name, head.packed.data, core::packed_bytes(head.packed)));
    reads.push_back(core::range_of(name, head.packed.scales, core::scale_bytes(head.packed)));
  }
  reads.push_back(core::range_of(name, head.ids.data(), head.ids.size_bytes()));
  reads.push_back(core::range_of(name, head.lora.a));
  reads.push_back(core::range_of(name, head.lora.b));
  reads.push_back(core::range_of(name, head.lora.states));
  reads.push_back(core::range_of(bias_name, bias));
}

core::Array<core::ByteRange> reads_of(const HiddenProblem& problem, const GradientMatrices&) {
  core::Array<core::ByteRange> reads = reads_of(static_cast<const TokenProblem&>(problem));
  append_reads(problem, {"hidden", "offsets", "weight", "bias"}, reads);
  if (problem.teacher) {
    append_reads(*problem.teacher, {"teacher.hidden", "teacher.offsets", "teacher.weight", "teacher.bias"}, reads);
  }
  if (problem.teacher_logits) reads.push_back(range_of("teacher.logits", *problem.teacher_logits));
  return reads;
}

namespace {

void check_d_lora(const HiddenProblem& problem, const GradientMatrices& outputs) {
  const LoraMatrices& lora = problem.head.lora;
  const auto check = [&](std::string_view name, const Matrix& out, const ConstMatrix& in, std::string_view input_name) {
    if (!out.data) return;
    if (!in.data && in.cols == 0) fail(name, " is set but the head has no ", input_name);
    check_output_shape(name, out, in, input_name);
    core::check_matrix(name, out.data, out.rows, out.cols, out.stride);
  };
  check("d_lora_a", outputs.d_lora_a, lora.a, "lora_a");
  check("d_lora_states", outputs.d_lora_states, lora.states, "lora_states");
  ConstMatrix of_entries = lora.b;
  of_entries.rows = problem.entries;
  if (problem.entries > 0 || !lora.given()) check("d_lora_b", outputs.d_lora_b, of_entries, "lora_b");
}

void check_modes(const GradientMatrices& outputs) {
  core::check_named("d_hidden_mode", outputs.d_hidden_mode);
  core::check_named("d_weight_mode", outputs.d_weight_mode);
  core::check_named("d_bias_mode", outputs.d_bias_mode);
  core::check_named("d_lora_mode", outputs.d_lora_mode);
}

}  // namespace

void check_outputs(const HiddenProblem& problem, const GradientMatrices& outputs) {
  core::check_fields(outputs.backward, "backward.");
  check_modes(outputs);
  check_d_hidden(problem, outputs);
  check_d_lora(problem, outputs);
  if (problem.head.packed.given() && (outputs.d_weight.data || outputs.weight_sink)) {
    fail(outputs.weight_sink ? "weight_sink" : "d_weight", " is set but weight is packed (",
         name_of(problem.head.packed.packing), "): it is frozen");
  }
  if (outputs.d_weight.data && problem.entries > 0) {
    ConstMatrix shape = problem.head.weight;
    (problem.head.layout == HeadLayout::kHiddenVocab ? shape.cols : shape.rows) = problem.entries;
    check_output_shape("d_weight", outputs.d_weight, shape, "weight");
    const Matrix& out = outputs.d_weight;
    core::check_matrix("d_weight", out.data, out.rows, out.cols, out.stride);
    if (outputs.weight_sink) fail("d_weight and weight_sink are both set: at most one may be");
  }
  if (outputs.d_bias.data && problem.entries > 0) {
    if (!problem.head.bias.data) fail("d_bias is set but the head has no bias");
    if (outputs.d_bias.size != problem.entries) {
      fail("d_bias ", core::HasEntries(outputs.d_bias.size), " but the vocabulary has ", problem.entries);
    }
    check_output_type("d_bias", outputs.d_bias.dtype, problem.head.bias.dtype, "bias");
  }
}

}  // namespace logitless::problem

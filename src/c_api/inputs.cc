// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "c_api/inputs.h"

#include <string>

#include "c_api/fields.h"
#include "c_api/status.h"

namespace logitless::c_api {

template <>
logitless_hidden_states defaults() {
  logitless_hidden_states out = {};
  out.sequences = 1;
  return out;
}

template <>
logitless_lm_head defaults() {
  logitless_lm_head out = {};
  out.layout = LOGITLESS_VOCAB_HIDDEN;
  out.lora_scale = 1;
  return out;
}

DType dtype_of(int32_t dtype, const char* name) { return enumerator<DType>(dtype, name); }

namespace {

int64_t or_if_zero(int64_t stride, int64_t other) { return stride == 0 ? other : stride; }

std::optional<int64_t> step_of(int64_t stride) { return stride == 0 ? std::nullopt : std::optional<int64_t>(stride); }

std::string member(const char* name, const char* of) { return std::string(name) + "." + of; }

template <class Out, class In>
Out matrix_of(const In& in, const std::string& name) {
  Out out;
  out.data = in.data;
  out.dtype = dtype_of(in.dtype, (name + ".dtype").c_str());
  out.rows = in.rows;
  out.cols = in.cols;
  out.stride = or_if_zero(in.stride, in.cols);
  return out;
}

PackedMatrix packed_of(const logitless_packed_matrix& in, const std::string& name) {
  PackedMatrix out;
  out.data = in.data;
  out.packing = enumerator<Packing>(in.packing, (name + ".packing").c_str());
  out.rows = in.rows;
  out.cols = in.cols;
  out.row_bytes = step_of(in.row_bytes);
  out.scales = in.scales;
  out.group = in.group;
  return out;
}

WriteMode mode_of(int32_t mode, const char* name) { return enumerator<WriteMode>(mode, name); }

WeightGradientSink sink_of(logitless_weight_sink sink, void* user) {
  if (!sink) return nullptr;
  return [sink, user](int64_t first, int64_t count, const ConstMatrix& tile) {
    const logitless_const_matrix view = {tile.data, static_cast<int32_t>(tile.dtype), tile.rows, tile.cols,
                                         tile.stride};
    call_back("weight_sink", [&] { return sink(user, first, count, &view); });
  };
}

Gradients gradients_of(const logitless_gradients& in) {
  Gradients out;
  out.d_hidden = matrix_of<Matrix>(in.d_hidden, "gradients.d_hidden");
  out.d_weight = matrix_of<Matrix>(in.d_weight, "gradients.d_weight");
  out.d_bias = Vector(in.d_bias.data, dtype_of(in.d_bias.dtype, "gradients.d_bias.dtype"), in.d_bias.size);
  out.d_hidden_mode = mode_of(in.d_hidden_mode, "gradients.d_hidden_mode");
  out.d_weight_mode = mode_of(in.d_weight_mode, "gradients.d_weight_mode");
  out.d_bias_mode = mode_of(in.d_bias_mode, "gradients.d_bias_mode");
  out.weight_sink = sink_of(in.weight_sink, in.weight_sink_user);
  out.d_hidden_batch_stride = step_of(in.d_hidden_batch_stride);
  if (in.backward) out.backward = taken<BackwardOptions>(in.backward, "gradients.backward");
  out.d_lora_a = matrix_of<Matrix>(in.d_lora_a, "gradients.d_lora_a");
  out.d_lora_b = matrix_of<Matrix>(in.d_lora_b, "gradients.d_lora_b");
  out.d_lora_states = matrix_of<Matrix>(in.d_lora_states, "gradients.d_lora_states");
  out.d_lora_mode = mode_of(in.d_lora_mode, "gradients.d_lora_mode");
  return out;
}

}  // namespace

ConstVector vector_of(const logitless_const_vector& in, const char* name) {
  return ConstVector(in.data, dtype_of(in.dtype, member(name, "dtype").c_str()), in.size);
}

HiddenStates hidden_of(const logitless_hidden_states& given, const char* name) {
  const logitless_hidden_states in = read(&given, name);
  HiddenStates out;
  out.states = matrix_of<ConstMatrix>(in.states, member(name, "states"));
  out.sequences = in.sequences;
  out.offsets = span_of(in.offsets, in.offset_count, member(name, "offsets").c_str());
  out.batch_stride = step_of(in.batch_stride);
  return out;
}

LmHead head_of(const logitless_lm_head& given, const char* name) {
  const logitless_lm_head in = read(&given, name);
  LmHead out(matrix_of<ConstMatrix>(in.weight, member(name, "weight")),
             enumerator<HeadLayout>(in.layout, member(name, "layout").c_str()));
  out.bias = vector_of(in.bias, member(name, "bias").c_str());
  out.softcap = in.softcap;
  out.packed = packed_of(in.packed, member(name, "packed"));
  out.ids = span_of(in.ids, in.id_count, member(name, "ids").c_str());
  out.lora.a = matrix_of<ConstMatrix>(in.lora_a, member(name, "lora_a"));
  out.lora.b = matrix_of<ConstMatrix>(in.lora_b, member(name, "lora_b"));
  out.lora.scale = in.lora_scale;
  out.lora.states = matrix_of<ConstMatrix>(in.lora_states, member(name, "lora_states"));
  return out;
}

Targets targets_of(const logitless_targets* given, const char* name) {
  const logitless_targets in = read(&there(given, name), name);
  if (in.data32 && in.data64) core::fail(name, ".data32 and ", name, ".data64 are both set");
  Targets out;
  out.data32 = in.data32;
  out.data64 = in.data64;
  out.size = in.size;
  out.stride = or_if_zero(in.stride, 1);
  out.time = in.time;
  out.batch_stride = or_if_zero(in.batch_stride, logitless::detail::saturated_product(in.time, out.stride));
  return out;
}

IdSets sets_of(const logitless_id_sets* given, const char* name) {
  const logitless_id_sets in = read(&there(given, name), name);
  IdSets out;
  if (in.ids) out.ids = targets_of(in.ids, member(name, "ids").c_str());
  out.offsets = span_of(in.offsets, in.offset_count, member(name, "offsets").c_str());
  out.counts = span_of(in.counts, in.count_count, member(name, "counts").c_str());
  return out;
}

SoftTargets soft_targets_of(const logitless_soft_targets* given) {
  const logitless_soft_targets in = read(&there(given, "targets"), "targets");
  SoftTargets out;
  if (in.sets) out.sets = sets_of(in.sets, "targets.sets");
  out.weights = vector_of(in.weights, "targets.weights");
  out.rows = matrix_of<ConstMatrix>(in.rows, "targets.rows");
  out.mask = span_of(in.mask, in.mask_count, "targets.mask");
  return out;
}

SetTeacher set_teacher_of(const logitless_set_teacher* given) {
  const logitless_set_teacher in = read(&there(given, "teacher"), "teacher");
  SetTeacher out;
  out.sets = sets_of(in.sets, "teacher.sets");
  out.logps = vector_of(in.logps, "teacher.logps");
  out.outside_logps = vector_of(in.outside_logps, "teacher.outside_logps");
  return out;
}

Targets optional_targets(const logitless_targets* given) { return given ? targets_of(given, "targets") : Targets(); }

FinishedLogits logits_of(const logitless_logits* given, const char* name) {
  const logitless_logits in = read(&there(given, name), name);
  return FinishedLogits(in.data, dtype_of(in.dtype, (std::string(name) + ".dtype").c_str()), in.batch, in.time, in.vocab,
                step_of(in.batch_stride), step_of(in.row_stride));
}

void check_of_logits_alone(const logitless_gradients& in) {
  const Gradients given = gradients_of(in);
  if (given.any()) core::fail("gradients asks for those of hidden states and head, but source has logits");
  if (given.backward.mode != BackwardMode::kExact) {
    core::fail("gradients.backward.mode = ", name_of(given.backward.mode),
               ": finished logits have no head that it would save products with");
  }
}

LogitsGradient d_logits_of(const logitless_gradients& in, const FinishedLogits& logits) {
  if (!in.d_logits) return {};
  return LogitsGradient(in.d_logits, dtype_of(in.d_logits_dtype, "gradients.d_logits_dtype"), logits.batch, logits.time,
                        logits.vocab, step_of(in.d_logits_batch_stride), step_of(in.d_logits_row_stride));
}

int64_t CallTensors::sequences() const {
  if (logits_) return logits_->batch;
  if (!hidden_.offsets.empty()) return static_cast<int64_t>(hidden_.offsets.size()) - 1;
  return hidden_.sequences;
}

CallTensors::CallTensors(const logitless_source* given, const logitless_gradients* wanted) {
  const logitless_source source = read(&there(given, "source"), "source");
  const logitless_gradients gradients = read(wanted, "gradients");
  if (source.logits) {
    if (source.hidden || source.head) core::fail("source has logits, and hidden states or a head beside them");
    check_of_logits_alone(gradients);
    logits_ = logits_of(source.logits);
    d_logits_ = d_logits_of(gradients, *logits_);
    return;
  }
  if (gradients.d_logits) core::fail("gradients.d_logits is set, but source has no logits");
  gradients_ = gradients_of(gradients);
  hidden_ = hidden_of(there(source.hidden, "source.hidden"), "hidden");
  head_ = head_of(there(source.head, "source.head"), "head");
}

}  // namespace logitless::c_api

using logitless::c_api::init;

void logitless_hidden_states_init(logitless_hidden_states* hidden, size_t size) { init(hidden, size); }
void logitless_lm_head_init(logitless_lm_head* head, size_t size) { init(head, size); }
void logitless_logits_init(logitless_logits* logits, size_t size) { init(logits, size); }
void logitless_source_init(logitless_source* source, size_t size) { init(source, size); }
void logitless_targets_init(logitless_targets* targets, size_t size) { init(targets, size); }
void logitless_backward_options_init(logitless_backward_options* options, size_t size) { init(options, size); }
void logitless_gradients_init(logitless_gradients* gradients, size_t size) { init(gradients, size); }

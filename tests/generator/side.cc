// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "generator/side.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "kernels/plain_tile.h"

namespace logitless::testing {

std::vector<int64_t> offsets_of(const DrawnCall& call) {
  std::vector<int64_t> offsets = {0};
  for (int64_t s = 1; s <= call.sequences; ++s) offsets.push_back(s * call.time);
  // The first sequence gives tokens to the second one and keeps at most one.
  if (call.packed && call.sequences > 1) offsets[1] = call.time > 2 ? 1 : 0;
  return offsets;
}

Side::Side(const DrawnCall& call_, int64_t hidden_size, std::span<const int64_t> offsets_, Random& random)
    : call(call_), offsets(offsets_.begin(), offsets_.end()) {
  if (call.finished) {
    draw_finished(random);
  } else {
    draw_hidden(random, hidden_size);
    draw_weight(random, hidden_size);
    if (call.lora_rank > 0) draw_lora(random, hidden_size);
    multiply();
  }
  for (GuardedTensor* tensor : {&hidden, &weight, &scales, &bias, &lora_a, &lora_b, &lora_states, &finished}) {
    tensor->keep();
  }
}

GuardedTensor rows_of_tokens(const DrawnCall& call, DType dtype, int64_t cols, Direction direction) {
  const bool inputs = direction == kInputs;
  const int64_t stride = cols + (inputs ? call.states_gap : call.output_gap);
  const int64_t between = inputs ? call.sequence_gap : call.output_sequence_gap;
  if (call.packed) return {dtype, {call.tokens(), cols}, {stride, 1}};
  const std::vector<int64_t> sizes = {call.sequences, call.time, cols};
  if (inputs ? call.time_first : call.output_time_first) return {dtype, sizes, {stride, call.sequences * stride, 1}};
  return {dtype, sizes, {(call.time + between) * stride, stride, 1}};
}

void Side::draw_hidden(Random& random, int64_t hidden_size) {
  hidden = rows_of_tokens(call, call.states, hidden_size, kInputs);
  x = hidden.fill([&](int64_t i, int64_t) {
    const bool tied = call.values == Values::kTies && i % 2 == 0;
    return tied ? 0 : number_of(call, random, 1);
  });
}

// The numbers of bitsandbytes' nf4 codes, which a scale multiplies.
static constexpr float kNf4Numbers[] = {
    -1.0F,      -0.6961928F, -0.52507305F, -0.3949175F, -0.28444138F, -0.18477343F, -0.091050036F, 0.0F,
    0.0795803F, 0.1609302F,  0.2461123F,   0.33791524F, 0.44070983F,  0.562617F,    0.72295684F,   1.0F};

// The scales are powers of two, so each number is exact in every type.
void Side::draw_packed(Random& random, double scale, oracle::MatrixXd& stored) {
  const int64_t hidden_size = stored.cols();
  const PackedBlock block = block_of(*call.packing);
  const bool nf4 = *call.packing == Packing::kNf4, apart = has_scales_apart(*call.packing);
  if (!apart && *call.packing != Packing::kQ8_0) return draw_blocks(random, scale, stored);
  weight = GuardedTensor::rows(DType::kUInt8, stored_, hidden_size / block.numbers * block.bytes);
  const int64_t groups = !apart || !call.scale_groups ? 1 : hidden_size % 2 == 0 ? 2 : hidden_size;
  const int64_t group = hidden_size / groups;
  if (apart) scales = GuardedTensor::rows(DType::kFloat32, stored_, groups);
  for (int64_t v = 0; v < stored_; ++v) {
    double step = 0;
    int64_t code = 0;
    for (int64_t h = 0; h < hidden_size; ++h) {
      if (h % group == 0) {
        step = std::ldexp(1.0, (nf4 ? 0 : -7) + static_cast<int>(below(random, 3)) + std::ilogb(scale));
        if (apart) scales.set(v, h / group, step);
      }
      if (nf4) {  // two codes per byte
        const int64_t next = below(random, 16);
        code = h % 2 == 0 ? next * 16 : code + next;
        if (h / 2 < weight.cols()) weight.set(v, h / 2, static_cast<double>(code));
        stored(v, h) = kNf4Numbers[next] * step;
        continue;
      }
      code = below(random, 255) - 127;
      const int64_t at = apart ? h : h / 32 * 34 + 2 + h % 32;
      if (at < weight.cols()) weight.set(v, at, static_cast<double>(static_cast<uint8_t>(code)));
      stored(v, h) = static_cast<double>(code) * step;
    }
    for (int64_t k = 0; !apart && k < hidden_size / 32; ++k) {
      const uint16_t bits = to_float16(step).bits;
      weight.set(v, k * 34, bits & 255), weight.set(v, k * 34 + 1, bits >> 8);
    }
  }
}

// Draws bytes, with scales that give numbers of about `scale`. The plain kernels unpack them; these are
// tested against ggml's own numbers.
void Side::draw_blocks(Random& random, double scale, oracle::MatrixXd& stored) {
  const Packing packing = *call.packing;
  const PackedBlock block = block_of(packing);
  weight = GuardedTensor::rows(DType::kUInt8, stored_, stored.cols() / block.numbers * block.bytes);
  for (int64_t i = 0; i < weight.count(); ++i) weight.set(i, static_cast<double>(below(random, 256)));
  // The offsets of a block's float16 numbers, and the largest integer that each multiplies.
  std::vector<std::pair<int64_t, double>> halves = {{0, 8}};
  if (packing == Packing::kQ4K) halves = {{0, 63 * 15}, {2, 63}};
  if (packing == Packing::kQ5K) halves = {{0, 63 * 31}, {2, 63}};
  if (packing == Packing::kQ6K) halves = {{208, 128 * 32}};
  for (int64_t v = 0; v < stored_; ++v) {
    for (int64_t first = 0; first < weight.cols(); first += block.bytes) {
      for (const auto& [at, largest] : halves) {
        const uint16_t bits = to_float16(scale / largest * (0.5 + 0.125 * static_cast<double>(below(random, 8)))).bits;
        weight.set(v, first + at, bits & 255), weight.set(v, first + at + 1, bits >> 8);
      }
    }
  }
  const kernels::UnpackRow unpack = kernels::plain_unpack_kernels().of(packing, 0);
  std::vector<float> row(static_cast<size_t>(stored.cols()));
  for (int64_t v = 0; v < stored_; ++v) {
    unpack({static_cast<const uint8_t*>(weight.view().data) + v * weight.cols()}, 0, stored.cols(), row.data());
    for (int64_t h = 0; h < stored.cols(); ++h) stored(v, h) = row[static_cast<size_t>(h)];
  }
}

void Side::draw_weight(Random& random, int64_t hidden_size) {
  const int64_t vocab = call.vocab;
  stored_ = call.vocab_ids ? vocab + 3 : vocab;
  if (call.vocab_ids) {
    for (int64_t k = 0; k < vocab; ++k) ids.push_back((k * 2 + 1) % stored_);
  }
  const auto row_of = [&](int64_t v) { return ids.empty() ? v : ids[static_cast<size_t>(v)]; };
  double scale = 1.5 / std::sqrt(static_cast<double>(hidden_size));
  if (call.values == Values::kCertain) scale *= 20;
  if (call.values == Values::kLarge) scale *= 3000;
  oracle::MatrixXd stored(stored_, hidden_size);
  if (call.packing) {
    draw_packed(random, scale, stored);
  } else {
    weight = call.head_transposed ? GuardedTensor(call.head, {stored_, hidden_size}, {1, stored_ + call.head_gap})
                                  : GuardedTensor::rows(call.head, stored_, hidden_size, call.head_gap);
    stored = weight.fill([&](int64_t, int64_t) { return number_of(call, random, scale); });
  }
  w.resize(vocab, hidden_size);
  for (int64_t v = 0; v < vocab; ++v) w.row(v) = stored.row(row_of(v));
  if (!call.bias) return;
  bias = GuardedTensor::vector(call.head, stored_);
  bias.fill([&](int64_t, int64_t v) {
    double value = number_of(call, random, 0.5, 3);
    if (call.values == Values::kOffset) value += call.head == DType::kFloat16 ? 0x1p12 : 0x1p20;
    if (call.values == Values::kMasked && v % 4 == 3) value = -std::numeric_limits<double>::infinity();
    return value;
  });
  bias_of.resize(vocab);
  for (int64_t v = 0; v < vocab; ++v) bias_of[v] = bias.get(0, row_of(v));
}

void Side::draw_lora(Random& random, int64_t hidden_size) {
  const int64_t rank = call.lora_rank;
  const auto draw = [&](GuardedTensor& tensor, int64_t rows, int64_t cols, double scale) {
    tensor = GuardedTensor::rows(call.lora, rows, cols, call.head_gap);
    return tensor.fill([&](int64_t, int64_t) { return number_of(call, random, scale, 1); });
  };
  const oracle::MatrixXd stored = draw(lora_b, stored_, rank, 0.7);
  b.resize(call.vocab, rank);
  for (int64_t v = 0; v < call.vocab; ++v) b.row(v) = stored.row(ids.empty() ? v : ids[static_cast<size_t>(v)]);
  if (call.lora_states) {
    rows = draw(lora_states, call.tokens(), rank, 1);
  } else {
    a = draw(lora_a, rank, hidden_size, 1 / std::sqrt(static_cast<double>(hidden_size)));
  }
}

void Side::draw_finished(Random& random) {
  finished = rows_of_tokens(call, call.states, call.vocab, kInputs);
  double scale = 2;
  if (call.values == Values::kCertain) scale = 40;
  if (call.values == Values::kLarge) scale = 5000;
  raw = finished.fill([&](int64_t i, int64_t v) {
    double value = call.values == Values::kTies && i % 2 == 0 ? 1 : number_of(call, random, scale, 4);
    if (call.values == Values::kOffset) value += call.states == DType::kFloat16 ? 0x1p12 : 0x1p20;
    if (call.values == Values::kMasked && v % 4 == 3) value = -std::numeric_limits<double>::infinity();
    return value;
  });
  if (call.values == Values::kMasked) {
    bias_of = oracle::VectorXd::Zero(call.vocab);
    for (int64_t v = 3; v < call.vocab; v += 4) bias_of[v] = -std::numeric_limits<double>::infinity();
  }
  raw_error = oracle::MatrixXd::Zero(raw.rows(), raw.cols());
}

void Side::multiply() {
  const double unit = unit_of(call.states);
  oracle::MatrixXd size = x.cwiseAbs() * w.cwiseAbs().transpose();
  raw = x * w.transpose();
  if (call.lora_rank > 0 && call.lora_states) {
    raw += rows * b.transpose();
    size += rows.cwiseAbs() * b.cwiseAbs().transpose();
  } else if (call.lora_rank > 0) {
    raw += call.lora_scale * (x * a.transpose()) * b.transpose();
    size += 2 * call.lora_scale * (x.cwiseAbs() * a.cwiseAbs().transpose()) * b.cwiseAbs().transpose();
  }
  if (bias_of.size() > 0) {
    raw.rowwise() += bias_of.transpose();
    size.rowwise() += bias_of.unaryExpr([](double v) { return std::isinf(v) ? 0 : std::fabs(v); }).transpose();
  }
  raw_error = sum_error(static_cast<double>(x.cols() + call.lora_rank + 2), unit) * size;
  if (call.values == Values::kWhole) raw_error.setZero();
}

Logits Side::logits(int64_t first, int64_t count) {
  Logits out;
  // A teacher's finished logits use the student's sequences.
  if (call.packed && !(call.finished && call.teacher_logits)) out.offsets = offsets;
  if (finished.given()) {
    out.finished = finished.view();
    out.finished.data =
        static_cast<std::byte*>(finished.view().data) + first * static_cast<int64_t>(size_of(call.states));
    out.finished.sizes[static_cast<size_t>(out.finished.axes) - 1] = count;
    return out;
  }
  // With ids, cut the list of ids; otherwise, cut the rows.
  const auto cut = [&](GuardedTensor& tensor) {
    return ids.empty() ? cut_axis(tensor.view(), first, count) : tensor.view();
  };
  out.hidden = hidden.view();
  logitless::LmHead& head = out.head;
  head.weight = cut(weight);
  head.packing = call.packing;
  head.scales = cut(scales);
  if (scales.given() && scales.cols() > 1) head.group = x.cols() / scales.cols();
  head.bias = cut(bias);
  head.softcap = call.softcap;
  if (!ids.empty()) head.vocab_ids = std::span(ids).subspan(static_cast<size_t>(first), static_cast<size_t>(count));
  if (call.lora_rank > 0) {
    head.lora.b = cut(lora_b);
    head.lora.a = lora_a.view();
    head.lora.states = lora_states.view();
    head.lora.scale = call.lora_states ? 1 : call.lora_scale;
  }
  return out;
}

void Side::poison(int64_t row) {
  GuardedTensor& tensor = finished.given() ? finished : hidden;
  for (int64_t k = 0; k < tensor.cols(); ++k) tensor.set(row, k, std::numeric_limits<double>::quiet_NaN());
  tensor.keep();
  raw.row(row).setZero();
  raw_error.row(row).setZero();
  if (x.size() > 0) x.row(row).setZero();
}

bool Side::unchanged() const {
  return hidden.unchanged() && weight.unchanged() && scales.unchanged() && bias.unchanged() && lora_a.unchanged() &&
         lora_b.unchanged() && lora_states.unchanged() && finished.unchanged();
}

}  // namespace logitless::testing

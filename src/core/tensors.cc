// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "core/tensors.h"

#include <algorithm>
#include <limits>

#include "core/check_fields.h"

namespace logitless::core {
namespace {

using logitless::detail::saturated_product;

// e.g. "[3, 4]"
std::string listed(const std::array<int64_t, 3>& numbers, int axes) {
  std::string text = "[";
  for (int i = 0; i < axes; ++i) text += (i > 0 ? ", " : "") + std::to_string(numbers[static_cast<size_t>(i)]);
  return text + "]";
}

// Returns whether the elements of this axis are contiguous.
bool steps_by_one(const ConstTensor& tensor, int axis) {
  const auto i = static_cast<size_t>(axis);
  return tensor.strides[i] == 1 || tensor.sizes[i] <= 1 || tensor.count() == 0;
}

bool is_dense(const ConstTensor& tensor) {
  if (tensor.count() == 0) return true;
  int64_t step = 1;
  for (int i = tensor.axes - 1; i >= 0; --i) {
    const auto at = static_cast<size_t>(i);
    if (tensor.sizes[at] > 1 && tensor.strides[at] != step) return false;
    step = saturated_product(step, tensor.sizes[at]);
  }
  return true;
}

bool has_order(const ConstTensor& tensor, Order order) {
  switch (order) {
    case Order::kDense:
      return is_dense(tensor);
    case Order::kRows:
      return steps_by_one(tensor, tensor.axes - 1);
    case Order::kEither:
      return steps_by_one(tensor, 0) || steps_by_one(tensor, 1);
    case Order::kAny:
      return true;
  }
  return false;
}

constexpr const char* kOrders[] = {"its elements must be contiguous", "its rows must be contiguous",
                                   "one of the two must be 1", ""};

// Returns the step between sequences of [B, T, H], unless they are contiguous.
template <class Void>
std::optional<int64_t> batch_step(const BasicTensor<Void>& t) {
  if (t.axes < 3 || t.sizes[0] <= 1 || t.strides[0] == saturated_product(t.sizes[1], t.strides[1])) return {};
  return t.strides[0];
}

// Returns [V, H] as a row-major matrix of this layout.
template <class AnyMatrix, class Void>
AnyMatrix oriented(const BasicTensor<Void>& tensor, HeadLayout layout) {
  const size_t row = layout == HeadLayout::kHiddenVocab ? 1 : 0;
  return AnyMatrix(tensor.data, tensor.dtype, tensor.sizes[row], tensor.sizes[1 - row], tensor.strides[row]);
}

// Returns rows of a tensor of two or three axes.
template <class AnyMatrix, class Void>
AnyMatrix rows_of(const BasicTensor<Void>& tensor) {
  return AnyMatrix(tensor.data, tensor.dtype, tensor.rows(), tensor.last_size(),
                   tensor.strides[static_cast<size_t>(tensor.axes - 2)]);
}

Matrix output_of(std::string_view name, const Tensor& tensor, const Role& role) {
  check_tensor(name, tensor, role);
  return rows_of<Matrix>(tensor);
}

PackedMatrix packed_of(const LmHead& head) {
  const ConstTensor& weight = head.weight;
  if (!head.packing) fail("weight is uint8, but packing is not set");
  check_named("packing", *head.packing);
  const PackedBlock block = block_of(*head.packing);
  if (!steps_by_one(weight, 1)) fail("weight is packed: its rows must be contiguous");
  if (weight.sizes[1] % block.bytes != 0) {
    fail("weight has ", weight.sizes[1], " bytes per row, which is not a multiple of the ", block.bytes,
         " of a block of ", name_of(*head.packing));
  }
  PackedMatrix packed;
  packed.data = weight.data;
  packed.packing = *head.packing;
  packed.rows = weight.sizes[0];
  packed.cols = saturated_product(weight.sizes[1] / block.bytes, block.numbers);
  packed.row_bytes = weight.strides[0];
  packed.scales = static_cast<const float*>(head.scales.data);
  packed.group = head.group;
  if (head.scales.given() && packed.group >= 0) {
    const int64_t each = packed.group == 0 ? 1 : packed.cols / packed.group;
    const int64_t wanted = saturated_product(packed.rows, each);
    if (head.scales.count() != wanted) {
      fail("scales has ", head.scales.count(), " entries, but the weight has ", wanted, " groups");
    }
  }
  return packed;
}

template <class View, class Void>
View view_of(const BasicTensor<Void>& t) {
  const bool batched = t.axes == 3;
  const size_t time = batched ? 1 : 0;
  const int64_t step = batched ? t.strides[0] : saturated_product(t.sizes[0], t.strides[0]);
  return View(t.data, t.dtype, batched ? t.sizes[0] : 1, t.sizes[time], t.sizes[time + 1], step, t.strides[time]);
}

}  // namespace

std::string text_of(const Role& role) {
  std::string elements = (role.elements & kFloats) == kFloats ? "floats" : "";
  for (const DType dtype : all_of<DType>()) {
    if (!role.takes(dtype) || elements == "floats") continue;
    elements += (elements.empty() ? "" : " or ") + std::string(name_of(dtype));
  }
  return "a tensor of " + elements + (*role.shape ? " " : "") + role.shape;
}

std::string text_of(const ConstTensor& tensor) {
  const auto code = static_cast<size_t>(tensor.dtype);
  const std::string elements = code < kNamesOf<DType>.size() ? name_of(tensor.dtype) : "of no element type";
  const bool listed_sizes = tensor.axes >= 0 && tensor.axes <= 3;
  return elements +
         (listed_sizes ? " " + listed(tensor.sizes, tensor.axes) : " of " + std::to_string(tensor.axes) + " axes");
}

void check_batch(MemberName name, const std::array<int64_t, 2>& sizes, const Logits& logits) {
  const ConstTensor& rows = logits.is_given() ? logits.finished : logits.hidden;
  if (rows.axes != 3 || rows.sizes[0] <= 1 || (sizes[0] == rows.sizes[0] && sizes[1] == rows.sizes[1])) return;
  if (saturated_product(sizes[0], sizes[1]) != rows.rows()) return;  // another check refuses the number
  fail(name, " is [", sizes[0], ", ", sizes[1], "] but ", logits.is_given() ? "logits are" : "hidden is", " [",
       rows.sizes[0], ", ", rows.sizes[1], ", ", rows.sizes[2], "]: both must have the same first two axes, or ", name,
       " one axis");
}

void check_tensor(std::string_view name, const ConstTensor& tensor, const Role& role) {
  const auto code = static_cast<int>(tensor.dtype);
  if (code < 0 || static_cast<size_t>(code) >= kNamesOf<DType>.size()) {
    fail(name, ".dtype = ", code, " is not an element type: these are 0 to ", kNamesOf<DType>.size() - 1);
  }
  if (tensor.axes < role.least_axes || tensor.axes > role.most_axes || !role.takes(tensor.dtype)) {
    fail(name, " must be ", text_of(role), ", not ", text_of(tensor));
  }
  const auto axes = static_cast<size_t>(tensor.axes);
  int64_t count = 1, signs = 0;
  for (size_t i = 0; i < axes; ++i) {
    if (tensor.sizes[i] < 0) fail(name, ".sizes[", i, "] = ", tensor.sizes[i], " is negative");
    count = saturated_product(count, tensor.sizes[i]);
    signs |= tensor.strides[i];
  }
  for (size_t i = 0; signs < 0 && count > 0 && i < axes; ++i) {
    const bool steps = tensor.sizes[i] > 1;
    if (steps && tensor.strides[i] < 0) fail(name, ".strides[", i, "] = ", tensor.strides[i], " is negative");
  }
  if (count > std::numeric_limits<int64_t>::max() / 8) fail(name, " has more elements than memory has bytes");
  if (!tensor.data && count > 0) fail(name, ".data is null, but it has ", count, " elements");
  if (reinterpret_cast<uintptr_t>(tensor.data) & (size_of(tensor.dtype) - 1)) {
    check_aligned(name, tensor.data, size_of(tensor.dtype), name_of(tensor.dtype));
  }
  if (role.order != Order::kAny && tensor.strides[axes - 1] == 1 && (role.order != Order::kDense || axes == 1)) return;
  if (!has_order(tensor, role.order)) {
    fail(name, " has strides ", listed(tensor.strides, tensor.axes), ": ", kOrders[static_cast<size_t>(role.order)]);
  }
}

void check_flags(MemberName name, std::span<const uint8_t> flags) {
  for (size_t i = 0; i < flags.size(); ++i) {
    if (flags[i] > 1) fail(name, "[", i, "] = ", int{flags[i]}, " must be 0 or 1");
  }
}

ConstVector vector_of(std::string_view name, const ConstTensor& tensor, const Role& role) {
  if (!tensor.given()) return {};
  check_tensor(name, tensor, role);
  return ConstVector(tensor.data, tensor.dtype, tensor.count());
}

ConstMatrix matrix_of(std::string_view name, const ConstTensor& tensor, const char* shape) {
  if (!tensor.given()) return {};
  check_tensor(name, tensor, rows_of_numbers(shape));
  return rows_of<ConstMatrix>(tensor);
}

Targets targets_of(std::string_view name, const ConstTensor& tensor, const Role& role) {
  Targets targets;
  if (!tensor.given()) return targets;
  check_tensor(name, tensor, role);
  if (tensor.dtype == DType::kInt32) targets.data32 = static_cast<const int32_t*>(tensor.data);
  if (tensor.dtype == DType::kInt64) targets.data64 = static_cast<const int64_t*>(tensor.data);
  targets.size = tensor.count();
  targets.stride = tensor.strides[static_cast<size_t>(tensor.axes - 1)];
  if (tensor.axes == 1) return targets;
  targets.time = tensor.sizes[1];
  targets.batch_stride = tensor.strides[0];
  return targets;
}

HiddenStates hidden_of(const Logits& logits) {
  const ConstTensor& t = logits.hidden;
  HiddenStates hidden;
  hidden.offsets = logits.offsets;
  if (!t.given()) return hidden;
  check_tensor("hidden", t, kHiddenRole);
  hidden.states = rows_of<ConstMatrix>(t);
  if (t.axes == 3 && !logits.offsets.empty()) {
    fail("offsets is given, but hidden is [B, T, H]: packed sequences are rows of [N, H]");
  }
  if (t.axes == 3) {
    hidden.sequences = t.sizes[0];
    hidden.batch_stride = batch_step(t);
  }
  return hidden;
}

HeadMatrices head_of(const LmHead& given) {
  HeadMatrices head;
  if (given.weight.given()) check_tensor("weight", given.weight, kWeightRole);
  if (given.scales.given()) check_tensor("scales", given.scales, kScalesRole);
  if (given.weight.given() && given.weight.dtype == DType::kUInt8) {
    head.packed = packed_of(given);
  } else {
    if (given.packing) {
      fail("packing = ", name_of(*given.packing), ", but weight is ", name_of(given.weight.dtype),
           ": a packed weight is uint8");
    }
    if (given.scales.given()) fail("scales is set, but weight is not packed");
    if (given.group != 0) fail("group = ", given.group, " is set, but weight is not packed");
  }
  if (given.weight.given() && !head.packed.given()) {
    head.layout = steps_by_one(given.weight, 1) ? HeadLayout::kVocabHidden : HeadLayout::kHiddenVocab;
    head.weight = oriented<ConstMatrix>(given.weight, head.layout);
  }
  head.bias = vector_of("bias", given.bias, kEntriesRole);
  head.softcap = given.softcap;
  head.ids = given.vocab_ids;
  const LoraAdapter& lora = given.lora;
  head.lora = {matrix_of("lora_a", lora.a, "[r, H]"), matrix_of("lora_b", lora.b, "[V, r]"), lora.scale,
               matrix_of("lora_states", lora.states, "[N, r]")};
  return head;
}

FinishedLogits logits_of(std::string_view name, const ConstTensor& logits) {
  check_tensor(name, logits, kLogitsRole);
  return view_of<FinishedLogits>(logits);
}

void set_gradients(const Gradients& given, HeadLayout layout, GradientMatrices& out) {
  const auto set = [](std::string_view name, const Tensor& tensor, const Role& role, Matrix& to) {
    if (tensor.given()) to = output_of(name, tensor, role);
  };
  set("d_hidden", given.d_hidden, kHiddenRole, out.d_hidden);
  out.d_hidden_batch_stride = batch_step(given.d_hidden);
  if (given.d_weight.given()) {
    check_tensor("d_weight", given.d_weight, kWeightGradientRole);
    if (!steps_by_one(given.d_weight, layout == HeadLayout::kHiddenVocab ? 0 : 1)) {
      fail("d_weight has strides ", listed(given.d_weight.strides, 2), ": it must be stored as weight is");
    }
    out.d_weight = oriented<Matrix>(given.d_weight, layout);
  }
  if (given.d_bias.given()) {
    check_tensor("d_bias", given.d_bias, kEntriesRole);
    out.d_bias = Vector(given.d_bias.data, given.d_bias.dtype, given.d_bias.count());
  }
  set("d_lora_a", given.d_lora_a, rows_of_numbers("[r, H]"), out.d_lora_a);
  set("d_lora_b", given.d_lora_b, rows_of_numbers("[V, r]"), out.d_lora_b);
  set("d_lora_states", given.d_lora_states, rows_of_numbers("[N, r]"), out.d_lora_states);
  if (given.d_logits.given()) {
    check_tensor("d_logits", given.d_logits, kLogitsRole);
    out.d_logits = view_of<LogitsGradient>(given.d_logits);
  }
  out.d_hidden_mode = given.d_hidden_mode;
  out.d_weight_mode = given.d_weight_mode;
  out.d_bias_mode = given.d_bias_mode;
  out.d_lora_mode = given.d_lora_mode;
  if (given.weight_sink) {
    out.weight_sink = [&sink = given.weight_sink, layout](int64_t first, int64_t count, const ConstMatrix& tile) {
      const ConstTensor stored(tile.data, tile.dtype, {tile.rows, tile.cols}, {tile.stride, 1});
      sink(first, count, layout == HeadLayout::kHiddenVocab ? transposed(stored) : stored);
    };
  }
  out.backward = given.backward;
}

ByteRange range_of(std::string_view name, const ConstTensor& tensor) {
  if (tensor.count() == 0) return {name, 0, 0};
  // A tensor that does not fit is refused when it is checked, which may be later.
  int64_t last = 1, step = 0;
  for (size_t i = 0; i < static_cast<size_t>(std::min(tensor.axes, 3)); ++i) {
    if (__builtin_mul_overflow(tensor.sizes[i] - 1, tensor.strides[i], &step)) return {name, 0, 0};
    if (__builtin_add_overflow(last, step, &last)) return {name, 0, 0};
  }
  return range_of(name, tensor.data, static_cast<size_t>(std::max<int64_t>(last, 0)) * size_of(tensor.dtype));
}

}  // namespace logitless::core

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "record/tensor.h"

#include <algorithm>
#include <string>

#include "core/checks.h"

namespace logitless::record {
namespace {

using core::fail;
using logitless::detail::saturated_product;

DType dtype_of(const Tensor& tensor) { return static_cast<DType>(tensor.element); }

size_t bytes_of(Element element) {
  if (element == Element::kUInt8) return 1;
  if (element == Element::kInt32) return 4;
  if (element == Element::kInt64) return 8;
  return size_of(static_cast<DType>(element));
}

// e.g. "[3, 4]"
std::string listed(const std::array<int64_t, 3>& numbers, int axes) {
  std::string text = "[";
  for (int i = 0; i < axes; ++i) text += (i > 0 ? ", " : "") + std::to_string(numbers[static_cast<size_t>(i)]);
  return text + "]";
}

// Tells whether the elements of this axis are contiguous.
bool steps_by_one(const Tensor& tensor, int axis) {
  const auto i = static_cast<size_t>(axis);
  return tensor.strides[i] == 1 || tensor.sizes[i] <= 1;
}

bool is_dense(const Tensor& tensor) {
  if (tensor.count() == 0) return true;
  int64_t step = 1;
  for (int i = tensor.axes - 1; i >= 0; --i) {
    const auto at = static_cast<size_t>(i);
    if (tensor.sizes[at] > 1 && tensor.strides[at] != step) return false;
    step = saturated_product(step, tensor.sizes[at]);
  }
  return true;
}

bool has_order(const Tensor& tensor, Order order) {
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

// Returns the stride between sequences of [B, T, H], unless they are contiguous.
std::optional<int64_t> batch_step(const Tensor& t) {
  if (t.axes < 3 || t.sizes[0] <= 1 || t.strides[0] == saturated_product(t.sizes[1], t.strides[1])) return {};
  return t.strides[0];
}

// Returns a head or its gradient, [V, H], as a row-major matrix of this layout.
template <class View>
View oriented(std::string_view name, const Tensor& tensor, HeadLayout layout) {
  View view;
  const bool transposed = layout == HeadLayout::kHiddenVocab;
  if (!steps_by_one(tensor, transposed ? 0 : 1)) {
    fail(name, " has strides ", listed(tensor.strides, 2), ", but those of weight are the other way round");
  }
  view.data = tensor.data;
  view.dtype = dtype_of(tensor);
  view.rows = tensor.sizes[transposed ? 1 : 0];
  view.cols = tensor.sizes[transposed ? 0 : 1];
  view.stride = tensor.strides[transposed ? 1 : 0];
  return view;
}

PackedMatrix packed_of(const Model& model, std::string_view prefix) {
  PackedMatrix packed;
  if (!model.packing) fail(prefix, "weight is uint8, but ", prefix, "packing is not set");
  const PackedBlock block = block_of(*model.packing);
  const int64_t bytes = model.weight.sizes[1];
  if (!steps_by_one(model.weight, 1)) fail(prefix, "weight is packed: its rows must be contiguous");
  if (bytes % block.bytes != 0) {
    fail(prefix, "weight has ", bytes, " bytes a row, which is no multiple of the ", block.bytes, " of a block of ",
         name_of(*model.packing));
  }
  packed.data = model.weight.data;
  packed.packing = *model.packing;
  packed.rows = model.weight.sizes[0];
  packed.cols = saturated_product(bytes / block.bytes, block.numbers);
  packed.row_bytes = model.weight.strides[0];
  packed.scales = static_cast<const float*>(model.scales.data);
  packed.group = model.group;
  if (model.scales.axes > 0 && packed.group >= 0) {
    const int64_t each = packed.group == 0 ? 1 : packed.cols / packed.group;
    const int64_t wanted = saturated_product(packed.rows, each);
    if (model.scales.count() != wanted) {
      fail(prefix, "scales has ", model.scales.count(), " entries, but the weight has ", wanted, " groups");
    }
  }
  return packed;
}

Matrix output_of(const Tensor& tensor) {
  Matrix out;
  if (tensor.axes == 0) return out;
  const int last = tensor.axes - 1;
  out.data = tensor.data;
  out.dtype = dtype_of(tensor);
  out.rows = last == 2 ? saturated_product(tensor.sizes[0], tensor.sizes[1]) : tensor.sizes[0];
  out.cols = tensor.sizes[static_cast<size_t>(last)];
  out.stride = tensor.strides[static_cast<size_t>(last - 1)];
  return out;
}

template <class View>
View logits_view(const Tensor& t) {
  const bool batched = t.axes == 3;
  View view;
  view.data = t.data;
  view.dtype = dtype_of(t);
  view.batch = batched ? t.sizes[0] : 1;
  view.time = t.sizes[batched ? 1 : 0];
  view.vocab = t.sizes[batched ? 2 : 1];
  view.row_stride = t.strides[batched ? 1 : 0];
  view.batch_stride = batched ? t.strides[0] : saturated_product(view.time, view.row_stride);
  return view;
}

}  // namespace

int64_t Tensor::count() const {
  int64_t count = 1;
  for (int i = 0; i < axes; ++i) count = saturated_product(count, sizes[static_cast<size_t>(i)]);
  return count;
}

std::string elements_text(const Role& role) {
  std::string text = (role.elements & kFloats) == kFloats ? "floats" : "";
  for (const Element element : all_of<Element>()) {
    if (!role.takes(element) || (only(element) & kFloats & role.elements && text.starts_with("floats"))) continue;
    text += (text.empty() ? "" : ", ") + std::string(name_of(element));
  }
  return text;
}

Tensor checked(std::string_view name, Tensor tensor, const Role& role) {
  const auto must = [&] { return " must be a tensor " + std::string(role.shape) + " of " + elements_text(role); };
  const auto code = static_cast<int>(tensor.element);
  if (code < 0 || static_cast<size_t>(code) >= kNamesOf<Element>.size()) {
    fail(name, ".dtype = ", code, " is no element type");
  }
  if (tensor.axes < role.least_axes || tensor.axes > role.most_axes)
    fail(name, must(), ", not of ", tensor.axes, tensor.axes == 1 ? " axis" : " axes");
  if (!role.takes(tensor.element)) fail(name, must(), ", not ", name_of(tensor.element));
  bool strided = false;
  for (size_t i = 0; i < static_cast<size_t>(tensor.axes); ++i) {
    if (tensor.sizes[i] < 0) fail(name, ".sizes[", i, "] = ", tensor.sizes[i], " is negative");
    if (tensor.strides[i] < 0) fail(name, ".strides[", i, "] = ", tensor.strides[i], " is negative");
    strided |= tensor.strides[i] != 0;
  }
  const int64_t count = tensor.count();
  if (count > std::numeric_limits<int64_t>::max() / 8) fail(name, " has more elements than memory has bytes");
  // Offsets and the like are read before their number is compared with that of the tokens.
  constexpr int64_t kMostPlaces = std::numeric_limits<int32_t>::max();
  if (role.elements == only(Element::kInt64) && count > kMostPlaces) {
    fail(name, " has ", count, " entries, which is above ", kMostPlaces);
  }
  if (!tensor.data && count > 0) fail(name, ".data is NULL, but it has ", count, " elements");
  core::check_aligned(name, tensor.data, bytes_of(tensor.element), name_of(tensor.element));
  for (int64_t i = tensor.axes - 1, step = 1; i >= 0 && !strided; --i) {
    tensor.strides[static_cast<size_t>(i)] = step;
    step = saturated_product(step, tensor.sizes[static_cast<size_t>(i)]);
  }
  if (!has_order(tensor, role.order)) {
    fail(name, " has strides ", listed(tensor.strides, tensor.axes), ": ", kOrders[static_cast<size_t>(role.order)]);
  }
  return tensor;
}

ConstVector vector_of(const Tensor& tensor) {
  return tensor.axes == 0 ? ConstVector() : ConstVector(tensor.data, dtype_of(tensor), tensor.count());
}

ConstMatrix matrix_of(const Tensor& tensor) {
  if (tensor.axes == 0) return {};
  return ConstMatrix(tensor.data, dtype_of(tensor), tensor.sizes[0], tensor.sizes[1], tensor.strides[0]);
}

Targets targets_of(const Tensor& tensor) {
  Targets targets;
  if (tensor.axes == 0) return targets;
  const auto last = static_cast<size_t>(tensor.axes - 1);
  if (tensor.element == Element::kInt32) targets.data32 = static_cast<const int32_t*>(tensor.data);
  if (tensor.element == Element::kInt64) targets.data64 = static_cast<const int64_t*>(tensor.data);
  targets.size = tensor.count();
  targets.stride = tensor.strides[last];
  if (tensor.axes == 1) return targets;
  targets.time = tensor.sizes[1];
  targets.batch_stride = tensor.strides[0];
  return targets;
}

HiddenStates hidden_of(const Model& model) {
  const Tensor& t = model.hidden;
  HiddenStates hidden;
  if (t.axes == 2) hidden = HiddenStates(matrix_of(t));
  if (t.axes == 3) {
    hidden = HiddenStates(t.data, dtype_of(t), t.sizes[0], t.sizes[1], t.sizes[2], batch_step(t), t.strides[1]);
  }
  if (model.offsets.axes > 0) {
    hidden.offsets = {static_cast<const int64_t*>(model.offsets.data), static_cast<size_t>(model.offsets.count())};
  }
  return hidden;
}

LmHead head_of(const Model& model, std::string_view prefix) {
  LmHead head;
  if (model.weight.axes > 0 && model.weight.element == Element::kUInt8) {
    head.packed = packed_of(model, prefix);
  } else if (model.weight.axes > 0) {
    if (model.packing) {
      fail(prefix, "packing = ", name_of(*model.packing), ", but ", prefix, "weight is ", name_of(model.weight.element),
           ": packed ones are uint8");
    }
    head.layout = steps_by_one(model.weight, 1) ? HeadLayout::kVocabHidden : HeadLayout::kHiddenVocab;
    head.weight = oriented<ConstMatrix>("weight", model.weight, head.layout);
  }
  head.bias = vector_of(model.bias);
  head.softcap = model.softcap;
  if (model.ids.axes > 0) {
    head.ids = {static_cast<const int64_t*>(model.ids.data), static_cast<size_t>(model.ids.count())};
  }
  head.lora = {matrix_of(model.lora_a), matrix_of(model.lora_b), model.lora_scale, matrix_of(model.lora_states)};
  return head;
}

FinishedLogits logits_of(const Tensor& logits) { return logits_view<FinishedLogits>(logits); }

LogitsGradient logits_gradient_of(const Tensor& d_logits) {
  return d_logits.axes == 0 ? LogitsGradient() : logits_view<LogitsGradient>(d_logits);
}

Gradients gradients_of(const Wanted& wanted, const LmHead& head) {
  Gradients out;
  out.d_hidden = output_of(wanted.d_hidden);
  out.d_hidden_batch_stride = batch_step(wanted.d_hidden);
  if (wanted.d_weight.axes > 0) out.d_weight = oriented<Matrix>("d_weight", wanted.d_weight, head.layout);
  if (wanted.d_bias.axes > 0) out.d_bias = Vector(wanted.d_bias.data, dtype_of(wanted.d_bias), wanted.d_bias.count());
  out.d_lora_a = output_of(wanted.d_lora_a);
  out.d_lora_b = output_of(wanted.d_lora_b);
  out.d_lora_states = output_of(wanted.d_lora_states);
  out.d_hidden_mode = wanted.d_hidden_mode;
  out.d_weight_mode = wanted.d_weight_mode;
  out.d_bias_mode = wanted.d_bias_mode;
  out.d_lora_mode = wanted.d_lora_mode;
  out.weight_sink = wanted.weight_sink;
  out.backward = wanted.backward;
  return out;
}

}  // namespace logitless::record

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The tensors of a record, and their conversion to the views of the public API.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "logitless/names.h"
#include "logitless/tensors.h"

namespace logitless::record {

/// The type of an element. The first four have the numbers of DType.
enum class Element { kFloat32, kBFloat16, kFloat64, kFloat16, kInt32, kInt64, kUInt8 };

/// A view of the caller's memory, or of a result: up to three axes, strides in elements.
struct Tensor {
  void* data = nullptr;
  Element element = Element::kFloat32;
  int axes = 0;  ///< 0: not set
  std::array<int64_t, 3> sizes = {}, strides = {};

  /// Returns the number of its elements.
  int64_t count() const;
};

/// How elements may be laid out.
enum class Order {
  kDense,   ///< contiguous
  kRows,    ///< the last axis is contiguous
  kEither,  ///< one axis is contiguous
  kAny,     ///< any strides
};

/// The tensors that a key accepts.
struct Role {
  const char* shape = "";  ///< for messages, e.g. "[N, H] or [B, T, H]"
  unsigned elements = 0;   ///< a bit for each type
  int least_axes = 1, most_axes = 2;
  Order order = Order::kDense;

  bool takes(Element element) const { return (elements >> static_cast<unsigned>(element)) & 1; }
};
inline constexpr unsigned kFloats = 0b1111;
constexpr unsigned only(Element element) { return 1U << static_cast<unsigned>(element); }
inline constexpr unsigned kIds = only(Element::kInt32) | only(Element::kInt64);

/// Returns e.g. "int32, int64", or "floats" for the four float types.
std::string elements_text(const Role& role);
/// Returns the tensor, with its dense strides if all were 0. Throws InvalidInput if the key of this name and
/// role does not accept it.
Tensor checked(std::string_view name, Tensor tensor, const Role& role);

/// A model: hidden states and a head, or finished logits.
struct Model {
  Tensor hidden, offsets, weight, bias, ids, lora_a, lora_b, lora_states, scales, logits;
  double softcap = 0, lora_scale = 1;
  std::optional<Packing> packing;
  int64_t group = 0;
};

/// Calls visit(name, role, members...) for each tensor of a model but its logits.
template <class Visit, class... M>
void visit_model(const Visit& visit, M&&... m) {
  constexpr unsigned kInt64 = only(Element::kInt64);
  visit("hidden", Role{"[N, H] or [B, T, H]", kFloats, 2, 3, Order::kRows}, m.hidden...);
  visit("offsets", Role{"[sequences + 1] of packed sequences", kInt64, 1, 1}, m.offsets...);
  visit("weight", Role{"[V, H], or [V, bytes] if packed", kFloats | only(Element::kUInt8), 2, 2, Order::kEither},
        m.weight...);
  visit("bias", Role{"[V]", kFloats, 1, 1}, m.bias...);
  visit("ids", Role{"[entries] of the weight that the call is over", kInt64, 1, 1}, m.ids...);
  visit("lora_a", Role{"[r, H]", kFloats, 2, 2, Order::kRows}, m.lora_a...);
  visit("lora_b", Role{"[V, r]", kFloats, 2, 2, Order::kRows}, m.lora_b...);
  visit("lora_states", Role{"[N, r]", kFloats, 2, 2, Order::kRows}, m.lora_states...);
  visit("scales", Role{"[V, H / group] of int8 and nf4", only(Element::kFloat32), 1, 2}, m.scales...);
}
inline constexpr Role kLogitsRole = {"[N, V] or [B, T, V]", kFloats, 2, 3, Order::kRows};

/// Where gradients go.
struct Wanted {
  Tensor d_hidden, d_weight, d_bias, d_lora_a, d_lora_b, d_lora_states, d_logits;
  WriteMode d_hidden_mode = WriteMode::kOverwrite, d_weight_mode = WriteMode::kOverwrite;
  WriteMode d_bias_mode = WriteMode::kOverwrite, d_lora_mode = WriteMode::kOverwrite;
  BackwardOptions backward;
  WeightGradientSink weight_sink;

  /// Returns the gradients of hidden states and a head, with their names.
  std::array<std::pair<const char*, const Tensor*>, 6> of_hidden() const {
    return {{{"d_hidden", &d_hidden},
             {"d_weight", &d_weight},
             {"d_bias", &d_bias},
             {"d_lora_a", &d_lora_a},
             {"d_lora_b", &d_lora_b},
             {"d_lora_states", &d_lora_states}}};
  }
};

// Conversions of a whole model. Messages put `prefix` before a name: "teacher.".

HiddenStates hidden_of(const Model& model);
LmHead head_of(const Model& model, std::string_view prefix);
FinishedLogits logits_of(const Tensor& logits);
LogitsGradient logits_gradient_of(const Tensor& d_logits);
Gradients gradients_of(const Wanted& wanted, const LmHead& head);

// Conversions of a checked tensor.

ConstVector vector_of(const Tensor& tensor);
ConstMatrix matrix_of(const Tensor& tensor);
Targets targets_of(const Tensor& tensor);

}  // namespace logitless::record

/// The names of types.
template <>
inline constexpr std::array logitless::kNamesOf<logitless::record::Element> = {
    "float32", "bfloat16", "float64", "float16", "int32", "int64", "uint8"};

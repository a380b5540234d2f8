// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Finds the LM head among the tensors of a GGUF file.
#include <algorithm>
#include <limits>
#include <sstream>

#include "io/gguf.h"
#include "io/gguf_types.h"

namespace logitless::io {
namespace {

// Returns true for the float32 numbers that the library accepts as a softcap.
bool is_softcap(double value) {
  return value == 0 || (value >= std::numeric_limits<float>::min() && value <= std::numeric_limits<float>::max());
}

ConstVector bias_of(const GgufFile& file, const GgufTensor& bias, const GgufTensor& weight) {
  const DType* dtype = std::get_if<DType>(&bias.format);
  if (!dtype || *dtype != DType::kFloat32) {
    throw Error(file.place_of(bias) + " is " + bias.type_text() + ", but a bias must be F32");
  }
  if (bias.rows != 1 || bias.cols != weight.rows) {
    throw Error(file.place_of(bias) + " has shape " + bias.shape_text() + ", but " + weight.name + " has " +
                std::to_string(weight.rows) + " rows");
  }
  return {bias.data, DType::kFloat32, bias.cols};
}

}  // namespace

HeadMatrices weight_of(const GgufFile& file, const GgufTensor& tensor) {
  if (std::holds_alternative<std::monostate>(tensor.format)) {
    throw Error(file.place_of(tensor) + " is " + tensor.type_text() + ": only " + names_of_read_types() + " are read");
  }
  // Sizes of 1 in front do not count: a file may leave them out.
  const size_t in_front = tensor.shape.size() - std::min<size_t>(tensor.shape.size(), 2);
  if (std::any_of(tensor.shape.begin(), tensor.shape.begin() + static_cast<ptrdiff_t>(in_front),
                  [](int64_t size) { return size != 1; })) {
    throw Error(file.place_of(tensor) + " has shape " + tensor.shape_text() + ", but a head has two dimensions");
  }
  if (const Packing* packing = std::get_if<Packing>(&tensor.format)) {
    PackedMatrix packed;
    packed.data = tensor.data;
    packed.packing = *packing;
    packed.rows = tensor.rows;
    packed.cols = tensor.cols;
    return packed;
  }
  return ConstMatrix(tensor.data, std::get<DType>(tensor.format), tensor.rows, tensor.cols);
}

GgufHead find_head(const GgufFile& file) {
  if (const int64_t parts = file.integer("split.count").value_or(1); parts > 1) {
    throw Error(file.path() + ": is one of the " + std::to_string(parts) +
                " parts of a split model, and the others may hold parts of the head: merge them first"
                " (llama-gguf-split --merge)");
  }
  GgufHead found;
  found.weight = file.find("output.weight");
  found.tied = !found.weight;
  if (found.tied) found.weight = file.find("token_embd.weight");
  if (!found.weight) {
    throw Error(file.path() + ": has no head: neither tensor output.weight nor token_embd.weight is among its " +
                std::to_string(file.tensors().size()) + " tensors");
  }
  found.head = weight_of(file, *found.weight);

  if (const GgufTensor* bias = file.find("output.bias")) found.head.bias = bias_of(file, *bias, *found.weight);
  const std::string key = file.architecture() + ".final_logit_softcapping";
  if (const std::optional<double> softcap = file.real(key)) {
    if (!is_softcap(*softcap)) {
      std::ostringstream value;
      value << *softcap;
      throw Error(file.path() + ": key " + one_line(key) + " is " + value.str() +
                  ", but must be a finite number above 0, or 0 for none");
    }
    found.head.softcap = *softcap;
  }
  return found;
}

}  // namespace logitless::io

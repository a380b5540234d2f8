// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "io/gguf_types.h"

#include <algorithm>
#include <iterator>
#include <vector>

namespace logitless::io {
namespace {

// In the order of ggml's enumeration.
constexpr GgmlType kTypes[] = {
    {0, "F32", 1, 4, DType::kFloat32},
    {1, "F16", 1, 2, DType::kFloat16},
    {2, "Q4_0", 32, 18, Packing::kQ4_0},
    {3, "Q4_1", 32, 20},
    {4, "Q4_2", 0, 0},
    {5, "Q4_3", 0, 0},
    {6, "Q5_0", 32, 22},
    {7, "Q5_1", 32, 24},
    {8, "Q8_0", 32, 34, Packing::kQ8_0},
    {9, "Q8_1", 32, 36},
    {10, "Q2_K", 256, 84},
    {11, "Q3_K", 256, 110},
    {12, "Q4_K", 256, 144, Packing::kQ4K},
    {13, "Q5_K", 256, 176, Packing::kQ5K},
    {14, "Q6_K", 256, 210, Packing::kQ6K},
    {15, "Q8_K", 256, 292},
    {16, "IQ2_XXS", 256, 66},
    {17, "IQ2_XS", 256, 74},
    {18, "IQ3_XXS", 256, 98},
    {19, "IQ1_S", 256, 50},
    {20, "IQ4_NL", 32, 18},
    {21, "IQ3_S", 256, 110},
    {22, "IQ2_S", 256, 82},
    {23, "IQ4_XS", 256, 136},
    {24, "I8", 1, 1},
    {25, "I16", 1, 2},
    {26, "I32", 1, 4},
    {27, "I64", 1, 8},
    {28, "F64", 1, 8},
    {29, "IQ1_M", 256, 56},
    {30, "BF16", 1, 2, DType::kBFloat16},
    {31, "Q4_0_4_4", 0, 0},
    {32, "Q4_0_4_8", 0, 0},
    {33, "Q4_0_8_8", 0, 0},
    {34, "TQ1_0", 256, 54},
    {35, "TQ2_0", 256, 66},
    {36, "IQ4_NL_4_4", 0, 0},
    {37, "IQ4_NL_4_8", 0, 0},
    {38, "IQ4_NL_8_8", 0, 0},
    {39, "MXFP4", 32, 17},
    {40, "NVFP4", 64, 36},
    {41, "Q1_0", 128, 18},
};

constexpr bool agrees_with_the_library(const GgmlType& type) {
  if (const Packing* packing = std::get_if<Packing>(&type.format)) {
    return type.block == block_of(*packing).numbers && type.bytes == block_of(*packing).bytes;
  }
  const DType* dtype = std::get_if<DType>(&type.format);
  return !dtype || (type.block == 1 && type.bytes == static_cast<int64_t>(size_of(*dtype)));
}
static_assert(std::all_of(std::begin(kTypes), std::end(kTypes), agrees_with_the_library));

}  // namespace

const GgmlType* ggml_type(uint32_t number) {
  const auto* it =
      std::find_if(std::begin(kTypes), std::end(kTypes), [&](const GgmlType& type) { return type.number == number; });
  return it == std::end(kTypes) ? nullptr : it;
}

std::string names_of_read_types() {
  std::vector<std::string> names;
  for (const GgmlType& type : kTypes) {
    if (type.format.index() != 0) names.emplace_back(type.name);
  }
  std::string text = names.front();
  for (size_t i = 1; i < names.size(); ++i) text += (i + 1 < names.size() ? ", " : " and ") + names[i];
  return text;
}

}  // namespace logitless::io

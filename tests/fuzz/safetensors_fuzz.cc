// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Reads a safetensors file: its header, every tensor by name and by kind, and every conversion of its
// elements.
#include "io/safetensors.h"

#include "fuzz_target.h"

namespace logitless::fuzz {
namespace {

constexpr int64_t kMostElements = 1 << 16;
constexpr DType kDTypes[] = {DType::kFloat32, DType::kFloat64, DType::kBFloat16, DType::kFloat16};

void read_elements(const io::Tensor& tensor) {
  if (tensor.is_integer()) io::read_integers(tensor);
  if (tensor.is_flag()) io::read_flags(tensor);
  if (!tensor.is_float()) return;
  std::vector<double> out(static_cast<size_t>(tensor.elements()));
  for (const DType dtype : kDTypes) {
    io::usable_in_place(tensor, dtype);
    io::convert_floats(tensor, dtype, out.data());
  }
}

}  // namespace
}  // namespace logitless::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace logitless;
  static const fuzz::MemoryFile memory;
  memory.write(fuzz::text_of(data, size));
  std::vector<std::string> names;
  const bool is_read = fuzz::reads([&] {
    const io::SafetensorsFile file(memory.path());
    for (const io::Tensor& tensor : file.tensors()) {
      fuzz::require(file.find(tensor.name) != nullptr, "a tensor is found by its name");
      names.push_back(tensor.name);
      const bool is_known = tensor.is_float() || tensor.is_integer() || tensor.is_flag();
      if (is_known && tensor.elements() <= fuzz::kMostElements) fuzz::read_elements(tensor);
    }
  });
  if (!is_read) return 0;
  for (const io::TensorWish& wish :
       {io::TensorWish{"hidden", io::TensorClass::kFloat, 2, true},
        io::TensorWish{"targets", io::TensorClass::kInteger, 1}, io::TensorWish{"mask", io::TensorClass::kFlag, 1}}) {
    fuzz::reads([&] { io::find_tensor(memory.path(), wish); });
    for (const std::string& name : names) {
      if (name.find(':') != std::string::npos) continue;  // FILE:TENSOR splits at the last colon
      fuzz::reads(
          [&] { fuzz::require(!io::find_tensor(memory.path() + ":" + name, wish).place().empty(), "a place"); });
    }
  }
  return 0;
}

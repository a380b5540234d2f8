// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Reads a GGUF file: its keys and tensors, every tensor as a weight, and the head.
#include "io/gguf.h"

#include <algorithm>

#include "fuzz_target.h"

namespace logitless::fuzz {
namespace {

void read_key(const io::GgufFile& file, const std::string& key) {
  int kinds = 0;
  kinds += reads([&] { file.text(key); });
  kinds += reads([&] { file.real(key); });
  kinds += reads([&] { file.integer(key); });
  require(kinds == 3 || kinds <= 1, "a key is absent or of one kind at most");
}

volatile unsigned sum_of_bytes;

// Reads every byte, so that a read outside the file faults if it crosses into an unmapped page.
void read_bytes(const io::GgufTensor& tensor) {
  unsigned sum = 0;
  for (size_t i = 0; i < tensor.bytes(); ++i) sum += std::to_integer<unsigned>(tensor.data[i]);
  sum_of_bytes = sum;
}

// A tensor of an unknown type has at least one byte.
void check_apart(const io::GgufTensor& a, const io::GgufTensor& b) {
  const bool apart = a.file_offset + std::max<size_t>(a.bytes(), 1) <= b.file_offset ||
                     b.file_offset + std::max<size_t>(b.bytes(), 1) <= a.file_offset;
  require(apart, "tensors do not overlap");
}

void read_tensor(const io::GgufFile& file, const io::GgufTensor& tensor, size_t file_bytes) {
  require(file.find(tensor.name) == &tensor, "a tensor is found by its name");
  require(tensor.rows > 0 && tensor.cols > 0, "a tensor has elements");
  require(tensor.file_offset < file_bytes && tensor.bytes() <= file_bytes - tensor.file_offset,
          "a tensor lies inside the file");
  require(reinterpret_cast<uintptr_t>(tensor.data) % 8 == 0, "a tensor is aligned");
  read_bytes(tensor);
  read_key(file, tensor.name);
  reads([&] {
    const HeadMatrices head = io::weight_of(file, tensor);
    require(head.hidden_size() == tensor.cols && head.stored_entries() == tensor.rows, "a weight is [V, H]");
    if (head.packed.given()) {
      const PackedBlock block = block_of(head.packed.packing);
      require(tensor.cols % block.numbers == 0, "a row is blocks");
      require(tensor.row_bytes == static_cast<size_t>(tensor.cols / block.numbers * block.bytes),
              "a row is its blocks");
    } else {
      require(tensor.row_bytes == static_cast<size_t>(tensor.cols) * size_of(head.weight.dtype),
              "a row is its numbers");
    }
  });
}

}  // namespace
}  // namespace logitless::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace logitless;
  static const fuzz::MemoryFile memory;
  memory.write(fuzz::text_of(data, size));
  fuzz::reads([&] {
    const io::GgufFile file(memory.path());
    for (const char* key : {"general.architecture", "general.alignment", "general.name", "split.count"}) {
      fuzz::read_key(file, key);
    }
    for (const io::GgufTensor& tensor : file.tensors()) {
      fuzz::read_tensor(file, tensor, size);
      for (const io::GgufTensor* before = file.tensors().data(); before != &tensor; ++before) {
        fuzz::check_apart(*before, tensor);
      }
    }
    const io::GgufHead found = io::find_head(file);
    fuzz::require(found.head.bias.size == 0 || found.head.bias.size == found.head.vocab_size(), "a bias fits its head");
  });
  return 0;
}

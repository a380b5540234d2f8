// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "cli/common/model_files.h"

#include <filesystem>
#include <fstream>
#include <string_view>

#include "io/error.h"
#include "io/peft_lora.h"
#include "oracle/views.h"

namespace logitless::cli {

bool is_gguf(const std::string& path) {
  constexpr std::string_view kMagic = "GGUF";
  std::error_code unknown;
  if (!std::filesystem::is_regular_file(path, unknown)) return false;  // reading a pipe would block
  std::string begin(kMagic.size(), '\0');
  std::ifstream(path).read(begin.data(), static_cast<std::streamsize>(begin.size()));
  return begin == kMagic;
}

io::TensorHandle ModelFiles::open(const std::string& flag, const std::string& spec, const io::TensorWish& wish) {
  io::TensorHandle handle = io::of_option(flag, [&] { return io::find_tensor(spec, wish); });
  handle.flag = flag;
  files_.push_back(handle.file);
  return handle;
}

ConstTensor ModelFiles::matrix(const io::Tensor& tensor) {
  const DType dtype = io::natural_dtype(tensor);
  const void* data = tensor.data;
  if (!io::usable_in_place(tensor, dtype)) {
    copies_.push_back(std::make_unique<std::byte[]>(tensor.bytes));
    io::convert_floats(tensor, dtype, copies_.back().get());
    data = copies_.back().get();
  }
  if (tensor.shape.size() == 1) return {data, dtype, {tensor.elements()}};
  return {data, dtype, {tensor.rows(), tensor.shape.back()}};
}

ConstTensor ModelFiles::floats(const std::string& flag, const std::string& spec, const char* conventional_name,
                               int rank) {
  return matrix(*open(flag, spec, {conventional_name, io::TensorClass::kFloat, rank, rank > 1}).tensor);
}

LmHead ModelFiles::gguf_head(const std::string& spec, int64_t hidden_size) {
  const auto [path, name] = io::split_spec(spec);
  gguf_files_.push_back(std::make_unique<const io::GgufFile>(path));
  const io::GgufFile& file = *gguf_files_.back();
  const io::GgufTensor* tensor = name.empty() ? nullptr : file.find(name);
  if (!name.empty() && !tensor) throw io::Error(path + ": has no tensor " + name);
  HeadMatrices head;
  if (tensor) {
    head = io::weight_of(file, *tensor);
  } else {
    const io::GgufHead found = io::find_head(file);
    tensor = found.weight;
    head = found.head;
  }
  if (head.hidden_size() == hidden_size) return head_of(head);
  throw io::Error(file.place_of(*tensor) + " " + tensor->shape_text() + ": its rows must have " +
                  std::to_string(hidden_size) + " elements, as hidden states have columns");
}

LmHead ModelFiles::head(const std::string& flag, const std::string& spec, const char* conventional_name,
                        int64_t hidden_size) {
  if (is_gguf(io::split_spec(spec).path)) return io::of_option(flag, [&] { return gguf_head(spec, hidden_size); });
  const io::TensorHandle handle = open(flag, spec, {conventional_name, io::TensorClass::kFloat, 2});
  const ConstTensor weight = matrix(*handle.tensor);
  if (weight.sizes[1] == hidden_size) return {.weight = weight};
  if (weight.sizes[0] == hidden_size) return {.weight = transposed(weight)};
  throw io::Error(handle.place() + " " + handle.tensor->shape_text() + ": neither dimension is " +
                  std::to_string(hidden_size) + ", the number of columns of the hidden states");
}

LoraAdapter ModelFiles::lora(const std::string& flag, const std::string& spec, int64_t stored_entries,
                             int64_t hidden_size) {
  const io::PeftLora lora = io::of_option(flag, [&] { return io::read_peft_lora(spec, stored_entries, hidden_size); });
  keep(lora.file);
  return {.a = matrix(*lora.a), .b = matrix(*lora.b), .scale = lora.scale};
}

void ModelFiles::check() const {
  for (const auto& file : files_) file->check_size();
  for (const auto& file : gguf_files_) file->check_size();
}

}  // namespace logitless::cli

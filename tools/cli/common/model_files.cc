// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "cli/common/model_files.h"

#include <filesystem>
#include <fstream>
#include <string_view>

#include "io/error.h"
#include "io/peft_lora.h"

namespace logitless::cli {

bool is_gguf(const std::string& path) {
  constexpr std::string_view kMagic = "GGUF";
  std::error_code unknown;
  if (!std::filesystem::is_regular_file(path, unknown)) return false;  // A pipe would be waited for.
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

const void* ModelFiles::elements(const io::Tensor& tensor) {
  const DType dtype = io::natural_dtype(tensor);
  if (io::usable_in_place(tensor, dtype)) return tensor.data;
  copies_.push_back(std::make_unique<std::byte[]>(tensor.bytes));
  io::convert_floats(tensor, dtype, copies_.back().get());
  return copies_.back().get();
}

HiddenStates ModelFiles::hidden(const std::string& flag, const std::string& spec, const char* conventional_name) {
  const io::TensorHandle handle = open(flag, spec, {conventional_name, io::TensorClass::kFloat, 2, true});
  const io::Tensor& tensor = *handle.tensor;
  const DType dtype = io::natural_dtype(tensor);
  return ConstMatrix(elements(tensor), dtype, tensor.rows(), tensor.shape.back());
}

HeadMatrices ModelFiles::gguf_head(const std::string& spec, int64_t hidden_size) {
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
  if (head.hidden_size() == hidden_size) return head;
  throw io::Error(file.place_of(*tensor) + " " + tensor->shape_text() + ": its rows are not the " +
                  std::to_string(hidden_size) + " columns of the hidden states");
}

HeadMatrices ModelFiles::head(const std::string& flag, const std::string& spec, const char* conventional_name,
                              int64_t hidden_size) {
  if (is_gguf(io::split_spec(spec).path)) return io::of_option(flag, [&] { return gguf_head(spec, hidden_size); });
  const io::TensorHandle handle = open(flag, spec, {conventional_name, io::TensorClass::kFloat, 2});
  const io::Tensor& tensor = *handle.tensor;
  const int64_t rows = tensor.shape[0], cols = tensor.shape[1];
  if (cols != hidden_size && rows != hidden_size) {
    throw io::Error(handle.place() + " " + tensor.shape_text() + ": neither rows nor columns are the " +
                    std::to_string(hidden_size) + " columns of the hidden states");
  }
  const HeadLayout layout = cols == hidden_size ? HeadLayout::kVocabHidden : HeadLayout::kHiddenVocab;
  return {ConstMatrix(elements(tensor), io::natural_dtype(tensor), rows, cols), layout};
}

LoraMatrices ModelFiles::lora(const std::string& flag, const std::string& spec, const HeadMatrices& head) {
  const io::PeftLora lora =
      io::of_option(flag, [&] { return io::read_peft_lora(spec, head.stored_entries(), head.hidden_size()); });
  files_.push_back(lora.file);
  const auto matrix = [&](const io::Tensor& tensor) {
    return ConstMatrix(elements(tensor), io::natural_dtype(tensor), tensor.shape[0], tensor.shape[1]);
  };
  return {matrix(*lora.a), matrix(*lora.b), lora.scale};
}

ConstVector ModelFiles::bias(const std::string& flag, const std::string& spec, const char* conventional_name) {
  const io::TensorHandle handle = open(flag, spec, {conventional_name, io::TensorClass::kFloat, 1});
  return {elements(*handle.tensor), io::natural_dtype(*handle.tensor), handle.tensor->elements()};
}

std::vector<int64_t> ModelFiles::ids(const std::string& flag, const std::string& spec, const char* conventional_name) {
  return io::read_integers(*open(flag, spec, {conventional_name, io::TensorClass::kInteger, 1, true}).tensor);
}

void ModelFiles::check() const {
  for (const auto& file : files_) file->check_size();
  for (const auto& file : gguf_files_) file->check_size();
}

}  // namespace logitless::cli

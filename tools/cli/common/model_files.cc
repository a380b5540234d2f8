// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "cli/common/model_files.h"

#include "io/error.h"

namespace logitless::cli {

io::TensorHandle ModelFiles::open(const std::string& spec, const io::TensorWish& wish) {
  io::TensorHandle handle = io::find_tensor(spec, wish);
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

HiddenStates ModelFiles::hidden(const std::string& spec, const char* conventional_name) {
  const io::TensorHandle handle = open(spec, {conventional_name, io::TensorClass::kFloat, 2, true});
  const io::Tensor& tensor = *handle.tensor;
  const DType dtype = io::natural_dtype(tensor);
  return ConstMatrix(elements(tensor), dtype, tensor.rows(), tensor.shape.back());
}

LmHead ModelFiles::head(const std::string& spec, const char* conventional_name, int64_t hidden_size) {
  const io::TensorHandle handle = open(spec, {conventional_name, io::TensorClass::kFloat, 2});
  const io::Tensor& tensor = *handle.tensor;
  const int64_t rows = tensor.shape[0], cols = tensor.shape[1];
  if (cols != hidden_size && rows != hidden_size) {
    throw io::Error(handle.place() + " " + tensor.shape_text() + ": neither rows nor columns are the " +
                    std::to_string(hidden_size) + " columns of the hidden states");
  }
  const HeadLayout layout = cols == hidden_size ? HeadLayout::kVocabHidden : HeadLayout::kHiddenVocab;
  return {ConstMatrix(elements(tensor), io::natural_dtype(tensor), rows, cols), layout};
}

ConstVector ModelFiles::bias(const std::string& spec, const char* conventional_name) {
  const io::TensorHandle handle = open(spec, {conventional_name, io::TensorClass::kFloat, 1});
  return {elements(*handle.tensor), io::natural_dtype(*handle.tensor), handle.tensor->elements()};
}

std::vector<int64_t> ModelFiles::ids(const std::string& spec, const char* conventional_name) {
  return io::read_integers(*open(spec, {conventional_name, io::TensorClass::kInteger, 1, true}).tensor);
}

void ModelFiles::check() const {
  for (const auto& file : files_) file->check_size();
}

}  // namespace logitless::cli

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "io/replaced_file.h"
#include "io/safetensors.h"

namespace logitless::io {
size_t safetensors_element_bytes(std::string_view dtype) {
  if (dtype == "F64" || dtype == "I64" || dtype == "U64") return 8;
  if (dtype == "F32" || dtype == "I32" || dtype == "U32") return 4;
  if (dtype == "F16" || dtype == "BF16" || dtype == "I16" || dtype == "U16") return 2;
  if (dtype == "I8" || dtype == "U8" || dtype == "BOOL" || dtype == "F8_E4M3" || dtype == "F8_E5M2") return 1;
  return 0;
}

void write_safetensors(const std::string& path, std::span<const TensorToWrite> tensors,
                       const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  size_t offset = 0;
  std::vector<size_t> sizes;
  for (const TensorToWrite& tensor : tensors) {
    const size_t element_bytes = safetensors_element_bytes(tensor.dtype);
    if (element_bytes == 0) throw Error(path + ": tensor " + tensor.name + ": dtype " + tensor.dtype + " is not known");
    if (header.contains(tensor.name)) throw Error(path + ": tensor " + tensor.name + ": is given twice");
    Tensor shape_only;
    shape_only.shape = tensor.shape;
    sizes.push_back(static_cast<size_t>(shape_only.elements()) * element_bytes);
    header[tensor.name] = {
        {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {offset, offset + sizes.back()}}};
    offset += sizes.back();
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');  // The format's own padding: data begins at a multiple of 8.

  ReplacedFile file(path);
  const uint64_t header_bytes = text.size();
  file.out().write(reinterpret_cast<const char*>(&header_bytes), sizeof(header_bytes));
  file.out().write(text.data(), static_cast<std::streamsize>(text.size()));
  for (size_t i = 0; i < tensors.size(); ++i) {
    file.out().write(static_cast<const char*>(tensors[i].data), static_cast<std::streamsize>(sizes[i]));
  }
  file.commit();
}

}  // namespace logitless::io

// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "io/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <utility>

#include "io/error.h"
#include "io/files.h"
#include "io/json_text.h"

namespace logitless::io {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

using nlohmann::json;

constexpr const char* kNoObject = "the header must be a JSON object";
constexpr size_t kLengthBytes = 8;
constexpr size_t kMaxHeaderBytes = 100'000'000;  // the limit of the format's reference implementation

[[noreturn]] void fail(const std::string& path, const std::string& reason) { throw Error(path + ": " + reason); }

// Returns nlohmann's message without its "[json.exception...]" prefix, as one line.
std::string tidy(std::string message) {
  if (const size_t end = message.find("] "); message.starts_with("[json.") && end != std::string::npos) {
    message.erase(0, end + 2);
  }
  return one_line(std::move(message));
}

[[noreturn]] void fail(const std::string& path, const std::string& tensor, const std::string& reason) {
  throw Error(path + ": tensor " + one_line(tensor) + ": " + reason);
}

// Reads an integer >= 0, which JSON may hold as signed, unsigned or (wrongly) as something else.
bool read_count(const json& value, int64_t& out) {
  if (!value.is_number_integer()) return false;
  if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) return false;
  out = value.get<int64_t>();
  return out >= 0;
}

Tensor read_entry(const std::string& path, const std::string& name, const json& entry, const std::byte* base,
                  size_t data_start, size_t data_bytes) {
  Tensor tensor;
  tensor.name = name;
  if (!entry.is_object()) fail(path, name, "its header entry must be an object");
  for (const char* key : {"dtype", "shape", "data_offsets"}) {
    if (!entry.contains(key)) fail(path, name, std::string("its header entry has no ") + key);
  }
  if (!entry["dtype"].is_string()) fail(path, name, "dtype must be a string");
  tensor.dtype = entry["dtype"].get<std::string>();

  const json& shape = entry["shape"];
  if (!shape.is_array()) fail(path, name, "shape must be an array");
  int64_t elements = 1;
  for (const json& size : shape) {
    int64_t value = 0;
    if (!read_count(size, value)) fail(path, name, "shape holds " + one_line(size.dump()) + ", not an integer >= 0");
    if (__builtin_mul_overflow(elements, value, &elements)) fail(path, name, "shape has more than 2^63 elements");
    tensor.shape.push_back(value);
  }

  const json& offsets = entry["data_offsets"];
  int64_t begin = 0, end = 0;
  if (!offsets.is_array() || offsets.size() != 2 || !read_count(offsets[0], begin) || !read_count(offsets[1], end)) {
    fail(path, name, "data_offsets must be two integers >= 0, not " + one_line(offsets.dump()));
  }
  const std::string range = "data_offsets [" + std::to_string(begin) + ", " + std::to_string(end) + "]";
  if (begin > end) fail(path, name, range + " end before they begin");
  if (static_cast<uint64_t>(end) > data_bytes) {
    fail(path, name,
         range + " reach outside the file, which holds " + std::to_string(data_bytes) +
             " bytes of data (is it truncated?)");
  }
  if (const size_t element_bytes = safetensors_element_bytes(tensor.dtype); element_bytes != 0) {
    int64_t bytes = 0;
    if (__builtin_mul_overflow(elements, static_cast<int64_t>(element_bytes), &bytes) || bytes != end - begin) {
      fail(path, name, range + " do not hold shape " + tensor.shape_text() + " of " + tensor.dtype);
    }
  }
  tensor.bytes = static_cast<size_t>(end - begin);
  tensor.file_offset = data_start + static_cast<size_t>(begin);
  tensor.data = base + tensor.file_offset;
  return tensor;
}

// The format requires that tensors cover the whole data section. An overlap or a gap means that header and
// data do not belong together.
void check_coverage(const std::string& path, std::vector<Tensor>& tensors, size_t data_start, size_t file_bytes) {
  std::stable_sort(tensors.begin(), tensors.end(), [](const Tensor& a, const Tensor& b) {
    return std::pair(a.file_offset, a.bytes) < std::pair(b.file_offset, b.bytes);
  });
  size_t covered = data_start;
  for (const Tensor& tensor : tensors) {
    if (tensor.file_offset < covered) fail(path, tensor.name, "its data_offsets overlap those of another tensor");
    if (tensor.file_offset > covered) {
      fail(path, tensor.name,
           "there are " + std::to_string(tensor.file_offset - covered) + " bytes before it that belong to no tensor");
    }
    covered += tensor.bytes;
  }
  if (covered != file_bytes) {
    fail(path, "the last " + std::to_string(file_bytes - covered) + " bytes belong to no tensor");
  }
}

}  // namespace

SafetensorsFile::SafetensorsFile(std::string file_path) : file_(std::move(file_path)) {
  try {
    read_header();
  } catch (const Error&) {
    check_size();  // If the file was truncated meanwhile, report that instead.
    throw;
  }
}

void SafetensorsFile::read_header() {
  const size_t size = file_.size();
  if (size < kLengthBytes) {
    fail(path(),
         "is not a safetensors file: it has " + std::to_string(size) + " bytes, fewer than the 8 of the header length");
  }
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, file_.data(), kLengthBytes);
  if (header_bytes > size - kLengthBytes) {
    fail(path(), "is not a whole safetensors file: the header length " + std::to_string(header_bytes) +
                     " is beyond the file's " + std::to_string(size) + " bytes");
  }
  if (header_bytes > kMaxHeaderBytes) {
    fail(path(), "the header length " + std::to_string(header_bytes) + " is above the format's 100000000");
  }
  const std::string_view text(reinterpret_cast<const char*>(file_.data()) + kLengthBytes, header_bytes);
  const size_t data_start = kLengthBytes + header_bytes;
  check_json_depth(text, path() + ": the header ");
  // Each member of the header is used and dropped as soon as it is complete: a checkpoint has tens of
  // thousands.
  std::unordered_set<std::string> names;
  std::string name;
  const auto take = [&](int depth, json::parse_event_t event, json& value) {
    using Event = json::parse_event_t;
    const bool begins = event == Event::object_start || event == Event::array_start;
    if (depth == 0 && (event == Event::array_start || event == Event::value)) fail(path(), kNoObject);
    if (depth != 1 || begins) return true;
    if (event == Event::key) {
      name = value.get<std::string>();
      if (!names.insert(name).second) fail(path(), name, "is in the header twice");
      return true;
    }
    if (name != "__metadata__") {
      tensors_.push_back(read_entry(path(), name, value, file_.data(), data_start, size - data_start));
    } else if (!value.is_object()) {
      fail(path(), "__metadata__ must be an object");
    }
    return false;
  };
  try {
    [[maybe_unused]] const json rest = json::parse(text, take);
  } catch (const json::exception& e) {
    fail(path(), "the header is not JSON: " + tidy(e.what()));
  }
  check_coverage(path(), tensors_, data_start, size);
}

const Tensor* SafetensorsFile::find(std::string_view name) const {
  const auto it = std::find_if(tensors_.begin(), tensors_.end(), [&](const Tensor& t) { return t.name == name; });
  return it == tensors_.end() ? nullptr : &*it;
}

size_t safetensors_element_bytes(std::string_view dtype) {
  if (dtype == "F64" || dtype == "I64" || dtype == "U64") return 8;
  if (dtype == "F32" || dtype == "I32" || dtype == "U32") return 4;
  if (dtype == "F16" || dtype == "BF16" || dtype == "I16" || dtype == "U16") return 2;
  if (dtype == "I8" || dtype == "U8" || dtype == "BOOL" || dtype == "F8_E4M3" || dtype == "F8_E5M2") return 1;
  return 0;
}

void write_safetensors(const std::string& path, std::span<const TensorToWrite> tensors) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
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
  text.append((8 - text.size() % 8) % 8, ' ');  // padded as the format does: data begins at a multiple of 8

  const uint64_t header_bytes = text.size();
  std::vector<std::string_view> parts = {{reinterpret_cast<const char*>(&header_bytes), sizeof(header_bytes)}, text};
  for (size_t i = 0; i < tensors.size(); ++i) parts.emplace_back(static_cast<const char*>(tensors[i].data), sizes[i]);
  write_file(path, parts);
}

}  // namespace logitless::io

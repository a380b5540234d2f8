// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <utility>

#include "io/json_depth.h"
#include "io/one_line.h"
#include "io/safetensors.h"

namespace logitless::io {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

using nlohmann::json;

constexpr size_t kLengthBytes = 8;
constexpr size_t kMaxHeaderBytes = 100'000'000;  // The limit of the format's reference implementation.

[[noreturn]] void fail(const std::string& path, const std::string& reason) { throw Error(path + ": " + reason); }

// nlohmann's own message, without its "[json.exception...]" prefix and as one line.
std::string tidy(std::string message) {
  if (const size_t end = message.find("] "); message.starts_with("[json.") && end != std::string::npos) {
    message.erase(0, end + 2);
  }
  return one_line(std::move(message));
}

[[noreturn]] void fail(const std::string& path, const std::string& tensor, const std::string& reason) {
  throw Error(path + ": tensor " + one_line(tensor) + ": " + reason);
}

// Hands each member of the header to `take` as soon as it is complete, so that time is linear in the header and memory
// is that of one member: a checkpoint has tens of thousands.
class HeaderReader : public json::json_sax_t {
 public:
  using Take = std::function<void(const std::string& name, const json& entry)>;

  HeaderReader(const std::string& path, Take take) : path_(path), take_(std::move(take)) {}

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(json::number_integer_t value) override { return add(value); }
  bool number_unsigned(json::number_unsigned_t value) override { return add(value); }
  bool number_float(json::number_float_t value, const std::string&) override { return add(value); }
  bool string(std::string& value) override { return add(std::move(value)); }
  bool binary(json::binary_t& value) override { return add(std::move(value)); }
  bool key(std::string& key) override {
    if (open_.empty() && !names_.insert(key).second) fail(path_, key, "is in the header twice");
    (open_.empty() ? name_ : key_) = std::move(key);
    return true;
  }
  bool start_object(size_t) override {
    if (in_header_) return open(json::object());
    return in_header_ = true;
  }
  bool start_array(size_t) override { return open(json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& e) override {
    fail(path_, "the header is not JSON: " + tidy(e.what()));
  }

 private:
  // Puts a value where it belongs: it is a member of the header, or of the container that was opened last.
  json& place(json value) {
    if (!in_header_) fail(path_, "the header must be a JSON object");
    if (open_.empty()) return entry_ = std::move(value);
    json& around = *open_.back();
    if (around.is_object()) return around[key_] = std::move(value);
    around.push_back(std::move(value));
    return around.back();
  }
  bool add(json value) {
    place(std::move(value));
    if (open_.empty()) take_(name_, entry_);
    return true;
  }
  bool open(json container) {
    open_.push_back(&place(std::move(container)));
    return true;
  }
  bool close() {
    if (open_.empty()) return true;  // the header itself
    open_.pop_back();
    if (open_.empty()) take_(name_, entry_);
    return true;
  }

  const std::string& path_;
  Take take_;
  bool in_header_ = false;
  std::unordered_set<std::string> names_;
  std::string name_, key_;  // of the member, and inside of it
  json entry_;
  std::vector<json*> open_;  // the containers around the next value, inside of the member
};

// An integer that JSON may spell as signed, unsigned or (wrongly) as something else.
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

// The format wants the data section indexed whole: an overlap or a gap means that header and data do not belong
// together.
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
    check_size();  // What is left of a header is no JSON, but that is not the news.
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
  if (json_depth(text) > kMostJsonDepth) {
    fail(path(), "the header is nested deeper than " + std::to_string(kMostJsonDepth) + " levels");
  }
  HeaderReader reader(path(), [&](const std::string& name, const json& entry) {
    if (name != "__metadata__") {
      tensors_.push_back(read_entry(path(), name, entry, file_.data(), data_start, size - data_start));
    } else if (!entry.is_object()) {
      fail(path(), "__metadata__ must be an object");
    }
  });
  json::sax_parse(text, &reader);
  check_coverage(path(), tensors_, data_start, size);
}

const Tensor* SafetensorsFile::find(std::string_view name) const {
  const auto it = std::find_if(tensors_.begin(), tensors_.end(), [&](const Tensor& t) { return t.name == name; });
  return it == tensors_.end() ? nullptr : &*it;
}

}  // namespace logitless::io
